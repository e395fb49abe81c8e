"""How best classes are found on the CPU: the way for a shape and a number of rows, and its tables.

======= ==================================================================
tile    64 rows a vector: it pays from a few rows on
buckets the classes of a row's best buckets alone, as long as that pays
one     every class of one row after another: where classes are the buckets
======= ==================================================================

All give the same ids and the same bits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.backends.cpu.decode import CodedClasses, decode_one
from streammach.backends.cpu.decode_buckets import BucketWalk, decode_buckets
from streammach.backends.cpu.decode_tile import TileRoom, decode_tile
from streammach.options.model_spec import ModelSpec
from streammach.rows.arrays import SORTED_CELLS, best_first, many
from streammach.system.forks import ForkSafeLock
from streammach.system.simd import LANES

TILE, BUCKETS, ONE = "tile", "buckets", "one"
TILE_ROWS = 4  # from which on all rows of a vector cost less than each for itself
SHARED_CODES = 1 << 24  # so many that threads share the classes of few rows
Run = Callable[[Callable[[int, int], None], list[tuple[int, int]]], None]


class Decoder:
    """Finds the best classes of rows from what the R models say of their buckets."""

    def __init__(self, spec: ModelSpec) -> None:
        self.spec = spec
        self._codes: NDArray[Any] | None = None
        self._scratch, self._lock = threading.local(), ForkSafeLock()

    @property
    def codes(self) -> NDArray[Any]:
        """Every class's bucket in each repetition, unsigned (K, R); made when it is asked for."""
        with self._lock:
            if self._codes is None:
                self._codes = self.spec.codes()
            return self._codes

    def way(self, n_rows: int = LANES) -> str:
        """Return how the best classes of so many rows are found."""
        if self.spec.exact:
            return ONE
        return BUCKETS if n_rows < TILE_ROWS else TILE

    def parts(self, n_rows: int) -> list[tuple[int, int]]:
        """Return rows in parts of at most 64, each for one thread."""
        step = 1 if self.way(n_rows) == BUCKETS else LANES
        return [(i, min(i + step, n_rows)) for i in range(0, n_rows, step)]

    def decode_shared(
        self, p: NDArray[Any], branch: int, scores: NDArray[Any], ids: NDArray[Any], run: Run,
        threads: int,
    ) -> None:  # fmt: skip
        """Do the same, where `run` has threads share the classes."""
        step = max(-(-self.spec.n_classes // (threads * LANES)), 1) * LANES
        self._decode_ranges(p, branch, scores, ids, run, step)

    def shares_classes(self, n_rows: int, threads: int) -> bool:
        """Return whether threads had better share the classes of so many rows than the rows."""
        n_codes = self.spec.n_classes * self.spec.n_repetitions
        return threads > len(self.parts(n_rows)) and n_codes >= SHARED_CODES

    def decode(
        self, p: NDArray[Any], branch: int, scores: NDArray[Any], ids: NDArray[Any],
        classes: tuple[int, int] | None = None,
    ) -> None:  # fmt: skip
        """Find the k best of all or some classes, -1 for no more, for up to 64 rows (n, R*B)."""
        first, last = classes or (0, self.spec.n_classes)
        spec, way, k = self.spec, self.way(len(p)), scores.shape[1]
        if classes is None and many(k, last):
            rows = max(1, SORTED_CELLS // last)
            for i in range(0, len(p), rows):
                some = slice(i, i + rows)
                self._decode_ranges(p[some], branch, scores[some], ids[some], _one_by_one, LANES)
            return
        r, b = spec.n_repetitions, spec.n_buckets
        model = CodedClasses(self.codes.reshape(-1), r, b, branch)
        if way == ONE:
            v = self._room(ONE, lambda: np.empty(r, np.float32))
            decode_one(p, model, first, last, v, scores, ids)
        elif way == BUCKETS:
            walks = self._room(BUCKETS, lambda: BucketWalk.of(spec))
            decode_buckets(p, model, first, last, walks, scores, ids)
        else:
            room = self._room(TILE, lambda: TileRoom.of(r, spec.n_columns))
            decode_tile(p, model, first, last, room, scores, ids)

    def _decode_ranges(
        self, p: NDArray[Any], branch: int, scores: NDArray[Any], ids: NDArray[Any], run: Run,
        step: int,
    ) -> None:  # fmt: skip
        """Find the k best among those of each of several ranges of `step` classes."""
        n_classes, k = self.spec.n_classes, scores.shape[1]
        edges = [(i, min(i + step, n_classes)) for i in range(0, n_classes, step)]
        best = np.empty((len(edges), len(p), min(k, step)), np.float32)
        where = np.empty(best.shape, np.int64)

        def part(first: int, last: int) -> None:
            i = first // step
            self.decode(p, branch, best[i], where[i], (first, last))

        run(part, edges)
        merged = np.concatenate([*where], axis=1), np.concatenate([*best], axis=1)
        ids[:], scores[:] = best_first(*merged, k)

    def _room(self, way: str, make: Callable[[], Any]) -> Any:
        if not hasattr(self._scratch, way):
            setattr(self._scratch, way, make())
        return getattr(self._scratch, way)


def _one_by_one(work: Callable[[int, int], None], edges: list[tuple[int, int]]) -> None:
    for first, last in edges:
        work(first, last)
