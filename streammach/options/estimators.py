"""The estimators by name: how the values of a class's buckets become its score, on every device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the commands' options need the names alone
    import numpy as np
    from numpy.typing import NDArray

    from streammach.options.model_spec import ModelSpec

    Array = NDArray[np.float32]
    Sums = Array | np.float32

SUM, MINIMUM, MEDIAN = range(3)  # branches of kernels: what is ranked by


@dataclass(frozen=True, kw_only=True)
class EstimatorKind:
    """An estimator, as it is registered."""

    name: str  # in options, results and models
    logarithms: bool = False  # whether it is given logarithms of bucket probabilities, not these
    branch: int = -1  # in the kernels of all devices; -1 where `join` does its work
    # Returns float32 (n,) for the values float32 (n, R) of n classes.
    join: Callable[[Array], Array] | None = None
    # Returns the scores for those that were ranked by, float32 (n, k), the model, and what the
    # probabilities of a repetition add up to: 1, or float32 (n, 1).
    finished: Callable[[Array, ModelSpec, Sums], Array] = lambda scores, spec, totals: scores
    unbiased: bool = False  # whether it asks for these sums


def _means(sums: Array, spec: ModelSpec, totals: Sums) -> Array:
    return sums / sums.dtype.type(spec.n_repetitions)


def _remove_bias(sums: Array, spec: ModelSpec, totals: Sums) -> Array:
    """Return ``B / (B - 1) (mean_r P_r[h_r(i)] - 1 / B)`` (Huang et al., equation 2).

    Where each bucket has a sigmoid of its own, a class shares its bucket with 1 / B of what all
    labels of the row have, S on average: ``B / (B - 1) (mean_r P_r[h_r(i)] - S / B)``.
    """
    means = _means(sums, spec, totals)
    if spec.exact:
        return means
    b = means.dtype.type(spec.n_buckets)
    unbiased: Array = b / (b - 1) * (means - totals / b)
    return unbiased


ESTIMATORS: dict[str, EstimatorKind] = {
    kind.name: kind
    for kind in (
        EstimatorKind(name="mean", branch=SUM, finished=_remove_bias, unbiased=True),
        EstimatorKind(name="min", branch=MINIMUM),
        EstimatorKind(name="median", branch=MEDIAN),
        EstimatorKind(name="logsum", branch=SUM, logarithms=True, finished=_means),
    )
}
USUAL = "logsum"  # ranks unless another is better
BLEND = "blend"  # counts and hashed models together


def estimators() -> list[str]:
    """Return the names, the usual one first."""
    return [USUAL, *sorted(ESTIMATORS.keys() - {USUAL})]


def rankers() -> list[str]:
    """Return the names of all ways to rank classes."""
    return [BLEND, *estimators()]


def check_rankers(*names: str) -> None:
    """Refuse names of no way to rank classes, or raise ValueError."""
    for name in names:
        if name not in rankers():
            raise ValueError(f"there is no estimator '{name}'")
