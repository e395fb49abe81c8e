"""The tables of labels, namespaces and features that a reader of text fills or looks up."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.errors import StoreError
from streammach.jit import Array, kernel
from streammach.rows.name_table import (
    NameTable,
    add_all,
    find_all,
    find_or_add,
    grown,
    hash_name,
    new_table,
    padded,
)
from streammach.rows.names import MAX_NAME, SEPARATOR, Names, kind_of
from streammach.rows.texts import Texts
from streammach.rows.trained import NO_COLUMNS, TrainedColumns


class Vocabulary:
    """Labels, namespaces and features by name, numbered in the order in which they were met."""

    def __init__(
        self, labels: Names | None = None, features: Names | None = None, *,
        add_labels: bool = True, add_features: bool = True, columns: TrainedColumns = NO_COLUMNS,
    ) -> None:  # fmt: skip
        self.columns = columns
        self.add_labels = add_labels
        self.add_features = add_features
        self.labels, self.spaces, self.features = new_table(), new_table(64, 1024), new_table()
        for table, names in (("labels", labels), ("features", features)):
            if names is not None and not self.take_in(table, names):
                raise StoreError(f"damaged: one of the {table} is there twice")

    @property
    def n_labels(self) -> int:
        """Number of labels."""
        return int(self.labels.used[0])

    @property
    def n_features(self) -> int:
        """Number of features."""
        return int(self.features.used[0])

    def grow(self) -> None:
        """Enlarge every table that has no room for one more name."""
        if self.add_labels:
            self.labels = grown(self.labels, 1, MAX_NAME)
        if self.add_features:
            self.spaces = grown(self.spaces, 1, MAX_NAME)
            self.features = grown(self.features, 1, MAX_NAME)

    def label_ids(self, names: list[bytes]) -> NDArray[np.int32]:
        """Return the ids of labels; new ones get the next ids where that is allowed.

        Returns int32 (len(names),).
        """
        wanted = Names.of(names)
        if self.add_labels:
            return self.added("labels", wanted)
        data, out = padded(wanted.data), np.empty(len(names), np.int32)
        find_all(self.labels, wanted.offsets, data, out)
        return out

    def namespace_ids(self, names: list[bytes]) -> NDArray[np.int32]:
        """Return the ids of namespaces, as :meth:`label_ids` does: int32 (len(names),)."""
        wanted = Names.of(names)
        data, out = padded(wanted.data), np.empty(len(names), np.int32)
        if self.add_features:
            self.spaces = grown(self.spaces, len(names), len(wanted.data))
            _add_whole(self.spaces, wanted, data, out)
        else:
            find_all(self.spaces, wanted.offsets, data, out)
        return out

    def label_names(self) -> Names:
        """Return the labels in the order of their ids."""
        n, n_bytes = self.n_labels, int(self.labels.used[1])
        offsets = self.labels.starts[: n + 1].copy()
        data = self.labels.arena[:n_bytes].copy()
        return Names(offsets, data, kind_of(offsets, data))

    def feature_names(self) -> Names:
        """Return the features as ``namespace^name`` in the order of their ids."""
        return _listed(self.features, self.spaces)

    def names_since(self, table: str, first: int) -> Names:
        """Return the names of ``labels`` or ``features`` whose ids are `first` or more."""
        names = self.label_names() if table == "labels" else self.feature_names()
        start = names.offsets[first]
        return Names(names.offsets[first:] - start, names.data[start:], "")

    def take_in(self, table: str, names: Names) -> bool:
        """Add new names to ``labels`` or ``features``; return whether all of them were new."""
        before = self.n_labels + self.n_features
        self.added(table, names)
        return self.n_labels + self.n_features == before + len(names)

    def added(self, table: str, names: Names) -> NDArray[np.int32]:
        """Return the ids of names of ``labels`` or ``features``; new ones are added: int32 (n,)."""
        data, out = padded(names.data), np.empty(len(names), np.int32)
        if table == "labels":
            self.labels = grown(self.labels, len(names), len(names.data))
            _add_whole(self.labels, names, data, out)
            return out
        self.features = grown(self.features, len(names), len(names.data))
        starts, owners = names.offsets[:-1].copy(), np.zeros(len(names), np.int32)
        done = 0
        while done < len(names):  # stops where the table of namespaces is full
            done = _cut_at_spaces(self.spaces, names.offsets, data, done, starts, owners)
            self.spaces = grown(self.spaces, 1, MAX_NAME)
        add_all(self.features, data, starts, names.offsets[1:], owners, out)
        return out

    @property
    def n_bytes(self) -> int:
        """Bytes that the tables take."""
        return sum(a.nbytes for t in (self.labels, self.spaces, self.features) for a in t)


def _add_whole(
    table: NameTable, names: Names, data: NDArray[np.uint8], out: NDArray[np.int32]
) -> None:
    """Add names that have no namespace to a table with room; `data` are their bytes, padded."""
    spaces = np.zeros(len(names), np.int32)
    add_all(table, data, names.offsets[:-1], names.offsets[1:], spaces, out)


@kernel()
def _cut_at_spaces(
    spaces: NameTable, offsets: Array, data: Array, first_name: int, starts: Array, owners: Array
) -> Any:
    """Cut names ``namespace^name``; return how far it came before `spaces` was full.

    The namespace of each goes to `owners` int32 (n,), and where its own name starts to `starts`
    int64 (n,), which hold 0 and where the whole starts.
    """
    for i in range(first_name, offsets.shape[0] - 1):
        start, end = offsets[i], offsets[i + 1]
        cut = start
        while cut < end and data[cut] != SEPARATOR:
            cut += 1
        if cut < end:
            if cut > start:
                state = hash_name(data, start, cut - start, 0)
                owners[i] = find_or_add(spaces, data, start, cut - start, 0, state) + 1
                if owners[i] == 0:
                    return i
            starts[i] = cut + 1
    return offsets.shape[0] - 1


@kernel()
def _composed_sizes(table: NameTable, spaces: NameTable, offsets: Array) -> None:
    """Write where each composed name starts into `offsets` int64 (n + 1,)."""
    for i in range(table.used[0]):
        size = table.starts[i + 1] - table.starts[i]
        if table.spaces[i] > 0:
            s = table.spaces[i] - 1
            size += spaces.starts[s + 1] - spaces.starts[s] + 1
        else:
            for q in range(table.starts[i], table.starts[i + 1]):
                if table.arena[q] == SEPARATOR:
                    size += 1
                    break
        offsets[i + 1] = offsets[i] + size


@kernel()
def _compose(table: NameTable, spaces: NameTable, offsets: Array, data: Array) -> None:
    """Write the composed names into `data` uint8."""
    for i in range(table.used[0]):
        p = offsets[i]
        if table.spaces[i] > 0:
            s = table.spaces[i] - 1
            for q in range(spaces.starts[s], spaces.starts[s + 1]):
                data[p] = spaces.arena[q]
                p += 1
        if offsets[i + 1] - p > table.starts[i + 1] - table.starts[i]:
            data[p] = SEPARATOR
            p += 1
        for q in range(table.starts[i], table.starts[i + 1]):
            data[p] = table.arena[q]
            p += 1


def _listed(table: NameTable, spaces: NameTable) -> Names:
    offsets = np.zeros(int(table.used[0]) + 1, np.int64)
    _composed_sizes(table, spaces, offsets)
    data = np.empty(int(offsets[-1]), np.uint8)
    _compose(table, spaces, offsets, data)
    return Names(offsets, data, kind_of(offsets, data))


def by_frequency(names: Names, counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the order of names by falling count, ties by their bytes.

    `counts` is int64 (n,). Returns int64 (n,).
    """
    heads = np.zeros((len(names), 2), np.uint64)
    _heads(names.offsets, names.data, heads)
    order = np.lexsort((heads[:, 1], heads[:, 0], -counts))
    sorted_counts, heads = counts[order], heads[order]
    same = (sorted_counts[1:] == sorted_counts[:-1]) & (heads[1:] == heads[:-1]).all(axis=1)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], same.view(np.int8), [0]])))
    for a, b in edges.reshape(-1, 2).tolist():  # names alike in their first 16 bytes
        order[a : b + 1] = sorted(order[a : b + 1].tolist(), key=names.raw)
    return order


@kernel()
def _heads(offsets: Array, data: Array, heads: Array) -> None:
    """Write the first 16 bytes of each name as two big-endian words: `heads` uint64 (n, 2)."""
    for i in range(offsets.shape[0] - 1):
        for q in range(min(offsets[i + 1] - offsets[i], 16)):
            byte = np.uint64(data[offsets[i] + q])
            heads[i, q // 8] |= byte << np.uint64(56 - 8 * (q % 8))


def permuted(names: Names, order: NDArray[np.int64]) -> Names:
    """Return the list whose name `new` is ``names[order[new]]``."""
    found = Texts(names.offsets, names.data).take(order)
    return Names(found.offsets, found.data, names.kind)
