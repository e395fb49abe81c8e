"""Does a model give every row the same answer, whatever door the row comes through?

    python -m benchmarks.doors --json FILE

Two models are trained on the same made-up rows: from a matrix (features are places of columns), and
from AnnData (columns have names). The rows to predict are others, of which a third hold values in
columns that were empty in training. They go through nine doors: text, npz, npy, HDF5, AnnData, the
store of each of these files, CSR and dense matrices in memory, and a matrix whose columns stand in
another order, with their names. Ids and scores are compared row for row with those of the dense
matrix, all bits of them; the accuracy beside says that the answers are not equally wrong.
"""

import time
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

import anndata
import h5py
import numpy as np
import pandas as pd
import scipy.sparse as sp

import streammach as sm
from benchmarks.machine_facts import facts, parser, report
from streammach.data.source_options import SourceOptions
from streammach.spec.training import TrainingOptions

N_COLUMNS, N_CLASSES, K = 2_000, 200, 5
PLACES = [str(j) for j in range(N_COLUMNS)]
NAMES = [f"gene{j}" if j % 5 else f"g^{j}" for j in range(N_COLUMNS)]


def made(rng, n_rows):
    """Rows whose class can be told from their columns; in training every 40th column is empty."""
    y = rng.integers(N_CLASSES, size=n_rows)
    rows = sp.random_array((n_rows, N_COLUMNS), density=0.01, rng=rng, format="lil")
    rows[np.arange(n_rows), 2 * y + 1] = 2 + rng.random(n_rows)
    return rows.tocsr().astype(np.float32), np.array([f"class {c}" for c in y])


def train(folder, named, rows, labels):
    """The model of a matrix, or of AnnData."""
    source, options = folder / "train.npz", {"labels": folder / "train.txt"}
    if named:
        source, options = folder / "train.h5ad", {"y_path": "obs/cell"}
        annotated(source, rows, labels, NAMES)
    else:
        sp.save_npz(source, sp.csr_matrix(rows))
        (folder / "train.txt").write_text("\n".join(labels) + "\n")
    sm.convert(source, folder / "train.zarr", **options)
    plan = sm.plan(folder / "train.zarr", n_buckets=64, n_repetitions=16, counts="on", threads=2)
    how = {"epochs": 2, "learning_rate": 0.5, "transform": "raw"}
    return sm.Trainer(plan, TrainingOptions(**how)).fit(folder / "train.zarr", folder / "run").model


