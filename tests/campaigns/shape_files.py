"""Files of odd shapes: made quickly, the same each time.

python -m tests.campaigns.shape_files              # the shapes, as JSON
python -m tests.campaigns.shape_files NAME FOLDER  # makes one, and says its files
"""

import gzip
import json
import sys
from functools import partial
from pathlib import Path

import anndata
import h5py
import numpy as np
from scipy import sparse

SEED = 0
LONGEST = 1_000_000  # items of a list in JSON: of more than 1,048,576 values a row is refused
N, WORDS, ITEMS = 300, 1_150_000, 1_500_000  # of large rows: small ones, words, items of the large


def pointers(rng, rows, mean, spread):
    """Where rows of so many values in the mean begin: all alike, or spread without measure."""
    if mean < 1:
        lengths = (rng.random(rows) < mean).astype(np.int64)
    elif spread:
        lengths = np.minimum(rng.pareto(1.2, rows) * mean / 5, 50 * mean).astype(np.int64)
    else:
        lengths = np.full(rows, int(mean))
    lengths[0] = max(lengths[0], 1)
    return np.concatenate([[0], np.cumsum(lengths)])


def matrix(rows, features, mean, spread=False, dtype=np.float32):
    """A CSR matrix of random places; values from 1 to 9."""
    rng = np.random.default_rng(SEED)
    indptr = pointers(rng, rows, mean, spread)
    indices = rng.integers(0, features, indptr[-1], dtype=np.int64)
    values = rng.integers(1, 10, indptr[-1]).astype(dtype)
    found = sparse.csr_matrix((values, indices, indptr), (rows, features))
    found.sum_duplicates()
    return found


def classes(rows, n_classes):
    rng = np.random.default_rng(SEED + 1)
    labels = np.arange(rows) % n_classes
    rng.shuffle(labels)
    return labels


def text(folder, rows, n_classes, features, mean, *, spread=False, form="svm", label="", name="",
         tag="", weight=False, zipped=False, long_rows=()):  # fmt: skip
    """A text: labels and features are numbers behind a prefix of VW's; long rows come first."""
    found, labels = matrix(rows, features, mean, spread), classes(rows, n_classes)
    path = folder / (f"a.{form}" + (".gz" if zipped else ""))
    with gzip.open(path, "wt", compresslevel=1) if zipped else open(path, "w") as out:
        for i, n in enumerate(long_rows):
            out.write(line(form, i % n_classes, range(n), [1] * n, label, name, "", ""))
        indptr, indices, values = (
            found.indptr.tolist(), found.indices.tolist(), found.data.astype(int).tolist()
        )  # fmt: skip
        for i, one in enumerate(labels.tolist()):
            a, b = indptr[i], indptr[i + 1]
            given = f" {1 + i % 7 / 2}" if weight else ""
            tagged = f" '{tag}{i}" if tag else ""
            out.write(line(form, one, indices[a:b], values[a:b], label, name, given, tagged))
    return [path.name]


def line(form, label, features, values, prefix, name, weight, tag):
    pairs = " ".join([f"{name}{f}:{v}" for f, v in zip(features, values, strict=True)])
    if form == "svm":
        return f"{label} {pairs}\n"
    return f"{prefix}{label}{weight}{tag} | {pairs}\n"


def npz(folder, rows, n_classes, features, mean, *, spread=False):
    """A sparse matrix of NumPy's."""
    found = matrix(rows, features, mean, spread)
    np.savez(
        folder / "a.npz", data=found.data, indices=found.indices, indptr=found.indptr,
        shape=found.shape, format=b"csr", labels=classes(rows, n_classes),
    )  # fmt: skip
    return ["a.npz"]


def dense(rows, columns, dtype):
    rng = np.random.default_rng(SEED)
    if np.dtype(dtype).kind == "u":
        return rng.integers(0, 255, (rows, columns), dtype)
    return rng.standard_normal((rows, columns), np.float32).astype(dtype)


def npy(folder, rows, n_classes, columns, *, dtype=np.float32, order="C"):
    """A dense matrix of NumPy's, with its labels beside."""
    np.save(folder / "a.npy", np.asarray(dense(rows, columns, dtype), order=order))
    np.save(folder / "labels.npy", classes(rows, n_classes))
    return ["a.npy"]


def hdf5(folder, rows, n_classes, columns, *, mean=0.0, chunks=None):
    """HDF5: dense, or CSR where rows have a mean number of values."""
    with h5py.File(folder / "a.h5", "w") as file:
        file["y"] = classes(rows, n_classes)
        if not mean:
            file.create_dataset("X", data=dense(rows, columns, np.float32), chunks=chunks)
            return ["a.h5"]
        found = matrix(rows, columns, mean)
        group = file.create_group("X")
        group.attrs["shape"] = found.shape
        for name in ("data", "indices", "indptr"):
            group.create_dataset(name, data=getattr(found, name), compression="gzip")
    return ["a.h5"]


