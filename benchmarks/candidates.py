"""Ways to train the hashed models themselves, beside the defaults, at equal columns.

    python -m benchmarks.candidates TRAIN.zarr VALIDATION.zarr --name NAME [--json FILE]

VALIDATION.zarr holds rows cut off the training rows (`streammach convert ... --like TRAIN.zarr`);
no test set is read. Every line is a training without counts, as it is before held-out rows are
learnt from; what changes is named. P@1 and P@5 of log-sum, and processor seconds. What is done
after a training (`benchmarks.changes.AFTER`) is done to the weights of the first line.
"""

import contextlib
import json
import tempfile
import time
from pathlib import Path
from unittest import mock

import streammach as sm
from benchmarks import machine_facts
from benchmarks.changes import AFTER, Averaged, Change, Decayed, Faded, dealt, from_counts
from streammach import hashing
from streammach.backends.cpu import backend as cpu
from streammach.data.store.dataset import Dataset
from streammach.prediction.evaluate import measure
from streammach.prediction.ranking import by_hashes
from streammach.rows.finish import finished
from streammach.training import finish, loop, trainer, trials


class Trained(Exception):
    """A training is over; carries what makes a model from it."""


def run_one(given, dataset, options, patches, change, use):
    """Train without counts; return what `use` makes of the trained weights."""
    plan_options = {
        "n_buckets": given.shape[0], "n_repetitions": given.shape[1], **options.pop("plan", {})
    }  # fmt: skip
    plan = sm.plan(dataset, threads=given.threads, counts="off", **plan_options)
    training = sm.Trainer(
        plan, **{"transform": given.transform, "learning_rate": given.learning_rate,
                 "epochs": given.epochs, "callbacks": [], **options},
    )  # fmt: skip

    def trained(self):
        raise Trained(use(self))

    def steps(backend, reader, spec, epoch, start=0):
        done = 0
        if epoch == 0:
            change.begin(backend, reader)
        for step in real_epoch(backend, reader, spec, epoch, start):
            done += step.n_rows
            change.batch(backend.arrays(), (epoch + done / reader.n_rows) / spec.epochs)
            yield step

    real_epoch = loop.train_epoch
    with contextlib.ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
        stack.enter_context(mock.patch.object(finish.Finish, "model", trained))
        stack.enter_context(mock.patch.object(trainer, "train_epoch", steps))
        for target, name, value in patches:
            stack.enter_context(mock.patch.object(target, name, value))
        try:
            training.fit(dataset, Path(folder) / "run", hold_out_by=given.hold_out_by)
        except Trained as over:
            return over.args[0]
    raise AssertionError("the training did not end")


def figures(finish, rows, ranking=None):
    """Return P@1 and P@5."""
    ranking = ranking or by_hashes(finish.backend, "logsum", finish.training.transform)
    reached = measure(rows, ranking)
    return [reached.p_at_1, reached.p_at_5]


def afterwards(finish, rows, began):
    """Yield (name, figures and seconds) of a training as it is, and of what is done after it."""
    trained = {name: array.copy() for name, array in finish.backend.arrays().items()}
    seconds = time.process_time() - began
    yield "defaults", [*figures(finish, rows), seconds]
    for name, do in AFTER.items():
        began = time.process_time()
        ranking = do(finish)
        more = time.process_time() - began
        yield name, [*figures(finish, rows, ranking), seconds + more]
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
    if not plan.dense:  # counts are of features that a row has or has not
        for share in (0.1, 0.3, 1.0):
            yield f"start from counts x {share:g}", {}, [], from_counts(share)
    for factor in (4, 2, 0.5, 0.25):
        b, r = int(given.shape[0] * factor), int(given.shape[1] / factor)
        yield f"{b} x {r}", {"plan": {"n_buckets": b, "n_repetitions": r}}, [], Change


def options():
    """Return the parsed command line."""
    parser = machine_facts.parser(__doc__)
    parser.add_argument("train")
    parser.add_argument("validation")
    parser.add_argument("--name", required=True)
    parser.add_argument("--shape", default="64x16", help="B x R (64x16)")
    parser.add_argument("--epochs", type=int, help="streammach's default otherwise")
    parser.add_argument("--transform", default="binary")
    parser.add_argument("--learning-rate", type=float, default=0.5)
    parser.add_argument("--hold-out-by")
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
        print(f"{given.name}  {name:<38} " + "  ".join(f"{x:.4f}" for x in reached), flush=True)
        if path is not None:
            results["machine"] = machine_facts.facts()
            path.write_text(json.dumps(results, indent=1) + "\n")

    with Dataset.open(given.train) as data, Dataset.open(given.validation) as other:
        rows = finished(
            other.rows(0, min(20_000, other.n_rows)), data.features.ids_of(other.features),
            data.labels.ids_of(other.labels),
        )  # fmt: skip

        def all_after(done):
            for name, reached in afterwards(done, rows, began):
                add(name, reached)

        plan = sm.plan(data, threads=given.threads, counts="off")
        if not {"defaults", *AFTER} <= set(found):
            began = time.process_time()
            run_one(given, data, {}, [], Change(data), all_after)
        for name, changed, patches, change in candidates(given, plan, data):
            if name in found or name in given.leave_out:
                continue
            began, doing = time.process_time(), change(data)

            def reached(done, doing=doing):
                doing.end(done.backend.arrays())
                return figures(done, rows)

            reached = run_one(given, data, changed, patches, doing, reached)
            add(name, [*reached, time.process_time() - began])


if __name__ == "__main__":
    main()
