"""Matrix products of dense rows: rows laid out whole, brought to another basis, their logits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.backends.cuda.group import ModelGroup
from streammach.backends.cuda.instructions import compiled, cosine, get, int64, put
from streammach.backends.cuda.launch import RESIDENT, THREADS
from streammach.backends.cuda.memory import DeviceArray, Memory, buffer_bytes
from streammach.backends.cuda.target import cuda
from streammach.backends.cuda.transfers import TransferBuffer
from streammach.jit import Array, Number
from streammach.rows.waves import RowMap, Waves
from streammach.spec.model import ModelShape, ModelSpec


def expand(
    features: Array, values: Array, rows: Array, n_entries: Number, width: Number, x: Array
) -> None:
    """Write entries into dense rows of zeros; those that only fill up a row are left out.

    Parameters
    ----------
    features, values, rows : int32 (m,), float32 (m,), int32 (m,)
        The entries as a slot holds them.
    n_entries, width : int
        How many count; columns of a dense row.
    x : float32 (n * width,)
        The dense rows.
    """
    start, step = int64(cuda.grid(1)), int64(cuda.gridsize(1))
    for p in range(start, n_entries, step):
        row = int64(get(rows, p))
        if row >= 0:
            put(x, row * width + int64(get(features, p)), get(values, p))


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


@lru_cache
def _expand() -> Any:
    return compiled(expand, (THREADS, 4))


@lru_cache
def _cosines() -> Any:
    return compiled(cosines, (THREADS, 4))


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
    float32 (d + 1, d + D + 1)
        The table, after whose product cosines are still to be taken.
    """
    d = n_features
    table = np.zeros((d + 1, d + basis.n_more + 1), np.float32)
    table[d, -1] = 1
    white = basis.basis if isinstance(basis, Waves) else basis
    if white is None:
        table[np.arange(d), np.arange(d)] = 1
    else:
        table[:d, :d], table[d, :d] = white.rotation, -white.shift
    if isinstance(basis, Waves):
        table[:, d:-1] = basis.projection[:-1]
    return table


def table_size(n_features: int, n_more: int) -> int:
    """Return the elements of such a table."""
    return (n_features + 1) * (n_features + n_more + 1)


def table_bytes(n_features: int, n_more: int) -> int:
    """Return the bytes of such a table on the device, and of the amplitudes."""
    more = buffer_bytes(n_more, np.float32) if n_more else 0
    return buffer_bytes(table_size(n_features, n_more), np.float32) + more


@dataclass(frozen=True)
class RowTables:
    """What dense rows are brought to, on the device: a table, and amplitudes of D columns if any.

    Attributes
    ----------
    table : DeviceArray
        float32 ((d + 1) * (d + D + 1),): see :func:`table_of`.
    amplitudes : DeviceArray or None
        float32 (D,).
    """

    table: DeviceArray
    amplitudes: DeviceArray | None


class Products:
    """Logits of dense rows: ``[x, 1] W`` with the bias as the table's last row.

    Rows may be brought to another basis first, ``[x, 1] T``, and get D columns of cosines.

    Parameters
    ----------
    memory : Memory
        The device's.
    spec : ModelSpec
        The model; its features are d + D.
    n_rows : int
        Most rows at once.
    n_more : int
        D.
    """

    def __init__(self, memory: Memory, spec: ModelSpec, n_rows: int, n_more: int) -> None:
        self._memory, self._width, self._n_rows = memory, spec.n_features + 1, n_rows
        self._n_more, self._plain_width = n_more, self._width - n_more
        self.x = memory.empty(n_rows * self._width, np.float32)
        self._plain = self.x
        self._tables: RowTables | None = None

    @staticmethod
    def footprint(spec: ModelShape, n_rows: int, *, whitened: bool, n_more: int) -> int:
        """Return the bytes on the device."""
        width = spec.n_features + 1
        plain = buffer_bytes(n_rows * (width - n_more), np.float32) if whitened else 0
        return buffer_bytes(n_rows * width, np.float32) + plain

    def use(self, tables: RowTables | None) -> None:
        """Bring rows to a basis from now on, or leave them plain."""
        self._tables = tables
        if tables is not None and self._plain is self.x:
            self._plain = self._memory.empty(self._n_rows * self._plain_width, np.float32)

    def expanded(self, slot: TransferBuffer, n_rows: int, n_entries: int) -> Any:
        """Return a slot's rows as dense ones with a last column of ones: float32 (n, d + D + 1)."""
        plain_shape = (n_rows, self._plain_width)
        if self._tables is None:
            return self._laid_out(slot, n_entries, self.x, plain_shape)
        x = self.x.values[: n_rows * self._width].reshape(n_rows, self._width)
        plain = self._laid_out(slot, n_entries, self._plain, plain_shape)
        table = self._tables.table.values.reshape(self._plain_width, self._width)
        self._memory.product(plain, table, x)
        if self._tables.amplitudes is not None:
            memory, n = self._memory, n_rows * self._n_more
            blocks, threads = memory.grid(n, THREADS, RESIDENT)
            memory.launch(
                _cosines(), blocks, threads, self.x, np.int64(n_rows), np.int64(self._width),
                np.int64(self._plain_width - 1), np.int64(self._n_more), self._tables.amplitudes,
            )  # fmt: skip
        return x

    def _laid_out(
        self, slot: TransferBuffer, n_entries: int, out: DeviceArray, shape: tuple[int, int]
    ) -> Any:
        memory, width = self._memory, shape[1]
        x = out.values[: shape[0] * width].reshape(shape)
        x[:] = 0
        x[:, -1] = 1
        if n_entries:
            blocks, threads = memory.grid(n_entries, THREADS, RESIDENT)
            memory.launch(
                _expand(), blocks, threads, slot["features"], slot["values"], slot["rows"],
                np.int64(n_entries), np.int64(width), out,
            )  # fmt: skip
        return x

    def logits(self, group: ModelGroup, x: Any, z: DeviceArray) -> Any:
        """Write the logits of dense rows to `z`; return them as float32 (n, stride)."""
        stride = group.shape.stride
        out = z.values[: len(x) * stride].reshape(len(x), stride)
        table = group.tables["weights"].values[: self._width * stride].reshape(self._width, stride)
        self._memory.product(x, table, out)
        return out
