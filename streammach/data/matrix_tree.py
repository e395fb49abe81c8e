"""Matrices in trees of named arrays, such as HDF5 and Zarr: which arrays hold what, and AnnData.

AnnData has its rows in X or a layer, labels in a column of ``obs``, names of features in ``var``.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from streammach.data.label_arrays import Labels, LabelSets, column_names
from streammach.data.matrix import (
    ANY_WIDTH,
    CACHE_BYTES,
    Dense,
    MatrixSource,
    OpenMatrix,
    Sparse,
    check_numbers,
    sparse_piece,
    whole_bytes,
)
from streammach.data.numpy_files import flat, labels_bytes, labels_in, load_labels, row_cells
from streammach.data.source import ReadingBytes
from streammach.data.source_options import SourceOptions
from streammach.errors import DataError, UsageError, clean

MAX_NODES, MAX_DEPTH = 10_000, 8  # of a tree that are looked at
LABEL_MATRICES = ("y", "Y", "labels")  # that are taken for labels without being named
SPARSE_PARTS = ("data", "indices", "indptr")
FILLS = ("_FillValue", "missing_value")  # attributes of netCDF
PARTS = (*SPARSE_PARTS, "shape", "format")


class TreeArray(Protocol):
    """An array of a tree, read in ranges of its first axis."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    unit: int = 1  # items of the first axis that are stored together
    left_out: bool = False  # whether no part of it is stored, as of zeros alone

    def check(self) -> None:
        """Raise DataError if it cannot be read, or not safely."""

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return items ``start:stop`` of the first axis, or raise DataError or DiskError."""


@dataclass(frozen=True)
class Tree:
    """Arrays by their paths, and what the attributes of a group or an array say."""

    arrays: Mapping[str, TreeArray]
    attributes: Callable[[str], Mapping[str, Any]]

    def text(self, name: str, *attributes: str) -> str:
        """Return the first of some attributes that is there, as text; an empty one without any."""
        found = self.attributes(name)
        value = next((found[a] for a in attributes if a in found), "")
        return value.decode(errors="replace") if isinstance(value, bytes) else str(value)

    def fills(self, name: str) -> list[Any]:
        """Return the values that stand for missing ones in an array, as netCDF names them."""
        said = self.attributes(name)
        return [fill for a in FILLS if a in said for fill in np.ravel(said[a]).tolist()]

    @property
    def masked(self) -> set[str]:
        """Columns that are an array and a mask of what is missing."""
        masks = (name.removesuffix("/mask") for name in self.arrays if name.endswith("/mask"))
        return {name for name in masks if f"{name}/values" in self.arrays}

    @property
    def groups(self) -> set[str]:
        """Categorical columns: groups with a code for each row, and categories."""
        known = self.arrays.keys() | self.masked
        names = (name.removesuffix("/codes") for name in self.arrays if name.endswith("/codes"))
        return {name for name in names if f"{name}/categories" in known}

    @property
    def sparse(self) -> set[str]:
        """Groups that hold the arrays of a sparse matrix."""
        names = {name.rpartition("/")[0] for name in self.arrays}
        return {n for n in names if all(inside(n, part) in self.arrays for part in SPARSE_PARTS)}

    def index(self, frame: str) -> str:
        """Return where the index of a table of AnnData would be."""
        name = self.text(frame, "_index") or "_index"
        return f"{frame}/{name}"


class TreeSource(MatrixSource):
    """Rows of an array, or of a group with data, indices and indptr.

    An image or a cube of numbers is a row of all its cells, in the order of NumPy (C).
    """

    has_paths = True

    def __init__(self, path: Any, options: SourceOptions) -> None:
        super().__init__(path, options)
        with self.tree() as tree:
            self._is_anndata = tree.text("", "encoding-type") == "anndata"
            self._x = self._rows_path(tree)
            self._names = self._names_path(tree)
            sought = options.labelled and options.labels is None
            self._y = self._labels_path(tree) if sought else None
        said = {"rows": self._x, "labels": self._y, "names": self._names}
        self.note = ", ".join(f"{what} from {clean(name)}" for what, name in said.items() if name)

    @abstractmethod
    def tree(self) -> AbstractContextManager[Tree]:
        """Open the tree for as long as a block runs."""

    def _rows_path(self, tree: Tree) -> str:
        arrays, sparse = tree.arrays, tree.sparse
        dense = {n for n, a in arrays.items() if len(a.shape) > 1 and a.dtype.kind in "biuf"}
        wanted = self._options.x_path
        if wanted is not None:
            if wanted.strip("/") in dense | sparse:
                return wanted.strip("/")
            _check(tree, wanted.strip("/"))
            what = f"it has no matrix '{clean(wanted)}': --x-path"
            raise UsageError(what, path=self.path, hint=f"It has: {_listed(dense | sparse)}.")
        wide = {name for name in dense if row_cells(arrays[name].shape) > 1}
        wide = {name for name in wide if len(arrays[name].shape) == 2} | sparse or wide
        wide = wide.difference(LABEL_MATRICES) or wide
        if not dense | sparse:
            _check(tree, "X")
        return self._only(wide or dense, ("X", "x"), "rows", "--x-path")

    def _names_path(self, tree: Tree) -> str | None:
        """Return where AnnData has the names of the columns, or None."""
        top = self._x.split("/")[0]
        if not self._is_anndata or top not in ("X", "layers", "raw"):
            return None
        index = tree.index("raw/var" if top == "raw" else "var")
        if index.count("/") > (2 if top == "raw" else 1):
            raise DataError("the index of var has no usable name", path=self.path)
        return index if index in tree.arrays.keys() | tree.masked else None

    def _labels_path(self, tree: Tree) -> str | None:
        arrays, n_rows = tree.arrays, self._n_rows(tree)
        matrices = self._label_matrices(tree, n_rows)
        fitting = self._columns(tree) if self._is_anndata else self._fitting(tree, n_rows, matrices)
        wanted = self._options.y_path
        if wanted is not None:
            if wanted.strip("/") in arrays.keys() | tree.groups | tree.masked | matrices:
                return wanted.strip("/")
            what = f"it has no dataset '{clean(wanted)}': --y-path"
            raise UsageError(what, path=self.path, hint=f"It has: {_listed(fitting)}.")
        for name in LABEL_MATRICES:
            shape = arrays[name].shape if name in arrays and name != self._x else ()
            fitting |= {name} if name in matrices or shape[:1] == (n_rows,) else set()
        return self._only(fitting, ("y", "labels"), "labels", "--y-path") if fitting else None

    def _fitting(self, tree: Tree, n_rows: int, matrices: set[str]) -> set[str]:
        """Return what may be labels of so many rows, where no table says what its columns are."""
        parts = {inside(x, part) for x in (self._x, *matrices) for part in PARTS}
        groups = {g for g in tree.groups if tree.arrays[f"{g}/codes"].shape == (n_rows,)}
        fitting = {
            name for name, a in tree.arrays.items()
            if name not in parts and name != self._x
            and a.shape in ((n_rows,), (n_rows, 1)) and a.dtype.kind in "biufSUO"
        }  # fmt: skip
        return fitting - {inside(group, "codes") for group in groups} | groups

    def _columns(self, tree: Tree) -> set[str]:
        """Return columns of obs that may be labels: groups of rows before all else."""
        columns = {"/".join(n.split("/")[:2]) for n in tree.arrays if n.startswith("obs/")}
        plain = {name for name in columns & tree.arrays.keys()
                 if tree.arrays[name].dtype.kind in "iuSUO"}  # fmt: skip
        return columns & tree.groups or (plain | columns & tree.masked) - {tree.index("obs")}

    def _only(self, names: set[str], usual: tuple[str, ...], what: str, option: str) -> str:
        preferred = [name for name in usual if name in names]
        if len(names) == 1 or len(preferred) == 1:
            return preferred[0] if preferred else next(iter(names))
        if not names:
            raise DataError(f"it has no dataset that can hold the {what}", path=self.path)
        hint = f"Name one with {option}."
        raise UsageError(f"the {what} may be {_listed(names)}", path=self.path, hint=hint)

    def _n_rows(self, tree: Tree) -> int:
        pointers = tree.arrays.get(inside(self._x, "indptr"))
        array = tree.arrays[self._x] if pointers is None else pointers
        array.check()
        return math.prod(array.shape[:1]) - (pointers is not None)

    @contextmanager
    def opened(self) -> Iterator[OpenMatrix]:
        with self.tree() as tree:
            matrix = self._dense(tree) if self._x in tree.arrays else self._sparse(tree)
            labels: Labels | LabelSets | None = None
            if self._options.labels is not None:
                how = self._options.labels, self._options.multilabel
                labels = load_labels(*how, matrix.n_rows)
            elif self._y is not None:
                labels = self._labels(tree, self._y)
            names = None
            if self._names is not None:
                values = self._strings(tree, self._names).tolist()
                names = column_names(values, matrix.n_columns, self.path, self._names)
            yield OpenMatrix(matrix, labels, names)

    def _dense(self, tree: Tree) -> Dense:
        array = tree.arrays[self._x]
        array.check()
        fills = tree.fills(self._x)

        def read(start: int, stop: int) -> NDArray[Any]:
            values = flat(array.read(start, stop))
            return np.where(are_missing(values, fills), 0, values) if fills else values

        return Dense(read, (array.shape[0], row_cells(array.shape)), array.unit)

    def held(self) -> ReadingBytes:
        with self.tree() as tree:
            if self._x in tree.arrays:
                piece, whole = self._dense(tree).held
            else:
                _, indices, indptr = self._sparse_parts(tree)
                piece, whole = sparse_piece(indptr.read, *indptr.shape, *indices.shape), CACHE_BYTES
            tops = (self._y, self._names, *(inside(self._x, part) for part in ("indptr", "shape")))
            for name, array in tree.arrays.items():
                wanted = any(top and f"{name}/".startswith(f"{top}/") for top in tops)
                if wanted and not array.left_out:
                    array.check()
                    whole += whole_bytes(array.shape, array.dtype)
            labels = labels_bytes(self._options.labels, self._n_rows(tree))
            return ReadingBytes(piece, whole + labels)

    def _sparse_parts(self, tree: Tree) -> tuple[TreeArray, TreeArray, TreeArray]:
        data, indices, indptr = (tree.arrays[inside(self._x, part)] for part in SPARSE_PARTS)
        for name, array in zip(SPARSE_PARTS, (data, indices, indptr), strict=True):
            array.check()
            check_numbers(array.dtype, self.path, name, "biuf" if name == "data" else "iu")
            if len(array.shape) != 1:
                what = f"{name} has the shape {array.shape}, one axis is expected"
                raise DataError(what, path=self.path)
        return data, indices, indptr

    def _sparse(self, tree: Tree) -> Sparse:
        data, indices, indptr = self._sparse_parts(tree)
        form = tree.text(self._x, "encoding-type", "h5sparse_format")
        shape, n_rows = self._shape(tree), indptr.shape[0] - 1
        if not form.startswith("csr") and (form or (shape and shape[0] != n_rows)):
            what = f"{clean(self._x) or 'the matrix'} is not in compressed sparse rows (CSR)"
            hint = "Write it again from matrix.tocsr(), with a row for each label."
            raise DataError(what, path=self.path, hint=hint)
        return Sparse(
            self._whole(tree, inside(self._x, "indptr")), indices.read, data.read,
            (indices.shape[0], data.shape[0]), shape or (n_rows, ANY_WIDTH), self.path,
        )  # fmt: skip

    def _shape(self, tree: Tree) -> tuple[int, int] | None:
        """Return rows and columns where an attribute or an array names them, or raise DataError."""
        said = tree.attributes(self._x)
        shape = said.get("shape", said.get("h5sparse_shape"))
        name = inside(self._x, "shape")
        if shape is None and name in tree.arrays:
            shape = self._whole(tree, name)
        if shape is None:
            return None
        if np.size(shape) != 2 or np.asarray(shape).dtype.kind not in "iu":
            raise DataError("its shape is not rows and columns", path=self.path)
        rows, columns = np.asarray(shape).ravel().tolist()
        return rows, columns

    def _label_matrices(self, tree: Tree, n_rows: int) -> set[str]:
        """Return the groups that may be a matrix of rows x labels, if there may be any."""
        if self._options.multilabel == "off":
            return set()
        arrays, others = tree.arrays, tree.sparse - {self._x}
        return {name for name in others if arrays[inside(name, "indptr")].shape == (n_rows + 1,)}

    def _labels(self, tree: Tree, name: str) -> Labels | LabelSets:
        multilabel = self._options.multilabel
        if name in self._label_matrices(tree, self._n_rows(tree)):
            data, indices, indptr = (self._whole(tree, inside(name, p)) for p in SPARSE_PARTS)
            sets = LabelSets.of_csr(indptr, indices, data, self.path, name)
            return sets.asked(multilabel, self.path, name)
        if name in tree.masked:
            return Labels.of(self._column(tree, name), self.path, name)
        if name in tree.groups:
            kinds = self._strings(tree, f"{name}/categories")
            return Labels.of_groups(self._whole(tree, f"{name}/codes"), kinds, self.path, name)
        if "categories" in tree.attributes(name):  # these are codes of them
            raise DataError(
                f"{clean(name, 60)} is stored as an old anndata did, labels are categorical, "
                "strings or integers",
                path=self.path,
                hint="Write it again with anndata 0.8 or later, or name another column: --y-path.",
            )
        values, fills = self._whole(tree, name), tree.fills(name)
        if fills:
            values = np.ma.MaskedArray(values, are_missing(values, fills))
        return labels_in(values, multilabel, self.path, name)

    def _column(self, tree: Tree, name: str) -> NDArray[Any]:
        """Return an array; a masked one where its values may be missing."""
        if name in tree.arrays:
            return self._whole(tree, name)
        values, mask = self._whole(tree, f"{name}/values"), f"{name}/mask"
        if values.dtype.kind not in "biuf" and tree.arrays[mask].left_out:
            return values  # a missing string is empty, too
        missing = self._whole(tree, mask)
        if missing.shape != values.shape or missing.dtype.kind != "b":
            raise DataError(f"{clean(mask, 60)} does not fit", path=self.path)
        return np.ma.MaskedArray(values, missing)

    def _strings(self, tree: Tree, name: str) -> NDArray[Any]:
        """Return strings, empty ones where they are missing."""
        values = self._column(tree, name)
        return np.ma.filled(values.astype(object), "") if np.ma.is_masked(values) else values

    def _whole(self, tree: Tree, name: str) -> NDArray[Any]:
        array = tree.arrays[name]
        array.check()
        if not array.shape:
            raise DataError(f"{clean(name, 60)} is a single value, no array", path=self.path)
        return array.read(0, array.shape[0])


def are_missing(values: NDArray[Any], fills: list[Any]) -> NDArray[np.bool_]:
    """Return which values of an array are one of those that stand for missing ones."""
    if values.dtype.kind == "f":
        with np.errstate(over="ignore"):
            numbers = np.array([one for one in fills if not isinstance(one, str)], values.dtype)
        missing = np.isin(values, numbers) | (np.isnan(values) & np.isnan(numbers).any())
    else:
        texts = [fill.encode() for fill in fills if isinstance(fill, str)]
        missing = np.any([values == fill for fill in (*fills, *texts)], axis=0)
    return np.asarray(missing, np.bool_)


def inside(group: str, name: str) -> str:
    """Return the path of something in a group, the top of the tree among them."""
    return f"{group}/{name}" if group else name


def _check(tree: Tree, name: str) -> None:
    """Raise DataError if there is an array of this name that cannot be read."""
    if name in tree.arrays:
        tree.arrays[name].check()


def _listed(names: set[str]) -> str:
    return ", ".join(clean(name or "/", 60) for name in sorted(names)[:8]) or "none"
