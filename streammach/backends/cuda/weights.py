"""How weights lie in device memory: float32, or bfloat16 in pairs that are rounded at random.

A thread's chunk of four columns is 16 bytes of float32, or two words that hold two bfloat16 each,
the lower column in the low half. Widening is a shift, so that no card needs instructions for it. A
weight is rounded up with the chance that makes its mean the exact value; the chance is drawn by a
hash of seed, step, feature and chunk of the whole row of columns, so that the bits depend neither
on tiles, items and blocks nor on waves, and a resumed run draws the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammach.backends.cuda.instructions import (
    bits_of,
    device,
    float_of,
    get2,
    get2_constant,
    get4,
    get4_constant,
    product,
    put2,
    put4,
)
from streammach.backends.cuda.launch import CHUNK
from streammach.jit import Array, Number, kernel
from streammach.spec.types import Weights

FIRST, SECOND = 0x7FEB352D, 0x846CA68B  # factors of a mixer in which every bit turns every other
OTHER_PAIR = 0x9E3779B9
LOW, HIGH, NOT_FINITE = np.uint32(0xFFFF), np.uint32(0xFFFF0000), np.uint32(0x7F800000)
HALF_WORD = np.uint32(16)


class Coding(NamedTuple):
    """What kernels do with a chunk of weights: device functions, and the type of a word.

    Attributes
    ----------
    word : dtype
        Of the table.
    words : int
        Words of a chunk.
    fetch, fetch_constant : callable
        ``(table, chunk)`` to words; the second where no one writes the table meanwhile.
    widen : callable
        Words to four float32.
    store : callable
        ``(table, chunk, values, key, feature, place)``: writes four float32; `key` is that of the
        step, `place` the chunk's number in the whole row of columns.
    """

    word: Any
    words: int
    fetch: Callable[..., Any]
    fetch_constant: Callable[..., Any]
    widen: Callable[..., Any]
    store: Callable[..., Any]


@device
def _fetch_floats(table: Array, chunk: Number) -> Any:
    return get4(table, chunk * CHUNK)


@device
def _fetch_constant_floats(table: Array, chunk: Number) -> Any:
    return get4_constant(table, chunk * CHUNK)


@device
def _as_they_are(v: Any) -> Any:
    return v


@device
def _store_floats(
    table: Array, chunk: Number, v: Any, key: Number, feature: Number, place: Number
) -> None:
    put4(table, chunk * CHUNK, v)


@device
def mixed(h: Number) -> Any:
    """Return 32 bits each of which depends on each of `h`."""
    a = product(h ^ (h >> np.uint32(16)), np.uint32(FIRST))
    b = product(a ^ (a >> np.uint32(15)), np.uint32(SECOND))
    return np.uint32(b ^ (b >> np.uint32(16)))


@device
def drawn(x: Number, chance: Number) -> Any:
    """Return the bits of float32 `x`, the upper half rounded by 16 random bits; not if infinite."""
    bits = bits_of(x)
    if bits & NOT_FINITE != NOT_FINITE:
        bits = np.uint32(bits + chance)
    return bits


@device
def paired(low: Number, high: Number, chances: Number) -> Any:
    """Return two float32 as the bfloat16 of a word, rounded by the halves of 32 random bits."""
    a = drawn(low, np.uint32(chances & LOW)) >> HALF_WORD
    return np.uint32(a | (drawn(high, np.uint32(chances >> HALF_WORD)) & HIGH))


@device
def _fetch_pairs(table: Array, chunk: Number) -> Any:
    return get2(table, chunk * 2)


@device
def _fetch_constant_pairs(table: Array, chunk: Number) -> Any:
    return get2_constant(table, chunk * 2)


@device
def _widen_pairs(v: Any) -> Any:
    return (
        float_of(np.uint32(v[0] << HALF_WORD)), float_of(np.uint32(v[0] & HIGH)),
        float_of(np.uint32(v[1] << HALF_WORD)), float_of(np.uint32(v[1] & HIGH)),
    )  # fmt: skip


@device
def _store_pairs(
    table: Array, chunk: Number, v: Any, key: Number, feature: Number, place: Number
) -> None:
    chances = mixed(key ^ mixed(np.uint32(feature) ^ mixed(np.uint32(place))))
    others = mixed(chances ^ np.uint32(OTHER_PAIR))
    put2(table, chunk * 2, (paired(v[0], v[1], chances), paired(v[2], v[3], others)))


CODINGS: dict[Weights, Coding] = {
    "float32": Coding(
        np.dtype(np.float32), CHUNK, _fetch_floats, _fetch_constant_floats, _as_they_are,
        _store_floats,
    ),
    "bfloat16": Coding(
        np.dtype(np.uint32), CHUNK // 2, _fetch_pairs, _fetch_constant_pairs, _widen_pairs,
        _store_pairs,
    ),
}  # fmt: skip


def rounding_key(seed: int, step: int) -> np.uint32:
    """Return what a step's random bits are drawn from.

    Parameters
    ----------
    seed : int
        The training's, of any size.
    step : int
        Number of the step.
    """
    h = 0
    for part in (seed, seed >> 32, step, step >> 32):
        h = _mixed(h ^ part & 0xFFFFFFFF)
    return np.uint32(h)


def _mixed(h: int) -> int:
    """Return what :func:`mixed` gives, on the host."""
    h = (h ^ h >> 16) * FIRST & 0xFFFFFFFF
    h = (h ^ h >> 15) * SECOND & 0xFFFFFFFF
    return h ^ h >> 16


def widen_into(rows: NDArray[Any], out: NDArray[np.float32]) -> None:
    """Write numbers as float32 (n, m): float32 (n, m), or the bits of bfloat16 uint16 (n, m)."""
    if rows.dtype == np.uint16:
        widen_rows(rows, out.view(np.uint32))
    else:
        out[:] = rows


def narrow_into(given: NDArray[np.float32], rows: NDArray[Any]) -> None:
    """Write float32 (n, m) as float32 (n, m), or as the bits of the nearest bfloat16 uint16."""
    if rows.dtype == np.uint16:
        narrow_rows(given.view(np.uint32), rows)
    else:
        rows[:] = given


@kernel()
def widen_rows(rows: Array, out: Array) -> None:
    """Write bfloat16 bits uint16 (n, m) as float32 bits uint32 (n, m)."""
    for i in range(rows.shape[0]):
        for j in range(rows.shape[1]):
            out[i, j] = np.uint32(rows[i, j]) << np.uint32(16)


@kernel()
def narrow_rows(given: Array, rows: Array) -> None:
    """Write float32 bits uint32 (n, m) as the nearest bfloat16, the even one of two: uint16."""
    for i in range(rows.shape[0]):
        for j in range(rows.shape[1]):
            bits = np.uint64(given[i, j])
            up = np.uint64(0x7FFF) + ((bits >> np.uint64(16)) & np.uint64(1))
            if bits & np.uint64(0x7F800000) == np.uint64(0x7F800000):
                up = np.uint64(0)
            rows[i, j] = np.uint16((bits + up) >> np.uint64(16))
