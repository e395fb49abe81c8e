"""How the values of a class's buckets become its score, on every device."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streammach.spec.model import ModelSpec
from streammach.spec.types import Estimator

SUM, MINIMUM, MEDIAN = range(3)  # what is ranked by
KINDS: dict[Estimator, int] = {"mean": SUM, "logsum": SUM, "min": MINIMUM, "median": MEDIAN}


def estimates(
    scores: NDArray[np.float32], spec: ModelSpec, estimator: Estimator
) -> NDArray[np.float32]:
    """Return what an estimator says, from the numbers that were ranked: float32 (n, k).

    Parameters
    ----------
    scores : float32 (n, k)
        Sums over the repetitions, or their minimum or median.
    spec : ModelSpec
        The model.
    estimator : str
        The estimator.
    """
    if estimator in ("min", "median"):
        return scores
    means = scores / np.float32(spec.n_repetitions)
    if estimator == "logsum" or spec.exact:
        return means
    b = np.float32(spec.n_buckets)
    return b / (b - 1) * (means - 1 / b)
