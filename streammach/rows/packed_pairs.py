"""Counts of (feature, class) pairs for scoring alone, in half the bytes of their lists, or all.

A list has an entry for each pair: how far its class lies behind that of the entry before it, from 0
on, and its gain. An entry of the longest step has no pair of its own; gains that are too large for
their type go on in entries with a step of 0. Steps take two bytes or, where lists are short and
classes very many, four, and gains one or two: what comes to the fewest bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammach.jit import Array, kernel
from streammach.rows.packed import starts_type
from streammach.rows.pairs import CountWeights, ends

STEPS = np.dtype(np.uint16), np.dtype(np.uint32)
GAINS = np.dtype(np.int8), np.dtype(np.int16)
# The longest step of two bytes, and the largest gain of one and of two: what is beyond takes more
# entries. A pair's own step is smaller than the longest.
STEP, GAIN, WIDE_GAIN = 65535, 127, 32767
MOST_ENTRIES = 1 << 16  # of a pair, and more
Piece = tuple[NDArray[np.int32], NDArray[np.uint16]]  # steps of classes, folded gains
Pieces = Callable[[], Iterable[Piece]]  # all pairs, in order, as often as it is called


@dataclass(frozen=True, kw_only=True)
class Lists:
    """Pairs that are to be packed."""

    # gives the pairs: each class less the one before it, the first of a list as it is, and the
    # gains, whole numbers with the sign as the lowest bit
    pieces: Pieces
    # int64 (d + 1,): where each feature's pairs start, and where the last one's end
    starts: NDArray[np.int64]
    n_classes: int  # K
    times: int = 1  # units of a gain of 1

    @property
    def n_bytes(self) -> int:
        """Bytes that they take packed; ValueError if a class is none or does not rise."""
        found = self.packed(self.likely, keep=False)
        n, d = found.numbers[found.best], len(self.starts) - 1
        return n * found.best.n_bytes + starts_type(n).itemsize * (d + 1) + 2 * d

    @property
    def likely(self) -> Layout:
        """The layout that is tried first: by how far classes lie apart."""
        lists = int(np.count_nonzero(np.diff(self.starts)))
        apart = lists * self.n_classes > STEP * int(self.starts[-1])
        return Layout(STEPS[apart], GAINS[0])

    def entries(self) -> Entries:
        """Return their entries in the fewest bytes; ValueError if a class is none or falls."""
        first = self.likely
        found = self.packed(first)
        best = found.best
        if best == first:
            return found
        del found  # the memory is wanted for those in the other layout
        return self.packed(best)

    def packed(self, layout: Layout, *, keep: bool = True) -> Entries:
        """Return their entries in a layout, or without `keep` only how many there are."""
        d, n = len(self.starts) - 1, int(self.starts[-1])
        sizes, peaks, state = np.zeros(d, np.int64), np.zeros(d, np.int16), np.zeros(7, np.int64)
        n = n + n // 16 + MOST_ENTRIES if keep else 0  # pages that get no entries are not taken
        steps, gains = np.empty(n, layout.steps), np.empty(n, layout.gains)
        first = 0
        for given, words in self.pieces():
            done = 0
            while done < len(given):
                done += int(pack_entries(
                    self.starts, first + done, given[done:], words[done:], self.times,
                    self.n_classes, *layout.largest, state, sizes, peaks, steps, gains,
                ))  # fmt: skip
                if state[3]:
                    raise ValueError("the counts are wrong")
                if done < len(given):
                    n += n // 4
                    _resize(steps, gains, n)
            first += len(given)
        if keep:
            _resize(steps, gains, int(state[2]))
        beyond = dict(zip((STEPS[0], *GAINS), state[4:].tolist(), strict=True))
        numbers = {Layout(a, b): first + beyond.get(a, 0) + beyond[b] for a in STEPS for b in GAINS}
        return Entries(sizes, steps, gains, peaks, numbers)


class Layout(NamedTuple):
    """The types of steps and gains."""

    steps: np.dtype[Any]
    gains: np.dtype[Any]

    @property
    def n_bytes(self) -> int:
        """Bytes of an entry."""
        return self.steps.itemsize + self.gains.itemsize

    @property
    def largest(self) -> tuple[int, int]:
        """The longest step, and the largest gain of an entry."""
        return int(np.iinfo(self.steps).max), int(np.iinfo(self.gains).max)


class Entries(NamedTuple):
    """Entries of lists.

    ``sizes`` int64 (d,) says how many each list has, ``steps`` uint16 or uint32 (n,) and ``gains``
    int8 or int16 (n,) are the entries, ``peaks`` int16 (d,) the largest magnitude of each list's
    gains, all gains in units; ``numbers`` says how many entries there would be in each layout.
    """

    sizes: NDArray[np.int64]
    steps: NDArray[Any]
    gains: NDArray[Any]
    peaks: NDArray[np.int16]
    numbers: dict[Layout, int]

    @property
    def best(self) -> Layout:
        """The layout that takes the fewest bytes."""
        return min(self.numbers, key=lambda one: self.numbers[one] * one.n_bytes)


def _resize(steps: NDArray[Any], gains: NDArray[Any], n: int) -> None:
    for array in (steps, gains):
        array.resize(n, refcheck=False)


@dataclass(frozen=True, kw_only=True)
class PackedCounts:
    """What :class:`CountWeights` says, with lists that are only added up."""

    # uint32 or int64 (d + 1,): feature f's entries lie in `starts[f]:starts[f + 1]`
    starts: NDArray[Any]
    steps: NDArray[Any]  # uint16 or uint32 (n,): classes from one entry to the next
    gains: NDArray[Any]  # int8 or int16 (n,): what each adds, in units
    # int16 (d,): what a feature's list adds to a class at most, and takes from it, in units
    peaks: NDArray[np.int16]
    unit: int  # in 1/1024 nat
    n_listed: int  # pairs of all lists
    wide_of: NDArray[Any]  # int16 or int32 (d,): that of :class:`CountWeights`
    wide: NDArray[Any]  # int8 or int16 (w, K): that of :class:`CountWeights` in units
    # penalty, base, log_values, hashed: those of :class:`CountWeights`
    penalty: NDArray[np.float32]
    base: NDArray[np.float32]
    log_values: NDArray[np.float32]
    hashed: float

    @classmethod
    def of(cls, lists: Lists, bare: CountWeights, unit: int) -> PackedCounts:
        """Pack pairs."""
        found = lists.entries()
        return cls(
            starts=ends(found.sizes).astype(starts_type(len(found.steps))), steps=found.steps,
            gains=found.gains, peaks=found.peaks, unit=unit, n_listed=int(lists.starts[-1]),
            wide_of=bare.wide_of.astype(places_type(len(bare.wide))),
            wide=in_units(bare.wide, unit), penalty=bare.penalty,
            base=bare.base, log_values=bare.log_values, hashed=bare.hashed,
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
        longest, _ = Layout(self.steps.dtype, self.gains.dtype).largest
        unpack_lists(
            self.starts, self.steps, self.gains, longest, self.unit, lengths, classes, gains
        )
        return CountWeights(
            starts=ends(lengths), classes=classes, gains=gains,
            wide_of=self.wide_of.astype(np.int32),
            wide=self.wide.astype(np.int16) * np.int16(self.unit), penalty=self.penalty,
            base=self.base, log_values=self.log_values, hashed=self.hashed,
        )  # fmt: skip


Counts = CountWeights | PackedCounts


def places_type(n_wide: int) -> np.dtype[Any]:
    """Return the type of places among so many features in `wide`."""
    return np.dtype(np.int16 if n_wide <= np.iinfo(np.int16).max else np.int32)


def in_units(wide: NDArray[np.int16], unit: int) -> NDArray[Any]:
    """Return gains in 1/1024 nat, whole units, in units: int8 where all fit, else int16."""
    found = wide // np.int16(unit) if unit > 1 else wide
    fits = found.min(initial=0) > -128 and found.max(initial=0) < 128
    return found.astype(np.int8) if fits else found


@kernel(allocates=False)
def pack_entries(
    starts: Array, first: int, given: Array, words: Array, times: int, n_classes: int,
    longest: int, most: int, state: Array, sizes: Array, peaks: Array, steps: Array, gains: Array,
) -> Any:  # fmt: skip
    """Write the entries of pairs behind those that are there.

    Parameters
    ----------
    starts : int64 (d + 1,)
        Where each feature's pairs start.
    first : int
        Number of the first of the pairs.
    given, words : int32 (n,), uint16 (n,)
        Steps and folded gains of the pairs.
    times, n_classes : int
        Those of :class:`Lists`.
    longest, most : int
        The longest step and the largest gain of an entry.
    state : int64 (7,)
        Feature and class of the last pair, how many entries there are, and whether a class is none
        or does not rise, which ends the work; how many more than pairs there would be for steps of
        two bytes, for gains of one and for gains of two; zeros at first.
    sizes, peaks : int64 (d,), int16 (d,)
        Raised by the entries of each list, and to its largest magnitude.
    steps, gains : uint16 or uint32, int8 or int16
        Receive the entries; empty where only their number is asked for.

    Returns
    -------
    int64
        How many pairs are done: all, or those for which there is room.
    """
    f, c, at = state[0], state[1], state[2]
    room, n = steps.shape[0], given.shape[0]
    for i in range(n):
        step: Any = np.int64(given[i])
        word = np.int64(words[i])
        left: Any = np.int64(np.int16(((word >> 1) ^ -(word & 1)) * times))
        before = 1
        while first + i >= starts[f + 1]:
            f, c = f + 1, 0
        if first + i == starts[f]:
            c, before = 0, 0
        c += step
        if step < before or c >= n_classes:
            state[3] = 1
            break
        size: Any = abs(left)
        more, rare = 1, step >= STEP or size > GAIN
        if rare:
            more = 1 + step // longest + max(0, size - 1) // most
        if room and at + more > room:
            c -= step
            n = i
            break
        if rare:
            state[4] += step // STEP
            state[5] += max(0, size - 1) // GAIN
            state[6] += max(0, size - 1) // WIDE_GAIN
        sizes[f] += more
        peaks[f] = max(np.int64(peaks[f]), min(size, WIDE_GAIN))
        if not room:
            at += more
            continue
        while step >= longest:
            steps[at], gains[at] = longest, 0
            at, step = at + 1, step - longest
        while True:
            gain = max(-most, min(most, left))
            steps[at], gains[at] = step, gain
            at, step, left = at + 1, 0, left - gain
            if left == 0:
                break
    state[0], state[1], state[2] = f, c, at
    return n


@kernel(allocates=False)
def unpack_lists(
    starts: Array, steps: Array, gains: Array, longest: int, unit: int, lengths: Array,
    classes: Array, whole: Array,
) -> None:  # fmt: skip
    """Write packed lists as lists of pairs.

    Parameters
    ----------
    starts, steps, gains : arrays
        Those of :class:`PackedCounts`.
    longest, unit : int
        The longest step, and what a gain of 1 is.
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
            if steps[q] == longest:
                goes_on = False
            elif goes_on and steps[q] == 0:
                whole[n - 1] += gains[q] * unit
            else:
                classes[n], whole[n] = c, gains[q] * unit
                lengths[f] += 1
                n, goes_on = n + 1, True
