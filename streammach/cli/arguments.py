"""The options of the commands that plan and train, as one record each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streammach.clock import Clock
from streammach.machine import parse_seconds, parse_size
from streammach.parts.switches import SWITCHES
from streammach.spec.training import TrainingOptions
from streammach.spec.types import Multilabel

if TYPE_CHECKING:
    from streammach.data.source_options import Layout, TableOptions
    from streammach.planning.constraints import Constraints

Command = Callable[..., None]


@dataclass(frozen=True, kw_only=True)
class TrainingArguments:
    """Options of trainings that ``sweep``, ``train`` and ``fit`` share.

    `parts` says of each optional part what its option does.
    """

    parts: Mapping[str, str]
    threads: int | None
    seed: int
    epochs: int | None = None
    learning_rate: float | None = None
    transform: str = "auto"
    label_smoothing: float | None = None
    validation: str | None = None
    hold_out_by: str = "auto"
    label_loss: str = "auto"
    model_size: str = "auto"

    def training(self) -> TrainingOptions:
        """Return what is fixed of a training, or raise UsageError."""
        return TrainingOptions(
            epochs=self.epochs, learning_rate=self.learning_rate, transform=self.transform,
            label_smoothing=self.label_smoothing, seed=self.seed, validation=self.validation,
            hold_out_by=self.hold_out_by, label_loss=self.label_loss, model_size=self.model_size,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PlanArguments(TrainingArguments):
    """Options of a plan; its command has none of a training."""

    memory: str | None
    buckets: int | None
    repetitions: int | None
    exact: bool
    batch_size: int | None
    optimizer: str
    time: str | None
    latency: str | None
    pilot: str | None
    objective: str
    device: str
    weights: str
    tf32: bool

    def constraints(self) -> Constraints:
        """Return what is fixed of a plan, or raise UsageError."""
        from streammach.planning.constraints import Constraints  # compiled code loads on demand

        return Constraints(
            memory=None if self.memory is None else parse_size(self.memory), exact=self.exact,
            n_buckets=self.buckets, n_repetitions=self.repetitions, batch_size=self.batch_size,
            optimizer=self.optimizer, time=self.time, latency=self.latency,
            objective=self.objective, device=self.device, weights=self.weights,
            tf32=self.tf32, threads=self.threads, seed=self.seed, parts=self.parts,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RunArguments(PlanArguments):
    """Options of one run."""

    checkpoint_minutes: float
    resume: bool
    force: bool = False
    fit_rows: int | None = None
    pair_rows: int | None = None
    judge_rows: int | None = None
    class_weight: str | None = None

    def training(self) -> TrainingOptions:
        """Return what is fixed of a training, or raise UsageError."""
        return replace(
            super().training(), fit_rows=self.fit_rows, pair_rows=self.pair_rows,
            judge_rows=self.judge_rows,
        )  # fmt: skip

    def clock(self) -> Clock:
        """Return the time that the command may take."""
        return Clock.of_process(None if self.time is None else parse_seconds(self.time))


@dataclass(frozen=True, kw_only=True)
class FitArguments(RunArguments):
    """Options of a run from files: how these are read, too."""

    form: str | None
    table: TableOptions
    layout: Layout
    labels: tuple[Path, ...]
    x_path: str | None
    y_path: str | None
    first_label: bool
    multilabel: Multilabel
    on_bad_row: str
    max_bad: int | None


def recorded(kind: type[TrainingArguments]) -> Callable[[Command], Command]:
    """Let a command take the options that are fields of a record as that record: `arguments`."""

    def decorated(command: Command) -> Command:
        @wraps(command)
        def called(**given: Any) -> None:
            given["parts"] = {
                switch.option: given.pop(switch.option) for switch in SWITCHES.values()
            }
            said = {f.name: given.pop(f.name) for f in fields(kind) if f.name in given}
            command(**given, arguments=kind(**said))

        return called

    return decorated
