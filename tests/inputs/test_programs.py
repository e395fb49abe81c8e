"""Rows that a program makes, by libraries that make them: the store of a file, byte by byte."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse as sp

import streammach as sm
from streammach.system.errors import StreammachError

dataset = pytest.importorskip("pyarrow.dataset")
pl, anndata = pytest.importorskip("polars"), pytest.importorskip("anndata")

N = 300
RNG = np.random.default_rng(0)
X = (RNG.random((N, 6)) * (RNG.random((N, 6)) > 0.4)).astype(np.float32)
Y = np.arange(N) % 5
FRAME = pd.DataFrame({
    "text": [f"w{i % 7} v{i % 11} z{i}" for i in range(N)], "number": RNG.random(N).round(3),
    "label": [f"class {i}" for i in Y],
})  # fmt: skip
STARTS = range(0, N, 70)


def arrow():
    return pa.Table.from_pandas(FRAME, preserve_index=False)


def on_disk(folder):
    path = folder / "rows.parquet"
    arrow().to_pandas().to_parquet(path)
    return path


def hugging_face():
    datasets = pytest.importorskip("datasets")
    return datasets.Dataset(arrow())


def duckdb():
    return pytest.importorskip("duckdb").from_arrow(arrow())


def torch():
    return pytest.importorskip("torch")


def loader(rows, **options):
    data = torch().utils.data
    return data.DataLoader(rows, batch_size=64, **options)


def tensors(change=lambda x: x):
    x, y = change(torch().from_numpy(X)), torch().from_numpy(Y)
    return ((x[i : i + 70], y[i : i + 70]) for i in STARTS)


def sparse_tensors(kind):
    dense = torch().from_numpy(X)
    return ((getattr(dense[i : i + 70], kind)(), Y[i : i + 70]) for i in STARTS)


def rows_as_dicts():
    return FRAME.to_dict("records")


# Rows with the columns of the frame, by the library that has them.
TABLES = {
    "a generator of dicts": lambda: (row for row in rows_as_dicts()),
    "lists of dicts": lambda: (rows_as_dicts()[i : i + 70] for i in STARTS),
    "pandas": lambda: (FRAME[i : i + 70] for i in STARTS),
    "polars": lambda: pl.from_pandas(FRAME).iter_slices(70),
    "polars, lazy": lambda: pl.from_pandas(FRAME).lazy(),
    "polars, batches": lambda: pl.from_pandas(FRAME).lazy().collect_batches(chunk_size=50),
    "Arrow, batches": lambda: iter(arrow().to_batches(max_chunksize=33)),
    "Arrow, a reader": lambda: arrow().to_reader(max_chunksize=33),
    "Arrow, a data set": lambda: dataset.dataset(arrow()),
    "Arrow, a scanner": lambda: dataset.dataset(arrow()).scanner(batch_size=40),
    "DuckDB": duckdb,
    "DuckDB, a reader": lambda: duckdb().to_arrow_reader(50),
    "Hugging Face": hugging_face,
    "Hugging Face, chosen rows": lambda: hugging_face().select(range(N)),
    "Hugging Face, in pandas": lambda: hugging_face().with_format("pandas"),
    "Hugging Face, in PyTorch": lambda: torch() and hugging_face().with_format("torch"),
    "Hugging Face, changed": lambda: hugging_face().with_transform(lambda rows: rows),
    "Hugging Face, by rows": lambda: iter(hugging_face()),
    "Hugging Face, streamed": lambda: hugging_face().to_iterable_dataset(num_shards=3),
    "PyTorch, dicts": lambda: loader(hugging_face()),
}
# Rows of numbers with labels, as the arrays X and Y.
PAIRS = {
    "dense": lambda: ((X[i : i + 70], Y[i : i + 70]) for i in STARTS),
    "sparse": lambda: ((sp.csc_array(X[i : i + 70]), Y[i : i + 70]) for i in STARTS),
    "PyTorch": lambda: loader(torch().utils.data.TensorDataset(*map(torch().from_numpy, (X, Y)))),
    "PyTorch, tensors": tensors,
    "PyTorch, with gradients": lambda: tensors(lambda x: x.clone().requires_grad_()),
    "PyTorch, CSR": lambda: sparse_tensors("to_sparse_csr"),
    "PyTorch, COO": lambda: sparse_tensors("to_sparse"),
}


def files_of(rows, folder, **options):
    """The bytes of every file of the store of rows, by name; without what is said of the source.

    The first file says which file or object, and which path in it, the rows were; and has a check.
    """
    sm.convert(rows, folder / "store", force=True, threads=2, **options)
    files = [path for path in (folder / "store").rglob("*") if path.is_file()]
    found = {str(path.relative_to(folder / "store")): path.read_bytes() for path in files}
    root = json.loads(found["zarr.json"])
    said = root["attributes"]["streammach"]
    assert all(said.pop(name) for name in ("source", "check"))
    said["options"].pop("x_path", None)
    return found | {"zarr.json": root}


@pytest.mark.filterwarnings("ignore")  # of the libraries
@pytest.mark.parametrize("kind", TABLES)
def test_a_table_of_a_program_has_the_store_of_a_file(kind, tmp_path):
    rows = TABLES[kind]()
    wanted = files_of(on_disk(tmp_path), tmp_path, label="label")
    assert files_of(rows, tmp_path, label="label") == wanted


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", PAIRS)
def test_pairs_of_a_program_have_the_store_of_a_file(kind, tmp_path):
    rows = PAIRS[kind]()
    np.savez(tmp_path / "rows.npz", X=X, y=Y)
    wanted = files_of(tmp_path / "rows.npz", tmp_path)
    assert files_of(rows, tmp_path) == wanted


@pytest.mark.filterwarnings("ignore")
def test_vectors_in_dicts_have_the_store_of_a_file(tmp_path):
    pd.DataFrame({"vector": [*X], "label": Y}).to_parquet(tmp_path / "rows.parquet")
    wanted = files_of(tmp_path / "rows.parquet", tmp_path, label="label")
    every = [
        iter([{"vector": X[i : i + 70], "label": Y[i : i + 70]} for i in STARTS]),
        ({"vector": x, "label": int(y)} for x, y in zip(X, Y, strict=True)),
        {"vector": X, "label": Y},
        {"vector": pa.array([*X]), "label": Y},
    ]
    for rows in every:
        assert files_of(rows, tmp_path, label="label") == wanted
    x = torch().from_numpy(X)
    rows = loader([{"vector": x[i], "label": Y[i]} for i in range(N)])
    assert files_of(rows, tmp_path, label="label") == wanted
    half = ((x[i : i + 70].bfloat16(), Y[i : i + 70]) for i in STARTS)
    assert files_of(half, tmp_path) == files_of((x.bfloat16().float().numpy(), Y), tmp_path)


@pytest.mark.filterwarnings("ignore:Writing zarr v2")
@pytest.mark.parametrize("place", ["X", "layer"])
@pytest.mark.parametrize("make", [np.asarray, sp.csr_matrix, sp.csc_matrix])
def test_cells_in_memory_and_by_columns_have_the_store_of_a_file(make, place, tmp_path):
    def cells(x):
        obs = pd.DataFrame({"kind": pd.Categorical(FRAME["label"])}, index=map(str, range(N)))
        return anndata.AnnData(x, obs=obs, var=pd.DataFrame(index=list("abcdef")))

    cells(X.copy()).write_h5ad(tmp_path / "dense.h5ad")
    wanted = files_of(tmp_path / "dense.h5ad", tmp_path)
    if place == "X":
        own, options = cells(make(X)), {}
        assert files_of(own, tmp_path, label="kind") == wanted
    else:
        own, options = cells(np.zeros_like(X)), {"x_path": "layers/counts"}
        own.layers["counts"] = make(X)
        whole = anndata.AnnData(own.layers["counts"], obs=own.obs, var=own.var)
        assert files_of(whole, tmp_path, label="kind") == wanted
    own.write_h5ad(tmp_path / "cells.h5ad")
    assert files_of(tmp_path / "cells.h5ad", tmp_path, **options) == wanted
    own.write_zarr(tmp_path / "cells")
    assert files_of(tmp_path / "cells", tmp_path, **options) == wanted


def test_columns_in_npz_and_labels_by_columns(tmp_path):
    square = sp.csc_array(np.eye(6)[[1, 0, 2, 2, 4, 3]] + 3 * np.eye(6)[[0, 0, 1, 4, 4, 5]])
    np.save(tmp_path / "y.npy", np.arange(6) % 2)
    found = []
    for matrix in (square, square.tocsr()):
        sp.save_npz(tmp_path / "X.npz", matrix)
        found.append(files_of(tmp_path / "X.npz", tmp_path, labels=tmp_path / "y.npy"))
    assert found[0] == found[1]
    wrong = {"data": np.ones(2), "indices": [0, 9], "indptr": [0, 1, 2], "shape": [4, 2]}
    np.savez(tmp_path / "X.npz", format=b"csc", **wrong)
    with pytest.raises(StreammachError, match="a column has a row that is none of 4"):
        files_of(tmp_path / "X.npz", tmp_path, labels=tmp_path / "y.npy")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["a generator of dicts", "polars, lazy", "DuckDB", "Hugging Face"])
def test_a_model_of_a_program_is_that_of_the_rows_in_memory(kind):
    options = {"epochs": 1, "n_buckets": 3, "n_repetitions": 1, "counts": "off", "linear": "off",
               "learning_rate": 0.5, "transform": "raw", "memory": "1GB"}  # fmt: skip
    wanted = sm.train(FRAME, "label", **options).model
    model = sm.train(TABLES[kind](), "label", **options).model
    assert model.weights.tobytes() == wanted.weights.tobytes()
    rows = FRAME[:9]
    assert model.predict(rows).tolist() == wanted.predict(rows).tolist()


def test_a_stream_beside_an_array_of_labels_is_read_whole():
    options = {"memory": "1GB", "time": "9s"}
    model = sm.train(duckdb().project("text, number"), FRAME["label"], **options).model
    rows = FRAME[["text", "number"]]
    wanted = sm.train(rows, FRAME["label"], **options).model
    assert model.predict(rows[:9]).tolist() == wanted.predict(rows[:9]).tolist()
