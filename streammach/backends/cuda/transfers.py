"""Rows on their way to the device: fixed room on both sides, filled again and again.

Copies run ahead of the kernels' stream, so that with two slots in turn one batch is copied while
another is trained on. Three rules keep them apart: the host refills a slot when its last copies are
done; copies overwrite what is on the device when the work that read it is done; work on a slot
begins when its copies are done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from streammach.backends.cuda.launch import CHUNK, rounded_up
from streammach.backends.cuda.memory import DeviceArray, Memory, buffer_bytes
from streammach.backends.cuda.resident import Resident
from streammach.jit import Array, kernel
from streammach.rows.batch import Batch, RowIdBatch
from streammach.rows.label_lists import LabelLists

N_SLOTS = 2
Sizes = dict[str, tuple[int, Any]]  # elements and types of arrays, by name


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


class TransferBuffer:
    """Fixed room for some rows, in page-locked host memory and on the device.

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

    Attributes
    ----------
    held : dict of str to DeviceArray
        ``indptr`` int32 (n + 1,); ``features`` int32, ``values`` float32 and ``rows`` int32 of each
        entry, in fours; ``classes`` int32 (n,), ``importance`` float32 (n,); ``chosen`` int64 (n,)
        where rows are resident; ``label_starts`` int32 (n + 1,), ``label_classes`` int32 and
        ``label_shares`` float32 where rows have lists of labels.
    """

    def __init__(
        self, memory: Memory, n_rows: int, nnz: int, resident: Resident | None = None,
        n_labels: int = 0,
    ) -> None:  # fmt: skip
        self._memory, self._resident = memory, resident
        self.n_rows, self.nnz = n_rows, nnz
        kept = resident is not None
        on_host = self.host_sizes(n_rows, nnz, resident=kept, n_labels=n_labels)
        self._host = {name: memory.page_locked(*size) for name, size in on_host.items()}
        sizes = self.sizes(n_rows, nnz, resident=kept, n_labels=n_labels)
        self.held = {name: memory.empty(*size) for name, size in sizes.items()}
        self._copied, self._used = memory.event(), memory.event()

    @staticmethod
    def sizes(n_rows: int, nnz: int, *, resident: bool, n_labels: int) -> Sizes:
        """Return the elements of the arrays on the device, by name."""
        m = entries(n_rows, nnz)
        arrays: Sizes = {
            "indptr": (n_rows + 1, np.int32),
            "features": (m, np.int32),
            "values": (m, np.float32),
            "rows": (m, np.int32),
            "classes": (n_rows, np.int32),
            "importance": (n_rows, np.float32),
        }
        if n_labels:
            arrays["label_starts"] = (n_rows + 1, np.int32)
            arrays["label_classes"] = (n_labels, np.int32)
            arrays["label_shares"] = (n_labels, np.float32)
        return {**arrays, "chosen": (n_rows, np.int64)} if resident else arrays

    @classmethod
    def host_sizes(cls, n_rows: int, nnz: int, *, resident: bool, n_labels: int) -> Sizes:
        """Return the elements of the arrays on the host, by name."""
        arrays = cls.sizes(n_rows, nnz, resident=resident, n_labels=n_labels)
        numbers = ("indptr", "chosen", *(("label_starts",) if n_labels else ()))
        return {name: arrays[name] for name in numbers} if resident else arrays

    @classmethod
    def footprint(cls, n_rows: int, nnz: int, *, resident: bool = False, n_labels: int = 0) -> int:
        """Return the bytes that such a slot takes on the device."""
        arrays = cls.sizes(n_rows, nnz, resident=resident, n_labels=n_labels)
        return sum(buffer_bytes(*size) for size in arrays.values())

    @classmethod
    def host_footprint(
        cls, n_rows: int, nnz: int, *, resident: bool = False, n_labels: int = 0
    ) -> int:
        """Return the bytes that such a slot takes on the host."""
        arrays = cls.host_sizes(n_rows, nnz, resident=resident, n_labels=n_labels)
        return sum(buffer_bytes(*size) for size in arrays.values())

    def load(self, batch: Batch | RowIdBatch) -> int:
        """Bring a batch to the device; return its number of entries, in fours."""
        # When all work on it was asked for, release() follows.
        if isinstance(batch, RowIdBatch):
            return self._gather(batch)
        return self.fill(
            batch.indptr, batch.features, batch.values, classes=batch.classes,
            importance=batch.importance, labels=batch.labels,
        )  # fmt: skip

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
        """Send rows to the device as :meth:`load` does; return their number of entries, in fours.

        Parameters
        ----------
        indptr, features, values : int64 (n + 1,), int32 (nnz,), float32 (nnz,)
            The rows; the first pointer is 0.
        classes, importance : int32 (n,), float32 (n,), optional
            Classes and importance of the rows, for training.
        labels : LabelLists, optional
            Their labels with what each has of the target, where they are lists.
        """
        self._copied.reach()
        host, n = self._host, len(indptr) - 1
        out = [host[name] for name in ("indptr", "features", "values", "rows")]
        m = int(fill_in_fours(indptr, features, values, *out))
        counts = {"indptr": n + 1, "features": m, "values": m, "rows": m}
        self._send(counts | self._beside(classes, importance, labels))
        return m

    def _beside(
        self, classes: NDArray[np.int32] | None, importance: NDArray[np.float32] | None,
        labels: LabelLists | None,
    ) -> dict[str, int]:  # fmt: skip
        """Make ready to send what rows have beside values; return how much of each there is."""
        more: dict[str, NDArray[Any] | None] = {"classes": classes, "importance": importance}
        if labels is not None:
            more |= {
                "label_starts": labels.starts, "label_classes": labels.classes,
                "label_shares": labels.weights,
            }  # fmt: skip
        there = {name: given for name, given in more.items() if given is not None}
        for name, given in there.items():
            self._host[name][: len(given)] = given
        return {name: len(given) for name, given in there.items()}

    def _gather(self, batch: RowIdBatch) -> int:
        """Send the numbers of rows, and gather these on the device."""
        assert self._resident is not None, "no rows are kept"
        self._copied.reach()
        host, n = self._host, batch.n_rows
        in_fours = -(-np.diff(batch.indptr) // CHUNK) * CHUNK
        host["indptr"][0] = 0
        np.cumsum(in_fours, out=host["indptr"][1 : n + 1])
        host["chosen"][:n] = batch.rows
        self._send({"indptr": n + 1, "chosen": n} | self._label_starts(batch))
        self._resident.gather(self.held, n)
        return int(host["indptr"][n])

    def _label_starts(self, batch: RowIdBatch) -> dict[str, int]:
        """Make ready to send where rows' labels lie; return how many numbers that are."""
        if batch.label_starts is None:
            return {}
        self._host["label_starts"][: batch.n_rows + 1] = batch.label_starts
        return {"label_starts": batch.n_rows + 1}

    def _send(self, counts: dict[str, int]) -> None:
        self._used.before(ahead=True)
        for name, count in counts.items():
            self._memory.send(self.held[name], self._host[name][:count], ahead=True)
        self._copied.mark(ahead=True)
        self._copied.before()

    def release(self) -> None:
        """Allow the slot to be filled again behind the work that was asked for on it."""
        self._used.mark()

    def __getitem__(self, name: str) -> DeviceArray:
        return self.held[name]


B = TypeVar("B", bound=TransferBuffer)


class TransferBuffers(Generic[B]):
    """Two slots that batches take in turn.

    Parameters
    ----------
    make : callable
        Returns one.
    """

    def __init__(self, make: Callable[[], B]) -> None:
        self._slots = [make() for _ in range(N_SLOTS)]
        self._turn = 0

    def next(self) -> B:
        """Return the slot for the next batch."""
        self._turn = (self._turn + 1) % N_SLOTS
        return self._slots[self._turn]
