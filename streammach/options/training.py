"""How a model is trained: what the user left open, and what was decided."""

from __future__ import annotations

import math
import os
import sys
from dataclasses import dataclass, replace

from streammach.options.annotated import check_record
from streammach.options.optimizers import OPTIMIZERS, OptimizerKind, check_optimizer
from streammach.options.option_fields import add_attributes, option
from streammach.options.types import (
    MOST,
    Amount,
    Count,
    LabelShare,
    LossKind,
    Optimizer,
    Share,
    Size,
    Transform,
)
from streammach.system.errors import UsageError, clean
from streammach.system.machine import parse_size

AUTO, RANDOM = "auto", "random"  # by what rows are held out, beside a namespace
SIZES = ("auto", "full")  # of a model, or bytes
PROPENSITY = "propensity"
AIMS = ("precision", PROPENSITY)  # what choices go by where rows have lists of labels
LABEL_LOSSES = ("auto", "logistic", "shared", "each")  # of rows with lists of labels
TRANSFORMS: tuple[Transform, ...] = ("raw", "binary", "log1p", "l2")
MAX_FLOAT, BELOW_ONE = sys.float_info.max, math.nextafter(1.0, 0.0)
TOO_FEW_ROWS = "the number of rows is below 0"


@add_attributes
@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """What the user fixed of a training, and what is left to held-out rows."""

    epochs: int | None = option(
        None, "Passes over the rows.", "E", usual="5; dense 12", least=0,
        fault="at least one epoch is needed",
        more="0 leaves the closed form of dense rows alone.",
    )  # fmt: skip
    learning_rate: float | None = option(
        None, "Rate at the start.", "X", usual="searched", least=0, above=True, most=MAX_FLOAT,
        fault="the learning rate is not a number above 0",
    )  # fmt: skip
    transform: str = option(
        "auto", "What is done to a row's values.", words=("auto", *TRANSFORMS),
        more="With ``auto`` it is searched.",
    )  # fmt: skip
    label_smoothing: float | None = option(
        None, "Share of the target spread over all buckets.", "X", usual="0.1; dense 0",
        least=0, most=BELOW_ONE, fault="the label smoothing is not from 0 to below 1",
    )  # fmt: skip
    epsilon: float | None = option(
        None, "What the optimiser adds below its fraction bar.", usual="chosen for the rows",
        least=0, above=True, most=MAX_FLOAT, fault="epsilon is not a number above 0", python=True,
    )  # fmt: skip
    last_passes: int = option(
        2, "Passes over the held-out rows when all choices are made, where Adagrad trains.",
        least=0, fault="the number of last passes is below 0", python=True,
    )  # fmt: skip
    seed: int = option(
        0, "Decides the order of the rows and the groups held out.", least=0, most=MOST,
        fault="the seed is not an integer from 0 to 2^63 - 1", python=True,
    )  # fmt: skip
    validation: str | None = option(None, "Store of held-out rows.", "STORE")
    hold_out_by: str | None = option(
        AUTO, "Hold out rows that share a feature of this namespace; 'random' rows; or 'auto': "
        "whole documents where a column looks like their names.", "NAMESPACE",
        more="Without such a column rows are random ones, apart from equal ones. None is "
        "``random``.",
    )  # fmt: skip
    fit_rows: int | None = option(
        None, "Held-out rows that weights of counts are fitted on.", "N",
        usual="all there is time for", least=0, fault=TOO_FEW_ROWS,
    )  # fmt: skip
    pair_rows: int | None = option(
        None, "Rows that weights of pairs are learnt from.", "N",
        usual="while it pays and there is time", least=0, fault=TOO_FEW_ROWS,
    )  # fmt: skip
    judge_rows: int | None = option(
        None, "Held-out rows that judge how small the model may be.", "N",
        usual="10,000, or 1,000 where time is short", least=0, fault=TOO_FEW_ROWS,
    )  # fmt: skip
    label_loss: str = option(
        "auto", "Of rows with several labels: a sigmoid a bucket, or a softmax whose target they "
        "share or have in full each.", words=LABEL_LOSSES,
        more="With ``auto`` held-out rows say.",
    )  # fmt: skip
    optimise: str = option(
        AIMS[0], "Of rows with several labels: what choices go by, P@k, or PSP@5, where rare "
        "labels count more.", words=AIMS,
    )  # fmt: skip
    model_size: str = option(
        "auto", "auto: the smallest form of the model that held-out rows say is free; full: "
        "float32 weights and all that was learnt; or most bytes, such as 100MB.",
        "auto|full|SIZE",
    )  # fmt: skip

    def __post_init__(self) -> None:
        if isinstance(self.validation, os.PathLike):
            object.__setattr__(self, "validation", os.fspath(self.validation))
        check_record(self)
        object.__setattr__(self, "hold_out_by", self.hold_out_by or RANDOM)
        if self.validation is not None and self.hold_out_by != AUTO:
            raise UsageError("--validation and --hold-out-by exclude one another")
        if self.model_size not in SIZES:
            try:
                parse_size(self.model_size)
            except UsageError:
                raise UsageError(
                    f"'{clean(self.model_size)}' is not auto, full or a size such as 100MB: "
                    "--model-size"
                ) from None

    @property
    def of_epochs(self) -> str | None:
        """An option that is fixed and that only trainings in epochs have; None without one."""
        usual = TrainingOptions()
        names = (
            "epochs", "learning_rate", "transform", "label_smoothing", "epsilon", "last_passes",
            "fit_rows", "pair_rows", "label_loss",
        )  # fmt: skip
        fixed = (name for name in names if getattr(self, name) != getattr(usual, name))
        return next((f"--{name.replace('_', '-')}" for name in fixed), None)

    @property
    def fixed_transform(self) -> Transform | None:
        """The transform; None where it is searched."""
        return next((known for known in TRANSFORMS if known == self.transform), None)


