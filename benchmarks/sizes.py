"""How accurate smaller models of a run are.

    python -m benchmarks.sizes RUN TEST.zarr --sizes 50MB,100MB [--name DATA] [--json FILE]

RUN was trained with `--model-size full`. Each size is what `streammach shrink --size` makes of it,
saved to a folder and loaded again; its bytes are those of the folder's files. Accuracy is that of
the first rows of the test, where a label that training never saw counts as wrong. Figures of other
data in the JSON file stay.
"""

import json
import tempfile
import time
from pathlib import Path

from benchmarks import machine_facts
from benchmarks.peers.task import folder_bytes
from streammach.data.store.dataset import Dataset
from streammach.machine import parse_size
from streammach.model.fit import shrink_to
from streammach.model.model import Model
from streammach.prediction.predictor import Predictor
from streammach.prediction.reached import measure
from streammach.rows.canonical import canonicalize


def test_rows(model, store, most):
    """Return the first rows of a store with the model's ids."""
    with Dataset.open(store) as data:
        rows = data.rows(0, min(most, data.n_rows))
        return canonicalize(
            rows, model.features.ids_of(data.features), model.labels.plain().ids_of(data.labels)
        )


def figures(folder, rows, threads):
    """Return what a saved model is and reaches."""
    began = time.monotonic()
    model = Model.load(folder)
    loaded = time.monotonic() - began
    with Predictor(model, threads=threads) as predictor:
        found = measure(rows, predictor.topk_ids)
    return {
        "bytes": folder_bytes(folder), "bytes_in_memory": model.n_bytes,
        "weights": model.stored or str(model.weights.dtype),
        "repetitions": model.spec.n_repetitions, "pairs": model.n_pairs,
        "p_at_1": found.accuracy, "p_at_5": found.top_5_accuracy, "test_rows": rows.n_rows,
        "load_seconds": loaded,
    }  # fmt: skip


def smaller(model, size, rows, threads):
    """Return the figures of a model made to fit a size, and the seconds it took to make."""
    began = time.monotonic()
    small = shrink_to(model, parse_size(size))
    with tempfile.TemporaryDirectory() as folder:
        small.save(Path(folder) / "model")
        seconds = time.monotonic() - began
        return figures(Path(folder) / "model", rows, threads) | {"shrink_seconds": seconds}


def main():
    """Measure the run's model and smaller ones."""
    parser = machine_facts.parser(__doc__)
    parser.add_argument("run")
    parser.add_argument("test")
    parser.add_argument("--sizes", required=True, help="such as 50MB,100MB,1GB")
    parser.add_argument("--rows", type=int, default=20_000, help="first rows of the test")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--name", help="of the data; the run's otherwise")
    given = parser.parse_args()
    path = Path(given.json) if given.json else None
    results = json.loads(path.read_text()) if path is not None and path.exists() else {}
    model = Model.load(given.run)
    rows = test_rows(model, given.test, given.rows)
    found = results.setdefault(given.name or Path(given.run).name, {})
    for size in ["whole", *given.sizes.split(",")]:
        if size == "whole":
            folder = Path(given.run) / "model"
            row = figures(folder if folder.is_dir() else given.run, rows, given.threads)
        else:
            row = smaller(model, size, rows, given.threads)
        found[size] = row
        print(line(size, row), flush=True)
        if path is not None:
            results["machine"] = machine_facts.facts()
            path.write_text(json.dumps(results, indent=1) + "\n")


def line(size, row):
    """Return a row as text."""
    return (
        f"{size:>6} {row['bytes'] / 1e6:8.1f} MB  {row['weights']:<7} {row['repetitions']:>3} rep. "
        f"{row['pairs']:>11,} pairs  accuracy {row['p_at_1']:.4f}  top-5 {row['p_at_5']:.4f}  "
        f"loaded in {row['load_seconds']:.1f} s"
    )


if __name__ == "__main__":
    main()
