"""What is given back of the tilt of a ranking: by made candidates and labels."""

from types import SimpleNamespace

import numpy as np
import pytest

from streammach.parts.counts.fitting import BACK, fit_label_prior
from streammach.rows.block import RowBlock
from streammach.rows.label_lists import LabelLists

N_ROWS, N_CLASSES = 600, 40


def judged_by(rng, back, *, listed=True, known=None, n_rows=N_ROWS, weights=False):
    """Return what is given back where a ranking lacks `back` ln n of the one that labels follow."""
    log_rows = np.sort(rng.uniform(0, 9, N_CLASSES)).astype(np.float32)
    right = rng.normal(size=(n_rows, N_CLASSES)).astype(np.float32) + 0.3 * log_rows
    lists = LabelLists.of(np.argsort(-right, axis=1)[:, :5].tolist())
    if weights:
        lists = LabelLists(lists.starts, lists.classes, np.ones(lists.n_labels, np.float32))
    rows = RowBlock(
        indptr=np.zeros(n_rows + 1, np.int64), features=np.zeros(0, np.int32),
        values=np.zeros(0, np.float32), classes=np.full(n_rows, -1, np.int32), labels=lists,
    )  # fmt: skip
    scores = right - np.float32(back) * log_rows

    def ranking(some, k):
        assert some.n_rows == n_rows
        ids = np.argsort(-scores, axis=1)[:, :k]
        return ids, np.take_along_axis(scores, ids, axis=1)

    training = SimpleNamespace(
        dataset=SimpleNamespace(listed=listed), known=known,
        holdout=SimpleNamespace(rows=rows),
        findings=SimpleNamespace(once=lambda name, kind, find: find()),
    )  # fmt: skip
    return fit_label_prior(training, ranking, log_rows)


@pytest.mark.parametrize("lacks", [0.1, 0.3])
@pytest.mark.parametrize("weights", [False, True])
def test_what_a_ranking_lacks_is_given_back_as_far_as_it_may(lacks, weights, rng):
    found = judged_by(rng, lacks, weights=weights)
    assert found.weight == pytest.approx(min(lacks, -min(BACK)), abs=0.051)
    assert found.with_it.accuracy > found.without.accuracy
    assert found.with_it.accuracy > 0.95 or lacks > -min(BACK)


@pytest.mark.parametrize("case", [{"listed": False}, {"known": object()}, {"n_rows": 49}, {}])
def test_nothing_is_given_back(case, rng):
    assert judged_by(rng, 0.3 if case else 0.0, **case) is None
