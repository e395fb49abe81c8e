"""Files of named arrays: HDF5, read without plugins and links to elsewhere, and .npz."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.data.matrix import MAX_PIECE_BYTES, check_numbers, check_stored
from streammach.data.matrix_tree import MAX_DEPTH, MAX_NODES, Tree, TreeSource, inside
from streammach.data.numpy_files import NPZ_MAGIC, damage_said, npz_arrays
from streammach.errors import DataError, clean

HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
NO_PLUGINS = "::"  # a plugin is a library that opening a file would run
FILTERS = {1, 2, 3, 6, 32000}  # deflate, shuffle, fletcher32, scale-offset, lzf


class Hdf5Source(TreeSource):
    """Rows of an HDF5 file, such as AnnData."""

    form = "hdf5"
    magic = HDF5_MAGIC

    @contextmanager
    def tree(self) -> Iterator[Tree]:
        """Open the file; raise DataError or DiskError, also while it is read."""
        os.environ.setdefault("HDF5_PLUGIN_PRELOAD", NO_PLUGINS)
        import h5py

        with damage_said(self.path), h5py.File(self.path, "r") as file:
            nodes = dict(_nodes_of(file))
            sets = {n: d for n, d in nodes.items() if isinstance(d, h5py.Dataset)}
            yield Tree(
                {name: _Dataset(one, name, self.path) for name, one in sets.items()},
                lambda name: dict(nodes[name].attrs) if name in nodes else {},
            )


class NpzSource(TreeSource):
    """Rows of a .npz file, such as scipy.sparse.save_npz writes, with labels as one more array."""

    form = "npz"
    magic = NPZ_MAGIC

    @contextmanager
    def tree(self) -> Iterator[Tree]:
        with npz_arrays(self.path) as arrays:
            form = arrays.get("format")
            single = form is not None and math.prod(form.shape) == 1
            said = {"encoding-type": form.whole().item()} if form and single else {}
            yield Tree(arrays, lambda name: {} if name else said)


class _Dataset:
    def __init__(self, dataset: Any, name: str, path: Path) -> None:
        self.shape: tuple[int, ...] = dataset.shape or ()
        self.dtype: np.dtype[Any] = dataset.dtype
        self.unit: int = dataset.chunks[0] if dataset.chunks else 1
        self.left_out = False
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
        chunk = int(np.prod(dataset.chunks or (0,), dtype=object)) * dataset.dtype.itemsize
        if chunk > MAX_PIECE_BYTES:
            wrong = f"has chunks of {chunk:,} bytes, at most {MAX_PIECE_BYTES:,} are read"
        if wrong:
            hint = "Write it again as a plain dataset: gzip or no compression, smaller chunks."
            raise DataError(f"{clean(self._name)} {wrong}", path=self._path, hint=hint)
        n_bytes = math.prod(self.shape) * dataset.dtype.itemsize
        check_stored(n_bytes, dataset.id.get_storage_size(), self._path, self._name)
        if dataset.dtype.hasobject and h5py.check_string_dtype(dataset.dtype) is None:
            check_numbers(dataset.dtype, self._path, self._name)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return items ``start:stop`` of the first axis."""
        values: NDArray[Any] = self._dataset[start:stop]
        return values


def _nodes_of(file: Any) -> Iterator[tuple[str, Any]]:
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
