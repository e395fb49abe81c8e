"""From the parameters of an estimator to a training: what is fixed, and the run."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from sklearn.utils import check_random_state

from streammach.data.conversion.ranking import Known
from streammach.model.model import Model
from streammach.planning.candidates import MAX_HELD_OUT_ROWS
from streammach.planning.constraints import Constraints
from streammach.rows.names import Names
from streammach.sklearn.rows import Rows
from streammach.spec.plan import Plan
from streammach.spec.training import TrainingOptions
from streammach.training.callbacks import EarlyStopping
from streammach.training.rows import planned
from streammach.training.run import Run
from streammach.training.trainer import Trainer

WITHOUT_PARTS = {"counts": "off", "closed_form": "off", "whitening": "off", "loss": "independent"}
MOST_SEED = 2**31 - 1
Parameters = Mapping[str, Any]


def trained(given: Parameters, rows: Rows, names: Names | None, start: Model | None) -> Run:
    """Plan a model for rows and train it."""
    seed = seed_of(given["random_state"])
    data = rows.labelled(names=names, seed=seed, threads=threads_of(given["n_jobs"]))
    if start is not None:
        known = Known(start.labels.plain(), start.features, start.store, start.columns)
        data = replace(data, known=known)
    with ExitStack() as closing:
        plan, dataset = planned(data, _constraints(given, rows, seed, start), closing)
        plan = plan if start is None else replace(plan, model=start.spec)
        stopping = [EarlyStopping(given["n_iter_no_change"])] if given["early_stopping"] else []
        watching: list[object] = [*stopping, *(given["callbacks"] or [])]
        options = _options(given, rows, plan, seed)
        return Trainer(plan, options, callbacks=watching, start=start).fit(dataset)


def seed_of(random_state: Any) -> int:
    """Return the seed of a `random_state`: 0 for None, drawn from a RandomState."""
    if random_state is None or isinstance(random_state, int | np.integer):
        return int(random_state or 0)
    return int(check_random_state(random_state).randint(MOST_SEED))


def threads_of(n_jobs: int | None) -> int:
    """Return how many threads compute: one where nothing is said."""
    return 1 if n_jobs is None else int(effective_n_jobs(n_jobs))


def _constraints(given: Parameters, rows: Rows, seed: int, start: Model | None) -> Constraints:
    """Return what is fixed of a plan."""
    held_out = 0
    if given["early_stopping"]:
        if not 0 < given["validation_fraction"] < 1:
            raise ValueError("it is no share between 0 and 1: validation_fraction")
        wanted = int(given["validation_fraction"] * rows.targets.n_rows)
        held_out = min(MAX_HELD_OUT_ROWS, max(1, wanted))
    held: int | None = held_out
    parts: dict[str, str] = WITHOUT_PARTS
    if rows.table is not None:  # some rows are held out in any case
        held, parts = held_out or None, {}
    shape = given["n_buckets"], given["n_repetitions"]
    if start is not None:
        spec = start.spec
        shape = (None, None) if spec.exact else (spec.n_buckets, spec.n_repetitions)
    return Constraints.of({
        "memory": given["memory"], "n_buckets": shape[0], "n_repetitions": shape[1],
        "batch_size": given["batch_size"], "device": given["device"],
        "threads": threads_of(given["n_jobs"]), "seed": seed, "held_out_rows": held,
        **parts,
    })  # fmt: skip


def _options(given: Parameters, rows: Rows, plan: Plan, seed: int) -> TrainingOptions:
    """Return what is fixed of a training: all of it, since no rows are held out to choose by.

    Of tables and text some are, and all is chosen that is not given.
    """
    if rows.table is not None:
        return TrainingOptions(
            epochs=given["epochs"],
            learning_rate=given["learning_rate"],
            seed=seed,
            hold_out_by=given["hold_out_by"],
        )
    scale, optimizer = rows.scale(), plan.config.optimizer_kind.name
    rate = given["learning_rate"] or scale.rate(optimizer)
    return TrainingOptions(
        epochs=given["epochs"], transform="raw", model_size="full", seed=seed, learning_rate=rate,
        epsilon=scale.epsilon(optimizer), hold_out_by=given["hold_out_by"],
    )  # fmt: skip
