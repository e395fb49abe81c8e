"""Rows on their way to the device, and rows that stay there.

A slot is fixed room on both sides, filled again and again. Copies run ahead of the kernels' stream,
so that with two slots in turn one batch is copied while another is trained on. Three rules keep
them apart: the host refills a slot when its last copies are done; copies overwrite what is on the
device when the work that read it is done; work on a slot begins when its copies are done.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammach.backends.cuda.device_memory import DeviceArray, DeviceMemory, Sizes
from streammach.backends.cuda.instructions import int64, striding
from streammach.backends.cuda.shapes import CHUNK, WARP, rounded_up
from streammach.backends.cuda.toolchain import cuda, get, put
from streammach.rows.batch import Batch, RowIdBatch
from streammach.system.jit import Array, Number, kernel

N_SLOTS = 2
LABELS = ("label_starts", "label_classes", "label_shares")


class BufferRoom(NamedTuple):
    """For how many rows, values, and labels of lists there is room.

    Rows that are `kept` on the device come as their numbers.
    """

    n_rows: int
    nnz: int
    n_labels: int = 0
    kept: bool = False


@kernel()
def fill_in_fours(
    indptr: Array, features: Array, values: Array, out_indptr: Array, out_features: Array,
    out_values: Array, out_rows: Array,
) -> Any:  # fmt: skip
    """Copy rows so that each takes a multiple of four entries; return how many there are in all.

    A row is filled up with its last feature, the value 0 and the row number -1.

    Parameters
    ----------
    indptr, features, values : int64 (n + 1,), int32 (nnz,), float32 (nnz,)
        The rows.
    out_indptr, out_features, out_values, out_rows : int32 (n + 1,), int32, float32, int32
        Receive row pointers, and of each entry the feature, value and row.
    """
    q = 0
    out_indptr[0] = 0
    for i in range(indptr.shape[0] - 1):
        # Positions without a sign: nothing counts from an array's end, and the loop is vectorised.
        first, at = np.uint64(indptr[i]), np.uint64(q)
        for j in range(np.uint64(indptr[i + 1]) - first):
            out_features[at + j] = features[first + j]
            out_values[at + j] = values[first + j]
            out_rows[at + j] = i
        q += indptr[i + 1] - indptr[i]
        while q % 4:
            out_features[q] = out_features[q - 1]
            out_values[q], out_rows[q] = 0, -1
            q += 1
        out_indptr[i + 1] = q
    return q


def gather(
    chosen: Array, at: Array, n_rows: Number, starts: Array, features: Array, values: Array,
    classes: Array, importance: Array, out_features: Array, out_values: Array, out_rows: Array,
    out_classes: Array, out_importance: Array,
) -> None:  # fmt: skip
    """Copy chosen rows of a :class:`DeviceRows` into a slot as :func:`fill_in_fours` does.

    A warp takes a row.

    Parameters
    ----------
    chosen, at, n_rows : int64 (n,), int32 (n + 1,), int
        Numbers of the rows, and where each goes: multiples of four.
    starts, features, values, classes, importance : int64 (N + 1,), int32, float32, int32, float32
        The rows that are kept; the others receive those of the batch.
    """
    lane, first = int64(cuda.grid(1)) % WARP, int64(cuda.grid(1)) // WARP
    for i in range(first, n_rows, int64(cuda.gridsize(1)) // WARP):
        row = int64(get(chosen, i))
        begin = int64(get(starts, row))
        n = int64(get(starts, row + 1)) - begin
        q = int64(get(at, i))
        room = int64(get(at, i + 1)) - q
        for j in range(lane, room, WARP):
            p = begin + min(j, n - 1)
            put(out_features, q + j, get(features, p))
            put(out_values, q + j, get(values, p) if j < n else np.float32(0))
            put(out_rows, q + j, np.int32(i if j < n else -1))
        if lane == 0:
            put(out_classes, i, get(classes, row))
            put(out_importance, i, get(importance, row))


def gather_dense(
    chosen: Array, n_rows: Number, width: Number, starts: Array, features: Array, values: Array,
    classes: Array, importance: Array, ids: Number, x: Array, out_classes: Array,
    out_importance: Array,
) -> None:  # fmt: skip
    """Write chosen rows into zeros; without ids each has all features. A warp takes a row."""
    lane, first = int64(cuda.grid(1)) % WARP, int64(cuda.grid(1)) // WARP
    for i in range(first, n_rows, int64(cuda.gridsize(1)) // WARP):
        row = int64(get(chosen, i))
        begin = int64(get(starts, row))
        for p in range(begin + lane, int64(get(starts, row + 1)), WARP):
            column = int64(get(features, p)) if ids else p - begin
            put(x, i * width + column, get(values, p))
        if lane == 0:
            put(out_classes, i, get(classes, row))
            put(out_importance, i, get(importance, row))


def gather_labels(
    chosen: Array, at: Array, n_rows: Number, starts: Array, classes: Array, shares: Array,
    out_classes: Array, out_shares: Array,
) -> None:  # fmt: skip
    """Copy the labels of chosen rows, and what each has of the target; a warp takes a row."""
    lane, first = int64(cuda.grid(1)) % WARP, int64(cuda.grid(1)) // WARP
    for i in range(first, n_rows, int64(cuda.gridsize(1)) // WARP):
        begin, q = int64(get(starts, int64(get(chosen, i)))), int64(get(at, i))
        for j in range(lane, int64(get(at, i + 1)) - q, WARP):
            put(out_classes, q + j, get(classes, begin + j))
            put(out_shares, q + j, get(shares, begin + j))


class DeviceRows:
    """Room for all rows, values and labels of lists of a store on the device, to gather from.

    Without `ids` rows have all features.
    """

    def __init__(
        self, memory: DeviceMemory, n_rows: int, nnz: int, n_labels: int = 0, *, ids: bool = True
    ) -> None:
        self._memory, self._ids, line = memory, ids, "rows of the store"
        sizes: Sizes = {
            "starts": (n_rows + 1, np.int64), "features": (nnz * ids, np.int32),
            "values": (nnz, np.float32), "classes": (n_rows, np.int32),
            "importance": (n_rows, np.float32),
        }  # fmt: skip
        self._rows = list(memory.rooms(sizes, line).values())
        labels: Sizes = dict(zip(LABELS, _label_sizes(n_rows, n_labels, np.int64), strict=True))
        self._labels = list(memory.rooms(labels, line).values()) if n_labels else []
        self._content, self._n_rows = "", n_rows
        self.lengths = np.zeros(0, np.int32)  # int32 (n_rows,): values of each row that is there
        self._counts = (0, 0, 0)  # rows, values and labels that are there

    def count(self, content: str) -> int:
        """Return how many of the store's first rows are there as what is called so."""
        return self._counts[0] if content == self._content else 0

    def keep(self, batch: Batch, content: str) -> None:
        """Take the next rows of the store; if something else was kept, the first ones."""
        if content != self._content:
            self._content, self._counts = content, (0, 0, 0)
            self.lengths = np.zeros(self._n_rows, np.int32)
        rows, nnz, n_labels = self._counts
        arrays: list[Any] = [
            nnz + batch.indptr, batch.features, batch.values, batch.classes, batch.importance,
        ]  # fmt: skip
        places = [rows, nnz, nnz, rows, rows]
        if (lists := batch.labels) is not None:
            assert lists.weights is not None, "the shares of the target"
            arrays += [n_labels + lists.starts, lists.classes, lists.weights]
            places += [rows, n_labels, n_labels]
            n_labels += lists.n_labels
        with self._memory.use():
            for target, array, at in zip(self._rows + self._labels, arrays, places, strict=False):
                self._memory.send(target, array, at)
            self._memory.wait()
        self.lengths[rows : rows + batch.n_rows] = np.diff(batch.indptr)
        self._counts = rows + batch.n_rows, nnz + len(batch.values), n_labels

    def gather(
        self, slot: dict[str, DeviceArray], n: int, x: DeviceArray | None = None, width: int = 0
    ) -> None:
        """Write the n rows whose numbers a slot has, to its other arrays or to dense rows.

        Parameters
        ----------
        slot, n : dict of str to DeviceArray, int
            Arrays as a :class:`TransferBuffer` has them; ``chosen``, ``indptr`` and
            ``label_starts`` are read.
        x, width : DeviceArray, int
            float32 (n * width,): zeros, receives dense rows; ``indptr`` is not read.
        """
        memory, beside = self._memory, (slot["classes"], slot["importance"])
        if x is None:
            memory.stride(
                striding(gather), n * WARP, slot["chosen"], slot["indptr"], n, *self._rows,
                slot["features"], slot["values"], slot["rows"], *beside,
            )  # fmt: skip
        else:
            memory.stride(
                striding(gather_dense), n * WARP, slot["chosen"], n, width, *self._rows,
                int(self._ids), x, *beside,
            )  # fmt: skip
        if self._labels:
            memory.stride(
                striding(gather_labels), n * WARP, slot["chosen"], slot["label_starts"], n,
                *self._labels, slot["label_classes"], slot["label_shares"],
            )  # fmt: skip


