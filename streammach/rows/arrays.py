"""What is asked of arrays of any origin: orders, whether they are sparse, their largest.

Random orders are pure functions of integers, the same in every version of every library.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.system.jit import Array, Number, kernel


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
    """Return random keys uint64 (n,) by all parts: integers of 0 or more, or arrays (n,)."""
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


def sum_lists(starts: NDArray[np.int64], values: NDArray[Any]) -> NDArray[Any]:
    """Return the sum of each list's values, of hashes modulo 2^64: (n,)."""
    sums = np.append(values[:0].sum(), np.cumsum(values))
    return np.diff(sums[starts])


def permutation(n: int, *parts: int) -> NDArray[np.int64]:
    """Return a random order of ``range(n)`` that depends on the parts: int64 (n,)."""
    return np.argsort(keys(*parts, np.arange(n)))  # no two are the same: any sort gives one order


def ranges_that_fit(*limits: tuple[NDArray[np.integer], int]) -> Iterator[tuple[int, int]]:
    """Yield ranges of items, as wide as limits let them be: what is before each, and the most.

    An item that is beyond a limit is a range of its own; behind the last one that holds something
    there is none.
    """
    first, n = 0, len(limits[0][0]) - 1
    while first < n and any(before[first] < before[-1] for before, _ in limits):
        ends = (np.searchsorted(x, x[first] + most, "right") for x, most in limits)
        end = max(first + 1, int(min(ends)) - 1)
        yield first, end
        first = end


SORTED_CELLS = 1 << 18  # scores of all classes that are sorted at a time
SORTED_SHARE = 128  # of k * k, from which on to sort K scores costs less than to insert the k best
MOST_SORTED = 1 << 20  # classes: 50 MB of a row


def many(k: int, n_classes: int) -> bool:
    """Return whether the k best of all classes had better be sorted than inserted one by one."""
    return n_classes <= MOST_SORTED and k * k > SORTED_SHARE * n_classes


