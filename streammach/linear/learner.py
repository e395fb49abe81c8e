"""Learns linear classifiers, one a class, each from its own examples, on all threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streammach.linear.descent import ClassRoom, Examples, UnitRows, learn_class
from streammach.linear.weights import LinearWeights, unit_values
from streammach.rows.block import RowBlock
from streammach.rows.layouts import ends
from streammach.system.threads import Workers

CLOSE, PASSES = np.float32(0.1), 60
LEAST_COST = 1e-20  # of a row that weighs nothing
# Writes the examples of a class, twice a row plus 1 for a row of the class, into int32 (n,);
# returns how many these are.
WriteExamples = Callable[[int, NDArray[np.int32]], int]


@dataclass(frozen=True, kw_only=True)
class LinearOptions:
    """How classifiers are learnt."""

    cost: float  # C: what an error costs
    idf: bool = True  # whether features of few rows weigh more
    valued: bool = False  # whether values count; otherwise each feature of a row counts as 1
    least: float = 0.0  # magnitude below which a weight is left out


def scale_features(rows: RowBlock, n_features: int, *, idf: bool = True) -> NDArray[np.float32]:
    """Return ``1 + ln((1 + n) / (1 + n_f))`` of each feature, which n_f of n rows have, or 1.

    float32 (d,); 0 for features that no row has.
    """
    counts = np.bincount(rows.features, minlength=n_features)
    scale = 1 + idf * np.log((1 + rows.n_rows) / (1 + counts))
    return np.where(counts > 0, scale, 0).astype(np.float16).astype(np.float32)


def every_row(classes: NDArray[np.int32]) -> WriteExamples:
    """Return examples of rows with one class each, int32 (n,): all rows, its own or others."""
    twice = 2 * np.arange(len(classes), dtype=np.int32)

    def write(c: int, out: NDArray[np.int32]) -> int:
        np.add(twice, classes == c, out=out[: len(twice)])
        return len(twice)

    return write


class LinearLearner:
    """Learns the classifiers of rows in memory; the bytes never depend on the threads."""

    def __init__(
        self, rows: RowBlock, scale: NDArray[np.float32], options: LinearOptions, threads: int
    ) -> None:
        self._rows, self._scale, self._options = rows, scale, options
        values = unit_values(rows, scale, valued=options.valued)
        costs = np.maximum(options.cost * rows.weights, LEAST_COST).astype(np.float32)
        self._unit = UnitRows(rows.indptr, rows.features, values, costs)
        self._workers = Workers(threads, "linear")
        self._rooms = threading.local()

    @staticmethod
    def footprint(n_rows: int, nnz: int, n_features: int, threads: int) -> int:
        """Return the bytes of the values and of scratch, without rows and weights."""
        return 4 * nnz + 4 * n_rows + threads * ClassRoom.footprint(n_features, n_rows)

    def learn(
        self, n_classes: int, write: WriteExamples, most: int, *, most_each: int | None = None,
        gains: NDArray[np.float32] | None = None, tell: Callable[[int], None] = lambda _: None,
    ) -> LinearWeights:  # fmt: skip
        """Return the classifiers of all classes.

        A class has `most` examples at most, and keeps its `most_each` largest weights. The errors
        of its rows cost `gains` float32 (K,) times as much as others. `tell` is called, in this
        thread, with the classes that are done.
        """
        found: list[tuple[NDArray[np.int32], NDArray[np.float32]]] = [None] * n_classes  # type: ignore[list-item]
        bias = np.zeros(n_classes, np.float32)

        def work(first: int, last: int) -> None:
            for c in range(first, last):
                gain = np.float32(1 if gains is None else gains[c])
                found[c], bias[c] = self._learn_class(c, write, most, gain, most_each)

        try:
            for first, last in self._turns(n_classes):
                self._workers.each(work, [(c, c + 1) for c in range(first, last)])
                tell(last)
        finally:
            self._workers.close()
        return self._by_feature(found, bias)

    def _turns(self, n_classes: int) -> Iterator[tuple[int, int]]:
        """Yield ranges of classes after each of which is told how far it is."""
        step = max(8 * self._workers.n_threads, n_classes // 64)
        for first in range(0, n_classes, step):
            yield first, min(first + step, n_classes)

    def _learn_class(
        self, c: int, write: WriteExamples, most: int, gain: np.float32, most_each: int | None
    ) -> tuple[tuple[NDArray[np.int32], NDArray[np.float32]], np.float32]:
        """Return the features of a class with their weights, and its bias."""
        room = getattr(self._rooms, "room", None)
        if room is None:
            room = self._rooms.room = ClassRoom.of(len(self._scale))
            self._rooms.examples = Examples.of(np.empty(most, np.int32))
        n = write(c, self._rooms.examples.rows)
        if not n:
            return (np.zeros(0, np.int32), np.zeros(0, np.float32)), np.float32(0)
        examples = Examples(*(array[:n] for array in self._rooms.examples))
        m = learn_class(self._unit, examples, gain, CLOSE, PASSES, room)
        weights = room.weights[1 : m + 1].astype(np.float16).astype(np.float32)
        kept, size = np.abs(weights) > self._options.least, np.abs(weights)
        if most_each is not None and np.count_nonzero(kept) > most_each:
            kept &= size > np.partition(size, len(size) - most_each - 1)[-most_each - 1]
        return (room.features[:m][kept], weights[kept]), room.weights[m + 1]

    def _by_feature(
        self, found: list[tuple[NDArray[np.int32], NDArray[np.float32]]], bias: NDArray[np.float32]
    ) -> LinearWeights:
        """Return weights of classes as lists of features."""
        lengths = [len(features) for features, _ in found]
        classes = np.repeat(np.arange(len(found), dtype=np.int32), lengths)
        features = np.concatenate([one for one, _ in found]) if found else np.zeros(0, np.int32)
        weights = np.concatenate([one for _, one in found]) if found else np.zeros(0, np.float32)
        order = np.argsort(features, kind="stable")
        counts = np.bincount(features, minlength=len(self._scale))
        return LinearWeights(
            starts=ends(counts), classes=classes[order], weights=weights[order], scale=self._scale,
            bias=bias, empty=np.zeros(len(bias), np.float32), valued=self._options.valued,
        )  # fmt: skip
