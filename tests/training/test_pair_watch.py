"""Pairs are learnt while held-out rows gain by it."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import logsumexp

from streammach.counts.learning import class_logarithms, evidence, weigh
from streammach.counts.scores import CountScorer
from streammach.parts.counts import watch
from streammach.parts.counts.group_fit import CandidateFeatures
from streammach.parts.counts.watch import HeldOutLoss, learn_while_it_pays
from tests.builders import block_of
from tests.counts.test_counts import D, K, counted, group_weights


def lessons_of(rng, n=100, piece=10):
    block = block_of(rng, n, D, K)
    return lambda: (block.part(i, i + piece) for i in range(0, n, piece))


@pytest.mark.parametrize(
    ("losses", "passes"),
    [
        ([2.0, 1.995], 1),  # the second half of the first pass brought too little
        ([2.0, 1.9, 1.895], 2),
        ([2.0, 1.9, 1.8, 1.9], 3),
        ([2.0, 1.9, 1.8, 1.7, 1.6, 1.5], 4),  # no more than four
    ],
)
def test_passes_end_where_held_out_rows_gain_little(rng, losses, passes):
    seen, told, left = [], [], iter(losses)
    learn_while_it_pays(
        lambda rows: seen.append(rows.n_rows), lambda: next(left), lessons_of(rng),
        n_rows=100, tell=told.append,
    )  # fmt: skip
    assert sum(seen) == 100 * passes
    assert len(told) == passes
    assert told[-1] == f"learnt pairs from {100 * passes} rows: held-out loss {losses[passes]:.3f}"


def test_of_very_many_rows_the_first_are_learnt_from(rng, monkeypatch):
    monkeypatch.setattr(watch, "MOST_LESSONS", 130)
    seen, losses = [], iter([3.0, 2.0, 1.0, 0.0])
    learn_while_it_pays(
        lambda rows: seen.append(rows.n_rows), lambda: next(losses), lessons_of(rng),
        n_rows=100, tell=lambda text: None,
    )  # fmt: skip
    assert sum(seen) == 130


def test_the_loss_is_that_of_the_best_share_of_what_was_learnt(rng):
    block = block_of(rng, 60, D, K)
    table, weights = counted(block), group_weights(rng)
    scorer = CountScorer(weigh(table, weights), 1)
    candidates = np.tile(np.arange(K, dtype=np.int32), (60, 1))
    log_rows, log_values = class_logarithms(table)
    groups = np.zeros((60, weights.n_groups), np.float32)
    row_of = np.repeat(np.arange(60), np.diff(block.indptr))
    np.add.at(groups, (row_of, weights.group[block.features]), 1)
    found = CandidateFeatures(
        counted=evidence(table, block, candidates, weights=weights, each=scorer.each),
        groups=groups, log_rows=log_rows[candidates], log_values=log_values[candidates],
        hashed=np.zeros(candidates.shape, np.float32), repeated=candidates < 0,
        place=block.classes.astype(np.int64), number=np.arange(60),
    )  # fmt: skip
    loss = HeldOutLoss(table, weights, found, rows=block, candidates=candidates, each=scorer.each)
    ids, scores = scorer.topk(block, K)
    z = np.empty((60, K))
    np.put_along_axis(z, ids, scores, axis=1)

    def by_force(share, learnt):
        some = z + share * learnt
        return (logsumexp(some, axis=1) - some[np.arange(60), block.classes]).mean()

    theta = rng.normal(size=table.n_pairs).astype(np.float32) * 0.3
    drawn = replace(weights, theta=theta, delta=np.zeros(D, np.float32))
    learnt = np.zeros((60, K))
    for i in range(60):
        for f in block.features[block.indptr[i] : block.indptr[i + 1]]:
            some = slice(table.starts[f], table.starts[f + 1])
            learnt[i, table.classes[some]] += theta[some]
    wanted = min(by_force(share, learnt) for share in np.linspace(0, 2, 401))
    assert loss.of(drawn) == pytest.approx(wanted, abs=2e-3)
    nothing = replace(drawn, theta=np.zeros_like(theta))
    assert loss.of(nothing) == pytest.approx(by_force(0, learnt), abs=1e-3)
    scorer.close()
