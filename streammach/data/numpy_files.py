"""What NumPy and SciPy wrote: dense matrices in .npy, arrays in .npz, labels in files of either."""

from __future__ import annotations

import math
import re
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from streammach.data.label_arrays import Labels, LabelSets
from streammach.data.matrix import (
    LABEL_BYTES,
    TEXT_BYTES,
    Dense,
    MatrixSource,
    OpenMatrix,
    check_held,
    check_numbers,
    check_stored,
    whole_bytes,
)
from streammach.data.source import ReadingBytes
from streammach.data.source_options import SourceOptions
from streammach.errors import DataError, StreammachError, UsageError, clean
from streammach.files.raw_text import text_lines
from streammach.files.reading import disk_error, disk_errors
from streammach.rows.names import MAX_NAME
from streammach.spec.types import Multilabel

NPY_MAGIC = b"\x93NUMPY"
NPZ_MAGIC = b"PK\x03\x04"
DAMAGED = (
    zipfile.BadZipFile, zlib.error, EOFError, ValueError, RuntimeError, NotImplementedError,
    tokenize.TokenError, SyntaxError, OverflowError, TypeError, LookupError,  # odd headers of .npy
)  # fmt: skip
COPY_HINT = "Copy or write the file again."


@contextmanager
def damage_said(path: Path) -> Iterator[None]:
    """Turn what the readers of files raise into a DataError or DiskError of one line."""
    try:
        yield
    except StreammachError:
        raise
    except (OSError, *DAMAGED) as error:
        if isinstance(error, OSError) and error.errno:
            raise disk_error(error, path) from error
        what = f"it is damaged or cut short ({clean(error, 100) or type(error).__name__})"
        raise DataError(what, path=path, hint=COPY_HINT) from None


def read_header(file: IO[bytes], path: Path) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, whether columns come first, and dtype of a .npy stream, or raise DataError."""
    version = npy.read_magic(file)
    if version == (1, 0):
        return npy.read_array_header_1_0(file)
    if version == (2, 0):
        return npy.read_array_header_2_0(file)
    raise DataError(f"version {version} of .npy is not read", path=path)


def check_plain(dtype: np.dtype[Any], path: Path, what: str) -> None:
    """Raise DataError for Python objects."""
    if dtype.hasobject:
        raise DataError(
            f"{clean(what)} holds Python objects, which are pickles and are never read", path=path,
            hint="Write it as numbers or fixed strings: y.astype(str).",
        )  # fmt: skip


def check_npy(path: Path) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return shape and type of a whole .npy file, or raise DataError or DiskError."""
    with damage_said(path), open(path, "rb") as file:
        shape, _, dtype = read_header(file, path)
        check_plain(dtype, path, "the array")
        have, needed = path.stat().st_size - file.tell(), math.prod(shape) * dtype.itemsize
    if have != needed:
        size = " x ".join(f"{n:,}" for n in shape)
        what = f"{have:,} bytes of data for {size} values of {dtype}"
        raise DataError(what, path=path, hint=COPY_HINT)
    return shape, dtype


def _head_of_labels(path: Path) -> bytes:
    """Return what tells the format of a file of labels, or raise UsageError or DiskError."""
    if not path.is_file():
        raise UsageError("there is no such file of labels", path=path)
    with disk_errors(path), open(path, "rb") as file:
        return file.read(len(NPY_MAGIC))


def labels_bytes(path: Path | None, n_rows: int) -> int:
    """Return the bytes that reading a file of labels takes, by what its header claims."""
    if path is None:
        return 0
    head = _head_of_labels(path)
    if head == NPY_MAGIC:
        return whole_bytes(*check_npy(path))
    if not head.startswith(NPZ_MAGIC):
        return path.stat().st_size + n_rows * (LABEL_BYTES + TEXT_BYTES)
    with npz_arrays(path) as arrays:
        for array in arrays.values():
            array.check()
        return sum(whole_bytes(array.shape, array.dtype) for array in arrays.values())


def load_labels(path: Path, multilabel: Multilabel, n_rows: int) -> Labels | LabelSets:
    """Return the labels of so many rows in a file, or raise UsageError or DataError."""
    head = _head_of_labels(path)
    if head.startswith(NPZ_MAGIC):
        return _label_matrix(path).asked(multilabel, path, "it")
    if head != NPY_MAGIC:
        return Labels.of_texts(_lines_of(path, n_rows), path, "it")
    check_npy(path)
    with damage_said(path):
        values = np.load(path, allow_pickle=False)
    return labels_in(values, multilabel, path, "the array of labels")


def _lines_of(path: Path, n_rows: int) -> Iterator[list[bytes]]:
    """Yield the labels in a text, one in each line, or raise DataError, DiskError or BudgetError.

    Of a label that is too long one byte too much is kept.
    """
    found = n_bytes = 0
    for lines in text_lines(path):
        labels = [line.strip()[: MAX_NAME + 1] for line in lines]
        found, n_bytes = found + len(labels), n_bytes + sum(map(len, labels))
        if found > n_rows:
            what = f"more than {n_rows:,} labels for {n_rows:,} rows"
            raise DataError(what, path=path, hint="Give a label for each row.")
        check_held(n_bytes + LABEL_BYTES * found, path, "its labels")
        yield labels


def labels_in(
    values: NDArray[Any], multilabel: Multilabel, path: Path, what: str
) -> Labels | LabelSets:
    """Return the labels in an array: one a row, or a column for each label; see `LabelSets`."""
    wide = values.ndim == 2 and values.shape[1] > 1 and values.dtype.kind in "biuf"
    if not wide or multilabel == "off":
        return Labels.of(values, path, what)
    return LabelSets.of_dense(values, path, what).asked(multilabel, path, what)


