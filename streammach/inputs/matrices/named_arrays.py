"""Arrays by their names, as files of matrices hold them, and what is checked before any is read."""

from __future__ import annotations

import math
import tokenize
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.system.errors import BudgetError, DataError, StreammachError, clean
from streammach.system.files.reading import disk_error
from streammach.system.machine import memory_limit, size_text

MAX_NODES, MAX_DEPTH = 10_000, 8  # groups and arrays of a file that are looked at, and how deep
MAX_CHUNK_BYTES = 256 << 20
MAX_RATIO = 1100  # deflate makes no byte from less than a thousandth of one
LABEL_BYTES = 24  # of the label of a row, as it is read and as the place of its name
LABELS_A_ROW = 32  # of a matrix of rows x labels that is kept with all of its cells
TEXT_BYTES = 64  # of a string in memory
SPARSE_PARTS = ("data", "indices", "indptr")
DAMAGED = (  # what is raised where files are
    zipfile.BadZipFile, zlib.error, EOFError, ValueError, RuntimeError, NotImplementedError,
    tokenize.TokenError, SyntaxError, OverflowError, TypeError, LookupError,  # odd headers of .npy
)  # fmt: skip
COPY_HINT = "Copy or write the file again."
FILLS = ("_FillValue", "missing_value")  # attributes of netCDF


class StoredArray(ABC):
    """An array in a file or in memory that is read in ranges of its first axis."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    unit: int = 1  # items of the first axis that are stored together

    def check(self) -> None:  # noqa: B027
        """Raise DataError if it cannot be read, or not safely; one in memory can."""

    @abstractmethod
    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return items ``start:stop`` of the first axis, or raise DataError or DiskError."""


class MemoryArray(StoredArray):
    """An array in memory, read as stored ones are."""

    def __init__(self, values: NDArray[Any]) -> None:
        self.shape, self.dtype, self._values = values.shape, values.dtype, values

    def read(self, start: int, stop: int) -> NDArray[Any]:
        return self._values[start:stop]


@dataclass(frozen=True)
class NamedArrays:
    """The arrays of a file or folder by their paths in it, and its attributes."""

    path: Path  # the file or folder
    arrays: Mapping[str, StoredArray]
    attributes: Callable[[str], Mapping[str, Any]]  # of a group or an array

    def text(self, name: str, *attributes: str) -> str:
        """Return the first of some attributes that is there, as text; an empty one without any."""
        there = self.attributes(name)
        value = next((there[a] for a in attributes if a in there), "")
        return value.decode(errors="replace") if isinstance(value, bytes) else str(value)

    def fills(self, name: str) -> list[Any]:
        """Return the values that stand for missing ones in an array, as netCDF names them."""
        there = self.attributes(name)
        return [fill for a in FILLS if a in there for fill in np.ravel(there[a]).tolist()]

    @property
    def masked_columns(self) -> set[str]:
        """Columns that are an array and a mask of what is missing."""
        return self._groups("values", "mask") - {""}

    @property
    def categorical(self) -> set[str]:
        """Columns that are a code for each row, and categories."""
        known = self.arrays.keys() | self.masked_columns
        groups = (name.removesuffix("/codes") for name in self.arrays if name.endswith("/codes"))
        return {group for group in groups if f"{group}/categories" in known}

    @property
    def sparse(self) -> set[str]:
        """Groups that hold the arrays of a sparse matrix."""
        return self._groups(*SPARSE_PARTS)

    def _groups(self, *parts: str) -> set[str]:
        names = {name.rpartition("/")[0] for name in self.arrays}
        return {name for name in names if all(inside(name, p) in self.arrays for p in parts)}

    def read(self, name: str) -> NDArray[Any]:
        """Return a whole array, or raise DataError."""
        array = self.arrays[name]
        array.check()
        if not array.shape:
            raise DataError(f"{clean(name, 60)} is a single value, no array", path=self.path)
        return array.read(0, array.shape[0])

    def read_column(self, name: str) -> NDArray[Any]:
        """Return an array; a masked one where its values may be missing."""
        if name in self.arrays:
            values, fills = self.read(name), self.fills(name)
            return np.ma.MaskedArray(values, find_missing(values, fills)) if fills else values
        values, mask = self.read(f"{name}/values"), f"{name}/mask"
        missing = self.read(mask)
        if missing.shape != values.shape or missing.dtype.kind != "b":
            raise DataError(f"{clean(mask, 60)} does not fit", path=self.path)
        return np.ma.MaskedArray(values, missing)

    def read_texts(self, name: str) -> NDArray[Any]:
        """Return texts, empty ones where they are missing."""
        values = self.read_column(name)
        return np.ma.filled(values.astype(object), "") if np.ma.is_masked(values) else values


