"""Steps on sparse rows: entries sorted by feature on the device, and cut into items.

The host would need 19 ns for a value (measured). Items are cut where the feature changes and at
every multiple of a segment: warps count what begins among their entries, and then each knows where
its own go, so that nothing waits for a number on the host and the bits are those of a plain loop.
"""

from __future__ import annotations

from itertools import cycle
from typing import Any

import numpy as np

from streammach.backends.cuda.device_memory import DeviceArray, DeviceMemory, Sizes
from streammach.backends.cuda.group import ModelGroup, Rule, Segments
from streammach.backends.cuda.instructions import int64, ones, striding
from streammach.backends.cuda.losses import CudaSteps
from streammach.backends.cuda.shapes import CHUNK, RESIDENT, THREADS, WARP, rounded_up, stride_of
from streammach.backends.cuda.sorting import LINE, FeatureSort
from streammach.backends.cuda.toolchain import cuda, device, get, put, warp_sum
from streammach.backends.cuda.transfers import N_SLOTS, BufferRoom, DeviceRows, TransferBuffer
from streammach.options.model_spec import ModelShape
from streammach.rows.batch import Batch, RowIdBatch
from streammach.system.jit import Array, Number

SEGMENT = 128  # most entries of an item: what one block sums before another helps
MOST_WARPS = 1024  # whose counts of items every warp reads; as many on every card
ITEM = ("begin", "end", "feature", "slot")


@device
def feature_at(features: Array, nnz: Number, bias_row: Number, q: Number) -> Any:
    """Return the feature of sorted entry `q`; behind all of them the bias has its own."""
    if q < nnz:
        return int64(get(features, q))
    return int64(bias_row)


