"""Where a model is right on labelled rows, in parts; how long queries take; what they compile."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from streammach.inputs.bad_rows import BadRows
from streammach.inputs.source_options import SourceOptions
from streammach.model.model import Model
from streammach.model.shrink import TRUST, Size, shrink
from streammach.options.figures import Explanation
from streammach.options.types import Ranker
from streammach.prediction.evaluate import Evaluation, sum_metrics
from streammach.prediction.explain import explanations
from streammach.prediction.inputs import InputCounts, Room, rows_of
from streammach.prediction.metric_table import EvaluationRequest, rankings_of
from streammach.prediction.metrics import Bin, Reliability, RowGroup, Tenth
from streammach.prediction.predictor import Predictor
from streammach.prediction.room import LEAST_VALUES
from streammach.rows.block import RowBlock
from streammach.system.errors import DataError
from streammach.system.files.raw_text import is_piped
from streammach.system.files.urls import locate
from streammach.system.progress import Told
from streammach.system.simd import LANES

ROWS = 20_000
DEPTH_ROWS = 2_000  # the repetitions' curve ranks all rows again for every point
QUERIES = 200
ANSWERS = 5  # of a query
REQUEST = EvaluationRequest(by_class=True, confusions=20)
EXAMPLES, EXAMPLE_ROWS = 3, 1_000  # rows that are explained, right and wrong; the first ones alone
FEATURES = 8  # that raise a score, and that lower it
FEW = Room(rows=64, values=1 << 12, sorted_bytes=1 << 20, lines=())
BATCHES = 1, 3, LANES + 6  # rows of one query, of a few, and of more than go side by side


@dataclass(frozen=True)
class Depth:
    """Accuracy of the first `n_repetitions` repetitions, by the way to rank."""

    n_repetitions: int
    accuracy: dict[Ranker, float]


@dataclass(frozen=True, kw_only=True)
class Example:
    """A row, and why it gets its answer: of the best class and, where this is wrong, of its own."""

    number: int  # as in the source
    right: bool
    why: tuple[Explanation, ...]


@dataclass(frozen=True, kw_only=True, repr=False)
class Diagnosis(Evaluation):
    """What a model does on rows, in parts."""

    path: str  # where the rows come from
    depth_rows: int  # rows used for `depths`
    depths: tuple[Depth, ...]  # by rising number of repetitions; empty with one repetition
    # probabilities of the best class of rows with a label seen in training, or of the ten best
    # labels of rows with lists, each on its own; `before` calibration, where rows have one label
    reliability: Reliability
    before: Reliability | None = None
    # Of rows with lists: the most that P@1, P@3 and P@5 can be; candidates with a probability of
    # 0.5 or more, if there are any; tenths of the labels that occur, from the rarest in training
    # on; rows by their number of labels, those that there are.
    possible: dict[str, float] = field(default_factory=dict)
    likely: Bin | None = None
    tenths: tuple[Tenth, ...] = ()
    by_labels: tuple[RowGroup, ...] = ()
    examples: tuple[Example, ...] = ()  # right ones first

    def record(self) -> dict[str, Any]:
        """Return the fields by name, without classes and rows one by one."""
        found = super().record()
        del found["examples"]
        return found


def diagnose(
    model: Model, path: str | os.PathLike[str], *, rows: int = ROWS, threads: int | None = None,
    memory: str | int | None = None, progress: Told | None = None,
) -> Diagnosis:  # fmt: skip
    """Return where a model is right, on the first rows of a store or a labelled text."""
    tell, began = progress or (lambda stage, done, total: None), time.monotonic()
    place, seen = locate(path), InputCounts()
    with Predictor(model, threads=threads, memory=memory) as predictor:
        beside = REQUEST.beside(model.spec.n_classes)
        room = predictor.room("report", path, REQUEST.cells(), beside=beside)
        first = _first_rows(model, place, room, rows, seen)
        sums = sum_metrics(predictor, first, REQUEST, path, lambda n: tell("rank", n, rows))
        if not seen.rows:
            raise DataError("it holds no rows", path=path)
        few = _first_rows(model, place, room, min(rows, EXAMPLE_ROWS), InputCounts())
        examples = _examples(predictor, next(few))
    room.keep_kernels()
    # Powers of two, then all; none of a single one.
    total, depths, n_depth = model.spec.n_repetitions, [], min(seen.rows, rows, DEPTH_ROWS)
    counts = [2**i for i in range(total.bit_length()) if 2**i < total] + [total] * (total > 1)
    for i, count in enumerate(counts, 1):
        few = _first_rows(model, place, room, DEPTH_ROWS, InputCounts())
        names = rankings_of(model)
        depths.append(depth_of(model, count, few, names, threads=threads, memory=memory))
        tell("repetitions", i * n_depth, len(counts) * n_depth)
    return Diagnosis(
        **sums.fields(diagnosed=True), path=str(path), estimator=model.estimator,
        unknown_values=seen.unknown_values, depth_rows=n_depth, depths=tuple(depths),
        seconds=time.monotonic() - began, examples=examples,
    )  # fmt: skip


def _examples(predictor: Predictor, rows: RowBlock) -> tuple[Example, ...]:
    """Return the first rows that are right, and the first that are wrong, with reasons."""
    best, lists = predictor.scorers.topk(rows, 1).ids, rows.lists
    right, own = lists.match(best)[:, 0], np.full(rows.n_rows, -1)
    some = np.flatnonzero(lists.lengths)
    own[some] = lists.classes[lists.starts[some + 1] - 1]
    chosen = np.concatenate([np.flatnonzero(x)[:EXAMPLES] for x in (right, ~right)])
    right, rows = right[chosen], rows.take(chosen)
    ids = np.stack([best[chosen, 0], np.where(right, -1, own[chosen])], axis=1)
    labels = [[name for name in row if name != ""] for row in predictor.labels(ids).tolist()]
    reasons = predictor.scorers.reasons(rows, ids, FEATURES)
    why = explanations(reasons, labels, predictor.model.features)
    numbers = chosen if rows.numbers is None else rows.numbers
    each = zip(numbers.tolist(), right.tolist(), why, strict=True)
    return tuple(Example(number=number, right=ok, why=tuple(own)) for number, ok, own in each)


def depth_of(
    model: Model, n_repetitions: int, blocks: Iterable[RowBlock], names: Sequence[Ranker],
    **computing: Any,
) -> Depth:  # fmt: skip
    """Return the accuracy of a model's first repetitions and all counts, by the way to rank."""
    counts, share = model.counts, n_repetitions / model.spec.n_repetitions
    if share < 1:
        size = Size(model.stored or "float32", n_repetitions, 0)
        model = shrink(replace(model, counts=None), size)
    if counts is not None:
        counts = replace(counts, hashed=counts.hashed * share**TRUST)
    right, n = dict.fromkeys(names, 0), 0
    with Predictor(replace(model, counts=counts), **computing) as predictor:
        for block in blocks:
            n += block.n_rows
            for name in names:
                best = predictor.scorers.topk(block, 1, name).ids
                right[name] += int(block.lists.match(best).sum())
    return Depth(n_repetitions, {name: count / max(n, 1) for name, count in right.items()})


