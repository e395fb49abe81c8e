"""Dense rows on the device: how they get there, their matrix products, and steps on them.

Values are sent, and ids of features where a row lacks some. The numbers of the rows are not sent: a
warp finds its row by the row pointers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.backends.cuda.group import CudaSteps, ModelGroup, OverOutputs, Rule, Segments
from streammach.backends.cuda.instructions import cosine, get, int64, put, striding
from streammach.backends.cuda.launcher import cuda
from streammach.backends.cuda.memory import (
    DeviceArray,
    DeviceMemory,
    Sizes,
    buffer_bytes,
    total_bytes,
)
from streammach.backends.cuda.shapes import WARP, stride_of, table_rows
from streammach.backends.cuda.transfers import (
    N_SLOTS,
    BufferRoom,
    Resident,
    TransferBuffer,
    TransferBuffers,
)
from streammach.jit import Array, Number
from streammach.rows.batch import Batch, RowIdBatch
from streammach.rows.dense import RowMap, Waves
from streammach.spec.model import ModelShape, ModelSpec
from streammach.threads import Workers

PIECE = 1 << 18  # numbers that a thread copies at once


def expand(
    indptr: Array, features: Array, values: Array, n_rows: Number, width: Number, x: Array
) -> None:
    """Write rows into dense rows of zeros; a warp takes a row.

    Parameters
    ----------
    indptr, features, values : int32 (n + 1,), int32 (nnz,), float32 (nnz,)
        The rows.
    n_rows, width : int
        n; columns of a dense row.
    x : float32 (n * width,)
        The dense rows.
    """
    lane, first = int64(cuda.grid(1)) % WARP, int64(cuda.grid(1)) // WARP
    for i in range(first, n_rows, int64(cuda.gridsize(1)) // WARP):
        for p in range(int64(get(indptr, i)) + lane, int64(get(indptr, i + 1)), WARP):
            put(x, i * width + int64(get(features, p)), get(values, p))


def cosines(
    x: Array, n_rows: Number, width: Number, first: Number, n_more: Number, amplitudes: Array
) -> None:
    """Replace columns from `first` on by their cosines times amplitudes.

    Parameters
    ----------
    x : float32 (n * width,)
        The dense rows.
    n_rows, width, first, n_more : int
        n; columns of a row; the first and the number of those that are replaced, D.
    amplitudes : float32 (D,)
        What each cosine is multiplied with.
    """
    start, step = int64(cuda.grid(1)), int64(cuda.gridsize(1))
    for p in range(start, n_rows * n_more, step):
        column = p % n_more
        i = p // n_more * width + first + column
        put(x, i, cosine(get(x, i)) * get(amplitudes, column))


class DenseBuffer(TransferBuffer):
    """Fixed room for some dense rows, in page-locked host memory and on the device.

    Rows with d values, `n_features`, have all features, and values are sent alone. Workers copy
    into page-locked memory, else the calling thread.
    """

    def __init__(
        self, memory: DeviceMemory, room: BufferRoom, resident: Resident | None = None,
        *, n_features: int, workers: Workers | None = None,
    ) -> None:  # fmt: skip
        super().__init__(memory, room, resident)
        self._n_features, self._workers = n_features, workers
        self._whole = False

    @staticmethod
    def entry_sizes(room: BufferRoom) -> Sizes:
        """Return the elements of row pointers and entries, which kept rows have no room for."""
        n, m = (1, 1) if room.kept else (room.n_rows + 1, room.nnz)
        return {"indptr": (n, np.int32), "features": (m, np.int32), "values": (m, np.float32)}

    def expand(self, out: DeviceArray, n_rows: int, width: int) -> Any:
        """Lay rows out whole, the column behind their features 1, the others 0.

        Parameters
        ----------
        out : DeviceArray
            float32 (n * width,): receives them.
        n_rows, width : int
            n; columns of a dense row, more than features.

        Returns
        -------
        float32 (n, width)
            What was written.
        """
        d = self._n_features
        x = out.values[: n_rows * width].reshape(n_rows, width)
        if self._whole:
            x[:, :d] = self["values"].values[: n_rows * d].reshape(n_rows, d)
            x[:, d:] = 0
        else:
            x.fill(0)
        x[:, d] = 1
        if self._resident is not None:
            self._resident.gather(self.held, n_rows, out, width)
        elif not self._whole:
            self._memory.stride(
                striding(expand), n_rows * WARP, self["indptr"], self["features"], self["values"],
                n_rows, width, out,
            )  # fmt: skip
        return x

    def _entries(self, *rows: NDArray[Any]) -> dict[str, int]:
        """Make ready to send entries; return how much of each array there is."""
        indptr, features, values = rows
        n, m = len(indptr) - 1, int(indptr[-1])
        self._whole = m == n * self._n_features
        given, counts = {"values": values}, {"values": m}
        if not self._whole:
            given["features"] = features
            self._host["indptr"][: n + 1] = indptr
            counts |= {"features": m, "indptr": n + 1}
        self._copy(given, m)
        return counts

    def _gather(self, batch: RowIdBatch, counts: dict[str, int]) -> int:
        """Send the numbers of rows, which are gathered when they are laid out."""
        self._send(counts)
        return int(batch.indptr[-1])

    def _copy(self, given: dict[str, NDArray[Any]], m: int) -> None:
        """Copy the first m numbers of arrays into page-locked memory."""

        def copy(a: int, b: int) -> None:
            for name, array in given.items():
                self._host[name][a:b] = array[a:b]

        pieces = [(a, min(a + PIECE, m)) for a in range(0, m, PIECE)]
        if self._workers is None:
            copy(0, m)
        else:
            self._workers.each(copy, pieces)


def slot_kind(*, dense: bool) -> type[TransferBuffer]:
    """Return what rows go to the device by."""
    return DenseBuffer if dense else TransferBuffer


def table_of(basis: RowMap, n_features: int) -> NDArray[np.float32]:
    """Return what ``[x, 1]`` is multiplied with to give ``[x P - m P, x Q + q, 1]``.

    Parameters
    ----------
    basis : Basis or Waves
        P and m, or Q, q and perhaps P and m; x stays as it is without P.
    n_features : int
        d, columns of x.

    Returns
    -------
    float32 (table_rows(d), table_rows(d + D))
        The table, after whose product cosines are still to be taken; zeros behind it all.
    """
    d, more = n_features, slice(n_features, n_features + basis.n_more)
    table = np.zeros((table_rows(d), table_rows(more.stop)), np.float32)
    table[d, more.stop] = 1
    white = basis.basis if isinstance(basis, Waves) else basis
    if white is None:
        table[np.arange(d), np.arange(d)] = 1
    else:
        table[:d, :d], table[d, :d] = white.rotation, -white.shift
    if isinstance(basis, Waves):
        table[: d + 1, more] = basis.projection[:-1]
    return table


class RowTables:
    """What dense rows are brought to: the table of a basis, and amplitudes of D columns if any."""

    def __init__(self, memory: DeviceMemory, n_features: int, n_more: int) -> None:
        self._memory, self._n_features = memory, n_features
        held = memory.rooms(self._sizes(n_features, n_more))
        self.table, self.amplitudes = held["table"], held.get("amplitudes")

    @staticmethod
    def _sizes(n_features: int, n_more: int) -> Sizes:
        size = table_rows(n_features) * table_rows(n_features + n_more)
        amplitudes: Sizes = {"amplitudes": (n_more, np.float32)} if n_more else {}
        return {"table": (size, np.float32), **amplitudes}

    @staticmethod
    def footprint(n_features: int, n_more: int) -> tuple[int, int]:
        """Return the bytes on the host, while a table is sent, and on the device."""
        sizes = RowTables._sizes(n_features, n_more)
        return 4 * sizes["table"][0], total_bytes(sizes)

    def take(self, basis: RowMap) -> None:
        """Become the tables of a basis."""
        memory = self._memory
        memory.send(self.table, table_of(basis, self._n_features).reshape(-1))
        memory.wait()
        if self.amplitudes is not None and isinstance(basis, Waves):
            memory.send(self.amplitudes, np.ascontiguousarray(basis.projection[-1]))
            memory.wait()


class Products:
    """Logits of dense rows, ``[x, 1] W`` with the bias as the table's last row, and gradients.

    Rows may be brought to another basis first, ``[x, 1] T``, and get `n_more`, D, columns of
    cosines; the features of the model are d + D. Columns of zeros fill them up to a multiple of
    eight, as rows of zeros do the tables. Logits and gradients may be products in TF32.
    """

    def __init__(
        self, memory: DeviceMemory, spec: ModelSpec, n_rows: int, n_more: int, *, tf32: bool = False
    ) -> None:
        self._memory, self._n_rows, self._tf32 = memory, n_rows, tf32
        self._n_more, self._n_plain = n_more, spec.n_features - n_more
        self._width, self._plain_width = table_rows(spec.n_features), table_rows(self._n_plain)
        self.x = memory.empty(n_rows * self._width, np.float32)
        self._plain = self.x
        self._tables: RowTables | None = None

    @staticmethod
    def footprint(spec: ModelShape, n_rows: int, *, whitened: bool, n_more: int) -> int:
        """Return the bytes on the device."""
        width, plain_width = table_rows(spec.n_features), table_rows(spec.n_features - n_more)
        plain = buffer_bytes(n_rows * plain_width, np.float32) if whitened else 0
        return buffer_bytes(n_rows * width, np.float32) + plain

    def use(self, tables: RowTables | None) -> None:
        """Bring rows to a basis from now on, or leave them plain."""
        self._tables = tables
        if tables is not None and self._plain is self.x:
            self._plain = self._memory.empty(self._n_rows * self._plain_width, np.float32)

    def expanded(self, slot: DenseBuffer, n_rows: int) -> Any:
        """Return a slot's rows as dense ones, the column behind them all 1: float32 (n, width)."""
        memory, tables = self._memory, self._tables
        if tables is None:
            return slot.expand(self.x, n_rows, self._plain_width)
        x = self.x.values[: n_rows * self._width].reshape(n_rows, self._width)
        plain = slot.expand(self._plain, n_rows, self._plain_width)
        memory.product(plain, tables.table.values.reshape(self._plain_width, self._width), x)
        if tables.amplitudes is not None:
            memory.stride(
                striding(cosines), n_rows * self._n_more, self.x, n_rows, self._width,
                self._n_plain, self._n_more, tables.amplitudes,
            )  # fmt: skip
        return x

    def logits(self, group: ModelGroup, x: Any, z: DeviceArray) -> Any:
        """Write the logits of dense rows to `z`; return them as float32 (n, stride)."""
        stride = group.shape.stride
        out = z.values[: len(x) * stride].reshape(len(x), stride)
        table = group.tables["weights"].values[: self._width * stride].reshape(self._width, stride)
        self._memory.product(x, table, out, tf32=self._tf32)
        return out

    def gradient(self, x: Any, z: Any, out: DeviceArray) -> None:
        """Write ``x' z`` of dense rows x and residuals z to `out`: a row of a table each."""
        width, stride = self._width, z.shape[1]
        gradient = out.values[: width * stride].reshape(width, stride)
        self._memory.product(x.T, z, gradient, tf32=self._tf32)


