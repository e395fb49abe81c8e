"""AnnData in folders of Zarr: the rows that were written, any codec, and what is refused."""

import shutil
import warnings
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from numcodecs import Blosc, GZip, Zlib, Zstd
from zarr.codecs import BloscCodec, Crc32cCodec, GzipCodec, ShardingCodec, TransposeCodec, ZstdCodec

from streammach.conversion.convert import convert
from streammach.inputs.matrices.zarr_folders import open_zarr
from streammach.prediction.inputs import InputCounts, Room, rows_of
from streammach.store.dataset import Dataset
from streammach.system.errors import DataError, UsageError
from tests.inputs.test_matrix_sources import LABELS, X, stored, wanted

NAMES = ["TP53", "a^b", "ä", "7"]
CELLS = ["T cell", "B", "T cell", "", "ä"]  # "" stands for a missing one
PLAIN = {"array.write_empty_chunks": True}


def put(group, name, values, **options):
    values = np.asarray(values)
    if values.dtype.kind in "UO":
        values = values.astype(object)
        options.setdefault("dtype", str)
    array = group.create_array(
        name, shape=values.shape, dtype=options.pop("dtype", values.dtype), **options
    )
    array[...] = values
    return array


def opened(folder):
    return open_zarr(folder).arrays[""]


def categorical(group, name, values):
    """A column as anndata writes groups: -1 stands for a missing value."""
    kinds = sorted({v for v in values if v != ""})
    column = group.create_group(name)
    column.attrs.update({"encoding-type": "categorical", "encoding-version": "0.2.0"})
    put(column, "codes", np.array([kinds.index(v) if v != "" else -1 for v in values], np.int8))
    put(column, "categories", kinds)


def made(path, x=X, form=3, labels=LABELS, names=NAMES, **options):
    """An AnnData folder with a matrix of this form, written by zarr-python."""
    with zarr.config.set(PLAIN), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        root = zarr.create_group(path, zarr_format=form)
        root.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
        if sp.issparse(x):
            group = root.create_group("X")
            group.attrs.update({"encoding-type": f"{x.format}_matrix", "shape": list(x.shape)})
            for part in ("data", "indices", "indptr"):
                put(group, part, getattr(x, part), **options)
        else:
            put(root, "X", x, **options)
        obs, var = root.create_group("obs"), root.create_group("var")
        obs.attrs.update({"encoding-type": "dataframe", "_index": "_index"})
        obs.attrs["column-order"] = ["y"]
        var.attrs.update({"encoding-type": "dataframe", "_index": "gene", "column-order": []})
        put(var, "gene", names)
        if labels is not None and isinstance(labels[0], str):
            categorical(obs, "y", labels)
        elif labels is not None:
            put(obs, "y", labels)
    return path


def named(x, labels, names=NAMES):
    """Rows of a matrix whose columns have names: a name that holds '^' stands with one before."""
    spelled = [f"^{n}" if "^" in n else n for n in names]
    return sorted(
        (label, sorted((spelled[int(c)], v) for c, v in row)) for label, row in wanted(x, labels)
    )


