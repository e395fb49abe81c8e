"""Where a model is right on labelled rows: by stated probability, class frequency, repetitions."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from streammach.errors import DataError, clean
from streammach.files.urls import located
from streammach.model.model import Model
from streammach.prediction.calibrate import CANDIDATES
from streammach.prediction.diagnose_lists import ListDiagnosis, ListSums
from streammach.prediction.evaluate import Depth, depth_of, first_repetitions
from streammach.prediction.inputs import InputCounts, Room, rows_of
from streammach.prediction.predictor import Predictor
from streammach.prediction.reached import ClassFigures, lists_of_labels, rankings_of
from streammach.prediction.sums import Decile, Reliability, reliability
from streammach.progress import Told
from streammach.rows.block import RowBlock
from streammach.spec.types import Ranker

ROWS = 20_000
DEPTH_ROWS = 2_000  # the repetitions' curve ranks all rows again for every point


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """What a model does on labelled rows, in parts."""

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


def diagnose(
    model: Model,
    path: str | os.PathLike[str],
    *,
    rows: int = ROWS,
    threads: int | None = None,
    memory: str | int | None = None,
    progress: Told | None = None,
) -> Diagnosis | ListDiagnosis:
    """Return where a model is right, on the first rows of a store or a labelled text."""
    tell = progress or (lambda stage, done, total: None)
    with Predictor(model, threads=threads, memory=memory) as predictor:
        room = predictor.room("report", path, CANDIDATES)
        sums = ListSums(model) if model.listed else ClassSums(model)
        for block in _first_rows(model, located(path), room, rows):
            if block.labels is not None and not model.listed:
                raise lists_of_labels(path)
            sums.add(predictor, block)
            tell("rank", sums.n_rows, rows)
    if not sums.n_rows:
        raise DataError("it holds no rows", path=clean(path, 300))
    room.done()
    counts = _depth_counts(model.spec.n_repetitions)
    names = rankings_of(model)
    n_depth, depths = min(sums.n_rows, DEPTH_ROWS), []
    for i, count in enumerate(counts, 1):
        few = first_repetitions(model, count)
        with Predictor(few, threads=threads, memory=memory) as predictor:
            blocks = _first_rows(model, located(path), room, DEPTH_ROWS)
            depths.append(depth_of(predictor, blocks, names))
        tell("repetitions", i * n_depth, len(counts) * n_depth)
    return sums.result(str(path), n_depth, tuple(depths))


class ClassSums:
    """Adds up what is asked of rows with one label each."""

    def __init__(self, model: Model) -> None:
        self._model, self.n_rows, self._figures = model, 0, ClassFigures(model)

    def add(self, predictor: Predictor, block: RowBlock) -> None:
        """Add rows as a predictor ranks them."""
        self.n_rows += block.n_rows
        self._figures.take(self._figures.block_sums(predictor, block)[1])

    def result(self, path: str, depth_rows: int, depths: tuple[Depth, ...]) -> Diagnosis:
        """Return it, with what was found elsewhere."""
        sums, found = self._figures.sums, self._figures.figures()
        return Diagnosis(
            path=path, n_rows=self.n_rows, n_unseen=int(sums["rows"][1]),
            majority=found["majority"], accuracy=found["accuracy"],
            top_5_accuracy=found["top_5_accuracy"], estimator=self._model.estimator,
            before=reliability(sums["before"]), after=reliability(sums["after"]),
            deciles=found["recall_by_decile"], depth_rows=depth_rows, depths=depths,
        )  # fmt: skip


def _first_rows(model: Model, path: Path, room: Room, rows: int) -> Iterator[RowBlock]:
    """Yield an input's first rows; they are not held but read again where they are used again."""
    for block in rows_of(path, model, InputCounts(), room):
        part = block if block.n_rows <= rows else block.part(0, rows)
        rows -= part.n_rows
        yield part
        if not rows:
            return


def _depth_counts(total: int) -> list[int]:
    """Return how many repetitions are compared: powers of two, then all; none of a single one."""
    return [2**i for i in range(total.bit_length()) if 2**i < total] + [total] * (total > 1)