class CudaDenseSteps(CudaSteps):
    """Steps on dense rows: a matrix product, the softmax, a matrix product, the optimiser."""

    def __init__(
        self, memory: DeviceMemory, spec: ModelSpec, models: int, room: BufferRoom,
        resident: Resident | None, *, n_more: int, workers: Workers | None, tf32: bool,
    ) -> None:  # fmt: skip
        super().__init__(memory, self.sizes(spec, models, room))
        d = spec.n_features - n_more
        self._slots = TransferBuffers(
            lambda: DenseBuffer(memory, room, resident, n_features=d, workers=workers)
        )
        self.products = Products(memory, spec, room.n_rows, n_more, tf32=tf32)
        self._rows = spec.n_features + 1
        numbers = np.arange(self._rows + 1, dtype=np.int32)
        self._numbers = memory.sent(numbers[:-1])
        self._items = Segments(
            begin=self._numbers, end=memory.sent(numbers[1:]), feature=self._numbers,
            slot=memory.sent(np.full(self._rows, -1, np.int32)),
            count=memory.sent(np.array([self._rows], np.int32)),
        )  # fmt: skip
        self._ones = memory.sent(np.ones(self._rows, np.float32))

    @staticmethod
    def sizes(spec: ModelShape, models: int, room: BufferRoom) -> Sizes:
        """Return the elements of the buffers by name."""
        gradient = (table_rows(spec.n_features) * stride_of(spec, models), np.float32)
        return CudaSteps.sizes(spec, models, room) | {"gradient": gradient}

    @staticmethod
    def footprint(
        spec: ModelShape, models: int, room: BufferRoom, *, whitened: bool, n_more: int
    ) -> dict[str, int]:
        """Return the bytes on the device, by name."""
        sizes = CudaDenseSteps.sizes(spec, models, room)
        row_numbers = 4 * buffer_bytes(spec.n_features + 1, np.int32) + buffer_bytes(1, np.int32)
        products = Products.footprint(spec, room.n_rows, whitened=whitened, n_more=n_more)
        return {
            "gradient": buffer_bytes(*sizes.pop("gradient")) + row_numbers,
            "residuals": total_bytes(sizes),
            "batch": DenseBuffer.footprint(room, N_SLOTS)[1] + products,
        }

    def step(
        self, group: ModelGroup, batch: Batch | RowIdBatch, rule: Rule, over: OverOutputs | None
    ) -> DeviceArray:
        """Ask for a step on one batch; return where the losses of its rows and models will be."""
        held, n = self._held, batch.n_rows
        slot = self._slots.next()
        slot.load(batch)
        x = self.products.expanded(slot, n)
        z = self.products.logits(group, x, held["z"])
        self._residuals(group, slot, n, rule, over, dense=True)
        slot.release()
        gradient = held["gradient"]
        self.products.gradient(x, z, gradient)
        group.update(self._items, rule, self._rows, self._numbers, self._ones, gradient, gradient)
        return held["losses"]
