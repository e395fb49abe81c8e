"""Whole trainings of an estimator: what its parameters say of a training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from joblib.parallel import get_active_backend
from sklearn.utils import check_random_state

from streammach.conversion.memory_rows import MemoryRows
from streammach.conversion.request import KnownNames
from streammach.model.model import Model
from streammach.system.errors import UsageError
from streammach.training.run import Run
from streammach.training.trainer import OF_TABLE, train_rows
from streammach.training.warm_start import Start

SAME = (  # parameters that a training has by the same names
    "memory", "n_buckets", "n_repetitions", "epochs", "batch_size", "learning_rate", "device",
    "hold_out_by", "model_size",
)  # fmt: skip
SHAPE = {"n_buckets", "n_repetitions", "exact", "hashed_features"}  # which a start has already
MOST_SEED = 2**31 - 1
Parameters = Mapping[str, Any]


def train_estimator(given: Parameters, data: MemoryRows, model: Model | None) -> Run:
    """Train on rows as :func:`streammach.training.trainer.train` does; labels of a model stay."""
    more = {name: value for name, value in (given["options"] or {}).items() if name not in OF_TABLE}
    if twice := sorted(more.keys() & given.keys()):
        raise UsageError(f"it is a parameter of its own: {twice[0]}: options")
    said = {name: given[name] for name in SAME} | more
    said |= {"seed": seed_of(given["random_state"]), "threads": threads_of(given["n_jobs"]) or None}
    start = None
    if model is not None:
        known = KnownNames(model.labels, model.features, model.store, grows=True)
        data = replace(data, known=known)
        # Without hashed weights as they came, such as by counts alone, all is learnt anew.
        start = Start(model) if not model.spec.unhashed and model.projection is None else None
    if start is not None:  # whose weights are for values as they were transformed
        said = {name: value for name, value in said.items() if name not in SHAPE}
        said |= {"transform": start.model.training.transform} | more
    return train_rows(
        data, said, "MACHClassifier", callbacks=given["callbacks"], progress=given["progress"],
        start=start, known=given,
    )  # fmt: skip


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
    """Return how many threads compute, 0 for all cores: None is that, but 1 in joblib's workers."""
    if n_jobs is None:
        return 1 if getattr(get_active_backend()[0], "nesting_level", 0) else 0
    return int(effective_n_jobs(n_jobs))
