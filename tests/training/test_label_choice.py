"""Held-out rows say how much classifiers of labels weigh, and whether they are used."""

from dataclasses import replace

import numpy as np
import pytest

from streammach.options.figures import HeldOutMetrics
from streammach.parts.counts import fitting
from streammach.parts.counts.count_bytes import MAX_GROUPS, evidence_bytes
from streammach.parts.counts.fitting import Fitted, Fitting, _best_adjustment, uses_learnt
from streammach.parts.counts.group_fit import start_weights
from streammach.parts.counts.group_kernels import CandidateFeatures
from streammach.system.threads import Workers
from tests.builders import block_of, packed


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("learnt", [False, True])
def test_labels_weigh_more_than_fitted_where_rows_do_better(rng, listed, learnt):
    n, m = 400, 8
    targets = np.zeros((n, m), np.float32)
    targets[np.arange(n), rng.integers(0, m, n)] = 1
    counted = np.zeros((n, 3, m), np.float32)
    counted[:, 2] = targets * 4 - 2  # what classifiers say: all of it is right
    found = CandidateFeatures(
        **packed(counted, np.ones((n, 1), np.float32))._asdict(),
        log_rows=np.ones((n, m), np.float32), log_values=np.ones((n, m), np.float32),
        hashed=rng.normal(size=(n, m)).astype(np.float32), repeated=np.zeros((n, m), bool),
        number=np.arange(n), targets=targets, weights=np.ones(n, np.float32), listed=listed,
    )  # fmt: skip
    weights = replace(start_weights(np.zeros(3, np.int32)), hashed=1.0)
    if learnt:
        weights = replace(weights, theta=np.ones(5, np.float32), delta=np.ones(3, np.float32))
    halves = (found.part(0, n // 2), found.part(n // 2, n))
    rows = block_of(rng, n, 3, m)
    factor, step = _best_adjustment([weights] * 3, halves, rows, Workers(1, "choice"))
    assert factor == 1
    assert step == (1 if listed and learnt else 0)


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize(
    ("more", "used"), [(0.01, {False, True}), (-0.004, {True}), (-0.02, set())]
)
def test_classifiers_are_used_where_rows_cannot_tell(listed, more, used):
    weights = start_weights(np.zeros(3, np.int32))
    grouped = Fitted.of(weights, HeldOutMetrics(0.4, 0.2))
    learnt = Fitted.of(weights, HeldOutMetrics(0.4 + more, 0.2))
    assert uses_learnt(grouped, learnt, 2500, listed=listed) == (listed in used)


@pytest.mark.parametrize("n_bytes", [1_000_000, 3_000_000, 1 << 30])
@pytest.mark.parametrize("long", [3, 50, 300])
def test_rows_are_fitted_on_as_far_as_their_groups_have_room(rng, monkeypatch, long, n_bytes):
    monkeypatch.setattr(fitting, "FIT_BYTES", n_bytes)
    lengths = np.where(np.arange(400) % 2, 1, long)
    rows = replace(
        block_of(rng, 400, 3, 5), indptr=np.concatenate([[0], np.cumsum(lengths)]),
        features=np.zeros(lengths.sum(), np.int32), values=np.ones(lengths.sum(), np.float32),
    )  # fmt: skip
    fits = Fitting(rows, 10_000, threads=1)
    held = np.minimum(np.diff(fits.rows.indptr)[fits._first :][: fits.n_fit], MAX_GROUPS)
    needed = evidence_bytes(fits.n_fit, int(held.sum()))
    assert needed <= n_bytes
    assert fits.n_fit == 400 or needed > 0.7 * n_bytes
