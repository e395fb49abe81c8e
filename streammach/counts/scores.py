"""Scores of classes by counts, alone or beside the hashed models; exact top-k."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.counts.bounded import BLOCK, BlockBounds, best_of_rows, scratch_sizes
from streammach.counts.deficits import in_blocks, width_of
from streammach.rows.block import RowBlock
from streammach.rows.packed_pairs import PackedCounts
from streammach.rows.pairs import CountWeights
from streammach.simd import WIDEST, aligned
from streammach.threads import Workers, pieces_of

PIECES_A_THREAD = 4  # some rows take much longer than others
ROW_BYTES = 8192  # scratch for a block of classes, the best ones, and a row's features: for 500
NO_PEAKS = np.zeros(0, np.int16)
NOTHING = np.zeros((1, 0), np.float32), np.zeros(0, np.uint8)  # logarithms and codes
Best = tuple[NDArray[np.int64], NDArray[np.float32]]  # ids and scores


@dataclass(frozen=True)
class Hashed:
    """What hashed models say of some rows."""

    logs: NDArray[np.float32]  # float32 (n, R*B): logarithms of the bucket probabilities
    # uint8 or uint16 or int32 (K*R,): bucket of each class in each repetition
    codes: NDArray[np.unsignedinteger]
    n_buckets: int  # n_buckets, n_repetitions: B and R
    n_repetitions: int

    def means(self, candidates: NDArray[np.int32]) -> NDArray[np.float32]:
        """Return ``(1/R) sum_r ln P_r[h_r(i)]`` of candidates int32 (n, m): float32 (n, m)."""
        out = np.zeros(candidates.shape, np.float32)
        codes = self.codes.reshape(-1, self.n_repetitions)
        for r in range(self.n_repetitions):
            buckets = codes[candidates, r].astype(np.int64) + r * self.n_buckets
            out += np.take_along_axis(self.logs, buckets, axis=1)
        return out / np.float32(self.n_repetitions)


class CountScorer:
    """Finds the best classes of rows."""

    def __init__(self, weights: CountWeights | PackedCounts, threads: int) -> None:
        self.weights = weights
        self._workers = Workers(threads, "counts")
        self._scratch = threading.local()
        self._model: tuple[Any, ...] | None = None
        self._blocks: tuple[Any, NDArray[np.uint8], int] | None = None  # of the last codes

    @staticmethod
    def footprint(n_classes: int, n_wide: int, n_repetitions: int, threads: int) -> int:
        """Return the bytes of a scorer's tables, with so many features in `wide`, and scratch."""
        blocks = -(-n_classes // BLOCK)
        tables = blocks * (12 + 2 * n_wide + BLOCK * n_repetitions)
        scratch = blocks * (4 * BLOCK + 8) + (WIDEST + 4) * n_repetitions + ROW_BYTES
        return tables + threads * scratch

    def topk(self, rows: RowBlock, k: int, hashed: Hashed | None = None) -> Best:
        """Return the k best classes of each row and their scores, best first, exactly.

        Returns `ids` int64 (n, min(k, K)), `scores` float32 (n, min(k, K)).
        """
        k, n = min(k, self.weights.n_classes), rows.n_rows
        best = np.empty((n, k), np.int64), np.empty((n, k), np.float32)
        if n > 1:
            self.each(n, lambda a, b: self.rank(rows.indptr, rows.features, a, b, hashed, best))
        elif n:
            self.rank(rows.indptr, rows.features, 0, 1, hashed, best)
        return best

    def rank(
        self, indptr: NDArray[np.int64], features: NDArray[np.int32], first: int, last: int,
        hashed: Hashed | None, best: Best,
    ) -> None:  # fmt: skip
        """Write the best classes of rows ``first:last``, on this thread.

        `indptr` and `features` are int64 (n + 1,), int32 (nnz,), `best` is (int64 (n, k), float32
        (n, k)).
        """
        ids, scores = best
        model = *self._arrays(), *self._hashed(hashed)
        ends = indptr[first : last + 1]
        longest = ends[1] - ends[0] if last == first + 1 else np.diff(ends).max()
        room = self._room(hashed, scores.shape[1], int(longest))
        while True:
            first = best_of_rows(  # type: ignore[call-arg]
                indptr, features, first, last, *model, *room, scores, ids
            )
            if first == last:
                return
            row = indptr, features, first, first + 1
            wider = room[0].astype(np.int32), *room[1:]
            first = best_of_rows(*row, *model, *wider, scores, ids)  # type: ignore[call-arg]

    def each(self, n: int, work: Callable[[int, int], None]) -> None:
        """Call `work` with ranges of rows, on all threads."""
        threads = self._workers.n_threads
        self._workers.each(work, pieces_of(n, threads, a_thread=PIECES_A_THREAD))

    def close(self) -> None:
        """Stop the threads."""
        self._workers.close()

    def _arrays(self) -> tuple[Any, ...]:
        """Return what scores are made of, and what bounds them in each block of classes."""
        if self._model is None:
            w = self.weights
            wide = np.ascontiguousarray(w.wide)
            bounds = BlockBounds.of(w.base, w.log_values, wide)
            if isinstance(w, PackedCounts):
                lists: tuple[Any, ...] = w.steps, w.gains, w.peaks, w.unit
            else:
                lists = w.classes, w.gains, NO_PEAKS, 0
            self._model = (
                w.starts, *lists, w.wide_of, wide, w.penalty, w.base, w.log_values, *bounds
            )  # fmt: skip
        return self._model

    def _hashed(self, hashed: Hashed | None) -> tuple[Any, ...]:
        """Return what the hashed models say, and their codes in blocks where these are of use."""
        if hashed is None:
            return *NOTHING, 1, 0, np.float32(0), NOTHING[1], 0
        n, codes = hashed.n_repetitions, hashed.codes
        if self._blocks is None or self._blocks[0] is not codes:
            width = width_of(hashed.n_buckets, codes)
            self._blocks = codes, in_blocks(codes, n) if width else NOTHING[1], width
        weight = np.float32(self.weights.hashed / n)
        return hashed.logs, codes, hashed.n_buckets, n, weight, *self._blocks[1:]

    def _room(self, hashed: Hashed | None, k: int, longest: int) -> tuple[NDArray[Any], ...]:
        """Return this thread's scratch, as :func:`best_of_rows` takes it."""
        scratch, n = self._scratch, 0 if hashed is None else hashed.n_repetitions
        made_for = getattr(scratch, "made_for", (-1, 0, 0))
        if made_for[:2] != (n, k) or made_for[2] < longest:
            blocks, (more, places) = -(-self.weights.n_classes // BLOCK), scratch_sizes(k)
            scratch.made_for = n, k, longest
            kind = np.dtype(np.int16 if isinstance(self.weights, PackedCounts) else np.int32)
            scratch.arrays = (
                aligned(blocks * BLOCK * kind.itemsize).view(kind),
                aligned((BLOCK + blocks) * 4).view(np.int32),
                aligned((more + blocks) * 4).view(np.float32), np.empty(n, np.float32),
                aligned(BLOCK + n * WIDEST), np.empty(places + longest, np.int64),
            )  # fmt: skip
        found: tuple[NDArray[Any], ...] = scratch.arrays
        return found
