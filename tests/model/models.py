"""Models for tests: of random arrays, with or without counts."""

import numpy as np

from streammach.linear.late import LateLabels
from streammach.linear.weights import LinearWeights
from streammach.model.calibration import Calibration
from streammach.model.model import Model
from streammach.options.model_spec import ModelSpec
from streammach.rows.layouts import ends
from streammach.rows.names import Names
from streammach.rows.neighbours import Neighbours
from streammach.rows.pairs import CountWeights
from tests.builders import spec_of, training


def counts_of(rng, d=12, k=30, *, longest=5, n_wide=2):
    """Counts with short lists, and gains for all classes of the last features."""
    lengths = rng.integers(0, longest, d)
    lengths[d - n_wide :] = 0
    lists = [np.sort(rng.choice(k, n, replace=False)) for n in lengths]
    penalty, base, log_values = (rng.normal(size=n).astype(np.float32) for n in (d, k, k))
    return CountWeights(
        starts=ends(lengths), classes=np.concatenate(lists).astype(np.int32),
        gains=(32 * rng.integers(-9, 99, lengths.sum())).astype(np.int16),
        wide_of=np.array([*[-1] * (d - n_wide), *range(n_wide)], np.int32),
        wide=(32 * rng.integers(-9, 99, (n_wide, k))).astype(np.int16),
        penalty=penalty, base=base, log_values=log_values, hashed=2.0,
    )  # fmt: skip


def model_of(rng, d=12, k=30, n_buckets=8, n_repetitions=3, **changes):
    """A model; with counts it ranks by both, without repetitions by counts alone."""
    columns, spec = n_buckets * n_repetitions, spec_of(k, d, n_buckets, n_repetitions or 1)
    fields = {
        "spec": spec if columns else ModelSpec.unhashed_of(spec.shape),
        "training": training(), "dense": False,
        "estimator": "logsum" if changes.get("counts") is None else "blend",
        "calibration": Calibration(1.5, -3.0), "store": "digest", "majority": 2, "validation": {},
        "labels": Names.of(f"label {i}" for i in range(k)),
        "features": Names.of(f"f{i}" for i in range(d)),
        "weights": rng.normal(size=(d, columns)).astype(np.float32),
        "bias": np.arange(columns, dtype=np.float32),
    }  # fmt: skip
    return Model(**{**fields, **changes})


def near_of(rng, d=12, k=30, n=9, weight=1.5):
    """Training rows beside counts: some features in some rows, a few labels each."""
    lists = [np.flatnonzero(rng.random(n) < 0.3) for _ in range(d)]
    labels = [np.sort(rng.choice(k, 3, replace=False)) for _ in range(n)]
    return Neighbours(
        starts=ends(np.array([len(own) for own in lists])),
        rows=np.concatenate(lists).astype(np.int32),
        norms=rng.uniform(0.1, 0.3, n).astype(np.float16).astype(np.float32),
        label_starts=ends(np.full(n, 3)), labels=np.concatenate(labels).astype(np.int32),
        weight=weight,
    )  # fmt: skip


def linear_of(rng, d=12, k=30, *, valued=False):
    """Linear classifiers with a few weights a feature; the first feature does not count."""
    lists = [np.flatnonzero(rng.random(k) < 0.3) for _ in range(d)]
    weights = rng.normal(size=sum(map(len, lists))).astype(np.float16)
    scale = rng.uniform(0.5, 2, d) if valued else np.arange(d) > 0
    return LinearWeights(
        starts=ends(np.array([len(own) for own in lists])),
        classes=np.concatenate(lists).astype(np.int32), weights=weights.astype(np.float32),
        scale=scale.astype(np.float16).astype(np.float32), valued=valued,
        bias=rng.normal(size=k).astype(np.float32), empty=np.zeros(k, np.float32),
    )  # fmt: skip


def late_of(rng, d=12, k=30, weight=1.5):
    """Classifiers that score the best classes again."""
    return LateLabels(**vars(linear_of(rng, d, k)), weight=weight)
