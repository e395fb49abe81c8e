"""Numbers that are spelled in several ways among names: ``1``, ``01``, ``1.0``, ``+1``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from streammach.jit import Array, kernel
from streammach.rows.name_table import mix
from streammach.rows.names import MAX_DIGITS, SEPARATOR, Names

ZERO, NINE, PLUS, MINUS, DOT = 48, 57, 43, 45, 46
OTHER, PLAIN, ODD = 0, 1, 2  # no whole number; one as it is written usually; one in another way


def spelled_differently(
    names: Names, aside: Sequence[str] = ()
) -> tuple[int, tuple[str, str]] | None:
    """Return how many whole numbers have several names, and two names of one; None without any."""
    if names.kind == "integer":  # each is written in the usual way
        return None
    odd, keys = np.empty(0, np.int64), np.empty((0, 2), np.uint64)
    n = int(find_odd(names.offsets, names.data, odd, keys))  # their number alone
    if not n:
        return None
    odd, keys = np.empty(n, np.int64), np.empty((n, 2), np.uint64)
    find_odd(names.offsets, names.data, odd, keys)
    order = np.lexsort((keys[:, 1], keys[:, 0]))
    odd, keys = odd[order], keys[order]
    starts = np.flatnonzero(np.concatenate([[True], (keys[1:] != keys[:-1]).any(1)]))
    n_names = np.diff(np.append(starts, len(odd)))
    plain = np.full(len(starts), -1, np.int64)
    find_plain(names.offsets, names.data, keys[starts], plain)
    differ = (n_names > 1) | (plain >= 0)
    if aside:
        words = Names.of([f"{space}^00".encode() for space in aside])
        spaces = np.empty((len(aside), 2), np.uint64)
        find_odd(words.offsets, words.data, np.empty(len(aside), np.int64), spaces)
        differ &= ~np.isin(keys[starts, 0], spaces[:, 0])
    several = np.flatnonzero(differ)
    if not len(several):
        return None
    first = int(several[0])
    other = plain[first] if plain[first] >= 0 else odd[starts[first] + 1]
    return len(several), (_text(names, odd[starts[first]]), _text(names, other))


def _text(names: Names, place: int) -> str:
    return names.raw(int(place)).decode("utf-8", "backslashreplace")


@kernel(inline=True)
def number_at(data: Array, start: int, stop: int) -> Any:
    """Return how a name is spelled and, for a whole number, its namespace's hash and its value."""
    space, p = np.uint64(0), start
    for q in range(start, stop):
        if data[q] == SEPARATOR:
            for i in range(p, q + 1):
                space = mix(space, np.uint64(data[i]))
            p = q + 1
    first = p
    negative = p < stop and data[p] == MINUS
    odd = p < stop and data[p] == PLUS
    p += int(negative or odd)
    digits, value = p, np.uint64(0)
    while p < stop and ZERO <= data[p] <= NINE and p - digits < MAX_DIGITS:
        value = value * np.uint64(10) + np.uint64(data[p] - ZERO)
        p += 1
    if p == digits:
        return OTHER, space, value
    odd = odd or (data[digits] == ZERO and (p - digits > 1 or digits > first))
    if p < stop and data[p] == DOT:
        odd = True
        p += 1
        while p < stop and data[p] == ZERO:
            p += 1
    if p < stop:
        return OTHER, space, value
    if negative and value > np.uint64(0):
        value = ~value
    return ODD if odd else PLAIN, space, value


@kernel(fastmath=False)
def find_odd(offsets: Array, data: Array, odd: Array, keys: Array) -> Any:
    """Count the whole numbers in another spelling than the usual one; write where they stand."""
    # Places int64 (n,), and namespace and value uint64 (n, 2) of each, where there is room.
    n = 0
    for i in range(offsets.shape[0] - 1):
        kind, space, value = number_at(data, offsets[i], offsets[i + 1])
        if kind == ODD:
            if n < odd.shape[0]:
                odd[n], keys[n, 0], keys[n, 1] = i, space, value
            n += 1
    return n


@kernel(fastmath=False)
def find_plain(offsets: Array, data: Array, keys: Array, plain: Array) -> None:
    """Write for each of some rising keys (n, 2) which name is the usual one: int64 (n,)."""
    for i in range(offsets.shape[0] - 1):
        kind, space, value = number_at(data, offsets[i], offsets[i + 1])
        if kind == PLAIN:
            low, high = 0, keys.shape[0]
            while low < high:
                middle = (low + high) // 2
                a, b = keys[middle, 0], keys[middle, 1]
                if a < space or (a == space and b < value):
                    low = middle + 1
                else:
                    high = middle
            if low < keys.shape[0] and keys[low, 0] == space and keys[low, 1] == value:
                plain[low] = i