def anndata_zarr(folder, rows, n_classes, columns, mean):
    """A folder of AnnData."""
    import pandas as pd

    obs = pd.DataFrame({"cell": [f"c{i}" for i in classes(rows, n_classes)]})
    obs.index = obs.index.astype(str)
    anndata.AnnData(matrix(rows, columns, mean), obs).write_zarr(folder / "a.zarr.src")
    return ["a.zarr.src"]


def lines(folder, name, large, small, head=""):
    """A text of small rows and a large one among them; packed where its name says so."""
    rows = [small.format(kind="abc"[i % 3], i=i % 7) for i in range(N)]
    rows.insert(N // 2, large())
    opened = gzip.open if name.endswith("gz") else open
    with opened(folder / name, "wt") as file:
        file.write(head + "".join(row + "\n" for row in rows))
    return [name]


def words(n=WORDS, distinct=50_000):
    return " ".join(f"w{i % distinct}" for i in range(n))


def features(n=ITEMS, name="f{}"):
    return " ".join(name.format(i + 1) for i in range(n))


def items():
    return json.dumps({"label": "a", "x": [f"n{i % 1000}" for i in range(LONGEST)]})


def table(folder, name, cells, **written):
    """Parquet or Feather of some columns."""
    import pyarrow as pa

    found = pa.table({"label": (list("abc") * N)[: len(cells)], "x": cells})
    if name.endswith("parquet"):
        import pyarrow.parquet as pq

        pq.write_table(found, folder / name, **written)
    else:
        import pyarrow.feather as feather

        feather.write_feather(found, folder / name, **written)
    return [name]


def among(large, small):
    return [small] * (N // 2) + [large] + [small] * (N // 2)


def made(make, *given, **more):
    """Return what makes files of rows, classes, features and values a row in a folder."""
    return lambda folder: make(folder, *given, **more)


def exact(n_classes):
    """The options of a training with a bucket for every class."""
    return ("--buckets", str(n_classes), "--repetitions", "1", "--epochs", "1")


CHOSEN = ("--epochs", "1")  # the plan chooses the shape
MATRIX = {"convert": ("--labels", "labels.npy")}
SVMLIGHT = dict.fromkeys(("convert", "predict"), ("--format", "svmlight"))  # a long first line
H5 = {"convert": ("--y-path", "y")}
ANNDATA = {"convert": ("--y-path", "obs/cell")}

SHAPES = {
    # rows, classes, features, values a row
    "rows of which one in a hundred holds a value": (made(text, 3_000_000, 10, 50, 0.01), {}),
    "a million rows of one value": (made(text, 1_000_000, 100, 1000, 1), {}),
    "two classes": (made(text, 200_000, 2, 1000, 3), {}),
    "a class a row": (made(text, 200_000, 200_000, 5000, 3), {}),
    "half a million classes": (made(text, 500_000, 500_000, 100, 1), {}),
    "two million classes": (made(text, 2_000_000, 2_000_000, 50, 1), {}),
    "classes chosen by the plan": (made(text, 100_000, 20_000, 5000, 5), {"train": CHOSEN}),
    "exact weights of many classes": (made(text, 60_000, 20_000, 500, 4), {"train": exact(20_000)}),
    "one feature": (made(text, 200_000, 50, 1, 1), {}),
    "two features": (made(text, 200_000, 50, 2, 1), {}),
    "each feature once": (made(npz, 100_000, 50, 1 << 30, mean=20), {}),
    "two million features": (made(text, 400_000, 50, 2_000_000, 6), {}),
    "rows of 30,000 values": (made(text, 300, 10, 1 << 20, mean=30_000), {}),
    "rows of 200,000 values": (made(text, 40, 4, 1 << 20, mean=200_000), {}),
    "one long row": (made(text, 20_000, 10, 500, 2, long_rows=(500_000,)), SVMLIGHT),
    "long rows in front of many short ones": (
        made(text, 500_000, 10, 500, 1, long_rows=(300_000,) * 5), SVMLIGHT),
    "lengths spread without measure": (made(text, 100_000, 500, 100_000, 20, spread=True), {}),
    "rows of 1,000 values": (made(text, 6_000, 100, 50_000, 1000), {}),
    "few rows": (made(text, 30, 3, 10, 3), {}),
    "few rows, many features": (made(text, 50, 5, 1 << 24, mean=2000), {}),
    "labels of 200 bytes": (made(text, 100_000, 50_000, 1000, 2, form="vw", label="l" * 200), {}),
    "features of a kilobyte": (made(text, 20_000, 100, 20_000, 2, form="vw", name="f" * 1000), {}),
    "tags of 200 bytes": (made(text, 200_000, 100, 1000, 2, form="vw", tag="t" * 200), {}),
    "importances": (made(text, 300_000, 100, 1000, 1, form="vw", weight=True), {}),
    "gzip, a value in a hundred rows": (made(text, 1_000_000, 10, 50, 0.01, zipped=True), {}),
    "gzip of VW": (made(text, 100_000, 1000, 20_000, 10, form="vw", zipped=True), {}),
    "npz": (made(npz, 200_000, 500, 20_000, 10), {}),
    "npz, a value in a hundred rows": (made(npz, 2_000_000, 10, 50, 0.01), {}),
    "npz, mostly empty columns": (made(npz, 50_000, 50, 2_000_000, 2), {}),
    "npz of long rows": (made(npz, 500, 20, 200_000, 20_000), {}),
    "dense, 12,000 x 4,096": (made(npy, 12_000, 100, 4096), {**MATRIX, "train": exact(100)}),
    "dense, 1,000 x 50,000": (made(npy, 1_000, 10, 50_000), {**MATRIX, "train": exact(10)}),
    "dense, 400,000 x 4": (made(npy, 400_000, 100, 4), MATRIX),
    "dense, 60,000 x 256, float64": (
        made(npy, 60_000, 1000, 256, dtype=np.float64), {**MATRIX, "train": CHOSEN}),
    "dense, 100,000 x 100, bytes": (made(npy, 100_000, 20, 100, dtype=np.uint8), MATRIX),
    "dense, columns first": (made(npy, 20_000, 20, 500, order="F"), MATRIX),
    "dense, few rows": (made(npy, 20, 2, 20_000), {**MATRIX, "train": exact(2)}),
    "HDF5, dense": (made(hdf5, 20_000, 100, 1024), H5),
    "HDF5, dense, chunks of columns": (made(hdf5, 20_000, 100, 1000, chunks=(20_000, 10)), H5),
    "HDF5, CSR": (made(hdf5, 200_000, 100, 20_000, mean=10), H5),
    "HDF5, CSR, a value in a hundred rows": (made(hdf5, 1_000_000, 10, 50, mean=0.01), H5),
    "AnnData": (made(anndata_zarr, 50_000, 100, 20_000, 50), ANNDATA),
}  # fmt: skip


LINE, OBJECT = "{kind},words and more {i}", '{{"label": "{kind}", "x": "words {i}"}}'
LISTED, PAIR = '{{"label": "{kind}", "x": ["n{i}"]}}', "{kind} | g{i}"
TEXT, NAMES = ("--label", "label", "--text", "x"), ("--label", "label", "--names", "x")
SKIPPED = ("--on-bad-row", "skip")
LARGE = {
    **{f"a row of features, {name}": (partial(
        lines, name=name, large=lambda: "a | " + features(), small=PAIR), ())
       for name in ("a.vw", "a.vw.gz")},
    **{f"a row of features, {name}": (partial(
        lines, name=name, large=lambda: "1 " + features(name="{}:1"), small="{i} 1:1 2:2"), ())
       for name in ("a.svm", "a.svm.gz")},
    **{f"a large cell, {name}": (partial(
        lines, name=name, large=lambda: "a," + words(), small=LINE, head="label,x\n"), TEXT)
       for name in ("a.csv", "a.csv.gz")},
    "a large cell, a.tsv": (partial(
        lines, name="a.tsv", large=lambda: "a\t" + words(), small=LINE.replace(",", "\t"),
        head="label\tx\n"), TEXT),
    "a cell that is too large, a.csv": (partial(
        lines, name="a.csv", large=lambda: "a," + words(6 * WORDS), small=LINE,
        head="label,x\n"), (*TEXT, *SKIPPED)),
    "a large cell, a.jsonl": (partial(
        lines, name="a.jsonl", small=OBJECT,
        large=lambda: json.dumps({"label": "a", "x": words()})), TEXT),
    "a large cell, roles guessed, a.jsonl": (partial(
        lines, name="a.jsonl", small=OBJECT,
        large=lambda: json.dumps({"label": "a", "x": words()})), ()),
    **{f"a long list, {name}": (partial(lines, name=name, large=items, small=LISTED), NAMES)
       for name in ("a.jsonl", "a.jsonl.gz")},
    **{f"a long list, {name}": (lambda folder, name=name: table(
        folder, name, among(["n1"] * 2 * ITEMS, ["a"])), NAMES)
       for name in ("a.parquet", "a.feather")},
    **{f"a large cell, {name}": (lambda folder, name=name: table(
        folder, name, among(words(), "some words")), ())
       for name in ("a.parquet", "a.feather")},
    **{f"large cells that pack well, {name}": (lambda folder, name=name: table(
        folder, name, ["b" * 6_000_000 + " c"] * 60, compression="zstd"), ())
       for name in ("a.parquet", "a.feather")},
    "large cells in no dictionary, a.parquet": (lambda folder: table(
        folder, "a.parquet", ["b" * 6_000_000 + " c"] * 60, compression="zstd",
        use_dictionary=False), ()),
}  # fmt: skip


def main():
    if len(sys.argv) == 1:
        known = {name: more | {"large": False} for name, (_, more) in SHAPES.items()}
        known |= {name: {"convert": more, "large": True} for name, (_, more) in LARGE.items()}
        print(json.dumps(known))
        return
    make, _ = (SHAPES | LARGE)[sys.argv[1]]
    print(json.dumps(make(Path(sys.argv[2]))))


if __name__ == "__main__":
    main()
