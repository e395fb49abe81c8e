"""Files and folders of matrices, by their formats: how each is opened, and its rows as a source."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.inputs.identity import files_in
from streammach.inputs.label_arrays import Labels, column_names
from streammach.inputs.matrices.array_files import (
    HDF5_MAGIC,
    NPY_MAGIC,
    NPZ_MAGIC,
    open_hdf5,
    open_npy,
    open_npz,
)
from streammach.inputs.matrices.matrix import DenseMatrix, Matrix, MatrixByColumns, SparseMatrix
from streammach.inputs.matrices.matrix_layout import find_layout
from streammach.inputs.matrices.matrix_source import MatrixSource, OpenMatrix
from streammach.inputs.matrices.named_arrays import (
    LABEL_BYTES,
    SPARSE_PARTS,
    TEXT_BYTES,
    NamedArrays,
    check_fits,
    check_numbers,
    count_bytes,
    inside,
)
from streammach.inputs.matrices.zarr_folders import open_zarr
from streammach.inputs.source import ReadingBytes
from streammach.inputs.source_options import SourceOptions
from streammach.options.types import Multilabel
from streammach.rows.names import MAX_NAME
from streammach.system.errors import DataError, UsageError, clean
from streammach.system.files.raw_text import text_lines
from streammach.system.files.reading import disk_errors


class MatrixFile(MatrixSource):
    """Rows of an array, or of a group with data, indices and indptr."""

    has_paths = True
    # opens the arrays of such a file for as long as a block runs
    opener: Callable[[Path], AbstractContextManager[NamedArrays]]

    def __init__(self, path: Path, options: SourceOptions) -> None:
        super().__init__(path, options)
        with self.open_arrays() as arrays:
            self._layout = find_layout(arrays, options)
        self.note = self._layout.note

    def open_arrays(self) -> AbstractContextManager[NamedArrays]:
        """Open the arrays of the file for as long as a block runs."""
        return type(self).opener(self.path)

    def reading_bytes(self) -> ReadingBytes:
        with self.open_arrays() as arrays:
            matrix = open_group(arrays, self._layout.rows)
            block, kept = matrix.reading_bytes
            if self._options.labels is not None:
                kept += count_label_bytes(self._options.labels, matrix.n_rows)
            tops = [f"{top}/" for top in (self._layout.labels, self._layout.names) if top]
            for name, array in arrays.arrays.items():
                if f"{name}/".startswith(tuple(tops)):
                    array.check()
                    kept += count_bytes(array)
            return ReadingBytes(block, kept)

    @contextmanager
    def open_matrix(self) -> Iterator[OpenMatrix]:
        layout, options = self._layout, self._options
        with self.open_arrays() as arrays:
            matrix, names = open_group(arrays, layout.rows), None
            labels: Labels | None = None
            if options.labels is not None:
                labels = load_labels(options.labels, options.multilabel, matrix.n_rows)
            elif layout.labels is not None:
                labels = read_labels(arrays, layout.labels, options.multilabel)
            if layout.names is not None:
                values = arrays.read_texts(layout.names).tolist()
                names = column_names(values, matrix.n_columns, self.path, layout.names)
            yield OpenMatrix(matrix, labels, names)


class Hdf5Source(MatrixFile):
    """Rows of an HDF5 file, such as AnnData."""

    form, magic, opener = "hdf5", HDF5_MAGIC, staticmethod(open_hdf5)


class NpzSource(MatrixFile):
    """Rows of a .npz file, such as scipy.sparse.save_npz writes, with labels as one more array."""

    form, magic, opener = "npz", NPZ_MAGIC, staticmethod(open_npz)


class NpySource(MatrixFile):
    """A dense matrix in a .npy file, its labels in a file beside it."""

    form = "npy"
    magic = NPY_MAGIC
    has_paths = False

    def __init__(self, path: Path, options: SourceOptions) -> None:
        labels = options.labels
        if labels is None and options.labelled:
            labels = find_labels(path)
        super().__init__(path, replace(options, labels=labels))
        if options.labels is None and labels is not None:
            self.note = f"labels from {clean(labels.name)}"

    @contextmanager
    def open_arrays(self) -> Iterator[NamedArrays]:
        with open_npy(self.path) as arrays:
            array = arrays.arrays[""]
            check_numbers(array.dtype, self.path, "the array")
            if len(array.shape) < 2:
                what = f"the shape is {array.shape}, rows x columns is expected"
                raise DataError(what, path=self.path)
            yield arrays


def find_labels(path: Path) -> Path | None:
    """Return the file of labels beside X.npy, y in its name for X, or None, or raise UsageError."""
    parts = re.split(r"([_.-])", path.name)
    places = [i for i, part in enumerate(parts) if part in ("X", "x")]
    if len(places) != 1:
        return None
    names = [[*parts[: places[0]], w, *parts[places[0] + 1 :]] for w in ("y", "Y", "labels")]
    files = [path.with_name("".join(name)) for name in names]
    files = [file for file in files if file.is_file()]
    if len(files) > 1:
        what = f"the labels may be {' or '.join(clean(file.name) for file in files)}"
        raise UsageError(what, path=path, hint="Name one with --labels.")
    return files[0] if files else None


class AnnDataSource(MatrixFile):
    """Rows of an AnnData folder, or of a Zarr group or array that is a matrix."""

    form = "anndata"
    is_folder = True

    def __init__(self, path: Path, options: SourceOptions) -> None:
        self._arrays = open_zarr(path)
        super().__init__(path, options)
        self._n_bytes = sum(file.stat().st_size for file in files_in(path / self._layout.rows))

    def open_arrays(self) -> AbstractContextManager[NamedArrays]:
        return nullcontext(self._arrays)

    @property
    def n_bytes(self) -> int:
        return self._n_bytes

    def files(self) -> list[Path]:
        layout = self._layout
        names = (layout.labels, layout.names)
        places = dict.fromkeys((layout.rows, *(name or layout.rows for name in names)))
        return [file for name in places for file in files_in(self.path / name)]


MATRIX_SOURCES: dict[str, type[MatrixSource]] = {
    known.form: known for known in (Hdf5Source, NpzSource, NpySource, AnnDataSource)
}


def open_group(arrays: NamedArrays, name: str) -> Matrix:
    """Return the matrix that an array or a group is, or raise DataError."""
    if name in arrays.arrays:
        arrays.arrays[name].check()
        return DenseMatrix(arrays.arrays[name], arrays.fills(name))
    data, indices, indptr = (arrays.arrays[inside(name, part)] for part in SPARSE_PARTS)
    shape, form = _read_shape(arrays, name), arrays.text(name, "encoding-type", "h5sparse_format")
    by_columns = form or (shape and (shape[0] + 1,) != indptr.shape)
    if shape and form.startswith("csc"):
        return MatrixByColumns(SparseMatrix((data, indices, indptr), shape[::-1], arrays.path))
    if by_columns and not form.startswith("csr"):
        what = f"{clean(name) or 'the matrix'} is not in compressed sparse rows (CSR)"
        hint = "Write it again from matrix.tocsr(), with a row for each label."
        raise DataError(what, path=arrays.path, hint=hint)
    return SparseMatrix((data, indices, indptr), shape, arrays.path)


def _read_shape(arrays: NamedArrays, name: str) -> tuple[int, int] | None:
    """Return rows and columns where an attribute or an array names them, or raise DataError."""
    there = arrays.attributes(name)
    shape = there.get("shape", there.get("h5sparse_shape"))
    stored = arrays.arrays.get(inside(name, "shape"))
    if shape is None and stored is not None:
        small = math.prod(stored.shape) == 2
        shape = arrays.read(inside(name, "shape")) if small else ()
    if shape is None:
        return None
    if np.size(shape) != 2 or np.asarray(shape).dtype.kind not in "iu":
        raise DataError("its shape is not rows and columns", path=arrays.path)
    n_rows, n_columns = np.asarray(shape).ravel().tolist()
    return n_rows, n_columns


def load_labels(path: Path, multilabel: Multilabel, n_rows: int) -> Labels:
    """Return the labels of so many rows in a file, or raise UsageError or DataError."""
    opened = _open_file(path)
    if opened is None:
        return Labels.of_texts(_read_lines(path, n_rows), path, "it")
    with opened as arrays:
        return read_labels(arrays, "", multilabel)


def count_label_bytes(path: Path, n_rows: int) -> int:
    """Return the bytes that reading a file of labels takes, by what its header claims."""
    opened = _open_file(path)
    if opened is None:
        return path.stat().st_size + n_rows * (LABEL_BYTES + TEXT_BYTES)
    with opened as arrays:
        for array in arrays.arrays.values():
            array.check()
        return sum(map(count_bytes, arrays.arrays.values()))


def _open_file(path: Path) -> AbstractContextManager[NamedArrays] | None:
    """Return what opens the arrays of a file of labels, None for text; UsageError or DiskError."""
    if not path.is_file():
        raise UsageError("there is no such file of labels", path=path)
    with disk_errors(path), open(path, "rb") as file:
        head = file.read(len(NPY_MAGIC))
    if head.startswith(NPZ_MAGIC):
        return open_npz(path)
    return open_npy(path) if head == NPY_MAGIC else None


def _read_lines(path: Path, n_rows: int) -> Iterator[list[bytes]]:
    """Yield the labels in a text, one in each line, or raise DataError, DiskError or BudgetError.

    Of a label that is too long one byte too much is kept.
    """
    n_labels = n_bytes = 0
    for lines in text_lines(path):
        labels = [line.strip()[: MAX_NAME + 1] for line in lines]
        n_labels, n_bytes = n_labels + len(labels), n_bytes + sum(map(len, labels))
        if n_labels > n_rows:
            what = f"more than {n_rows:,} labels for {n_rows:,} rows"
            raise DataError(what, path=path, hint="Give a label for each row.")
        check_fits(n_bytes + LABEL_BYTES * n_labels, path, "its labels")
        yield labels


def read_labels(arrays: NamedArrays, name: str, multilabel: Multilabel) -> Labels:
    """Return the labels in an array or a group: one a row, or a column for each label."""
    path, what = arrays.path, name or "the array of labels"
    if name in arrays.sparse:
        matrix = open_group(arrays, name)
        _, indptr, indices, data = matrix.rows(0, matrix.n_rows)
        sets = Labels.of_csr(indptr, indices, data, path, what)
        return sets.choose_form(multilabel, path, what)
    if name in arrays.categorical:
        categories = arrays.read_texts(f"{name}/categories")
        return Labels.of_groups(arrays.read(f"{name}/codes"), categories, path, name)
    if name not in arrays.arrays and name not in arrays.masked_columns:
        raise DataError("it holds no matrix of rows x labels", path=path)
    if "categories" in arrays.attributes(name):  # these are codes of them
        raise DataError(
            f"{clean(name, 60)} is stored as an old anndata did, labels are categorical, "
            "strings or integers",
            path=path,
            hint="Write it again with anndata 0.8 or later, or name another column: --y-path.",
        )
    values: NDArray[Any] = arrays.read_column(name)
    wide = values.ndim == 2 and values.shape[1] > 1 and values.dtype.kind in "biuf"
    if not wide or multilabel == "off":
        return Labels.of(values, path, what)
    return Labels.of_dense(values, path, what).choose_form(multilabel, path, what)
