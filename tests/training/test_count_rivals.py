"""Weights of counts where classes that were no candidates of the fit would come first."""

import numpy as np
import pytest

from streammach.counts.table import count_pairs
from streammach.parts.counts import fitting
from streammach.parts.counts.fitting import Fitting
from streammach.parts.counts.group_fit import start_weights
from streammach.rows.block import RowBlock

N_ROWS, N_CLASSES, N_NUMBERS, BINS = 6000, 400, 15, 16


def binned(rng):
    """Rows that all hold a bin of each number; many classes have a few rows alone."""
    often = (np.arange(N_CLASSES) + 5.0) ** -1.25
    classes = rng.choice(N_CLASSES, N_ROWS, p=often / often.sum()).astype(np.int32)
    means = rng.normal(size=(N_CLASSES, N_NUMBERS))[classes]
    bins = np.clip(8 + 3 * (means + rng.normal(size=means.shape)), 0, BINS - 1).astype(np.int32)
    features = (bins + BINS * np.arange(N_NUMBERS, dtype=np.int32)).ravel()
    return RowBlock(
        indptr=np.arange(0, len(features) + 1, N_NUMBERS), features=features,
        values=np.ones(len(features), np.float32), classes=classes,
    )  # fmt: skip


@pytest.mark.parametrize("again", [True, False])
def test_rare_classes_do_not_come_first_by_weights_that_never_saw_them(rng, monkeypatch, again):
    block = binned(rng)
    counted, held = block.part(0, 4500), block.part(4500, N_ROWS)
    table = count_pairs(
        lambda: iter([(counted, np.zeros(counted.n_rows, bool))]), BINS * N_NUMBERS, N_CLASSES,
        max_pairs=counted.nnz, mark_bytes=1 << 20, threads=1,
    )  # fmt: skip
    if not again:
        monkeypatch.setattr(fitting, "STRANGERS", 1.0)
    groups = np.arange(table.n_features, dtype=np.int32) // BINS % 4
    fits = Fitting(held, held.n_rows, threads=1)
    accuracy = fits.fit(table, start_weights(groups)).metrics.accuracy
    assert (accuracy > 0.4) == again, accuracy
