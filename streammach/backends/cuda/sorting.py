"""A stable radix sort of a batch's entries by feature, in kernels that ask the host for nothing.

A library's sort takes memory in every call and more time of the host than the kernels of a step.
Here a pass over some bits of the features is two launches: blocks count their digits, then each
finds by the counts of all blocks where its entries go. A warp holds entries that follow one
another, and lanes with equal digits keep their order, so that the result is the same for any grid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from streammach.backends.cuda.device_memory import DeviceArray, DeviceMemory, Sizes
from streammach.backends.cuda.instructions import int64, lanes_below
from streammach.backends.cuda.launcher import Kernel
from streammach.backends.cuda.shapes import MOST_THREADS, WARP, rounded_up
from streammach.backends.cuda.toolchain import (
    cuda,
    device,
    first_lane,
    from_lane,
    get,
    peers,
    popc,
    put,
)
from streammach.system.jit import Array, Number

DIGIT_BITS = 8  # at most, of a pass
BINS = 1 << DIGIT_BITS
PLACES = BINS * MOST_THREADS // WARP  # of the warps of a block
MOST_BLOCKS = 128  # whose counts every block reads; as many on every card, for the ledger
LINE = "batch by features"
ONE = np.int32(1)


@device
def key_at(keys: Array, rows: Array, first: Number, n: Number, last: Number, p: Number) -> Any:
    """Return what entry `p` is sorted by: its feature, and `last` where there is no entry."""
    key = int64(last)
    if p < n and (first == 0 or get(rows, p) >= 0):
        key = int64(get(keys, p))
    return key


def count_digits(
    keys: Array, rows: Array, first: Number, n: Number, last: Number, shift: Number,
    bits: Number, each: Number, counts: Array,
) -> None:  # fmt: skip
    """Count the digits of the entries of each block.

    Parameters
    ----------
    keys, rows, first, n : int32 (n,), int32 (n,), int, int
        Features; in the first pass those of a slot, with their rows: -1 where there is no entry.
    last : int
        The key of those, behind all.
    shift, bits, each : int
        A digit is so many bits from `shift` on; entries of a block.
    counts : int32 (blocks * 2^bits,)
        Receives the counts, block by block.
    """
    block, t, threads = int64(cuda.blockIdx.x), int64(cuda.threadIdx.x), int64(cuda.blockDim.x)
    bins = int64(1) << bits
    sums = cuda.shared.array(BINS, np.int32)
    for b in range(t, bins, threads):
        put(sums, b, np.int32(0))
    cuda.syncthreads()
    for p in range(block * each + t, min(n, block * each + each), threads):
        digit = key_at(keys, rows, first, n, last, p) >> shift & (bins - 1)
        cuda.atomic.add(sums, digit, ONE)
    cuda.syncthreads()
    for b in range(t, bins, threads):
        put(counts, block * bins + b, get(sums, b))


def scatter_digits(
    keys: Array, rows: Array, first: Number, n: Number, last: Number, shift: Number,
    bits: Number, each: Number, counts: Array, order: Array, values: Array, final: Number,
    nnz: Number, out_keys: Array, out_order: Array, out_rows: Array, out_values: Array,
) -> None:  # fmt: skip
    """Bring entries into the order of a digit; entries of equal digits stay as they were.

    Parameters
    ----------
    keys, rows, first, n, last, shift, bits, each, counts : int32, int32, int, ..., int32
        As for :func:`count_digits`, which counted; `each` is a multiple of the block's threads.
    order, values : int32 (n,), float32
        Places in the slot, not read in the first pass; the slot's values.
    final, nnz : int, int
        Whether the last pass writes rows and values in place of places; entries that are there.
    out_keys, out_order, out_rows, out_values : int32 (n,), int32 (n,), int32 (nnz,), float32 (nnz,)
        Receive the entries.
    """
    block, t, threads = int64(cuda.blockIdx.x), int64(cuda.threadIdx.x), int64(cuda.blockDim.x)
    warp, lane, bins, mine = t // WARP, t % WARP, int64(1) << bits, each // threads * WARP
    total = cuda.shared.array(BINS, np.int32)
    before = cuda.shared.array(BINS, np.int32)
    places = cuda.shared.array(PLACES, np.int32)  # of each warp, where a digit's next one is
    for b in range(t, bins, threads):
        put(total, b, np.int32(0))
        put(before, b, np.int32(0))
    for i in range(t, bins * (threads // WARP), threads):
        put(places, i, np.int32(0))
    cuda.syncthreads()
    for i in range(t, int64(cuda.gridDim.x) * bins, threads):
        cuda.atomic.add(total, i & (bins - 1), get(counts, i))
        if i < block * bins:
            cuda.atomic.add(before, i & (bins - 1), get(counts, i))
    begin = block * each + warp * mine
    for p in range(begin + lane, min(n, begin + mine), WARP):
        digit = key_at(keys, rows, first, n, last, p) >> shift & (bins - 1)
        cuda.atomic.add(places, warp * bins + digit, ONE)
    cuda.syncthreads()
    for b in range(t, bins, threads):
        at = get(before, b)
        for j in range(b):
            at += get(total, j)
        for w in range(threads // WARP):
            count = get(places, w * bins + b)
            put(places, w * bins + b, np.int32(at))
            at += count
    cuda.syncthreads()
    for p in range(begin + lane, begin + mine + lane, WARP):
        key = key_at(keys, rows, first, n, last, p)
        digit = key >> shift & (bins - 1) if p < n else bins
        same = peers(digit, bits + 1)
        earlier = popc(same & lanes_below(lane))
        # One lane asks for all that have its digit: whoever asks next has its answer behind it.
        at = np.int32(0)
        if p < n and earlier == 0:
            at = cuda.atomic.add(places, warp * bins + digit, np.int32(popc(same)))
        q = int64(from_lane(at, first_lane(same))) + earlier
        if p < n:
            place = p if first else int64(get(order, p))
            put(out_keys, q, np.int32(key))
            if final == 0:
                put(out_order, q, np.int32(place))
            elif q < nnz:
                put(out_rows, q, get(rows, place))
                put(out_values, q, get(values, place))


@lru_cache
def _kernel(function: Callable[..., None]) -> Any:
    return Kernel(function, (MOST_THREADS, 1))


class FeatureSort:
    """Fixed room for sorting a batch's entries by feature; features are below `last`, d."""

    def __init__(self, memory: DeviceMemory, n_entries: int, last: int) -> None:
        self._memory, self._last = memory, last
        self._passes = max(-(-last.bit_length() // DIGIT_BITS), 1)
        self._bits = -(-last.bit_length() // self._passes)
        sizes: Sizes = dict.fromkeys(("keys", "order"), (n_entries, np.int32))
        rooms = range(min(self._passes, 2))  # of passes in turn
        self._rooms = [tuple(memory.rooms(sizes, LINE).values()) for _ in rooms]
        self._counts = memory.empty(MOST_BLOCKS * BINS, np.int32, LINE)

    def sort(
        self, entries: Mapping[str, DeviceArray], n: int, nnz: int, rows: DeviceArray,
        values: DeviceArray,
    ) -> DeviceArray:  # fmt: skip
        """Sort a slot's n entries, `nnz` of them there, to rows and values; return features."""
        memory, features = self._memory, entries["features"]
        room: tuple[DeviceArray, ...] = (features, features)
        threads = min(MOST_THREADS, memory.most_threads)
        each = max(rounded_up(-(-n // min(MOST_BLOCKS, memory.blocks(1))), threads), threads)
        blocks = max(-(-n // each), 1)
        for i in range(self._passes):
            (keys, order), room = room, self._rooms[i % 2]
            digits = (
                keys, entries["rows"], int(i == 0), n, self._last, i * self._bits, self._bits,
                each, self._counts,
            )  # fmt: skip
            memory.launch(_kernel(count_digits), blocks, threads, *digits)
            memory.launch(
                _kernel(scatter_digits), blocks, threads, *digits, order, entries["values"],
                int(i == self._passes - 1), nnz, *room, rows, values,
            )  # fmt: skip
        return room[0]
