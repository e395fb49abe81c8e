"""Dense rows on their way to the device: values, and ids of features where a row lacks some.

The numbers of the rows are not sent: a warp finds its row by the row pointers.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.backends.cuda.instructions import compiled, get, int64, put
from streammach.backends.cuda.launch import RESIDENT, THREADS, WARP
from streammach.backends.cuda.memory import DeviceArray, Memory
from streammach.backends.cuda.resident import Resident
from streammach.backends.cuda.target import cuda
from streammach.backends.cuda.transfers import Sizes, TransferBuffer
from streammach.jit import Array, Number
from streammach.rows.batch import RowIdBatch
from streammach.rows.label_lists import LabelLists
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


@lru_cache
def _expand() -> Any:
    return compiled(expand, (THREADS, 4))


class DenseBuffer(TransferBuffer):
    """Fixed room for some dense rows, in page-locked host memory and on the device.

    Parameters
    ----------
    memory : Memory
        The device's.
    n_rows, nnz : int
        Most rows and values.
    resident : Resident, optional
        Where batches are gathered from; else they are sent.
    n_labels : int
        Most labels, where rows have lists of them.
    n_features : int
        d: rows with so many values have all features, and these are sent alone.
    workers : Workers, optional
        Copy into page-locked memory; the calling thread otherwise.

    Attributes
    ----------
    held : dict of str to DeviceArray
        ``indptr`` int32 (n + 1,), ``features`` int32 and ``values`` float32 of each entry;
        ``classes`` int32 (n,), ``importance`` float32 (n,); ``chosen`` int64 (n,) in place of the
        entries where rows are resident; labels as for sparse rows.
    """

    def __init__(
        self, memory: Memory, n_rows: int, nnz: int, resident: Resident | None = None,
        n_labels: int = 0, *, n_features: int, workers: Workers | None = None,
    ) -> None:  # fmt: skip
        super().__init__(memory, n_rows, nnz, resident, n_labels)
        self._n_features, self._workers = n_features, workers
        self._whole = False

    @staticmethod
    def sizes(n_rows: int, nnz: int, *, resident: bool, n_labels: int) -> Sizes:
        """Return the elements of the arrays on the device, by name."""
        found = TransferBuffer.sizes(n_rows, nnz, resident=resident, n_labels=n_labels)
        del found["rows"]
        of_entries = {"features": np.int32, "values": np.float32}
        found |= {name: (1 if resident else nnz, kind) for name, kind in of_entries.items()}
        return {**found, "indptr": (1, np.int32)} if resident else found

    def fill(
        self,
        indptr: NDArray[np.int64],
        features: NDArray[np.int32],
        values: NDArray[np.float32],
        *,
        classes: NDArray[np.int32] | None = None,
        importance: NDArray[np.float32] | None = None,
        labels: LabelLists | None = None,
    ) -> int:
        """Send rows to the device as :meth:`load` does; return their number of entries.

        Parameters
        ----------
        indptr, features, values : int64 (n + 1,), int32 (nnz,), float32 (nnz,)
            The rows, whose features rise; the first pointer is 0.
        classes, importance, labels : arrays, LabelLists, optional
            As for sparse rows.
        """
        self._copied.reach()
        n, m = len(indptr) - 1, int(indptr[-1])
        self._whole = m == n * self._n_features
        entries: dict[str, NDArray[Any]] = {"values": values}
        if not self._whole:
            entries["features"] = features
            self._host["indptr"][: n + 1] = indptr
        self._copy(entries, m)
        counts = dict.fromkeys(entries, m) | ({} if self._whole else {"indptr": n + 1})
        self._send(counts | self._beside(classes, importance, labels))
        return m

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
        memory, d = self._memory, self._n_features
        x = out.values[: n_rows * width].reshape(n_rows, width)
        if self._whole:
            x[:, :d] = self["values"].values[: n_rows * d].reshape(n_rows, d)
            x[:, d:] = 0
        else:
            x.fill(0)
        x[:, d] = 1
        if self._resident is not None:
            self._resident.gather_dense(self.held, n_rows, width, out)
        elif not self._whole:
            memory.launch(
                _expand(), *memory.grid(n_rows * WARP, THREADS, RESIDENT), self["indptr"],
                self["features"], self["values"], np.int64(n_rows), np.int64(width), out,
            )  # fmt: skip
        return x

    def _gather(self, batch: RowIdBatch) -> int:
        """Send the numbers of rows, which are gathered when they are laid out."""
        self._copied.reach()
        self._host["chosen"][: batch.n_rows] = batch.rows
        self._send({"chosen": batch.n_rows} | self._label_starts(batch))
        return int(batch.indptr[-1])

    def _copy(self, given: dict[str, NDArray[Any]], m: int) -> None:
        """Copy the first m numbers of arrays into page-locked memory."""

        def copy(a: int, b: int) -> None:
            for name, array in given.items():
                self._host[name][a:b] = array[a:b]

        pieces = [(a, min(a + PIECE, m)) for a in range(0, m, PIECE)]
        if self._workers is None or len(pieces) < 2:
            copy(0, m)
        else:
            self._workers.each(copy, pieces)
