"""An open-addressing hash table of byte strings, which kernels fill."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammach.system.jit import Array, Number, kernel
from streammach.system.simd import PADDING, load8, low_bytes, prefetch

EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
LOW32 = np.uint64(0xFFFFFFFF)
LARGEST = EMPTY - np.uint64(1)  # hash of a name
WORD = 8  # bytes that are hashed at once
SLOT_BYTES = 16
NO_SPACE = np.int64(0)  # the namespace of other names; of one type, so that kernels are made once
TOGETHER = 16  # names whose slots are asked for before the first of them is looked at


class NameTable(NamedTuple):
    """An open-addressing hash table of byte strings, in arrays that kernels can fill.

    ``slots`` is uint64 (capacity, 2): hash, id | length << 32 | namespace << 44. ``starts`` int64
    (names + 1,) places each id's bytes in ``arena`` uint8, which is padded; ``spaces`` int32
    (names,) holds its namespace. ``used`` int64 (2,) counts names and arena bytes.
    """

    slots: NDArray[np.uint64]
    starts: NDArray[np.int64]
    spaces: NDArray[np.int32]
    arena: NDArray[np.uint8]
    used: NDArray[np.int64]


@kernel(fastmath=False, inline=True, inner=True)
def mix(state: Number, word: Number) -> Any:
    """Return the hash state after one more word of eight bytes."""
    state = (state ^ word) * MULTIPLIER
    return state ^ (state >> np.uint64(32))


@kernel(fastmath=False, inline=True, inner=True)
def start_state(space: Number) -> Any:
    """Return the hash state before the first word of a name in a namespace."""
    return np.uint64(space + 1) * MULTIPLIER


@kernel(fastmath=False, inline=True, inner=True)
def slot_of(state: Number, mask: Number) -> Any:
    """Return the slot at which the search for a hash begins; `mask` is the capacity less one."""
    return (state >> np.uint64(20)) & mask


@kernel(fastmath=False)
def hash_name(text: Array, start: int, size: int, space: Number) -> Any:
    """Return the hash of ``text[start : start + size]``."""
    state = start_state(space)
    for done in range(0, size, 8):
        state = mix(state, low_bytes(load8(text, start + done), size - done))
    return min(state, LARGEST)


@kernel(fastmath=False, inline=True, inner=True)
def tag_of(size: int, space: Number) -> Any:
    """Return length and namespace as they stand in a slot's second word."""
    return (np.uint64(size) << np.uint64(32)) | (np.uint64(space) << np.uint64(44))


@kernel(fastmath=False, inline=True, inner=True)
def needs_comparing(size: int, state: Number) -> Any:
    """Return whether names of this length and namespace may have this hash in common."""
    # One word is hashed one to one, but for the two that share the largest hash.
    return size > WORD or state == LARGEST


@kernel(fastmath=False, inline=True, inner=True)
def same_bytes(table: NameTable, name: Number, text: Array, start: int, size: int) -> Any:
    """Return whether the bytes of a name, which has this size, are those of a text."""
    at, same = table.starts[name], True
    for q in range(0, size, WORD):
        differs = load8(table.arena, at + q) ^ load8(text, start + q)
        same = same and low_bytes(differs, size - q) == np.uint64(0)
    return same


@kernel(fastmath=False)
def find(table: NameTable, text: Array, start: int, size: int, space: Number, state: Number) -> Any:
    """Return (id, slot) of a name; id is -1 and the slot a free one when it is not there."""
    mask = np.uint64(table.slots.shape[0] - 1)
    tag = tag_of(size, space)
    i = slot_of(state, mask)
    while table.slots[i, 0] != EMPTY:
        if table.slots[i, 0] == state and table.slots[i, 1] & ~LOW32 == tag:
            found = np.int64(table.slots[i, 1] & LOW32)
            if not needs_comparing(size, state) or same_bytes(table, found, text, start, size):
                return found, i
        i = (i + np.uint64(1)) & mask
    return np.int64(-1), i


@kernel(fastmath=False)
def find_or_add(
    table: NameTable, text: Array, start: int, size: int, space: Number, state: Number
) -> Any:
    """Return the id of a name, a new one if it was not there, or -1 if the table is too small."""
    found, i = find(table, text, start, size, space, state)
    if found >= 0:
        return found
    new, end = table.used[0], table.used[1]
    if new >= table.spaces.shape[0] or end + size > table.arena.shape[0] - PADDING:
        return np.int64(-1)
    table.slots[i, 0] = state
    table.slots[i, 1] = np.uint64(new) | tag_of(size, space)
    table.starts[new + 1], table.spaces[new] = end + size, space
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
            i = slot_of(old[s, 0], mask)
            while new[i, 0] != EMPTY:
                i = (i + np.uint64(1)) & mask
            new[i, 0], new[i, 1] = old[s, 0], old[s, 1]


