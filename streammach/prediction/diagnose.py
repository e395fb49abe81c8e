"""Where a model is right on labelled rows: by stated probability, class frequency, repetitions."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from streammach.errors import DataError, clean
from streammach.model.calibration import Calibration
from streammach.model.model import Model
from streammach.model.shrink import TRUST, Size, shrink
from streammach.prediction.calibrate import CANDIDATES, log_probabilities
from streammach.prediction.diagnose_lists import ListSums
from streammach.prediction.diagnosis import Decile, Depth, Diagnosis, ListDiagnosis
from streammach.prediction.evaluate import PLACES, lists_of_labels, ranked, top_k_hits
from streammach.prediction.inputs import Seen, rows_of
from streammach.prediction.predictor import Predictor
from streammach.prediction.reliability import reliability
from streammach.prediction.room import Room
from streammach.progress import Told
from streammach.rows.block import RowBlock
from streammach.spec.estimators import estimators, rankers

GROUPS = 10  # of classes by frequency, equally many classes each
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
    """Return where a model is right, on the first rows of a store or a labelled text.

    Parameters
    ----------
    model : Model
        The model.
    path : path-like
        A store, or VW or svmlight text.
    rows : int
        The most rows used.
    threads : int, optional
        Threads that compute; all cores otherwise.
    memory : str or int, optional
        Bytes that the process may take; otherwise 2 GB, or what the model needs.
    progress : callable, optional
        Called with (stage, done, total).

    Raises
    ------
    UsageError, DataError, StoreError, DiskError
        If the input cannot be read or holds no rows, or rows have lists of labels and those of the
        model's training had one each.
    """
    tell = progress or (lambda stage, done, total: None)
    with Predictor(model, threads=threads, memory=memory) as predictor:
        room = predictor.room("report", path, CANDIDATES)
        sums = ListSums(model) if model.listed else _Classes(model, rows)
        for block in _first_rows(model, Path(path), room, rows):
            if block.labels is not None and not model.listed:
                raise lists_of_labels(path)
            sums.add(predictor, block)
            tell("rank", sums.n_rows, rows)
    if not sums.n_rows:
        raise DataError("it holds no rows", path=clean(path, 300))
    room.done()
    counts = _depth_counts(model.spec.n_repetitions)
    n_depth, depths = min(sums.n_rows, DEPTH_ROWS), []
    for i, count in enumerate(counts, 1):
        with Predictor(_first(model, count), threads=threads, memory=memory) as predictor:
            blocks = _first_rows(model, Path(path), room, DEPTH_ROWS)
            depths.append(Depth(count, _accuracy(predictor, blocks, n_depth)))
        tell("repetitions", i * n_depth, len(counts) * n_depth)
    return sums.result(str(path), n_depth, tuple(depths))


class _Classes:
    """Gathers what is asked of rows with one label each.

    Parameters
    ----------
    model : Model
        The model that ranks them.
    rows : int
        The most rows there are.
    """

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
        return Diagnosis(
            path=path, n_rows=n, n_unseen=int((classes < 0).sum()),
            majority=float((classes == model.majority).mean()),
            accuracy=top_k_hits(best, classes, 1) / n,
            top_5_accuracy=top_k_hits(best, classes, 5) / n, estimator=model.estimator,
            before=reliability(self._before[:n][known], right),
            after=reliability(self._after[:n][known], right),
            deciles=deciles(classes, best[:, 0] == classes, model.spec.n_classes),
            depth_rows=depth_rows, depths=depths,
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


def stated_probabilities(
    scores: NDArray[np.float32], n_classes: int, calibration: Calibration
) -> NDArray[np.float64]:
    """Return the probability stated for each row's best class.

    Parameters
    ----------
    scores : float32 (n, m)
        Scores of the m best classes, best first.
    n_classes : int
        K.
    calibration : Calibration
        The map; see its text for the equation.

    Returns
    -------
    float64 (n,)
        From 0 to 1.
    """
    ids = np.broadcast_to(np.arange(scores.shape[1]), scores.shape)
    best = np.zeros(len(scores), np.int32)
    return np.exp(
        log_probabilities(ids, scores, best, n_classes=n_classes, calibration=calibration)
    )


def deciles(
    classes: NDArray[np.int32], right: NDArray[np.bool_], n_classes: int
) -> tuple[Decile, ...]:
    """Return recall by the frequency of classes, whose ids fall with it.

    Parameters
    ----------
    classes : int32 (n,)
        Class ids; rows of unknown classes (-1) are left out.
    right : bool (n,)
        Whether the best class is the label.
    n_classes : int
        K; with fewer than ten every class is a group.
    """
    groups = min(GROUPS, n_classes)
    edges = np.arange(groups + 1) * n_classes // groups
    known = classes >= 0
    place = np.searchsorted(edges, classes[known], side="right") - 1
    n = np.bincount(place, minlength=groups)
    found = np.bincount(place, right[known], groups)
    return tuple(
        Decile(int(edges[i + 1] - edges[i]), int(n[i]), float(found[i] / n[i]) if n[i] else None)
        for i in range(groups)
    )


def _depth_counts(total: int) -> list[int]:
    """Return how many repetitions are compared: powers of two, then all; none of a single one."""
    return [2**i for i in range(total.bit_length()) if 2**i < total] + [total] * (total > 1)


def _first(model: Model, n_repetitions: int) -> Model:
    """Return the model with its first repetitions and all counts."""
    total = model.spec.n_repetitions
    if n_repetitions == total:
        return model
    hashed = replace(model, counts=None)
    small = shrink(hashed, Size(model.stored or "float32", n_repetitions, 0))
    if model.counts is None:
        return small
    weight = model.counts.hashed * (n_repetitions / total) ** TRUST
    return replace(small, counts=replace(model.counts, hashed=weight))


def _accuracy(predictor: Predictor, blocks: Iterator[RowBlock], n: int) -> dict[str, float]:
    model = predictor.model
    names = estimators() if model.counts is None else rankers()
    right = dict.fromkeys(names, 0)
    for block in blocks:
        for name in names:
            best = predictor.topk_ids(block, 1, name)[0]
            if model.listed:
                right[name] += int(block.lists.matched(best).sum())
            else:
                right[name] += top_k_hits(best, block.classes, 1)
    return {name: count / n for name, count in right.items()}
