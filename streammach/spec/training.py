"""How a model is trained: what the user left open, and what was decided."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace

from streammach.errors import UsageError, check_word, clean
from streammach.machine import parse_size
from streammach.spec.annotated import check_record
from streammach.spec.optimizers import OPTIMIZERS, OptimizerKind, check_optimizer
from streammach.spec.types import (
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

AUTO, RANDOM = "auto", "random"  # by what rows are held out, beside a namespace
SIZES = ("auto", "full")  # of a model, or bytes
PROPENSITY = "propensity"
AIMS = ("precision", PROPENSITY)  # what choices go by where rows have lists of labels
LABEL_LOSSES = ("auto", "logistic", "shared", "each")  # of rows with lists of labels
TRANSFORMS: tuple[Transform, ...] = ("raw", "binary", "log1p", "l2")


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """What the user fixed of a training, and what is left to held-out rows.

    Attributes
    ----------
    epochs : int, optional
        Passes over the rows; 5 for sparse rows, 12 for dense ones. 0 leaves the closed form of
        dense rows alone.
    learning_rate : float, optional
        The rate at the start; searched otherwise.
    transform : str
        ``raw``, ``binary``, ``log1p``, ``l2``, or ``auto``: searched.
    label_smoothing : float, optional
        Share of the target spread over all buckets; 0.1 for sparse rows, 0 for dense ones.
    epsilon : float, optional
        What the optimiser adds below its fraction bar; chosen for the rows otherwise.
    last_passes : int
        Passes over the held-out rows when all choices are made, where Adagrad trains.
    seed : int
        Decides the order of the rows and the groups held out.
    validation : str, optional
        A store with held-out rows.
    hold_out_by : str
        Which rows of the training store are held out: ``random`` ones; or those that share a
        feature of the namespace of this name; or ``auto``: whole documents, where rows have a
        namespace that looks like their names, else random ones, apart from equal ones. None
        is ``random``.
    fit_rows, pair_rows : int, optional
        Held-out rows that weights of counts are fitted on, and rows that weights of pairs are
        learnt from; as many as pay, and as there is time for, otherwise.
    judge_rows : int, optional
        Held-out rows that judge how small the model may be; 10,000 at most otherwise, and 1,000
        where time is short.
    label_loss : str
        What buckets learn where rows have lists of labels: ``logistic``, a sigmoid each;
        ``shared``, a softmax whose target the labels of a row share; ``each``, a softmax where
        each label weighs 1; or ``auto``: held-out rows say.
    optimise : str
        What choices go by where rows have lists of labels: ``precision`` at 1 and 5, or
        ``propensity``: propensity-scored precision at 5, for which rare labels count more.
    model_size : str
        ``auto``: the smallest form of the model that held-out rows say is free; ``full``: float32
        weights and everything that was learnt; or most bytes of its files, such as ``100MB``.

    Raises
    ------
    UsageError
        If a value is out of its range, or both kinds of held-out rows are named.
    """

    epochs: int | None = None
    learning_rate: float | None = None
    transform: str = "auto"
    label_smoothing: float | None = None
    epsilon: float | None = None
    last_passes: int = 2
    seed: int = 0
    validation: str | None = None
    hold_out_by: str | None = AUTO
    fit_rows: int | None = None
    pair_rows: int | None = None
    judge_rows: int | None = None
    label_loss: str = "auto"
    optimise: str = AIMS[0]
    model_size: str = "auto"

    def __post_init__(self) -> None:
        if isinstance(self.validation, os.PathLike):
            object.__setattr__(self, "validation", os.fspath(self.validation))
        check_record(self)
        check_word(self.transform, ("auto", *TRANSFORMS), "--transform")
        check_word(self.label_loss, LABEL_LOSSES, "--label-loss")
        check_word(self.optimise, AIMS, "--optimise")
        if self.epochs is not None and self.epochs < 0:
            raise UsageError("at least one epoch is needed: --epochs")
        if self.learning_rate is not None and not 0 < self.learning_rate < float("inf"):
            raise UsageError("the learning rate is not a number above 0: --learning-rate")
        if self.label_smoothing is not None and not 0 <= self.label_smoothing < 1:
            raise UsageError("the label smoothing is not from 0 to below 1: --label-smoothing")
        if self.epsilon is not None and not 0 < self.epsilon < float("inf"):
            raise UsageError("epsilon is not a number above 0: --epsilon")
        for name in ("fit_rows", "pair_rows", "judge_rows"):
            value = getattr(self, name)
            if value is not None and value < 0:
                option = name.replace("_", "-")
                raise UsageError(f"the number of rows is below 0: --{option}")
        object.__setattr__(self, "hold_out_by", self.hold_out_by or RANDOM)
        if self.last_passes < 0:
            raise UsageError("the number of last passes is below 0: --last-passes")
        if not 0 <= self.seed <= MOST:
            raise UsageError("the seed is not an integer from 0 to 2^63 - 1: --seed")
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
