"""Tables of labels, namespaces and features that readers fill or look up, alone or together."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.rows.name_table import (
    NO_SPACE,
    NameTable,
    add_missing,
    find_names,
    find_or_add,
    grow_table,
    hash_name,
    new_table,
    pad_bytes,
)
from streammach.rows.names import MAX_NAME, NO_COLUMNS, SEPARATOR, Names, TrainedColumns, kind_of
from streammach.rows.texts import Texts
from streammach.system.errors import StoreError
from streammach.system.forks import ForkSafeLock
from streammach.system.jit import Array, kernel

HAT = np.array([SEPARATOR], np.uint8)


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
            self.labels = grow_table(self.labels, 1, MAX_NAME)
        if self.add_features:
            self.spaces = grow_table(self.spaces, 1, MAX_NAME)
            self.features = grow_table(self.features, 1, MAX_NAME)

    def label_ids(self, names: list[bytes]) -> NDArray[np.int32]:
        """Return the ids of labels; new ones get the next ids where that is allowed: int32 (n,)."""
        if not self.add_labels and self.n_labels <= 2:
            return self.label_names().labels_of(Names.of(names))
        return self.whole_ids("labels", Texts.of(names), add=self.add_labels)

    def namespace_ids(self, names: list[bytes]) -> NDArray[np.int32]:
        """Return the ids of namespaces, as :meth:`label_ids` does: int32 (n,)."""
        return self.whole_ids("spaces", Texts.of(names), add=self.add_features)

    def whole_ids(self, table: str, names: Texts, *, add: bool) -> NDArray[np.int32]:
        """Return the ids of names without a namespace in a table; new ones are added or -1."""
        if add:
            into = grow_table(getattr(self, table), len(names), names.text_bytes)
            setattr(self, table, into)
        starts, ends = names.offsets[:-1], names.offsets[1:]
        return find_names(getattr(self, table), pad_bytes(names.data), starts, ends, add=add)

    def label_names(self) -> Names:
        """Return the labels in the order of their ids."""
        n, n_bytes = self.n_labels, int(self.labels.used[1])
        offsets = self.labels.starts[: n + 1].copy()
        data = self.labels.arena[:n_bytes].copy()
        return Names(offsets, data, kind_of(offsets, data))

    def feature_names(self) -> Names:
        """Return the features as ``namespace^name`` in the order of their ids."""
        return _names_list(self.features, self.spaces)

    def take_in(self, table: str, names: Names) -> bool:
        """Add new names to ``labels`` or ``features``; return whether all of them were new."""
        before = self.n_labels + self.n_features
        if table == "labels":
            self.whole_ids(table, names, add=True)
        else:
            self._add_features(names)
        return self.n_labels + self.n_features == before + len(names)

    def _add_features(self, names: Names) -> None:
        data = pad_bytes(names.data)
        self.features = grow_table(self.features, len(names), names.text_bytes)
        starts, owners = names.offsets[:-1].copy(), np.zeros(len(names), np.int32)
        done = 0
        while done < len(names):  # stops where the table of namespaces is full
            done = _cut_at_spaces(self.spaces, names.offsets, data, done, starts, owners)
            self.spaces = grow_table(self.spaces, 1, MAX_NAME)
        find_names(self.features, data, starts, names.offsets[1:], owners, add=True)

    @property
    def n_bytes(self) -> int:
        """Bytes that the tables take."""
        return sum(a.nbytes for t in (self.labels, self.spaces, self.features) for a in t)


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
                state = hash_name(data, start, cut - start, NO_SPACE)
                owners[i] = find_or_add(spaces, data, start, cut - start, NO_SPACE, state) + 1
                if owners[i] == 0:
                    return i
            starts[i] = cut + 1
    return offsets.shape[0] - 1


@kernel()
def _compose(table: NameTable, spaces: NameTable, offsets: Array, data: Array) -> None:
    """Write where composed names start to `offsets` int64 (n + 1,), and them where `data` is."""
    for i in range(table.used[0]):
        p, s, parted = offsets[i], table.spaces[i] - 1, table.spaces[i] > 0
        if parted:
            p = _put(data, p, spaces.arena, spaces.starts[s], spaces.starts[s + 1])
        for q in range(table.starts[i], table.starts[i + 1]):
            parted = parted or table.arena[q] == SEPARATOR
        if parted:
            p = _put(data, p, HAT, 0, 1)
        offsets[i + 1] = _put(data, p, table.arena, table.starts[i], table.starts[i + 1])


@kernel(inline=True)
def _put(data: Array, p: int, arena: Array, first: int, last: int) -> Any:
    """Write bytes of an arena at `p`, unless `data` is empty; return the place behind them."""
    for q in range(first, last if p < data.shape[0] else first):
        data[p + q - first] = arena[q]
    return p + last - first


def _names_list(table: NameTable, spaces: NameTable) -> Names:
    offsets = np.zeros(int(table.used[0]) + 1, np.int64)
    for _ in range(2):  # how long they are, then they
        _compose(table, spaces, offsets, data := np.empty(int(offsets[-1]), np.uint8))
    return Names(offsets, data, kind_of(offsets, data))


def by_frequency(names: Names, counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the order of names by falling count, ties by their bytes: int64 (n,)."""
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


