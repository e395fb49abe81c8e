"""Matrices that NumPy and SciPy wrote: .npz with compressed sparse rows, .npy with dense ones."""

from __future__ import annotations

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

from streammach.data.label_arrays import Labels, LabelSets, text_labels
from streammach.data.matrix import Dense, OpenMatrix, Sparse, check_held, check_numbers
from streammach.data.matrix_source import MatrixSource
from streammach.data.source_options import SourceOptions
from streammach.errors import DataError, StreammachError, UsageError, clean
from streammach.files.reading import disk_error
from streammach.spec.types import Multilabel

NPY_MAGIC = b"\x93NUMPY"
NPZ_MAGIC = b"PK\x03\x04"
DAMAGED = (
    zipfile.BadZipFile, zlib.error, EOFError, ValueError, RuntimeError, NotImplementedError,
    tokenize.TokenError, SyntaxError, OverflowError, TypeError, LookupError,  # odd headers of .npy
)  # fmt: skip
LABEL_MEMBERS = ("labels", "y")
COPY_HINT = "Copy or write the file again."
MOST_PACKED = 1100  # deflate makes no byte from less than a thousandth of one


@contextmanager
def damage_said(path: Path) -> Iterator[None]:
    """Turn what the readers of files raise into a DataError or DiskError of one line."""
    try:
        yield
    except StreammachError:
        raise
    except OSError as error:
        raise disk_error(error, path) from error
    except DAMAGED as error:
        raise DataError(
            f"it is damaged or cut short ({clean(error, 100) or type(error).__name__})",
            path=path,
            hint=COPY_HINT,
        ) from None


def read_header(file: IO[bytes], path: Path, what: str) -> tuple[tuple[int, ...], bool, Any]:
    """Return shape, whether columns come first, and dtype of a .npy stream, or raise DataError."""
    version = npy.read_magic(file)
    if version == (1, 0):
        shape, fortran, dtype = npy.read_array_header_1_0(file)
    elif version == (2, 0):
        shape, fortran, dtype = npy.read_array_header_2_0(file)
    else:
        raise DataError(f"version {version} of .npy is not read", path=path)
    if dtype.hasobject:
        raise DataError(
            f"{clean(what)} holds Python objects, which are pickles and are never read",
            path=path,
            hint="Write it as numbers or fixed strings: y.astype(str).",
        )
    return shape, fortran, dtype


def load_npy(path: Path) -> NDArray[Any]:
    """Return a small .npy array in memory, or raise DataError, BudgetError or DiskError."""
    with damage_said(path), open(path, "rb") as file:
        shape, _, dtype = read_header(file, path, "the array")
        size = int(np.prod(shape, dtype=object)) * dtype.itemsize
        have = path.stat().st_size - file.tell()
        if have < size:
            raise DataError(f"{have:,} bytes of data, {size:,} expected", path=path, hint=COPY_HINT)
        check_held(size, path, "the array")
        file.seek(0)
        out: NDArray[Any] = np.load(file, allow_pickle=False)
        return out


def load_labels(path: Path, multilabel: Multilabel) -> Labels | LabelSets:
    """Return the labels in a file, or raise UsageError or DataError."""
    if not path.is_file():
        raise UsageError("there is no such file of labels", path=path)
    with damage_said(path), open(path, "rb") as file:
        head = file.read(len(NPY_MAGIC))
    if head.startswith(NPZ_MAGIC):
        return _label_matrix(path).asked(multilabel, path, "it")
    values = load_npy(path) if head == NPY_MAGIC else text_labels(path)
    return labels_in(values, multilabel, path, "the labels")


def labels_in(
    values: NDArray[Any], multilabel: Multilabel, path: Path, what: str
) -> Labels | LabelSets:
    """Return the labels in an array: one a row, or a column for each label; see `LabelSets`."""
    wide = values.ndim == 2 and values.shape[1] > 1 and values.dtype.kind in "biuf"
    if not wide or multilabel == "off":
        return Labels.of(values, path, what)
    return LabelSets.of_dense(values, path, what).asked(multilabel, path, what)


