"""Counts of (feature, class) pairs for scoring alone, in half the bytes of their lists.

A list has an entry for each pair: how far its class lies behind that of the entry before it, from 0
on, and its gain. An entry of the longest step has no pair of its own; gains that are too large for
their type go on in entries with a step of 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.jit import Array, kernel
from streammach.rows.packed import starts_type
from streammach.rows.pairs import CountWeights, ends

STEP = 65535  # the longest; a pair's own step is smaller
Piece = tuple[NDArray[np.int32], NDArray[np.int16]]  # steps of classes, gains in units
Pieces = Callable[[], Iterable[Piece]]  # all pairs, in order, as often as it is called


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How lists will lie.

    Attributes
    ----------
    sizes : int64 (d,)
        Entries of each list.
    narrow : bool
        Whether gains are int8; they are int16 otherwise.
    n_pairs : int
        Pairs of all lists.
    peaks : int16 (d,)
        The largest magnitude of each list's gains, in units.
    """

    sizes: NDArray[np.int64]
    narrow: bool
    n_pairs: int
    peaks: NDArray[np.int16]

    @classmethod
    def of(cls, pieces: Pieces, starts: NDArray[np.int64], n_classes: int) -> Layout:
        """Look at all pairs.

        Parameters
        ----------
        pieces : callable
            Gives the pairs: each class less the one before it, the first of a list as it is, and
            gains in whole units.
        starts : int64 (d + 1,)
            Where each feature's pairs start, and where the last one's end.
        n_classes : int
            K.

        Raises
        ------
        ValueError
            If a class is none or does not rise within its list.
        """
        d = len(starts) - 1
        wide, narrow, last = np.zeros(d, np.int64), np.zeros(d, np.int64), np.zeros(d, np.int64)
        least, first, peaks = np.zeros(1, np.int64), 0, np.zeros(d, np.int16)
        for steps, gains in pieces():
            feature = int(np.searchsorted(starts, first, "right")) - 1
            count_entries(starts, first, feature, steps, gains, wide, narrow, last, least, peaks)
            first += len(steps)
        if least[0] < 0 or last.max(initial=0) >= n_classes:
            raise ValueError("the counts are wrong")
        fewer = 3 * int(narrow.sum()) < 4 * int(wide.sum())
        return cls(sizes=narrow if fewer else wide, narrow=fewer, n_pairs=first, peaks=peaks)

    @property
    def gain_type(self) -> np.dtype[Any]:
        """Type of the gains."""
        return np.dtype(np.int8 if self.narrow else np.int16)

    @property
    def n_bytes(self) -> int:
        """Bytes of the lists, of where they start, and of what they add at most."""
        n, d = int(self.sizes.sum()), len(self.sizes)
        return n * (2 + self.gain_type.itemsize) + starts_type(n).itemsize * (d + 1) + 2 * d


@dataclass(frozen=True, kw_only=True)
class PackedCounts:
    """What :class:`CountWeights` says, with lists that are only added up.

    Attributes
    ----------
    starts : uint32 or int64 (d + 1,)
        Feature f's entries lie in ``starts[f]:starts[f + 1]``.
    steps : uint16 (n,)
        Classes from one entry to the next.
    gains : int8 or int16 (n,)
        What each adds, in units.
    peaks : int16 (d,)
        What a feature's list adds to a class at most, and takes from it, in units.
    unit : int
        In 1/1024 nat.
    n_listed : int
        Pairs of all lists.
    wide : int8 or int16 (w, K)
        That of :class:`CountWeights` in units.
    wide_of, penalty, base, log_values, hashed
        Those of :class:`CountWeights`.
    """

    starts: NDArray[Any]
    steps: NDArray[np.uint16]
    gains: NDArray[Any]
    peaks: NDArray[np.int16]
    unit: int
    n_listed: int
    wide_of: NDArray[np.int32]
    wide: NDArray[Any]
    penalty: NDArray[np.float32]
    base: NDArray[np.float32]
    log_values: NDArray[np.float32]
    hashed: float

    @classmethod
    def of(cls, pieces: Pieces, layout: Layout, bare: CountWeights, unit: int) -> PackedCounts:
        """Pack pairs.

        Parameters
        ----------
        pieces : callable
            The pairs, as in :meth:`Layout.of`.
        layout : Layout
            What that said of them.
        bare : CountWeights
            All but the lists, which are empty; gains in `wide` are whole units.
        unit : int
            Of all gains.
        """
        starts = ends(layout.sizes)
        n = int(starts[-1])
        steps, gains, done = np.empty(n, np.uint16), np.empty(n, layout.gain_type), 0
        most = np.iinfo(gains.dtype).max
        for given, units in pieces():
            done = int(fill_entries(given, units, most, done, steps, gains))
        return cls(
            starts=starts.astype(starts_type(n)), steps=steps, gains=gains, peaks=layout.peaks,
            unit=unit, n_listed=layout.n_pairs, wide_of=bare.wide_of,
            wide=in_units(bare.wide, unit), penalty=bare.penalty, base=bare.base,
            log_values=bare.log_values, hashed=bare.hashed,
        )  # fmt: skip

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
            wide=self.wide.astype(np.int16) * np.int16(self.unit), penalty=self.penalty,
            base=self.base, log_values=self.log_values, hashed=self.hashed,
        )  # fmt: skip


