"""Where a model is right on labelled rows, by probability, frequency, repetitions; its queries."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from streammach.errors import DataError, clean
from streammach.files.urls import located
from streammach.model.model import Model
from streammach.prediction.calibrate import CANDIDATES
from streammach.prediction.evaluate import Depth, depth_of
from streammach.prediction.inputs import InputCounts, Room, rows_of
from streammach.prediction.predictor import Predictor
from streammach.prediction.reached import (
    LEAST_LABELS,
    EvaluationRequest,
    EvaluationSums,
    ListFigures,
    rankings_of,
)
from streammach.prediction.room import LEAST_VALUES
from streammach.prediction.set_metrics import PLACES, Tenth
from streammach.prediction.sums import Bin, Decile, Reliability, reliability
from streammach.progress import Told
from streammach.rows.block import RowBlock
from streammach.simd import LANES
from streammach.spec.types import Ranker

ROWS = 20_000
DEPTH_ROWS = 2_000  # the repetitions' curve ranks all rows again for every point
QUERIES = 200
ANSWERS = 5  # of a query
BATCHES = 1, 3, LANES + 6  # rows of one query, of a few, and of more than go side by side
GROUPED = ("P@1", "P@5", "N@5", "R@5")  # what is said of a group of rows


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """What a model does on rows with one label each, in parts."""

    path: str  # where the rows come from
    # n_rows, n_unseen: rows used, and those of them whose label was never seen in training: they
    # count as wrong
    n_rows: int
    n_unseen: int
    accuracy: float  # accuracy, top_5_accuracy: of the model as it ranks
    top_5_accuracy: float
    majority: float  # accuracy of always answering the class that is most frequent in training
    estimator: Ranker  # how it ranks
    # before, after: probabilities as the scores are, and after calibration, of the rows with a
    # label seen in training
    before: Reliability
    after: Reliability
    deciles: tuple[Decile, ...]  # from frequent to rare classes
    depth_rows: int  # rows used for `depths`
    depths: tuple[Depth, ...]  # by rising number of repetitions; empty with one repetition


@dataclass(frozen=True, kw_only=True)
class RowGroup:
    """Rows by their number of labels."""

    least: int  # least, most: labels of a row; without an end where `most` is None
    most: int | None
    n_rows: int  # rows of so many
    figures: dict[str, float]  # their P@1, P@5, N@5 and R@5


@dataclass(frozen=True, kw_only=True)
class ListDiagnosis:
    """What a model does on rows with lists of labels, in parts."""

    path: str  # where the rows come from
    # n_rows, n_labels, n_unseen: rows used, their labels, and those of them that training never
    # saw: they count as missed
    n_rows: int
    n_labels: int
    n_unseen: int
    # of the model as it ranks, by the names of the XMC repository: P@k, N@k, R@k, PSP@k, PSN@k
    figures: dict[str, float]
    possible: dict[str, float]  # the most that P@1, P@3 and P@5 can be on these rows
    majority: float  # P@1 of always answering the label that is most frequent in training
    estimator: Ranker  # how it ranks
    # probabilities of the best candidates of all rows, of each label on its own; its rows are
    # candidates
    reliability: Reliability
    likely: Bin | None  # those with a probability of 0.5 or more; None without any
    # recall at 5 by tenths of the labels that occur, from the rarest in training on
    tenths: tuple[Tenth, ...]
    by_labels: tuple[RowGroup, ...]  # rows by their number of labels, those that there are
    depth_rows: int  # rows used for `depths`
    # precision at 1 by rising number of repetitions; empty with one repetition
    depths: tuple[Depth, ...]

    @property
    def accuracy(self) -> float:
        """Precision at 1."""
        return self.figures["P@1"]

    @property
    def top_5_accuracy(self) -> float:
        """Precision at 5."""
        return self.figures["P@5"]


def diagnose(
    model: Model, path: str | os.PathLike[str], *, rows: int = ROWS, threads: int | None = None,
    memory: str | int | None = None, progress: Told | None = None,
) -> Diagnosis | ListDiagnosis:  # fmt: skip
    """Return where a model is right, on the first rows of a store or a labelled text."""
    tell = progress or (lambda stage, done, total: None)
    n, n_unseen, place = 0, 0, located(path)
    with Predictor(model, threads=threads, memory=memory) as predictor:
        room = predictor.room("report", path, CANDIDATES)
        sums = EvaluationSums(model, EvaluationRequest())
        for block in _first_rows(model, place, room, rows):
            sums.take(sums.block_sums(predictor, block, path))
            n += block.n_rows
            n_unseen += int((block.lists.classes < 0).sum())
            tell("rank", n, rows)
    if not n:
        raise DataError("it holds no rows", path=clean(path, 300))
    room.done()
    # Powers of two, then all; none of a single one.
    total, depths, n_depth = model.spec.n_repetitions, [], min(n, DEPTH_ROWS)
    counts = [2**i for i in range(total.bit_length()) if 2**i < total] + [total] * (total > 1)
    for i, count in enumerate(counts, 1):
        few = _first_rows(model, place, room, DEPTH_ROWS)
        names = rankings_of(model)
        depths.append(depth_of(model, count, few, names, threads=threads, memory=memory))
        tell("repetitions", i * n_depth, len(counts) * n_depth)
    shared: dict[str, Any] = {
        "path": str(path), "n_rows": n, "n_unseen": n_unseen, "estimator": model.estimator,
        "depth_rows": n_depth, "depths": tuple(depths),
    }  # fmt: skip
    figures = sums.figures(n)
    if isinstance(sums.own, ListFigures):
        return _of_lists(sums.own, figures, shared)
    return Diagnosis(
        **shared, deciles=figures["recall_by_decile"],
        **{name: figures[name] for name in ("accuracy", "top_5_accuracy", "majority")},
        before=reliability(sums.own.sums["before"]), after=reliability(sums.own.sums["after"]),
    )  # fmt: skip


def _of_lists(own: ListFigures, figures: dict[str, Any], shared: dict[str, Any]) -> ListDiagnosis:
    sums, sets, n = own.sums, figures["sets"], shared["n_rows"]
    n_likely, stated, right = sums["likely"].tolist()
    most = [*(least - 1 for least in LEAST_LABELS[1:]), None]
    return ListDiagnosis(
        **shared, n_labels=sets.n_labels, figures=sets.named(), majority=figures["majority"],
        possible={f"P@{k}": int(hits) / (k * n)
                  for k, hits in zip(PLACES, sums["possible"], strict=True)},
        reliability=reliability(sums["stated"]),
        likely=Bin(int(n_likely), stated / n_likely, right / n_likely) if n_likely else None,
        tenths=own.sets.tenths(),
        by_labels=tuple(
            RowGroup(
                least=least, most=last, n_rows=int(group[0]),
                figures=dict(zip(GROUPED, (group[1:] / group[0]).tolist(), strict=True)),
            )
            for least, last, group in zip(LEAST_LABELS, most, sums["groups"], strict=True)
            if group[0]
        ),
    )  # fmt: skip


def _first_rows(model: Model, path: Path, room: Room, rows: int) -> Iterator[RowBlock]:
    """Yield an input's first rows; they are not held but read again where they are used again."""
    for block in rows_of(path, model, InputCounts(), room):
        part = block if block.n_rows <= rows else block.part(0, rows)
        rows -= part.n_rows
        yield part
        if not rows:
            return


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
    each = min(2, model.spec.n_features)
    for threads in (1, 2):
        with Predictor(model, device="cpu", threads=threads) as predictor:
            for n in BATCHES:
                features = np.tile(np.arange(each, dtype=np.int32), n)
                rows = RowBlock(
                    indptr=each * np.arange(n + 1, dtype=np.int64), features=features,
                    values=np.ones(len(features), np.float32), classes=np.full(n, -1, np.int32),
                )  # fmt: skip
                predictor.topk_ids(rows, ANSWERS)
