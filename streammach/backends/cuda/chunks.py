"""A chunk of four columns, as kernels hold it: how it lies in memory, and its arithmetic.

A chunk is 16 bytes of float32, or two words that hold two bfloat16 each, the lower column in the
low half; in kernels a tuple, which stays in registers. A weight is rounded up with the chance that
makes its mean the exact value, drawn by a hash of seed, step, feature and chunk of the whole row of
columns: the bits depend neither on tiles, items, blocks and waves nor on a resume.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from streammach.backends.cuda.instructions import adam_moment, adam_step, log_sigmoid, sigmoid
from streammach.backends.cuda.shapes import CHUNK
from streammach.backends.cuda.toolchain import (
    bits_of,
    device,
    float_of,
    get,
    get2,
    get2_constant,
    get4,
    get4_constant,
    product,
    put,
    put2,
    put4,
)
from streammach.options.types import Weights
from streammach.system.jit import Array, Number

FIRST, SECOND = 0x7FEB352D, 0x846CA68B  # factors of a mixer in which every bit turns every other
OTHER_PAIR = 0x9E3779B9
LOW, HIGH, NOT_FINITE = np.uint32(0xFFFF), np.uint32(0xFFFF0000), np.uint32(0x7F800000)
HALF_WORD = np.uint32(16)


class Coding(NamedTuple):
    """What kernels do with a chunk of weights: device functions, and the type of a word."""

    word: Any  # type of a word of the table
    words: int  # of a chunk
    fetch: Callable[..., Any]  # (table, chunk) to words
    fetch_constant: Callable[..., Any]  # the same where no one writes the table meanwhile
    widen: Callable[..., Any]  # words to four float32
    # (table, chunk, values, key, feature, place): writes four float32; `key` is that of the step,
    # `place` the chunk's number in the whole row of columns.
    store: Callable[..., Any]


def _make_fetch(load: Callable[..., Any], n_words: int) -> Callable[..., Any]:
    """Return the function that loads a chunk's words."""

    @device
    def fetch(table: Array, chunk: Number) -> Any:
        return load(table, chunk * n_words)

    return fetch


@device
def _as_they_are(v: Any) -> Any:
    return v


@device
def _store_floats(
    table: Array, chunk: Number, v: Any, key: Number, feature: Number, place: Number
) -> None:
    put4(table, chunk * CHUNK, v)


@device
def mix_bits(h: Number) -> Any:
    """Return 32 bits that each depend on each of `h`."""
    a = product(h ^ (h >> np.uint32(16)), np.uint32(FIRST))
    b = product(a ^ (a >> np.uint32(15)), np.uint32(SECOND))
    return np.uint32(b ^ (b >> np.uint32(16)))


@device
def round_at_random(x: Number, chance: Number) -> Any:
    """Return the bits of float32 `x`, the upper half rounded by 16 random bits; not if infinite."""
    bits = bits_of(x)
    if bits & NOT_FINITE != NOT_FINITE:
        bits = np.uint32(bits + chance)
    return bits


@device
def round_pair(low: Number, high: Number, chances: Number) -> Any:
    """Return two float32 as the bfloat16 of a word, rounded by the halves of 32 random bits."""
    a = round_at_random(low, np.uint32(chances & LOW)) >> HALF_WORD
    return np.uint32(a | (round_at_random(high, np.uint32(chances >> HALF_WORD)) & HIGH))


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
    chances = mix_bits(key ^ mix_bits(np.uint32(feature) ^ mix_bits(np.uint32(place))))
    others = mix_bits(chances ^ np.uint32(OTHER_PAIR))
    put2(table, chunk * 2, (round_pair(v[0], v[1], chances), round_pair(v[2], v[3], others)))


CODINGS: dict[Weights, Coding] = {
    "float32": Coding(
        np.dtype(np.float32), CHUNK, _make_fetch(get4, CHUNK), _make_fetch(get4_constant, CHUNK),
        _as_they_are, _store_floats,
    ),
    "bfloat16": Coding(
        np.dtype(np.uint32), CHUNK // 2, _make_fetch(get2, CHUNK // 2),
        _make_fetch(get2_constant, CHUNK // 2), _widen_pairs, _store_pairs,
    ),
}  # fmt: skip


def rounding_key(seed: int, step: int) -> np.uint32:
    """Return what a step's random bits are drawn from; the training's seed may have any size."""
    h = 0
    for part in (seed, seed >> 32, step, step >> 32):  # as :func:`mix_bits` does
        h ^= part & 0xFFFFFFFF
        h = (h ^ h >> 16) * FIRST & 0xFFFFFFFF
        h = (h ^ h >> 15) * SECOND & 0xFFFFFFFF
        h ^= h >> 16
    return np.uint32(h)


@device
def add4(sums: Any, x: Number, v: Any) -> Any:
    """Return ``sums + x * v``."""
    return sums[0] + x * v[0], sums[1] + x * v[1], sums[2] + x * v[2], sums[3] + x * v[3]


@device
def less4(v: Any, steps: Any, g: Any) -> Any:
    """Return ``v - steps * g``."""
    return (
        v[0] - steps[0] * g[0], v[1] - steps[1] * g[1],
        v[2] - steps[2] * g[2], v[3] - steps[3] * g[3],
    )  # fmt: skip


@device
def spread(a: Array, i: Number, v: Any) -> None:
    """Write four words to shared memory, at any position."""
    put(a, i, v[0])
    put(a, i + 1, v[1])
    put(a, i + 2, v[2])
    put(a, i + 3, v[3])


@device
def gather_words(a: Array, i: Number) -> Any:
    """Return four words of shared memory, from any position."""
    return get(a, i), get(a, i + 1), get(a, i + 2), get(a, i + 3)


@device
def sigmoid4(v: Any) -> Any:
    """Return the sigmoids of a chunk of four."""
    return sigmoid(v[0]), sigmoid(v[1]), sigmoid(v[2]), sigmoid(v[3])


@device
def log_sigmoid4(v: Any) -> Any:
    """Return their logarithms."""
    return log_sigmoid(v[0]), log_sigmoid(v[1]), log_sigmoid(v[2]), log_sigmoid(v[3])


@device
def moments4(m: Any, g: Any, decay: Number) -> Any:
    """Return Adam's running means of a chunk of four."""
    return (
        adam_moment(m[0], g[0], decay), adam_moment(m[1], g[1], decay),
        adam_moment(m[2], g[2], decay), adam_moment(m[3], g[3], decay),
    )  # fmt: skip


@device
def squares4(g: Any) -> Any:
    """Return the squares of a chunk of four."""
    return g[0] * g[0], g[1] * g[1], g[2] * g[2], g[3] * g[3]


@device
def adam4(w: Any, m: Any, v: Any, rate: Number, epsilon: Number) -> Any:
    """Return a chunk of four weights after Adam's step."""
    return (
        w[0] - adam_step(m[0], v[0], rate, epsilon), w[1] - adam_step(m[1], v[1], rate, epsilon),
        w[2] - adam_step(m[2], v[2], rate, epsilon), w[3] - adam_step(m[3], v[3], rate, epsilon),
    )  # fmt: skip
