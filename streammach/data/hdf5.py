"""Matrices in HDF5 files: dense datasets, or compressed sparse rows in a group."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streammach.data.label_arrays import Labels, LabelSets, Nullable, column_names
from streammach.data.matrix import (
    ANY_WIDTH,
    MAX_PIECE_BYTES,
    Dense,
    Opened,
    Sparse,
    check_held,
    check_numbers,
)
from streammach.data.matrix_source import MatrixSource
from streammach.data.numpy_files import COPY_HINT, labels_in, load_labels
from streammach.data.source_options import SourceOptions
from streammach.errors import DataError, StreammachError, UsageError, clean
from streammach.files.reading import disk_error

if TYPE_CHECKING:
    import h5py

HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
NO_PLUGINS = "::"  # a plugin is a library that opening a file would run
FILTERS = {1, 2, 3, 6, 32000}  # deflate, shuffle, fletcher32, scale-offset, lzf
MAX_NODES, MAX_DEPTH = 10_000, 8
LABEL_MATRICES = ("y", "Y", "labels")  # that are taken for labels without being named
SPARSE_PARTS = ("data", "indices", "indptr")
Datasets = Mapping[str, "h5py.Dataset"]  # of a file, by path


@contextmanager
def open_hdf5(path: Path) -> Iterator[Any]:
    """Open an HDF5 file without plugins; raise DataError or DiskError, also while it is read."""
    os.environ.setdefault("HDF5_PLUGIN_PRELOAD", NO_PLUGINS)
    import h5py

    try:
        with h5py.File(path, "r") as file:
            yield file
    except StreammachError:
        raise
    except OSError as error:
        if error.errno:
            raise disk_error(error, path) from error
        raise _damaged(error, path) from None
    except (RuntimeError, KeyError, ValueError, TypeError) as error:  # h5py on broken objects
        raise _damaged(error, path) from None


def _damaged(error: Exception, path: Path) -> DataError:
    return DataError(f"it is damaged or cut short ({clean(error, 100)})", path=path, hint=COPY_HINT)


def _datasets_of(file: Any) -> Datasets:
    """Return the datasets of a file by path; links to elsewhere are not followed."""
    import h5py

    found: dict[str, h5py.Dataset] = {}
    left = [("", file, 0)]
    seen = 0
    while left:
        prefix, group, depth = left.pop()
        for name in group:
            seen += 1
            if seen > MAX_NODES or depth > MAX_DEPTH:
                return found
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                continue
            node = group[name]
            if isinstance(node, h5py.Dataset):
                found[prefix + name] = node
            elif isinstance(node, h5py.Group):
                left.append((f"{prefix}{name}/", node, depth + 1))
    return found


def check_dataset(dataset: Any, name: str, path: Path) -> None:
    """Raise DataError if a dataset reads other files, runs code, or has huge chunks."""
    wrong = ""
    if dataset.is_virtual or dataset.external:
        wrong = "is stored in other files"
    plist = dataset.id.get_create_plist()
    filters = {plist.get_filter(i)[0] for i in range(plist.get_nfilters())}
    if filters - FILTERS:
        wrong = f"needs the filter {min(filters - FILTERS)}, which is a plugin"
    chunk = int(np.prod(dataset.chunks or (0,), dtype=object)) * dataset.dtype.itemsize
    if chunk > MAX_PIECE_BYTES:
        wrong = f"has chunks of {chunk:,} bytes, at most {MAX_PIECE_BYTES:,} are read"
    if wrong:
        hint = "Write it again as a plain dataset: gzip or no compression, smaller chunks."
        raise DataError(f"{clean(name)} {wrong}", path=path, hint=hint)


class Hdf5Source(MatrixSource):
    """Rows of a two-dimensional dataset, or of a group with data, indices and indptr."""

    form = "hdf5"
    magic = HDF5_MAGIC
    has_paths = True

    def __init__(self, path: Path, options: SourceOptions) -> None:
        super().__init__(path, options)
        with open_hdf5(path) as file:
            found = _datasets_of(file)
            self._x = self._rows_path(found)
            self._is_anndata = file.attrs.get("encoding-type") == "anndata"
            self._names = self._names_path(file, found)
            self._y = self._labels_path(file, found)
            labels = f", labels from {clean(self._y)}" if self._y is not None else ""
            names = f", names from {clean(self._names)}" if self._names is not None else ""
            self.note = f"rows from {clean(self._x)}{labels}{names}"

    def _rows_path(self, found: Datasets) -> str:
        groups = {name.rpartition("/")[0] for name in found}
        sparse = {g for g in groups if all(_inside(g, part) in found for part in SPARSE_PARTS)}
        dense = {n for n, d in found.items() if d.ndim == 2 and d.dtype.kind in "biuf"}
        wanted = self._options.x_path
        if wanted is not None:
            if wanted.strip("/") in dense | sparse:
                return wanted.strip("/")
            raise UsageError(
                f"it has no matrix '{clean(wanted)}': --x-path",
                path=self.path,
                hint=f"It has: {_listed(dense | sparse)}.",
            )
        wide = {name for name in dense if found[name].shape[1] > 1} | sparse
        return self._only(wide or dense, ("X", "x"), "rows", "--x-path")

    def _labels_path(self, file: Any, found: Datasets) -> str | None:
        wanted, n_rows = self._options.y_path, self._n_rows(found)
        if self._options.labels is not None:
            return None
        groups = _groups_of_rows(found, n_rows)
        matrices = self._label_matrices(found, n_rows)
        if wanted is not None:
            if wanted.strip("/") in found.keys() | groups | _nullable(found) | matrices:
                return wanted.strip("/")
            raise UsageError(f"it has no dataset '{clean(wanted)}': --y-path", path=self.path)
        parts = {_inside(x, part) for x in (self._x, *matrices) for part in SPARSE_PARTS}
        fitting = {
            name
            for name, d in found.items()
            if name not in parts and name != self._x
            and d.shape in ((n_rows,), (n_rows, 1)) and d.dtype.kind in "biufSO"
        }  # fmt: skip
        if self._is_anndata:  # groups of rows before all else; numbers are seldom classes
            masked = _nullable(found)
            inside = {f"{name}/{part}" for name in masked for part in ("values", "mask")}
            plain = {name for name in fitting - inside if found[name].dtype.kind in "iuSO"}
            columns = plain | {name for name in masked if f"{name}/values" in fitting}
            fitting = groups or columns - {_index_of(file, "obs", found)}
        else:
            fitting = fitting - {_inside(group, "codes") for group in groups} | groups
        fitting |= {name for name in matrices if name in LABEL_MATRICES}
        if not fitting:
            return None
        return self._only(fitting, ("y", "labels"), "labels", "--y-path")

    def _names_path(self, file: Any, found: Datasets) -> str | None:
        """Return where AnnData has the names of the columns, or None."""
        top = self._x.split("/")[0]
        if not self._is_anndata or top not in ("X", "layers", "raw"):
            return None
        return _index_of(file, "raw/var" if top == "raw" else "var", found)

    def _only(self, names: set[str], usual: tuple[str, ...], what: str, option: str) -> str:
        """Return the one name that can be meant."""
        preferred = [name for name in usual if name in names]
        if len(names) == 1 or len(preferred) == 1:
            return preferred[0] if preferred else next(iter(names))
        if not names:
            raise DataError(f"it has no dataset that can hold the {what}", path=self.path)
        raise UsageError(
            f"the {what} may be {_listed(names)}", path=self.path, hint=f"Name one with {option}."
        )

    def _n_rows(self, found: Datasets) -> int:
        if self._x in found:
            return int(found[self._x].shape[0])
        return int(found[_inside(self._x, "indptr")].size) - 1

    @contextmanager
    def opened(self) -> Iterator[Opened]:
        """Open the matrix for as long as a block runs."""
        with open_hdf5(self.path) as file:
            found = _datasets_of(file)
            matrix = self._dense(found[self._x]) if self._x in found else self._sparse(file, found)
            if self._options.labels is not None:
                labels: Labels | LabelSets | None = load_labels(
                    self._options.labels, self._options.multilabel
                )
            else:
                labels = None if self._y is None else self._labels(found, self._y)
            names = None
            if self._names is not None:
                values = self._column(found, self._names).strings
                names = column_names(values, matrix.n_columns, self.path, self._names)
            yield Opened(matrix, labels, names)

    def _dense(self, dataset: Any) -> Dense:
        check_dataset(dataset, self._x, self.path)
        unit = dataset.chunks[0] if dataset.chunks else 1
        return Dense(lambda a, b: dataset[a:b], dataset.shape, unit)

    def _sparse(self, file: Any, found: Datasets) -> Sparse:
        parts = {part: found[_inside(self._x, part)] for part in SPARSE_PARTS}
        for name, dataset in parts.items():
            check_dataset(dataset, name, self.path)
            check_numbers(dataset.dtype, self.path, name, "biuf" if name == "data" else "iu")
            if dataset.ndim != 1:
                raise DataError(
                    f"{name} has the shape {dataset.shape}, one axis is expected", path=self.path
                )
        group = file[self._x] if self._x else file
        form = group.attrs.get("encoding-type", group.attrs.get("h5sparse_format", "csr"))
        form = form.decode() if isinstance(form, bytes) else str(form)
        shape = self._shape(group, found)
        if form.startswith("csc") or (shape and shape[0] != parts["indptr"].size - 1):
            raise DataError(
                f"{clean(self._x) or 'the matrix'} is not in compressed sparse rows (CSR)",
                path=self.path,
                hint="Write it again from matrix.tocsr(), with a row for each label.",
            )
        indptr, indices, data = parts["indptr"], parts["indices"], parts["data"]
        check_held(indptr.size * 8, self.path, "indptr")
        columns = shape[1] if shape else ANY_WIDTH
        return Sparse(
            indptr[:], lambda a, b: indices[a:b], lambda a, b: data[a:b],
            (indices.size, data.size), (indptr.size - 1, columns), self.path,
        )  # fmt: skip

    def _shape(self, group: Any, found: Datasets) -> tuple[int, int] | None:
        """Return rows and columns where the file names them, as an attribute or a dataset."""
        name = _inside(self._x, "shape")
        shape = group.attrs.get("shape", group.attrs.get("h5sparse_shape"))
        if shape is None and name in found and found[name].size == 2:
            check_dataset(found[name], name, self.path)
            shape = found[name][()]
        if shape is None or np.size(shape) != 2 or np.asarray(shape).dtype.kind not in "iu":
            return None
        rows, columns = np.asarray(shape).ravel().tolist()
        return rows, columns

    def _label_matrices(self, found: Datasets, n_rows: int) -> set[str]:
        """Return the groups that may be a matrix of rows x labels, if there may be any."""
        if self._options.multilabel == "off":
            return set()
        names = {name.rpartition("/")[0] for name in found} - {self._x}
        whole = (name for name in names if all(_inside(name, p) in found for p in SPARSE_PARTS))
        return {name for name in whole if found[_inside(name, "indptr")].shape == (n_rows + 1,)}

    def _labels(self, found: Datasets, name: str) -> Labels | LabelSets:
        multilabel = self._options.multilabel
        if name in self._label_matrices(found, self._n_rows(found)):
            data, indices, indptr = (self._whole(found, _inside(name, p)) for p in SPARSE_PARTS)
            sets = LabelSets.of_csr(indptr, indices, data, self.path, name)
            return sets.asked(multilabel, self.path, name)
        if name in found and found[name].ndim == 2:
            return labels_in(self._whole(found, name), multilabel, self.path, name)
        if name in found or name in _nullable(found):
            return Labels.of_nullable(self._column(found, name), self.path, name)
        codes, kinds = f"{name}/codes", self._column(found, f"{name}/categories")
        return Labels.of_groups(self._whole(found, codes), kinds.strings, self.path, name)

    def _column(self, found: Datasets, name: str) -> Nullable:
        """Return an array, or the array and the mask of one that may miss values."""
        if name in found:
            return Nullable(self._whole(found, name))
        values, missing = self._whole(found, f"{name}/values"), self._whole(found, f"{name}/mask")
        return Nullable.of(values, missing, self.path, name)

    def _whole(self, found: Datasets, name: str) -> NDArray[Any]:
        """Return an array of numbers or strings."""
        import h5py

        dataset = found[name]
        check_dataset(dataset, name, self.path)
        if dataset.dtype.hasobject and h5py.check_string_dtype(dataset.dtype) is None:
            check_numbers(dataset.dtype, self.path, name)
        check_held(dataset.size * dataset.dtype.itemsize, self.path, name)
        values: NDArray[Any] = dataset[()]
        return values


def _groups_of_rows(found: Datasets, n_rows: int) -> set[str]:
    """Return the categorical columns: groups with a code for each row, and categories."""
    return {
        group
        for group in (name.removesuffix("/codes") for name in found if name.endswith("/codes"))
        if _inside(group, "categories") in found.keys() | _nullable(found)
        and found[f"{group}/codes"].shape == (n_rows,)
    }


def _index_of(file: Any, frame: str, found: Datasets) -> str | None:
    """Return the index of a table of AnnData, if it is there: no link is followed."""
    if not any(name.startswith(f"{frame}/") for name in found):
        return None
    name = f"{frame}/{file[frame].attrs.get('_index', '_index')}"
    return name if name in found.keys() | _nullable(found) else None


def _nullable(found: Datasets) -> set[str]:
    """Return the columns that are an array and a mask of what is missing."""
    masks = (name.removesuffix("/mask") for name in found if name.endswith("/mask"))
    return {name for name in masks if f"{name}/values" in found}


def _inside(group: str, name: str) -> str:
    return f"{group}/{name}" if group else name


def _listed(names: set[str]) -> str:
    return ", ".join(clean(name or "/", 60) for name in sorted(names)[:8]) or "none"
