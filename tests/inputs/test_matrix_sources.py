"""Matrices in files of NumPy and SciPy: the same rows as in text, or one clear line."""

import io
import re
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from streammach.cli.main import main
from streammach.conversion.convert import convert
from streammach.system.errors import DataError, UsageError
from tests.builders import rows_by_name

PROFILE = settings(
    max_examples=6, phases=[Phase.generate], derandomize=True, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
LABELS = np.array([3, 1, 3, 12, 7])
X = np.array(
    [[0, 1.5, 0, -2], [3, 0, 0, 0], [0, 0, 0, 0], [1, 2, 0, 4e-3], [0, 0, 0, 255]], np.float32
)


def stored(path):
    rows = rows_by_name(path)
    return sorted((str(y), sorted((f.decode(), v) for f, v in values)) for y, _, values in rows)


def wanted(x, labels):
    """The same from a scipy or NumPy matrix."""
    x = sp.csr_array(x.toarray() if sp.issparse(x) else np.asarray(x, np.float32))  # without zeros
    rows = []
    for i, label in enumerate(labels):
        row = slice(x.indptr[i], x.indptr[i + 1])
        pairs = zip(x.indices[row].tolist(), x.data[row].tolist(), strict=True)
        rows.append((str(label), sorted((str(c), float(np.float32(v))) for c, v in pairs)))
    return sorted(rows)


def save_npz(path, x, **more):
    """A CSR matrix as scipy saves it, with more arrays beside it."""
    x = sp.csr_array(x)
    parts = {"data": x.data, "indices": x.indices, "indptr": x.indptr, "shape": np.array(x.shape)}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, value in {"format": b"csr", **parts, **more}.items():
            with archive.open(f"{name}.npy", "w") as file:
                np.lib.format.write_array(file, np.asanyarray(value), allow_pickle=True)
    return path


def check(folder, *sources, x=X, labels=LABELS, **options):
    """Convert and compare with the matrix; return what the conversion said."""
    done = convert(list(sources), folder / "out.zarr", force=True, **options)
    assert stored(folder / "out.zarr") == wanted(x, labels)
    return done


@pytest.mark.parametrize("name", ["labels", "y"])
def test_npz_with_labels_inside(name, tmp_path):
    done = check(tmp_path, save_npz(tmp_path / "a.npz", X, **{name: LABELS}))
    assert done.formats == ("npz",)
    assert done.notes == (f"a.npz: labels from {name}",)


def test_npz_of_scipy_itself_with_labels_beside_it(tmp_path):
    sp.save_npz(tmp_path / "a.npz", sp.csr_matrix(X))
    np.save(tmp_path / "l.npy", LABELS)
    convert(tmp_path / "a.npz", tmp_path / "o.zarr", labels=tmp_path / "l.npy")
    assert stored(tmp_path / "o.zarr") == wanted(X, LABELS)


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.int16, np.uint8, bool, ">f4"])
def test_values_of_any_number_type(dtype, tmp_path):
    x = np.abs(X).astype(dtype)
    np.save(tmp_path / "X.npy", x)
    np.save(tmp_path / "y.npy", LABELS)
    check(tmp_path, tmp_path / "X.npy", x=x)
    rows, columns = np.nonzero(x)
    indptr = np.searchsorted(rows, np.arange(len(x) + 1)).astype(np.uint32)
    parts = {"data": x[rows, columns], "indices": columns.astype("u2"), "indptr": indptr}
    check(tmp_path, save_npz(tmp_path / "a.npz", X, y=LABELS, **parts), x=x)


@pytest.mark.parametrize(
    ("x_name", "y_name"),
    [("X.npy", "y.npy"), ("X_train.npy", "y_train.npy"), ("t-x-1.npy", "t-labels-1.npy")],
)
def test_npy_pairs_are_found_by_name_and_said(x_name, y_name, tmp_path):
    np.save(tmp_path / x_name, X)
    np.save(tmp_path / y_name, LABELS)
    done = check(tmp_path, tmp_path / x_name)
    assert done.notes == (f"{x_name}: labels from {y_name}",)


