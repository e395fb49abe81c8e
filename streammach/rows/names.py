"""Names of labels and features, compact lists of byte strings, and the columns that had them.

A name belongs to a namespace (0 for labels and for features without one). In a list a feature's
name is ``namespace^name``; a name without a namespace that holds ``^`` itself stands as ``^name``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.rows.name_table import (
    EMPTY,
    SLOT_BYTES,
    NameTable,
    capacity_for,
    find_names,
    index_all,
    pad_bytes,
)
from streammach.rows.texts import Texts
from streammach.system.errors import DataError, StoreError, clean
from streammach.system.jit import Array, kernel
from streammach.system.simd import PADDING

Label = int | str | bytes
Words = Callable[[str], list[str]]  # takes a name apart
MAX_NAME = 4095  # bytes of one name: its length has 12 bits in a slot
MAX_NAMESPACES = 1 << 20
MAX_DIGITS, MINUS, ZERO, NINE = 18, 45, 48, 57
SEPARATOR = ord("^")
SHOWN_FEATURES, SHOWN_SPACES = 20_000, 40
SOME_NAMES = 4096  # that are made Python objects of at a time
ROOM = bytes(PADDING)
UTF8 = "utf-8", "surrogatepass"


@dataclass(frozen=True)
class Names(Texts):
    """An immutable list of names by id."""

    # `integer` when every name is a decimal integer in its usual form, `utf8` when all are valid
    # UTF-8, else `bytes`; it decides in which type :meth:`label` gives them back
    kind: str

    def __getitem__(self, i: Any) -> Any:
        """Return the name at a place, from the end if it is below 0, or those of a slice."""
        if isinstance(i, slice):
            return self.values(np.arange(len(self))[i])
        return self.label(range(len(self))[i])

    def __iter__(self) -> Iterator[Label]:
        """Yield all names in the type that the user gave."""
        for start in range(0, len(self), SOME_NAMES):
            yield from self[start : start + SOME_NAMES]

    def raw(self, i: int) -> bytes:
        """Return the bytes of name `i`."""
        return self.data[self.offsets[i] : self.offsets[i + 1]].tobytes()

    def label(self, i: int) -> Label:
        """Return name `i` in the type that the user gave: int, str or bytes."""
        return values_of([self.raw(i)], self.kind)[0]

    def values(self, ids: NDArray[np.int64]) -> list[Label]:
        """Return names by their ids int64 (n,), in the type that the user gave."""
        return values_of(self.raws(ids), self.kind)

    @property
    def n_bytes(self) -> int:
        """Bytes that the list takes in memory."""
        return self.offsets.nbytes + self.data.nbytes

    def arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """Return the arrays as a model's file has them, by names with a prefix."""
        return {prefix + "offsets": self.offsets, prefix + "bytes": self.data}

    @classmethod
    def of(cls, names: Iterable[Label]) -> Names:
        """Return the list of the given names, in their order."""
        texts = Texts.of(n if isinstance(n, bytes) else str(n).encode() for n in names)
        data = texts.data.copy()
        return cls(texts.offsets, data, kind_of(texts.offsets, data))

    def followed_by(self, more: Names) -> Names:
        """Return the names of this list and then those of another one, of the kind of all."""
        both = Texts.concat([self, more])
        return Names(both.offsets, both.data, kind_of(both.offsets, both.data))

    def is_sound(self) -> bool:
        """Return whether a list from a file has names within the bytes, of its kind, not long."""
        offsets, n_bytes = self.offsets, len(self.data)
        if not len(offsets) or offsets[0] != 0 or offsets[-1] != n_bytes:
            return False
        if (np.diff(offsets) < 0).any() or longest_part(offsets, self.data) > MAX_NAME:
            return False
        return kind_of(offsets, self.data) == self.kind

    def same_as(self, other: Names) -> bool:
        """Return whether both lists hold the same names in the same order."""
        return np.array_equal(self.offsets, other.offsets) and np.array_equal(self.data, other.data)

    def ids_of(self, other: Names) -> NDArray[np.int32]:
        """Return each name's id here, int32 (n,), or -1; StoreError if one is here twice."""
        if self.same_as(other):
            return np.arange(len(other), dtype=np.int32)
        return self.index().ids_of(other)

    def labels_of(self, other: Names, index: NameIndex | None = None) -> NDArray[np.int32]:
        """Return ids of labels as :meth:`ids_of` does; two truth values, in lower case or not.

        Who asks several times gives the index of these names.
        """
        ids = (self if index is None else index).ids_of(other)
        own = {self.raw(i).lower(): i for i in range(len(self))} if len(self) <= 2 else {}
        if own and own.keys() <= {b"true", b"false"}:
            left = np.flatnonzero(ids < 0).tolist()
            ids[left] = [own.get(other.raw(i).lower(), -1) for i in left]
        return ids

    def index(self) -> NameIndex:
        """Return what finds these names, made anew; StoreError if one is here twice."""
        return NameIndex(self)


