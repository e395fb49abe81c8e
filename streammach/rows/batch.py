"""Batches: rows in the order of training, transformed, row by row and feature by feature."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammach.options.types import Transform
from streammach.rows.block import RowBlock
from streammach.rows.label_lists import NONE, LabelLists
from streammach.rows.transforms import TRANSFORMS
from streammach.system.jit import Array, kernel
from streammach.system.threads import Workers, in_pieces

RADIX_BITS = 11
POINTERS = {"indptr", "label_starts"}
HostRoom = Callable[[int, Any], NDArray[Any]]  # returns an array of so many elements of a type


class ByFeature(NamedTuple):
    """The values of a batch feature by feature, features rising, rows rising within each."""

    ids: NDArray[np.int32]  # int32 (u,): the features that occur
    starts: NDArray[np.int64]  # int64 (u + 1,): where each one's values lie
    rows: NDArray[np.int32]  # int32 (nnz,): row of the batch
    values: NDArray[np.float32]  # float32 (nnz,): the values


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Rows for one training step, as the reader gives them to a backend."""

    indptr: NDArray[np.int64]  # int64 (n + 1,): row pointers, from 0
    features: NDArray[np.int32]  # int32 (nnz,): feature ids; none where rows have all features
    values: NDArray[np.float32]  # float32 (nnz,): transformed values
    # int32 (n,): class ids; the first of each where rows have lists of labels
    classes: NDArray[np.int32]
    importance: NDArray[np.float32]  # float32 (n,): importance of each row
    # all labels of each row with their shares of the target; None where each has one
    labels: LabelLists | None = None
    # the same values feature by feature, where the backend wants them
    by_feature: ByFeature | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.classes)


@dataclass(frozen=True)
class RowIdBatch:
    """Rows for one training step that a device holds, by their numbers."""

    rows: NDArray[np.int64]  # int64 (n,): numbers in the store, in the order of training
    indptr: NDArray[np.int64]  # int64 (n + 1,): row pointers, from 0, of a batch of these rows
    # int64 (n + 1,) or None: where the labels of each row lie in such a batch, where rows have
    # lists of them
    label_starts: NDArray[np.int64] | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.rows)


class BatchSlot:
    """Fixed room for one batch, filled again and again.

    Batches hold the first `n_features` features alone, whatever is added, or what is added has no
    others (without `cut`). Without `ids` rows have all features, in their order; `make` gives room
    on the host.
    """

    def __init__(
        self, n_rows: int, nnz: int, n_features: int, *, by_feature: bool, n_labels: int = 0,
        shared: bool = True, ids: bool = True, cut: bool = True, make: HostRoom = np.empty,
    ) -> None:  # fmt: skip
        self.n_rows = 0
        self._listed, self._shared, self._ids, self._cut = n_labels > 0, shared, ids, cut and ids
        self._n_features = n_features
        self._by_feature = by_feature
        self._rows = {
            name: make(count, dtype)
            for name, (count, dtype) in row_arrays(n_rows, nnz, n_labels, ids=ids).items()
        }
        for name in POINTERS & self._rows.keys():
            self._rows[name][0] = 0
        arrays = _feature_arrays(nnz) if by_feature else {}
        self._features = {name: np.empty(count, dtype) for name, (count, dtype) in arrays.items()}

    @staticmethod
    def footprint(
        n_rows: int, nnz: int, *, by_feature: bool, n_labels: int = 0, ids: bool = True
    ) -> int:
        """Return the bytes that such a slot takes."""
        arrays = [*row_arrays(n_rows, nnz, n_labels, ids=ids).values()]
        arrays += _feature_arrays(nnz).values() if by_feature else []
        return sum(count * np.dtype(dtype).itemsize for count, dtype in arrays)

    def add(
        self, block: RowBlock, chosen: NDArray[np.int64], transform: Transform,
        workers: Workers | None = None,
    ) -> int:  # fmt: skip
        """Append chosen rows of a block, int64 (m,), until the slot is full; return how many."""
        rows = self._rows
        room = len(rows["classes"]) - self.n_rows
        importance = block.importance if block.importance is not None else np.ones(1, np.float32)
        chosen = chosen[:room]
        if self._listed:
            lists = block.lists
            fitting = gather_labels(
                lists.starts, lists.classes, NONE if lists.weights is None else lists.weights,
                chosen, self.n_rows, self._shared, rows["label_starts"], rows["label_classes"],
                rows["label_weights"],
            )  # fmt: skip
            chosen = chosen[:fitting]
        indptr, values = rows["indptr"][self.n_rows :], rows["values"]
        features = block.features if self._ids else block.features[:0]
        added = place_rows(
            block.indptr, block.classes, importance, chosen, len(values), indptr,
            rows["classes"][self.n_rows :], rows["importance"][self.n_rows :],
        )  # fmt: skip

        def piece(first: int, last: int) -> None:
            places = indptr[first : last + 1]
            copy_rows(
                block.indptr, features, block.values, chosen[first:last], places,
                rows["features"], values,
            )  # fmt: skip
            TRANSFORMS[transform](places, values)

        in_pieces(workers, int(added), piece)
        self.n_rows += added
        return int(added)

    def batch(self) -> Batch:
        """Return what was added as views of the slot."""
        n, rows = self.n_rows, self._rows
        if self._cut:
            cut_rows(rows["indptr"][: n + 1], rows["features"], rows["values"], self._n_features)
        nnz = int(rows["indptr"][n])
        by_feature = None
        if self._by_feature:
            f = self._features
            used = transpose(
                rows["indptr"][: n + 1], rows["features"], rows["values"], self._n_features,
                f["order"], f["spare"], f["ids"], f["starts"], f["rows"], f["values"],
            )  # fmt: skip
            by_feature = ByFeature(
                f["ids"][:used], f["starts"][: used + 1], f["rows"][:nnz], f["values"][:nnz]
            )
        labels = None
        if self._listed:
            starts = rows["label_starts"][: n + 1]
            labels = LabelLists(
                starts, rows["label_classes"][: starts[n]], rows["label_weights"][: starts[n]]
            )
        return Batch(
            indptr=rows["indptr"][: n + 1], features=rows["features"][: nnz * self._ids],
            values=rows["values"][:nnz], classes=rows["classes"][:n],
            importance=rows["importance"][:n], labels=labels, by_feature=by_feature,
        )  # fmt: skip

    def clear(self) -> None:
        """Forget the rows."""
        self.n_rows = 0