@dataclass(frozen=True, kw_only=True)
class TrainSpec:
    """How a model is trained."""

    # epochs, batch_size: passes over the rows, 0 without hashed models; rows of a batch at most
    epochs: Count
    batch_size: Size
    learning_rate: Amount  # rate at the start; it falls linearly to 0
    transform: Transform  # what happens to a row's values before they are used
    label_smoothing: Share  # share of the target that is spread evenly over the buckets
    optimizer: Optimizer  # `adagrad` (row-wise), `adam` or `sgd`
    # what the optimiser adds below its fraction bar: to the sum of squares (Adagrad) or to the root
    # of the second moment (Adam)
    epsilon: Amount
    seed: Count  # decides the order of the rows
    # `independent`: each repetition learns the bucket of the row's class. `joint`: all of them
    # learn the class, by the softmax of `(1/R) sum_r ln P_r[h_r(i)]` over the best classes and the
    # row's own. `logistic`: each bucket of a repetition learns on its own, by a sigmoid, whether
    # one of the row's labels is in it (Medini et al., 2019); for rows with lists of labels
    loss: LossKind = "independent"
    whitened: bool = False  # whether dense rows are whitened (:mod:`streammach.parts.whitening`)
    # of random Fourier features beside dense rows (:mod:`streammach.parts.fourier`), in units of
    # the usual distance of two rows; 0 without
    bandwidth: Amount = 0.0
    # where rows have lists of labels: `shared`, the weights of a row's labels add up to 1; `each`,
    # a label weighs 1 however many there are (pick-all-labels: Menon et al., 2019). None where each
    # row has one label
    label_share: LabelShare | None = None
    # labels of a row divided by the buckets, on average, where the loss is logistic: what the bias
    # starts from. Else 0, and the bias starts at 0
    bucket_share: Share = 0.0

    def __post_init__(self) -> None:
        check_optimizer(self.optimizer)

    def rate_at(self, rows_done: int, rows_total: int) -> float:
        """Return the learning rate after some rows of a training: it falls linearly to 0."""
        return self.learning_rate * (1 - rows_done / rows_total)

    @property
    def logistic(self) -> bool:
        """Whether each bucket has a sigmoid of its own, and not the softmax of its repetition."""
        return self.loss == "logistic"

    def with_softmax(self, share: LabelShare, loss: LossKind = "independent") -> TrainSpec:
        """Return it with a softmax over the buckets of a repetition, not a sigmoid each."""
        return replace(self, loss=loss, label_share=share, bucket_share=0.0)

    @property
    def start_bias(self) -> float:
        """What the bias starts at: the log odds of a bucket."""
        share = min(self.bucket_share, 0.5)
        return math.log(share / (1 - share)) if share else 0.0

    @property
    def searched_text(self) -> str:
        """What trials choose of it, for people."""
        more = f", Fourier features of bandwidth {self.bandwidth:g}" if self.bandwidth else ""
        target = ", 1 a label" if self.label_share == "each" and not self.logistic else ""
        return (
            f"{self.transform} values{', whitened' if self.whitened else ''}{more}, "
            f"loss {self.loss}, rate {self.learning_rate:z.3g}{target}"
        )

    @property
    def untrained(self) -> bool:
        """Whether its weights are those of a part, without an epoch; not without hashed models."""
        return not self.epochs and self.learning_rate > 0

    @property
    def text(self) -> str:
        """How a model is trained, for people."""
        if not self.epochs:
            return f"no epochs, {self.transform} values" if self.untrained else "no hashed models"
        return (
            f"{self.optimizer}, {self.searched_text}, smoothing {self.label_smoothing:g}, "
            f"batch {self.batch_size:,}"
        )

    @property
    def optimizer_kind(self) -> OptimizerKind:
        """What is known of the optimiser."""
        return OPTIMIZERS[self.optimizer]
