"""Rows of classes that a model does not know, and the buckets in which it sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streammach import hashing
from streammach.backends.protocol import Ranked
from streammach.model.added import NewClasses
from streammach.model.model import Model
from streammach.options.types import Transform
from streammach.rows.block import RowBlock
from streammach.rows.names import Names
from streammach.rows.transforms import transform_block
from streammach.system.errors import BudgetError
from streammach.system.machine import advise_memory, size_text

# Of a value and of a row that are kept: as they came, joined, in the order of their classes, and
# the pairs that are made of them.
KEPT_VALUE, KEPT_ROW = 80, 64
MEANS_BYTES = 4 << 20  # of mean logarithms, and of those of rows, at a time
TABLE_CODES = 1 << 20  # classes whose codes are compared at once
TRIES = 8  # codes that a class is offered where other ones have the same


@dataclass(frozen=True, kw_only=True)
class NewRows:
    """Rows of new classes."""

    rows: RowBlock  # a row for each new label of a row, with ids from 0 as classes, which rise
    n_distinct: int  # rows with any new label
    left_out: int  # rows without one


def new_rows(
    blocks: Iterable[RowBlock], n_known: int, most_bytes: int, seen: Callable[[int], None]
) -> tuple[NewRows, NDArray[np.int64]]:
    """Return the rows of an input whose labels are new, and which of those labels have rows.

    Returns `present` int64 (n,).
    """
    kept: list[RowBlock] = []
    n_read = n_distinct = n_bytes = 0
    for block in blocks:
        n_read += block.n_rows
        for rows, owners in block.rows_by_label():
            own = np.flatnonzero(rows.classes >= n_known)
            part = rows.take(own)
            n_bytes += KEPT_VALUE * part.nnz + KEPT_ROW * part.n_rows
            if n_bytes > most_bytes:
                raise BudgetError(
                    f"the rows of new classes take more than the {size_text(most_bytes)} that are "
                    "left",
                    hint=f"Nothing was written; use {advise_memory(n_bytes)} of --memory more, or "
                         "fewer rows a class.",
                )  # fmt: skip
            n_distinct += len(np.unique(owners[own]))
            if len(own):
                kept.append(part)
        seen(n_read)
    every = RowBlock.concat(kept)
    present, ids = np.unique(every.classes.astype(np.int64) - n_known, return_inverse=True)
    ids = ids.reshape(-1).astype(np.int32)
    ordered = every.take(np.argsort(ids, kind="stable"))
    rows = RowBlock(
        indptr=ordered.indptr, features=ordered.features, values=ordered.values,
        classes=np.sort(ids),
    )  # fmt: skip
    return NewRows(rows=rows, n_distinct=n_distinct, left_out=n_read - n_distinct), present


def new_classes(model: Model, found: NewRows, labels: Names, backend: Ranked) -> NewClasses:
    """Return what a model says of new classes."""
    rows, n = found.rows, len(labels)
    owners = np.repeat(rows.classes, np.diff(rows.indptr))
    keys = np.unique(owners.astype(np.int64) << 32 | rows.features)
    codes = np.zeros((n, 0), np.uint8)
    if not model.spec.unhashed:
        choice = best_buckets(backend, rows, n, model.training.transform)
        codes = choose_unlike_buckets(*choice, backend.codes)
    return NewClasses(
        labels=labels, codes=codes,
        pairs=np.stack([keys & 0xFFFFFFFF, keys >> 32]).astype(np.int32),
        n_values=np.bincount(owners, minlength=n), n_rows=np.bincount(rows.classes, minlength=n),
        n_distinct=found.n_distinct,
    )  # fmt: skip


def best_buckets(
    backend: Ranked, rows: RowBlock, n_classes: int, transform: Transform
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
    """Return the buckets of new classes, the second best ones, and how far these are apart.

    They have the largest mean logarithms of a probability over the rows of the class: (n, R) each.
    """
    spec = backend.spec
    step = max(1, MEANS_BYTES // (4 * spec.n_columns))
    best, second = np.empty((2, n_classes, spec.n_repetitions), np.int64)
    apart = np.empty(best.shape, np.float32)
    for first in range(0, n_classes, step):
        last = min(first + step, n_classes)
        a, b = np.searchsorted(rows.classes, [first, last])
        some = rows.part(int(a), int(b))
        sums = np.zeros((last - first, spec.n_columns), np.float32)
        for start in range(0, some.n_rows, step):
            part = some.part(start, min(start + step, some.n_rows))
            logs = backend.outputs(transform_block(part, transform), logarithms=True)
            np.add.at(sums, part.classes - first, logs)
        sums /= np.bincount(some.classes - first, minlength=last - first)[:, None]
        means = sums.reshape(-1, spec.n_repetitions, spec.n_buckets)
        best[first:last], highest = means.argmax(axis=2), means.max(axis=2)
        np.put_along_axis(means, best[first:last, :, None], -np.inf, axis=2)
        second[first:last], apart[first:last] = means.argmax(axis=2), highest - means.max(axis=2)
    return best, second, apart


def choose_unlike_buckets(
    best: NDArray[np.int64], second: NDArray[np.int64], apart: NDArray[np.float32],
    table: NDArray[np.unsignedinteger],
) -> NDArray[np.unsignedinteger]:  # fmt: skip
    """Return the bucket of each new class in each repetition, together unlike any other class's.

    Where another class has the same code already, the second best bucket is taken in the repetition
    in which it is nearest to the best one; if that is taken, too, in another one, and so on.
    """
    codes = best.astype(table.dtype)
    order = np.argsort(apart, axis=1, kind="stable")
    for place in range(min(TRIES, codes.shape[1])):
        alike = _rows_in_table(codes, table)
        if not len(alike):
            break
        r = order[alike, place]
        codes[alike] = best[alike]
        codes[alike, r] = second[alike, r]
    return codes


def _rows_in_table(
    codes: NDArray[np.unsignedinteger], table: NDArray[np.unsignedinteger]
) -> NDArray[np.int64]:
    """Return the rows of codes (n, R) that stand in a table (K, R), or earlier among themselves."""
    own = np.empty(len(codes), np.uint64)
    hashing.fingerprints(codes, own)
    taken = np.ones(len(own), np.bool_)
    taken[np.unique(own, return_index=True)[1]] = False
    for start in range(0, len(table), TABLE_CODES):
        some = np.ascontiguousarray(table[start : start + TABLE_CODES])
        known = np.empty(len(some), np.uint64)
        hashing.fingerprints(some, known)
        taken |= np.isin(own, known)
    return np.flatnonzero(taken)