@dataclass(frozen=True)
class ClassNames:
    """What classes are called."""

    classes: NDArray[np.int32]  # int32 (n,): the class of each name, rising
    texts: Names  # the names, n of them

    def words(self, words: Words) -> Iterator[tuple[int, set[str]]]:
        """Yield the class of each name, and its words."""
        for c, name in zip(self.classes.tolist(), self.texts, strict=True):
            text = name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)
            yield c, set(words(text))

    def titles(self, n_classes: int, others: Names | None = None) -> Names:
        """Return the first name of each class; without any that of a list, or an empty one."""
        found = [b""] * n_classes if others is None else others.raws()
        first = np.unique(self.classes, return_index=True)[1]
        for c, title in zip(self.classes[first].tolist(), self.texts.raws(first), strict=True):
            found[c] = title
        return Names.of(found)


class NameIndex:
    """Finds the ids of names in a list. Threads may share it: nothing in it changes."""

    def __init__(self, names: Texts) -> None:
        slots = np.full((capacity_for(len(names)), 2), EMPTY, np.uint64)
        none, data = np.zeros(0, np.int32), pad_bytes(names.data)
        self._table = NameTable(slots, names.offsets, none, data, np.zeros(2, np.int64))
        if not index_all(self._table):
            raise StoreError("damaged: a name is there twice")

    @staticmethod
    def footprint(n_names: int, n_bytes: int) -> int:
        """Return the bytes of an index of so many names of so many bytes."""
        return SLOT_BYTES * capacity_for(n_names) + n_bytes + PADDING

    def ids_of(self, other: Texts) -> NDArray[np.int32]:
        """Return the id of each name of another list, int32 (n,), or -1."""
        data, offsets = pad_bytes(other.data), other.offsets
        return find_names(self._table, data, offsets[:-1], offsets[1:])

    def ids(self, names: Sequence[str | bytes]) -> NDArray[np.int32]:
        """Return the id of each of some names, int32 (n,), or -1."""
        try:
            text: str | None = "".join(names)  # type: ignore[arg-type]
        except TypeError:  # some are bytes
            text = None
        if text is not None and text.isascii():  # each character is a byte
            ends, raw = [0, *itertools.accumulate(map(len, names))], text.encode() + ROOM
        else:
            raws = [n if isinstance(n, bytes) else n.encode(*UTF8) for n in names]
            ends, raw = [0, *itertools.accumulate(map(len, raws))], b"".join([*raws, ROOM])
        offsets = np.array(ends, np.int64)
        return find_names(self._table, np.frombuffer(raw, np.uint8), offsets[:-1], offsets[1:])


def values_of(raws: list[bytes], kind: str) -> list[Label]:
    """Return names of a kind in the type that the user gave."""
    if kind == "integer":
        return [int(raw) for raw in raws]
    return [raw.decode() for raw in raws] if kind == "utf8" else [*raws]


def kind_of(offsets: NDArray[np.int64], data: NDArray[np.uint8]) -> str:
    """Return ``integer``, ``utf8`` or ``bytes``, by what all names are."""
    if all_integers(offsets, data):
        return "integer"
    try:
        data.tobytes().decode()
    except UnicodeDecodeError:
        return "bytes"
    starts = data[offsets[:-1][np.diff(offsets) > 0]]
    starts_inside = np.any((starts & 0xC0) == 0x80)  # a name that starts within a character
    return "bytes" if starts_inside else "utf8"


def in_namespace(names: Names, namespace: bytes) -> NDArray[np.bool_]:
    """Return for each feature whether it belongs to a namespace: bool (d,)."""
    prefix = np.frombuffer(namespace + bytes([SEPARATOR]), np.uint8)
    starts = names.offsets[:-1]
    inside = np.diff(names.offsets) >= len(prefix)
    for k, byte in enumerate(prefix):
        inside[inside] &= names.data[starts[inside] + k] == byte
    return inside


def namespaces(names: Names) -> list[str]:
    """Return the namespaces of the first features, sorted, for a message."""
    found: set[bytes] = set()
    for i in range(min(len(names), SHOWN_FEATURES)):
        head, separator, _ = names.raw(i).partition(bytes([SEPARATOR]))
        if separator and head:
            found.add(head)
    return [clean(name) for name in sorted(found)[:SHOWN_SPACES]]


