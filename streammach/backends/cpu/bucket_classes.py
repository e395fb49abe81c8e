"""The classes of a bucket, listed in their order without a table of them.

With the inverse B' of B modulo p, ``((a y + b) mod p) mod B = c`` where

    (B' a y + B' (b - c)) mod p < ceil((p - c) / B),

since the number on the left is the t of ``(a y + b) mod p = c + B t``. From one class to the next
it turns by ``B' a`` modulo p, and is wanted in an interval that starts at 0. A turning point comes
back to an interval after one of two numbers of turns, or after both together (three gaps), so the
next class of a bucket takes an addition and two comparisons.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.hashing import P
from streammach.jit import Array, kernel

STATE = 8  # numbers that a walk through the classes of a bucket needs
CLASS, AT, WIDTH, STOP, UP, UP_CLASSES, DOWN, DOWN_CLASSES = range(STATE)


def turns(a: tuple[int, ...], b: tuple[int, ...], n_buckets: int) -> NDArray[np.int64]:
    """Return what walks through buckets need of R hashes.

    Parameters
    ----------
    a, b : tuple of int (R,)
        The coefficients, as :func:`streammach.hashing.draw` gives them.
    n_buckets : int
        B < p.

    Returns
    -------
    int64 (R, 3)
        ``B' a mod p``, ``B' b mod p`` and ``B'``.
    """
    inverse = pow(n_buckets, -1, P)
    found = [(x * inverse % P, y * inverse % P, inverse) for x, y in zip(a, b, strict=True)]
    return np.array(found, np.int64)


@kernel(fastmath=False, allocates=False)
def walk(turn: Array, bucket: int, n_buckets: int, first: int, last: int, state: Array) -> None:
    """Begin to list the classes ``first:last`` of a bucket.

    Parameters
    ----------
    turn : int64 (3,)
        The repetition's of :func:`turns`.
    bucket, n_buckets, first, last : int
        The bucket; B; the classes.
    state : int64 (8,)
        Receives what `listed` goes on from.
    """
    step, width = turn[0], (P - 1 - bucket) // n_buckets + 1
    # Two steps, up and down, and the classes that each takes; the larger is cut by the smaller
    # until both are shorter than the interval.
    up, up_classes, down, down_classes = step, 1, P - step, 1
    while up >= width or down >= width:
        if up > down:
            times = (up - width) // down + 1 if down < width else up // down
            up -= times * down
            up_classes += times * down_classes
        else:
            times = (down - width) // up + 1 if up < width else down // up
            down -= times * up
            down_classes += times * up_classes
    at = (first * step + turn[1] + (P - bucket * turn[2] % P)) % P
    i = first
    while at >= width and i < last:
        at += step
        at -= P if at >= P else 0
        i += 1
    state[CLASS], state[AT], state[WIDTH], state[STOP] = i, at, width, last
    state[UP], state[UP_CLASSES], state[DOWN], state[DOWN_CLASSES] = (
        up, up_classes, down, down_classes
    )  # fmt: skip


@kernel(fastmath=False, allocates=False)
def listed(state: Array, out: Array) -> Any:
    """Write the next classes of a bucket to `out` int64 (n,); return how many there were."""
    i, at, width, stop = state[CLASS], state[AT], state[WIDTH], state[STOP]
    up, up_classes, down, down_classes = (
        state[UP], state[UP_CLASSES], state[DOWN], state[DOWN_CLASSES]
    )  # fmt: skip
    n = 0
    while i < stop and n < out.shape[0]:
        out[n] = i
        n += 1
        if at < width - up:
            at += up
            i += up_classes
        elif at >= down:
            at -= down
            i += down_classes
        else:
            at += up - down
            i += up_classes + down_classes
    state[CLASS], state[AT] = i, at
    return n
