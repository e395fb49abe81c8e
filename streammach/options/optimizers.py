"""The optimisers by name, each a record of all that is asked of it outside compiled kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the commands' options need the names alone
    import numpy as np
    from numpy.typing import NDArray

    from streammach.options.model_spec import ModelShape

    Array = NDArray[np.float32]
    Step = Callable[[Array, Array, Mapping[str, Array], np.float32, np.float32], None]

ADAGRAD, ADAM, SGD = range(3)  # branches of kernels
ADAM_DECAYS = (0.9, 0.99)
EPSILON = 1e-8


@dataclass(frozen=True, kw_only=True)
class OptimizerKind:
    """An optimiser, as it is registered."""

    name: str  # in options, plans and models
    # The rate that a search starts from, for a row's typical value and how many values it has.
    usual_rate: Callable[[float, float], float]
    # What is added below the fraction bar where the user names nothing, for that value.
    epsilon: Callable[[float], float] = lambda value: EPSILON
    # Rate and epsilon of a step, for both as given and its number, from 1.
    corrected: Callable[[float, float, int], tuple[float, float]] = lambda rate, e, step: (rate, e)
    per_model: tuple[str, ...] = ()  # tables with a number for each feature and model
    per_weight: tuple[str, ...] = ()  # those with one for each weight
    gains_by_whitening: bool = False  # whether whitened rows may pay
    # Whether its rates have fallen feature by feature at the end: a few more rows change little.
    settles: bool = False
    branch: int = -1  # in the kernels of all devices; -1 where `step` works, on the CPU alone
    # Changes weights float32 (n, c) in place, for their gradient, its tables by name, rate and
    # epsilon. The tables hold the same rows, for these columns or their models.
    step: Step | None = None

    def shapes(self, spec: ModelShape) -> dict[str, tuple[int, int]]:
        """Return the shapes of its float32 tables for a model, by their names in a checkpoint."""
        widths = dict.fromkeys(self.per_model, spec.n_repetitions)
        widths |= dict.fromkeys(self.per_weight, spec.n_columns)
        tables = {name: (spec.n_features, width) for name, width in widths.items()}
        return tables | {f"bias_{name}": (1, width) for name, width in widths.items()}

    def n_bytes(self, spec: ModelShape) -> int:
        """Return the bytes of these tables."""
        return sum(4 * rows * width for rows, width in self.shapes(spec).values())


def _adam_rates(rate: float, epsilon: float, step: int) -> tuple[float, float]:
    slow = (1 - ADAM_DECAYS[1] ** step) ** 0.5
    return rate * slow / (1 - ADAM_DECAYS[0] ** step), epsilon * slow


# A first step of row-wise Adagrad moves a logit by rate times value, one of Adam by rate times
# value for every value of the row; SGD's depends on the gradient too. The constants of rates are
# the middle of what did best on the data sets measured. Adagrad starts its sum of squares as if one
# gradient of a typical value had been seen, so that a feature with few rows moves less.
OPTIMIZERS: dict[str, OptimizerKind] = {
    kind.name: kind
    for kind in (
        OptimizerKind(
            name="adagrad", usual_rate=lambda value, n: 0.5 / value, epsilon=lambda value: value**2,
            per_model=("first",), settles=True, branch=ADAGRAD,
        ),
        OptimizerKind(
            name="adam", usual_rate=lambda value, n: 1.5 / (n * value), corrected=_adam_rates,
            per_weight=("first", "second"), gains_by_whitening=True, branch=ADAM,
        ),
        OptimizerKind(
            name="sgd", usual_rate=lambda value, n: 1.0 / (n * value * value), branch=SGD
        ),
    )
}  # fmt: skip
USUAL = {False: "adagrad", True: "adam"}  # by dense


def check_optimizer(name: str | None) -> None:
    """Raise ValueError for a name that no optimiser has; None: a model that only predicts."""
    if name is not None and name not in OPTIMIZERS:
        raise ValueError(f"there is no optimizer '{name}'")
