"""Tables of (feature, class) pairs: one schema for counting, scoring, saving and shrinking."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray

from streammach.rows.arrays import ranges_that_fit
from streammach.rows.layouts import ArrayLayout, ArrayTable, are_lists, ends
from streammach.rows.neighbours import Neighbours
from streammach.rows.quantize import nth_largest, numbers_of
from streammach.system.jit import Array, kernel

PIECE_PAIRS = 1 << 18  # that are worked on at once
MOST_GAIN = 32_000  # of a pair, in units of 1/1024 nat


@dataclass(frozen=True, kw_only=True)
class PairTable(ArrayTable):
    """Pairs as lists by feature, and what all tables of them can do."""

    # int64 (d + 1,): feature f's pairs lie in `starts[f]:starts[f + 1]`
    starts: Annotated[NDArray[np.int64], ArrayLayout(("ends",), "steps")]
    # int32 (Z,): the class of each pair, rising within a feature
    classes: Annotated[NDArray[np.int32], ArrayLayout(("pairs",), "lists")]

    @classmethod
    @cache
    def footprint(cls, *, features: int = 0, classes: int = 0, pairs: int = 0) -> int:
        """Return the bytes of a table of this size, without the last end and gains in `wide`."""
        sizes = {"features": features, "ends": features, "classes": classes, "pairs": pairs}
        return sum(
            dtype.itemsize * math.prod(sizes.get(length, 0) for length in form.shape)
            for dtype, form in cls.forms().values()
        )

    @property
    def n_features(self) -> int:
        """Number of features, d."""
        return len(self.starts) - 1

    def of_features(self, chosen: NDArray[np.bool_]) -> Self:
        """Return the table of some features: bool (d,). Their places are then their ids."""
        lengths = np.diff(self.starts)
        kept = {"features": chosen, "pairs": np.repeat(chosen, lengths)}
        some = {
            name: getattr(self, name)[kept[form.shape[0]]]
            for name, (_, form) in self.forms().items() if form.shape[0] in kept
        }  # fmt: skip
        return replace(self, starts=ends(lengths[chosen]), **some)


@dataclass(frozen=True, kw_only=True)
class CountWeights(PairTable):
    """What a class's score is made of.

    With the features f of a row, ``score_i = base_i - (sum_f penalty_f) log_values_i + (sum over
    counted pairs (f, i) of gain_fi) / 1024``; with hashed models beside it, plus ``hashed * (1/R)
    sum_r ln P_r[h_r(i)]``, and with training rows, plus what labels of the most similar ones gain.
    """

    # int16 (Z,): what each pair adds, in units of 1/1024 nat
    gains: Annotated[NDArray[np.int16], ArrayLayout(("pairs",), "units")]
    # int32 (d,): where a feature of many classes has its gains in `wide`, -1 for those with a list
    wide_of: Annotated[NDArray[np.int32], ArrayLayout(("features",))]
    # int16 (n, K): gains of such features for all classes, which are added faster than long lists
    wide: Annotated[NDArray[np.int16], ArrayLayout(("any", "classes"), "units")]
    # float32 (d,): what each feature takes from every class, times `log_values`
    penalty: Annotated[NDArray[np.float32], ArrayLayout(("features",))]
    # base, log_values: float32 (K,): what a class has before any feature, and the logarithm of the
    # values of its rows
    base: Annotated[NDArray[np.float32], ArrayLayout(("classes",))]
    log_values: Annotated[NDArray[np.float32], ArrayLayout(("classes",))]
    hashed: float  # weight of the hashed models, 0 or more
    near: Neighbours | None = None  # training rows beside them, whose labels gain

    @classmethod
    def of(cls, arrays: Mapping[str, NDArray[Any]], prefix: str, hashed: float) -> CountWeights:
        """Return the weights of arrays named with a prefix; ValueError if an index is wrong."""
        found = cls.of_arrays(arrays, prefix, hashed=hashed)
        right = are_lists(found.starts, found.classes, len(found.base))
        wide_of = found.wide_of
        if not (
            right and len(found.classes) == len(found.gains)
            and wide_of.min() >= -1 and wide_of.max() < len(found.wide)
        ):  # fmt: skip
            raise ValueError("the counts are wrong")
        return found

    @property
    def n_bytes(self) -> int:
        return super().n_bytes + (0 if self.near is None else self.near.n_bytes)

    @property
    def n_classes(self) -> int:
        """Number of classes, K."""
        return len(self.base)

    @property
    def n_pairs(self) -> int:
        """Pairs that add something to a score, where none stands in a list and in `wide`."""
        return len(self.classes) + int(np.count_nonzero(self.wide))

    @classmethod
    def most_wide(cls, pairs: int, classes: int) -> int:
        """Return how many features stand in `wide` at most, where so many pairs are there."""
        return pairs * cls.footprint(pairs=1) // (2 * max(classes, 1))

    def plain(self) -> CountWeights:
        """Return the weights: these are not packed."""
        return self

    def gains_of(self, chosen: NDArray[np.bool_]) -> Iterator[NDArray[np.int16]]:
        """Yield the gains of some features, bool (d,), in pieces: of `wide`, or of lists."""
        listed = chosen & (self.wide_of < 0)
        for features, pairs in self._pieces():
            yield self.gains[pairs][np.repeat(listed[features], self._lengths(features))]
        rows = self.wide_of[chosen & ~listed]
        step = max(1, PIECE_PAIRS // max(self.n_classes, 1))
        for start in range(0, len(rows), step):
            yield self.wide[rows[start : start + step]].reshape(-1)

    def without_zeros(self) -> CountWeights:
        """Return the weights without pairs of lists that add nothing, written over these."""
        lengths, n = np.zeros(self.n_features, np.int64), 0
        for features, pairs in self._pieces():
            chosen = self.gains[pairs] != 0
            lengths[features] = self._numbers(features, chosen)
            new = slice(n, n + int(np.count_nonzero(chosen)))
            self.classes[new] = self.classes[pairs][chosen]
            self.gains[new] = self.gains[pairs][chosen]
            n = new.stop
        return replace(self, starts=ends(lengths), classes=self.classes[:n], gains=self.gains[:n])

    def with_classes(self, new: ClassPairs) -> CountWeights:
        """Return the weights with more classes, whose ids come next."""
        order = np.lexsort((new.classes, new.features))
        ids = (self.n_classes + new.classes[order]).astype(np.int32)
        pairs = replace(new, features=new.features[order], classes=ids, gains=new.gains[order])
        return replace(
            self, wide=np.pad(self.wide, ((0, 0), (0, len(new.base)))),
            base=np.concatenate([self.base, new.base]),
            log_values=np.concatenate([self.log_values, new.log_values]),
        ).with_pairs(pairs)  # fmt: skip

    def with_pairs(self, more: ClassPairs | NamePairs) -> CountWeights:
        """Return the weights with more pairs, whose gains are added to those that are there."""
        row: NDArray[Any] = self.wide_of[more.features]
        spread, wide = row >= 0, self.wide.copy()
        place = row[spread], more.classes[spread]
        wide[place] = _add_gains(wide[place], more.gains[spread])
        features, classes, own = more.features[~spread], more.classes[~spread], more.gains[~spread]
        at, there = np.empty(len(features), np.int64), np.empty(len(features), np.bool_)
        find_pairs(self.starts, self.classes, features, classes, at, there)
        gains = self.gains.copy()
        gains[at[there]] = _add_gains(gains[at[there]], own[there])
        new = ~there
        lengths = np.diff(self.starts) + np.bincount(features[new], minlength=self.n_features)
        return replace(
            self, wide=wide, starts=ends(lengths), gains=np.insert(gains, at[new], own[new]),
            classes=np.insert(self.classes, at[new], classes[new]),
        )  # fmt: skip

    def mean_gains(self, features: NDArray[np.integer[Any]]) -> NDArray[np.float64]:
        """Return what a pair of each of some features adds in the mean, 0 without any: (n,)."""
        out = np.zeros(len(features))
        for i, f in enumerate(features.tolist()):
            gains = self.gains[self.starts[f] : self.starts[f + 1]]
            if self.wide_of[f] >= 0:
                row = self.wide[self.wide_of[f]]
                gains = np.concatenate([gains, row[row != 0]])
            out[i] = gains.mean(dtype=np.float64) if len(gains) else 0
        return out

    def of_features(self, chosen: NDArray[np.bool_]) -> Self:
        found, near = super().of_features(chosen), self.near
        present = np.flatnonzero(found.wide_of >= 0)
        return replace(
            found, wide=self.wide[found.wide_of[present]],
            wide_of=places(present, len(found.wide_of)),
            near=None if near is None else near.of_features(chosen),
        )  # fmt: skip

    def drop_wide_lists(self) -> CountWeights:
        """Return the weights without the lists of the features that stand in `wide`."""
        lengths, listed = np.diff(self.starts), self.wide_of < 0
        return self._with_lists(np.where(listed, lengths, 0), np.repeat(listed, lengths))

    def as_lists(self) -> CountWeights:
        """Return the weights, none of whose pairs stands twice, with all of them in lists."""
        lengths = np.diff(self.starts)
        owners = np.flatnonzero(self.wide_of >= 0)
        lengths[owners] += np.count_nonzero(self.wide, axis=1)[self.wide_of[owners]]
        starts = ends(lengths)
        classes = np.empty(int(starts[-1]), np.int32)
        gains = np.empty(len(classes), np.int16)
        done = 0  # features whose lists are there
        for f in (*owners.tolist(), self.n_features):
            old = slice(int(self.starts[done]), int(self.starts[f]))
            first = int(starts[done])
            new = slice(first, first + old.stop - old.start)
            classes[new], gains[new] = self.classes[old], self.gains[old]
            if f < self.n_features:
                both = slice(int(starts[f]), int(starts[f + 1]))
                classes[both], gains[both] = self._list_of(f)
            done = f + 1
        return replace(
            self, starts=starts, classes=classes, gains=gains, wide=self.wide[:0],
            wide_of=np.full(self.n_features, -1, np.int32),
        )  # fmt: skip

    def _list_of(self, f: int) -> tuple[NDArray[np.int32], NDArray[np.int16]]:
        """Return the classes and gains of a feature that stands in `wide`, by rising classes."""
        row, own = self.wide[self.wide_of[f]], slice(int(self.starts[f]), int(self.starts[f + 1]))
        columns = np.flatnonzero(row)
        classes = np.concatenate([self.classes[own], columns.astype(np.int32)])
        order = np.argsort(classes, kind="stable")
        return classes[order], np.concatenate([self.gains[own], row[columns]])[order]

    def merge_wide(self, chosen: NDArray[np.bool_] | None = None) -> CountWeights:
        """Return the weights, or the chosen pairs, with those in `wide` that are smaller there."""
        lengths = np.diff(self.starts)
        if chosen is not None:
            for features, pairs in self._pieces():
                lengths[features] = self._numbers(features, chosen[pairs])
        width = self.n_classes * self.wide.itemsize
        spread = np.flatnonzero(lengths * self.footprint(pairs=1) > width)
        wide_of = places(spread, self.n_features)
        wide = np.zeros((len(spread), self.n_classes), np.int16)
        kept = np.ones(len(self.classes), np.bool_) if chosen is None else chosen.copy()
        for features, pairs in self._pieces():
            if wide_of[features].max() < 0:
                continue
            row = np.repeat(wide_of[features], self._lengths(features))
            moved = kept[pairs] & (row >= 0)
            wide[row[moved], self.classes[pairs][moved]] = self.gains[pairs][moved]
            kept[pairs] &= row < 0
        lengths[spread] = 0
        return replace(self._with_lists(lengths, kept), wide_of=wide_of, wide=wide)

    def largest(self, n_pairs: int) -> CountWeights:
        """Return the weights, all in lists, with the largest gains; of equal ones the first."""
        if n_pairs >= len(self.gains):
            return self.merge_wide()
        least = nth_largest(numbers_of([self.gains]), n_pairs)
        chosen = self.gains > least
        equal = n_pairs - int(np.count_nonzero(chosen))
        for start in range(0, len(chosen), PIECE_PAIRS):
            some = start + np.flatnonzero(self.gains[start : start + PIECE_PAIRS] == least)[:equal]
            chosen[some] = True
            equal -= len(some)
        return self.merge_wide(chosen)

    def _pieces(self) -> Iterator[tuple[slice, slice]]:
        """Yield ranges of features with not many pairs, or one feature, and of their pairs."""
        for first, last in ranges_that_fit((self.starts, PIECE_PAIRS)):
            yield slice(first, last), slice(int(self.starts[first]), int(self.starts[last]))

    def _lengths(self, features: slice) -> NDArray[np.int64]:
        return np.diff(self.starts[features.start : features.stop + 1])

    def _numbers(self, features: slice, chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return how many of the pairs of some features are chosen: int64 (n,)."""
        before = ends(chosen.astype(np.int64))
        own = self.starts[features.start : features.stop + 1]
        found: NDArray[np.int64] = np.diff(before[own - own[0]])
        return found

    def _with_lists(self, lengths: NDArray[np.int64], chosen: NDArray[Any]) -> CountWeights:
        """Return the weights with lists of other lengths, of the pairs that are chosen."""
        return replace(
            self, starts=ends(lengths), classes=self.classes[chosen], gains=self.gains[chosen]
        )