Counts = CountWeights | PackedCounts


def in_units(wide: NDArray[np.int16], unit: int) -> NDArray[Any]:
    """Return gains in 1/1024 nat, whole units, in units: int8 where all fit, else int16."""
    found = wide // np.int16(unit) if unit > 1 else wide
    fits = found.min(initial=0) > -128 and found.max(initial=0) < 128
    return found.astype(np.int8) if fits else found


@kernel()
def count_entries(
    starts: Array, first: int, feature: int, steps: Array, gains: Array, wide: Array,
    narrow: Array, last: Array, least: Array, peaks: Array,
) -> None:  # fmt: skip
    """Count the entries of some pairs.

    Parameters
    ----------
    starts : int64 (d + 1,)
        Where each feature's pairs start.
    first, feature : int
        Number of the first of the pairs, and its feature.
    steps, gains : int32 (n,), int16 (n,)
        The pairs.
    wide, narrow : int64 (d,)
        The entries of each list with gains of 16 and of 8 bits; raised.
    last : int64 (d,)
        The last class of each list; raised by the steps.
    least : int64 (1,)
        Falls below 0 where a step is too short.
    peaks : int16 (d,)
        The largest magnitude of each list's gains; raised.
    """
    f = feature
    for i in range(steps.shape[0]):
        while first + i >= starts[f + 1]:
            f += 1
        step, size = int(steps[i]), abs(int(gains[i]))
        more = max(0, size - 1)
        peaks[f] = max(int(peaks[f]), min(size, 32767))
        last[f] += step
        least[0] = min(least[0], step if first + i == starts[f] else step - 1)
        n = 1 + step // STEP
        wide[f] += n + more // 32767
        narrow[f] += n + more // 127


@kernel()
def fill_entries(
    given: Array, units: Array, most: int, done: int, steps: Array, gains: Array
) -> Any:
    """Write the entries of pairs behind the `done` that are there; return how many are then.

    Parameters
    ----------
    given, units : int32 (n,), int16 (n,)
        Steps and gains of the pairs.
    most : int
        The largest gain of an entry.
    done : int
        As above.
    steps, gains : uint16, int8 or int16
        The entries.
    """
    at = done
    for i in range(given.shape[0]):
        step, left = int(given[i]), int(units[i])
        while step >= STEP:
            steps[at], gains[at] = STEP, 0
            at, step = at + 1, step - STEP
        while True:
            gain = max(-most, min(most, left))
            steps[at], gains[at] = step, gain
            at, step, left = at + 1, 0, left - gain
            if left == 0:
                break
    return at


@kernel()
def unpack_lists(
    starts: Array, steps: Array, gains: Array, unit: int, lengths: Array, classes: Array,
    whole: Array,
) -> None:  # fmt: skip
    """Write packed lists as lists of pairs.

    Parameters
    ----------
    starts, steps, gains, unit : arrays and int
        Those of :class:`PackedCounts`.
    lengths : int64 (d,)
        Receives the pairs of each list; zeros before.
    classes, whole : int32 (Z,), int16 (Z,)
        Receive the pairs, and their gains in 1/1024 nat.
    """
    n = 0
    for f in range(lengths.shape[0]):
        c, goes_on = np.int64(0), False
        for q in range(np.int64(starts[f]), np.int64(starts[f + 1])):
            c += steps[q]
            if steps[q] == STEP:
                goes_on = False
            elif goes_on and steps[q] == 0:
                whole[n - 1] += gains[q] * unit
            else:
                classes[n], whole[n] = c, gains[q] * unit
                lengths[f] += 1
                n, goes_on = n + 1, True
