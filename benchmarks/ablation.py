"""What each idea brings, alone and together: both accuracies with some of them left out.

    python -m benchmarks.ablation TRAIN.zarr TEST.zarr --name NAME [--hold-out-by NAMESPACE]
        [--transform binary --learning-rate 0.5] [--seeds 3] [--json FILE]

Every row is a training of its own with the same shape, rate and transform, for each seed (which
decides hashes, order and held-out rows); what is left out is replaced by what one would do without
the idea. The test rows only measure.
"""

import json
import tempfile
from pathlib import Path
from unittest import mock

import numpy as np

import streammach as sm
from benchmarks import machine_facts
from streammach.data.store.dataset import Dataset
from streammach.parts.counts.alone import CountSettings
from streammach.parts.counts.part import Counts
from streammach.parts.registry import PARTS
from streammach.rows.canonical import canonicalize
from streammach.spec.training import TrainingOptions

IDEAS = {
    "prior": "epsilon of Adagrad as one typical square",
    "smoothing": "label smoothing 0.1",
    "logsum": "classes ranked by the sum of logarithms, not by the mean",
    "last": "held-out rows learnt from at the end",
    "counts": "counts of pairs, one group of features",
    "groups": "weights by groups of features",
    "learnt": "feature and pair weights",
    "factor": "more weight for the hashed models where the first five gain",
}
BESIDE = ("groups", "learnt", "factor")  # ideas that need counts
SHAPE = (64, 16)


def variants():
    """Yield (name, ideas that are used): none, each alone, all together."""
    yield "none", frozenset()
    for idea in IDEAS:
        yield f"only {idea}", frozenset({idea, "counts"} if idea in BESIDE else {idea})
    yield "all", frozenset(IDEAS)


def counts(ideas):
    """Return counts whose weights are fitted with these ideas alone."""
    settings = CountSettings(
        grouped="groups" in ideas, pair_weights="learnt" in ideas,
        **({} if "factor" in ideas else {"factors": (1.0,)}),
    )  # fmt: skip
    return Counts(settings)


def run_one(given, ideas, seed, rows):
    """Return accuracy and top-5 accuracy of a training with these ideas."""
    options = TrainingOptions(
        seed=seed, transform=given.transform, learning_rate=given.learning_rate,
        label_smoothing=0.1 if "smoothing" in ideas else 0.0, hold_out_by=given.hold_out_by,
        epsilon=None if "prior" in ideas else 1e-8, last_passes=2 if "last" in ideas else 0,
        model_size="full",
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(PARTS, counts=counts(ideas)):
        plan = sm.plan(
            given.train, n_buckets=SHAPE[0], n_repetitions=SHAPE[1], threads=given.threads,
            counts="auto" if "counts" in ideas else "off", seed=seed,
        )  # fmt: skip
        run = sm.Trainer(plan, options).fit(given.train, Path(folder) / "run")
        ranker = run.model.estimator
        if ranker != "blend":
            ranker = "logsum" if "logsum" in ideas else "mean"
        with sm.Predictor(run.model, threads=given.threads, estimator=ranker) as use:
            right = use.topk_ids(rows, 5)[0] == rows.classes[:, None]
    return float(right[:, 0].mean()), float(right.any(axis=1).mean())


def main():
    """Train every variant with every seed; write the figures after each."""
    parser = machine_facts.parser(__doc__)
    parser.add_argument("train")
    parser.add_argument("test")
    parser.add_argument("--name", required=True)
    parser.add_argument("--hold-out-by")
    parser.add_argument("--transform", default="binary")
    parser.add_argument("--learning-rate", type=float, default=0.5)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--max-test", type=int, default=20_000)
    given = parser.parse_args()
    path = Path(given.json) if given.json else None
    results = json.loads(path.read_text()) if path is not None and path.exists() else {}
    with Dataset.open(given.train) as data, Dataset.open(given.test) as other:
        rows = canonicalize(
            other.rows(0, min(given.max_test, other.n_rows)),
            data.features.ids_of(other.features), data.labels.ids_of(other.labels),
        )  # fmt: skip
    found = results.setdefault(given.name, {"test_rows": rows.n_rows, "shape": SHAPE, "rows": {}})
    for seed in range(given.seeds):
        for name, ideas in variants():
            reached = found["rows"].setdefault(name, {})
            if str(seed) in reached:
                continue
            reached[str(seed)] = run_one(given, ideas, seed, rows)
            print(
                f"{given.name}  seed {seed}  {name:<20} "
                f"accuracy {reached[str(seed)][0]:.4f}  top-5 {reached[str(seed)][1]:.4f}",
                flush=True,
            )
            if path is not None:
                results["machine"] = machine_facts.facts()
                path.write_text(json.dumps(results, indent=1) + "\n")
    print(table(found))


def table(found):
    """Return the figures of a data set as Markdown: means over seeds and standard errors."""
    lines = ["| ideas | accuracy | top-5 |", "|---|---|---|"]
    for name, reached in found["rows"].items():
        figures = 100 * np.array(list(reached.values()))
        mean, error = figures.mean(axis=0), figures.std(axis=0, ddof=1) / len(figures) ** 0.5
        cells = " | ".join(f"{m:.1f} ± {e:.1f}" for m, e in zip(mean, error, strict=True))
        lines.append(f"| {name} | {cells} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
