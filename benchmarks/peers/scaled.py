"""Features scaled by the group weights that streammach fits to its counts on held-out rows."""

import os
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import scipy.sparse

from benchmarks.peers.task import tree_features, unit_rows
from streammach.options.training import TrainingOptions
from streammach.parts.counts import fitting

WHAT = (
    "its features times the weight of being counted of the feature's group, as streammach fits it "
    "(counts alone, by namespace or frequency; the fit is not in the time), in rows of length 1"
)
MEMORY, SHAPE = "2GB", {"n_buckets": 32, "n_repetitions": 4}  # hashed models only propose classes
LEAST = 0.05  # of the largest weight: none below, so that no feature is lost


class Fitted(Exception):
    """The weights are known: the rest of the run is not needed."""


def with_scaled(system, called):
    return replace(
        system, name=f"{system.name}, scaled", settings=f"as {called}, on {WHAT}",
        train=partial(system.train, features=scaled_features),
        predict=partial(system.predict, features=scaled_features),
    )  # fmt: skip


def scaled_features(task, x):
    """Return the features that tree learners are given, scaled, in rows of length 1."""
    scale = _kept(task)
    base = tree_features(task, x)
    data = base.data * scale[base.indices]
    return unit_rows(scipy.sparse.csr_matrix((data, base.indices, base.indptr), shape=base.shape))


def _kept(task):
    """Return the scales, fitted once a store: other processes find them in a file."""
    folder = Path(os.environ.get("PEERS_SCALES", tempfile.gettempdir()))
    path = folder / f"streammach-scales-{task.train_store.stem}.npy"
    if not path.exists():
        np.save(path, _scales(task))
    return np.load(path)


def _scales(task):
    """Return each feature's weight (d,), the largest of them 1, of a run on the store."""
    import streammach as sm

    if sm.plan(task.train_store, memory=MEMORY).config.size_of("counts") == 0:
        raise SystemExit("dense rows have no counts, and so no group weights to scale by")
    group, match = _group_weights(task, sm)
    weight = np.maximum(match, LEAST * match.max())[group]
    return (weight / weight.max()).astype(np.float32)


def _group_weights(task, sm):
    """Return each feature's group and each group's weight, as counts alone get them."""
    found, fit = [], fitting.fit_groups

    def watched(*given, hashed, **options):
        weights = fit(*given, hashed=hashed, **options)
        if not hashed:
            found.append(weights)
            raise Fitted
        return weights

    fitting.fit_groups = watched
    plan = sm.plan(task.train_store, threads=task.threads, **SHAPE)
    held_out_by = os.environ.get("PEERS_HOLD_OUT_BY") or None
    options = TrainingOptions(
        epochs=1, learning_rate=0.5, transform="binary", hold_out_by=held_out_by
    )
    try:
        sm.Trainer(plan, options).fit(task.train_store, task.folder / "scales")
    except Fitted:
        return found[0].group, found[0].match
    finally:
        fitting.fit_groups = fit
    raise SystemExit("this run fits no group weights to scale by")