def namespace_ids(names: Names, most: int) -> NDArray[np.int32]:
    """Return a number for each feature's namespace: int32 (d,).

    0 stands for none. Namespaces are numbered in the order of their first features; the last
    number, `most`, is shared by all namespaces after the first ``most - 1``.
    """
    starts = names.offsets[:-1]
    separators = np.flatnonzero(names.data == SEPARATOR)
    after = np.append(separators, len(names.data))
    first = after[np.searchsorted(separators, starts)]
    ids = np.where((first < names.offsets[1:]) & (first > starts), most, 0).astype(np.int32)
    open_features = ids == most
    for number in range(1, most):
        feature = int(open_features.argmax()) if len(ids) else 0
        if not len(ids) or not open_features[feature]:
            break
        head = names.raw(feature).partition(bytes([SEPARATOR]))[0]
        inside = in_namespace(names, head)
        ids[inside] = number
        open_features &= ~inside
    return ids


@kernel()
def longest_part(offsets: Array, data: Array) -> Any:
    """Return the most bytes that a namespace, or a name without it, has in a list."""
    longest = np.int64(0)
    for i in range(offsets.shape[0] - 1):
        start = offsets[i]
        for q in range(offsets[i], offsets[i + 1]):
            if data[q] == SEPARATOR and start == offsets[i]:
                longest = max(longest, q - start)
                start = q + 1
        longest = max(longest, offsets[i + 1] - start)
    return longest


@kernel()
def all_integers(offsets: Array, data: Array) -> Any:
    """Return whether each name is a decimal integer in its usual form, of at most 18 digits."""
    for i in range(offsets.shape[0] - 1):
        start, end = offsets[i], offsets[i + 1]
        zero = end - start == 1 and data[start] == ZERO
        if not zero:
            start += end > start and data[start] == MINUS
            if not 0 < end - start <= MAX_DIGITS or data[start] == ZERO:
                return False
        for q in range(start, end):
            if not ZERO <= data[q] <= NINE:
                return False
    return True


@dataclass(frozen=True)
class TrainedColumns:
    """The columns of the matrix that was trained on, by which others are read."""

    # how many, those without a value too; 0 where rows came from no matrix, or from some whose
    # columns had other names or places
    n_columns: int = 0
    # int32 (d,) or None: the column of each feature, -1 where it has none; None where columns had
    # no names, and features are named by their numbers
    positions: NDArray[np.int32] | None = None

    def is_sound(self) -> bool:
        """Return whether features have columns that there are, and no two the same one."""
        if self.positions is None:
            return True
        known = self.positions[self.positions >= 0]
        inside = self.positions.min() >= -1 and self.positions.max() < self.n_columns
        return bool(inside) and len(np.unique(known)) == len(known)

    def ids(self) -> NDArray[np.int32] | None:
        """Return each column's feature, -1 for none; None where these are named by numbers."""
        if self.positions is None:
            return None
        ids = np.full(self.n_columns, -1, np.int32)
        known = np.flatnonzero(self.positions >= 0)
        ids[self.positions[known]] = known
        return ids

    def of(self, features: NDArray[np.int64]) -> TrainedColumns:
        """Return them for some of the features, whose ids are then their places among these."""
        if self.positions is None:
            return self
        return TrainedColumns(self.n_columns, self.positions[features])

    def remark(self, ids: NDArray[np.int32], given: Names, features: Names) -> str | None:
        """Return what columns, told by name, lack or have beyond those trained on, or None."""
        known = np.sort(ids[ids >= 0])
        if not len(known):
            hint = f"The model knows {_some(features, np.arange(len(features)))}."
            raise DataError("no column has the name of a feature of the model: columns", hint=hint)
        twice = known[1:][np.diff(known) == 0]
        if len(twice):
            what = f"two columns have the name of one feature: {_some(features, twice[:1])}"
            raise DataError(what)
        said, unknown = [], np.flatnonzero(ids < 0)
        if self.n_columns:
            trained = np.arange(len(features)) if self.positions is None else self.positions
            lost = np.setdiff1d(np.flatnonzero(trained >= 0), known)
            if len(lost):
                said.append(f"{_some(features, lost)} not there, which counts as 0 in all rows")
        if len(unknown) > max(0, self.n_columns - len(features)):  # these had no value in training
            said.append(f"{_some(given, unknown)} with a name that no feature has, not used")
        return "; ".join(said) or None

    def difference(self, n_columns: int) -> str | None:
        """Return how a matrix without names of columns differs in width, or None."""
        if self.n_columns in (0, n_columns):
            return None
        return f"the matrix has {n_columns:,} columns, {self.n_columns:,} were trained on"


def _some(names: Names, places: NDArray[np.int64]) -> str:
    first = ", ".join(clean(names.raw(i), 40) for i in places[:8].tolist())
    more = f" and {len(places) - 8:,} more" if len(places) > 8 else ""
    return f"column{'' if len(places) == 1 else 's'} {first}{more}"


NO_COLUMNS = TrainedColumns()
