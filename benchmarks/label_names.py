"""Names of many labels as a list in memory, and packed: memory, and what reading them costs.

    python -m benchmarks.label_names FOLDER [--classes 10000000] [--queries 300] [--json FILE]

A small model of random int4 weights (32 x 8, 100,000 features), whose labels are a letter and a
number in random order, is saved into FOLDER in both layouts. Queries of 14 features are asked for
in turn, one of either; a block is the labels of 16,384 rows, five each, by chance.
"""

import statistics
import time
from pathlib import Path

import numpy as np

import benchmarks.machine_facts as machine
from streammach import hashing
from streammach.model import model as saving
from streammach.model.calibration import Calibration
from streammach.model.model import Model, disk_bytes
from streammach.prediction.predictor import Predictor
from streammach.rows.names import Names
from streammach.spec.model import ModelSpec
from tests.builders import training

N_FEATURES, BUCKETS, REPETITIONS, BLOCK_ROWS, K = 100_000, 32, 8, 16_384, 5
LAYOUTS = {"list": 1 << 40, "packed": 1}  # labels from which on names are packed


def made(rng, n_classes):
    """The model."""
    first, second = hashing.draw(0, n_classes, BUCKETS, REPETITIONS)
    columns = BUCKETS * REPETITIONS
    return Model(
        spec=ModelSpec(
            n_classes=n_classes, n_features=N_FEATURES, n_buckets=BUCKETS,
            n_repetitions=REPETITIONS, hash_a=first, hash_b=second,
        ),
        training=training(transform="binary"), dense=False, estimator="logsum",
        calibration=Calibration(), store="none", majority=0, validation={},
        labels=Names.of(f"c{i}" for i in rng.permutation(n_classes).tolist()),
        features=Names.of(f"f{i}" for i in range(N_FEATURES)),
        weights=rng.integers(-7, 8, (N_FEATURES, columns)).astype(np.int8),
        bias=np.zeros(columns, np.float32), scale=np.full(N_FEATURES, 0.125, np.float32),
        stored="int4",
    )  # fmt: skip


def loaded(path):
    """A predictor of a saved model, and what it takes."""
    began = time.process_time()
    model = Model.load(path)
    seconds = time.process_time() - began
    return Predictor(model, device="cpu", threads=1), {
        "names_bytes": model.labels.n_bytes, "model_bytes": model.n_bytes,
        "file_bytes": disk_bytes(path), "load_cpu_s": seconds,
    }  # fmt: skip


def asked(predictors, rows):
    """Microseconds of each query and of its labels, by layout."""
    took = {name: ([], []) for name in predictors}
    for row in rows:
        for name, predictor in predictors.items():
            began = time.perf_counter()
            ids, _ = predictor.topk_ids(row, K)
            between = time.perf_counter()
            predictor.labels(ids[0])
            end = time.perf_counter()
            for held, seconds in zip(took[name], (end - began, end - between), strict=True):
                held.append(1e6 * seconds)
    return took


def main():
    arguments = machine.parser(__doc__)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--classes", type=int, default=10_000_000)
    arguments.add_argument("--queries", type=int, default=300)
    given = arguments.parse_args()
    rng, predictors, figures = np.random.default_rng(1), {}, {}
    given.folder.mkdir(exist_ok=True)
    model = made(rng, given.classes)
    for name, many in LAYOUTS.items():
        saving.MANY = many
        model.save(given.folder / name, force=True)
        predictors[name], figures[name] = loaded(given.folder / name)
    some = [np.sort(rng.choice(N_FEATURES, 14, replace=False)) for _ in range(given.queries + 3)]
    rows = [predictors["list"]._known.row(features) for features in some]
    asked(predictors, rows[:3])
    for name, (queries, labels) in asked(predictors, rows[3:]).items():
        figures[name] |= {"query_p50_us": statistics.median(queries),
                          "labels_p50_us": statistics.median(labels)}  # fmt: skip
    block = np.unique(rng.integers(0, given.classes, BLOCK_ROWS * K))
    for name, predictor in predictors.items():
        began = time.process_time()
        predictor.model.labels.raws(block)
        figures[name]["block_cpu_us_a_row"] = 1e6 * (time.process_time() - began) / BLOCK_ROWS
    for name, found in figures.items():
        print(name, {key: round(value, 2) for key, value in found.items()})
    machine.report(
        {"classes": given.classes, "queries": given.queries, **figures, "machine": machine.facts()},
        given.json,
    )


if __name__ == "__main__":
    main()
