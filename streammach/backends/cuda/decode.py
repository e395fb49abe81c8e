"""Exact top-k classes on CUDA: every class is scored, and the choice is made while scoring.

- scan: a thread owns a set of ``4 * words`` classes and keeps the best of them for each row, as one
  64-bit key; the k best keys of a row name k sets.
- select: those sets hold the k best classes (before a class outside them come the bests of k sets),
  so their classes are scored again and the k best taken.

A key is the score's bits in an order that integers share, then the class: larger is better, and of
equal scores the smaller class. Scores are float32, summed over r = 0 .. R-1 in order as everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.backends.cuda.device_memory import UNIT, DeviceArray, DeviceMemory, Sizes
from streammach.backends.cuda.instructions import bucket_function, int64
from streammach.backends.cuda.launcher import Kernel
from streammach.backends.cuda.shapes import WARP, ClassSets, decode_shape
from streammach.backends.cuda.toolchain import bits_of, cuda, device, float_of, get, put, warp_max
from streammach.options.estimators import MEDIAN, SUM
from streammach.options.model_spec import ModelShape
from streammach.system.jit import Array, Number

NO_KEY, ABOVE_ALL = int64(-(1 << 63)), int64((1 << 63) - 1)
SIGN, LAST_CLASS, LOW_WORD = int64(1 << 31), int64((1 << 31) - 1), int64((1 << 32) - 1)
UPPER = int64(32)  # bits that the class takes
WORST, HALF = np.float32(-np.inf), np.float32(0.5)
WORK_BYTES = 64 << 20  # of keys and candidates at once
MOST_ROWS = 1024  # scored at once


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
    # Named values stay in registers, where an array that a loop indexes would not. Only what the
    # middle wires depend on is kept, often half a comparator. Of an even n it is the middle two's.
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


def median_function(shape: ClassSets) -> Callable[..., Any]:
    """Return ``median(p, first, codes, code_words, i)`` of class i, by a network in registers."""
    B, R = shape.n_buckets, shape.n_repetitions
    lines, middle = median_lines(R)
    source = ["def median(p, first, codes, code_words, i):"]
    source += [
        f"v{r} = get(p, first + {r * B} + bucket(codes, {r} * code_words, i))" for r in range(R)
    ]
    names: dict[str, Any] = {"get": get, "HALF": HALF, "bucket": bucket_function(shape.code_bits)}
    exec("\n    ".join([*source, *lines, f"return {middle}"]), names)
    made: Callable[..., Any] = device(names["median"])
    return made


def score_function(shape: ClassSets, kind: int) -> Callable[..., Any]:
    """Return ``score(p, first, codes, code_words, i)``: class i by a kind of score."""
    if kind == MEDIAN:
        return median_function(shape)
    B, R, bucket = shape.n_buckets, shape.n_repetitions, bucket_function(shape.code_bits)

    @device
    def score(p: Array, first: Number, codes: Array, code_words: Number, i: Number) -> Any:
        total = get(p, first + bucket(codes, 0, i))
        for r in range(1, R):
            x = get(p, first + r * B + bucket(codes, r * code_words, i))
            total = total + x if kind == SUM else min(total, x)
        return total

    return score


def scan_kernel(shape: ClassSets, kind: int) -> Callable[..., None]:
    """Return the kernel that finds each set's best; launched on (row groups, set groups) blocks."""
    assert kind != MEDIAN or shape.rows == 1, shape
    B, R, bits, Q = shape.n_buckets, shape.n_repetitions, shape.code_bits, shape.rows
    columns, stride, T, words = B * R, shape.stride, shape.threads, shape.words
    staged, room, n_sums = shape.staged, shape.rows * B * R if shape.staged else 1, 4 * Q
    mask = (1 << bits) - 1
    per_word, second, third = 32 // bits, bits // 8 - 1, 16 if bits == 8 else 0
    start = np.float32(0 if kind == SUM else np.inf)
    step = columns if staged else 0
    median: Any = median_function(shape) if kind == MEDIAN else None

    def scan(
        p: Array, codes: Array, n_rows: int, n_classes: int, code_words: int, n_sets: int,
        keys: Array,
    ) -> None:  # fmt: skip
        """Write the key of the best class of each set for each row.

        Parameters
        ----------
        p, codes : float32 (n_rows * stride,), uint32 (R * code_words,)
            Probabilities or their logarithms; packed buckets, model by model.
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
            if kind == MEDIAN:  # R values of a class in registers
                for j in range(i, min(i + 4, n_classes)):
                    x = median(table, base, codes, code_words, j)
                    if x > best[0] or who[0] < 0:
                        best[0], who[0] = x, np.int32(j)
            elif i < n_classes:
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
    """Return the kernel that finds the k best classes of a row; launched on one block a row."""
    stride, T, words = shape.stride, shape.threads, shape.words
    size, warps = 4 * words, T // WARP
    score = score_function(shape, kind)

    def select(
        p: Array, codes: Array, keys: Array, n_classes: int, code_words: int, n_sets: int,
        k: int, candidates: Array, scores: Array, ids: Array,
    ) -> None:  # fmt: skip
        """Write the k best classes of a row and their scores, best first.

        Parameters
        ----------
        p, codes, keys, n_classes, code_words, n_sets : float32, uint32, int64, int, int, int
            As for the scan, which wrote the keys.
        k, candidates : int, int64 (n_rows * k * 4 * words,)
            How many are wanted, at most K; scratch.
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


