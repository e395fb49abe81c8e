"""Scores of classes by counts, alone or beside the hashed models; exact top-k."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streammach.counts import kernels, sums
from streammach.counts.tile import MAX_CLASSES, best_of_tile
from streammach.rows.block import RowBlock
from streammach.rows.packed_pairs import PackedCounts
from streammach.rows.pairs import CountWeights
from streammach.simd import WIDE_LANES
from streammach.threads import Workers

SEEDS, TILE_SEEDS = 64, 16  # classes whose whole score gives the first bound
PIECES_PER_THREAD = 16
Best = tuple[NDArray[np.int64], NDArray[np.float32]]  # ids and scores


@dataclass(frozen=True)
class Hashed:
    """What hashed models say of some rows.

    Attributes
    ----------
    logs : float32 (n, R*B)
        Logarithms of the bucket probabilities.
    codes : uint8 or uint16 or int32 (K*R,)
        Bucket of each class in each repetition.
    n_buckets, n_repetitions : int
        B and R.
    """

    logs: NDArray[np.float32]
    codes: NDArray[np.unsignedinteger]
    n_buckets: int
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
    """Finds the best classes of rows.

    Parameters
    ----------
    weights : CountWeights or PackedCounts
        What scores are made of.
    threads : int
        Threads that share the rows.
    """

    def __init__(self, weights: CountWeights | PackedCounts, threads: int) -> None:
        self.weights = weights
        self._workers = Workers(threads, "counts")
        self._scratch = threading.local()

    @staticmethod
    def footprint(n_classes: int, n_columns: int, threads: int) -> int:
        """Return the bytes of a scorer's scratch, beside hashed models of so many columns."""
        tile = WIDE_LANES * (n_classes + n_columns) if n_classes <= MAX_CLASSES else 0
        return threads * 4 * (2 * n_classes + tile)

    def topk(self, rows: RowBlock, k: int, hashed: Hashed | None = None) -> Best:
        """Return the k best classes of each row and their scores, best first, exactly.

        Parameters
        ----------
        rows : RowBlock
            n rows; which features they hold counts, their values do not.
        k : int
            How many; all K classes if there are fewer.
        hashed : Hashed, optional
            What the hashed models say of the rows; counts alone otherwise.

        Returns
        -------
        ids : int64 (n, min(k, K))
            Class ids; ties go to the smaller one.
        scores : float32 (n, min(k, K))
            Their scores.
        """
        k = min(k, self.weights.n_classes)
        best = np.empty((rows.n_rows, k), np.int64), np.empty((rows.n_rows, k), np.float32)
        if hashed is not None and self.weights.n_classes <= MAX_CLASSES:
            self.each(rows.n_rows, lambda a, b: self._tiles(rows, range(a, b), hashed, best))
        else:
            self.each(rows.n_rows, lambda a, b: self._rows(rows, range(a, b), hashed, best))
        return best

    def each(self, n: int, work: Callable[[int, int], None]) -> None:
        """Call `work` with ranges of rows, on all threads."""
        parts = min(n, self._workers.n_threads * PIECES_PER_THREAD)
        edges = np.linspace(0, n, parts + 1).astype(int)
        self._workers.each(work, itertools.pairwise(edges.tolist()))

    def scratch(self) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return this thread's scratch for the scores of all classes: (K,) each."""
        if not hasattr(self._scratch, "arrays"):
            n = self.weights.n_classes
            self._scratch.arrays = np.empty(n, np.int32), np.empty(n, np.float32)
        found: tuple[NDArray[np.int32], NDArray[np.float32]] = self._scratch.arrays
        return found

    def _tile_scratch(self, n_columns: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return this thread's scratch for a tile of rows: (16, K) and (16 C,)."""
        if not hasattr(self._scratch, "tile"):
            totals = np.zeros((WIDE_LANES, self.weights.n_classes), np.float32)
            self._scratch.tile = totals, np.empty(WIDE_LANES * n_columns, np.float32)
        found: tuple[NDArray[np.float32], NDArray[np.float32]] = self._scratch.tile
        return found

    def close(self) -> None:
        """Stop the threads."""
        self._workers.close()

    def _rows(self, rows: RowBlock, some: range, hashed: Hashed | None, best: Best) -> None:
        ids, scores = best
        _, total = self.scratch()
        seeds, seed_scores = _seeds(SEEDS, scores)
        for i in some:
            self._sum(rows, i, total)
            if hashed is None:
                kernels.best_of(total, scores[i], ids[i])
                continue
            kernels.best_blended(
                total, hashed.logs[i], hashed.codes, hashed.n_buckets, hashed.n_repetitions,
                np.float32(self.weights.hashed / hashed.n_repetitions), seeds, seed_scores,
                scores[i], ids[i],
            )  # fmt: skip

    def _tiles(self, rows: RowBlock, some: range, hashed: Hashed, best: Best) -> None:
        ids, scores = best
        totals, by_column = self._tile_scratch(hashed.logs.shape[1])
        seeds, seed_scores = _seeds(TILE_SEEDS, scores)
        for start in some[::WIDE_LANES]:
            stop = min(start + WIDE_LANES, some.stop)
            for i in range(start, stop):
                self._sum(rows, i, totals[i - start])
            best_of_tile(
                totals, hashed.logs[start:stop], hashed.codes, hashed.n_buckets,
                hashed.n_repetitions, np.float32(self.weights.hashed / hashed.n_repetitions),
                by_column, seeds, seed_scores, scores[start:stop], ids[start:stop],
            )  # fmt: skip

    def _sum(self, rows: RowBlock, i: int, total: NDArray[np.float32]) -> None:
        """Write the counts' score of every class for a row."""
        w = self.weights
        row = rows.features[rows.indptr[i] : rows.indptr[i + 1]]
        rest = w.wide_of, w.wide, w.penalty, w.base, w.log_values, self.scratch()[0], total
        if isinstance(w, PackedCounts):
            sums.sum_packed_row(row, w.starts, w.steps, w.gains, w.unit, *rest)
        else:
            sums.sum_row(row, w.starts, w.classes, w.gains, *rest)


def _seeds(n: int, scores: NDArray[np.float32]) -> Best:
    """Return scratch for the classes that give the first bound of the k best: n, or k if more."""
    n = max(n, scores.shape[1])
    return np.empty(n, np.int64), np.empty(n, np.float32)
