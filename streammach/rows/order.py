"""Random orders that are pure functions of integers, the same in every version of every library."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def _mix(z: NDArray[np.uint64]) -> None:
    """Replace numbers by their splitmix64 hashes: one more array of their size is taken."""
    with np.errstate(over="ignore"):
        z += np.uint64(0x9E3779B97F4A7C15)
        shifted = z >> np.uint64(30)
        z ^= shifted
        z *= np.uint64(0xBF58476D1CE4E5B9)
        z ^= np.right_shift(z, np.uint64(27), out=shifted)
        z *= np.uint64(0x94D049BB133111EB)
        z ^= np.right_shift(z, np.uint64(31), out=shifted)


def keys(*parts: int | NDArray[np.integer]) -> NDArray[np.uint64]:
    """Return random keys that depend on all parts: integers of 0 or more, or arrays of them.

    `*parts` is int or integer array (n,). Returns uint64 (n,).
    """
    state = np.zeros(1, np.uint64)
    with np.errstate(over="ignore"):
        for part in parts:
            mixed = np.array(part, np.uint64, ndmin=1)
            if len(mixed) == len(state) or len(state) == 1:
                mixed += state
            else:
                mixed = state + mixed
            _mix(mixed)
            state = mixed
    return state


def permutation(n: int, *parts: int) -> NDArray[np.int64]:
    """Return a random order of ``range(n)`` that depends on the parts: int64 (n,)."""
    return np.argsort(keys(*parts, np.arange(n)), kind="stable")
