"""Rows that share most of what they hold with other rows, found around some of them in one pass.

Each feature tells as many bits as chance takes to name it: log2(rows / rows that hold it); one that
many rows hold tells nothing but by its value. Two rows are alike where most of the bits of each are
in both, and these are too many for chance (:mod:`streammach.data.near_kernels`): rows of few or
frequent features repeat by nature, and are like no other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.data.near_kernels import BANDS, HASHES, count, enter, link, sign
from streammach.data.store.dataset import Dataset
from streammach.rows.arrays import keys
from streammach.rows.block import RowBlock
from streammach.spec.facts import DataFacts

FREQUENT, SOME = 16, 64  # one row in so many holds a frequent feature, and no fewer rows
VALUES = 1 << 16  # hashes of frequent features' values
SURE = 3.0  # twice log2(rows) bits name a pair of rows; features depend on one another
PIECE = 1024  # rows whose signatures are in memory at a time
STREAM = 17
EVIDENCE = 40  # known rows that must have a like one by now, before a search is given up


@dataclass(frozen=True)
class Likeness:
    """Known rows in clusters, and the rows that are like them."""

    roots: NDArray[np.int32]  # int32 (p,): the first known row of each one's cluster
    # sizes, alike: int32 (p,): 1 and the rows that were first found to be like each one, and those
    # of its class
    sizes: NDArray[np.int32]
    alike: NDArray[np.int32]
    # rows, like: int64 (m,), int32 (m,): rows that are known or like known ones, in their order,
    # and the root of each
    rows: NDArray[np.int64]
    like: NDArray[np.int32]


class Signatures:
    """What rows of a store are compared by."""

    def __init__(self, dataset: Dataset, sample: RowBlock) -> None:
        n, counts, d = dataset.n_rows, dataset.feature_counts, dataset.n_features
        frequent = counts > max(n / FREQUENT, SOME)
        self.bits = np.zeros(d + (VALUES if frequent.any() else 1), np.float32)
        told = self.bits[:d]
        told[:] = counts
        np.log2(np.divide(n, np.maximum(told, 1, out=told), out=told), out=told)
        told[counts < 2] = 0  # no other row holds it
        told[frequent] = -1
        seen = np.zeros(len(self.bits) - d, np.float32)
        count(sample.features, _codes(sample), self.bits, d, seen)
        self.bits[d:] = np.log2(max(sample.n_rows, 1) / np.maximum(seen, 1))
        self._dataset, self._d = dataset, d
        self._salts = keys(STREAM, np.arange(2 * HASHES)).astype(np.uint32).reshape(2, HASHES)
        self._salts[1] |= 1
        self.least = SURE * math.log2(max(n, 2))

    @staticmethod
    def footprint(facts: DataFacts, n_known: int) -> int:
        """Return the bytes of a search around so many rows, a block of the store included."""
        block = facts.max_block_nnz * (4 + facts.value_bytes) + 20 * facts.block_rows
        pieces = PIECE * (4 * HASHES + 24) + n_known * (4 * (HASHES + 6) + 16 * BANDS)
        return 5 * facts.n_features + 8 * VALUES + block + pieces if n_known else 0

    def of(self, rows: RowBlock) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the bits of rows' signatures, int32 (n, HASHES), and what rows hold, (n,)."""
        n, codes = rows.n_rows, _codes(rows)
        signs, total = np.empty((n, HASHES), np.float32), np.empty(n, np.float32)
        sign(rows.indptr, rows.features, codes, self.bits, self._d, self._salts, signs, total)
        return signs.view(np.int32), total

    def near(self, rows: RowBlock, numbers: NDArray[np.int64], *, usual: float = 0.0) -> Likeness:
        """Return the rows of the store that are like known ones; read it once.

        `rows` and `numbers` are RowBlock, int64 (p,).
        """
        p, data, step = len(numbers), self._dataset, self._dataset.facts.block_rows
        known, total = self.of(rows)
        table = np.full(1 << (2 * p * BANDS + 1).bit_length(), -1, np.int32)
        enter(known, total, self.least, table)
        parents, sizes, alike = np.arange(p, dtype=np.int32), *np.ones((2, p), np.int32)
        kept: list[NDArray[np.int64]] = []
        likes: list[NDArray[np.int32]] = []
        for start in range(0, data.n_rows, step):
            block = data.rows(start, min(start + step, data.n_rows))
            for first in range(0, block.n_rows, PIECE):
                piece = block.part(first, min(first + PIECE, block.n_rows))
                a = start + first
                at = np.searchsorted(numbers, (a, a + piece.n_rows))
                own, out = np.full((2, piece.n_rows), -1, np.int32)
                own[numbers[at[0] : at[1]] - a] = np.arange(*at)
                link(*self.of(piece), piece.classes, own, known, total, rows.classes, table,
                     self.least, parents, sizes, alike, out)  # fmt: skip
                if not usual:
                    kept.append(a + np.flatnonzero(out >= 0))
                    likes.append(out[out >= 0])
                elif (due := usual * p * (a + PIECE) / data.n_rows) >= EVIDENCE:
                    roots = _roots(parents)
                    if (np.bincount(roots, sizes)[roots] > 1).sum() < due / 2:
                        return Likeness(roots, sizes, alike, numbers[:0], roots[:0])
        roots = _roots(parents)
        like = np.concatenate([np.zeros(0, np.int32), *likes])
        return Likeness(roots, sizes, alike, np.concatenate([numbers[:0], *kept]), roots[like])


def _codes(rows: RowBlock) -> NDArray[np.unsignedinteger]:
    """Return what tells values from one another: uint8, or uint32 (nnz,) of float32."""
    values: NDArray[Any] = rows.values
    return values if values.dtype == np.uint8 else values.view(np.uint32)


def _roots(parents: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the root of each, by their parents."""
    while (parents != (parents := parents[parents])).any():
        pass
    return parents
