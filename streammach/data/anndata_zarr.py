"""AnnData in a folder of Zarr, format 2 or 3, or a folder that is a matrix by itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from streammach.data.identity import files_in
from streammach.data.matrix_tree import MAX_DEPTH, MAX_NODES, Tree, TreeSource
from streammach.data.source_options import SourceOptions
from streammach.data.zarr_arrays import ZarrArray
from streammach.data.zarr_metadata import ArrayFacts, Node, check_files, read_node
from streammach.errors import DataError, StreammachError


def is_matrix_folder(path: Path) -> bool:
    """Return whether a folder looks like AnnData or a matrix, and not like a store."""
    try:
        node = read_node(path)
    except StreammachError:
        return False
    if node is None or "streammach" in node.attributes:
        return False
    known = ("anndata", "csr_matrix", "csc_matrix")
    return node.read is not None or node.attributes.get("encoding-type") in known


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
        check_files(path)
        nodes = dict(_nodes(path, root))
        self._tree = Tree(
            {name: ZarrArray(node) for name, node in nodes.items() if node.read is not None},
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
    """Yield groups and arrays by their paths."""
    left, n = [("", root)], 0
    while left and n < MAX_NODES:
        name, node = left.pop()
        yield name, node
        n += 1
        if node.read is None and name.count("/") < MAX_DEPTH:
            for folder in sorted(p for p in (top / name).iterdir() if p.is_dir()):
                if (inner := _node(folder)) is not None:
                    left.append((folder.relative_to(top).as_posix(), inner))


def _node(folder: Path) -> Node | None:
    """Return what a folder is; one with damaged metadata is an array that cannot be read."""
    try:
        return read_node(folder)
    except DataError as error:
        return Node(folder, {}, partial(_raise, error))


def _raise(error: DataError) -> ArrayFacts:
    raise error