@contextmanager
def reading_errors(
    path: Path, what: str = "it is damaged or cut short",
    damaged: tuple[type[Exception], ...] = DAMAGED,
) -> Iterator[None]:  # fmt: skip
    """Turn what the readers of files raise into a DataError or DiskError of one line."""
    kinds: tuple[type[Exception], ...] = (OSError, *damaged)
    try:
        yield
    except StreammachError:
        raise
    except kinds as error:
        if isinstance(error, OSError) and error.errno:
            raise disk_error(error, path) from error
        why = clean(str(error).partition("\n")[0], 120) or type(error).__name__
        raise DataError(f"{what} ({why})", path=path, hint=COPY_HINT) from None


def inside(group: str, name: str) -> str:
    """Return the path of something in a group, the whole file among them."""
    return f"{group}/{name}" if group else name


def find_missing(values: NDArray[Any], fills: list[Any]) -> NDArray[np.bool_]:
    """Return which values of an array are one of those that stand for missing ones."""
    if values.dtype.kind == "f":
        with np.errstate(over="ignore"):
            numbers = np.array([one for one in fills if not isinstance(one, str)], values.dtype)
        missing = np.isin(values, numbers) | (np.isnan(values) & np.isnan(numbers).any())
    else:
        texts = [fill.encode() for fill in fills if isinstance(fill, str)]
        missing = np.any([values == fill for fill in (*fills, *texts)], axis=0)
    return np.asarray(missing, np.bool_)


def check_numbers(dtype: np.dtype[Any], path: Path, what: str, kinds: str = "biuf") -> None:
    """Raise DataError if items are not real numbers (for `kinds` "iu": integers)."""
    if dtype.kind not in kinds:
        wanted = "integers are" if kinds == "iu" else "real numbers are"
        hint = "Objects are pickles and are never read." if dtype.hasobject else None
        raise DataError(
            f"{clean(what)} has the type {dtype}, {wanted} expected", path=path, hint=hint
        )


def check_fits(n_bytes: int, path: Path, what: str) -> None:
    """Raise BudgetError if what must be in memory as a whole does not fit it."""
    limit = memory_limit()
    if n_bytes > limit.n_bytes:
        raise BudgetError(
            f"{clean(what)} needs {size_text(n_bytes)} of memory, {size_text(limit.n_bytes)} may "
            f"be used ({limit.source})",
            path=path,
        )


def check_stored(n_bytes: int, stored: int, path: Path, what: str) -> None:
    """Raise DataError if a header claims more bytes than those that are stored can hold."""
    if n_bytes > MAX_RATIO * stored + MAX_CHUNK_BYTES:
        claim = f"claims {size_text(n_bytes)} of values, of which {size_text(stored)} are stored"
        hint = "Write it again with all of its values, or as a sparse matrix."
        raise DataError(f"{clean(what)} {claim}", path=path, hint=hint)


def count_bytes(array: StoredArray) -> int:
    """Return the bytes that labels, names or row pointers take while they are read."""
    cells, rows = math.prod(array.shape), math.prod(array.shape[:1])
    labels = min(cells, LABELS_A_ROW * rows)
    size = TEXT_BYTES if array.dtype.hasobject else array.dtype.itemsize
    return cells * size + labels * LABEL_BYTES
