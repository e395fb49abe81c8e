"""What the kernels of a step read, in plain NumPy: rows in fours, and items of sorted entries.

The device builds the same numbers, and so gives the same bits of weights.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammach.rows.batch import ByFeature

FOUR = 4


class Rows(NamedTuple):
    """Rows whose values come in fours, so that four ids and four values are one load each."""

    indptr: NDArray[np.int32]  # (n + 1,), multiples of 4
    features: NDArray[np.int32]  # (m,); a row is filled up with its last one
    values: NDArray[np.float32]  # (m,); and with the value 0


def rows_in_fours(
    indptr: NDArray[np.integer], features: NDArray[np.int32], values: NDArray[np.float32]
) -> Rows:
    """Return rows filled up to multiples of four entries."""
    lengths = np.diff(indptr)
    padded = rounded_up_all(lengths)
    edges = np.concatenate([[0], np.cumsum(padded)])
    full = lengths > 0
    ids = np.repeat(features[indptr[1:][full] - 1], padded[full])
    x = np.zeros(edges[-1], np.float32)
    where = np.arange(indptr[-1]) + np.repeat(edges[:-1] - indptr[:-1], lengths)
    ids[where], x[where] = features, values
    return Rows(edges.astype(np.int32), ids.astype(np.int32), x)


def rounded_up_all(lengths: NDArray[np.integer]) -> NDArray[np.integer]:
    """Return each length rounded up to a multiple of four: integer (n,)."""
    return -(-lengths // FOUR) * FOUR


class Items(NamedTuple):
    """Pieces of the gradient's sums: each is one feature's entries, or a part of them; all (m,)."""

    begin: NDArray[np.int32]
    end: NDArray[np.int32]
    feature: NDArray[np.int32]  # row of the table
    slot: NDArray[np.int32]  # where the partial sum goes; -1: it is the whole of its feature


class Work(NamedTuple):
    """All that a backward pass walks over, the bias included.

    Entries (m,) are features rising, rows rising within each, last the bias as feature d with the
    value 1 in every row.
    """

    rows: NDArray[np.int32]
    values: NDArray[np.float32]
    whole: Items  # the first pass: features of one item are updated, others leave partial sums
    joined: Items  # the second pass, over the partial sums of the others
    n_slots: int  # partial sums


def work_items(by_feature: ByFeature, n_rows: int, bias_row: int, segment: int) -> Work:
    """Cut a batch's entries where the feature changes and at every multiple of `segment`.

    The cuts depend on positions alone, so that flags and running sums find them, on any device.
    `bias_row` is the table's row that holds the bias: d.
    """
    nnz = len(by_feature.rows)
    ids = np.append(by_feature.ids, np.int32(bias_row))
    starts = np.append(by_feature.starts, nnz + n_rows)
    begin = np.unique(np.concatenate([starts[:-1], np.arange(0, starts[-1], segment)]))
    end = np.append(begin[1:], starts[-1])
    u = np.searchsorted(starts, begin, side="right") - 1
    part = (begin != starts[u]) | (end != starts[u + 1])
    slot = np.where(part, np.cumsum(part) - 1, -1)
    lead = np.flatnonzero(part & (begin == starts[u]))
    n_slots = int(part.sum())
    return Work(
        np.concatenate([by_feature.rows, np.arange(n_rows, dtype=np.int32)]),
        np.concatenate([by_feature.values, np.ones(n_rows, np.float32)]),
        _items(begin, end, ids[u], slot),
        _items(
            slot[lead], np.append(slot[lead][1:], n_slots)[: len(lead)], ids[u[lead]],
            np.full(len(lead), -1),
        ),
        n_slots,
    )  # fmt: skip


def _items(*arrays: NDArray[Any]) -> Items:
    return Items(*(np.ascontiguousarray(a, np.int32) for a in arrays))
