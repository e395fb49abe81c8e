"""Files of arrays: .npy, .npz as NumPy and SciPy write it, and HDF5.

HDF5 is read without plugins and links to elsewhere.
"""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from streammach.inputs.matrices.named_arrays import (
    COPY_HINT,
    MAX_CHUNK_BYTES,
    MAX_DEPTH,
    MAX_NODES,
    NamedArrays,
    StoredArray,
    check_numbers,
    check_stored,
    inside,
    reading_errors,
)
from streammach.system.errors import DataError, clean

NPY_MAGIC = b"\x93NUMPY"
NPZ_MAGIC = b"PK\x03\x04"
HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
NO_PLUGINS = "::"  # a plugin is a library that opening a file would run
FILTERS = {1, 2, 3, 6, 32000}  # of HDF5: deflate, shuffle, fletcher32, scale-offset, lzf


class NpyArray(StoredArray):
    """An array of a .npy file, or of a .npz file, which is read from its start to its end."""

    def __init__(self, file: IO[bytes], path: Path, member: zipfile.ZipInfo | None) -> None:
        self._file, self._path, self._is_mapped = file, path, member is None
        self._name = "the array" if member is None else clean(member.filename.removesuffix(".npy"))
        version = npy.read_magic(file)
        if version not in ((1, 0), (2, 0)):
            raise DataError(f"version {version} of .npy is not read", path=path)
        first = version == (1, 0)
        read_header = npy.read_array_header_1_0 if first else npy.read_array_header_2_0
        self.shape, fortran, self.dtype = read_header(file)
        self._by_columns = fortran and len(self.shape) > 1
        size = path.stat().st_size if member is None else member.file_size
        self._n_bytes = size - file.tell()  # of data
        self._stored = self._n_bytes if member is None else member.compress_size

    def check(self) -> None:
        if self.dtype.hasobject:
            what = f"{self._name} holds Python objects, which are pickles and are never read"
            hint = "Write it as numbers or fixed strings: y.astype(str)."
            raise DataError(what, path=self._path, hint=hint)
        check_stored(self._n_bytes, self._stored, self._path, self._name)
        if self._n_bytes != math.prod(self.shape) * self.dtype.itemsize:
            size = " x ".join(f"{n:,}" for n in self.shape)
            what = f"{self._name} has {self._n_bytes:,} bytes of data for {size} values"
            raise DataError(f"{what} of {self.dtype}", path=self._path, hint=COPY_HINT)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return items; of .npz those from where the last call stopped."""
        with reading_errors(self._path):
            if self._is_mapped:  # anew for each call, so that pages do not pile up
                rows = np.load(self._path, mmap_mode="r", allow_pickle=False)[start:stop]
                return np.array(rows, order="C")
            shape = (stop - start, *self.shape[1:])
            if self._by_columns and shape[0] != self.shape[0]:
                what = f"{self._name} is stored column by column"
                hint = "Write it row by row: numpy.ascontiguousarray(X)."
                raise DataError(what, path=self._path, hint=hint)
            data = self._file.read(math.prod(shape) * self.dtype.itemsize)
            values = np.frombuffer(data, self.dtype)
            return values.reshape(shape[::-1]).T if self._by_columns else values.reshape(shape)


@contextmanager
def open_npy(path: Path) -> Iterator[NamedArrays]:
    """Open the array of a .npy file, whose name is empty, or raise DataError or DiskError."""
    with reading_errors(path), open(path, "rb") as file:
        array = NpyArray(file, path, None)
    array.check()
    yield NamedArrays(path, {"": array}, lambda _: {})


@contextmanager
def open_npz(path: Path) -> Iterator[NamedArrays]:
    """Open the arrays of a .npz file by their names, or raise DataError or DiskError."""
    arrays: dict[str, StoredArray] = {}
    with ExitStack() as stack:
        with reading_errors(path):
            archive = stack.enter_context(zipfile.ZipFile(path))
            for facts in archive.infolist():
                name = facts.filename.removesuffix(".npy")
                if name != facts.filename:
                    file = stack.enter_context(archive.open(facts))
                    arrays[name] = NpyArray(file, path, facts)
        form, attributes = arrays.get("format"), dict[str, Any]()
        if form is not None and math.prod(form.shape) == 1:  # as scipy.sparse.save_npz writes it
            form.check()
            attributes["encoding-type"] = form.read(0, math.prod(form.shape[:1])).item()
        yield NamedArrays(path, arrays, lambda name: {} if name else attributes)


@contextmanager
def open_hdf5(path: Path) -> Iterator[NamedArrays]:
    """Open the datasets of a file; raise DataError or DiskError, also while they are read."""
    os.environ.setdefault("HDF5_PLUGIN_PRELOAD", NO_PLUGINS)
    import h5py

    with reading_errors(path), h5py.File(path, "r") as file:
        nodes = dict(_walk(file))
        sets = {name: node for name, node in nodes.items() if isinstance(node, h5py.Dataset)}
        yield NamedArrays(
            path, {name: Hdf5Array(dataset, name, path) for name, dataset in sets.items()},
            lambda name: dict(nodes[name].attrs) if name in nodes else {},
        )  # fmt: skip


class Hdf5Array(StoredArray):
    """A dataset of an open file."""

    def __init__(self, dataset: Any, name: str, path: Path) -> None:
        self.shape: tuple[int, ...] = dataset.shape or ()
        self.dtype: np.dtype[Any] = dataset.dtype
        self.unit: int = dataset.chunks[0] if dataset.chunks else 1
        self._dataset, self._name, self._path = dataset, name, path

    def check(self) -> None:
        """Raise DataError if a dataset reads other files, runs code, or has huge chunks."""
        import h5py

        dataset, wrong = self._dataset, ""
        if dataset.is_virtual or dataset.external:
            wrong = "is stored in other files"
        plist = dataset.id.get_create_plist()
        filters = {plist.get_filter(i)[0] for i in range(plist.get_nfilters())}
        if filters - FILTERS:
            wrong = f"needs the filter {min(filters - FILTERS)}, which is a plugin"
        chunk = math.prod(dataset.chunks or (0,)) * dataset.dtype.itemsize
        if chunk > MAX_CHUNK_BYTES:
            wrong = f"has chunks of {chunk:,} bytes, at most {MAX_CHUNK_BYTES:,} are read"
        if wrong:
            hint = "Write it again as a plain dataset: gzip or no compression, smaller chunks."
            raise DataError(f"{clean(self._name)} {wrong}", path=self._path, hint=hint)
        n_bytes = math.prod(self.shape) * dataset.dtype.itemsize
        check_stored(n_bytes, dataset.id.get_storage_size(), self._path, self._name)
        if dataset.dtype.hasobject and h5py.check_string_dtype(dataset.dtype) is None:
            check_numbers(dataset.dtype, self._path, self._name)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        values: NDArray[Any] = self._dataset[start:stop]
        return values


def _walk(file: Any) -> Iterator[tuple[str, Any]]:
    """Yield groups and datasets by their paths; links to elsewhere are not followed."""
    import h5py

    left, seen = [("", file, 0)], 0
    while left:
        path, node, depth = left.pop()
        yield path, node
        for name in node if isinstance(node, h5py.Group) else ():
            seen += 1
            if seen > MAX_NODES or depth > MAX_DEPTH:
                return
            if isinstance(node.get(name, getlink=True), h5py.HardLink):
                inner = node[name]
                if isinstance(inner, h5py.Dataset | h5py.Group):
                    left.append((inside(path, name), inner, depth + 1))
