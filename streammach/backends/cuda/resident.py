"""A store's rows in device memory: filled once, gathered batch by batch."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.backends.cuda.instructions import compiled, get, int64, put
from streammach.backends.cuda.launch import RESIDENT, THREADS, WARP
from streammach.backends.cuda.memory import DeviceArray, Memory, buffer_bytes
from streammach.backends.cuda.target import cuda
from streammach.jit import Array, Number
from streammach.rows.batch import Batch


def gather(
    chosen: Array,
    at: Array,
    n_rows: Number,
    starts: Array,
    features: Array,
    values: Array,
    classes: Array,
    importance: Array,
    out_features: Array,
    out_values: Array,
    out_rows: Array,
    out_classes: Array,
    out_importance: Array,
) -> None:
    """Copy chosen rows so that each takes a multiple of four entries; a warp takes a row.

    A row is filled up with its last feature, the value 0 and the row number -1.

    Parameters
    ----------
    chosen, at : int64 (n,), int32 (n + 1,)
        Numbers of the rows, and where each goes: multiples of four.
    n_rows : int
        n.
    starts, features, values : int64 (N + 1,), int32 (nnz,), float32 (nnz,)
        The rows that are kept.
    classes, importance : int32 (N,), float32 (N,)
        Their classes and importance.
    out_features, out_values, out_rows : int32 (m,), float32 (m,), int32 (m,)
        Receive of each entry the feature, value and row of the batch.
    out_classes, out_importance : int32 (n,), float32 (n,)
        Receive classes and importance.
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


