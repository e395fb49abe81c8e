"""AnnData in a folder of Zarr, format 2 or 3, or a folder that is a matrix by itself."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streammach.data.identity import files_in
from streammach.data.matrix_tree import MAX_DEPTH, MAX_NODES, Tree, TreeSource
from streammach.data.source_options import SourceOptions
from streammach.data.zarr_arrays import ZarrArray, damaged
from streammach.errors import DataError, StreammachError, clean
from streammach.files.reading import disk_error, read_small
from streammach.spec.documents import from_json

MAX_DOCUMENT = 16 << 20  # the root of a group may repeat the metadata of all its members


@dataclass(frozen=True)
class Node:
    """A group or an array: its metadata and attributes."""

    document: dict[str, Any]
    attributes: dict[str, Any]
    is_array: bool


def read_node(folder: Path) -> Node | None:
    """Return the group or array that a folder is, or None; raise DataError or DiskError."""
    names = ("zarr.json", ".zarray", ".zgroup")
    name = next((name for name in names if _exists(folder / name)), None)
    if name is None:
        return None
    try:
        document, attributes = _document(folder / name), {}
        if name == "zarr.json":
            attributes, is_array = document.get("attributes", {}), document["node_type"] == "array"
        else:
            is_array = name == ".zarray"
            if _exists(folder / ".zattrs"):
                attributes = _document(folder / ".zattrs")
        form = 3 if name == "zarr.json" else 2
        if document["zarr_format"] != form or not isinstance(attributes, dict):
            raise ValueError(f"not the metadata of Zarr format {form}")
        return Node(document, attributes, is_array)
    except (ValueError, KeyError) as error:
        raise damaged(folder, error) from None


def _document(path: Path) -> dict[str, Any]:
    return from_json(read_small(path, MAX_DOCUMENT), dict[str, Any])


def _exists(path: Path) -> bool:
    if os.path.lexists(path):
        _check_kind(path, path.parent)
        return True
    return False


def _check_kind(path: Path, top: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except OSError as error:
        raise disk_error(error, path) from error
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        what = "a link" if stat.S_ISLNK(mode) else "neither a file nor a folder"
        raise DataError(
            f"{clean(path.relative_to(top), 100)} is {what}", path=top,
            hint="Copy the folder with its files in it.",
        )  # fmt: skip


def is_matrix_folder(path: Path) -> bool:
    """Return whether a folder looks like AnnData or a matrix, and not like a store."""
    try:
        node = read_node(path)
    except StreammachError:
        return False
    if node is None or "streammach" in node.attributes:
        return False
    known = ("anndata", "csr_matrix", "csc_matrix")
    return node.is_array or node.attributes.get("encoding-type") in known


class AnnDataSource(TreeSource):
    """Rows of an AnnData folder, or of a Zarr group or array that is a matrix."""

    form = "anndata"
    is_folder = True

    def __init__(self, path: Path, options: SourceOptions) -> None:
        root = read_node(path)
        if root is None:
            raise DataError(
                "the folder is neither AnnData nor a matrix of Zarr", path=path,
                hint="It has no zarr.json, .zgroup or .zarray; several files are named one by one.",
            )  # fmt: skip
        if "streammach" in root.attributes:
            raise DataError(
                "it is a store already", path=path,
                hint="Use it as it is: streammach info, plan and train take it.",
            )  # fmt: skip
        for parent, folders, files in os.walk(path):
            for name in (*folders, *files):
                _check_kind(Path(parent, name), path)
        nodes = dict(_nodes(path, root))
        self._tree = Tree(
            {name: ZarrArray(path / name, n.document) for name, n in nodes.items() if n.is_array},
            lambda name: nodes[name].attributes if name in nodes else {},
        )
        super().__init__(path, options)
        self._bytes = sum(file.stat().st_size for file in files_in(path / self._x))

    @property
    def n_bytes(self) -> int:
        """Bytes of the matrix."""
        return self._bytes

    def files(self) -> list[Path]:
        """Return the files of matrix, labels and names."""
        places = dict.fromkeys((self._x, self._y or self._x, self._names or self._x))
        return [file for name in places for file in files_in(self.path / name)]

    @contextmanager
    def tree(self) -> Iterator[Tree]:
        """Return the arrays of the folder, whose files are open while they are read."""
        yield self._tree


def _nodes(top: Path, root: Node) -> Iterator[tuple[str, Node]]:
    """Yield groups and arrays by their paths; one with damaged metadata cannot be read."""
    left, n = [("", root)], 0
    while left and n < MAX_NODES:
        name, node = left.pop()
        yield name, node
        n += 1
        if not node.is_array and name.count("/") < MAX_DEPTH:
            for folder in sorted(p for p in (top / name).iterdir() if p.is_dir()):
                try:
                    inner = read_node(folder)
                except DataError as error:
                    inner = Node({"damaged": error}, {}, is_array=True)
                if inner is not None:
                    left.append((folder.relative_to(top).as_posix(), inner))
