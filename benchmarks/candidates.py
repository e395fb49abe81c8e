"""Ways to train the hashed models themselves, beside the defaults, at equal columns.

    python -m benchmarks.candidates TRAIN.zarr VALIDATION.zarr --name NAME [--json FILE]

VALIDATION.zarr holds rows cut off the training rows (`streammach convert ... --like TRAIN.zarr`);
no test set is read. Every line is a training without counts; what changes is named. P@1 and P@5 of
log-sum.
"""

import contextlib
import json
import tempfile
from pathlib import Path
from unittest import mock

import numpy as np

import streammach as sm
from benchmarks import machine_facts
from streammach import hashing
from streammach.data.store.dataset import Dataset
from streammach.prediction.evaluate import measure
from streammach.prediction.ranking import by_hashes
from streammach.rows.finish import finished
from streammach.training import finish, loop, trials

SHAPE = (64, 16)


class Change:
    """What a candidate does between the batches and after the last; nothing by default.

    `arrays` are the backend's: weights (d, R*B), Adagrad's sums `first` (d, R).
    """

    def __init__(self, dataset):
        self.dataset = dataset

    def batch(self, arrays, done):
        """Change weights after a batch; `done`: the share of the training that is over."""

    def end(self, arrays):
        """Change weights after the training."""


class Averaged(Change):
    """The mean of the weights over the last fifth of the training, ten times taken."""

    def __init__(self, dataset):
        super().__init__(dataset)
        self.total, self.n = None, 0

    def batch(self, arrays, done):
        """Add the weights up, ten times."""
        if done > 0.8 + 0.02 * self.n:
            self.n += 1
            weights = arrays["weights"]
            self.total = weights.copy() if self.total is None else self.total + weights

    def end(self, arrays):
        """Take the mean."""
        arrays["weights"][...] = self.total / self.n


class RareShrunk(Change):
    """A feature of n rows gets n / (n + 1) of its weights: a prior that holds rare ones back."""

    def end(self, arrays):
        """Shrink."""
        n = self.dataset.feature_counts.astype(np.float32)
        arrays["weights"] *= (n / (n + 1))[:, None]


class Decayed(Change):
    """Weight decay: 10% over the whole training, the same for every weight."""

    last = 0.0

    def batch(self, arrays, done):
        """Shrink all weights a little, a hundred times."""
        if done - self.last > 0.01:
            self.last = done
            arrays["weights"] *= np.float32(0.9**0.01)


class Faded(Change):
    """Adagrad's sums halved ten times in the training."""

    last = 0.0

    def batch(self, arrays, done):
        """Halve, ten times."""
        if done - self.last > 0.1:
            self.last = done
            arrays["first"] *= np.float32(0.5)


def dealt(dataset):
    """Return codes where frequent classes do not share: dealt to buckets in their order."""

    def codes(a, b, n_classes, n_buckets):
        table = hashing_codes(a, b, n_classes, n_buckets)
        order = np.argsort(-dataset.label_counts, kind="stable")
        rng = np.random.default_rng(0)
        for r in range(table.shape[1]):
            for start in range(0, n_classes, n_buckets):
                some = order[start : start + n_buckets]
                table[some, r] = rng.permutation(n_buckets)[: len(some)]
        return table

    return codes


hashing_codes = hashing.codes


def run_one(given, dataset, rows, options, patches, change):
    """Return P@1 and P@5 of a training without counts."""
    plan_options = {"n_buckets": SHAPE[0], "n_repetitions": SHAPE[1], **options.pop("plan", {})}
    plan = sm.plan(dataset, threads=given.threads, counts="off", **plan_options)
    trainer = sm.Trainer(
        plan, **{"transform": given.transform, "learning_rate": given.learning_rate,
                 "callbacks": [], **options},
    )  # fmt: skip
    reached = {}

    def measured(self):
        change.end(self.backend.arrays())
        reached["it"] = measure(rows, by_hashes(self.backend, "logsum", self.training.transform))
        return real_model(self)

    def steps(backend, reader, spec, epoch, start=0):
        done = 0
        for step in real_epoch(backend, reader, spec, epoch, start):
            done += step.n_rows
            change.batch(backend.arrays(), (epoch + done / reader.n_rows) / spec.epochs)
            yield step

    real_model, real_epoch = finish.Finish.model, loop.train_epoch
    with contextlib.ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
        stack.enter_context(mock.patch.object(finish.Finish, "model", measured))
        stack.enter_context(mock.patch("streammach.training.trainer.train_epoch", steps))
        for target, name, value in patches:
            stack.enter_context(mock.patch.object(target, name, value))
        trainer.fit(dataset, Path(folder) / "run")
    return reached["it"].p_at_1, reached["it"].p_at_5


def candidates(rate, dataset):
    """Yield (name, options of the trainer, what is replaced, change)."""
    yield "defaults", {}, [], Change
    for factor in (0.5, 2.0):
        yield f"rate x {factor:g}", {"learning_rate": rate * factor}, [], Change
    flat = [(loop, "rate_at", lambda spec, *_: spec.learning_rate / 2)]
    yield "rate constant at half of the first", {}, flat, Change
    root = [(loop, "rate_at", lambda s, done, all_: s.learning_rate * (1 - done / all_) ** 0.5)]
    yield "rate falling as a square root", {}, root, Change
    for epochs in (3, 8):
        yield f"{epochs} epochs", {"epochs": epochs}, [], Change
    for batch in (64, 256, 4096):
        yield f"batch {batch}", {"plan": {"batch_size": batch}}, [], Change
    yield "no smoothing", {"label_smoothing": 0.0}, [], Change
    yield "smoothing 0.2", {"label_smoothing": 0.2}, [], Change
    yield "Adagrad's epsilon 1e-8", {}, [(trials, "prior", lambda *_: 1e-8)], Change
    yield "Adagrad fading", {}, [], Faded
    yield "weights averaged", {}, [], Averaged
    yield "weight decay", {}, [], Decayed
    yield "rare features shrunk", {}, [], RareShrunk
    yield "frequent classes dealt apart", {}, [(hashing, "codes", dealt(dataset))], Change
    for b, r in ((256, 4), (128, 8), (32, 32), (16, 64)):
        yield f"{b} x {r}", {"plan": {"n_buckets": b, "n_repetitions": r}}, [], Change


def main():
    """Train every candidate and write the figures after each."""
    parser = machine_facts.parser(__doc__)
    parser.add_argument("train")
    parser.add_argument("validation")
    parser.add_argument("--name", required=True)
    parser.add_argument("--transform", default="binary")
    parser.add_argument("--learning-rate", type=float, default=0.5)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    path = Path(given.json) if given.json else None
    results = json.loads(path.read_text()) if path is not None and path.exists() else {}
    found = results.setdefault(given.name, {})
    with Dataset.open(given.train) as data, Dataset.open(given.validation) as other:
        rows = finished(
            other.rows(0, min(20_000, other.n_rows)), data.features.ids_of(other.features),
            data.labels.ids_of(other.labels),
        )  # fmt: skip
        for name, options, patches, change in candidates(given.learning_rate, data):
            if name not in found:
                found[name] = run_one(given, data, rows, options, patches, change(data))
            print(
                f"{given.name}  {name:<36} P@1 {found[name][0]:.4f}  P@5 {found[name][1]:.4f}",
                flush=True,
            )
            if path is not None:
                results["machine"] = machine_facts.facts()
                path.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
