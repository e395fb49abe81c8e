"""What the user fixed of a plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, get_args

from streammach.backends.kinds import Work
from streammach.backends.registry import BACKENDS, fallback
from streammach.options.annotated import check_record
from streammach.options.optimizers import OPTIMIZERS
from streammach.options.option_fields import (
    OptionFacts,
    add_attributes,
    declared_options,
    make_record,
    option,
    word_options,
)
from streammach.options.training import TrainingOptions
from streammach.options.types import MOST, Weights
from streammach.parts.switches import SWITCHES
from streammach.system.errors import UsageError, check_word, no_option
from streammach.system.machine import parse_seconds, parse_size

if TYPE_CHECKING:  # commands are made of the fields alone
    from streammach.options.plan import Option

OF_PARTS = {one.option: OptionFacts(help=one.help, words=one.words) for one in SWITCHES.values()}
CARD = "Plan for another machine: its GPU's name, or memory such as 12GB."
TOO_SMALL = "{} is too small"  # of a number below its range


@add_attributes
@dataclass(frozen=True, kw_only=True)
class Constraints:
    """What the user fixed of a plan; the rest is chosen.

    On a device with memory of its own the budget is that of it, and host memory may be used as far
    as there is any.
    """

    memory: str | int | None = option(
        None, "Budget of bytes, such as 12GB or 500MB.", "SIZE",
        more="Otherwise half of what is free, the most of 2, 3, 4, 6, 8 and 12 GB, but what this "
        "machine may use where the model's shape is given.",
    )  # fmt: skip
    n_buckets: int | None = option(
        None, "Buckets of each model.", "B", name="--buckets", least=2, fault=TOO_SMALL
    )
    n_repetitions: int | None = option(
        None, "Number of models; 0 without --buckets: counts alone.", "R",
        name="--repetitions", least=0, fault=TOO_SMALL,
    )  # fmt: skip
    exact: bool = option(False, "A bucket for every class.")
    hashed_features: int | None = option(
        None, "Of sparse rows: hashed models know the N most frequent features; counts all.", "N",
        name="--features", usual="all, or as many as pay", least=1, fault=TOO_SMALL,
    )  # fmt: skip
    batch_size: int | None = option(None, "Most rows of a batch.", "N", least=1, fault=TOO_SMALL)
    optimizer: str = option(
        "auto", "auto: row-wise Adagrad for sparse rows, Adam for dense ones.",
        words=("auto", *OPTIMIZERS), free=True,
    )  # fmt: skip
    parts: Mapping[str, str] = word_options(OF_PARTS)
    time: str | float | None = option(
        None, "Time of the whole command, such as 2h: it ends with the best model by then.",
        "TIME", more="Of a plan: most time that the training is expected to take.",
    )  # fmt: skip
    latency: str | float | None = option(
        None, "Most time that a query may be expected to take one thread, such as 200us.",
        "TIME",
    )  # fmt: skip
    device: str = option("auto", "Where to compute.", words=("auto", *sorted(BACKENDS)), free=True)
    card: str | None = option(None, CARD, python=True)
    weights: Weights = option(
        "float32", "Type of the weights while they are trained; bfloat16 on a GPU, sparse rows.",
        words=get_args(Weights),
    )  # fmt: skip
    tf32: bool | None = option(
        None, "Multiply dense rows in TensorFloat-32 while they are trained on, on a GPU.",
        usual="where it has that",
    )  # fmt: skip
    threads: int | None = option(
        None, "Threads that compute.", usual="all cores", least=1, fault=TOO_SMALL
    )
    seed: int = option(
        0, "Decides all that is random.", usual="0", least=0, most=MOST,
        fault="the seed is not an integer from 0 to 2^63 - 1",
    )  # fmt: skip
    held_out_rows: int | None = option(
        None, "Rows of the training data on which choices are made.",
        usual="a twentieth, 10,000 at most", least=0, fault=TOO_SMALL, python=True,
    )  # fmt: skip

    @classmethod
    def of(
        cls, options: Mapping[str, Any], function: str = "Constraints", more: Iterable[str] = ()
    ) -> Constraints:
        """Return those of keywords: attributes, and options of parts; or raise TypeError."""
        # `function` is what they were given to, for messages, `more` other options that it has.
        known = {one.field for one in declared_options(cls, python=True)}
        for name in options.keys() - known:
            raise no_option(function, name, {*known, *more})
        return make_record(cls, options)

    def __post_init__(self) -> None:
        check_record(self)
        check_word(self.optimizer, ("auto", *OPTIMIZERS), "--optimizer")
        if (self.n_buckets is None) != (self.n_repetitions is None) and not self.unhashed:
            raise UsageError("--buckets and --repetitions are given together")
        if self.unhashed and self.n_buckets is not None:
            raise UsageError("no hashed models have no buckets: --repetitions 0, --buckets")
        if self.card is not None and self.device == fallback():
            raise UsageError(f"the plan is for the {BACKENDS[self.device].title}: --card")
        if self.exact and (self.memory is not None or self.n_repetitions is not None):
            raise UsageError("--exact excludes --memory, --buckets and --repetitions")
        if self.parts.get("linear") == "on" and not self.open:
            what = "linear classifiers have no buckets, batches and other parts: --linear on"
            raise UsageError(what)
        _ = self.seconds, self.query_seconds
        if isinstance(self.memory, str):
            parse_size(self.memory)

    def beside(self, options: TrainingOptions) -> Constraints:
        """Return them for a training whose options may ask for epochs, which no part alone has."""
        if options.of_epochs is None or self.parts.get("linear", "auto") != "auto":
            return self
        return replace(self, parts={**self.parts, "linear": "off"})

    @property
    def open(self) -> bool:
        """Whether nothing is said of hashed models and of parts, so that a model may be without."""
        said = (
            self.n_buckets, self.n_repetitions, self.hashed_features, self.batch_size, self.tf32,
        )  # fmt: skip
        usual = self.optimizer == "auto" and self.weights == "float32" and not self.exact
        words = {word for option, word in self.parts.items() if option != "linear"}
        return usual and said == (None,) * len(said) and not words - {"auto", "independent"}

    @cached_property
    def seconds(self) -> float | None:
        """Most time of the training."""
        return None if self.time is None else parse_seconds(self.time)

    @cached_property
    def query_seconds(self) -> float | None:
        """Most time of a query."""
        return None if self.latency is None else parse_seconds(self.latency)

    def work(self, n_classes: int) -> Work:
        """Return what a device is chosen by, for so many classes."""
        shape = (n_classes, 1) if self.exact else None
        if self.n_buckets is not None and self.n_repetitions:
            shape = min(self.n_buckets, n_classes), self.n_repetitions
        return Work(shape=shape, unhashed=self.unhashed, weights=self.weights, tf32=bool(self.tf32))

    @property
    def unhashed(self) -> bool:
        """Whether a model without hashed models is asked for."""
        return self.n_repetitions == 0

    @property
    def shaped(self) -> bool:
        """Whether the shape is fixed."""
        return self.exact or self.n_repetitions is not None

    def allow(self, candidate: Option) -> bool:
        """Return whether a model fits the budget and keeps the limits of time."""
        in_time = self.seconds is None or candidate.seconds <= self.seconds
        most = self.query_seconds
        return candidate.fits and in_time and (most is None or candidate.query_seconds <= most)
