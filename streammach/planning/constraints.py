"""What the user fixed of a plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, get_args

from streammach.backends.kinds import Work
from streammach.errors import UsageError, check_word, no_option
from streammach.machine import parse_seconds
from streammach.parts.base import switch_value
from streammach.parts.registry import PARTS, switch_names
from streammach.spec.annotated import check_record
from streammach.spec.optimizers import OPTIMIZERS
from streammach.spec.plan import Option
from streammach.spec.training import TrainingOptions
from streammach.spec.types import MOST, Weights


@dataclass(frozen=True, kw_only=True)
class Constraints:
    """What the user fixed of a plan; the rest is chosen.

    Attributes
    ----------
    memory : str or int, optional
        The budget, such as ``12GB``; otherwise half of what is free, the most of 2, 3, 4, 6, 8 and
        12 GB, but what this machine may use where the model's shape is given. On a device with
        memory of its own it is the budget of that, and host memory may be used as far as there is
        any.
    n_buckets, n_repetitions : int, optional
        B and R, both or none; R = 0 alone asks for counts without hashed models.
    exact : bool
        Ask for a bucket for every class.
    hashed_features : int, optional
        Features of sparse rows that hashed models know, the most frequent ones; otherwise all, or
        as many as pay.
    batch_size : int, optional
        Most rows of a batch.
    optimizer : str
        ``auto`` (row-wise Adagrad for sparse rows, Adam for dense ones), ``adagrad``, ``adam`` or
        ``sgd``.
    time : str or float, optional
        Most time that the training is expected to take, such as ``2h``, or seconds.
    latency : str or float, optional
        Most time that a query, one row of many, is expected to take one thread, such as ``200us``.
    device : str
        ``auto`` or a backend's name.
    weights : str
        Type of the weights while they are trained: ``float32``, or ``bfloat16`` on a device that
        has it, half as large, for sparse rows.
    tf32 : bool, optional
        Whether dense rows are multiplied in TensorFloat-32 while they are trained on: 10 bits of
        each factor's fraction, sums in float32. Otherwise they are where the device has it.
    threads : int
        Threads that compute; 0 for all cores.
    seed : int
        Decides the hashes.
    held_out_rows : int, optional
        Rows of the training data on which choices are made; a twentieth otherwise, 10,000 at most.
    parts : mapping of str to str
        What is said of optional parts, by their options: ``{"counts": "off"}``.

    Raises
    ------
    UsageError
        If the options do not go together, or a value is out of its range.
    """

    memory: str | int | None = None
    n_buckets: int | None = None
    n_repetitions: int | None = None
    exact: bool = False
    hashed_features: int | None = None
    batch_size: int | None = None
    optimizer: str = "auto"
    time: str | float | None = None
    latency: str | float | None = None
    device: str = "auto"
    weights: Weights = "float32"
    tf32: bool | None = None
    threads: int | None = None
    seed: int = 0
    held_out_rows: int | None = None
    parts: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, options: Mapping[str, Any], function: str = "Constraints", more: Iterable[str] = ()
    ) -> Constraints:
        """Return those of keywords: attributes, and options of parts; or raise TypeError."""
        # `function` is what they were given to, for messages, `more` other options that it has.
        parts = {name: options[name] for name in switch_names() if name in options}
        others = {name: value for name, value in options.items() if name not in switch_names()}
        known = {field.name for field in fields(cls)} - {"parts"}
        for name in others.keys() - known:
            raise no_option(function, name, {*known, *switch_names(), *more})
        return cls(**others, parts=parts)

    def __post_init__(self) -> None:
        check_record(self)
        if not 0 <= self.seed <= MOST:
            raise UsageError("the seed is not an integer from 0 to 2^63 - 1: --seed")
        if (self.n_buckets is None) != (self.n_repetitions is None) and not self.unhashed:
            raise UsageError("--buckets and --repetitions are given together")
        if self.unhashed and self.n_buckets is not None:
            raise UsageError("no hashed models have no buckets: --repetitions 0, --buckets")
        if self.exact and (self.memory is not None or self.shaped_by_numbers):
            raise UsageError("--exact excludes --memory, --buckets and --repetitions")
        numbers = {
            "--buckets": self.n_buckets, "--repetitions": self.n_repetitions,
            "--features": self.hashed_features, "--batch-size": self.batch_size,
            "--threads": self.threads,
            "held_out_rows": self.held_out_rows,
        }  # fmt: skip
        for name, value in numbers.items():
            least = {"--buckets": 2, "--repetitions": 0, "held_out_rows": 0}.get(name, 1)
            if value is not None and value < least:
                raise UsageError(f"{value} is too small: {name}")
        words = {"optimizer": ("auto", *OPTIMIZERS), "weights": get_args(Weights)}
        for name, known in words.items():
            check_word(getattr(self, name), known, f"--{name}")
        for part in PARTS.values():
            switch_value(part, self.parts)
        if self.parts.get("linear") == "on" and not self.open:
            what = "linear classifiers have no buckets, batches and other parts: --linear on"
            raise UsageError(what)
        _ = self.seconds, self.query_seconds

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
    def shaped_by_numbers(self) -> bool:
        """Whether B and R are given, or R = 0."""
        return self.n_buckets is not None or self.unhashed

    @property
    def shaped(self) -> bool:
        """Whether the shape is fixed."""
        return self.exact or self.shaped_by_numbers

    def allow(self, option: Option) -> bool:
        """Return whether an option fits the budget and keeps the limits of time."""
        in_time = self.seconds is None or option.seconds <= self.seconds
        most = self.query_seconds
        return option.fits and in_time and (most is None or option.query_seconds <= most)