def gather_labels(
    chosen: Array,
    at: Array,
    n_rows: Number,
    starts: Array,
    classes: Array,
    shares: Array,
    out_classes: Array,
    out_shares: Array,
) -> None:
    """Copy the labels of chosen rows; a warp takes a row.

    Parameters
    ----------
    chosen, at : int64 (n,), int32 (n + 1,)
        Numbers of the rows, and where the labels of each go.
    n_rows : int
        n.
    starts, classes, shares : int64 (N + 1,), int32 (m,), float32 (m,)
        The labels of the rows that are kept, and what each has of the target.
    out_classes, out_shares : int32, float32
        Receive the labels.
    """
    lane, first = int64(cuda.grid(1)) % WARP, int64(cuda.grid(1)) // WARP
    for i in range(first, n_rows, int64(cuda.gridsize(1)) // WARP):
        begin, q = int64(get(starts, int64(get(chosen, i)))), int64(get(at, i))
        for j in range(lane, int64(get(at, i + 1)) - q, WARP):
            put(out_classes, q + j, get(classes, begin + j))
            put(out_shares, q + j, get(shares, begin + j))


def gather_dense(
    chosen: Array,
    n_rows: Number,
    width: Number,
    starts: Array,
    features: Array,
    values: Array,
    classes: Array,
    importance: Array,
    x: Array,
    out_classes: Array,
    out_importance: Array,
) -> None:
    """Write chosen rows into dense rows of zeros; a warp takes a row.

    Parameters
    ----------
    chosen : int64 (n,)
        Numbers of the rows.
    n_rows, width : int
        n; columns of a dense row.
    starts, features, values : int64 (N + 1,), int32 (nnz,), float32 (nnz,)
        The rows that are kept.
    classes, importance : int32 (N,), float32 (N,)
        Their classes and importance.
    x : float32 (n * width,)
        The dense rows.
    out_classes, out_importance : int32 (n,), float32 (n,)
        Receive classes and importance.
    """
    lane, first = int64(cuda.grid(1)) % WARP, int64(cuda.grid(1)) // WARP
    for i in range(first, n_rows, int64(cuda.gridsize(1)) // WARP):
        row = int64(get(chosen, i))
        for p in range(int64(get(starts, row)) + lane, int64(get(starts, row + 1)), WARP):
            put(x, i * width + int64(get(features, p)), get(values, p))
        if lane == 0:
            put(out_classes, i, get(classes, row))
            put(out_importance, i, get(importance, row))


@lru_cache
def _kernel(function: Callable[..., None]) -> Any:
    return compiled(function, (THREADS, 4))


LABELS = ("label_starts", "label_classes", "label_shares")


def _sizes(n_rows: int, nnz: int, n_labels: int) -> dict[str, tuple[int, Any]]:
    labels = {
        "label_starts": (n_rows + 1, np.int64),
        "label_classes": (n_labels, np.int32),
        "label_shares": (n_labels, np.float32),
    }
    return {
        "starts": (n_rows + 1, np.int64),
        "features": (nnz, np.int32),
        "values": (nnz, np.float32),
        "classes": (n_rows, np.int32),
        "importance": (n_rows, np.float32),
        **(labels if n_labels else {}),
    }


class Resident:
    """Room for all rows of a store.

    Parameters
    ----------
    memory : Memory
        The device's.
    n_rows, nnz : int
        Rows and values of the store.
    n_labels : int
        Labels of all rows, where they have lists of them; else 0.
    """

    def __init__(self, memory: Memory, n_rows: int, nnz: int, n_labels: int = 0) -> None:
        self._memory, sizes = memory, _sizes(n_rows, nnz, n_labels)
        self._held = {name: memory.empty(*size) for name, size in sizes.items()}
        self._content = ""
        self._rows = self._nnz = self._labels = 0

    @staticmethod
    def footprint(n_rows: int, nnz: int, n_labels: int = 0) -> int:
        """Return the bytes on the device."""
        return sum(buffer_bytes(*size) for size in _sizes(n_rows, nnz, n_labels).values())

    def count(self, content: str) -> int:
        """Return how many of the store's first rows are there as what is called so."""
        return self._rows if content == self._content else 0

    def keep(self, batch: Batch, content: str) -> None:
        """Take the next rows of the store; if something else was kept, the first ones."""
        if content != self._content:
            self._content, self._rows, self._nnz, self._labels = content, 0, 0, 0
        sent: dict[str, tuple[int, NDArray[Any]]] = {
            "starts": (self._rows, self._nnz + batch.indptr),
            "features": (self._nnz, batch.features),
            "values": (self._nnz, batch.values),
            "classes": (self._rows, batch.classes),
            "importance": (self._rows, batch.importance),
        }
        if (lists := batch.labels) is not None:
            assert lists.weights is not None, "the shares of the target"
            sent |= {
                "label_starts": (self._rows, self._labels + lists.starts),
                "label_classes": (self._labels, lists.classes),
                "label_shares": (self._labels, lists.weights),
            }
            self._labels += lists.n_labels
        with self._memory.use():
            for name, (at, array) in sent.items():
                self._memory.send(self._held[name], array, at)
            self._memory.wait()
        self._rows += batch.n_rows
        self._nnz += len(batch.features)

    def gather(self, slot: dict[str, DeviceArray], n_rows: int) -> None:
        """Write the rows that a slot's first two arrays name to its others.

        Parameters
        ----------
        slot : dict of str to DeviceArray
            ``chosen`` int64 (n,) and ``indptr`` int32 (n + 1,), in fours, and ``label_starts``
            int32 (n + 1,) where rows have lists of labels; the others receive rows.
        n_rows : int
            n.
        """
        memory, n = self._memory, np.int64(n_rows)
        grid = memory.grid(n_rows * WARP, THREADS, RESIDENT)
        memory.launch(
            _kernel(gather), *grid, slot["chosen"], slot["indptr"], n, *self._rows_kept,
            slot["features"], slot["values"], slot["rows"], slot["classes"], slot["importance"],
        )  # fmt: skip
        self._gather_labels(slot, n_rows)

    def gather_dense(
        self, slot: dict[str, DeviceArray], n_rows: int, width: int, x: DeviceArray
    ) -> None:
        """Write the rows that a slot's ``chosen`` names into dense rows of zeros.

        Parameters
        ----------
        slot : dict of str to DeviceArray
            ``chosen``, and ``label_starts`` where rows have lists of labels; classes, importance
            and labels are received.
        n_rows, width : int
            n; columns of a dense row.
        x : DeviceArray
            float32 (n * width,).
        """
        grid = self._memory.grid(n_rows * WARP, THREADS, RESIDENT)
        self._memory.launch(
            _kernel(gather_dense), *grid, slot["chosen"], np.int64(n_rows), np.int64(width),
            *self._rows_kept, x, slot["classes"], slot["importance"],
        )  # fmt: skip
        self._gather_labels(slot, n_rows)

    @property
    def _rows_kept(self) -> list[DeviceArray]:
        return [array for name, array in self._held.items() if name not in LABELS]

    def _gather_labels(self, slot: dict[str, DeviceArray], n_rows: int) -> None:
        memory, n = self._memory, np.int64(n_rows)
        if "label_starts" in self._held:
            grid = memory.grid(n_rows * WARP, THREADS, RESIDENT)
            memory.launch(
                _kernel(gather_labels), *grid, slot["chosen"], slot["label_starts"], n,
                *(self._held[name] for name in LABELS), slot["label_classes"], slot["label_shares"],
            )  # fmt: skip
