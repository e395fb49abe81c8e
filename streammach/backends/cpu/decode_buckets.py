"""Exact top-k classes of single rows: the classes of the best buckets alone, as long as that pays.

Buckets are taken one after another, and all their classes scored. With u_r the value of the best
bucket of model r that was not taken, a class of none that was has a score of at most
``u_0 + ... + u_(R-1)``. Both are added in the same order, and float32 additions never fall when
their numbers rise, so this bounds the very bits. Once the k-th best score is above it, the best
have been found (Fagin's threshold algorithm). The next bucket is the one after which the bound is
lowest. Where the k-th best is too far below it, all classes are scored: when an eighth of them was,
or after a quarter of these if bounds that fall twice as fast as the last one would not be enough.

The classes of a bucket are listed in their order without a table of them. With the inverse B' of B
modulo p, ``((a y + b) mod p) mod B = c`` where

    (B' a y + B' (b - c)) mod p < ceil((p - c) / B),

since the number on the left is the t of ``(a y + b) mod p = c + B t``. From one class to the next
it turns by ``B' a`` modulo p, and is wanted in an interval that starts at 0. A turning point comes
back to an interval after one of two numbers of turns, or after both together (three gaps), so the
next class of a bucket takes an addition and two comparisons.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammach.backends.cpu.decode import CodedClasses, decode_one, total
from streammach.hashing import P
from streammach.options.estimators import SUM
from streammach.options.model_spec import ModelSpec
from streammach.rows.arrays import offer_any
from streammach.system.jit import Array, kernel
from streammach.system.simd import prefetch

SHARE = 8  # at most an eighth of the classes: each takes three to six times as long here
AHEAD = 32  # classes whose codes are asked for together
GROUP = 32  # buckets whose largest value is kept
STATE = 8  # numbers that a walk through the classes of a bucket needs
CLASS, AT, WIDTH, STOP, UP, UP_CLASSES, DOWN, DOWN_CLASSES = range(STATE)


class BucketWalk(NamedTuple):
    """What a thread needs to walk through the buckets of a row."""

    turns: Array  # int64 (R, 3): see :func:`turns`
    hashed: int  # classes that are hashed; those after them were added
    left: Array  # float32 (R, B): scratch, the values of buckets that were not taken
    tops: Array  # float32 (R, ceil(B / 32)): scratch, the largest of each group of these
    values: Array  # float32 (R,): scratch, the value of the best bucket of each model
    next_values: Array  # float32 (R,): scratch, that of the one after it
    buckets: Array  # int64 (R,): scratch, the best buckets
    state: Array  # int64 (8,): scratch, the walk through one
    some: Array  # int64 (32,): scratch, classes of one

    @classmethod
    def of(cls, spec: ModelSpec) -> BucketWalk:
        """Return room for a model."""
        r, b = spec.n_repetitions, spec.n_buckets
        return cls(
            turns(spec.hash_a, spec.hash_b, b), spec.n_classes - len(spec.added_codes),
            *(np.empty(shape, np.float32) for shape in ((r, b), (r, -(-b // GROUP)), r, r)),
            *(np.empty(n, np.int64) for n in (r, STATE, AHEAD)),
        )  # fmt: skip


def turns(a: tuple[int, ...], b: tuple[int, ...], n_buckets: int) -> NDArray[np.int64]:
    """Return ``B' a mod p``, ``B' b mod p`` and ``B'`` of R hashes: int64 (R, 3)."""
    inverse = pow(n_buckets, -1, P)
    found = [(x * inverse % P, y * inverse % P, inverse) for x, y in zip(a, b, strict=True)]
    return np.array(found, np.int64)


@kernel(fastmath=False)
def walk(turn: Array, bucket: int, n_buckets: int, first: int, last: int, state: Array) -> None:
    """Begin to list the classes ``first:last`` of a bucket: `state` int64 (8,), `turn` (3,)."""
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


@kernel(fastmath=False)
def next_classes(state: Array, out: Array) -> Any:
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


@kernel(inline=True)
def best_of(values: Array) -> Any:
    """Return where the largest of float32 (n,) is, the first one."""
    found = 0
    for i in range(1, values.shape[0]):
        if values[i] > values[found]:
            found = i
    return found


