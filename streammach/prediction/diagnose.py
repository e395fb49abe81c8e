"""Where a model is right on labelled rows: by stated probability, class frequency, repetitions."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from streammach.errors import DataError, clean
from streammach.files.urls import located
from streammach.model.calibration import Calibration
from streammach.model.model import Model
from streammach.prediction.calibrate import CANDIDATES, stated_probabilities
from streammach.prediction.class_sums import ClassSums
from streammach.prediction.depths import Depth, depth_of, first_repetitions, rankings_of
from streammach.prediction.diagnose_lists import ListSums
from streammach.prediction.diagnosis import Diagnosis, ListDiagnosis
from streammach.prediction.inputs import Seen, rows_of
from streammach.prediction.measured import lists_of_labels
from streammach.prediction.predictor import Predictor
from streammach.prediction.reached import PLACES, ranked, top_k_hits
from streammach.prediction.reliability import reliability
from streammach.prediction.room import Room
from streammach.progress import Told
from streammach.rows.block import RowBlock

ROWS = 20_000
DEPTH_ROWS = 2_000  # the repetitions' curve ranks all rows again for every point


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
        sums = ListSums(model) if model.listed else _Classes(model, rows)
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


class _Classes:
    """Gathers what is asked of rows with one label each."""

    def __init__(self, model: Model, rows: int) -> None:
        # Room for all of it at once: what is kept among what is given back again and again would
        # keep the memory of the process in pieces.
        self._model, self.n_rows = model, 0
        most = min(PLACES[-1], model.spec.n_classes)
        self._best, self._raw_best = np.empty((rows, most), np.int64), np.empty(rows, np.int64)
        self._before, self._after = np.empty(rows), np.empty(rows)
        self._classes = np.empty(rows, np.int32)

    def add(self, predictor: Predictor, block: RowBlock) -> None:
        """Add rows as a predictor ranks them."""
        some = slice(self.n_rows, self.n_rows + block.n_rows)
        found = _ranked(predictor, block)
        self._best[some], self._raw_best[some], self._before[some], self._after[some] = found
        self._classes[some] = block.classes
        self.n_rows = some.stop

    def result(self, path: str, depth_rows: int, depths: tuple[Depth, ...]) -> Diagnosis:
        """Return it, with what was found elsewhere."""
        model, n = self._model, self.n_rows
        best, raw_best, classes = self._best[:n], self._raw_best[:n], self._classes[:n]
        known = classes >= 0
        right = (raw_best == classes)[known]
        sums = ClassSums(model.spec.n_classes)
        sums.add(classes, best[:, 0] == classes)
        return Diagnosis(
            path=path, n_rows=n, n_unseen=int((classes < 0).sum()),
            majority=float((classes == model.majority).mean()),
            accuracy=top_k_hits(best, classes, 1) / n,
            top_5_accuracy=top_k_hits(best, classes, 5) / n, estimator=model.estimator,
            before=reliability(self._before[:n][known], right),
            after=reliability(self._after[:n][known], right),
            deciles=sums.deciles(), depth_rows=depth_rows, depths=depths,
        )  # fmt: skip


def _first_rows(model: Model, path: Path, room: Room, rows: int) -> Iterator[RowBlock]:
    """Yield an input's first rows; they are not held but read again where they are used again."""
    for block in rows_of(path, model, Seen(), room):
        part = block if block.n_rows <= rows else block.part(0, rows)
        rows -= part.n_rows
        yield part
        if not rows:
            return


def _ranked(
    predictor: Predictor, block: RowBlock
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Return best classes (n, 5), the best one by the calibrated ranking, and what it states."""
    model, (best, ids, scores) = predictor.model, ranked(predictor, block)
    width = min(PLACES[-1], best.shape[1])
    stated = [
        stated_probabilities(scores, model.spec.n_classes, calibration)
        for calibration in (Calibration(), model.calibration)
    ]
    return best[:, :width], ids[:, 0], stated[0], stated[1]


def _depth_counts(total: int) -> list[int]:
    """Return how many repetitions are compared: powers of two, then all; none of a single one."""
    return [2**i for i in range(total.bit_length()) if 2**i < total] + [total] * (total > 1)