def _label_sizes(n_rows: int, n_labels: int, starts: Any) -> list[tuple[int, Any]]:
    return [(n_rows + 1, starts), (n_labels, np.int32), (n_labels, np.float32)]


class TransferBuffer:
    """Fixed room for some rows, in page-locked host memory and on the device.

    Rows that are kept are gathered from where they are resident, others are sent.

    Attributes
    ----------
    sent_as_given : set of str
        Arrays that are sent from where the rows are.
    arrays : dict of str to DeviceArray
        ``indptr`` int32 (n + 1,); ``features`` int32, ``values`` float32 and ``rows`` int32 of each
        entry, in fours; ``classes`` int32 (n,), ``importance`` float32 (n,); ``chosen`` int64 (n,)
        where rows are resident; ``label_starts`` int32 (n + 1,), ``label_classes`` int32 and
        ``label_shares`` float32 where rows have lists of labels.
    """

    sent_as_given: frozenset[str] = frozenset()

    def __init__(
        self, memory: DeviceMemory, room: BufferRoom, resident: DeviceRows | None = None,
        line: str = "batch",
    ) -> None:  # fmt: skip
        self._memory, self._resident, n = memory, resident, room.n_rows
        sizes = self._entry_sizes(room)
        sizes |= {"classes": (n, np.int32), "importance": (n, np.float32)}
        if room.n_labels:
            labels = _label_sizes(n, room.n_labels, np.int32)
            sizes |= dict(zip(LABELS, labels, strict=True))
        on_host = [name for name in sizes if name not in self.sent_as_given]
        if room.kept:
            sizes["chosen"] = (n, np.int64)
            on_host = ["indptr", "chosen", *LABELS[: bool(room.n_labels)]]
        self._host = {name: memory.host_array(*sizes[name]) for name in on_host}
        self.arrays = memory.rooms(sizes, line)
        self._copied, self._used = memory.event(), memory.event()

    def _entry_sizes(self, room: BufferRoom) -> Sizes:
        """Return the elements of row pointers and entries."""
        m = rounded_up(room.nnz + (CHUNK - 1) * room.n_rows, CHUNK)  # the most in fours
        entries = {"features": (m, np.int32), "values": (m, np.float32), "rows": (m, np.int32)}
        return {"indptr": (room.n_rows + 1, np.int32), **entries}

    def load(self, batch: Batch | RowIdBatch) -> int:
        """Bring a batch to the device; return its number of entries, in fours."""
        # When all work on it was asked for, release() follows.
        if isinstance(batch, RowIdBatch):
            self._copied.reach()
            self._host["chosen"][: batch.n_rows] = batch.rows
            counts = {"chosen": batch.n_rows} | self._beside(label_starts=batch.label_starts)
            return self._gather(batch, counts)
        labels: dict[str, Any] = {}
        if (lists := batch.labels) is not None:
            arrays = (lists.starts, lists.classes, lists.weights)
            labels = dict(zip(LABELS, arrays, strict=True))
        return self.fill(
            batch.indptr, batch.features, batch.values, classes=batch.classes,
            importance=batch.importance, **labels,
        )  # fmt: skip

    def fill(
        self, indptr: NDArray[np.int64], features: NDArray[np.int32], values: NDArray[np.float32],
        **beside: NDArray[Any] | None,
    ) -> int:  # fmt: skip
        """Send rows, with arrays beside them by name; return their number of entries, in fours."""
        self._copied.reach()
        counts = self._entries(indptr, features, values)
        self._send(counts | self._beside(**beside))
        return counts["values"]

    def _entries(self, *rows: NDArray[Any]) -> dict[str, int]:
        """Make ready to send entries; return how much of each array there is."""
        names = ("indptr", "features", "values", "rows")
        m = int(fill_in_fours(*rows, *(self._host[name] for name in names)))
        return {"indptr": len(rows[0]), "features": m, "values": m, "rows": m}

    def _beside(self, **arrays: NDArray[Any] | None) -> dict[str, int]:
        """Make ready to send what rows have beside values; return how much of each there is."""
        there = {name: array for name, array in arrays.items() if array is not None}
        for name, array in there.items():
            self._host[name][: len(array)] = array
        return {name: len(array) for name, array in there.items()}

    def _gather(self, batch: RowIdBatch, counts: dict[str, int]) -> int:
        """Send the numbers of rows, and gather these on the device."""
        assert self._resident is not None, "no rows are kept"
        indptr, n = self._host["indptr"], batch.n_rows
        indptr[0] = 0
        np.cumsum(-(-np.diff(batch.indptr) // CHUNK) * CHUNK, out=indptr[1 : n + 1])
        self._send(counts | {"indptr": n + 1})
        self._resident.gather(self.arrays, n)
        return int(indptr[n])

    def _send(self, counts: dict[str, int]) -> None:
        self._used.before(ahead=True)
        for name, count in counts.items():
            self._memory.send(self.arrays[name], self._host[name][:count], ahead=True)
        self._copied.mark(ahead=True)
        self._copied.before()

    def release(self) -> None:
        """Allow the slot to be filled again behind the work that was asked for on it."""
        self._used.mark()

    def __getitem__(self, name: str) -> DeviceArray:
        return self.arrays[name]