def annotated(path, rows, labels, names):
    """Write AnnData: an HDF5 file, or a folder of Zarr."""
    order = range(len(labels))
    table = anndata.AnnData(
        sp.csr_matrix(rows),
        obs=pd.DataFrame({"cell": pd.Categorical(labels)}, index=[f"r{i}" for i in order]),
        var=pd.DataFrame(index=names),
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table.write_h5ad(path) if path.suffix == ".h5ad" else table.write_zarr(path)


def files(folder, rows, labels, names):
    """The same rows in every kind of file: door, path, options, options to convert it."""
    lines = []
    for i in range(rows.shape[0]):
        part = slice(rows.indptr[i], rows.indptr[i + 1])
        pairs = zip(rows.indices[part], rows.data[part], strict=True)
        lines.append("x | " + " ".join(f"{names[j]}:{float(v)!r}" for j, v in pairs))
    (folder / "rows.vw").write_text("\n".join(lines) + "\n")
    yield "text", folder / "rows.vw", {}
    sp.save_npz(folder / "rows.npz", sp.csr_matrix(rows))
    (folder / "rows.txt").write_text("\n".join(labels) + "\n")
    yield "npz", folder / "rows.npz", {"labels": folder / "rows.txt"}
    np.save(folder / "X.npy", rows.toarray())
    np.save(folder / "y.npy", labels)
    yield "npy", folder / "X.npy", {}
    with h5py.File(folder / "rows.h5", "w") as file:
        file["X"], file["y"] = rows.toarray(), [label.encode() for label in labels]
    yield "HDF5", folder / "rows.h5", {}
    annotated(folder / "rows.zarr", rows, labels, names)
    yield "AnnData", folder / "rows.zarr", {"y_path": "obs/cell"}


def through(predictor, path, n_rows, **options):
    """Labels and scores of a file or store, in the order of its rows."""
    found = list(predictor.stream(path, K, options=SourceOptions(**options)))
    assert np.concatenate([part.rows for part in found]).tolist() == list(range(n_rows))
    ids = np.concatenate([part.ids for part in found])
    return predictor.labels(ids), np.concatenate([part.scores for part in found])


def doors(predictor, folder, rows, labels, names):
    """Go through every door: its name, labels, scores, seconds."""
    n_rows = rows.shape[0]

    def timed(door, call):
        began = time.monotonic()
        found = call()
        return door, *found, time.monotonic() - began

    yield timed("dense in memory", lambda: predictor.topk(rows.toarray(), K))
    yield timed("CSR in memory", lambda: predictor.topk(rows, K))
    order = np.random.default_rng(1).permutation(N_COLUMNS)
    mixed, named = rows.tocsc()[:, order].tocsr(), [names[j] for j in order]
    yield timed("named columns", lambda: predictor.topk(mixed, K, columns=named))
    for door, path, options in files(folder, rows, labels, names):
        yield timed(door, lambda p=path, o=options: through(predictor, p, n_rows, **o))
        store = folder / f"store of {door}"
        sm.convert(path, store, **options)
        yield timed(store.name, lambda p=store: through(predictor, p, n_rows))


def compare(found, labels):
    """The table's line of a door: rows that are equal, and the accuracy."""
    first, lines = None, []
    for door, names, scores, seconds in found:
        first = first or (names, scores)
        same = {
            "ids": (np.asarray(names) == np.asarray(first[0])).all(axis=1),
            "scores": (scores.view(np.uint32) == first[1].view(np.uint32)).all(axis=1),
        }
        line = {
            "door": door, "rows": len(scores), **{k: int(v.sum()) for k, v in same.items()},
            "p_at_1": float((np.asarray(names)[:, 0] == labels).mean()), "seconds": seconds,
        }  # fmt: skip
        lines.append(line)
        print(f"{door:<18}{line['rows']:>8,}{line['ids']:>12,}{line['scores']:>12,}"
              f"{line['p_at_1']:>8.3f}{seconds:>8.2f}")  # fmt: skip
    return lines


def main():
    """Train, predict through all doors, compare, report."""
    arguments = parser(__doc__)
    arguments.add_argument("--rows", type=int, default=10_000)
    given = arguments.parse_args()
    figures = {"facts": facts("h5py", "anndata"), "classes": N_CLASSES, "columns": N_COLUMNS}
    for kind, names in (("columns by place", PLACES), ("columns by name", NAMES)):
        rng = np.random.default_rng(29)
        seen, labels = made(rng, given.rows)
        seen = seen.tolil()
        seen[:, ::40] = 0
        rows, wanted = made(rng, given.rows)
        print(f"{kind:<18}{'rows':>8}{'equal ids':>12}{'and scores':>12}{'accuracy':>8}{'s':>8}")
        with TemporaryDirectory() as name, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of columns that were empty, and that are elsewhere
            model = train(Path(name), names is NAMES, seen.tocsr(), labels)
            with sm.Predictor(model, threads=2) as predictor:
                figures[kind] = compare(doors(predictor, Path(name), rows, wanted, names), wanted)
    report(figures, given.json)
    lines = [line for kind in ("columns by place", "columns by name") for line in figures[kind]]
    if any((line["ids"], line["scores"]) != (line["rows"],) * 2 for line in lines):
        raise SystemExit("not all doors give the same answers")


if __name__ == "__main__":
    main()