def row_arrays(
    n_rows: int, nnz: int, n_labels: int, *, ids: bool,
    values: type[np.generic] = np.float32, weighted: bool = True,
) -> dict[str, tuple[int, type[np.generic]]]:  # fmt: skip
    """Return the elements and types of arrays that hold rows, by name; no labels without lists."""
    found: dict[str, tuple[int, type[np.generic]]] = {
        "indptr": (n_rows + 1, np.int64), "features": (nnz * ids, np.int32),
        "values": (nnz, values), "classes": (n_rows, np.int32),
    }  # fmt: skip
    if weighted:
        found["importance"] = (n_rows, np.float32)
    if n_labels:
        found["label_starts"] = (n_rows + 1, np.int64)
        found["label_classes"] = (n_labels, np.int32)
        found["label_weights"] = (n_labels, np.float32)
    return found


def _feature_arrays(nnz: int) -> dict[str, tuple[int, type[np.generic]]]:
    return {
        "order": (nnz, np.int64),
        "spare": (nnz, np.int64),
        "ids": (nnz, np.int32),
        "starts": (nnz + 1, np.int64),
        "rows": (nnz, np.int32),
        "values": (nnz, np.float32),
    }


@kernel()
def place_rows(
    indptr: Array, classes: Array, importance: Array, chosen: Array, room: int, out_indptr: Array,
    out_classes: Array, out_importance: Array,
) -> Any:  # fmt: skip
    """Find places for the values of chosen rows; return how many rows have room.

    Parameters
    ----------
    indptr, classes, importance : int64 (n + 1,), int32 (n,), float32 (n,) or (1,)
        The rows; one importance for all when there is one.
    chosen, room : int64 (m,), int
        The rows that places are found for, and the values that there is room for.
    out_indptr, out_classes, out_importance : int64 (> m,), int32, float32
        Receive row pointers, after a first one that is set, classes and importance.
    """
    q = out_indptr[0]
    for k in range(chosen.shape[0]):
        row = chosen[k]
        q += indptr[row + 1] - indptr[row]
        if q > room:
            return k
        out_indptr[k + 1] = q
        out_classes[k] = classes[row]
        out_importance[k] = importance[row] if importance.shape[0] > 1 else importance[0]
    return chosen.shape[0]


