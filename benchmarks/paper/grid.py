"""Trains plain MACH for one B, and measures its first repetitions as models of their own.

A repetition is trained by itself: its hash, its columns of the table, its sums of squares and its
loss touch those of no other repetition. The first r repetitions of a model are therefore, to the
byte, the model that the same hashes and settings give for R = r, and one training per B gives all
its R. What they share is the learning rate, the transform and the epoch that were chosen on
held-out rows for the largest R.
"""

import shutil

import msgspec

import streammach as sm
from benchmarks.paper.estimators import compare
from streammach.errors import BudgetError, UsageError, clean
from streammach.machine import parse_size, size_text
from streammach.spec.training import TrainingOptions

REPETITIONS = (1, 2, 4, 8, 16, 32, 64)


def parse(text):
    """Return ``4x32,32x25`` as a list of (B, R)."""
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
    """Train a model without counts or closed form in a folder, or go on with it.

    Parameters
    ----------
    store : Path
        The training store.
    folder : Path
        The run.
    options : Namespace
        ``memory``, ``threads`` and ``epochs``.
    **shape : int or bool
        ``n_buckets`` and ``n_repetitions``, or ``exact``.

    Returns
    -------
    Run
        The finished run.

    Raises
    ------
    BudgetError
        If the training would need more than ``memory``.
    """
    plan = sm.plan(
        store,
        counts="off",
        closed_form="off",
        whitening="off",
        loss="independent",
        threads=options.threads,
        **shape,
    )
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
        "buckets": plan.n_buckets,
        "repetitions": plan.n_repetitions,
        "transform": chosen.transform,
        "learning_rate": chosen.learning_rate,
        "epochs": len(epochs),
        "best_epoch": result.best_epoch + 1,
        "rows_per_second": sum(epochs) / len(epochs),
        "epoch_seconds": sum(rows / speed for speed in epochs),
        "seconds": result.seconds,
        "trials": len(run.settings.trials),
        "projected_bytes": plan.projected_bytes,
        "held_out": msgspec.to_builtins(result.validation),
    }


def trained_and_measured(store, folder, rows, options, **shape):
    """Return the facts of a training with the accuracy of its first repetitions.

    Parameters
    ----------
    store : Path
        The training store.
    folder : Path
        Where the run lies meanwhile; it is removed.
    rows : callable
        Gives a model the test rows with its ids.
    options : Namespace
        Memory, threads, epochs.
    **shape : int or bool
        The model.
    """
    run = train(store, folder, options, **shape)
    model = run.model
    found = facts(run)
    found["points"] = compare(model, rows(model), points(run.plan.n_repetitions), options.threads)
    del model
    shutil.rmtree(folder)
    return found