@pytest.mark.parametrize("form", ["zarr 2", "zarr 3", "h5ad"])
def test_what_anndata_writes_is_read(form, tmp_path):
    ad, pd = pytest.importorskip("anndata"), pytest.importorskip("pandas")
    path = tmp_path / f"a.{form[:4]}"
    cells = pd.Categorical([c or None for c in CELLS])
    obs = pd.DataFrame({"cell": cells, "n": LABELS}, index=[f"c{i}" for i in range(5)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = ad.AnnData(sp.csr_matrix(X), obs=obs, var=pd.DataFrame(index=NAMES))
        data.layers["twice"] = 2 * X
        if form == "h5ad":
            data.write_h5ad(path)
        else:
            with ad.settings.override(zarr_write_format=int(form[-1])):
                data.write_zarr(path)
    done = convert(path, tmp_path / "o", on_bad_row="skip")
    assert done.skipped == {"the row has no label": 1}
    assert done.formats == ("hdf5" if form == "h5ad" else "anndata",)
    note = f"{path.name}: rows from X, labels from obs/cell, names from var/_index"
    assert done.notes == (note,)
    there = [i for i, c in enumerate(CELLS) if c]
    assert stored(tmp_path / "o") == named(X[there], [CELLS[i] for i in there])
    convert(path, tmp_path / "p", x_path="layers/twice", y_path="obs/n")
    assert stored(tmp_path / "p") == named(2 * X, LABELS)


def masked(group, name, values):
    """Strings as pandas 3 has them: values, and a mask of what is missing."""
    column = group.create_group(name)
    column.attrs.update({"encoding-type": "nullable-string-array", "encoding-version": "0.1.0"})
    texts, missing = [v or "" for v in values], np.array([v is None for v in values])
    if isinstance(group, h5py.Group):
        column["values"], column["mask"] = texts, missing
        return
    put(column, "values", texts)
    put(column, "mask", missing)


def tables(path, labels):
    """Write strings with masks as labels and names; in Zarr a mask of zeros alone has no chunks."""
    if path.suffix == ".h5ad":
        with h5py.File(path, "w") as file:
            file.attrs["encoding-type"] = "anndata"
            file["X"] = X
            masked(file.create_group("obs"), "y", labels)
            masked(file.create_group("var"), "gene", NAMES)
            file["var"].attrs["_index"] = "gene"
        return
    made(path, labels=None)
    shutil.rmtree(path / "var/gene")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        root = zarr.open_group(path, mode="a")
        masked(root["obs"], "y", labels)
        masked(root["var"], "gene", NAMES)


@pytest.mark.parametrize("form", ["zarr", "h5ad"])
def test_strings_with_a_mask_are_labels_and_names(form, tmp_path):
    labels = ["a", None, "b", "a", "b"]
    tables(tmp_path / f"a.{form}", labels)
    done = convert(tmp_path / f"a.{form}", tmp_path / "o", on_bad_row="skip")
    assert done.skipped == {"the row has no label": 1}
    assert done.notes == (f"a.{form}: rows from X, labels from obs/y, names from var/gene",)
    there = [i for i, label in enumerate(labels) if label]
    assert stored(tmp_path / "o") == named(X[there], [labels[i] for i in there])


def test_a_name_that_is_missing_is_refused(tmp_path):
    with h5py.File(tmp_path / "a.h5ad", "w") as file:
        file.attrs["encoding-type"] = "anndata"
        file["X"] = X
        file["obs/y"] = LABELS
        masked(file.create_group("var"), "_index", [None, *NAMES[1:]])
    with pytest.raises(DataError, match=r"var/_index: name 0 .* has 0 bytes"):
        convert(tmp_path / "a.h5ad", tmp_path / "o")


def test_codes_in_hdf5_are_never_labels_by_themselves(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["X"] = X
        file["cell/codes"] = np.array([0, 1, -1, 1, 0], np.int8)
        file["cell/categories"] = ["a", "b"]
    done = convert(tmp_path / "a.h5", tmp_path / "o", on_bad_row="skip")
    assert (done.notes, done.n_rows) == (("a.h5: rows from X, labels from cell",), 4)
    assert [label for label, _ in stored(tmp_path / "o")] == ["a", "a", "b", "b"]
    with h5py.File(tmp_path / "a.h5", "a") as file:
        file["cell/codes"][0] = 2
    with pytest.raises(DataError, match=r"cell/codes holds 2 .int8., there are 2 categories"):
        convert(tmp_path / "a.h5", tmp_path / "p")


@pytest.mark.parametrize("kind", ["sparse", "dense"])
@pytest.mark.parametrize("form", [2, 3])
def test_many_chunks_and_pieces(form, kind, tmp_path, monkeypatch):
    monkeypatch.setattr("streammach.inputs.matrices.matrix.PIECE_VALUES", 3)
    x, chunks = (sp.csr_array(X), (2,)) if kind == "sparse" else (X, (2, 3))
    convert(made(tmp_path / "a", x, form, chunks=chunks), tmp_path / "o")
    assert stored(tmp_path / "o") == named(X, LABELS)


def test_names_are_those_of_text_and_found_again(tmp_path):
    convert(made(tmp_path / "a", sp.csr_array(X)), tmp_path / "o")
    (tmp_path / "r.vw").write_text("3 | TP53:1 |TP53 b |a b |  7 a^b\n", encoding="utf-8")
    done = convert(tmp_path / "r.vw", tmp_path / "p", like=tmp_path / "o")
    assert (done.n_features, done.nnz, done.unknown_values) == (3, 3, 2)
    with pytest.warns(UserWarning, match=r"columns TP53, .a.b not there, which counts as 0"):
        back = convert(made(tmp_path / "b", X[:, [3, 0]], names=["7", "no"]), tmp_path / "q",
                       like=tmp_path / "p")  # fmt: skip
    assert back.unknown_values == np.count_nonzero(X[:, 0])


def test_equal_names_are_one_feature_and_counted(tmp_path):
    done = convert(made(tmp_path / "a", X, names=["a", "b", "a", "b"]), tmp_path / "o")
    assert (done.n_features, done.duplicates) == (2, 2)
    assert ("3", [("b", -0.5)]) in stored(tmp_path / "o")


CHAINS_3 = [
    {"compressors": None},
    {"compressors": ZstdCodec(level=1)},
    {"compressors": ZstdCodec(level=1, checksum=True)},
    {"compressors": GzipCodec(level=1)},
    {"compressors": BloscCodec(cname="zstd", shuffle="bitshuffle")},
    {"compressors": [BloscCodec(cname="lz4"), Crc32cCodec()]},
    {"filters": TransposeCodec(order=(1, 0))},
    {"chunk_key_encoding": {"name": "v2", "separator": "/"}},
    {"chunk_key_encoding": {"name": "default", "separator": "."}},
    {"shards": (12, 6)},
    {"shards": (12, 12), "filters": TransposeCodec(order=(1, 0)), "compressors": Crc32cCodec()},
]


@pytest.mark.parametrize("i", range(len(CHAINS_3)))
def test_every_codec_of_format_3_agrees_with_zarr(i, tmp_path, rng):
    options, dtype = CHAINS_3[i], ("f4", ">f8", "i2", "u1", "?")[i % 5]
    values = rng.integers(0, 200, (25, 11)).astype(dtype)
    group = zarr.create_group(tmp_path / "a")
    with zarr.config.set(PLAIN), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        put(group, "x", values, chunks=(4, 3), **options)
    array = opened(tmp_path / "a" / "x")
    for start, stop in ((0, 25), (3, 13), (24, 25), (5, 5)):
        found = array.read(start, stop)
        assert np.array_equal(found, values[start:stop])
        assert np.array_equal(found, group["x"][start:stop])


@pytest.mark.parametrize("place", ["start", "end"])
def test_the_table_of_a_shard_may_stand_first(place, tmp_path):
    codec = ShardingCodec(chunk_shape=(3,), index_location=place)
    array = zarr.create_array(
        tmp_path / "a", shape=(20,), chunks=(12,), dtype="i4", serializer=codec, compressors=None
    )
    array[:] = np.arange(1, 21)
    found = opened(tmp_path / "a").read(2, 20)
    assert found.tolist() == list(range(3, 21))


@pytest.mark.parametrize("packer", [None, Blosc("zstd"), Zstd(1), GZip(1), Zlib(1)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_every_codec_of_format_2_agrees_with_zarr(packer, order, tmp_path, rng):
    values = rng.integers(1, 200, (25, 11)).astype("<i4")
    group = zarr.create_group(tmp_path / "a", zarr_format=2)
    put(group, "x", values, chunks=(4, 3), compressors=packer, order=order)
    array = opened(tmp_path / "a" / "x")
    assert np.array_equal(array.read(3, 25), values[3:25])


@pytest.mark.parametrize("form", [2, 3])
def test_strings_of_any_length(form, tmp_path):
    group = zarr.create_group(tmp_path / "a", zarr_format=form)
    names = [f"{'ä' * (i % 5)}{i}" for i in range(30)]
    put(group, "x", names, chunks=(7,), **({"shards": (21,)} if form == 3 else {}))
    array = opened(tmp_path / "a" / "x")
    assert array.read(5, 30).tolist() == names[5:]


def test_a_folder_that_is_a_matrix_takes_labels_from_a_file(tmp_path):
    made(tmp_path / "a", sp.csr_array(X))
    np.save(tmp_path / "l.npy", LABELS)
    convert(tmp_path / "a" / "X", tmp_path / "o", labels=tmp_path / "l.npy")
    assert stored(tmp_path / "o") == wanted(X, LABELS)
    made(tmp_path / "b", X)
    convert(tmp_path / "b" / "X", tmp_path / "p", labels=tmp_path / "l.npy")
    assert stored(tmp_path / "p") == wanted(X, LABELS)


def test_labels_are_guessed_only_where_one_column_can_be_meant(tmp_path):
    path = made(tmp_path / "a", X, labels=None)
    root = zarr.open_group(path)
    with zarr.config.set(PLAIN):
        categorical(root["obs"], "cell", CELLS)
        put(root["obs"], "total", LABELS)
        put(root["obs"], "share", np.linspace(0, 1, 5))
    assert "obs/cell" in convert(path, tmp_path / "o", on_bad_row="skip").notes[0]
    with zarr.config.set(PLAIN):
        categorical(root["obs"], "batch", CELLS)
    with pytest.raises(UsageError, match=r"labels may be obs/batch, obs/cell.*y_path"):
        convert(path, tmp_path / "p")
    with pytest.raises(UsageError, match=r"no dataset 'obs/z': y_path.*It has: obs/batch, obs/cel"):
        convert(path, tmp_path / "p", y_path="obs/z")
    with pytest.raises(DataError, match=r"row 0 .*label '0.25' is not a whole number|row 1"):
        convert(path, tmp_path / "p", y_path="obs/share")


def test_columns_of_whole_numbers_and_missing_values(tmp_path):
    path = made(tmp_path / "a", X, labels=None)
    root = zarr.open_group(path)
    column = root["obs"].create_group("n")
    column.attrs["encoding-type"] = "nullable-integer"
    put(column, "values", LABELS)
    put(column, "mask", np.array([False, True, False, False, False]))
    root["obs"].attrs["column-order"] = ["n"]
    done = convert(path, tmp_path / "o", on_bad_row="skip")
    assert done.skipped == {"the row has no label": 1}
    there = [0, 2, 3, 4]
    assert stored(tmp_path / "o") == named(X[there], LABELS[there])


def test_the_rows_of_a_folder_are_predicted(tmp_path):
    path = made(tmp_path / "a", sp.csr_array(X))
    convert(path, tmp_path / "o")
    with Dataset.open(tmp_path / "o") as data:
        assert data.verify() == []
        model = SimpleNamespace(labels=data.labels, features=data.features, store="other",
                                columns=data.columns, listed=False, recipe=None,
                                says=None)  # fmt: skip
        for source in (path, tmp_path / "o"):
            seen, room = InputCounts(), Room(rows=2, values=3, sorted_bytes=0, lines=())
            rows = [block.nnz for block in rows_of(source, model, seen, room)]
            assert (sum(rows), seen.rows, seen.unknown_values) == (7, 5, 0)