NO_IDS = np.empty(0, np.int32)
MOST_LABELS = 1 << 19  # that a reader knows before it begins anew: few of so many come again soon


class LocalNames:
    """The tables that one reader fills, and what their ids are in the vocabulary of all readers.

    The ids that new names get there depend on which reader is first: what is made of the rows must
    depend on names alone. Tables that take in no names are not copied but used by all. Labels get
    their common ids piece by piece, so that they need not all be in the tables of every reader. The
    only reader has no lock, and fills the vocabulary itself.
    """

    def __init__(self, whole: Vocabulary, lock: ForkSafeLock | None) -> None:
        self._whole, self._lock = whole, lock
        self._ids = dict.fromkeys(("labels", "spaces", "features"), NO_IDS)
        self.vocabulary = whole  # what the reader fills
        if lock is None:
            return
        self.vocabulary = Vocabulary(
            add_labels=whole.add_labels, add_features=whole.add_features, columns=whole.columns
        )
        if not whole.add_labels:
            self.vocabulary.labels = whole.labels
        if not whole.add_features:
            self.vocabulary.spaces, self.vocabulary.features = whole.spaces, whole.features

    def share(self, classes: NDArray[np.int32]) -> None:
        """Put new names into the common vocabulary, and give rows' classes its ids, in place."""
        # The ids of features stay those of this reader; `features` says what they are.
        mine = self.vocabulary
        if self._lock is None:
            return
        if mine.add_features:
            self._share("spaces", self._lock)
            self._share("features", self._lock)
        if mine.add_labels:
            self._share("labels", self._lock)
            ids = self._ids["labels"]
            known = classes >= 0
            classes[known] = ids[classes[known]]
            if len(ids) > MOST_LABELS:
                mine.labels, self._ids["labels"] = new_table(), NO_IDS

    @property
    def features(self) -> NDArray[np.int32]:
        """The common id of each feature: int32 (d,)."""
        if self._lock is None or not self.vocabulary.add_features:
            return np.arange(self.vocabulary.n_features, dtype=np.int32)
        return self._ids["features"]

    @property
    def n_bytes(self) -> int:
        """Bytes of the tables that are this reader's own."""
        return 0 if self._lock is None else self.vocabulary.n_bytes

    def _share(self, name: str, lock: ForkSafeLock) -> None:
        """Learn the common ids of the names that are new in a table."""
        table, known = getattr(self.vocabulary, name), self._ids[name]
        first, n = len(known), int(table.used[0])
        if first == n:
            return
        start, end = int(table.starts[first]), int(table.used[1])
        data, edges = pad_bytes(table.arena[start:end]), table.starts[first : n + 1] - start
        owners = table.spaces[first:n].copy()
        if name == "features":
            owners = np.append(np.int32(0), self._ids["spaces"] + np.int32(1))[owners]
        # Most are there. Looking does not wait for others who add: what it misses is added below.
        ids = find_names(getattr(self._whole, name), data, edges[:-1], edges[1:], owners)
        new = np.flatnonzero(ids < 0)
        starts, ends, added = edges[:-1][new], edges[1:][new], ids[new]
        if len(new):
            with lock:
                into = getattr(self._whole, name)
                larger = grow_table(into, len(new), int((ends - starts).sum()))
                if larger.arena is not into.arena and larger.slots is into.slots:
                    # whoever looks at the old bytes must not meet names that these lack
                    larger = larger._replace(slots=into.slots.copy())
                setattr(self._whole, name, larger)
                add_missing(larger, data, starts, ends, owners[new], added)
            ids[new] = added
        self._ids[name] = np.concatenate([known, ids])
