"""Rows of one document, user or file: by a namespace that looks like its name, or by likeness.

Each feature tells as many bits as chance takes to name it: log2(rows / rows that hold it); one that
many rows hold tells nothing but by its value. Two rows are alike where most of the bits of each are
in both, and these are too many for chance (:mod:`streammach.data.near_kernels`): rows of few or
frequent features repeat by nature, and are like no other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.data.near_kernels import BANDS, HASHES, count, enter, link, match, sign
from streammach.data.store.dataset import Dataset
from streammach.rows.arrays import keys
from streammach.rows.block import RowBlock
from streammach.rows.names import SEPARATOR, namespace_ids
from streammach.spec.facts import DataFacts
from streammach.threads import Workers, in_pieces

FREQUENT, SOME = 16, 64  # one row in so many holds a frequent feature, and no fewer rows
VALUES = 1 << 16  # hashes of frequent features' values
SURE = 3.0  # twice log2(rows) bits name a pair of rows; features depend on one another
# Rows whose signatures are in memory at a time; those after which the search may be given up.
TOGETHER, PIECE = 1 << 14, 1 << 10
STREAM = 17
NAMESPACES, FEW = 32, 32  # that are looked at; fewer values are no documents' names
NEARLY = 0.9  # of the rows have a value of such a namespace, which other rows share
TELLS = 0.5  # of what chance leaves open of a row's class, what its document says
ALIKE = 0.1  # more of what rows hold is in both if they are of one document, not of one class
USUAL, FLATTERS = 0.05, 0.02  # of the rows: those with like ones; what their classes would add
ROUNDS, ENDS = 4, 0.05  # of a search around a cluster's rows; what the last one adds at most
# Where that has no end: how many of the wanted rows decide at least, and how many of all rows are
# not learnt from.
FEWEST, APART = 0.2, 0.05
CLUSTERS_STREAM = 4
EVIDENCE = 40  # known rows that must have a like one by now, before a search is given up
SIGNED_BYTES = 4 * (HASHES + 2)  # of a row: signature, what it holds, class
# First row, then classes int32 (n,), signatures int32 (n, HASHES), what rows hold float32 (n,).
Signed = tuple[int, NDArray[np.int32], NDArray[np.int32], NDArray[np.float32]]
Masked = Callable[[NDArray[np.bool_]], tuple[RowBlock, NDArray[np.int64]]]


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

    def __init__(
        self, dataset: Dataset, sample: RowBlock, workers: Workers | None = None, *,
        room: int = 0,
    ) -> None:  # fmt: skip
        # `room` is how many bytes signatures of all rows may take, which then are computed once
        n, counts, d = dataset.n_rows, dataset.feature_counts, dataset.n_features
        frequent = counts > max(n / FREQUENT, SOME)
        self.bits = np.zeros(d + (VALUES if frequent.any() else 1), np.float32)
        told = self.bits[:d]
        told[:] = counts
        np.log2(np.divide(n, np.maximum(told, 1, out=told), out=told), out=told)
        told[counts < 2] = 0  # no other row holds it
        told[frequent] = -1
        told[: dataset.shared] = 0  # like rows have other embeddings
        seen = np.zeros(len(self.bits) - d, np.float32)
        count(sample.features, _codes(sample), self.bits, d, seen)
        self.bits[d:] = np.log2(max(sample.n_rows, 1) / np.maximum(seen, 1))
        self._dataset, self._d, self._workers = dataset, d, workers
        self._salts = keys(STREAM, np.arange(2 * HASHES)).astype(np.uint32).reshape(2, HASHES)
        self._salts[1] |= 1
        self.least = SURE * math.log2(max(n, 2))
        self._room, self._every = room, list[Signed]()

    @staticmethod
    def footprint(facts: DataFacts, n_known: int) -> int:
        """Return the bytes of a search around so many rows, a block of the store included.

        Without those of signatures that are kept.
        """
        block = facts.max_block_nnz * (4 + facts.value_bytes) + 20 * facts.block_rows
        pieces = (
            TOGETHER * 4 * (HASHES + BANDS + 1)
            + 24 * PIECE
            + n_known * (4 * (HASHES + 6) + 18 * BANDS)
        )
        return 5 * facts.n_features + 8 * VALUES + block + pieces if n_known else 0

    def of(self, rows: RowBlock) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the bits of rows' signatures, int32 (n, HASHES), and what rows hold, (n,)."""
        n, codes = rows.n_rows, _codes(rows)
        signs, total = np.empty((n, HASHES), np.float32), np.empty(n, np.float32)

        def piece(first: int, last: int) -> None:
            some, indptr = slice(first, last), rows.indptr[first : last + 1]
            sign(indptr, rows.features, codes, self.bits, self._d, self._salts, signs[some],
                 total[some])  # fmt: skip

        in_pieces(self._workers, n, piece)
        return signs.view(np.int32), total

    def near(self, rows: RowBlock, numbers: NDArray[np.int64], *, usual: float = 0.0) -> Likeness:
        """Return the rows of the store that are like known ones, with numbers; read it once."""
        p, data = len(numbers), self._dataset
        known, total = self.of(rows)
        table = np.full(1 << (2 * p * BANDS + 1).bit_length(), -1, np.int32)
        bits = np.zeros(len(table) // 2, np.uint8)
        enter(known, total, self.least, table, bits)
        parents, sizes, alike = np.arange(p, dtype=np.int32), *np.ones((2, p), np.int32)
        kept: list[NDArray[np.int64]] = []
        likes: list[NDArray[np.int32]] = []
        for a, classes, matches in self._matches(known, total, table, bits):
            at = np.searchsorted(numbers, (a, a + len(classes)))
            own, out = np.full((2, len(classes)), -1, np.int32)
            own[numbers[at[0] : at[1]] - a] = np.arange(*at)
            link(matches, classes, own, rows.classes, parents, sizes, alike, out)
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

    def _matches(
        self, known: NDArray[np.int32], known_total: NDArray[np.float32],
        table: NDArray[np.int32], bits: NDArray[np.uint8],
    ) -> Iterator[tuple[int, NDArray[np.int32], NDArray[np.int32]]]:  # fmt: skip
        """Yield a first row, the classes of rows from there on, and the known ones like each."""

        def of(signs: NDArray[np.int32], total: NDArray[np.float32]) -> NDArray[np.int32]:
            out = np.empty((len(signs), BANDS), np.int32)

            def piece(a: int, b: int) -> None:
                match(signs[a:b], total[a:b], known, known_total, table, bits, self.least, out[a:b])

            in_pieces(self._workers, len(signs), piece)
            return out

        for start, classes, signs, total in self._signed():
            found = of(signs, total)
            for a in range(0, len(classes), PIECE):
                yield start + a, classes[a : a + PIECE], found[a : a + PIECE]

    def _signed(self) -> Iterator[Signed]:
        """Yield the rows of the store, some at a time; from memory, if there is room, again."""
        n, step = self._dataset.n_rows, self._dataset.facts.block_rows
        if self._every and self._every[-1][0] + len(self._every[-1][1]) == n:
            yield from self._every
            return
        self._every.clear()
        for start in range(0, n, step):
            block = self._dataset.rows(start, min(start + step, n))
            for first in range(0, block.n_rows, TOGETHER):
                rows = block.part(first, min(first + TOGETHER, block.n_rows))
                signed = start + first, rows.classes.astype(np.int32), *self.of(rows)
                if n * SIGNED_BYTES <= self._room:
                    self._every.append(signed)
                yield signed


def _codes(rows: RowBlock) -> NDArray[np.unsignedinteger]:
    """Return what tells values from one another: uint8, or uint32 (nnz,) of float32."""
    values: NDArray[Any] = rows.values
    return values if values.dtype == np.uint8 else values.view(np.uint32)


def _roots(parents: NDArray[np.int32]) -> NDArray[np.int32]:
    while (parents != (parents := parents[parents])).any():
        pass
    return parents


def names_of_documents(dataset: Dataset, most: int) -> Iterator[bytes]:
    """Yield namespaces that give nearly every row one value, as few to `most` other rows have."""
    ids, counts = namespace_ids(dataset.features, NAMESPACES), dataset.feature_counts
    for number in range(1, NAMESPACES):
        inside = np.flatnonzero(ids == number)
        shared = counts[inside][counts[inside] > 1]
        if (
            len(shared) >= FEW and shared.max() <= most and counts[inside].sum() <= dataset.n_rows
            and shared.sum() >= NEARLY * dataset.n_rows
        ):  # fmt: skip
            yield dataset.features.raw(int(inside[0])).partition(bytes([SEPARATOR]))[0]


def are_documents(dataset: Dataset, rows: RowBlock, groups: NDArray[np.integer]) -> bool:
    """Return whether groups of rows, each whole, tell classes, are none, and are alike beside that.

    Rows of a column that decides the class, as a product's name does, share nothing more. Of a list
    each label is told where another row of the group has it.
    """
    _, of, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    own, classes = rows.lists.rows, rows.lists.classes
    groups = groups[own]
    alike = _of_class(dataset, groups, classes, np.ones(len(groups)))
    others = sizes[of][own] - 1
    if dataset.listed:
        chance = 1 - (1 - dataset.label_counts[classes] / dataset.n_rows) ** others
        told = ((alike > 1) - chance).sum() / max((1 - chance).sum(), 1e-9)
    else:
        told = _beyond_chance(dataset, alike, others + 1).mean()
    if told < TELLS or _mostly(dataset, classes, alike).mean() > TELLS:
        return False
    order = np.lexsort((groups, classes))
    signs, total = (of_rows[own[order]] for of_rows in Signatures(dataset, rows).of(rows))
    equal = (signs[1:] == signs[:-1]).mean(1) * (total[1:] > 0)
    together, same = (np.diff(ids[order]) == 0 for ids in (groups, classes))
    apart = np.append(equal[same & ~together], 0.0).mean()
    return bool(equal[together].mean() - apart >= ALIKE)


def _of_class(
    dataset: Dataset, groups: NDArray[np.integer], classes: NDArray[np.int32],
    each: NDArray[np.number],
) -> NDArray[np.float64]:  # fmt: skip
    """Return the sum of what stands for each row over those of its group and class: (n,)."""
    pairs = groups.astype(np.int64) * (dataset.n_classes + 1) + classes
    _, of = np.unique(pairs, return_inverse=True)
    return np.bincount(of, each).astype(np.float64)[of]


def _beyond_chance(
    dataset: Dataset, alike: NDArray[np.float64], sizes: NDArray[np.integer]
) -> NDArray[np.float64]:
    """Return how many others of a row's group have its class: 1 for all, 0 for as by chance."""
    counts = dataset.label_counts
    chance = float(((counts / max(counts.sum(), 1)) ** 2).sum())
    same = (alike - 1) / np.maximum(sizes - 1, 1)
    return np.where(sizes > 1, (same - chance) / max(1 - chance, 1e-9), 0.0)


def _mostly(
    dataset: Dataset, classes: NDArray[np.int32], alike: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Return whether most rows of a row's class are in its group, which then stands for it."""
    return (classes >= 0) & (2 * alike > dataset.label_counts[classes])


def clusters(
    dataset: Dataset, masked: Masked, random: tuple[RowBlock, NDArray[np.int64]], seed: int,
    workers: Workers | None = None, room: int = 0,
) -> tuple[NDArray[np.bool_], NDArray[np.int64], float] | None:  # fmt: skip
    """Return whole clusters of rows that are alike, as many rows as some random ones.

    They are those around random rows, each with the chance that a single row has. A cluster of more
    rows than are wanted is what rows to come are like, too: its rows count as single ones. One that
    has most rows of its classes is left to the training. A document ends: where rows around those
    of clusters lead to ever more rows, they are a continuum, as the functions of a program are. Of
    one the random rows themselves decide, and nobody learns from the rows that are like them.
    Returned are which rows are held out, bool (n_rows,), the cluster of each row of the store, -1
    for one that decides nothing, and the share in clusters.
    """
    (rows, numbers), p = random, len(random[1])
    signatures = Signatures(dataset, rows, workers, room=room)
    near = signatures.near(rows, numbers, usual=USUAL)
    roots, n = near.roots, dataset.n_rows
    sizes = np.bincount(roots, near.sizes)[roots]
    alike = _of_class(dataset, roots, rows.classes, near.alike)
    several, own = (sizes > 1) & (sizes <= p), np.bincount(roots)[roots]
    is_class = several & (
        2 * np.bincount(roots, _mostly(dataset, rows.classes, alike))[roots] > own
    )
    several &= ~is_class
    told = _beyond_chance(dataset, alike, sizes)[several].sum()
    if several.mean() < USUAL or told < FLATTERS * p or several.sum() < is_class.sum():
        return None
    cluster = np.where(several, roots, np.arange(p))
    first = np.flatnonzero((cluster == np.arange(p)) & ~is_class)
    weights = np.where(several, sizes, 1)[first]  # by which a cluster is found more often
    order = np.argsort(keys(seed, CLUSTERS_STREAM, numbers[first]) * weights, kind="stable")
    within, share = np.cumsum(weights[order]), float(several.mean())
    for whole, most in ((True, p), (False, max(p, int(n * APART)))):
        chosen = np.isin(cluster, first[order[: int(np.searchsorted(within, most)) + 1]])
        mask, groups = np.zeros(n, bool), np.full(n, -1)
        mask[numbers[chosen & several]] = True
        groups[numbers[chosen]] = numbers[cluster[chosen]]
        if whole:
            ends = _grow(signatures, masked, mask, groups, 2 * p)
        else:
            found = signatures.near(*masked(mask)).rows
            mask[found] = True
            ends = len(found) <= min(2 * most, n // 2) and chosen.sum() >= FEWEST * p
        if ends:
            mask[numbers[chosen & ~several]] = True
            return mask, groups, share
    return np.zeros(n, bool), groups, share


def _grow(
    signatures: Signatures, masked: Masked, mask: NDArray[np.bool_], groups: NDArray[np.int64],
    most: int,
) -> bool:  # fmt: skip
    """Add the rows around random rows, then around those that were found; return if that ends."""
    for _ in range(ROUNDS):
        before, (known, at) = mask.sum(), masked(mask)
        found = signatures.near(known, at)
        if len(found.rows) > min(most, len(mask) // 2):
            return False
        mask[found.rows], groups[found.rows] = True, at[found.like]
        if mask.sum() <= (1 + ENDS) * before:
            return True
    return False
