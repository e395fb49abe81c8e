"""How long a query takes: one row of many, asked alone."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from streammach.files.urls import located
from streammach.model.model import Model
from streammach.prediction.inputs import Seen, rows_of
from streammach.prediction.memory import LEAST_VALUES
from streammach.prediction.predictor import Predictor
from streammach.prediction.room import Room
from streammach.rows.block import RowBlock

QUERIES = 200
ANSWERS = 5  # of a query


@dataclass(frozen=True, kw_only=True)
class QueryTime:
    """How long a query took."""

    seconds: float  # the median, on one thread of the CPU
    n_queries: int  # how many were asked, one after the other


def query_time(
    model: Model,
    path: str | os.PathLike[str],
    *,
    queries: int = QUERIES,
) -> QueryTime:
    """Ask for the five best classes of an input's first rows, one row at a time."""
    seconds = []
    with Predictor(model, device="cpu", threads=1) as predictor:
        # A few rows, beside what the page was planned with.
        few = Room(rows=queries, values=LEAST_VALUES, sorted_bytes=0, lines=())
        for row in _single_rows(model, located(path), few):
            began = time.perf_counter()
            predictor.topk_ids(row, ANSWERS)
            seconds.append(time.perf_counter() - began)
            if len(seconds) == queries:
                break
    return QueryTime(seconds=median(seconds), n_queries=len(seconds))


def _single_rows(model: Model, path: Path, room: Room) -> Iterator[RowBlock]:
    """Yield an input's rows one by one."""
    for block in rows_of(path, model, Seen(), room):
        for i in range(block.n_rows):
            yield block.part(i, i + 1)