def new_table(capacity: int = 1 << 12, arena_bytes: int = 1 << 16) -> NameTable:
    """Return an empty table; the capacity is a power of two, three quarters of it are for names."""
    return NameTable(
        np.full((capacity, 2), EMPTY, np.uint64), np.zeros(_most_names(capacity) + 1, np.int64),
        np.empty(_most_names(capacity), np.int32), np.empty(arena_bytes + PADDING, np.uint8),
        np.zeros(2, np.int64),
    )  # fmt: skip


def grow_table(table: NameTable, more_names: int, more_bytes: int) -> NameTable:
    """Return the table, or a larger copy if it has no room for so many more names and bytes."""
    names, used_bytes = (int(x) for x in table.used)
    capacity, arena = len(table.slots), len(table.arena) - PADDING
    while _most_names(capacity) < names + more_names:
        capacity *= 2
    while arena < used_bytes + more_bytes:
        arena *= 2
    slots, starts, spaces, data, used = table
    if capacity > len(slots):
        wider = new_table(capacity, 0)
        wider.starts[: names + 1], wider.spaces[:names] = starts[: names + 1], spaces[:names]
        rehash(slots, wider.slots)
        slots, starts, spaces = wider.slots, wider.starts, wider.spaces
    if arena + PADDING > len(data):
        data = np.empty(arena + PADDING, np.uint8)
        data[:used_bytes] = table.arena[:used_bytes]
    return NameTable(slots, starts, spaces, data, used)


def table_bytes(n_names: int, n_bytes: int) -> int:
    """Return the bytes of a table that finds so many names of so many bytes, once filled."""
    capacity = capacity_for(n_names + 1)
    return SLOT_BYTES * capacity + 12 * _most_names(capacity) + 2 * n_bytes


def capacity_for(n_names: int) -> int:
    """Return how many slots so many names need."""
    capacity = 2
    while _most_names(capacity) < n_names:
        capacity *= 2
    return capacity


def _most_names(capacity: int) -> int:
    return 3 * capacity // 4


def pad_bytes(data: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return a copy of the bytes followed by room for whole-word loads."""
    return np.concatenate([data, np.zeros(PADDING, np.uint8)])


def find_names(
    table: NameTable, data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64],
    spaces: NDArray[np.int32] | None = None, *, add: bool = False,
) -> NDArray[np.int32]:  # fmt: skip
    """Return the ids of names in padded bytes: int32 (n,); -1 where one is not there.

    With `add` those are added, in their order, for which the table has room. `spaces` are those of
    the names, int32 (n,); they have none otherwise.
    """
    out = np.empty(len(starts), np.int32)
    spaces = np.zeros(len(starts), np.int32) if spaces is None else spaces
    find_all(table, data, starts, ends, spaces, out)
    if add:
        add_missing(table, data, starts, ends, spaces, out)
    return out


@kernel(allocates=True)
def find_all(
    table: NameTable, data: Array, starts: Array, ends: Array, spaces: Array, out: Array
) -> None:
    """Write the id of each name, or -1, into `out` int32 (n,); others may add names meanwhile."""
    mask, n = np.uint64(table.slots.shape[0] - 1), starts.shape[0]
    states = np.empty(TOGETHER, np.uint64)
    for k in range(n + TOGETHER):
        i, soon = k - TOGETHER, k - TOGETHER // 2
        if i >= 0:
            size, space, state = ends[i] - starts[i], np.int64(spaces[i]), states[k % TOGETHER]
            out[i], _ = find(table, data, starts[i], size, space, state)
        if 0 <= soon < n:  # its slot has come: ask for where its bytes are
            slot = slot_of(states[soon % TOGETHER], mask)
            prefetch(table.starts, np.int64(table.slots[slot, 1] & LOW32))
        if k < n:
            state = hash_name(data, starts[k], ends[k] - starts[k], np.int64(spaces[k]))
            states[k % TOGETHER] = state
            prefetch(table.slots, np.int64(slot_of(state, mask)) * 2)


@kernel()
def add_missing(
    table: NameTable, data: Array, starts: Array, ends: Array, spaces: Array, out: Array
) -> None:
    """Add the names whose id in `out` int32 (n,) is -1, in their order; the table has room."""
    for i in range(out.shape[0]):
        if out[i] < 0:
            size, space = ends[i] - starts[i], np.int64(spaces[i])
            state = hash_name(data, starts[i], size, space)
            out[i] = find_or_add(table, data, starts[i], size, space, state)


@kernel()
def index_all(table: NameTable) -> Any:
    """Put all names, whose bytes are there, into slots; return whether none is there twice."""
    for new in range(table.starts.shape[0] - 1):
        start, size = table.starts[new], table.starts[new + 1] - table.starts[new]
        state = hash_name(table.arena, start, size, NO_SPACE)
        found, i = find(table, table.arena, start, size, NO_SPACE, state)
        if found >= 0:
            return False
        table.slots[i, 0], table.slots[i, 1] = state, np.uint64(new) | tag_of(size, NO_SPACE)
    return True
