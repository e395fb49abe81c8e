"""Matrix products of dense rows: rows laid out whole, brought to another basis, their logits."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numba import cuda
from numpy.typing import NDArray

from streammach.backends.cuda.group import ModelGroup
from streammach.backends.cuda.instructions import compiled, get, int64, put
from streammach.backends.cuda.launch import RESIDENT, THREADS
from streammach.backends.cuda.memory import DeviceArray, Memory, buffer_bytes
from streammach.backends.cuda.transfers import TransferBuffer
from streammach.jit import Array, Number
from streammach.rows.dense import Basis
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


@lru_cache
def _expand() -> Any:
    return compiled(expand, (THREADS, 4))


def table_of(basis: Basis) -> NDArray[np.float32]:
    """Return a basis as what ``[x, 1]`` is multiplied with to give ``[x P - m P, 1]``."""
    width = len(basis.shift) + 1
    table = np.zeros((width, width), np.float32)
    table[:-1, :-1], table[-1, :-1], table[-1, -1] = basis.rotation, -basis.shift, 1
    return table


def table_bytes(spec: ModelShape) -> int:
    """Return the bytes of such a table on the device."""
    return buffer_bytes((spec.n_features + 1) ** 2, np.float32)


class Products:
    """Logits of dense rows: ``[x, 1] W`` with the bias as the table's last row.

    Rows may be brought to another basis first, ``[x, 1] T``.

    Parameters
    ----------
    memory : Memory
        The device's.
    spec : ModelSpec
        The model.
    n_rows : int
        Most rows at once.
    """

    def __init__(self, memory: Memory, spec: ModelSpec, n_rows: int) -> None:
        self._memory, self._width, self._n_rows = memory, spec.n_features + 1, n_rows
        self.x = memory.empty(n_rows * self._width, np.float32)
        self._plain = self.x
        self._table: DeviceArray | None = None

    @staticmethod
    def footprint(spec: ModelShape, n_rows: int, *, whitened: bool) -> int:
        """Return the bytes on the device."""
        return (2 if whitened else 1) * buffer_bytes(n_rows * (spec.n_features + 1), np.float32)

    def use(self, table: DeviceArray | None) -> None:
        """Bring rows to a basis from now on (:func:`table_of`), or leave them plain."""
        self._table = table
        if table is not None and self._plain is self.x:
            self._plain = self._memory.empty(self._n_rows * self._width, np.float32)

    def expanded(self, slot: TransferBuffer, n_rows: int, n_entries: int) -> Any:
        """Return a slot's rows as dense ones with a last column of ones: float32 (n, d + 1)."""
        shape, n = (n_rows, self._width), n_rows * self._width
        if self._table is None:
            return self._laid_out(slot, n_entries, self.x, shape)
        x = self.x.values[:n].reshape(shape)
        plain = self._laid_out(slot, n_entries, self._plain, shape)
        self._memory.product(plain, self._table.values.reshape(self._width, self._width), x)
        return x

    def _laid_out(
        self, slot: TransferBuffer, n_entries: int, out: DeviceArray, shape: tuple[int, int]
    ) -> Any:
        memory, width = self._memory, self._width
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
