"""Compiles what predictions of a model call, before the first one."""

from __future__ import annotations

import numpy as np

from streammach.model.model import Model
from streammach.prediction.predictor import Predictor
from streammach.rows.block import RowBlock
from streammach.simd import LANES

BATCHES = 1, 3, LANES + 6  # rows of one query, of a few, and of more than go side by side


def compile_model(model: Model) -> None:
    """Have all kernels compiled that predictions of a model call."""
    for threads in (1, 2):
        with Predictor(model, device="cpu", threads=threads) as predictor:
            for n in BATCHES:
                predictor.topk_ids(_rows(n, model.spec.n_features), 5)


def _rows(n: int, n_features: int) -> RowBlock:
    """Return n rows of two features each; none where there are fewer."""
    each = min(2, n_features)
    features = np.tile(np.arange(each, dtype=np.int32), n)
    return RowBlock(
        indptr=each * np.arange(n + 1, dtype=np.int64), features=features,
        values=np.ones(len(features), np.float32), classes=np.full(n, -1, np.int32),
    )  # fmt: skip