@pytest.mark.parametrize("order", ["C", "F"])
def test_images_are_rows_of_their_cells(tmp_path, order):
    images = np.array(X.reshape(5, 2, 2), order=order)
    np.save(tmp_path / "X.npy", images)
    np.save(tmp_path / "y.npy", LABELS)
    check(tmp_path, tmp_path / "X.npy")
    np.savez(tmp_path / "a.npz", pictures=images, y=LABELS)
    check(tmp_path, tmp_path / "a.npz")


def test_columns_first_and_many_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr("streammach.inputs.matrices.matrix.PIECE_VALUES", 6)
    np.save(tmp_path / "X.npy", np.asfortranarray(X))
    np.save(tmp_path / "y.npy", LABELS.reshape(-1, 1))
    check(tmp_path, tmp_path / "X.npy")
    check(tmp_path, save_npz(tmp_path / "a.npz", X, y=LABELS))


@pytest.mark.parametrize("kind", ["U", "S", "float"])
def test_labels_of_any_type_keep_their_names(kind, tmp_path):
    names = np.array(["a b", "ä", "a b", "z", "ä"])
    labels = {"U": names, "S": np.char.encode(names, "utf-8"), "float": LABELS.astype(float)}[kind]
    done = convert(save_npz(tmp_path / "a.npz", X, y=labels), tmp_path / "out.zarr")
    assert done.n_classes == (4 if kind == "float" else 3)
    assert stored(tmp_path / "out.zarr") == wanted(X, LABELS if kind == "float" else names)


def test_labels_as_lines_of_text_and_many_sources(tmp_path):
    for part in ("a", "b"):
        np.save(tmp_path / f"{part}.npy", X)
        (tmp_path / f"{part}.txt").write_text("".join(f"{part}{y}\r\n" for y in LABELS))
    files = [tmp_path / "a.npy", tmp_path / "b.npy"]
    done = convert(files, tmp_path / "o.zarr", labels=[tmp_path / "a.txt", tmp_path / "b.txt"])
    both = [f"{part}{y}" for part in "ab" for y in LABELS]
    assert stored(tmp_path / "o.zarr") == wanted(np.vstack([X, X]), both)
    assert done.n_rows == 10
    with pytest.raises(UsageError, match="1 files of labels for 2 sources"):
        convert(files, tmp_path / "p.zarr", labels=tmp_path / "a.txt")


def test_svmlight_with_ids_from_0_gives_the_same_rows(tmp_path):
    lines = [
        f"{y} " + " ".join(f"{j}:{v!r}" for j, v in enumerate(row.tolist()) if v)
        for y, row in zip(LABELS, X, strict=True)
    ]
    (tmp_path / "r.svm").write_text("\n".join(lines))
    check(tmp_path, tmp_path / "r.svm", format="svmlight")
    check(tmp_path, save_npz(tmp_path / "a.npz", X, y=LABELS))


def test_test_rows_take_the_ids_of_the_training_store(tmp_path):
    known = X * (np.arange(X.shape[1]) < 2)  # the other columns have no value in training
    convert(save_npz(tmp_path / "a.npz", known, y=LABELS), tmp_path / "train.zarr")
    test = save_npz(tmp_path / "t.npz", X, y=LABELS + 2)
    done = convert(test, tmp_path / "test.zarr", like=tmp_path / "train.zarr")
    assert (done.unknown_values, done.unseen_label_rows) == (3, 4)
    assert stored(tmp_path / "test.zarr") == wanted(X[:, :2], LABELS + 2)


def test_columns_without_names_that_are_more_or_fewer_are_refused(tmp_path):
    convert(save_npz(tmp_path / "a.npz", X[:, :2], y=LABELS), tmp_path / "train.zarr")
    test = save_npz(tmp_path / "t.npz", X, y=LABELS)
    with pytest.raises(DataError, match=r"the matrix has 4 columns, 2 were trained on: .*t.npz"):
        convert(test, tmp_path / "test.zarr", like=tmp_path / "train.zarr")
    with pytest.raises(DataError, match=r"the matrix has 4 columns, the one before 2: .*t.npz"):
        convert([tmp_path / "a.npz", test], tmp_path / "both.zarr")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.npz", "t.npz", "train.zarr"]


