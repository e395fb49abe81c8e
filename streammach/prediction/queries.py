"""Few queries of a model: how long one takes alone, and what compiles all that they call."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from itertools import islice
from statistics import median

import numpy as np

from streammach.files.urls import located
from streammach.model.model import Model
from streammach.prediction.inputs import InputCounts, Room, rows_of
from streammach.prediction.memory import LEAST_VALUES
from streammach.prediction.predictor import Predictor
from streammach.rows.block import RowBlock
from streammach.simd import LANES

QUERIES = 200
ANSWERS = 5  # of a query
BATCHES = 1, 3, LANES + 6  # rows of one query, of a few, and of more than go side by side


@dataclass(frozen=True, kw_only=True)
class QueryTime:
    """How long a query took."""

    seconds: float  # the median, on one thread of the CPU
    n_queries: int  # how many were asked, one after the other


def query_time(model: Model, path: str | os.PathLike[str], *, queries: int = QUERIES) -> QueryTime:
    """Ask for the five best classes of an input's first rows, one row at a time."""
    seconds = []
    # A few rows, beside what the page was planned with.
    few = Room(rows=queries, values=LEAST_VALUES, sorted_bytes=0, lines=())
    with Predictor(model, device="cpu", threads=1) as predictor:
        blocks = rows_of(located(path), model, InputCounts(), few)
        rows = (block.part(i, i + 1) for block in blocks for i in range(block.n_rows))
        for row in islice(rows, queries):
            began = time.perf_counter()
            predictor.topk_ids(row, ANSWERS)
            seconds.append(time.perf_counter() - began)
    return QueryTime(seconds=median(seconds), n_queries=len(seconds))


def compile_model(model: Model) -> None:
    """Have all kernels compiled that predictions of a model call."""
    for threads in (1, 2):
        with Predictor(model, device="cpu", threads=threads) as predictor:
            for n in BATCHES:
                predictor.topk_ids(_rows(n, model.spec.n_features), ANSWERS)


def _rows(n: int, n_features: int) -> RowBlock:
    """Return n rows of two features each; none where there are fewer."""
    each = min(2, n_features)
    features = np.tile(np.arange(each, dtype=np.int32), n)
    return RowBlock(
        indptr=each * np.arange(n + 1, dtype=np.int64), features=features,
        values=np.ones(len(features), np.float32), classes=np.full(n, -1, np.int32),
    )  # fmt: skip
