"""Where a model is right on labelled rows: by stated probability, class frequency, repetitions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from streammach.errors import DataError, UsageError, clean
from streammach.model.document import Calibration
from streammach.model.model import Model
from streammach.model.shrink import TRUST, Size, shrink
from streammach.prediction.calibrate import CANDIDATES, log_probabilities
from streammach.prediction.evaluate import PLACES, ranked, top_k_hits
from streammach.prediction.inputs import Seen, rows_of
from streammach.prediction.predictor import Predictor
from streammach.prediction.room import Room
from streammach.rows.block import RowBlock
from streammach.spec.estimators import estimators, rankers
from streammach.spec.types import Ranker

BINS = 15  # of stated probability, equally wide
GROUPS = 10  # of classes by frequency, equally many classes each
ROWS = 20_000
DEPTH_ROWS = 2_000  # the repetitions' curve ranks all rows again for every point


@dataclass(frozen=True)
class Bin:
    """Rows whose stated probability lies in one range.

    Attributes
    ----------
    n_rows : int
        Rows in it.
    stated : float
        Their mean stated probability.
    right : float
        Share of them whose best class is their label.
    """

    n_rows: int
    stated: float
    right: float


@dataclass(frozen=True)
class Reliability:
    """Stated probabilities of the best class against the share that is right.

    Attributes
    ----------
    bins : tuple of Bin
        Those that hold rows, by rising probability.
    ece : float
        Mean distance of stated and right over the rows (expected calibration error).
    """

    bins: tuple[Bin, ...]
    ece: float


@dataclass(frozen=True)
class Decile:
    """A tenth of the classes, by their rank of frequency in training.

    Attributes
    ----------
    n_classes, n_rows : int
        Its classes, and the rows that carry one of them.
    recall : float or None
        Share of those rows whose best class is their label; None without rows.
    """

    n_classes: int
    n_rows: int
    recall: float | None


@dataclass(frozen=True)
class Depth:
    """Accuracy of the first `n_repetitions` repetitions, by the way to rank."""

    n_repetitions: int
    accuracy: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """What a model does on labelled rows, in parts.

    Attributes
    ----------
    path : str
        Where the rows come from.
    n_rows, n_unseen : int
        Rows used, and those of them whose label was never seen in training: they count as wrong.
    accuracy, top_5_accuracy : float
        Of the model as it ranks.
    estimator : str
        How it ranks.
    before, after : Reliability
        Probabilities as the scores are, and after calibration, of the rows with a label seen in
        training.
    deciles : tuple of Decile
        From frequent to rare classes.
    depth_rows : int
        Rows used for `depths`.
    depths : tuple of Depth
        By rising number of repetitions; empty with one repetition.
    """

    path: str
    n_rows: int
    n_unseen: int
    accuracy: float
    top_5_accuracy: float
    estimator: Ranker
    before: Reliability
    after: Reliability
    deciles: tuple[Decile, ...]
    depth_rows: int
    depths: tuple[Depth, ...]


def diagnose(
    model: Model,
    path: str | os.PathLike[str],
    *,
    rows: int = ROWS,
    threads: int | None = None,
    memory: str | int | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Diagnosis:
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
        If the input cannot be read or holds no rows, or rows have lists of labels.
    """
    if model.listed:
        raise UsageError(
            "its rows have lists of labels, which these plots do not show",
            path=clean(path, 300),
            hint="Leave it out; evaluate measures such rows.",
        )
    tell = progress or (lambda stage, done, total: None)
    # Room for all of it at once: what is kept among what is given back again and again would keep
    # the memory of the process in pieces.
    most = min(PLACES[-1], model.spec.n_classes)
    best, raw_best = np.empty((rows, most), np.int64), np.empty(rows, np.int64)
    before, after = np.empty(rows), np.empty(rows)
    classes, n = np.empty(rows, np.int32), 0
    with Predictor(model, threads=threads, memory=memory) as predictor:
        room = predictor.room("report", path, CANDIDATES)
        for block in _first_rows(model, Path(path), room, rows):
            some = slice(n, n + block.n_rows)
            best[some], raw_best[some], before[some], after[some] = _ranked(predictor, block)
            classes[some] = block.classes
            n = some.stop
            tell("rank", n, rows)
    if not n:
        raise DataError("it holds no rows", path=clean(path, 300))
    best, raw_best, classes = best[:n], raw_best[:n], classes[:n]
    before, after = before[:n], after[:n]
    room.done()
    known = classes >= 0
    right = (raw_best == classes)[known]
    counts = _depth_counts(model.spec.n_repetitions)
    n_depth, depths = min(n, DEPTH_ROWS), []
    for i, count in enumerate(counts, 1):
        with Predictor(_first(model, count), threads=threads, memory=memory) as predictor:
            blocks = _first_rows(model, Path(path), room, DEPTH_ROWS)
            depths.append(Depth(count, _accuracy(predictor, blocks, n_depth)))
        tell("repetitions", i * n_depth, len(counts) * n_depth)
    return Diagnosis(
        path=str(path), n_rows=n, n_unseen=int((classes < 0).sum()),
        accuracy=top_k_hits(best, classes, 1) / n, top_5_accuracy=top_k_hits(best, classes, 5) / n,
        estimator=model.estimator, before=reliability(before[known], right),
        after=reliability(after[known], right),
        deciles=deciles(classes, best[:, 0] == classes, model.spec.n_classes),
        depth_rows=n_depth, depths=tuple(depths),
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


def reliability(stated: NDArray[np.float64], right: NDArray[np.bool_]) -> Reliability:
    """Return stated probabilities against the share that is right.

    Parameters
    ----------
    stated : float64 (n,)
        Probabilities.
    right : bool (n,)
        Whether the best class is the label.
    """
    place = np.minimum((stated * BINS).astype(np.int64), BINS - 1)
    n = np.bincount(place, minlength=BINS)
    sums = np.bincount(place, stated, BINS), np.bincount(place, right, BINS)
    bins = tuple(
        Bin(int(n[i]), float(sums[0][i] / n[i]), float(sums[1][i] / n[i])) for i in n.nonzero()[0]
    )
    distance = sum(b.n_rows * abs(b.stated - b.right) for b in bins)
    return Reliability(bins, distance / max(len(stated), 1))


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
    names = estimators() if predictor.model.counts is None else rankers()
    right = dict.fromkeys(names, 0)
    for block in blocks:
        for name in names:
            right[name] += top_k_hits(predictor.topk_ids(block, 1, name)[0], block.classes, 1)
    return {name: count / n for name, count in right.items()}