def _first_rows(
    model: Model, path: Path, room: Room, rows: int, seen: InputCounts
) -> Iterator[RowBlock]:
    """Yield an input's first rows; they are not held but read again where they are used again."""
    for block in rows_of(path, model, seen, room):
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
        blocks = rows_of(locate(path), model, InputCounts(), few)
        rows = (block.part(i, i + 1) for block in blocks for i in range(block.n_rows))
        for row in islice(rows, queries):
            began = time.perf_counter()
            predictor.scorers.topk(row, ANSWERS)
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
                predictor.scorers.topk(rows, ANSWERS)
            predictor.explain(rows, n=1)


def rank_first_rows(
    folder: str, kind: tuple[object, ...], run: str | os.PathLike[str], measured: bool,
    path: str | os.PathLike[str], options: SourceOptions, threads: int,
    some_labels: bool,
) -> None:  # fmt: skip
    """Rank the first rows of an input, in another process: this compiles what ranking all calls.

    Rows are measured if they are to be; those that are bad are left out.
    """
    del folder, kind
    model, place = Model.load(run), locate(path)
    compile_model(model)
    if is_piped(place):  # which is read once
        return
    blocks = rows_of(
        place, model, InputCounts(), FEW, options=options, label_needed=measured,
        bad_rows=BadRows(skip=True),
    )  # fmt: skip
    with Predictor(model, device="cpu", threads=threads) as predictor:
        block = next(blocks, None)
        if block is None:
            return
        if measured:
            sum_metrics(predictor, [block], EvaluationRequest(), place).fields()
            return
        first = predictor.labels(np.arange(min(2, model.spec.n_classes))).tolist()
        allowed = predictor.limit_labels(first, None) if some_labels else None
        for probabilities in (False, True):
            predictor.scorers.topk(block, 5, probabilities=probabilities, allowed=allowed)
