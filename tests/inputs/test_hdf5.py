"""HDF5 files: rows of dense and sparse matrices, and what strangers may put into such a file."""

import h5py
import numpy as np
import pytest
import scipy.sparse as sp

from streammach.conversion.convert import convert
from streammach.system.errors import DataError, UsageError
from tests.inputs.test_matrix_sources import LABELS, X, check, stored, wanted


def made(path, **content):
    with h5py.File(path, "w") as file:
        for name, value in content.items():
            if sp.issparse(value):
                group = file.create_group(name)
                for part in ("data", "indices", "indptr"):
                    group[part] = getattr(value, part)
                group.attrs["shape"] = value.shape
                group.attrs["encoding-type"] = f"{value.format}_matrix"
            else:
                file[name] = value
    return path


def test_dense_rows_are_guessed_and_said(tmp_path):
    names = np.array([b"n%d" % i for i in range(13)])
    done = check(tmp_path, made(tmp_path / "a.h5", X=X, y=LABELS, names=names))
    assert done.formats == ("hdf5",)
    assert done.notes == ("a.h5: rows from X, labels from y",)


@pytest.mark.parametrize("chunks", [(1, 2), (2, 4), (5, 1)])
def test_chunks_and_filters(chunks, tmp_path, monkeypatch):
    monkeypatch.setattr("streammach.inputs.matrices.matrix.PIECE_VALUES", 9)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("X", data=X, chunks=chunks, compression="gzip", shuffle=True)
        file.create_dataset("y", data=LABELS.reshape(-1, 1))
    check(tmp_path, tmp_path / "a.h5")


def test_sparse_rows(tmp_path, monkeypatch):
    check(tmp_path, made(tmp_path / "a.h5", m=sp.csr_array(X), label=LABELS))
    monkeypatch.setattr("streammach.inputs.matrices.matrix.PIECE_VALUES", 2)
    check(tmp_path, tmp_path / "a.h5")


@pytest.mark.parametrize("n_axes", [3, 4])
def test_images_are_rows_of_their_cells(tmp_path, n_axes):
    images = X.reshape(len(X), 2, *[1] * (n_axes - 3), 2)
    done = check(tmp_path, made(tmp_path / "a.h5", images=images, y=LABELS))
    assert done.notes == ("a.h5: rows from images, labels from y",)
    done = check(tmp_path, made(tmp_path / "b.h5", images=2 * images, m=X, y=LABELS))
    assert done.notes == ("b.h5: rows from m, labels from y",)


def test_paths_and_labels_of_strings(tmp_path):
    names = np.array(["ä", "b", "ä", "c", "b"], object)
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["in/deep"], file["other"] = X, 2 * X
        file["in/who"], file["in/how"] = names, LABELS
    with pytest.raises(UsageError, match=r"rows may be in/deep, other.*x_path"):
        convert(path, tmp_path / "o")
    with pytest.raises(UsageError, match=r"labels may be in/how, in/who.*y_path"):
        convert(path, tmp_path / "o", x_path="/in/deep")
    with pytest.raises(UsageError, match=r"no matrix 'z'.*It has: in/deep, other"):
        convert(path, tmp_path / "o", x_path="z")
    with pytest.raises(UsageError, match="no dataset 'z'"):
        convert(path, tmp_path / "o", x_path="other", y_path="z")
    convert(path, tmp_path / "o", x_path="in/deep", y_path="in/who")
    assert stored(tmp_path / "o") == wanted(X, names)


def external(folder):
    made(folder / "b.h5", X=X, y=LABELS)
    with h5py.File(folder / "a.h5", "w") as file:
        file["X"], file["y"] = h5py.ExternalLink("b.h5", "X"), LABELS


def virtual(folder):
    made(folder / "b.h5", X=X)
    layout = h5py.VirtualLayout(X.shape, X.dtype)
    layout[:] = h5py.VirtualSource(str(folder / "b.h5"), "X", X.shape)
    with h5py.File(folder / "a.h5", "w") as file:
        file.create_virtual_dataset("X", layout)
        file["y"] = LABELS


def raw_file(folder):
    (folder / "secret").write_bytes(X.tobytes())
    with h5py.File(folder / "a.h5", "w") as file:
        file.create_dataset("X", X.shape, X.dtype, external=[(str(folder / "secret"), 0, X.nbytes)])
        file["y"] = LABELS


def cut(share):
    def make(folder):
        path = made(folder / "a.h5", X=np.tile(X, (5, 1)), y=np.tile(LABELS, 5))
        path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])

    return make


def references(folder):
    with h5py.File(folder / "a.h5", "w") as file:
        file["X"] = X
        file.create_dataset("y", (5,), h5py.ref_dtype)


REFUSED = {  # what the arrays hold is looked at for all trees: test_matrix_sources
    "link": (external, "no dataset that can hold the rows"),
    "virtual": (virtual, "X is stored in other files"),
    "external": (raw_file, "X is stored in other files"),
    "cut": (cut(0.7), "damaged or cut short"),
    "cut early": (cut(0.01), "damaged or cut short"),
    "no labels": (lambda f: made(f / "a.h5", X=X), "the rows have no labels"),
    "references": (references, "y has the type object"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_bad_files_are_refused_and_nothing_is_made(name, tmp_path):
    make, message = REFUSED[name]
    make(tmp_path)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(DataError, match=message) as caught:
        convert(tmp_path / "a.h5", tmp_path / "out.zarr")
    assert "a.h5" in str(caught.value)
    assert sorted(tmp_path.iterdir()) == before


FILLS = {  # attributes, the value that stands for a missing one, and the types of arrays
    "of netCDF": ("_FillValue", -9999, ("i2", "i4", "f4", "f8")),
    "rounded": ("missing_value", -9999.9, ("f4", "f8")),
    "no number": ("_FillValue", np.nan, ("f4", "f8")),
    "several": ("missing_value", [-9999, -1], ("i4", "f8")),
    "large": ("_FillValue", 9.96921e36, ("f4",)),
}  # fmt: skip


@pytest.mark.parametrize("name", FILLS)
@pytest.mark.parametrize("place", ["X", "y"])
def test_values_that_stand_for_missing_ones(name, place, tmp_path):
    attribute, fill, types = FILLS[name]
    for kind in types:
        x, labels = np.abs(X).astype(kind), LABELS.astype(kind)
        (x if place == "X" else labels[:, None])[1, 0] = np.ravel(fill)[0]
        with h5py.File(tmp_path / "a.h5", "w") as file:
            file["X"], file["y"] = x, labels
            file[place].attrs[attribute] = np.asarray(fill, "f8" if name == "rounded" else kind)
        x[1, 0] = 0 if place == "X" else x[1, 0]
        if place == "X":
            check(tmp_path, tmp_path / "a.h5", x=x)
            continue
        with pytest.raises(DataError, match=r"row 1 .*: the row has no label"):
            convert(tmp_path / "a.h5", tmp_path / "o")
        convert(tmp_path / "a.h5", tmp_path / "out.zarr", on_bad_row="skip", force=True)
        kept = [0, 2, 3, 4]
        assert stored(tmp_path / "out.zarr") == wanted(x[kept], LABELS[kept])


def test_texts_that_stand_for_missing_labels(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["X"], file["y"] = X, np.array(["a", "NA", "b", "c", "NA"], object)
        file["y"].attrs["_FillValue"] = "NA"
    done = convert(tmp_path / "a.h5", tmp_path / "out.zarr", on_bad_row="skip")
    assert (done.n_rows, done.n_classes, done.skipped) == (3, 3, {"the row has no label": 2})