class NpzArray:
    """An array in a .npz file, read from its start to its end: an array of a tree."""

    unit: int = 1
    left_out: bool = False

    def __init__(self, archive: zipfile.ZipFile, name: str, path: Path, stack: ExitStack) -> None:
        self._name, self._path = name, path
        info = archive.getinfo(f"{name}.npy")
        self._file = stack.enter_context(archive.open(info))
        self.shape, fortran, self.dtype = read_header(self._file, path)
        self._fortran = fortran and len(self.shape) > 1
        self._rest = info.file_size - self._file.tell()
        self._stored = info.compress_size
        self.n_bytes = math.prod(self.shape) * int(self.dtype.itemsize)  # of all items

    def check(self) -> None:
        """Raise DataError if it cannot be read."""
        check_plain(self.dtype, self._path, self._name)
        check_stored(self._rest, self._stored, self._path, self._name)
        if self.n_bytes != self._rest:
            what = f"{clean(self._name)} holds {self._rest:,} bytes, {self.n_bytes:,} expected"
            raise DataError(what, path=self._path, hint=COPY_HINT)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return the items from `start` to `stop`; `start` is where the last call stopped."""
        shape = (stop - start, *self.shape[1:])
        if self._fortran and shape[0] != self.shape[0]:
            what = f"{clean(self._name)} is stored column by column"
            hint = "Write it row by row: numpy.ascontiguousarray(X)."
            raise DataError(what, path=self._path, hint=hint)
        wanted = math.prod(shape) * self.dtype.itemsize
        with damage_said(self._path):
            data = self._file.read(wanted)
        if len(data) != wanted:
            raise DataError(f"{clean(self._name)} ends early", path=self._path, hint=COPY_HINT)
        return np.frombuffer(data, self.dtype).reshape(shape, order="F" if self._fortran else "C")

    def whole(self) -> NDArray[Any]:
        """Return the array; a single value as an array of one."""
        self.check()
        return self.read(0, math.prod(self.shape[:1]))


@contextmanager
def npz_arrays(path: Path) -> Iterator[dict[str, NpzArray]]:
    """Open the arrays of a .npz file by their names, or raise DataError or DiskError."""
    with ExitStack() as stack:
        with damage_said(path):
            archive = stack.enter_context(zipfile.ZipFile(path))
            names = [n.removesuffix(".npy") for n in archive.namelist() if n.endswith(".npy")]
            arrays = {name: NpzArray(archive, name, path, stack) for name in names}
        yield arrays


def _label_matrix(path: Path) -> LabelSets:
    """Return the labels in a matrix that scipy.sparse.save_npz wrote, or raise DataError."""
    with npz_arrays(path) as arrays, damage_said(path):
        form, indptr, indices, data = (
            arrays[name].whole() for name in ("format", "indptr", "indices", "data")
        )
    text = form.item() if form.size == 1 else b"?"
    if text not in (b"csr", "csr"):
        what = f"the matrix has the format '{clean(text)}', rows are read from csr"
        hint = "Write it with scipy.sparse.save_npz(path, matrix.tocsr())."
        raise DataError(what, path=path, hint=hint)
    return LabelSets.of_csr(indptr.ravel(), indices.ravel(), data.ravel(), path, "it")


def guessed_labels(path: Path) -> Path | None:
    """Return the file of labels beside X.npy, y in its name for X, or None, or raise UsageError."""
    parts = re.split(r"([_.-])", path.name)
    places = [i for i, part in enumerate(parts) if part in ("X", "x")]
    if len(places) != 1:
        return None
    names = [[*parts[: places[0]], w, *parts[places[0] + 1 :]] for w in ("y", "Y", "labels")]
    found = [path.with_name("".join(name)) for name in names]
    found = [file for file in found if file.is_file()]
    if len(found) > 1:
        what = f"the labels may be {' or '.join(clean(f.name) for f in found)}"
        raise UsageError(what, path=path, hint="Name one with --labels.")
    return found[0] if found else None


def row_cells(shape: tuple[int, ...]) -> int:
    """Return how many numbers a row has: of an image all of its cells."""
    return math.prod(shape[1:])


def flat(values: NDArray[Any]) -> NDArray[Any]:
    """Return rows as they are, and of images all cells of each: (n, cells)."""
    return values.reshape(len(values), row_cells(values.shape))


class NpySource(MatrixSource):
    """A dense matrix in a .npy file, its labels in a file beside it."""

    form = "npy"
    magic = NPY_MAGIC

    def __init__(self, path: Path, options: SourceOptions) -> None:
        super().__init__(path, options)
        self._y, self._multilabel = options.labels, options.multilabel
        if self._y is None and options.labelled:
            self._y = guessed_labels(path)
            if self._y is not None:
                self.note = f"labels from {clean(self._y.name)}"
        shape, dtype = check_npy(path)
        check_numbers(dtype, path, "the array")
        if len(shape) < 2:
            what = f"the shape is {shape}, rows x columns is expected"
            raise DataError(what, path=path)
        self._shape = (shape[0], row_cells(shape))

    def _read(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows; a map of the file is made for each piece, so that pages do not pile up."""
        with damage_said(self.path):
            rows = np.load(self.path, mmap_mode="r", allow_pickle=False)[start:stop]
            return flat(np.array(rows, order="C"))

    def held(self) -> ReadingBytes:
        piece, whole = Dense(self._read, self._shape).held
        return ReadingBytes(piece, whole + labels_bytes(self._y, self._shape[0]))

    @contextmanager
    def opened(self) -> Iterator[OpenMatrix]:
        labels = None if self._y is None else load_labels(self._y, self._multilabel, self._shape[0])
        yield OpenMatrix(Dense(self._read, self._shape), labels)
