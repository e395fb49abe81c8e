"""streammach within a memory budget, everything else by default; and MACH alone."""

import os
from functools import partial

import numpy as np

from benchmarks.peers.task import K, System, folder_bytes
from streammach.options.training import TrainingOptions
from streammach.rows.canonical import canonicalize
from streammach.store.dataset import Dataset

MEMORY = "2GB"
SETTINGS = f"--memory {MEMORY}, defaults; trained from the store, search of settings included"


def train(task, **options):
    import streammach as sm

    held_out_by = os.environ.get("PEERS_HOLD_OUT_BY") or None
    with task.measured():
        plan = sm.plan(task.train_store, memory=MEMORY, threads=task.threads, **options)
        run = sm.Trainer(plan, TrainingOptions(hold_out_by=held_out_by)).fit(
            task.train_store, task.folder / "run"
        )
    return run.model


def predict(model, task):
    import streammach as sm

    with Dataset.open(task.test_store) as other, sm.Predictor(model, threads=task.threads) as use:
        rows = canonicalize(
            other.rows(0, len(task.y_test)), model.features.ids_of(other.features),
            model.labels.ids_of(other.labels),
        )  # fmt: skip
        use.rank(rows.part(0, min(10, rows.n_rows)), K)  # compiled or loaded before the clock
        with task.measured("predict"):
            ids, _ = use.rank(rows, K)
    return np.asarray(ids)


def size(model, task):
    return folder_bytes(task.folder / "run" / "model")


SYSTEMS = {
    "streammach_full": System(
        "streammach", "streammach", SETTINGS, train, predict, size, lists=True
    ),
    "streammach_plain": System(
        "streammach --counts off", "streammach",
        f"{SETTINGS}; dense rows also --closed-form off and --whitening off",
        partial(train, counts="off", closed_form="off", whitening="off"), predict, size, lists=True,
    ),
}  # fmt: skip
