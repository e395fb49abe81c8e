"""What large batches lose on dense rows: both accuracies by the rows of a batch.

    python -m benchmarks.batches TRAIN.zarr TEST.zarr --name NAME [--batches 256,1024,4096]
        [--shape exact,128x8] [--parts on,off] [--rates 0.5,1] [--seeds 2] [--json FILE]

A step of a GPU moves all weights and the optimiser's state whatever its batch, so that large
batches are fast there; they are fewer steps, too. Every row is a training of its own, with the
usual epochs and the transform and rate that its search chooses; the test rows only measure. With
`--parts off` nothing stands beside the hashed models or the exact weights, neither Fourier features
nor a closed form, which hide what steps lose. With `--rates` there is no search: l2 values and each
of these rates.
"""

import itertools
import json
import tempfile
import time
from pathlib import Path

import streammach as sm
from benchmarks import machine_facts
from streammach.data.store.dataset import Dataset
from streammach.rows.canonical import canonicalize
from streammach.spec.training import TrainingOptions

PARTS = {"on": {}, "off": {"closed_form": "off", "fourier": "off", "whitening": "off"}}


def shape_of(word):
    """Return the options of a plan for ``exact`` or BxR."""
    if word == "exact":
        return {"exact": True}
    buckets, repetitions = word.split("x")
    return {"n_buckets": int(buckets), "n_repetitions": int(repetitions)}


def reached(store, rows, training=(), **options):
    """Return what a training reaches on rows, its rate, its seconds, and what was held out.

    Parameters
    ----------
    store : str
        The rows that are trained on.
    rows : RowBlock
        Those that measure, with the store's ids.
    training : mapping
        Fields of :class:`streammach.spec.training.TrainingOptions`.
    **options
        Of the plan.
    """
    made = sm.plan(store, **options)
    settings = TrainingOptions(model_size="full", **dict(training))
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        run = sm.Trainer(made, settings).fit(store, Path(folder) / "run")
        seconds = time.perf_counter() - began
        with sm.Predictor(run.model, threads=made.config.placement.threads) as use:
            right = use.topk_ids(rows, 5)[0] == rows.classes[:, None]
    return {
        "batch": made.config.batching.batch_size, "rate": run.settings.training.learning_rate,
        "transform": run.settings.training.transform, "epochs": len(run.result.history),
        "accuracy": float(right[:, 0].mean()), "top_5": float(right.any(axis=1).mean()),
        "seconds": round(seconds, 1),
    }  # fmt: skip


def test_rows(train, test, most):
    """Return the first rows of a store, with the ids of another one."""
    with Dataset.open(train) as data, Dataset.open(test) as other:
        return canonicalize(
            other.rows(0, min(most, other.n_rows)),
            data.features.ids_of(other.features), data.labels.ids_of(other.labels),
        )  # fmt: skip


def stored(path):
    """Return what a file of figures holds already."""
    return json.loads(Path(path).read_text()) if path and Path(path).exists() else {}


def parser_of(description):
    """Return a parser of what all trainings of dense rows are asked with."""
    parser = machine_facts.parser(description)
    parser.add_argument("train")
    parser.add_argument("test")
    parser.add_argument("--name", required=True)
    parser.add_argument("--shape", default="exact,128x8")
    parser.add_argument("--parts", default="off")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--max-test", type=int, default=20_000)
    return parser


def begun(given):
    """Return the rows that measure, all figures, and the runs among them that are added to."""
    rows = test_rows(given.train, given.test, given.max_test)
    results = stored(given.json)
    found = results.setdefault(given.name, {"test_rows": rows.n_rows, "runs": []})
    results["machine"] = machine_facts.facts()
    return rows, results, found["runs"]


def main():
    """Train with every batch; write the figures after each."""
    parser = parser_of(__doc__)
    parser.add_argument("--batches", default="256,512,1024,2048,4096")
    parser.add_argument("--rates")
    parser.add_argument("--epochs", type=int)
    given = parser.parse_args()
    rows, results, runs = begun(given)
    for one in asked(given):
        seed, parts, shape, batch, training = one
        run = {"seed": seed, "shape": shape, "parts": parts} | reached(
            given.train, rows, training, batch_size=batch, seed=seed, threads=given.threads,
            device="cpu", **shape_of(shape), **PARTS[parts],
        )  # fmt: skip
        print(run, flush=True)
        runs.append(run)
        machine_facts.report(results, given.json)


def asked(given):
    """Yield seed, parts, shape, rows of a batch, and what is fixed of a training, of each run."""
    batches = [int(n) for n in given.batches.split(",")]
    fixed = [{}]
    if given.rates:
        fixed = [{"learning_rate": float(r), "transform": "l2"} for r in given.rates.split(",")]
    words = (range(given.seeds), given.parts.split(","), given.shape.split(","), batches, fixed)
    for seed, parts, shape, batch, training in itertools.product(*words):
        yield seed, parts, shape, batch, {"seed": seed, "epochs": given.epochs, **training}


if __name__ == "__main__":
    main()
