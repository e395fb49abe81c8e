"""Exact top-k classes on CUDA: every class is scored, and the choice is made while scoring.

- scan: a thread owns a set of ``4 * words`` classes and keeps the best of them for each row, as one
  64-bit key; the k best keys of a row name k sets.
- select: those sets hold the k best classes (before a class outside them come the bests of k sets),
  so their classes are scored again and the k best taken.

A key is the score's bits in an order that integers share, then the class: larger is better, and of
equal scores the smaller class. Scores are float32, summed over r = 0 .. R-1 in order as everywhere.

The median of R values is straight-line code: an array indexed by a loop's variable would lie in
memory of its own for each thread, named values stay in registers. Of Batcher's odd-even merge
network only what the middle wires depend on is kept, often half a comparator: 202 minima and maxima
for R = 25.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from streammach.backends.cuda.instructions import (
    bits_of,
    bucket_function,
    device,
    float_of,
    get,
    int64,
    put,
    warp_max,
)
from streammach.backends.cuda.launcher import cuda
from streammach.backends.cuda.shapes import WARP, ClassSets
from streammach.jit import Array, Number
from streammach.spec.estimators import MEDIAN, SUM

NO_KEY, ABOVE_ALL = int64(-(1 << 63)), int64((1 << 63) - 1)
SIGN, LAST_CLASS, LOW_WORD = int64(1 << 31), int64((1 << 31) - 1), int64((1 << 32) - 1)
UPPER = int64(32)  # bits that the class takes
WORST = np.float32(-np.inf)


@device
def key_of(score: Number, i: Number) -> Any:
    """Return the key of class `i` with float32 `score`; both zeros count as one."""
    # Signed on purpose: Numba makes float64 of int64 and uint64 together.
    bits = int64(bits_of(score))
    ordered = SIGN - bits if bits >= SIGN else bits  # -0.0 becomes 0
    return (ordered << UPPER) + (LAST_CLASS - i)


@device
def score_in(key: Number) -> Any:
    """Return the score that a key was made of."""
    ordered = key >> UPPER
    return float_of(np.uint32(SIGN - ordered if ordered < 0 else ordered))


def comparators(n: int) -> Iterator[tuple[int, int]]:
    """Yield the pairs i < j whose exchanges in turn sort n wires (Batcher, odd-even merge)."""
    size = 1
    while size < n:
        step = size
        while step >= 1:
            for low in range(step % size, n - step, 2 * step):
                for i in range(low, low + min(step, n - low - step)):
                    if i // (2 * size) == (i + step) // (2 * size):
                        yield i, i + step
            step //= 2
        size *= 2


def median_lines(n: int) -> tuple[list[str], str]:
    """Return statements over v0 .. v{n-1}, and the expression of their median after them."""
    # An even n gives the mean of the middle two.
    lower, upper = (n - 1) // 2, n // 2
    needed, kept = {lower, upper}, []
    for i, j in reversed(list(comparators(n))):
        wanted = (i in needed, j in needed)
        if any(wanted):
            kept.append((i, j, *wanted))
            needed |= {i, j}
    lines = []
    for i, j, low, high in reversed(kept):
        if low and high:
            lines.append(f"v{i}, v{j} = min(v{i}, v{j}), max(v{i}, v{j})")
        else:
            lines.append(f"v{i} = min(v{i}, v{j})" if low else f"v{j} = max(v{i}, v{j})")
    middle = f"v{upper}" if lower == upper else f"(v{upper} + v{lower}) * HALF"
    return lines, middle


def score_function(shape: ClassSets, kind: int) -> Callable[..., Any]:
    """Return ``score(p, first, codes, code_words, i)``: class i from one row's probabilities.

    Parameters
    ----------
    shape : ClassSets
        Buckets, models and codes.
    kind : int
        SUM, MINIMUM or MEDIAN.
    """
    B, R, bucket = shape.n_buckets, shape.n_repetitions, bucket_function(shape.code_bits)
    if kind == MEDIAN:
        lines, middle = median_lines(R)
        source = ["def score(p, first, codes, code_words, i):"]
        source += [
            f"v{r} = get(p, first + {r * B} + bucket(codes, {r} * code_words, i))" for r in range(R)
        ]
        names: dict[str, Any] = {"get": get, "bucket": bucket, "HALF": np.float32(0.5)}
        exec("\n    ".join([*source, *lines, f"return {middle}"]), names)
        made: Callable[..., Any] = device(names["score"])
        return made

    @device
    def score(p: Array, first: Number, codes: Array, code_words: Number, i: Number) -> Any:
        total = get(p, first + bucket(codes, 0, i))
        for r in range(1, R):
            x = get(p, first + r * B + bucket(codes, r * code_words, i))
            total = total + x if kind == SUM else min(total, x)
        return total

    return score


def scan_kernel(shape: ClassSets, kind: int) -> Callable[..., None]:
    """Return the kernel that finds each set's best; launched on (row groups, set groups) blocks.

    Parameters
    ----------
    shape : ClassSets
        Rows a block scores, classes a thread owns.
    kind : int
        SUM, MINIMUM or MEDIAN.
    """
    if kind == MEDIAN:
        return _median_scan_kernel(shape)
    B, R, bits, Q = shape.n_buckets, shape.n_repetitions, shape.code_bits, shape.rows
    columns, stride, T, words = B * R, shape.stride, shape.threads, shape.words
    staged, room, n_sums = shape.staged, shape.rows * B * R if shape.staged else 1, 4 * Q
    mask = (1 << bits) - 1
    per_word, second, third = 32 // bits, bits // 8 - 1, 16 if bits == 8 else 0
    start = np.float32(0 if kind == SUM else np.inf)
    step = columns if staged else 0

    def scan(
        p: Array, codes: Array, n_rows: int, n_classes: int, code_words: int, n_sets: int,
        keys: Array,
    ) -> None:  # fmt: skip
        """Write the key of the best class of each set for each row.

        Parameters
        ----------
        p : float32 (n_rows * stride,)
            Probabilities or their logarithms.
        codes : uint32 (R * code_words,)
            Packed buckets, model by model.
        n_rows, n_classes, code_words, n_sets : int
            Rows, K, words of a model's codes, and sets.
        keys : int64 (n_rows * n_sets,)
            Receives the keys.
        """
        t, q0 = int64(cuda.threadIdx.x), int64(cuda.blockIdx.x) * Q
        group = int64(cuda.blockIdx.y)
        shared = cuda.shared.array(room, np.float32)
        sums = cuda.local.array(n_sums, np.float32)
        best = cuda.local.array(Q, np.float32)
        who = cuda.local.array(Q, np.int32)
        table, base = p, min(q0, n_rows - 1) * stride
        if staged:
            table, base = shared, int64(0)
            for q in range(Q):
                row = min(q0 + q, n_rows - 1) * stride
                for c in range(t, columns, T):
                    put(shared, q * columns + c, get(p, row + c))
            cuda.syncthreads()
        for q in range(Q):
            best[q] = WORST
            who[q] = np.int32(-1)
        for s in range(words):
            i = ((group * words + s) * T + t) * 4
            if i < n_classes:
                for q in range(n_sums):
                    sums[q] = start
                for r in range(R):  # the four classes by hand: nested loops may leave registers
                    at = r * code_words + i // per_word
                    w0, w1 = get(codes, at), get(codes, at + second)
                    o0 = base + r * B + (int64(w0) & mask)
                    o1 = base + r * B + (int64(w0 >> np.uint32(bits)) & mask)
                    o2 = base + r * B + (int64(w1 >> np.uint32(third)) & mask)
                    o3 = base + r * B + (int64(w1 >> np.uint32(third + bits)) & mask)
                    for q in range(Q):
                        x0, x1 = get(table, q * step + o0), get(table, q * step + o1)
                        x2, x3 = get(table, q * step + o2), get(table, q * step + o3)
                        if kind == SUM:
                            sums[q] += x0
                            sums[Q + q] += x1
                            sums[2 * Q + q] += x2
                            sums[3 * Q + q] += x3
                        else:
                            sums[q] = min(sums[q], x0)
                            sums[Q + q] = min(sums[Q + q], x1)
                            sums[2 * Q + q] = min(sums[2 * Q + q], x2)
                            sums[3 * Q + q] = min(sums[3 * Q + q], x3)
                for q in range(Q):
                    if sums[q] > best[q] or who[q] < 0:
                        best[q], who[q] = sums[q], np.int32(i)
                    if sums[Q + q] > best[q] and i + 1 < n_classes:
                        best[q], who[q] = sums[Q + q], np.int32(i + 1)
                    if sums[2 * Q + q] > best[q] and i + 2 < n_classes:
                        best[q], who[q] = sums[2 * Q + q], np.int32(i + 2)
                    if sums[3 * Q + q] > best[q] and i + 3 < n_classes:
                        best[q], who[q] = sums[3 * Q + q], np.int32(i + 3)
        for q in range(Q):
            if q0 + q < n_rows:
                key = NO_KEY
                if who[q] >= 0:
                    key = key_of(best[q], int64(who[q]))
                put(keys, (q0 + q) * n_sets + group * T + t, key)

    return scan


def _median_scan_kernel(shape: ClassSets) -> Callable[..., None]:
    """Return the scan of the median: one row a block, R values of a class in registers."""
    assert shape.rows == 1, shape
    columns, stride, T, words = (
        shape.n_buckets * shape.n_repetitions, shape.stride, shape.threads, shape.words,
    )  # fmt: skip
    staged, room = shape.staged, columns if shape.staged else 1
    score = score_function(shape, MEDIAN)

    def scan(
        p: Array, codes: Array, n_rows: int, n_classes: int, code_words: int, n_sets: int,
        keys: Array,
    ) -> None:  # fmt: skip
        """Write the key of the best class of each set for each row, as that of the other kinds."""
        t, q, group = (
            int64(cuda.threadIdx.x), int64(cuda.blockIdx.x), int64(cuda.blockIdx.y),
        )  # fmt: skip
        shared = cuda.shared.array(room, np.float32)
        table, base = p, q * stride
        if staged:
            table, base = shared, int64(0)
            for c in range(t, columns, T):
                put(shared, c, get(p, q * stride + c))
            cuda.syncthreads()
        key = NO_KEY
        for e in range(4 * words):
            i = ((group * words + e // 4) * T + t) * 4 + e % 4
            if i < n_classes:
                key = max(key, key_of(score(table, base, codes, code_words, i), i))
        put(keys, q * n_sets + group * T + t, key)

    return scan


@device
def best_of_block(key: Number, scratch: Array, warps: int) -> Any:
    """Return the largest key of a block; `scratch` int64 (warps,) is shared memory."""
    key = warp_max(key)
    t = int64(cuda.threadIdx.x)
    if t % WARP == 0:
        put(scratch, t // WARP, key)
    cuda.syncthreads()
    for w in range(warps):
        key = max(key, get(scratch, w))
    cuda.syncthreads()
    return key


def select_kernel(shape: ClassSets, kind: int) -> Callable[..., None]:
    """Return the kernel that finds the k best classes of a row; launched on one block a row.

    Parameters
    ----------
    shape : ClassSets
        The shape that the scan had.
    kind : int
        SUM, MINIMUM or MEDIAN.
    """
    stride, T, words = shape.stride, shape.threads, shape.words
    size, warps = 4 * words, T // WARP
    score = score_function(shape, kind)

    def select(
        p: Array, codes: Array, keys: Array, n_classes: int, code_words: int, n_sets: int, k: int,
        candidates: Array, scores: Array, ids: Array,
    ) -> None:  # fmt: skip
        """Write the k best classes of a row and their scores, best first.

        Parameters
        ----------
        p : float32 (n_rows * stride,)
            What was scanned.
        codes : uint32 (R * code_words,)
            Packed buckets, model by model.
        keys : int64 (n_rows * n_sets,)
            What the scan found.
        n_classes, code_words, n_sets, k : int
            K, words of a model's codes, sets, and how many are wanted, at most K.
        candidates : int64 (n_rows * k * 4 * words,)
            Scratch.
        scores, ids : float32 (n_rows * k,), int64 (n_rows * k,)
            Receive the result.
        """
        q, t = int64(cuda.blockIdx.x), int64(cuda.threadIdx.x)
        scratch = cuda.shared.array(warps, np.int64)
        last = ABOVE_ALL
        for j in range(k):  # the j-th best set and its classes
            best = NO_KEY
            for s in range(t, n_sets, T):
                x = get(keys, q * n_sets + s)
                if x < last:
                    best = max(best, x)
            best = best_of_block(best, scratch, warps)
            last = best
            leader = LAST_CLASS - (best & LOW_WORD)
            group, owner = leader // (4 * T * words), leader // 4 % T
            for e in range(t, size, T):
                i = ((group * words + e // 4) * T + owner) * 4 + e % 4
                key = NO_KEY
                if best != NO_KEY and i < n_classes:
                    key = key_of(score(p, q * stride, codes, code_words, i), i)
                put(candidates, (q * k + j) * size + e, key)
        cuda.syncthreads()
        last = ABOVE_ALL
        for j in range(k):
            best = NO_KEY
            for e in range(t, k * size, T):
                x = get(candidates, q * k * size + e)
                if x < last:
                    best = max(best, x)
            best = best_of_block(best, scratch, warps)
            last = best
            if t == 0:
                put(ids, q * k + j, LAST_CLASS - (best & LOW_WORD))
                put(scores, q * k + j, score_in(best))

    return select