class _Member:
    """An array in a .npz file, read from its start to its end."""

    def __init__(self, archive: zipfile.ZipFile, name: str, path: Path, stack: ExitStack) -> None:
        info = archive.getinfo(f"{name}.npy")
        self._file = stack.enter_context(archive.open(info))
        self.shape, fortran, self.dtype = read_header(self._file, path, name)
        self._name, self._path = name, path
        size = int(np.prod(self.shape, dtype=object)) * self.dtype.itemsize
        rest = info.file_size - self._file.tell()
        if size != rest or info.file_size > MOST_PACKED * info.compress_size + 1000:
            raise DataError(
                f"{clean(name)} holds {rest:,} bytes, {size:,} expected", path=path, hint=COPY_HINT
            )
        self.fortran = fortran and len(self.shape) > 1

    @property
    def n_bytes(self) -> int:
        return int(np.prod(self.shape, dtype=object)) * int(self.dtype.itemsize)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return the items from `start` to `stop`; `start` is where the last call stopped."""
        wanted = (stop - start) * self.dtype.itemsize
        with damage_said(self._path):
            data = self._file.read(wanted)
        if len(data) != wanted:
            raise DataError(f"{clean(self._name)} ends early", path=self._path, hint=COPY_HINT)
        return np.frombuffer(data, self.dtype)

    def whole(self) -> NDArray[Any]:
        """Return the array."""
        check_held(self.n_bytes, self._path, self._name)
        n = int(np.prod(self.shape))
        return self.read(0, n).reshape(self.shape, order="F" if self.fortran else "C")


def _label_matrix(path: Path) -> LabelSets:
    """Return the labels in a matrix that scipy.sparse.save_npz wrote, or raise DataError."""
    with damage_said(path), ExitStack() as stack:
        archive = stack.enter_context(zipfile.ZipFile(path))
        form, indptr, indices, data = (
            _Member(archive, name, path, stack).whole()
            for name in ("format", "indptr", "indices", "data")
        )
        if form.size != 1 or form.item() not in (b"csr", "csr"):
            raise DataError(
                "the matrix of labels is not in compressed sparse rows (CSR)",
                path=path,
                hint="Write it with scipy.sparse.save_npz(path, matrix.tocsr()).",
            )
        return LabelSets.of_csr(indptr.ravel(), indices.ravel(), data.ravel(), path, "it")


class NpzSource(MatrixSource):
    """A matrix as scipy.sparse.save_npz writes it, with labels as one more member or beside it."""

    form = "npz"
    magic = NPZ_MAGIC

    def __init__(self, path: Path, options: SourceOptions) -> None:
        super().__init__(path, options)
        with damage_said(path), zipfile.ZipFile(path) as archive:
            found = archive.namelist()
        self._members = {name.removesuffix(".npy") for name in found}
        missing = {"data", "indices", "indptr", "shape"} - self._members
        if missing:
            raise DataError(
                f"no matrix in compressed sparse rows, {', '.join(sorted(missing))} is missing",
                path=path,
                hint="Write it with scipy.sparse.save_npz.",
            )
        self._y = self._label_member()
        if self._y is not None:
            self.note = f"labels from {self._y}"

    def _label_member(self) -> str | None:
        if self._options.labels is not None:
            return None
        if self._options.y_path is not None:
            if self._options.y_path not in self._members:
                raise UsageError(
                    f"it has no member '{clean(self._options.y_path)}': --y-path", path=self.path
                )
            return self._options.y_path
        found = [name for name in LABEL_MEMBERS if name in self._members]
        if len(found) > 1:
            raise UsageError(
                f"the labels may be {' or '.join(found)}",
                path=self.path,
                hint="Name one with --y-path.",
            )
        return found[0] if found else None

    @contextmanager
    def opened(self) -> Iterator[OpenMatrix]:
        """Open the matrix for as long as a block runs."""
        with ExitStack() as stack:
            with damage_said(self.path):
                archive = stack.enter_context(zipfile.ZipFile(self.path))
                if "format" in self._members:
                    self._check_format(_Member(archive, "format", self.path, stack).whole())
                shape = _Member(archive, "shape", self.path, stack)
                check_numbers(shape.dtype, self.path, "shape", "iu")
                indptr = _Member(archive, "indptr", self.path, stack)
                check_numbers(indptr.dtype, self.path, "indptr", "iu")
                indices = _Member(archive, "indices", self.path, stack)
                check_numbers(indices.dtype, self.path, "indices", "iu")
                data = _Member(archive, "data", self.path, stack)
                check_numbers(data.dtype, self.path, "data")
                rows, columns = self._shape(shape.whole())
                matrix = Sparse(
                    indptr.whole().ravel(), indices.read, data.read,
                    (int(np.prod(indices.shape)), int(np.prod(data.shape))), (rows, columns),
                    self.path,
                )  # fmt: skip
                labels = self._labels(archive, stack)
            yield OpenMatrix(matrix, labels)

    def _labels(self, archive: zipfile.ZipFile, stack: ExitStack) -> Labels | LabelSets | None:
        multilabel = self._options.multilabel
        if self._options.labels is not None:
            return load_labels(self._options.labels, multilabel)
        if self._y is None:
            return None
        values = _Member(archive, self._y, self.path, stack).whole()
        return labels_in(values, multilabel, self.path, self._y)

    def _shape(self, shape: NDArray[Any]) -> tuple[int, int]:
        if shape.size != 2 or (shape < 0).any():
            raise DataError("shape is not rows and columns", path=self.path)
        rows, columns = shape.ravel().tolist()
        return rows, columns

    def _check_format(self, form: NDArray[Any]) -> None:
        text = form.item() if form.size == 1 else b"?"
        if text not in (b"csr", "csr"):
            raise DataError(
                f"the matrix has the format '{clean(text)}', rows are read from csr",
                path=self.path,
                hint="Write it with scipy.sparse.save_npz(path, matrix.tocsr()).",
            )


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
        raise UsageError(
            f"the labels may be {' or '.join(clean(f.name) for f in found)}",
            path=path,
            hint="Name one with --labels.",
        )
    return found[0] if found else None


class NpySource(MatrixSource):
    """A dense matrix in a .npy file, its labels in a file beside it."""

    form = "npy"
    magic = NPY_MAGIC

    def __init__(self, path: Path, options: SourceOptions) -> None:
        super().__init__(path, options)
        self._y, self._multilabel = options.labels, options.multilabel
        if self._y is None:
            self._y = guessed_labels(path)
            if self._y is not None:
                self.note = f"labels from {clean(self._y.name)}"
        with damage_said(path), open(path, "rb") as file:
            shape, self._fortran, self._dtype = read_header(file, path, "the array")
            self._start = file.tell()
        check_numbers(self._dtype, path, "the array")
        if len(shape) != 2:
            raise DataError(
                f"the shape is {shape}, rows x columns is expected", path=clean(path, 300)
            )
        self._shape = (shape[0], shape[1])
        have = path.stat().st_size - self._start
        if have != shape[0] * shape[1] * self._dtype.itemsize:
            raise DataError(
                f"{have:,} bytes of data for {shape[0]:,} x {shape[1]:,} values of {self._dtype}",
                path=path,
                hint=COPY_HINT,
            )

    def _read(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows; a map of the file is made for each piece, so that pages do not pile up."""
        with damage_said(self.path):
            if self._fortran or not self._shape[1]:
                whole = np.load(self.path, mmap_mode="r", allow_pickle=False)
                return np.array(whole[start:stop])
            width = self._shape[1]
            values = np.fromfile(
                self.path,
                self._dtype,
                (stop - start) * width,
                offset=self._start + start * width * self._dtype.itemsize,
            )
            return values.reshape(stop - start, width)

    @contextmanager
    def opened(self) -> Iterator[OpenMatrix]:
        """Open the matrix for as long as a block runs."""
        labels = None if self._y is None else load_labels(self._y, self._multilabel)
        yield OpenMatrix(Dense(self._read, self._shape), labels)