@device
def kind_at(
    features: Array, nnz: Number, total: Number, bias_row: Number, segment: Number, q: Number
) -> Any:
    """Return what begins at `q`: 0 nothing, 1 all of a feature, 2 a part of it, 3 its first."""
    kind, mine = 0, feature_at(features, nnz, bias_row, q)
    first = q == 0 or feature_at(features, nnz, bias_row, q - 1) != mine
    cut = (q // segment + 1) * segment  # where an item that begins here ends at the latest
    if first:
        more = cut < total and feature_at(features, nnz, bias_row, cut) == mine
        kind = 3 if more else 1
    elif q % segment == 0:
        kind = 2
    return kind


def count_items(
    features: Array, nnz: Number, total: Number, bias_row: Number, segment: Number, each: Number,
    out_rows: Array, out_values: Array, counts: Array,
) -> None:  # fmt: skip
    """Count the items that begin among the entries of each warp, and write the bias's entries.

    Parameters
    ----------
    features, nnz, total : int32 (nnz,), int, int
        Features of the values, rising; values; values and the bias's entries, one a row.
    bias_row, segment, each : int
        d; most entries of an item; entries of a warp, a multiple of 32.
    out_rows, out_values : int32 (total,), float32 (total,)
        Receive the entries of the bias, behind the others.
    counts : int32 (3 * warps,)
        Receive for each warp the items, those that are a part of their feature, and first parts.
    """
    lane, warp = int64(cuda.grid(1)) % WARP, int64(cuda.grid(1)) // WARP
    items, parts, firsts = int64(0), int64(0), int64(0)
    for q in range(warp * each + lane, min(warp * each + each, total), WARP):
        if q >= nnz:
            put(out_rows, q, np.int32(q - nnz))
            put(out_values, q, np.float32(1))
        kind = kind_at(features, nnz, total, bias_row, segment, q)
        items += kind > 0
        parts += kind > 1
        firsts += kind > 2
    items, parts, firsts = warp_sum(items), warp_sum(parts), warp_sum(firsts)
    if lane == 0:
        put(counts, 3 * warp, np.int32(items))
        put(counts, 3 * warp + 1, np.int32(parts))
        put(counts, 3 * warp + 2, np.int32(firsts))


def place_items(
    features: Array, nnz: Number, total: Number, bias_row: Number, segment: Number, each: Number,
    counts: Array, begin: Array, end: Array, feature: Array, slot: Array, n_items: Array,
    joined_begin: Array, joined_end: Array, joined_feature: Array, n_joined: Array,
) -> None:  # fmt: skip
    """Write the items, and those of the second pass over partial sums.

    Parameters
    ----------
    features, nnz, total, bias_row, segment, each, counts : int32, int, ..., int32
        As for :func:`count_items`, which wrote the counts.
    begin, end, feature, slot, n_items : int32 (items,), int32 (1,)
        Receive the items.
    joined_begin, joined_end, joined_feature, n_joined : int32 (joined,), int32 (1,)
        Receive those of the features that have several.
    """
    lane, warp = int64(cuda.grid(1)) % WARP, int64(cuda.grid(1)) // WARP
    i, s, j = int64(0), int64(0), int64(0)  # items, partial sums and joined items before
    for w in range(lane, warp, WARP):
        i += get(counts, 3 * w)
        s += get(counts, 3 * w + 1)
        j += get(counts, 3 * w + 2)
    i, s, j = warp_sum(i), warp_sum(s), warp_sum(j)
    start, stop = warp * each, min(warp * each + each, total)
    for q in range(start + lane, stop + lane, WARP):
        kind = 0
        if q < stop:
            kind = kind_at(features, nnz, total, bias_row, segment, q)
        i_before, i_more = ones(1 if kind > 0 else 0, lane)
        s_before, s_more = ones(1 if kind > 1 else 0, lane)
        j_before, j_more = ones(1 if kind > 2 else 0, lane)
        if kind > 0:
            at, mine = i + i_before, np.int32(feature_at(features, nnz, bias_row, q))
            here = np.int32(s + s_before)
            put(begin, at, np.int32(q))
            put(feature, at, mine)
            put(slot, at, here if kind > 1 else np.int32(-1))
            if at > 0:
                put(end, at - 1, np.int32(q))
            if kind > 2:
                at = j + j_before
                put(joined_begin, at, here)
                put(joined_feature, at, mine)
                if at > 0:
                    put(joined_end, at - 1, here)
        i, s, j = i + i_more, s + s_more, j + j_more
    if lane == 0 and start < total and stop == total:  # the warp that has the last entry
        put(end, i - 1, np.int32(total))
        put(n_items, 0, np.int32(i))
        put(n_joined, 0, np.int32(j))
        if j > 0:
            put(joined_end, j - 1, np.int32(s))


def most_slots(total: int, segment: int = SEGMENT) -> int:
    """Return the most partial sums of so many entries: two parts meet at each multiple."""
    return 2 * (total // segment) + 1


class SegmentBuilder:
    """Fixed room for a batch feature by feature; the bias is row d of the table, `bias_row`.

    Attributes
    ----------
    rows, values : DeviceArray
        int32 and float32 (nnz + n,): the entries, features rising, rows rising within each, last
        the bias with the value 1 in every row.
    whole, joined : Segments
        The first pass, and the second one over partial sums.
    slots, ones : DeviceArray
        int32 and float32: the entries of the second pass.
    """

    def __init__(
        self, memory: DeviceMemory, room: BufferRoom, bias_row: int, segment: int = SEGMENT
    ) -> None:
        self._memory, self._bias_row, self._segment = memory, bias_row, segment
        total, n_entries = room.n_rows + room.nnz, room.nnz + (CHUNK - 1) * room.n_rows
        joined = most_slots(total, segment)
        self._order = FeatureSort(memory, n_entries, bias_row)
        sizes: Sizes = {
            "rows": (total, np.int32), "values": (total, np.float32),
            "counts": (3 * MOST_WARPS, np.int32),
        }  # fmt: skip
        self.rows, self.values, self._counts = memory.rooms(sizes, LINE).values()
        items: list[Segments] = []
        for most in (total, joined):
            count: Sizes = {"n_items": (1, np.int32)}
            room_of_items = dict.fromkeys(ITEM, (most, np.int32)) | count
            items.append(Segments(**memory.rooms(room_of_items, LINE)))
        self.whole, self.joined = items
        self.slots = memory.numbers(joined, LINE)
        self.ones = memory.empty(joined, np.float32, LINE)
        self.ones.values.fill(1)
        self.joined.slot.values.fill(-1)

    def sort(self, slot: TransferBuffer, n_rows: int, nnz: int, n_entries: int) -> None:
        """Bring the rows of a slot, whose entries come in fours, into the order of features."""
        memory, total = self._memory, n_rows + nnz
        features = self._order.sort(slot.arrays, n_entries, nnz, self.rows, self.values)
        threads = min(THREADS, memory.most_threads)
        most = min(MOST_WARPS * WARP // threads, memory.blocks(RESIDENT))
        each = rounded_up(-(-total // (most * threads // WARP)), WARP)
        blocks = -(-total // (each * threads // WARP))
        sizes = (features, nnz, total, self._bias_row, self._segment, each)
        memory.launch(
            striding(count_items), blocks, threads, *sizes, self.rows, self.values, self._counts
        )
        memory.launch(
            striding(place_items), blocks, threads, *sizes, self._counts, *self.whole,
            *self.joined[:3], self.joined.n_items,
        )  # fmt: skip


class CudaSparseSteps(CudaSteps):
    """Steps on sparse rows: forward, sorting, backward over items and over split features."""

    def __init__(
        self, memory: DeviceMemory, spec: ModelShape, models: int, room: BufferRoom,
        resident: DeviceRows | None,
    ) -> None:  # fmt: skip
        super().__init__(memory, spec, models, room)
        self._slots = cycle([TransferBuffer(memory, room, resident) for _ in range(N_SLOTS)])
        self._sorter = SegmentBuilder(memory, room, spec.n_features)
        n_partial = most_slots(room.n_rows + room.nnz) * stride_of(spec, models)
        self._partial = memory.empty(n_partial, np.float32, "residuals")

    def step(self, group: ModelGroup, batch: Batch | RowIdBatch, rule: Rule) -> DeviceArray:
        n, nnz, slot = batch.n_rows, int(batch.indptr[-1]), next(self._slots)
        entries = slot.load(batch)
        self._residuals(group, slot, n, rule.smoothing, dense=False)
        self._sorter.sort(slot, n, nnz, entries)
        slot.release()
        self._backward(group, rule, n + nnz)
        return self.losses

    def _backward(self, group: ModelGroup, rule: Rule, most: int) -> None:
        """Update from residuals: the items, no more than `most`, then features of several items."""
        batch, partial = self._sorter, self._partial
        group.update(batch.whole, rule, most, batch.rows, batch.values, self.z, partial)
        group.update(batch.joined, rule, most, batch.slots, batch.ones, partial, partial)