@lru_cache(maxsize=32)
def _kernels(shape: ClassSets, kind: int) -> tuple[Any, Any]:
    """Return scan and select."""
    makers = scan_kernel, select_kernel
    scan, select = (Kernel(make(shape, kind), shape.bounds) for make in makers)
    return scan, select


def _class_sets(spec: ModelShape, kind: int, sets: tuple[int, int]) -> ClassSets:
    return decode_shape(
        spec.n_buckets, spec.n_repetitions, spec.n_classes, one_row=kind == MEDIAN, words=sets[0],
        threads=sets[1],
    )  # fmt: skip


def _row_sizes(shape: ClassSets, k: int) -> Sizes:
    """Return the elements of the buffers of one row."""
    return {
        "keys": (shape.n_sets, np.int64), "candidates": (k * 4 * shape.words, np.int64),
        "scores": (k, np.float32), "ids": (k, np.int64),
    }  # fmt: skip


def _row_bytes(shape: ClassSets, k: int) -> int:
    return sum(int(np.dtype(dtype).itemsize) * n for n, dtype in _row_sizes(shape, k).values())


class CudaDecoder:
    """Finds the best classes of rows whose probabilities lie on the device.

    The codes uint32 (R * code_words,) are the packed buckets of each class.
    """

    def __init__(self, memory: DeviceMemory, spec: ModelShape, codes: DeviceArray) -> None:
        self._memory, self._spec, self._codes = memory, spec, codes
        self._buffers: dict[str, DeviceArray] = {}
        # The most, for a k whose single row fits.
        row = _row_bytes(_class_sets(spec, SUM, DeviceMemory.class_sets), spec.n_classes)
        memory.reserve(min(WORK_BYTES, MOST_ROWS * row) + 4 * UNIT, "decode")

    def best(
        self, p: DeviceArray, kind: int, scores: NDArray[np.float32], ids: NDArray[np.int64]
    ) -> None:
        """Write the best classes int64 (n, k) and what they were ranked by float32 (n, k)."""
        for start, stop, some_scores, some_ids in self.some_best(p, kind, *ids.shape):
            self._memory.fetch(scores[start:stop].reshape(-1), some_scores)
            self._memory.fetch(ids[start:stop].reshape(-1), some_ids)

    def some_best(
        self, p: DeviceArray, kind: int, n: int, k: int
    ) -> Iterator[tuple[int, int, DeviceArray, DeviceArray]]:
        """Yield the best classes of some rows after others; each lasts until the next."""
        # `p` is float32 (n * stride,), probabilities or their logarithms. Each time that is which
        # rows, and float32 and int64 (rows * k,): what they were ranked by, and the classes.
        memory = self._memory
        shape = _class_sets(self._spec, kind, memory.class_sets)
        scan, select = _kernels(shape, kind)
        most = self._make_room(shape, k)
        buffers, sizes = self._buffers, (shape.n_classes, shape.code_words, shape.n_sets)
        for start in range(0, n, most):
            rows = min(most, n - start)
            some = memory.view(p, start * shape.stride, rows * shape.stride)
            memory.launch(
                scan, (-(-rows // shape.rows), shape.n_sets // shape.threads), shape.threads, some,
                self._codes, rows, *sizes, buffers["keys"],
            )  # fmt: skip
            memory.launch(
                select, rows, shape.threads, some, self._codes, buffers["keys"], *sizes, k,
                buffers["candidates"], buffers["scores"], buffers["ids"],
            )  # fmt: skip
            yield start, start + rows, buffers["scores"], buffers["ids"]

    def _make_room(self, shape: ClassSets, k: int) -> int:
        """Make room for rows of k classes; return for how many at once."""
        rows = max(1, min(MOST_ROWS, WORK_BYTES // _row_bytes(shape, k)))
        sizes = {name: (rows * n, t) for name, (n, t) in _row_sizes(shape, k).items()}
        room = self._buffers
        if not room or any(len(room[name].values) < n for name, (n, _) in sizes.items()):
            self._buffers = room = {}  # what is there goes before something else comes
            self._memory.trim()  # also from the pool, whose free blocks would be too small
            self._buffers = self._memory.rooms(sizes)
        return rows
