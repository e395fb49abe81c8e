"""Trains plain MACH for one B, and measures its first repetitions as models of their own.

A repetition is trained by itself: its hash, its columns of the table, its sums of squares and its
loss touch those of no other repetition. The first r repetitions of a model are therefore, to the
byte, the model that the same hashes and settings give for R = r, and one training per B gives all
its R. What they share is the learning rate, the transform and the epoch that were chosen on
held-out rows for the largest R.
"""

import shutil
import time

import msgspec

import streammach as sm
from streammach.errors import BudgetError, UsageError, clean
from streammach.machine import parse_size, size_text
from streammach.model.shrink import Size, shrink
from streammach.prediction.reached import top_k_hits
from streammach.spec.training import TrainingOptions

REPETITIONS = (1, 2, 4, 8, 16, 32, 64)
ESTIMATORS = {"mean": "unbiased", "median": "median", "min": "min", "logsum": "log-sum"}


def parse(text):
    try:
        pairs = [tuple(int(n) for n in part.split("x")) for part in text.split(",")]
        if any(len(pair) != 2 or pair[0] < 2 or pair[1] < 1 for pair in pairs):
            raise ValueError
    except ValueError:
        raise UsageError(
            f"'{clean(text)}' is not a list like 8x25,32x25 (buckets x repetitions): --grid"
        ) from None
    return pairs


def points(n_repetitions):
    """Return the R that are measured: a few below the largest, and the largest."""
    return [*(r for r in REPETITIONS if r < n_repetitions), n_repetitions]


def train(store, folder, options, **shape):
    """Train a model without counts or closed form in a folder, or go on with it; return the run.

    `shape` is ``n_buckets`` and ``n_repetitions``, or ``exact``. What would need more than
    ``options.memory`` is refused.
    """
    plan = sm.plan(
        store, counts="off", closed_form="off", whitening="off", loss="independent",
        threads=options.threads, **shape,
    )  # fmt: skip
    if plan.projected_bytes > parse_size(options.memory):
        raise BudgetError(
            f"{plan.n_buckets} x {plan.n_repetitions} needs {size_text(plan.projected_bytes)}",
            path="--memory",
            hint=f"Ask for fewer repetitions, or allow more than {options.memory}.",
        )
    training = TrainingOptions(epochs=options.epochs, model_size="full")  # of all repetitions
    trainer = sm.Trainer(plan, training, checkpoint_minutes=5)
    return trainer.fit(store, folder, resume=True)


def facts(run):
    """Return what a run's training was and took, JSON-ready."""
    plan, chosen, result = run.plan, run.settings.training, run.result
    rows = plan.facts.n_rows - plan.config.batching.held_out_rows
    epochs = [entry.rows_per_second for entry in result.history]
    return {
        "buckets": plan.n_buckets, "repetitions": plan.n_repetitions,
        "transform": chosen.transform, "learning_rate": chosen.learning_rate,
        "epochs": len(epochs), "best_epoch": result.best_epoch + 1,
        "rows_per_second": sum(epochs) / len(epochs),
        "epoch_seconds": sum(rows / speed for speed in epochs), "seconds": result.seconds,
        "trials": len(run.settings.trials), "projected_bytes": plan.projected_bytes,
        "held_out": msgspec.to_builtins(result.validation),
    }  # fmt: skip


def compare(model, rows, repetitions, threads):
    """Return what each estimator reaches with the first r repetitions of a model without counts.

    `rows` are labelled rows with the model's ids; a label of -1 counts as wrong. For each r there
    are the bytes of its weights, and by estimator both accuracies and microseconds a row.
    """
    found = []
    for r in repetitions:
        whole = r == model.spec.n_repetitions
        part = model if whole else shrink(model, Size("float32", n_repetitions=r, n_pairs=0))
        n_bytes = part.weights.nbytes + part.bias.nbytes
        names = ESTIMATORS if r > 1 else {"mean": "", "logsum": ""}  # one repetition: all the same
        point = {"repetitions": r, "bytes": n_bytes}
        for name in names:
            point[name] = measured(part, rows, name, threads)
        found.append(point)
    return found


def measured(model, rows, estimator, threads):
    with sm.Predictor(model, estimator=estimator, threads=threads) as predictor:
        predictor.topk_ids(rows.part(0, min(10, rows.n_rows)), 5)  # loaded before the clock
        began = time.monotonic()
        ids, _ = predictor.topk_ids(rows, 5)
        seconds = time.monotonic() - began
    return {
        "p_at_1": top_k_hits(ids, rows.classes, 1) / rows.n_rows,
        "p_at_5": top_k_hits(ids, rows.classes, 5) / rows.n_rows,
        "microseconds": 1e6 * seconds / rows.n_rows,
    }


def trained_and_measured(store, folder, rows, options, **shape):
    """Return the facts of a training with the accuracy of its first repetitions.

    The run lies in a folder, which is removed; `rows` gives a model the test rows with its ids.
    """
    run = train(store, folder, options, **shape)
    model = run.model
    found = facts(run)
    found["points"] = compare(model, rows(model), points(run.plan.n_repetitions), options.threads)
    del model
    shutil.rmtree(folder)
    return found
