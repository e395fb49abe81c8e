"""Counts of (feature, class) pairs for scoring alone, in two thirds of the bytes of their lists.

An entry of a list is how far its class lies behind that of the entry before it, from 0 on, and its
gain, two bytes each. An entry of the longest step has no pair of its own. Where classes are so many
that such entries could take more than is saved, counts stay plain (:meth:`PackedCounts.pays`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.jit import Array, kernel
from streammach.rows.packed import starts_type
from streammach.rows.pairs import CountWeights, ends

LONGEST = 65535  # step: a pair's own is smaller
ENTRY_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class PackedCounts:
    """What :class:`CountWeights` says, with lists that are only added up."""

    # uint32 or int64 (d + 1,): feature f's entries lie in `starts[f]:starts[f + 1]`
    starts: NDArray[Any]
    steps: NDArray[np.uint16]  # uint16 (n,): classes from one entry to the next
    gains: NDArray[np.int16]  # int16 (n,): what each adds, in units
    # int16 (d,): what a feature's list adds to a class at most, and takes from it, in units
    peaks: NDArray[np.int16]
    unit: int  # in 1/1024 nat
    n_listed: int  # pairs of all lists
    wide_of: NDArray[np.int32]  # int32 (d,): that of :class:`CountWeights`
    wide: NDArray[np.int16]  # int16 (w, K): that of :class:`CountWeights` in units
    # penalty, base, log_values, hashed: those of :class:`CountWeights`
    penalty: NDArray[np.float32]
    base: NDArray[np.float32]
    log_values: NDArray[np.float32]
    hashed: float

    @classmethod
    def of(cls, counts: CountWeights, unit: int) -> PackedCounts:
        """Pack pairs whose gains are multiples of a unit; ValueError if classes do not rise."""
        d, n = counts.n_features, len(counts.classes)
        room = most_entries(n, d, counts.n_classes)  # pages that get no entries are not taken
        starts, peaks = np.zeros(d + 1, starts_type(room)), np.zeros(d, np.int16)
        steps, gains = np.empty(room, np.uint16), np.empty(room, np.int16)
        if not pack_lists(
            counts.starts, counts.classes, counts.gains, unit, starts, steps, gains, peaks
        ):
            raise ValueError("the counts are wrong")
        for array in (steps, gains):
            array.resize(int(starts[-1]), refcheck=False)
        return cls(
            starts=starts, steps=steps, gains=gains, peaks=peaks, unit=unit, n_listed=n,
            wide_of=counts.wide_of, wide=counts.wide // np.int16(unit), penalty=counts.penalty,
            base=counts.base, log_values=counts.log_values, hashed=counts.hashed,
        )  # fmt: skip

    @staticmethod
    def pays(pairs: int, features: int, classes: int) -> bool:
        """Return whether so many pairs take fewer bytes packed, wherever their classes are."""
        plain = CountWeights.footprint(pairs=pairs)
        return ENTRY_BYTES * most_entries(pairs, features, classes) < plain

    @staticmethod
    def saved(pairs: int, features: int, classes: int) -> int:
        """Return the bytes that packing saves, at least."""
        room = most_entries(pairs, features, classes)
        each = CountWeights.footprint(pairs=pairs) - ENTRY_BYTES * room
        starts = (8 - starts_type(room).itemsize) * (features + 1)
        return each + starts - 2 * features

    @property
    def n_classes(self) -> int:
        """Number of classes, K."""
        return len(self.base)

    @property
    def n_pairs(self) -> int:
        """Pairs that add something to a score."""
        return self.n_listed + int(np.count_nonzero(self.wide))

    @property
    def n_bytes(self) -> int:
        """Bytes of the arrays."""
        return sum(a.nbytes for a in vars(self).values() if isinstance(a, np.ndarray))

    def plain(self) -> CountWeights:
        """Return the same with lists of classes and gains."""
        classes, gains = np.empty(self.n_listed, np.int32), np.empty(self.n_listed, np.int16)
        lengths = np.zeros(len(self.starts) - 1, np.int64)
        unpack_lists(self.starts, self.steps, self.gains, self.unit, lengths, classes, gains)
        return CountWeights(
            starts=ends(lengths), classes=classes, gains=gains, wide_of=self.wide_of,
            wide=self.wide * np.int16(self.unit), penalty=self.penalty, base=self.base,
            log_values=self.log_values, hashed=self.hashed,
        )  # fmt: skip


Counts = CountWeights | PackedCounts


def most_entries(pairs: int, features: int, classes: int) -> int:
    """Return the most entries that so many pairs in as many lists as features may have."""
    return pairs + min(features, pairs) * (max(classes - 1, 0) // LONGEST)


@kernel(allocates=False)
def pack_lists(
    starts: Array, classes: Array, gains: Array, unit: int, new_starts: Array, steps: Array,
    units: Array, peaks: Array,
) -> Any:  # fmt: skip
    """Write the entries of lists; return whether the classes of each rise from 0 on.

    Parameters
    ----------
    starts, classes, gains : arrays
        Those of :class:`streammach.rows.pairs.CountWeights`.
    unit : int
        What a gain of 1 is, in 1/1024 nat.
    new_starts, steps, units, peaks : arrays
        Receive what :class:`PackedCounts` calls `starts`, `steps`, `gains` and `peaks`.
    """
    at = np.int64(0)
    for f in range(peaks.shape[0]):
        before, peak = np.int64(-1), np.int64(0)
        for z in range(starts[f], starts[f + 1]):
            c, gain = np.int64(classes[z]), np.int64(gains[z]) // unit
            if c <= before:
                return False
            step: Any = c - max(before, np.int64(0))
            while step >= LONGEST:
                steps[at], units[at] = LONGEST, 0
                at, step = at + 1, step - LONGEST
            steps[at], units[at] = step, gain
            at, before, peak = at + 1, c, max(peak, abs(gain))
        new_starts[f + 1], peaks[f] = at, min(peak, 32767)
    return True


@kernel(allocates=False)
def unpack_lists(
    starts: Array, steps: Array, units: Array, unit: int, lengths: Array, classes: Array,
    gains: Array,
) -> None:  # fmt: skip
    """Write packed lists as lists of pairs.

    Parameters
    ----------
    starts, steps, units, unit : arrays and int
        Those of :func:`pack_lists`.
    lengths : int64 (d,)
        Receives the pairs of each list; zeros before.
    classes, gains : int32 (Z,), int16 (Z,)
        Receive the pairs.
    """
    n = 0
    for f in range(lengths.shape[0]):
        c = np.int64(0)
        for q in range(np.int64(starts[f]), np.int64(starts[f + 1])):
            c += steps[q]
            if steps[q] != LONGEST:
                classes[n], gains[n] = c, units[q] * unit
                lengths[f] += 1
                n += 1
