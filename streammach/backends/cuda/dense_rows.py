"""Dense rows on the device: how they get there, their matrix products, and steps on them.

Values are sent, and ids of features where a row lacks some. The numbers of the rows are not sent: a
warp finds its row by the row pointers.
"""

from __future__ import annotations

from itertools import cycle
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.backends.cuda.device_memory import DeviceArray, DeviceMemory, Sizes
from streammach.backends.cuda.group import ModelGroup, Rule, Segments
from streammach.backends.cuda.instructions import cosine, int64, striding
from streammach.backends.cuda.losses import CudaSteps
from streammach.backends.cuda.shapes import WARP, stride_of, table_rows
from streammach.backends.cuda.toolchain import cuda, get, put
from streammach.backends.cuda.transfers import N_SLOTS, BufferRoom, DeviceRows, TransferBuffer
from streammach.options.model_spec import ModelShape
from streammach.rows.batch import Batch, RowIdBatch
from streammach.rows.dense import RowMap
from streammach.system.jit import Array, Number


def expand(
    indptr: Array, features: Array, values: Array, n_rows: Number, width: Number, x: Array
) -> None:
    """Write rows into dense rows of zeros; a warp takes a row.

    Parameters
    ----------
    indptr, features, values, n_rows : int32 (n + 1,), int32 (nnz,), float32 (nnz,), int
        The rows, n.
    width, x : int, float32 (n * width,)
        Columns of a dense row; the dense rows.
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
    x, n_rows, width : float32 (n * width,), int, int
        The dense rows.
    first, n_more, amplitudes : int, int, float32 (D,)
        The first and the number of columns that are replaced, D; what each is multiplied with.
    """
    start, step = int64(cuda.grid(1)), int64(cuda.gridsize(1))
    for p in range(start, n_rows * n_more, step):
        column = p % n_more
        i = p // n_more * width + first + column
        put(x, i, cosine(get(x, i)) * get(amplitudes, column))


class DenseBuffer(TransferBuffer):
    """Fixed room for some dense rows on the device.

    Rows with d values, `n_features`, have all features, and values are sent alone. Entries are sent
    from where they are: at the speed of the bus where that is page-locked memory. They have left it
    when :meth:`release` returns.
    """

    sent_as_given = frozenset({"features", "values"})

    def __init__(
        self, memory: DeviceMemory, room: BufferRoom, resident: DeviceRows | None = None,
        line: str = "batch", *, n_features: int,
    ) -> None:  # fmt: skip
        super().__init__(memory, room, resident, line)
        self._n_features = n_features
        self._whole = False

    def _entry_sizes(self, room: BufferRoom) -> Sizes:
        """Return the elements of row pointers and entries, which kept rows have no room for."""
        n, m = (1, 1) if room.kept else (room.n_rows + 1, room.nnz)
        return {"indptr": (n, np.int32), "features": (m, np.int32), "values": (m, np.float32)}

    def expand(self, out: DeviceArray, n_rows: int, width: int) -> Any:
        """Return rows laid out in `out`, float32 (n, width): a 1 behind features, then zeros."""
        d = self._n_features
        x = out.values[: n_rows * width].reshape(n_rows, width)
        if self._whole:
            x[:, :d] = self["values"].values[: n_rows * d].reshape(n_rows, d)
            x[:, d:] = 0
        else:
            x.fill(0)
        x[:, d] = 1
        if self._resident is not None:
            self._resident.gather(self.arrays, n_rows, out, width)
        elif not self._whole:
            self._memory.stride(
                striding(expand), n_rows * WARP, self["indptr"], self["features"], self["values"],
                n_rows, width, out,
            )  # fmt: skip
        return x

    def _entries(self, *rows: NDArray[Any]) -> dict[str, int]:
        indptr, features, values = rows
        n, m = len(indptr) - 1, int(indptr[-1])
        self._whole = m == n * self._n_features
        self._host["values"], counts = values, {"values": m}
        if not self._whole:
            self._host["features"] = features
            self._host["indptr"][: n + 1] = indptr
            counts |= {"features": m, "indptr": n + 1}
        return counts

    def release(self) -> None:
        """Allow the slot, and the arrays that it was sent from, to be filled again."""
        super().release()
        if "values" in self._host:
            self._copied.reach()
            for name in self.sent_as_given:
                self._host.pop(name, None)

    def _gather(self, batch: RowIdBatch, counts: dict[str, int]) -> int:
        """Send the numbers of rows, which are gathered when they are laid out."""
        self._send(counts)
        return int(batch.indptr[-1])


def table_of(basis: RowMap, n_features: int) -> NDArray[np.float32]:
    """Return what ``[x, 1]`` is multiplied with to give ``[x P - m P, x Q + q, 1]``."""
    # P and m whiten, Q and q give cosines; x stays as it is without P. Zeros stand behind it all.
    d, more = n_features, slice(n_features, n_features + basis.n_more)
    table = np.zeros((table_rows(d), table_rows(more.stop)), np.float32)
    table[d, more.stop] = 1
    if basis.rotation is None or basis.shift is None:
        table[np.arange(d), np.arange(d)] = 1
    else:
        table[:d, :d], table[d, :d] = basis.rotation, -basis.shift
    if basis.projection is not None:
        table[: d + 1, more] = basis.projection[:-1]
    return table


