"""AnnData in a folder of Zarr, format 2 or 3: X or a layer, a column of obs as labels.

Feature names are those of ``var``. A folder that is a matrix by itself is read too, with labels in
a file of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from streammach.data.identity import files_in
from streammach.data.label_arrays import Labels, LabelSets, Nullable, column_names
from streammach.data.matrix import Dense, Opened, Sparse, check_held, check_numbers
from streammach.data.matrix_source import MatrixSource
from streammach.data.numpy_files import labels_in, load_labels
from streammach.data.source_options import SourceOptions
from streammach.data.zarr_arrays import ZarrArray
from streammach.data.zarr_metadata import OBJECT_BYTES, Node, check_files, place_in, read_node
from streammach.errors import DataError, StreammachError, UsageError, clean

ROW_BYTES = 24  # of a dense value while its row is read
SPARSE_PARTS = ("data", "indices", "indptr")
COLUMN_HINT = "Name a column with --y-path obs/COLUMN."


def is_matrix_folder(path: Path) -> bool:
    """Return whether a folder looks like AnnData or a matrix, and not like a store."""
    try:
        node = read_node(path)
    except StreammachError:
        return False
    if node is None or "streammach" in node.attributes:
        return False
    return node.is_array or node.encoding in ("anndata", "csr_matrix", "csc_matrix")


class AnnDataSource(MatrixSource):
    """Rows of an AnnData folder, or of a Zarr group or array that is a matrix."""

    form = "anndata"
    is_folder = True
    has_paths = True

    def __init__(self, path: Path, options: SourceOptions) -> None:
        super().__init__(path, options)
        root = read_node(path)
        if root is None:
            raise DataError(
                "the folder is neither AnnData nor a matrix of Zarr",
                path=path,
                hint="It has no zarr.json, .zgroup or .zarray; several files are named one by one.",
            )
        if "streammach" in root.attributes:
            raise DataError(
                "it is a store already",
                path=path,
                hint="Use it as it is: streammach info, plan and train take it.",
            )
        self._is_anndata = root.encoding == "anndata"
        wanted = options.x_path
        self._x = wanted.strip("/") if wanted is not None else "X" if self._is_anndata else ""
        self._y = self._labels_path()
        self._names = self._names_path()
        self._bytes = check_files(path, self._x)
        for name in (self._y, self._names):
            check_files(path, name or self._x)
        said = [f"rows from {clean(self._x)}" if self._x else ""]
        said.append(f"labels from {clean(self._y)}" if self._y else "")
        said.append(f"names from {clean(self._names)}" if self._names else "")
        self.note = ", ".join(text for text in said if text)

    @property
    def n_bytes(self) -> int:
        """Bytes of the matrix."""
        return self._bytes

    def files(self) -> list[Path]:
        """Return the files of matrix, labels and names."""
        places = dict.fromkeys((self._x, self._y or self._x, self._names or self._x))
        return [file for name in places for file in files_in(place_in(self.path, name))]

    def _node(self, name: str) -> Node:
        node = self._maybe(name)
        if node is None:
            raise DataError(f"it has no '{clean(name, 60)}'", path=self.path)
        return node

    def _maybe(self, name: str) -> Node | None:
        return read_node(place_in(self.path, name))

    def _array(self, name: str) -> ZarrArray:
        node = self._node(name)
        if not node.is_array:
            raise DataError(f"{clean(name, 60)} is no array", path=self.path)
        return ZarrArray(node.facts())

    def _whole(self, name: str) -> NDArray[Any]:
        """Return an array of one axis."""
        array = self._array(name)
        if len(array.shape) != 1:
            raise DataError(
                f"{clean(name, 60)} has the shape {array.shape}, one axis is expected",
                path=self.path,
            )
        size = OBJECT_BYTES if array.dtype.hasobject else array.dtype.itemsize
        check_held(array.shape[0] * size, self.path, name)
        return array.read(0, array.shape[0])

    def _labels_path(self) -> str | None:
        if self._options.labels is not None:
            return None
        if self._options.y_path is not None:
            wanted = self._options.y_path.strip("/")
            if not wanted or self._maybe(wanted) is None:
                listed = ", ".join(clean(f"obs/{name}", 40) for name in self._columns()[:8])
                raise UsageError(
                    f"it has no '{clean(self._options.y_path, 60)}': --y-path",
                    path=self.path,
                    hint=f"It has: {listed or 'no columns of obs'}.",
                )
            return wanted
        return self._guessed() if self._is_anndata else None

    def _columns(self) -> list[str]:
        """Return the columns of obs that can be read as labels, in their order."""
        obs = self._maybe("obs") if self._is_anndata else None
        listed = [] if obs is None else obs.attributes.get("column-order", [])
        listed = listed if isinstance(listed, list) else []
        found = [c for c in listed if isinstance(c, str) and c not in ("", ".", "..")]
        return [c for c in found if self._kind(c) != "other"]

    def _kind(self, column: str) -> str:
        """Return ``groups`` for a categorical column, ``plain`` for strings or integers."""
        node = self._maybe(f"obs/{column}") if "/" not in column else None
        if node is None:
            return "other"
        if node.encoding == "categorical" or "categories" in node.attributes:
            return "groups"
        if node.encoding in ("nullable-integer", "nullable-string-array"):
            return "plain"
        if not node.is_array:
            return "other"
        dtype = node.facts().chain.dtype
        return "plain" if dtype is None or dtype.kind in "iuSU" else "other"

    def _guessed(self) -> str | None:
        """Return the one column that can be meant: a categorical one before all others."""
        columns = self._columns()
        groups = [c for c in columns if self._kind(c) == "groups"]
        fitting = groups or columns
        if len(fitting) > 1:
            listed = ", ".join(clean(f"obs/{name}", 40) for name in fitting[:8])
            raise UsageError(f"the labels may be {listed}", path=self.path, hint=COLUMN_HINT)
        return f"obs/{fitting[0]}" if fitting else None

    def _names_path(self) -> str | None:
        """Return where the names of the columns are: the index of var."""
        parts = self._x.split("/")
        if not self._is_anndata or not (self._x == "X" or parts[0] in ("layers", "raw")):
            return None
        var = "raw/var" if parts[0] == "raw" else "var"
        node = self._maybe(var)
        index = "_index" if node is None else node.attributes.get("_index", "_index")
        if not isinstance(index, str) or "/" in index:
            raise DataError("the index of var has no usable name", path=self.path)
        return f"{var}/{index}" if self._maybe(f"{var}/{index}") is not None else None

    @contextmanager
    def opened(self) -> Iterator[Opened]:
        """Open the matrix for as long as a block runs."""
        node = self._maybe(self._x)
        if node is None:
            raise UsageError(f"it has no matrix '{clean(self._x, 60)}': --x-path", path=self.path)
        matrix = self._dense(node) if node.is_array else self._sparse(node)
        if self._options.labels is not None:
            labels: Labels | LabelSets | None = load_labels(
                self._options.labels, self._options.multilabel
            )
        else:
            labels = None if self._y is None else self._labels(self._y)
        names = None
        if self._names is not None:
            values = self._column(self._node(self._names), self._names).strings
            names = column_names(values, matrix.n_columns, self.path, self._names)
        yield Opened(matrix, labels, names)

    def _dense(self, node: Node) -> Dense:
        array = ZarrArray(node.facts())
        if len(array.shape) != 2:
            raise DataError(
                f"the shape is {array.shape}, rows x columns is expected", path=node.folder
            )
        check_numbers(array.dtype, self.path, self._x or "the array")
        check_held(array.shape[1] * ROW_BYTES, self.path, "a row")
        return Dense(array.read, (array.shape[0], array.shape[1]), array.facts.chunks[0])

    def _sparse(self, node: Node) -> Sparse:
        shape = node.attributes.get("shape")
        if node.encoding != "csr_matrix":
            form = f"is a {clean(node.encoding, 40)}" if node.encoding else "is no matrix"
            raise DataError(
                f"{clean(self._x, 60) or 'the group'} {form}, rows are read from csr_matrix",
                path=self.path,
                hint="Write it again from X.tocsr(), or name another matrix with --x-path.",
            )
        if not isinstance(shape, list) or [type(n) for n in shape] != [int, int]:
            raise DataError("its shape is not rows and columns", path=node.folder)
        inside = f"{self._x}/" if self._x else ""
        data, indices, indptr = (self._array(f"{inside}{part}") for part in SPARSE_PARTS)
        for name, array in zip(SPARSE_PARTS, (data, indices, indptr), strict=True):
            check_numbers(array.dtype, self.path, name, "biuf" if name == "data" else "iu")
        return Sparse(
            self._whole(f"{inside}indptr"), indices.read, data.read,
            (indices.shape[0], data.shape[0]), (shape[0], shape[1]), self.path,
        )  # fmt: skip

    def _labels(self, name: str) -> Labels | LabelSets:
        node, multilabel = self._node(name), self._options.multilabel
        if node.encoding == "csr_matrix" and multilabel != "off":
            indptr, indices, data = (
                self._whole(f"{name}/{part}") for part in ("indptr", "indices", "data")
            )
            sets = LabelSets.of_csr(indptr, indices, data, self.path, name)
            return sets.asked(multilabel, self.path, name)
        if node.encoding == "categorical":
            kinds = self._column(self._node(f"{name}/categories"), f"{name}/categories")
            codes = self._whole(f"{name}/codes")
            return Labels.of_groups(codes, kinds.strings, self.path, name)
        if node.encoding.startswith("nullable-"):
            return Labels.of_nullable(self._column(node, name), self.path, name)
        if "categories" in node.attributes or not node.is_array:
            raise DataError(
                f"{clean(name, 60)} is stored as {clean(node.encoding, 40) or 'an old anndata did'}"
                ", labels are categorical, strings or integers",
                path=self.path,
                hint="Write it again with anndata 0.8 or later, or name another column: --y-path.",
            )
        return labels_in(self._whole(name), multilabel, self.path, name)

    def _column(self, node: Node, name: str) -> Nullable:
        """Return an array, or the array and the mask of one that may miss values."""
        if not node.encoding.startswith("nullable-"):
            return Nullable(self._whole(name))
        values = self._whole(f"{name}/values")
        strings = node.encoding == "nullable-string-array"  # a missing one is empty, too
        if strings and not self._has_chunks(f"{name}/mask"):
            return Nullable(values)
        return Nullable.of(values, self._whole(f"{name}/mask"), self.path, name)

    def _has_chunks(self, name: str) -> bool:
        """Return whether an array has files of chunks: those of zeros alone may be left out."""
        files = files_in(self._node(name).folder)
        return any(file.name not in ("zarr.json", ".zarray", ".zattrs") for file in files)
