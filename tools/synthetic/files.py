"""Made-up rows as files: VW or XMC text, HDF5, or a store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray

from streammach.data.convert import check_target, convert
from streammach.errors import UsageError, clean
from streammach.files.destinations import Destination, Product
from streammach.files.folders import make_folder
from streammach.files.writing import Writer
from streammach.rows.block import RowBlock
from streammach.spec.types import Multilabel
from tools.synthetic.rows import PIECE_VALUES, SyntheticRows, text_pieces

Progress = Callable[[str, int, int], None]

FORMS = ("vw", "xmc", "hdf5", "store")
LAYOUTS = ("auto", "dense", "sparse")
SUFFIXES = {
    ".vw": "vw",
    ".txt": "vw",
    ".gz": "vw",
    ".h5": "hdf5",
    ".hdf5": "hdf5",
    ".zarr": "store",
}
GZIP_LEVEL, GZIP_WINDOW = 1, 31
CHUNK_VALUES = 1 << 16  # of an HDF5 dataset that grows
ROWS = Product("a file of rows", lambda path: "nothing in it says who made it")


@dataclass(frozen=True)
class Written:
    """What was written: the file, its rows and values, its bytes as text or arrays."""

    path: str
    n_rows: int
    nnz: int
    n_bytes: int


def write_rows(
    rows: SyntheticRows,
    out: Path,
    *,
    form: str | None = None,
    layout: str = "auto",
    like: Path | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Written:
    """Write made-up rows; the file appears when it is whole.

    Parameters
    ----------
    rows : SyntheticRows
        The rows.
    out : Path
        The file or store.
    form : str, optional
        ``vw`` or ``xmc`` (gzip where the name ends so), ``hdf5`` or ``store``; by the name's end
        otherwise.
    layout : str
        Of HDF5: ``dense``, ``sparse``, or ``auto``, which is dense for activations.
    like : Path, optional
        For a store: the store whose labels and features are used.
    force : bool
        Whether an existing store may be replaced; a file of rows is not, since nothing in one says
        that it was made here.
    progress : callable, optional
        Called with (stage, rows done, all rows).

    Raises
    ------
    UsageError
        If the output exists, or an option is wrong or does not fit.
    DiskError
        If it cannot be written.
    """
    destination = destination_of(out, form=form, layout=layout, like=like, force=force)
    form = _form(out, form)
    counted = _Counted(rows, progress)
    with destination.scratch() as made:
        if form == "store":
            make_folder(made)
            text = made / f"{rows.part}.vw"
            n_bytes = _write_text(counted, text, zipped=False)
            listed: Multilabel = "auto" if rows.shape.lists is None else "on"
            convert(text, out, format="vw", multilabel=listed, like=like, force=force)
        elif form in ("vw", "xmc"):
            zipped = out.suffix == ".gz"
            n_bytes = _write_text(counted, made, zipped=zipped, xmc=form == "xmc")
        elif layout == "dense" or (layout == "auto" and rows.shape.kind == "activations"):
            n_bytes = _write_dense(counted, made)
        else:
            n_bytes = _write_sparse(counted, made)
        if form != "store":
            destination.take(made)
    return Written(str(out), counted.n_rows, counted.nnz, n_bytes)


def destination_of(
    out: Path,
    *,
    form: str | None = None,
    layout: str = "auto",
    like: Path | None = None,
    force: bool = False,
    others: Sequence[Path] = (),
) -> Destination:
    """Return where rows will be written; nothing is written yet.

    Parameters
    ----------
    out : Path
    form : str, optional
    layout : str
    like : Path, optional
    force : bool
        As for :func:`write_rows`.
    others : sequence of Path
        What else is written.

    Raises
    ------
    UsageError
        If nothing may be written there, or an option is wrong or does not fit.
    """
    form = _form(out, form)
    if form not in FORMS:
        raise UsageError(
            f"the name ends with none of {', '.join(SUFFIXES)}", path=clean(out, 300),
            hint="Name the format with --format.",
        )  # fmt: skip
    if layout not in LAYOUTS:
        raise UsageError(f"'{clean(layout)}' is not one of {', '.join(LAYOUTS)}: --layout")
    if like is not None and form != "store":
        raise UsageError(f"only a store can be like another one: {clean(like)}: --like")
    inputs = [*others, *([] if like is None else [like])]
    if form == "store":
        return check_target(out, inputs, force=force)[1]
    return Destination(out, ROWS, force=force, inputs=inputs)


def _form(out: Path, form: str | None) -> str | None:
    return form or SUFFIXES.get(out.suffix)


class _Counted:
    """Counts rows and values on their way, and says how far they are."""

    def __init__(self, rows: SyntheticRows, progress: Progress | None) -> None:
        self.rows = rows
        self.n_rows = self.nnz = 0
        self._progress = progress

    def add(self, block: RowBlock) -> None:
        self.n_rows += block.n_rows
        self.nnz += block.nnz
        if self._progress is not None:
            self._progress("write", self.n_rows, self.rows.n_rows)


def _write_text(counted: _Counted, out: Path, *, zipped: bool, xmc: bool = False) -> int:
    rows, shape = counted.rows, counted.rows.shape
    head = f"{rows.n_rows} {shape.n_features} {shape.n_classes + 1}\n" if xmc else ""
    n_bytes = len(head)
    with Writer(out) as file:
        packer = isal_zlib.compressobj(GZIP_LEVEL, isal_zlib.DEFLATED, GZIP_WINDOW)
        file.write(packer.compress(head.encode()) if zipped else head.encode())
        for block, text in text_pieces(rows, xmc=xmc):
            n_bytes += len(text)
            file.write(packer.compress(text) if zipped else text)
            counted.add(block)
        if zipped:
            file.write(packer.flush())
        file.commit()
    return n_bytes


def _write_dense(counted: _Counted, out: Path) -> int:
    """Write X (n, d) float32 and the labels."""
    import h5py  # loads a library of its own

    rows, shape = counted.rows, (counted.rows.n_rows, counted.rows.shape.n_features)
    piece = max(1, PIECE_VALUES * rows.most_row_nnz // shape[1])  # so many values with the zeros
    with h5py.File(out, "w") as file:
        x = file.create_dataset("X", shape, np.float32)
        y = _labels_of(file, rows)
        for block in rows.pieces(piece):
            x[counted.n_rows : counted.n_rows + block.n_rows] = _dense(block, shape[1])
            y.add(block)
            counted.add(block)
    return 4 * shape[0] * shape[1]


def _dense(block: RowBlock, n_columns: int) -> NDArray[np.float32]:
    x = np.zeros((block.n_rows, n_columns), np.float32)
    x[np.repeat(np.arange(block.n_rows), np.diff(block.indptr)), block.features] = block.values
    return x


def _write_sparse(counted: _Counted, out: Path) -> int:
    """Write a group X of data, indices and indptr, as AnnData does, and the labels."""
    import h5py  # loads a library of its own

    rows = counted.rows
    with h5py.File(out, "w") as file:
        x = _GrowingMatrix(file, "X", (rows.n_rows, rows.shape.n_features))
        y = _labels_of(file, rows)
        for block in rows.pieces():
            x.append(block.indptr, block.features, block.values)
            y.add(block)
            counted.add(block)
    return 8 * (counted.nnz + rows.n_rows)


class _GrowingMatrix:
    """A group of data, indices and indptr to which rows are appended."""

    def __init__(self, file: Any, name: str, shape: tuple[int, int]) -> None:
        group = file.create_group(name)
        group.attrs["encoding-type"] = "csr_matrix"
        group.attrs["shape"] = shape
        self._parts = {
            name: group.create_dataset(name, (0,), dtype, maxshape=(None,), chunks=(CHUNK_VALUES,))
            for name, dtype in {"indices": np.int32, "data": np.float32}.items()
        }
        self._indptr = group.create_dataset("indptr", (shape[0] + 1,), np.int64)
        self._n_rows = self._nnz = 0
        self._indptr[0] = 0

    def append(self, indptr: NDArray[Any], indices: NDArray[Any], data: NDArray[Any]) -> None:
        """Append rows: indptr (n + 1,) from 0, indices and data (nnz,)."""
        stop = self._n_rows + len(indptr)
        for name, values in {"indices": indices, "data": data}.items():
            part = self._parts[name]
            part.resize((self._nnz + len(values),))
            part[self._nnz :] = values
        self._indptr[self._n_rows + 1 : stop] = indptr[1:] + self._nnz
        self._n_rows, self._nnz = stop - 1, self._nnz + len(indices)


def _labels_of(file: Any, rows: SyntheticRows) -> _OneLabel | _LabelMatrix:
    return _OneLabel(file, rows) if rows.shape.lists is None else _LabelMatrix(file, rows)


class _OneLabel:
    """A dataset y (n,) of labels, counted from 1."""

    def __init__(self, file: Any, rows: SyntheticRows) -> None:
        self._y = file.create_dataset("y", (rows.n_rows,), np.int64)
        self._n_rows = 0

    def add(self, block: RowBlock) -> None:
        stop = self._n_rows + block.n_rows
        self._y[self._n_rows : stop] = block.classes + 1
        self._n_rows = stop


class _LabelMatrix:
    """A group y, a matrix of rows x labels; column 0 is empty, since labels count from 1."""

    def __init__(self, file: Any, rows: SyntheticRows) -> None:
        self._y = _GrowingMatrix(file, "y", (rows.n_rows, rows.shape.n_classes + 1))

    def add(self, block: RowBlock) -> None:
        lists = block.lists
        self._y.append(lists.starts, lists.classes + 1, np.ones(lists.n_labels, np.float32))
