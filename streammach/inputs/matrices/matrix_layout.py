"""Where a file of named arrays has its matrix: the rows, their labels, the names of the columns.

AnnData has its rows in X or a layer, labels in a column of ``obs``, names of features in ``var``.
"""

from __future__ import annotations

from dataclasses import dataclass

from streammach.inputs.matrices.matrix import count_cells
from streammach.inputs.matrices.named_arrays import SPARSE_PARTS, NamedArrays, inside
from streammach.inputs.source_options import SourceOptions
from streammach.system.errors import DataError, UsageError, clean

LABEL_MATRICES = ("y", "Y", "labels")  # that are taken for labels without being named
PARTS = (*SPARSE_PARTS, "shape", "format")  # of a sparse matrix, as anybody writes it


@dataclass(frozen=True)
class MatrixLayout:
    """The paths of arrays or groups in a file."""

    rows: str
    labels: str | None = None  # None: labels are elsewhere, or not wanted
    names: str | None = None  # of the columns

    @property
    def note(self) -> str:
        """What a user is told of it."""
        return ", ".join(f"{what} from {clean(name)}" for what, name in vars(self).items() if name)


def find_layout(arrays: NamedArrays, options: SourceOptions) -> MatrixLayout:
    """Return where rows, labels and names are, or raise UsageError or DataError."""
    rows, is_anndata = _find_rows(arrays, options), arrays.text("", "encoding-type") == "anndata"
    names = _find_names(arrays, rows) if is_anndata else None
    inside_it = options.labelled and options.labels is None
    labels = _find_labels(arrays, rows, options, is_anndata=is_anndata) if inside_it else None
    return MatrixLayout(rows, labels, names)


def _find_labels(
    arrays: NamedArrays, rows: str, options: SourceOptions, *, is_anndata: bool
) -> str | None:
    indptr = arrays.arrays.get(inside(rows, "indptr"))
    main = indptr or arrays.arrays[rows]
    main.check()
    n_rows = main.shape[0] - 1 if indptr else main.shape[0]
    matrices = set[str]()  # that may be rows x labels
    if options.multilabel != "off":
        pointers = {name: arrays.arrays[inside(name, "indptr")] for name in arrays.sparse - {rows}}
        matrices = {name for name, one in pointers.items() if one.shape == (n_rows + 1,)}
    if is_anndata:
        fitting = _find_columns(arrays)
    else:
        fitting = _find_arrays(arrays, n_rows, {rows} | matrices)
    wanted = options.y_path
    if wanted is not None:
        known = arrays.arrays.keys() | arrays.categorical | arrays.masked_columns | matrices
        if wanted.strip("/") in known:
            return wanted.strip("/")
        what = f"it has no dataset '{clean(wanted)}': --y-path"
        raise UsageError(what, path=arrays.path, hint=f"It has: {list_names(fitting)}.")
    for name in LABEL_MATRICES:
        one = arrays.arrays.get(name)
        if name in matrices or (one and name != rows and one.shape[:1] == (n_rows,)):
            fitting.add(name)
    return _choose(arrays, fitting, ("y", "labels"), "labels", "--y-path") if fitting else None


def _find_rows(arrays: NamedArrays, options: SourceOptions) -> str:
    sparse = arrays.sparse
    cells = {
        name: count_cells(array.shape) for name, array in arrays.arrays.items()
        if len(array.shape) > 1 and array.dtype.kind in "biuf"
    }  # fmt: skip
    matrices = cells.keys() | sparse
    if options.x_path is not None:
        name = options.x_path.strip("/")
        if name in matrices:
            return name
        _check_array(arrays, name)
        what = f"it has no matrix '{clean(options.x_path)}': --x-path"
        raise UsageError(what, path=arrays.path, hint=f"It has: {list_names(matrices)}.")
    wide = {name for name, n_cells in cells.items() if n_cells > 1}
    wide = {name for name in wide if len(arrays.arrays[name].shape) == 2} | sparse or wide
    wide = wide.difference(LABEL_MATRICES) or wide
    if not matrices:
        _check_array(arrays, "X")
    return _choose(arrays, wide or set(cells), ("X", "x"), "rows", "--x-path")


def _check_array(arrays: NamedArrays, name: str) -> None:
    """Raise DataError if there is an array of this name that cannot be read."""
    if name in arrays.arrays:
        arrays.arrays[name].check()


def _find_names(arrays: NamedArrays, rows: str) -> str | None:
    """Return where AnnData has the names of the columns, or None."""
    top = rows.split("/", maxsplit=1)[0]
    if top not in ("X", "layers", "raw"):
        return None
    frame = "raw/var" if top == "raw" else "var"
    name = arrays.text(frame, "_index") or "_index"
    if "/" in name:
        raise DataError("the index of var has no usable name", path=arrays.path)
    index = f"{frame}/{name}"
    return index if index in arrays.arrays.keys() | arrays.masked_columns else None


def _find_arrays(arrays: NamedArrays, n_rows: int, matrices: set[str]) -> set[str]:
    """Return what may be labels of so many rows, where no table says what its columns are."""
    others = matrices | {inside(name, part) for name in matrices for part in PARTS}
    groups = {g for g in arrays.categorical if arrays.arrays[f"{g}/codes"].shape == (n_rows,)}
    others |= {inside(group, "codes") for group in groups}
    shapes = (n_rows,), (n_rows, 1)
    fitting = {
        name for name, array in arrays.arrays.items()
        if array.shape in shapes and array.dtype.kind in "biufSUO"
    }  # fmt: skip
    return fitting - others | groups


def _find_columns(arrays: NamedArrays) -> set[str]:
    """Return columns of obs that may be labels: groups of rows before all else."""
    columns = {"/".join(n.split("/")[:2]) for n in arrays.arrays if n.startswith("obs/")}
    plain = {n for n in columns & arrays.arrays.keys() if arrays.arrays[n].dtype.kind in "iuSUO"}
    index = f"obs/{arrays.text('obs', '_index') or '_index'}"
    return columns & arrays.categorical or (plain | columns & arrays.masked_columns) - {index}


def _choose(
    arrays: NamedArrays, names: set[str], usual: tuple[str, ...], what: str, option: str
) -> str:
    preferred = [name for name in usual if name in names]
    if len(names) == 1 or len(preferred) == 1:
        return preferred[0] if preferred else next(iter(names))
    if not names:
        raise DataError(f"it has no dataset that can hold the {what}", path=arrays.path)
    hint = f"Name one with {option}."
    raise UsageError(f"the {what} may be {list_names(names)}", path=arrays.path, hint=hint)


def list_names(names: set[str]) -> str:
    """Return a few names as they may stand in a line."""
    return ", ".join(clean(name or "/", 60) for name in sorted(names)[:8]) or "none"
