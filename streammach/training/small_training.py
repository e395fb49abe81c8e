"""A small training in another process, like one that is to come: it compiles what that will call.

Where there is room it goes on beside that training: one that finds no kernels begins with counts
and comes to the hashed models last; the small one has no counts then, and predicts. So two cores
compile at once, and hardly ever want the same kernel.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from streammach.conversion.memory_rows import collect_rows
from streammach.options.plan import Plan
from streammach.options.training import AUTO, TrainingOptions
from streammach.parts.registry import words_of_plan
from streammach.planning.choose import plan as choose
from streammach.planning.ledger import kernels
from streammach.prediction.predict import predict
from streammach.rows.arrays import csr_array
from streammach.system.jit import TRAINING_COMPILER_BYTES, remember_compiled_work
from streammach.system.rehearsals import compiler
from streammach.training.model_form import LEAST_ROWS
from streammach.training.trainer import Trainer

BYTES = 600_000_000  # of the small training with its compiler: the ledger projects 550 MB at most
CLASSES, FEATURES, VALUES = 300, 300, 8  # more classes than a byte can tell; values of a row
COLUMNS = 24  # of dense rows
MOST_BUCKETS = 1024  # more buckets change no kernel
REPETITIONS = 4
ROOM = 2_000_000_000  # more than it takes to write the rows into a store


def rehearsal(plan: Plan) -> AbstractContextManager[None]:
    """Have kernels that a plan needs compiled in another process, if core and memory are free."""
    config, kind = plan.config, kernels(plan.facts, plan.config)
    needed = plan.projected_bytes + TRAINING_COMPILER_BYTES + BYTES
    place = config.placement
    hashed = place.device == "cpu" and not (config.dense or config.shape.unhashed)
    fits = hashed and place.threads > 1 and needed <= plan.limits.host
    return compiler(f"{__name__}:rehearse", kind, plan, fits=fits)


def rehearse(folder: str, kind: tuple[object, ...], plan: Plan) -> None:
    """Train on a few rows, predict a few lines of text; remember that it was done for a kind."""
    train_few(folder, kind, plan, TrainingOptions(), counts="off")
    text, value = Path(folder, "few.vw"), 1 if plan.facts.value_bytes == 1 else 0.3
    text.write_text("".join(f"| {2 * i + 1}:{value} {i}\n" for i in range(VALUES)))
    predict(Path(folder, "run"), text, text.with_name("said.tsv"), threads=1)
    remember_compiled_work("rehearsal", *kind)


def train_few(
    folder: str, kind: tuple[object, ...], plan: Plan, options: TrainingOptions, **parts: str
) -> None:
    """Train on a few random rows in a folder, as a plan says; words about its parts come first."""
    del kind
    said = {"linear": "on"} if plan.config.linear else dict(words_of_plan(plan.config)) | parts
    fixed, held = fixed_of(plan) | said, plan.facts.held_bytes > 0
    by = options.hold_out_by if options.hold_out_by == AUTO else None  # rows have no namespaces
    epochs = None if plan.config.linear else 1
    options = replace(options, epochs=epochs, validation=None, hold_out_by=by)
    data = collect_rows(*few_rows(plan))
    with closing(data.to_dataset() if held else data.write_store(Path(folder), ROOM)) as dataset:
        Trainer(choose(dataset, **fixed), options).fit(dataset, Path(folder, "run"))


def fixed_of(plan: Plan) -> dict[str, Any]:
    """Return what is fixed of the plan of a small training like one with a plan."""
    shape, config = plan.config.shape, plan.config
    usual = {"device": "cpu", "threads": min(config.placement.threads, 2)}
    if plan.config.linear:
        return usual
    if shape.unhashed:
        fixed: dict[str, Any] = {"n_repetitions": 0}
    elif shape.exact:
        fixed = {"exact": True}
    else:
        fixed = {"n_buckets": _buckets(plan), "n_repetitions": REPETITIONS}
    fixed |= {"hashed_features": FEATURES // 2} if shape.cut else {}
    return fixed | usual | {"optimizer": config.optimizer, "held_out_rows": LEAST_ROWS}


def few_rows(plan: Plan) -> tuple[Any, Any, Any]:
    """Return random rows, labels and importances such as those that a plan is for."""
    facts, dense, rng = plan.facts, plan.config.dense, np.random.default_rng(0)
    n_classes = max(CLASSES, 2 * _buckets(plan))
    if plan.config.shape.exact or plan.config.linear:
        n_classes = min(CLASSES, max(facts.n_classes, VALUES))
    n = 2 * max(n_classes, CLASSES)
    d, n_values = (COLUMNS, COLUMNS) if dense else (FEATURES, VALUES)
    values = rng.integers(1, 4, (n, n_values)) * np.float32(1 if facts.value_bytes == 1 else 0.3)
    if dense and not facts.whole:
        values[::2, 0] = 0
    features = np.tile(np.arange(d), n) if dense else rng.integers(0, d, n * n_values)
    rows = csr_array((values.ravel(), features, n_values * np.arange(n + 1)), shape=(n, d))
    rows.eliminate_zeros()
    labels: Any = np.arange(n) % n_classes
    if facts.listed:
        labels = [[x, x // 2] for x in labels.tolist()]
    return rows, labels, rng.random(n) + 1 if facts.weighted else None


def _buckets(plan: Plan) -> int:
    shape = plan.config.shape
    return 0 if shape.exact or shape.unhashed else min(shape.n_buckets, MOST_BUCKETS)
