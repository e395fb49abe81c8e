"""Finds the ids of names in a list: a small table beside the list, which is made once and kept."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.errors import StoreError
from streammach.jit import Array, Number, kernel
from streammach.rows.name_table import LOW32, hash_name, padded
from streammach.simd import PADDING, prefetch

FREE = np.uint64(0xFFFFFFFFFFFFFFFF)
SLOT_BYTES = 8
TOGETHER = 16  # names that are looked up
ROOM = bytes(PADDING)
UTF8 = "utf-8", "surrogatepass"


class NameIndex:
    """Finds names in a list. Threads may share it: nothing in it changes.

    `offsets` and `data` are int64 (n + 1,), uint8.
    """

    def __init__(self, offsets: NDArray[np.int64], data: NDArray[np.uint8]) -> None:
        self._list = np.full(_n_slots(len(offsets) - 1), FREE, np.uint64), offsets, data
        if not fill_slots(*self._list, padded(data)):
            raise StoreError("damaged: a name is there twice")

    @staticmethod
    def footprint(n_names: int, n_bytes: int) -> int:
        """Return the bytes of an index of so many names of so many bytes, while it is made."""
        return SLOT_BYTES * _n_slots(n_names) + n_bytes + PADDING

    def ids_of(self, offsets: NDArray[np.int64], data: NDArray[np.uint8]) -> NDArray[np.int32]:
        """Return the id of each name of another list, int32 (n,), or -1."""
        return self._found(offsets, padded(data))

    def ids(self, names: Sequence[str | bytes]) -> NDArray[np.int32]:
        """Return the id of each of some names, int32 (n,), or -1."""
        try:
            text: str | None = "".join(names)  # type: ignore[arg-type]
        except TypeError:  # some are bytes
            text = None
        if text is not None and text.isascii():  # each character is a byte
            ends, raw = [0, *itertools.accumulate(map(len, names))], text.encode() + ROOM
        else:
            raws = [n if isinstance(n, bytes) else n.encode(*UTF8) for n in names]
            ends, raw = [0, *itertools.accumulate(map(len, raws))], b"".join([*raws, ROOM])
        return self._found(np.array(ends, np.int64), np.frombuffer(raw, np.uint8))

    def _found(self, offsets: NDArray[np.int64], text: NDArray[np.uint8]) -> NDArray[np.int32]:
        out = np.empty(len(offsets) - 1, np.int32)
        find_in_slots(*self._list, offsets, text, out)
        return out


def _n_slots(n_names: int) -> int:
    return 1 << (2 * n_names + 1).bit_length()


@kernel(fastmath=False)
def slot_of(
    slots: Array, offsets: Array, data: Array, text: Array, start: int, size: int, state: Number
) -> Any:  # fmt: skip
    """Return the slot of a name, or the free one where it would stand, and its mark.

    Parameters
    ----------
    slots : uint64 (a power of two,)
        The high half of a name's hash above its id; all bits are set where there is none.
    offsets, data : int64 (n + 1,), uint8
        The list.
    text, start, size : uint8, int, int
        The name is ``text[start : start + size]``; more bytes follow.
    state : uint64
        Its hash.
    """
    mask, mark = np.uint64(slots.shape[0] - 1), state & ~LOW32
    i = (state >> np.uint64(4)) & mask
    while slots[i] != FREE:
        if slots[i] & ~LOW32 == mark:
            own = np.int64(slots[i] & LOW32)
            first = offsets[own]
            same = offsets[own + 1] - first == size
            q = 0
            while same and q < size:
                same = data[first + q] == text[start + q]
                q += 1
            if same:
                break
        i = (i + np.uint64(1)) & mask
    return i, mark


@kernel()
def fill_slots(slots: Array, offsets: Array, data: Array, text: Array) -> Any:
    """Put every name of a list into slots that are free; return whether none is there twice.

    Parameters
    ----------
    slots, offsets, data : arrays
        Those of :func:`slot_of`.
    text : uint8
        The same bytes as `data`, and more behind them.
    """
    for own in range(offsets.shape[0] - 1):
        start, size = offsets[own], offsets[own + 1] - offsets[own]
        state = hash_name(text, start, size, 0)
        i, mark = slot_of(slots, offsets, data, text, start, size, state)
        if slots[i] != FREE:
            return False
        slots[i] = mark | np.uint64(own)
    return True


@kernel()
def find_in_slots(
    slots: Array, offsets: Array, data: Array, wanted: Array, text: Array, out: Array
) -> None:
    """Write the id of each name, or -1, into `out` int32 (n,).

    Parameters
    ----------
    slots, offsets, data : arrays
        Those of :func:`slot_of`.
    wanted, text : int64 (n + 1,), uint8
        The names, and more bytes behind them.
    """
    # Some names at a time, whose slots and then whose places are asked for before they are read.
    states, mask = np.empty(TOGETHER, np.uint64), np.uint64(slots.shape[0] - 1)
    for first in range(0, out.shape[0], TOGETHER):
        last = min(first + TOGETHER, out.shape[0])
        for k in range(first, last):
            states[k - first] = hash_name(text, wanted[k], wanted[k + 1] - wanted[k], 0)
            prefetch(slots, np.int64((states[k - first] >> np.uint64(4)) & mask))
        for k in range(first, last):
            own = slots[(states[k - first] >> np.uint64(4)) & mask]
            if own != FREE:
                prefetch(offsets, np.int64(own & LOW32))
        for k in range(first, last):
            size = wanted[k + 1] - wanted[k]
            i, _ = slot_of(slots, offsets, data, text, wanted[k], size, states[k - first])
            out[k] = -1 if slots[i] == FREE else np.int32(slots[i] & LOW32)
