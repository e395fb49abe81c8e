"""What every device's optimisers share: the state they keep, and the numbers of a step."""

from __future__ import annotations

from streammach.spec.model import ModelShape
from streammach.spec.training import TrainSpec
from streammach.spec.types import Optimizer

ADAM_DECAYS = (0.9, 0.99)


def state_shapes(spec: ModelShape, optimizer: Optimizer) -> dict[str, tuple[int, ...]]:
    """Return the shapes of an optimiser's float32 arrays, by their names in a checkpoint.

    Parameters
    ----------
    spec : ModelSpec
        The model.
    optimizer : str
        ``adagrad`` keeps a sum for each (feature, model), ``adam`` two moments of each weight.
    """
    d, columns, models = spec.n_features, spec.n_columns, spec.n_repetitions
    if optimizer == "sgd":
        return {}
    if optimizer == "adagrad":
        return {"first": (d, models), "bias_first": (1, models)}
    tables = {"first": (d, columns), "second": (d, columns)}
    return {**tables, "bias_first": (1, columns), "bias_second": (1, columns)}


def corrected(training: TrainSpec, rate: float, steps: int) -> tuple[float, float]:
    """Return the rate and the epsilon of a step, Adam's corrections of its first steps included.

    Parameters
    ----------
    training : TrainSpec
        Optimiser and epsilon.
    rate : float
        The learning rate.
    steps : int
        Number of the step, from 1.
    """
    if training.optimizer != "adam":
        return rate, training.epsilon
    slow = (1 - ADAM_DECAYS[1] ** steps) ** 0.5
    return rate * slow / (1 - ADAM_DECAYS[0] ** steps), training.epsilon * slow
