"""Held-out rows say how much classifiers of labels weigh, and whether they are used."""

from dataclasses import replace

import numpy as np
import pytest

from streammach.figures import Reached
from streammach.parts.counts.fitting import Fitted, _best_adjustment, uses_learnt
from streammach.parts.counts.group_fit import CandidateFeatures, start_weights
from streammach.threads import Workers
from tests.builders import block_of


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("learnt", [False, True])
def test_labels_weigh_more_than_fitted_where_rows_do_better(rng, listed, learnt):
    n, m = 400, 8
    targets = np.zeros((n, m), np.float32)
    targets[np.arange(n), rng.integers(0, m, n)] = 1
    counted = np.zeros((n, 3, m), np.float32)
    counted[:, 2] = targets * 4 - 2  # what classifiers say: all of it is right
    found = CandidateFeatures(
        counted=counted, groups=np.ones((n, 1), np.float32),
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
    grouped = Fitted.of(weights, Reached(0.4, 0.2))
    learnt = Fitted.of(weights, Reached(0.4 + more, 0.2))
    assert uses_learnt(grouped, learnt, 2500, listed=listed) == (listed in used)
