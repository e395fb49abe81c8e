"""Ways to train the hashed models themselves, beside the defaults, at equal columns.

    python -m benchmarks.candidates TRAIN.zarr VALIDATION.zarr --name NAME [--json FILE]

VALIDATION.zarr holds rows cut off the training rows (`streammach convert ... --like TRAIN.zarr`);
no test set is read. Every line is a training without counts, as it is before held-out rows are
learnt from; what changes is named. P@1 and P@5 of log-sum, and processor seconds of the
training; rate and transform are searched once, for the first line. What is done
after a training (`benchmarks.changes.after`) is done to the weights of the first line.
"""

import contextlib
import json
import tempfile
import time
from pathlib import Path
from unittest import mock

import streammach as sm
from benchmarks import machine_facts
from benchmarks.changes import Averaged, Change, Decayed, Faded, after, dealt, from_counts
from streammach import hashing
from streammach.backends.cpu import backend as cpu
from streammach.data.store.dataset import Dataset
from streammach.prediction.evaluate import measure
from streammach.prediction.ranking import by_hashes
from streammach.rows.finish import finished
from streammach.training import finish, loop, trainer, trials


class Trained(Exception):
    """A training is over; carries what makes a model from it."""


class InMemory:
    """The checkpoint of the best epoch, in memory: files take their time."""

    def __init__(self, folder, identity):
        self.kept = {}

    def newest(self, arrays):
        """Return that there is none."""

    def save(self, progress, arrays):
        """Keep the best epoch."""
        if progress.step == progress.best_step:
            self.kept = {name: array.copy() for name, array in arrays.items()}

    def read(self, step, arrays):
        """Go back to it."""
        for name, array in self.kept.items():
            arrays[name][...] = array


def run_one(given, dataset, options, patches, change, use):
    """Train without counts; return ``use(finish, seconds)`` of the trained weights."""
    plan_options = {
        "n_buckets": given.shape[0], "n_repetitions": given.shape[1], **options.pop("plan", {})
    }  # fmt: skip
    plan = sm.plan(
        dataset, threads=given.threads, counts="off", **{"whitening": False, **plan_options}
    )
    training = sm.Trainer(
        plan, **{"transform": given.transform, "learning_rate": given.learning_rate,
                 "epochs": given.epochs, "callbacks": [], "loss": "apart", **options},
    )  # fmt: skip
    began = 0.0

    def trained(self):
        change.end(self.backend.arrays())
        raise Trained(use(self, time.process_time() - began))

    def steps(backend, reader, spec, epoch, start=0):
        nonlocal began
        done = 0
        if epoch == 0:
            began = time.process_time()
            change.begin(backend, reader)
        for step in real_epoch(backend, reader, spec, epoch, start):
            done += step.n_rows
            change.batch(backend.arrays(), (epoch + done / reader.n_rows) / spec.epochs)
            yield step

    real_epoch = loop.train_epoch
    with contextlib.ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
        stack.enter_context(mock.patch.object(finish.Finish, "model", trained))
        stack.enter_context(mock.patch.object(trainer, "train_epoch", steps))
        stack.enter_context(mock.patch.object(trainer, "Checkpoints", InMemory))
        for target, name, value in patches:
            stack.enter_context(mock.patch.object(target, name, value))
        try:
            training.fit(dataset, Path(folder) / "run", hold_out_by=given.hold_out_by)
        except Trained as over:
            return over.args[0]
    raise AssertionError("the training did not end")


def figures(finish, rows, seconds, ranking=None):
    """Return P@1, P@5 and the seconds."""
    ranking = ranking or by_hashes(finish.backend, "logsum", finish.training.transform)
    reached = measure(rows, ranking)
    return [reached.p_at_1, reached.p_at_5, seconds]


def afterwards(finish, rows, seconds, wanted):
    """Yield (name, figures) of a training as it is, and of what is wanted after it."""
    trained = {name: array.copy() for name, array in finish.backend.arrays().items()}
    yield "defaults", figures(finish, rows, seconds)
    for name, do in after(finish.plan.dense).items():
        if not wanted(name):
            continue
        began = time.process_time()
        ranking = do(finish)
        yield name, figures(finish, rows, seconds + time.process_time() - began, ranking)
        for array, before in trained.items():
            finish.backend.arrays()[array][...] = before


