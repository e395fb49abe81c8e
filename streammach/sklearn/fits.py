"""Whole trainings of an estimator, and what its parameters say."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from sklearn.utils import check_random_state

from streammach.data.conversion.request import Known
from streammach.planning.candidates import MAX_HELD_OUT_ROWS
from streammach.planning.constraints import Constraints
from streammach.progress import ProgressBar
from streammach.rows.names import Names
from streammach.sklearn.rows import Rows
from streammach.spec.model_spec import ModelShape
from streammach.spec.plan import Plan
from streammach.spec.training import TrainingOptions
from streammach.training.callbacks import EarlyStopping, Progress
from streammach.training.onward import Start
from streammach.training.run import Run
from streammach.training.trainer import Trainer, planned

WITHOUT_PARTS = {"counts": "off", "closed_form": "off", "whitening": "off", "loss": "independent"}
MOST_SEED = 2**31 - 1
Parameters = Mapping[str, Any]


def trained(
    given: Parameters, rows: Rows, names: Names | None, start: Start | None, n_classes: int
) -> Run:
    """Plan a model for rows and train it; words of text that are new to `start` are taken in."""
    seed = seed_of(given["random_state"])
    data = rows.labelled(names=names, seed=seed, threads=threads_of(given["n_jobs"]))
    if start is not None:
        model, grows = start.model, rows.table is not None
        known = Known(model.labels, model.features, model.store, model.columns, grows)
        data = replace(data, known=known)
    with ExitStack() as closing:
        spec = None if start is None else start.spec(n_classes, 0)
        plan, dataset = planned(data, _constraints(given, rows, seed, spec), closing)
        if start is not None:
            plan = replace(plan, model=start.spec(n_classes, dataset.n_features))
        stopping = [EarlyStopping(given["n_iter_no_change"])] if given["early_stopping"] else []
        watching: list[object] = [*stopping, *(given["callbacks"] or [])]
        if given["progress"]:
            bar = closing.enter_context(ProgressBar(given["progress"], ""))
            watching.append(Progress(bar=bar))
        options = _options(given, rows, plan, seed)
        return Trainer(plan, options, callbacks=watching, start=start).fit(dataset)


def parameters_of(estimator: Any) -> Parameters:
    """Return the parameters of an estimator; numbers of NumPy, as of a grid, as Python's."""
    given = estimator.get_params(deep=False).items()
    return {name: x.item() if isinstance(x, np.generic) else x for name, x in given}


def seed_of(random_state: Any) -> int:
    """Return the seed of a `random_state`: 0 for None, drawn from a RandomState."""
    if random_state is None or isinstance(random_state, int | np.integer):
        return int(random_state or 0)
    return int(check_random_state(random_state).randint(MOST_SEED))


def threads_of(n_jobs: int | None) -> int:
    """Return how many threads compute: one where nothing is said."""
    return 1 if n_jobs is None else int(effective_n_jobs(n_jobs))


def _constraints(given: Parameters, rows: Rows, seed: int, start: ModelShape | None) -> Constraints:
    held_out = 0
    if given["early_stopping"]:
        if not 0 < given["validation_fraction"] < 1:
            raise ValueError("it is no share between 0 and 1: validation_fraction")
        wanted = int(given["validation_fraction"] * len(rows.targets.lists))
        held_out = min(MAX_HELD_OUT_ROWS, max(1, wanted))
    held: int | None = held_out
    parts: dict[str, str] = WITHOUT_PARTS
    if rows.table is not None:  # some rows are held out in any case
        held, parts = held_out or None, {}
    shape = given["n_buckets"], given["n_repetitions"]
    if start is not None:
        shape = start.n_buckets, start.n_repetitions
    return Constraints.of({
        "memory": given["memory"], "n_buckets": shape[0], "n_repetitions": shape[1],
        "batch_size": given["batch_size"], "device": given["device"],
        "threads": threads_of(given["n_jobs"]), "seed": seed, "held_out_rows": held,
        "hashed_features": start.n_hashed_features if start is not None and start.cut else None,
        **parts,
    })  # fmt: skip


def _options(given: Parameters, rows: Rows, plan: Plan, seed: int) -> TrainingOptions:
    """Return what is fixed of a training: all of it, since no rows are held out to choose by.

    Of tables and text some are, and all is chosen that is not given.
    """
    if rows.table is not None:
        return TrainingOptions(
            epochs=given["epochs"], learning_rate=given["learning_rate"], seed=seed,
            hold_out_by=given["hold_out_by"],
        )  # fmt: skip
    scale, optimizer = rows.scale(), plan.config.optimizer_kind
    rate = given["learning_rate"] or optimizer.usual_rate(*scale)
    return TrainingOptions(
        epochs=given["epochs"], transform="raw", model_size="full", seed=seed, learning_rate=rate,
        epsilon=optimizer.epsilon(scale.value), hold_out_by=given["hold_out_by"],
    )  # fmt: skip