@PROFILE
@given(
    rows=st.lists(
        st.tuples(
            st.text(min_size=1, max_size=9).filter(lambda t: "\0" not in t),
            st.dictionaries(st.integers(0, 300), st.floats(-1024, 1024, width=32), max_size=6),
        ),
        min_size=1, max_size=12,
    ).filter(lambda rows: any(any(r.values()) for _, r in rows)),
    piece=st.integers(1, 9),
)  # fmt: skip
def test_any_rows_survive(rows, piece, tmp_path):
    import streammach.inputs.matrices.matrix as matrix

    labels = np.array([label for label, _ in rows])
    indptr = np.cumsum([0] + [len(r) for _, r in rows])
    x = sp.csr_array(
        (
            np.array([v for _, r in rows for v in r.values()], np.float32),
            np.array([c for _, r in rows for c in r], np.int32),
            indptr,
        ),
        shape=(len(rows), 301),
    )
    before, matrix.PIECE_VALUES = matrix.PIECE_VALUES, piece
    try:
        check(tmp_path, save_npz(tmp_path / "a.npz", x, y=labels), x=x, labels=labels)
    finally:
        matrix.PIECE_VALUES = before


def npz_with(**changes):
    def make(folder):
        return save_npz(folder / "a.npz", X, **{"y": LABELS, **changes})

    return make


def cut(make, share):
    def cut_file(folder):
        path = make(folder)
        path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
        return path

    return cut_file


def npy_of(x, y=LABELS):
    def make(folder):
        np.save(folder / "X.npy", x, allow_pickle=True)
        np.save(folder / "y.npy", y, allow_pickle=True)
        return folder / "X.npy"

    return make


def header_that_promises(shape):
    def make(folder):
        out = io.BytesIO()
        np.lib.format.write_array_header_1_0(
            out, {"descr": "<f4", "fortran_order": False, "shape": shape}
        )
        (folder / "X.npy").write_bytes(out.getvalue() + bytes(64))
        np.save(folder / "y.npy", LABELS)
        return folder / "X.npy"

    return make


def flipped(folder):
    path = folder / "a.npz"
    np.savez(path, data=X[X != 0], indices=np.nonzero(X)[1], indptr=np.array([0, 2, 3, 3, 6, 7]),
             shape=np.array(X.shape), y=LABELS)  # fmt: skip
    raw = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo("data.npy")
    raw[info.header_offset + 200] ^= 1
    path.write_bytes(raw)
    return path


