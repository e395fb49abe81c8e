"""The joint loss: all repetitions learn the class together.

The loss is that of the softmax of ``(1/R) sum_r ln P_r[h_r(i)]`` over the best classes. It pays for
hashed models of dense rows; for sparse rows it is as good as the other and slower.

Where rows have lists of labels, the target is what each label has of it, and the classes are the
best ones and all labels of the row: residuals add up to 0 only over classes that hold the target.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from streammach.options.config import PartPlan, RunConfig
from streammach.options.facts import DataFacts
from streammach.options.training import TrainSpec
from streammach.parts.base import Part
from streammach.parts.expected import RATES, SCORE, WITHOUT, Choice, PartTime
from streammach.parts.switches import SWITCHES
from streammach.parts.training_record import Training, Trials

NAME = "joint"
ROW, MODEL = 8e-6, 0.4e-6  # seconds of a row, and of a repetition of one, that learn jointly


def list_choices(facts: DataFacts, config: RunConfig, *, sure: bool) -> Iterator[Choice]:
    """Yield it where it may pay or is wanted."""
    pays = sure or config.dense
    yield Choice(plan=PartPlan(name=NAME, fixed=sure)) if pays else WITHOUT


def project_time(facts: DataFacts, config: RunConfig) -> PartTime:
    """Return the time of decoding a row in each step."""
    repetitions = config.shape.n_repetitions
    decoded = config.shape.n_classes * repetitions
    return PartTime(own_step=ROW + repetitions * MODEL + SCORE * decoded, trials=RATES)


def search(training: Training, trials: Trials, spec: TrainSpec) -> tuple[TrainSpec, list[str]]:
    """Return the training with the better of two losses, each at its own rate, and why."""
    if spec.loss == "joint" or training.options.label_loss == "logistic":
        return spec, []
    other, reasons = switch_on(spec), list[str]()
    if trials.climbs:
        other, why_rate = trials.choose_rate(other, "learning rate of the joint loss")
        reasons.append(why_rate)
    better, reason = trials.better(spec, other, "loss", (spec.loss, "joint"))
    return other if better else spec, [*reasons, reason]


def switch_on(spec: TrainSpec) -> TrainSpec:
    """Return the training with the joint loss; labels share the target that sigmoids have not."""
    if not spec.logistic:
        return replace(spec, loss="joint")
    return spec.with_softmax("shared", "joint")


PART = Part(
    name=NAME, switch=SWITCHES["joint"], couples=True, find_obstacle=lambda *_: None,
    list_choices=list_choices, project_time=project_time, switch_on=switch_on, search=search,
)  # fmt: skip