@kernel(fastmath=False, inner=True)
def begin_walk(row: Array, walks: BucketWalk) -> None:
    """Copy the values of a row float32 (C,), and take the best bucket of each model."""
    left, tops = walks.left, walks.tops
    n_buckets = left.shape[1]
    for r in range(left.shape[0]):
        for c in range(n_buckets):
            left[r, c] = row[r * n_buckets + c]
        for g in range(tops.shape[1]):
            group = left[r, g * GROUP : (g + 1) * GROUP]
            tops[r, g] = group[best_of(group)]
        walks.buckets[r] = take(left[r], tops[r])
        walks.values[r] = row[r * n_buckets + walks.buckets[r]]
        walks.next_values[r] = tops[r, best_of(tops[r])]


@kernel(fastmath=False)
def take(left: Array, tops: Array) -> Any:
    """Return the best bucket of a model that was not taken, and take it: `left`, `tops`."""
    g = best_of(tops)
    group = left[g * GROUP : (g + 1) * GROUP]
    bucket = best_of(group)
    group[bucket] = -np.inf
    tops[g] = group[best_of(group)]
    return g * GROUP + bucket


@kernel(fastmath=False, inner=True)
def score_bucket(
    row: Array, model: CodedClasses, walks: BucketWalk, scores: Array, ids: Array
) -> Any:
    """Score the classes of a bucket, to which a walk began; return how many there were.

    Parameters
    ----------
    row, model, walks : float32 (C,), CodedClasses and BucketWalk
        The row; the classes; the walk.
    scores, ids : float32 (k,), int64 (k,)
        The k best so far.
    """
    some, more = walks.some, model.n_repetitions
    k, n, found = scores.shape[0], 0, some.shape[0]
    while found == some.shape[0]:
        found = next_classes(walks.state, some)
        for i in some[:found]:
            prefetch(model.codes, i * more)
            prefetch(model.codes, i * more + more - 1)
        for i in some[:found]:
            s = total(row, model, i)
            if s >= scores[k - 1]:
                offer_any(s, i, scores, ids)
        n += found
    return n


@kernel(fastmath=False, inner=True)
def decode_by_buckets(
    row: Array, model: CodedClasses, first: int, last: int, walks: BucketWalk, scores: Array,
    ids: Array,
) -> bool:  # fmt: skip
    """Find the k best of the hashed classes ``first:last`` of a row; return whether that paid.

    Parameters
    ----------
    row, model, first, last, walks : float32 (C,), CodedClasses, int and BucketWalk
        The row; the classes; scratch.
    scores, ids : float32 (k,), int64 (k,)
        The k best of other classes; receive those of all if it paid.
    """
    k, n_buckets, values, next_values = (
        scores.shape[0], model.n_buckets, walks.values, walks.next_values
    )  # fmt: skip
    each, most, n = (last - first) // n_buckets + 1, (last - first) // SHARE, 0
    if each > most:
        return False
    begin_walk(row, walks)
    while True:
        bound, taken, most_drop = values[0], 0, values[0] - next_values[0]
        for r in range(1, model.n_repetitions):
            bound += values[r]
            drop = values[r] - next_values[r]
            if drop > most_drop:
                taken, most_drop = r, drop
        if scores[k - 1] > bound or bound == -np.inf:
            return True
        allowed = (most - n) // each
        missing = bound - scores[k - 1]
        if allowed < 1 or (n * 4 >= most and missing > 2 * most_drop * allowed):
            return False
        walk(walks.turns[taken], walks.buckets[taken], n_buckets, first, last, walks.state)
        n += max(1, score_bucket(row, model, walks, scores, ids))
        values[taken] = next_values[taken]
        if values[taken] > -np.inf:
            tops = walks.tops[taken]
            walks.buckets[taken] = take(walks.left[taken], tops)
            next_values[taken] = tops[best_of(tops)]


@kernel(fastmath=False)
def decode_buckets(
    p: Array, model: CodedClasses, first: int, last: int, walks: BucketWalk, scores: Array,
    ids: Array,
) -> None:  # fmt: skip
    """Find the k best of the classes ``first:last`` for each row; all are scored but for SUM.

    Parameters
    ----------
    p : float32 (n, C)
        Finite probabilities or logarithms.
    model, first, last, walks : CodedClasses, int and BucketWalk
        The classes, class by class; scratch.
    scores, ids : float32 (n, k), int64 (n, k)
        Receive the k best, best first; -1 where there are no more.
    """
    for q in range(p.shape[0]):
        row, best, where = p[q], scores[q], ids[q]
        best[:], where[:] = -np.inf, -1
        if model.kind == SUM:
            for i in range(max(first, walks.hashed), last):
                offer_any(total(row, model, i), i, best, where)
            if decode_by_buckets(row, model, first, min(last, walks.hashed), walks, best, where):
                continue
        some = slice(q, q + 1)
        decode_one(p[some], model, first, last, walks.values, scores[some], ids[some])
