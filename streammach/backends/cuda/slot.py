"""Rows on their way to the device: fixed room on both sides, filled again and again."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.backends.cuda.launch import CHUNK, rounded_up
from streammach.backends.cuda.memory import DeviceArray, Memory, buffer_bytes
from streammach.jit import Array, kernel

PADDING = -1  # the row of an entry that only fills up a row


def entries(n_rows: int, nnz: int) -> int:
    """Return the most entries that so many rows and values have when they come in fours."""
    return rounded_up(nnz + (CHUNK - 1) * n_rows, CHUNK)


@kernel()
def fill_in_fours(
    indptr: Array,
    features: Array,
    values: Array,
    out_indptr: Array,
    out_features: Array,
    out_values: Array,
    out_rows: Array,
) -> Any:
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
        for p in range(indptr[i], indptr[i + 1]):
            out_features[q], out_values[q], out_rows[q] = features[p], values[p], i
            q += 1
        while q % 4:
            out_features[q] = out_features[q - 1]
            out_values[q], out_rows[q] = 0, -1
            q += 1
        out_indptr[i + 1] = q
    return q


def _arrays(n_rows: int, nnz: int) -> dict[str, tuple[int, Any]]:
    m = entries(n_rows, nnz)
    return {
        "indptr": (n_rows + 1, np.int32),
        "features": (m, np.int32),
        "values": (m, np.float32),
        "rows": (m, np.int32),
        "labels": (n_rows, np.int32),
        "importance": (n_rows, np.float32),
    }


class Slot:
    """Fixed room for some rows, in page-locked host memory and on the device.

    Parameters
    ----------
    memory : Memory
        The device's.
    n_rows, nnz : int
        Most rows and values.

    Attributes
    ----------
    held : dict of str to DeviceArray
        ``indptr`` int32 (n + 1,); ``features`` int32, ``values`` float32 and ``rows`` int32 of each
        entry, in fours; ``labels`` int32 (n,), ``importance`` float32 (n,).
    """

    def __init__(self, memory: Memory, n_rows: int, nnz: int) -> None:
        self._memory = memory
        self.n_rows, self.nnz = n_rows, nnz
        sizes = _arrays(n_rows, nnz)
        self._host = {name: memory.page_locked(*size) for name, size in sizes.items()}
        self.held = {name: memory.empty(*size) for name, size in sizes.items()}

    @staticmethod
    def footprint(n_rows: int, nnz: int) -> int:
        """Return the bytes that such a slot takes on the device, and about as many on the host."""
        return sum(buffer_bytes(*size) for size in _arrays(n_rows, nnz).values())

    def fill(
        self,
        indptr: NDArray[np.int64],
        features: NDArray[np.int32],
        values: NDArray[np.float32],
        labels: NDArray[np.int32] | None = None,
        importance: NDArray[np.float32] | None = None,
    ) -> int:
        """Send rows to the device; return their number of entries, in fours.

        Parameters
        ----------
        indptr, features, values : int64 (n + 1,), int32 (nnz,), float32 (nnz,)
            The rows; the first pointer is 0.
        labels, importance : int32 (n,), float32 (n,), optional
            Classes and weights of the rows, for training.
        """
        host, n = self._host, len(indptr) - 1
        out = [host[name] for name in ("indptr", "features", "values", "rows")]
        m = int(fill_in_fours(indptr, features, values, *out))
        counts = {"indptr": n + 1, "features": m, "values": m, "rows": m}
        for name, given in (("labels", labels), ("importance", importance)):
            if given is not None:
                host[name][:n] = given
                counts[name] = n
        for name, count in counts.items():
            self._memory.send(self.held[name], host[name][:count])
        return m

    def __getitem__(self, name: str) -> DeviceArray:
        return self.held[name]
