"""A plan: what fits a budget and was chosen, what it was chosen from, and every byte of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module

import msgspec

from streammach.options.byte_lines import CONTEXT, Limits, Line, bytes_in
from streammach.options.config import RunConfig
from streammach.options.facts import DataFacts
from streammach.options.model_spec import ModelShape, ModelSpec
from streammach.options.reported import Reported
from streammach.options.types import Amount, Count
from streammach.system.machine import UNLIMITED

TEXTS = "streammach.cli.plan_text"  # far above, and loaded when someone asks


@dataclass(frozen=True, kw_only=True)
class Option:
    """A model that was weighed for a budget."""

    config: RunConfig  # how it would be trained
    # projected_bytes, model_bytes: memory of its training, and of the trained model on disk
    projected_bytes: Count
    model_bytes: Count
    # loss, loss_error: points of the mean of accuracy and top-5 accuracy (0 to 100) that it is
    # expected to stay below the best model for the same data, and how far that was off on the data
    # sets measured
    loss: float
    loss_error: Amount
    # seconds, query_seconds: expected time of its training, and of a query on one thread
    seconds: Amount
    query_seconds: Amount
    fits: bool  # whether it keeps within the budget
    chosen: bool = False  # whether it is the plan
    # factor by which most trainings measured were faster or slower; 1 for a limit of time
    seconds_spread: float = 1.0

    @property
    def shape(self) -> ModelShape:
        """K, d, d', B and R."""
        return self.config.shape


@dataclass(frozen=True, kw_only=True, repr=False)
class Plan(Reported):
    """What fits a budget and was chosen, and every byte of it.

    Attributes
    ----------
    facts : DataFacts
        The store that it was made for.
    model : ModelSpec
        The model with its hashes.
    config : RunConfig
        How it is trained.
    limits : Limits
        What may be used of the host's memory and of the device's own.
    ledger : tuple of Line
        Every byte count, by name.
    reasons : tuple of str
        Why this plan, in sentences.
    device_reason : str
        Why this device.
    expected : Option or None
        What is expected of the plan.
    options : tuple of Option
        What it was chosen from: the best ones and what is instructive beside them.
    """

    facts: DataFacts
    model: ModelSpec
    config: RunConfig
    limits: Limits
    ledger: tuple[Line, ...]
    reasons: tuple[str, ...] = field(default=())
    device_reason: str = ""
    expected: Option | None = None
    options: tuple[Option, ...] = ()

    def __post_init__(self) -> None:
        if self.model.shape != self.config.shape:
            raise ValueError("the hashes are those of another shape")

    def _line(self) -> str:
        most = "" if self.limits.host >= UNLIMITED else f" of {self.limits.host / 1e9:z.2f}"
        bytes_ = f"{self.projected_bytes / 1e9:z.2f}{most} GB"
        lost = "" if self.expected is None else (
            f", {self.expected.loss:z.1f} +- {self.expected.loss_error:z.1f} points lost"
        )  # fmt: skip
        return f"{self.config.text}, {self.config.placement.device}, {bytes_}{lost}"

    def to_json(self) -> str:
        """Return it as the JSON object that the command ``plan`` prints."""
        return msgspec.json.encode(import_module(TEXTS).plan_document(self)).decode()

    @property
    def elsewhere(self) -> bool:
        """Whether it is for rows or a machine that are not here; it is never trained on."""
        return not self.facts.digest or bool(self.config.placement.card)

    @property
    def n_buckets(self) -> int:
        """B."""
        return self.model.n_buckets

    @property
    def n_repetitions(self) -> int:
        """R."""
        return self.model.n_repetitions

    @property
    def projected_bytes(self) -> int:
        """Bytes of host memory that the run will take at most."""
        return bytes_in(self.ledger, "host")

    @property
    def device_projected_bytes(self) -> int:
        """Bytes of the device's own memory that the run will take at most."""
        return bytes_in(self.ledger, "device")

    @property
    def device_buffer_bytes(self) -> int:
        """The same without what the device's libraries take, which cannot be measured apart."""
        return bytes_in([line for line in self.ledger if line.name != CONTEXT], "device")

    @property
    def disk_bytes(self) -> int:
        """Bytes of disk that the run will take at most."""
        return bytes_in(self.ledger, "disk")

    @property
    def small_model_bytes(self) -> int:
        """Bytes of the model at most where held-out rows allow int4 weights, float10 dense ones."""
        model = next(line.n_bytes for line in self.ledger if line.name == "model")
        weights = 4 * self.config.weight_rows * self.model.n_columns
        return model - weights + weights * (10 if self.config.dense else 4) // 32
