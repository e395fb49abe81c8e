"""Names of labels and features: compact lists of byte strings, and the table that finds them.

A name belongs to a namespace (0 for labels and for features without one). In a list a feature's
name is ``namespace^name``; a name without a namespace that holds ``^`` itself stands as ``^name``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammach.errors import StoreError
from streammach.jit import Array, Number, kernel
from streammach.rows.texts import Texts
from streammach.simd import PADDING, load8, low_bytes

Label = int | str | bytes
MAX_NAME = 4095  # bytes of one name: its length has 12 bits in a slot
MAX_NAMESPACES = 1 << 20
MAX_DIGITS, MINUS, ZERO, NINE = 18, 45, 48, 57
SEPARATOR = ord("^")
EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
LOW32 = np.uint64(0xFFFFFFFF)


class NameTable(NamedTuple):
    """An open-addressing hash table of byte strings, in arrays that kernels can fill.

    ``slots`` is uint64 (capacity, 4): hash, id | length << 32 | namespace << 44, first 16 bytes.
    ``starts`` int64 and ``sizes`` int32 (capacity / 2,) place each id's bytes in ``arena`` uint8;
    ``spaces`` int32 holds its namespace. ``used`` int64 (2,) counts names and arena bytes.
    """

    slots: NDArray[np.uint64]
    starts: NDArray[np.int64]
    sizes: NDArray[np.int32]
    spaces: NDArray[np.int32]
    arena: NDArray[np.uint8]
    used: NDArray[np.int64]


@kernel(inline=True)
def mix(state: Number, word: Number) -> Any:
    """Return the hash state after one more word of eight bytes."""
    state = (state ^ word) * MULTIPLIER
    return state ^ (state >> np.uint64(32))


@kernel(inline=True)
def start_state(space: int) -> Any:
    """Return the hash state before the first word of a name in a namespace."""
    return np.uint64(space + 1) * MULTIPLIER


@kernel(fastmath=False)
def hash_name(text: Array, start: int, size: int, space: int) -> Any:
    """Return the hash and the first two words of ``text[start : start + size]``."""
    state, first, second = start_state(space), np.uint64(0), np.uint64(0)
    for done in range(0, size, 8):
        word = low_bytes(load8(text, start + done), size - done)
        if done == 0:
            first = word
        elif done == 8:
            second = word
        state = mix(state, word)
    return min(state, EMPTY - np.uint64(1)), first, second


@kernel(inline=True)
def tag_of(size: int, space: int) -> Any:
    """Return length and namespace as they stand in a slot's second word."""
    return (np.uint64(size) << np.uint64(32)) | (np.uint64(space) << np.uint64(44))


@kernel(fastmath=False)
def find(
    table: NameTable,
    text: Array,
    start: int,
    size: int,
    space: int,
    state: Number,
    first: Number,
    second: Number,
) -> Any:
    """Return (id, slot) of a name; id is -1 and the slot a free one when it is not there."""
    mask = np.uint64(table.slots.shape[0] - 1)
    tag = tag_of(size, space)
    i = (state >> np.uint64(20)) & mask
    while table.slots[i, 0] != EMPTY:
        if (
            table.slots[i, 0] == state
            and table.slots[i, 1] & ~LOW32 == tag
            and table.slots[i, 2] == first
            and table.slots[i, 3] == second
        ):
            found = np.int64(table.slots[i, 1] & LOW32)
            same = True
            for q in range(16, size):
                same = same and table.arena[table.starts[found] + q] == text[start + q]
            if same:
                return found, i
        i = (i + np.uint64(1)) & mask
    return np.int64(-1), i


@kernel(fastmath=False)
def find_or_add(
    table: NameTable,
    text: Array,
    start: int,
    size: int,
    space: int,
    state: Number,
    first: Number,
    second: Number,
) -> Any:
    """Return the id of a name, a new one if it was not there, or -1 if the table is too small."""
    found, i = find(table, text, start, size, space, state, first, second)
    if found >= 0:
        return found
    new, end = table.used[0], table.used[1]
    if new >= table.starts.shape[0] or end + size > table.arena.shape[0]:
        return np.int64(-1)
    table.slots[i, 0] = state
    table.slots[i, 1] = np.uint64(new) | tag_of(size, space)
    table.slots[i, 2] = first
    table.slots[i, 3] = second
    table.starts[new], table.sizes[new], table.spaces[new] = end, size, space
    for q in range(size):
        table.arena[end + q] = text[start + q]
    table.used[0], table.used[1] = new + 1, end + size
    return new