@dataclass(frozen=True, kw_only=True)
class ClassPairs:
    """Counts of n classes that a table does not know."""

    # features, classes: int32 (m,): pairs of a feature and one of these classes, numbered from 0;
    # none twice
    features: NDArray[np.int32]
    classes: NDArray[np.int32]
    gains: NDArray[np.int16]  # int16 (m,): what each adds, in units of 1/1024 nat
    base: NDArray[np.float32]  # base, log_values: float32 (n,): those of :class:`CountWeights`
    log_values: NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class NamePairs(ArrayTable):
    """Pairs of a feature and a class in whose name the feature's word stands; none twice."""

    features: Annotated[NDArray[np.int32], ArrayLayout(("any",), "steps")]  # int32 (m,), rising
    classes: Annotated[NDArray[np.int32], ArrayLayout(("any",))]  # int32 (m,), rising in a feature
    # int16 (m,): what each adds to a score, in units of 1/1024 nat
    gains: Annotated[NDArray[np.int16], ArrayLayout(("any",), "units")]
    # int16 (d,): what each feature, as the one word of a name, adds to a label that no row has
    words: Annotated[NDArray[np.int16], ArrayLayout(("features",), "steps")]

    def of_features(self, chosen: NDArray[np.bool_]) -> NamePairs:
        """Return the pairs of some features: bool (d,). Their places are then their ids."""
        kept, ids = chosen[self.features], np.cumsum(chosen) - 1
        return replace(
            self, features=ids[self.features[kept]].astype(np.int32), classes=self.classes[kept],
            gains=self.gains[kept], words=self.words[chosen],
        )  # fmt: skip

    def with_classes(self, more: NamePairs) -> NamePairs:
        """Return the pairs with those of other classes."""
        every = ("features", "classes", "gains")
        both = [np.concatenate([getattr(one, name) for one in (self, more)]) for name in every]
        order = np.lexsort((both[1], both[0]))
        return replace(self, **{n: a[order] for n, a in zip(every, both, strict=True)})

    def gains_of(self, features: NDArray[np.int64], ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return what features (m,) add to classes (k,) by their names, in 1/1024 nat: (m, k)."""
        found = np.zeros((len(features), len(ids)), np.int64)
        first, last = (np.searchsorted(self.features, features, side) for side in ("left", "right"))
        for i, (a, b) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
            if a < b:
                at = np.minimum(a + np.searchsorted(self.classes[a:b], ids), b - 1)
                found[i] = np.where(self.classes[at] == ids, self.gains[at], 0)
        return found


def _add_gains(a: NDArray[Any], b: NDArray[np.int16]) -> NDArray[np.int16]:
    """Return sums of gains, cut to what an int16 holds."""
    sums: NDArray[Any] = np.clip(a.astype(np.int32) + b, -MOST_GAIN, MOST_GAIN)
    return sums.astype(np.int16)


@kernel()
def find_pairs(
    starts: Array, classes: Array, features: Array, wanted: Array, at: Array, there: Array
) -> None:
    """Find pairs in lists of classes, or where they would stand.

    Parameters
    ----------
    starts, classes : int64 (d + 1,), int32 (Z,)
        The lists; classes rise in each.
    features, wanted : int32 (m,), int32 (m,)
        The pairs: features and classes.
    at, there : int64 (m,), bool (m,)
        Receive the place of each pair, or of the first class behind it; whether it is there.
    """
    for i in range(features.shape[0]):
        first, last = starts[features[i]], starts[features[i] + 1]
        place = first + np.searchsorted(classes[first:last], wanted[i])
        at[i] = place
        there[i] = place < last and classes[place] == wanted[i]


def places(chosen: NDArray[np.int64], n: int) -> NDArray[np.int32]:
    """Return which of the chosen each of n is, -1 where it is none: int32 (n,)."""
    found = np.full(n, -1, np.int32)
    found[chosen] = np.arange(len(chosen))
    return found