def best_first(
    ids: NDArray[np.int64], scores: NDArray[np.float32], k: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the k best of ids (n, m) by scores (n, m), and these; of equal ones the first."""
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(ids, order, axis=1), np.take_along_axis(scores, order, axis=1)


def find_repeated(ids: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Return which of ids (n, m) stand further left in their row, too: bool (n, m)."""
    order = np.argsort(ids, axis=1, kind="stable")
    alike = np.diff(np.take_along_axis(ids, order, axis=1), axis=1) == 0
    found = np.zeros(ids.shape, np.bool_)
    np.put_along_axis(found, order[:, 1:], alike, axis=1)
    return found


def is_sparse(rows: Any) -> bool:
    """Return whether `rows` is a sparse matrix or array of SciPy."""
    # Without the module there is none, nor while another thread imports it.
    issparse = getattr(sys.modules.get("scipy.sparse"), "issparse", None)
    return issparse is not None and bool(issparse(rows))


def csr_array(*given: Any, **options: Any) -> Any:
    """Return what :class:`scipy.sparse.csr_array` makes of its arguments."""
    import scipy.sparse

    return scipy.sparse.csr_array(*given, **options)


ALL, NO_SIGN = np.uint32(0xFFFFFFFF), np.uint32(0x7FFFFFFF)  # of the bits of a word
MOST_IMPORTANCE = 1e9  # of a row: as often as any row is there, and its square fits float32
INFINITE = 0x7F800000  # what a float32 that is no finite number has there at least


def fetch_array(values: Any) -> Any:
    """Return a tensor of PyTorch, from any device, as an array or a matrix; else what came."""
    if isinstance(values, type) or not hasattr(values, "to_sparse_csr"):
        return values
    values = values.detach().cpu()
    if "sparse" in str(values.layout):
        values = values.to_sparse_csr()
        parts = map(fetch_array, (values.values(), values.col_indices(), values.crow_indices()))
        return csr_array(tuple(parts), shape=tuple(values.shape))
    return (values.float() if "bfloat16" in str(values.dtype) else values).numpy()


def look_at_ids(ids: NDArray[np.int32]) -> tuple[int, int]:
    """Return the largest of ids int32 (n,), 0 of none, and at how many places they do not rise."""
    largest = ids.view(np.uint32).max(initial=0)  # negative ids count as large ones
    return int(largest), int(np.count_nonzero(ids[1:] <= ids[:-1]))


@kernel()
def look_at_numbers(numbers: Array, kept: Number) -> Any:
    """Return the largest of the bits of float32 (n,), of those in `kept`."""
    words, largest = numbers.view(np.uint32), np.uint32(0)
    for p in range(words.shape[0]):
        largest = max(largest, words[p] & kept)
    return np.int64(largest)


SHORT = 16  # numbers that are put in their places one by one
DEPTH = 64  # parts that wait: each is at most half as long as the one before


@kernel(fastmath=False, inner=True, allocates=True)
def sort_numbers(numbers: Array) -> None:
    """Sort numbers (n,) in place."""
    # Numba's own `sort` is compiled anew for each kernel that calls it, which takes seconds; so
    # does a function that calls itself.
    first, last, n = 0, numbers.shape[0] - 1, 0
    if last >= SHORT:
        waiting = np.empty((DEPTH, 2), np.int64)
        while n > 0 or last - first >= SHORT:
            if last - first < SHORT:
                n -= 1
                first, last = waiting[n, 0], waiting[n, 1]
                continue
            low, high = first, last
            pivot = middle_of(numbers[low], numbers[(low + high) // 2], numbers[high])
            while low <= high:
                while numbers[low] < pivot:
                    low += 1
                while numbers[high] > pivot:
                    high -= 1
                if low <= high:
                    numbers[low], numbers[high] = numbers[high], numbers[low]
                    low += 1
                    high -= 1
            if high - first < last - low:  # the longer part waits
                waiting[n, 0], waiting[n, 1], last = low, last, high
            else:
                waiting[n, 0], waiting[n, 1], first = first, high, low
            n += 1
    sort_few(numbers)  # each is near its place


@kernel(inline=True)
def sort_few(numbers: Array) -> None:
    """Sort a few numbers (n,), or ones near their places, in place, one by one."""
    for p in range(1, numbers.shape[0]):
        number, q = numbers[p], p
        while q > 0 and numbers[q - 1] > number:
            numbers[q] = numbers[q - 1]
            q -= 1
        numbers[q] = number


@kernel(inline=True)
def middle_of(a: Number, b: Number, c: Number) -> Any:
    """Return the number between two others."""
    return max(min(a, b), min(max(a, b), c))


@kernel(fastmath=False, inline=True, inner=True)
def lower_bound(numbers: Array, low: int, high: int, wanted: Number) -> Any:
    """Return where the first of ``numbers[low:high]`` stands that is not below `wanted`."""
    while low < high:
        middle = (low + high) >> 1
        if numbers[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@kernel(fastmath=False, inline=True, inner=True)
def insert(s: Number, i: Number, scores: Array, ids: Array) -> None:
    """Put an id with its score into the k best, behind its equals; the last one drops out."""
    # `scores` float32 (k,) and `ids` int (k,) are sorted, best first, here and below.
    j = scores.shape[0] - 1
    while j > 0 and s > scores[j - 1]:
        scores[j], ids[j] = scores[j - 1], ids[j - 1]
        j -= 1
    scores[j], ids[j] = s, i


@kernel(fastmath=False, inner=True)
def offer(s: Number, i: Number, scores: Array, ids: Array) -> None:
    """Insert an id into the k best, if it belongs there; of equal scores the first stays first."""
    if s > scores[scores.shape[0] - 1]:
        insert(s, i, scores, ids)


@kernel(fastmath=False, inner=True)
def offer_any(s: Number, i: Number, scores: Array, ids: Array) -> None:
    """Insert an id into the k best, if it belongs there and is not there; ids come in any order."""
    # Of equal scores the smaller id is first.
    j = scores.shape[0] - 1
    if s < scores[j] or (s == scores[j] and i > ids[j]):
        return
    for known in ids:
        if known == i:
            return
    while j > 0 and (s > scores[j - 1] or (s == scores[j - 1] and i < ids[j - 1])):
        scores[j], ids[j] = scores[j - 1], ids[j - 1]
        j -= 1
    scores[j], ids[j] = s, i