@kernel()
def rehash(old: Array, new: Array) -> None:
    """Copy every slot of the array `old` into the larger empty array `new`."""
    mask = np.uint64(new.shape[0] - 1)
    for s in range(old.shape[0]):
        if old[s, 0] != EMPTY:
            i = (old[s, 0] >> np.uint64(20)) & mask
            while new[i, 0] != EMPTY:
                i = (i + np.uint64(1)) & mask
            for w in range(4):
                new[i, w] = old[s, w]


def new_table(capacity: int = 1 << 12, arena_bytes: int = 1 << 16) -> NameTable:
    """Return an empty table for `capacity` / 2 names; the capacity is a power of two."""
    return NameTable(
        np.full((capacity, 4), EMPTY, np.uint64),
        np.empty(capacity // 2, np.int64),
        np.empty(capacity // 2, np.int32),
        np.empty(capacity // 2, np.int32),
        np.empty(arena_bytes, np.uint8),
        np.zeros(2, np.int64),
    )


def grown(table: NameTable, more_names: int, more_bytes: int) -> NameTable:
    """Return the table, or a larger copy if it has no room for so many more names and bytes."""
    names, used_bytes = (int(x) for x in table.used)
    capacity, arena = len(table.slots), len(table.arena)
    while capacity // 2 < names + more_names:
        capacity *= 2
    while arena < used_bytes + more_bytes:
        arena *= 2
    if capacity == len(table.slots) and arena == len(table.arena):
        return table
    new = new_table(capacity, arena)
    for name in ("starts", "sizes", "spaces"):
        getattr(new, name)[:names] = getattr(table, name)[:names]
    new.arena[:used_bytes] = table.arena[:used_bytes]
    new.used[:] = table.used
    rehash(table.slots, new.slots)
    return new


def table_bytes(n_names: int, n_bytes: int) -> int:
    """Return the bytes of a table that finds so many names of so many bytes, once filled."""
    capacity = _power_of_two(2 * n_names + 2)
    return capacity * (32 + 8) + 2 * n_bytes


@dataclass(frozen=True)
class Names:
    """An immutable list of names by id.

    Attributes
    ----------
    offsets : int64 (n + 1,)
        Where each name starts in `data`.
    data : uint8 (sum of lengths,)
        The bytes of all names, one after another.
    kind : str
        ``integer`` when every name is a decimal integer in its usual form, ``utf8`` when all are
        valid UTF-8, else ``bytes``; it decides in which type :meth:`label` gives them back.
    """

    offsets: NDArray[np.int64]
    data: NDArray[np.uint8]
    kind: str

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def raw(self, i: int) -> bytes:
        """Return the bytes of name `i`."""
        return self.data[self.offsets[i] : self.offsets[i + 1]].tobytes()

    def label(self, i: int) -> Label:
        """Return name `i` in the type that the user gave: int, str or bytes."""
        raw = self.raw(i)
        if self.kind == "integer":
            return int(raw)
        return raw.decode() if self.kind == "utf8" else raw

    @property
    def n_bytes(self) -> int:
        """Bytes that the list takes in memory."""
        return self.offsets.nbytes + self.data.nbytes

    @classmethod
    def of(cls, names: Iterable[Label]) -> Names:
        """Return the list of the given names, in their order."""
        texts = Texts.of(n if isinstance(n, bytes) else str(n).encode() for n in names)
        data = texts.data.copy()
        return cls(texts.offsets, data, kind_of(texts.offsets, data))

    def some(self, kept: NDArray[np.bool_]) -> Names:
        """Return the list of some of the names, bool (n,), in their order, of the same kind."""
        lengths = np.diff(self.offsets)
        offsets = np.zeros(int(np.count_nonzero(kept)) + 1, np.int64)
        np.cumsum(lengths[kept], out=offsets[1:])
        return Names(offsets, np.asarray(self.data)[np.repeat(kept, lengths)], self.kind)

    def followed_by(self, more: Names) -> Names:
        """Return the names of this list and then those of another one, of the kind of all."""
        offsets = np.concatenate([self.offsets, self.offsets[-1] + more.offsets[1:]])
        data = np.concatenate([np.asarray(self.data), more.data])
        return Names(offsets, data, kind_of(offsets, data))

    def sound(self) -> bool:
        """Return whether the list is what it says: names within the bytes, of its kind, not long.

        Lists that were read from files are asked before they are used.
        """
        offsets, n_bytes = self.offsets, len(self.data)
        if not len(offsets) or offsets[0] != 0 or offsets[-1] != n_bytes:
            return False
        if (np.diff(offsets) < 0).any() or longest_part(offsets, self.data) > MAX_NAME:
            return False
        return kind_of(offsets, self.data) == self.kind

    def same_as(self, other: Names) -> bool:
        """Return whether both lists hold the same names in the same order."""
        return np.array_equal(self.offsets, other.offsets) and np.array_equal(self.data, other.data)

    def ids_of(self, other: Names) -> NDArray[np.int32]:
        """Return each name's id here, int32 (n,), or -1; StoreError if one is here twice."""
        if self.same_as(other):
            return np.arange(len(other), dtype=np.int32)
        table = new_table(_power_of_two(2 * len(self) + 2), max(len(self.data), 1))
        add_all(table, self.offsets, padded(self.data))
        if int(table.used[0]) != len(self):
            raise StoreError("damaged: a name is there twice")
        out = np.empty(len(other), np.int32)
        find_all(table, other.offsets, padded(other.data), out)
        return out


def _power_of_two(at_least: int) -> int:
    return 1 << max(at_least - 1, 1).bit_length()


def padded(data: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return a copy of the bytes followed by room for whole-word loads."""
    return np.concatenate([data, np.zeros(PADDING, np.uint8)])


@kernel()
def add_all(table: NameTable, offsets: Array, data: Array) -> None:
    """Add every name of a list to a table that has room, in order; ids follow the order."""
    for i in range(offsets.shape[0] - 1):
        start, size = offsets[i], offsets[i + 1] - offsets[i]
        state, first, second = hash_name(data, start, size, 0)
        find_or_add(table, data, start, size, 0, state, first, second)


@kernel()
def find_all(table: NameTable, offsets: Array, data: Array, out: Array) -> None:
    """Write the id of every name of a list, or -1, into `out` int32 (n,)."""
    for i in range(offsets.shape[0] - 1):
        start, size = offsets[i], offsets[i + 1] - offsets[i]
        state, first, second = hash_name(data, start, size, 0)
        found, _ = find(table, data, start, size, 0, state, first, second)
        out[i] = found


def kind_of(offsets: NDArray[np.int64], data: NDArray[np.uint8]) -> str:
    """Return ``integer``, ``utf8`` or ``bytes``, by what all names are."""
    if all_integers(offsets, data):
        return "integer"
    try:
        data.tobytes().decode()
    except UnicodeDecodeError:
        return "bytes"
    starts = data[offsets[:-1][np.diff(offsets) > 0]]
    starts_inside = np.any((starts & 0xC0) == 0x80)  # a name that starts within a character
    return "bytes" if starts_inside else "utf8"


@kernel()
def longest_part(offsets: Array, data: Array) -> Any:
    """Return the most bytes that a namespace, or a name without it, has in a list."""
    longest = np.int64(0)
    for i in range(offsets.shape[0] - 1):
        start = offsets[i]
        for q in range(offsets[i], offsets[i + 1]):
            if data[q] == SEPARATOR and start == offsets[i]:
                longest = max(longest, q - start)
                start = q + 1
        longest = max(longest, offsets[i + 1] - start)
    return longest


@kernel()
def all_integers(offsets: Array, data: Array) -> Any:
    """Return whether each name is a decimal integer in its usual form, of at most 18 digits."""
    for i in range(offsets.shape[0] - 1):
        start, end = offsets[i], offsets[i + 1]
        zero = end - start == 1 and data[start] == ZERO
        if not zero:
            start += end > start and data[start] == MINUS
            if not 0 < end - start <= MAX_DIGITS or data[start] == ZERO:
                return False
        for q in range(start, end):
            if not ZERO <= data[q] <= NINE:
                return False
    return True