def candidates(given, plan, dataset):
    """Yield (name, options of the trainer, what is replaced, change) of trainings of their own."""
    for seed in (1, 2):  # other hashes and another order: the noise
        yield f"defaults, seed {seed}", {"seed": seed, "plan": {"seed": seed}}, [], Change
    for factor in (0.5, 2.0):
        yield f"rate x {factor:g}", {"learning_rate": given.learning_rate * factor}, [], Change
    flat = [(loop, "rate_at", lambda spec, *_: spec.learning_rate / 2)]
    yield "rate constant at half of the first", {}, flat, Change
    root = [(loop, "rate_at", lambda s, done, all_: s.learning_rate * (1 - done / all_) ** 0.5)]
    yield "rate falling as a square root", {}, root, Change
    epochs = given.epochs or trainer.EPOCHS[plan.dense]
    for n in (round(0.6 * epochs), round(1.6 * epochs)):
        yield f"{n} epochs", {"epochs": n}, [], Change
    for batch in (64, 1024) if plan.dense else (64, 256, 4096):
        yield f"batch {batch}", {"plan": {"batch_size": batch}}, [], Change
    for smoothing in (0.0, 0.1, 0.2):
        if smoothing != trainer.SMOOTHING[plan.dense]:
            name = f"smoothing {smoothing:g}" if smoothing else "no smoothing"
            yield name, {"label_smoothing": smoothing}, [], Change
    if plan.optimizer == "adagrad":
        yield "Adagrad's epsilon 1e-8", {}, [(trials, "prior", lambda *_: 1e-8)], Change
        yield "Adagrad fading", {}, [], Faded
    else:
        yield "Adam's second decay 0.999", {}, [(cpu, "ADAM_DECAYS", (0.9, 0.999))], Change
    yield "weights averaged", {}, [], Averaged
    yield "weight decay", {}, [], Decayed
    yield "frequent classes dealt apart", {}, [(hashing, "codes", dealt(dataset))], Change
    yield "joint loss from the first batch", {"loss": "joint"}, [], Change
    for factor in (0.25, 0.0625) if plan.dense else ():
        name = f"joint loss from the first batch, rate x {factor:g}"
        slower = {"loss": "joint", "learning_rate": given.learning_rate * factor}
        yield name, slower, [], Change
    if plan.dense:
        always = [(trials.Search, "_noise", lambda *_: -1.0)]
        for loss in ("apart", "joint"):
            whitened = {"plan": {"whitening": True}, "loss": loss}
            yield f"whitened rows, {loss} loss", whitened, always, Change
    if not plan.dense:  # counts are of features that a row has or has not
        for share in (0.1, 0.3, 1.0):
            yield f"start from counts x {share:g}", {}, [], from_counts(share)
    for factor in (4, 2, 0.5, 0.25):
        b, r = int(given.shape[0] * factor), int(given.shape[1] / factor)
        yield f"{b} x {r}", {"plan": {"n_buckets": b, "n_repetitions": r}}, [], Change


def table(results):
    """Return the figures of all data sets side by side as Markdown: P@1 / P@5, seconds."""
    sets = [name for name in results if name != "machine"]
    names = dict.fromkeys(n for name in sets for n in results[name] if n != "settings")
    lines = ["| | " + " | ".join(sets) + " |", "|---" * (len(sets) + 1) + "|"]
    for name in names:
        cells = [results[s].get(name) for s in sets]
        shown = [f"{100 * c[0]:.1f} / {100 * c[1]:.1f}" if c else "" for c in cells]
        timed = [f", {c[2]:.0f} s" if c and len(c) > 2 else "" for c in cells]
        row = [a + b for a, b in zip(shown, timed, strict=True)]
        lines.append(f"| {name} | " + " | ".join(row) + " |")
    return "\n".join(lines)


def options():
    """Return the parsed command line."""
    parser = machine_facts.parser(__doc__)
    parser.add_argument("train")
    parser.add_argument("validation")
    parser.add_argument("--name", required=True)
    parser.add_argument("--shape", default="64x16", help="B x R (64x16)")
    parser.add_argument("--epochs", type=int, help="streammach's default otherwise")
    parser.add_argument("--transform", default="auto")
    parser.add_argument("--learning-rate", type=float, help="searched once otherwise")
    parser.add_argument("--hold-out-by")
    parser.add_argument("--only", nargs="*", metavar="CANDIDATE", help="beside the defaults")
    parser.add_argument("--leave-out", nargs="*", default=[], metavar="CANDIDATE")
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    given.shape = tuple(int(n) for n in given.shape.split("x"))
    return given


def main():
    """Train every candidate and write the figures after each."""
    given = options()
    path = Path(given.json) if given.json else None
    results = json.loads(path.read_text()) if path is not None and path.exists() else {}
    found = results.setdefault(given.name, {})

    def add(name, reached):
        found[name] = reached
        print(f"{given.name}  {name}  {reached}", flush=True)
        if path is not None:
            results["machine"] = machine_facts.facts()
            path.write_text(json.dumps(results, indent=1) + "\n")

    def wanted(name):
        asked = given.only is None or name in given.only
        return asked and name not in found and name not in given.leave_out

    with Dataset.open(given.train) as data, Dataset.open(given.validation) as other:
        rows = finished(
            other.rows(0, min(20_000, other.n_rows)), data.features.ids_of(other.features),
            data.labels.ids_of(other.labels),
        )  # fmt: skip

        def first(done, seconds):
            spec = done.training
            add("settings", {
                "rows": data.n_rows, "validation_rows": rows.n_rows, "shape": given.shape,
                "epochs": spec.epochs, "transform": spec.transform, "rate": spec.learning_rate,
                "held_out": done.held.origin,
            })  # fmt: skip
            for name, reached in afterwards(done, rows, seconds, wanted):
                add(name, reached)

        plan = sm.plan(data, threads=given.threads, counts="off")
        if "settings" not in found or any(map(wanted, after(plan.dense))):
            run_one(given, data, {}, [], Change(data), first)
        given.transform = found["settings"]["transform"]
        given.learning_rate = found["settings"]["rate"]
        for name, changed, patches, change in candidates(given, plan, data):
            if wanted(name):
                add(name, run_one(
                    given, data, changed, patches, change(data),
                    lambda done, seconds: figures(done, rows, seconds),
                ))  # fmt: skip
    print(table(results))


if __name__ == "__main__":
    main()