@kernel()
def copy_rows(
    indptr: Array, features: Array, values: Array, chosen: Array, places: Array,
    out_features: Array, out_values: Array,
) -> None:  # fmt: skip
    """Copy the features, where there are any, and values of chosen rows to their places.

    Parameters
    ----------
    indptr, features, values, chosen : int64 (n + 1,), int32, uint8 or float32, int64 (m,)
        The rows, and which are copied; no features where rows have all of them.
    places, out_features, out_values : int64 (m + 1,), int32, float32
        Where the values of each go; receive them.
    """
    ids = features.shape[0] > 0
    for k in range(chosen.shape[0]):
        # Positions without a sign: nothing counts from an array's end, and loops are vectorised.
        start, q = np.uint64(indptr[chosen[k]]), np.uint64(places[k])
        n = np.uint64(places[k + 1]) - q
        for p in range(n):
            out_values[q + p] = values[start + p]
        for p in range(n if ids else np.uint64(0)):
            out_features[q + p] = features[start + p]


@kernel()
def cut_rows(indptr: Array, features: Array, values: Array, n_features: int) -> None:
    """Leave the features from a number on out of rows, in place; those of each row rise.

    Parameters
    ----------
    indptr, features, values, n_features : int64 (n + 1,), int32 (nnz,), float32 (nnz,), int
        The rows; the features that are left have smaller ids.
    """
    start = q = indptr[0]
    for i in range(indptr.shape[0] - 1):
        end = stop = indptr[i + 1]
        while stop > start and features[stop - 1] >= n_features:
            stop -= 1
        if q < start:
            for p in range(start, stop):
                features[q + p - start], values[q + p - start] = features[p], values[p]
        q += stop - start
        start, indptr[i + 1] = end, q


@kernel(fastmath=False)
def gather_labels(
    starts: Array, classes: Array, weights: Array, chosen: Array, first: int, shared: bool,
    out_starts: Array, out_classes: Array, out_weights: Array,
) -> Any:  # fmt: skip
    """Copy the labels of chosen rows behind the first rows of the output; return how many fit.

    Parameters
    ----------
    starts, classes, weights : int64 (n + 1,), int32 (m,), float32 (m,) or (0,)
        The labels and their weights; 1 where there are none.
    chosen, first, shared : int64 (k,), int, bool
        Rows to copy, rows that the output holds, whether a row's weights are to add up to 1.
    out_starts, out_classes, out_weights : int64, int32, float32
        The output, of fixed room.
    """
    q = out_starts[first]
    for k in range(chosen.shape[0]):
        start, stop = starts[chosen[k]], starts[chosen[k] + 1]
        if q + stop - start > out_classes.shape[0]:
            return k
        total = np.float32(0)
        for p in range(start, stop):
            weight = weights[p] if weights.shape[0] > 0 else np.float32(1)
            out_classes[q + p - start], out_weights[q + p - start] = classes[p], weight
            total += weight
        if shared and total > 0:
            for p in range(q, q + stop - start):
                out_weights[p] /= total
        q += stop - start
        out_starts[first + k + 1] = q
    return chosen.shape[0]


@kernel(allocates=True)
def transpose(
    indptr: Array, features: Array, values: Array, n_features: int, order: Array, spare: Array,
    ids: Array, starts: Array, rows: Array, out_values: Array,
) -> Any:  # fmt: skip
    """Bring a batch into the order of its features, stably; return how many features occur.

    Parameters
    ----------
    indptr, features, values, n_features : int64 (n + 1,), int32 (nnz,), float32 (nnz,), int
        The batch by rows; feature ids are below the number.
    order, spare : int64 (nnz,)
        Scratch.
    ids, starts, rows, out_values : int32, int64, int32, float32
        Receive the batch by features; see :class:`ByFeature`.
    """
    n, nnz = indptr.shape[0] - 1, indptr[indptr.shape[0] - 1]
    for p in range(nnz):  # feature above, place below
        order[p] = (np.int64(features[p]) << 32) | p
    count = np.empty(1 << RADIX_BITS, np.int64)
    shift = 32
    while (n_features - 1) >> (shift - 32) > 0:
        count[:] = 0
        for p in range(nnz):
            count[(order[p] >> shift) & ((1 << RADIX_BITS) - 1)] += 1
        total = 0
        for c in range(count.shape[0]):
            total, count[c] = total + count[c], total
        for p in range(nnz):
            digit = (order[p] >> shift) & ((1 << RADIX_BITS) - 1)
            spare[count[digit]] = order[p]
            count[digit] += 1
        order, spare = spare, order
        shift += RADIX_BITS
    for i in range(n):  # the other array now maps places to rows
        for p in range(indptr[i], indptr[i + 1]):
            spare[p] = i
    used, last = 0, np.int64(-1)
    for q in range(nnz):
        feature, p = order[q] >> 32, order[q] & 0xFFFFFFFF
        if feature != last:
            ids[used], starts[used], last = feature, q, feature
            used += 1
        rows[q], out_values[q] = spare[p], values[p]
    starts[used] = nnz
    return used