class Products:
    """Logits of dense rows, ``[x, 1] W`` with the bias as the table's last row, and gradients.

    Rows may be brought to another basis first, ``[x, 1] T``, and get `n_more`, D, columns of
    cosines; the features of the model are d + D. Columns of zeros fill them up to a multiple of
    eight, as rows of zeros do the tables. Logits and gradients may be products in TF32.
    """

    def __init__(
        self, memory: DeviceMemory, spec: ModelShape, n_rows: int, n_more: int, *, whitened: bool
    ) -> None:
        self._memory, self._n_rows, self._n_more = memory, n_rows, n_more
        self._n_plain = spec.n_features - n_more
        self._width, self._plain_width = table_rows(spec.n_features), table_rows(self._n_plain)
        self._x = self._plain = memory.empty(n_rows * self._width, np.float32, "dense rows")
        self._table: DeviceArray | None = None
        self._amplitudes: DeviceArray | None = None
        self._basis: RowMap | None = None
        if whitened:
            self._make_room()

    def _make_room(self) -> None:
        """Make room for a basis."""
        memory, size = self._memory, self._n_rows * self._plain_width
        self._plain = memory.empty(size, np.float32, "dense rows")
        self._table = memory.empty(self._plain_width * self._width, np.float32, "basis")
        if self._n_more:
            self._amplitudes = memory.empty(self._n_more, np.float32, "basis")

    def use(self, basis: RowMap | None) -> None:
        """Bring rows to a basis from now on, or leave them plain."""
        self._basis = basis
        if basis is None:
            return
        if self._table is None:
            self._make_room()
        self._send(self._table, table_of(basis, self._n_plain).reshape(-1))
        if basis.projection is not None:
            self._send(self._amplitudes, np.ascontiguousarray(basis.projection[-1]))

    def _send(self, target: DeviceArray | None, source: NDArray[Any]) -> None:
        assert target is not None, "there is room for a basis"
        self._memory.send(target, source)
        self._memory.wait()

    def expand_rows(self, slot: DenseBuffer, n_rows: int) -> Any:
        """Return a slot's rows as dense ones, the column behind them all 1: float32 (n, width)."""
        memory, table = self._memory, self._table
        if self._basis is None or table is None:
            return slot.expand(self._x, n_rows, self._plain_width)
        x = self._x.values[: n_rows * self._width].reshape(n_rows, self._width)
        plain = slot.expand(self._plain, n_rows, self._plain_width)
        memory.product(plain, table.values.reshape(self._plain_width, self._width), x)
        if self._basis.n_more:
            memory.stride(
                striding(cosines), n_rows * self._n_more, self._x, n_rows, self._width,
                self._n_plain, self._n_more, self._amplitudes,
            )  # fmt: skip
        return x

    def logits(self, group: ModelGroup, x: Any, z: DeviceArray, *, tf32: bool = False) -> Any:
        """Write the logits of dense rows to `z`; return them as float32 (n, stride)."""
        stride = group.shape.stride
        out = z.values[: len(x) * stride].reshape(len(x), stride)
        table = group.tables["weights"].values[: self._width * stride].reshape(self._width, stride)
        self._memory.product(x, table, out, tf32=tf32)
        return out

    def gradient(self, x: Any, z: Any, out: DeviceArray, *, tf32: bool) -> None:
        """Write ``x' z`` of dense rows x and residuals z to `out`: a row of a table each."""
        width, stride = self._width, z.shape[1]
        gradient = out.values[: width * stride].reshape(width, stride)
        self._memory.product(x.T, z, gradient, tf32=tf32)


class CudaDenseSteps(CudaSteps):
    """Steps on dense rows: a matrix product, the softmax, a matrix product, the optimiser."""

    def __init__(
        self, memory: DeviceMemory, spec: ModelShape, models: int, room: BufferRoom,
        resident: DeviceRows | None, products: Products, *, n_more: int, tf32: bool,
    ) -> None:  # fmt: skip
        super().__init__(memory, spec, models, room)
        d, line = spec.n_features - n_more, "gradient"
        slots = [DenseBuffer(memory, room, resident, n_features=d) for _ in range(N_SLOTS)]
        self._slots, self._products, self._tf32 = cycle(slots), products, tf32
        n_gradient = table_rows(spec.n_features) * stride_of(spec, models)
        self._gradient = memory.empty(n_gradient, np.float32, line)
        n = self._n_rows = spec.n_features + 1
        numbers = memory.numbers(n + 1, line)
        slot, n_items = memory.empty(n, np.int32, line), memory.empty(1, np.int32, line)
        self._ones = memory.empty(n, np.float32, line)
        for array, value in ((slot, -1), (n_items, n), (self._ones, 1)):
            array.values.fill(value)
        self._items = Segments(numbers, memory.view(numbers, 1, n), numbers, slot, n_items)

    def step(self, group: ModelGroup, batch: Batch | RowIdBatch, rule: Rule) -> DeviceArray:
        slot, gradient, n = next(self._slots), self._gradient, self._n_rows
        slot.load(batch)
        x = self._products.expand_rows(slot, batch.n_rows)
        z = self._products.logits(group, x, self.z, tf32=self._tf32)
        self._residuals(group, slot, batch.n_rows, rule.smoothing, dense=True)
        self._products.gradient(x, z, gradient, tf32=self._tf32)
        group.update(self._items, rule, n, self._items.begin, self._ones, gradient, gradient)
        slot.release()  # which waits, while the device has work
        return self.losses
