"""Universal hashes of classes to buckets, and what they cannot tell apart.

Huang et al., section 2: ``h_r(y) = ((a_r y + b_r) mod p) mod B`` with a prime p above K. The
cheaper ``a y & (B - 1)`` is not used: its low bits depend on the low bits of y alone, so classes
that are equal modulo B would share their bucket in every repetition.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from streammach.system.jit import Array, kernel

P = 2**31 - 1
DRAWS = 16  # seeds tried for hashes that tell all classes apart


def draw(
    seed: int, n_classes: int, n_buckets: int, n_repetitions: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the coefficients (a, b) of R hashes; both empty when classes are their own buckets.

    Hashes that leave two classes with the same code in every repetition are drawn again, as long
    as better ones can be expected.
    """
    if not (1 <= n_classes <= P and n_buckets >= 1 and n_repetitions >= 1):
        what = f"no hashes of {n_classes} classes to {n_repetitions} x {n_buckets} buckets"
        raise ValueError(what)
    if n_buckets >= n_classes:
        return (), ()
    hopeless = collision_chance(n_classes, n_buckets, n_repetitions) > DRAWS
    for attempt in range(1 if hopeless else DRAWS):
        rng = np.random.Generator(np.random.PCG64([seed, attempt]))
        a = tuple(int(x) for x in rng.integers(1, P, n_repetitions))
        b = tuple(int(x) for x in rng.integers(0, P, n_repetitions))
        if hopeless or count_collisions(codes(a, b, n_classes, n_buckets)) == 0:
            break
    return a, b


def code_type(n_buckets: int) -> np.dtype[np.generic]:
    """Return the smallest unsigned type that holds a bucket's number."""
    return np.min_scalar_type(n_buckets - 1)


def codes(
    a: tuple[int, ...], b: tuple[int, ...], n_classes: int, n_buckets: int, first: int = 0
) -> NDArray[np.unsignedinteger]:
    """Return the bucket of each class, from the first on, in each repetition: unsigned (K, R)."""
    dtype = code_type(n_buckets)
    if not a and n_buckets == n_classes:
        return np.arange(n_classes, dtype=dtype)[:, None]
    out = np.empty((n_classes, len(a)), dtype)
    fill_codes(np.array(a, np.int64), np.array(b, np.int64), first, n_buckets, out)
    return out


@kernel()
def fill_codes(a: Array, b: Array, first: int, n_buckets: int, out: Array) -> None:
    """Write the codes of classes from one on: `a`, `b` int64 (R,), `out` unsigned (n, R)."""
    for i in range(out.shape[0]):
        for r in range(a.shape[0]):
            out[i, r] = ((a[r] * (first + i) + b[r]) % P) % n_buckets


def count_collisions(table: NDArray[np.unsignedinteger]) -> int:
    """Return how many pairs of classes have the same code in every repetition, exactly."""
    prints = np.empty(len(table), np.uint64)
    fingerprints(table, prints)
    order = np.argsort(prints)
    prints = prints[order]
    same = np.concatenate([[False], prints[1:] == prints[:-1], [False]])
    alike = table[order[same[1:] | same[:-1]]]  # of one fingerprint: hardly any, or very many
    counts = np.unique(alike, axis=0, return_counts=True)[1]
    return int((counts * (counts - 1) // 2).sum())


@kernel()
def fingerprints(table: Array, out: Array) -> None:
    """Write a 64-bit hash of each row of `table` (K, R) to `out` uint64 (K,)."""
    for y in range(table.shape[0]):
        state = np.uint64(0xCBF29CE484222325)
        for r in range(table.shape[1]):
            state = (state ^ np.uint64(table[y, r])) * np.uint64(0x9E3779B97F4A7C15)
            state ^= state >> np.uint64(29)
        out[y] = state


def collision_chance(n_classes: int, n_buckets: int, n_repetitions: int) -> float:
    """Return K^2 B^-R, which bounds the chance that some two classes cannot be told apart."""
    exponent = 2 * math.log(n_classes) - n_repetitions * math.log(n_buckets)
    return math.exp(min(exponent, 700.0))


def repetitions_for(n_classes: int, n_buckets: int, delta: float) -> int:
    """Return the fewest repetitions that tell all classes apart with probability 1 - delta.

    Huang et al., theorem 2: ``R >= 2 ln(K / sqrt(delta)) / ln B``.
    """
    if n_buckets >= n_classes:
        return 1
    return max(1, math.ceil(2 * math.log(n_classes / math.sqrt(delta)) / math.log(n_buckets)))