NAN = X.copy()
NAN[3, 1] = np.nan
HUGE = X.astype(np.float64)
HUGE[1, 0] = 1e300
REFUSED = {
    "nan": (npy_of(NAN), r"row 3 \(counted from 0\): value 'nan' is not a finite float32.*X.npy"),
    "too large": (npy_of(HUGE), "row 1 .*value 'inf' is not a finite float32"),
    "negative column": (npz_with(indices=np.array([-1, 3, 0, 0, 1, 3, 3])), "row 0 .*column '-1'"),
    "column too large": (npz_with(indices=np.array([1, 3, 0, 0, 1, 4, 3])), "row 3 .*column '4'"),
    "columns of floats": (npz_with(indices=np.ones(7)), "indices has the type float64, integers"),
    "complex": (npy_of(X.astype(complex)), "type complex64|type complex128"),
    "dates": (npy_of(X.astype("M8[s]")), "real numbers are expected"),
    "objects": (npy_of(X.astype(object)), "Python objects, which are pickles"),
    "label objects": (npy_of(X, LABELS.astype(object)), "Python objects, which are pickles"),
    "npz label objects": (npz_with(y=LABELS.astype(object)), "Python objects"),
    "too few labels": (npy_of(X, LABELS[:4]), "4 labels for 5 rows"),
    "negative labels": (npy_of(X, -np.eye(5)), "not a finite number of 0 or more"),
    "half a label": (npy_of(X, LABELS + 0.5), "row 0 .*label '3.5' is not a whole number"),
    "no label": (npy_of(X, np.array(["a", "", "b", "c", "d"])), "row 1 .*has no label"),
    "one dimension": (npy_of(X[0]), "rows x columns"),
    "values missing": (npz_with(data=np.ones(6)), "7 indices and 6 values"),
    "pointers end": (npz_with(indptr=np.array([0, 2, 3, 3, 6, 8])), "run from 0 to 8, 0 to 7"),
    "pointers fall": (npz_with(indptr=np.array([0, 2, 1, 3, 6, 7])), "fall after row 1"),
    "pointers short": (npz_with(indptr=np.array([0, 2, 3, 6, 7])), "5 row pointers for 5 rows"),
    "coo": (npz_with(format=b"coo"), "not in compressed sparse rows.*tocsr"),
    "csc": (npz_with(format=b"csc"), "6 row pointers for 4 rows"),
    "no text": (npz_with(format=b"\xff\xfe"), "not in compressed sparse rows"),
    "shape": (npz_with(shape=np.array([5, -4])), "-4 columns, 0 to"),
    "cut npz": (cut(npz_with(), 0.6), "damaged or cut short"),
    "cut npy": (cut(npy_of(X), 0.8), "bytes of data for 5 x 4"),
    "empty": (cut(npy_of(X), 0.0), "holds no rows"),
    "header alone": (cut(npy_of(X), 0.05), "damaged or cut short"),
    "bit flipped": (flipped, "damaged or cut short.*CRC"),
    "bomb": (header_that_promises((2**40, 2**20)), "bytes of data for"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_files_are_refused_in_one_line_and_nothing_is_made(name, tmp_path, capsys):
    make, message = REFUSED[name]
    source = make(tmp_path)
    before = sorted(tmp_path.iterdir())
    assert main(["convert", str(source), str(tmp_path / "out.zarr")]) == DataError.exit_code
    said = capsys.readouterr().err
    assert re.search(message, said), said
    assert str(source.name)[-4:] in said
    assert [s for s in said.splitlines() if s.startswith("streammach")] == said.splitlines()[-1:]
    assert sorted(tmp_path.iterdir()) == before


def test_bad_rows_are_skipped_and_counted(tmp_path):
    x = np.vstack([NAN, X[:1]])
    labels = np.array(["a", "", "b", "c", "d", "e"])
    done = convert(save_npz(tmp_path / "a.npz", x, y=labels), tmp_path / "o", on_bad_row="skip")
    assert done.skipped == {"value ... is not a finite float32": 1, "the row has no label": 1}
    keep = [0, 2, 4, 5]
    assert stored(tmp_path / "o") == wanted(x[keep], labels[keep])


def test_labels_that_cannot_be_guessed_are_asked_for(tmp_path):
    np.save(tmp_path / "data.npy", X)
    with pytest.raises(DataError, match=r"no labels.*labels"):
        convert(tmp_path / "data.npy", tmp_path / "o")
    for name in ("X", "y", "Y"):
        np.save(tmp_path / f"{name}.npy", X if name == "X" else LABELS)
    with pytest.raises(UsageError, match=r"y.npy or Y.npy.*labels"):
        convert(tmp_path / "X.npy", tmp_path / "o")
    both = save_npz(tmp_path / "a.npz", X, y=LABELS, labels=LABELS[::-1])
    with pytest.raises(UsageError, match=r"labels, y.*y_path"):
        convert(both, tmp_path / "o")
    check(tmp_path, both, y_path="y")
    with pytest.raises(UsageError, match="no dataset 'z'"):
        convert(both, tmp_path / "o", y_path="z")


def test_options_of_matrices_are_refused_for_text(tiny):
    source = tiny.text("r.vw", ["a |w x"])
    with pytest.raises(UsageError, match="hold their labels: y_path"):
        convert(source, tiny.folder / "o", y_path="y")


def test_the_content_decides_not_the_name_and_the_guess_can_be_overruled(tmp_path, capsys):
    source = save_npz(tmp_path / "rows.npz", X, y=LABELS).rename(tmp_path / "rows.vw")
    assert main(["convert", str(source), str(tmp_path / "o")]) == 0
    assert "(npz)\nrows.vw: labels from y" in capsys.readouterr().out
    assert main(["convert", str(source), str(tmp_path / "p"), "--format", "npy"]) == 3
