"""Pairs are learnt while held-out rows gain by it."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import logsumexp

from streammach.counts.learning import class_logarithms, evidence, weigh
from streammach.counts.scores import CountScorer
from streammach.model.findings import Findings
from streammach.parts.counts import count_learner as alone
from streammach.parts.counts.count_learner import held_out_loss, learn_while_it_pays
from streammach.parts.counts.group_fit import in_order
from streammach.parts.counts.group_kernels import CandidateFeatures
from streammach.system.threads import Workers
from tests.builders import block_of
from tests.counts.test_counts import D, K, counted, group_weights


def lessons_of(rng, n=100, piece=10):
    block = block_of(rng, n, D, K)
    return lambda: (block.part(i, i + piece) for i in range(0, n, piece))


NEVER = SimpleNamespace(remaining_seconds=np.inf)


class Seconds:
    """A clock that gives what is left of the time, one number after another."""

    def __init__(self, left):
        self._left = iter(left)

    @property
    def remaining_seconds(self):
        return next(self._left)


def learn(rng, losses, most_rows=None, clock=NEVER):
    """Learn from passes of 100 rows; return how many rows it were, and what was told."""
    seen, told, left = [], [], iter(losses)
    training = SimpleNamespace(
        dataset=SimpleNamespace(n_rows=100), options=SimpleNamespace(pair_rows=most_rows),
        clock=clock, findings=Findings(Path(), "one", lasting=False), report=told.append,
    )  # fmt: skip
    learner = SimpleNamespace(
        learn=lambda rows: seen.append(rows.n_rows), state=dict, begin=lambda: None
    )
    n_rows = learn_while_it_pays(training, learner, lessons_of(rng), lambda: next(left), 1.0)
    assert n_rows == sum(seen)
    return n_rows, told


@pytest.mark.parametrize(
    ("losses", "n_rows"),
    [
        ([2.0, 1.996], 80),  # asked after 50 rows, and after every 25: pieces have 10
        ([2.0, 1.9, 1.896], 100),
        ([2.0, 1.9, 1.8, 1.9], 130),
        (np.arange(20, 0, -1.0), 400),  # no more than four passes
    ],
)
def test_learning_ends_where_held_out_rows_gain_little(rng, losses, n_rows):
    learnt, told = learn(rng, losses)
    assert learnt == n_rows
    assert told[0] == f"learnt pairs from 50 rows: held-out loss {losses[0]:.3f}"
    if n_rows < 400:
        assert told[-1] == f"learnt pairs from {n_rows} rows: held-out loss {losses[-1]:.3f}"


def test_of_very_many_rows_the_first_are_learnt_from(rng, monkeypatch):
    monkeypatch.setattr(alone, "MOST_LESSONS", 130)
    assert learn(rng, [3.0, 2.0, 1.0, 0.0])[0] == 130


def test_rows_that_are_named_are_learnt_from_whatever_held_out_rows_say(rng):
    assert learn(rng, [], most_rows=170) == (170, [])
    assert learn(rng, [], most_rows=0) == (0, [])


def test_learning_ends_with_the_time(rng):
    assert learn(rng, [], clock=Seconds([9.0, 5.0, 0.5])) == (30, [])


def test_the_loss_is_that_of_the_best_share_of_what_was_learnt(rng):
    block = block_of(rng, 60, D, K)
    table, weights = counted(block), group_weights(rng)
    scorer = CountScorer(weigh(table, weights), 1)
    candidates = np.tile(np.arange(K, dtype=np.int32), (60, 1))
    log_rows, log_values = class_logarithms(table)
    said = evidence(table, block, candidates, weights=weights, each=scorer.each)
    found = CandidateFeatures(
        **said._asdict(), log_rows=log_rows[candidates], log_values=log_values[candidates],
        hashed=np.zeros(candidates.shape, np.float32), repeated=candidates < 0,
        number=np.arange(60), targets=np.eye(K, dtype=np.float32)[block.classes],
        weights=np.ones(60, np.float32), listed=False,
    )  # fmt: skip
    loss = held_out_loss(
        found, found.scores(in_order(weights), Workers(1, "watch")),
        lambda some: evidence(table, block, candidates, weights=some, each=scorer.each),
    )  # fmt: skip
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
    assert loss(drawn) == pytest.approx(wanted, abs=2e-3)
    nothing = replace(drawn, theta=np.zeros_like(theta))
    assert loss(nothing) == pytest.approx(by_force(0, learnt), abs=1e-3)
    scorer.close()
