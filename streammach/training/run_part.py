"""A share of a run: the folder of some repetitions of its model, trained without the others."""

from __future__ import annotations

import itertools
import math
import os
import re
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import msgspec
from numpy.typing import NDArray

from streammach.inputs.identity import name_of
from streammach.model.checkpoint import Checkpoints, RunPosition
from streammach.options.byte_lines import bytes_in
from streammach.options.plan import Plan
from streammach.options.training import TrainingOptions
from streammach.options.types import Size
from streammach.parts.registry import bytes_of_parts, parts_of_plan
from streammach.parts.training_record import Training
from streammach.planning.cost import EPOCHS
from streammach.planning.ledger import ledger
from streammach.system.errors import MismatchError, ModelError, UsageError, clean
from streammach.system.files.urls import absolute
from streammach.training.run import (
    CHECKPOINTS,
    PART_OF_RUN,
    PLAN,
    RunSettings,
    read_document,
    read_settings,
    workplace,
)
from streammach.training.warm_start import Start

PART = "part.json"
COUNT = "part"  # what its marker says of the number
STEPS = "steps"  # an array that all repetitions share
ALIKE = "Parts of one run are trained with the same store, options and seed."


@dataclass(frozen=True, order=True)
class PartNumber:
    """Which share of how many, as ``3/8``."""

    number: Size  # number, of: from 1 to `of`, and how many there are
    of: Size

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.of:
            raise UsageError(f"'{self}' is not a part such as 3/8: --part")

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    @classmethod
    def of_text(cls, text: str) -> PartNumber:
        """Return the share of a text such as ``3/8``, or raise UsageError."""
        found = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
        if found is None:
            raise UsageError(f"'{clean(text)}' is not a part such as 3/8: --part")
        return cls(int(found[1]), int(found[2]))

    def repetitions(self, n_repetitions: int) -> tuple[int, int]:
        """Return its repetitions ``first:last`` of R: as even as can be, in their order."""
        first, last = (n_repetitions * n // self.of for n in (self.number - 1, self.number))
        return first, last

    def n_groups(self, plan: Plan) -> int:
        """Return in how many groups they are trained: of as many as the whole plan's groups."""
        first, last = self.repetitions(plan.n_repetitions)
        at_once = math.ceil(plan.n_repetitions / plan.config.placement.waves)
        return math.ceil((last - first) / at_once)

    def plan(self, plan: Plan) -> Plan:
        """Return the plan of its repetitions' epochs, without what comes before and after."""
        model = plan.model.some(*self.repetitions(plan.n_repetitions))
        placement = replace(plan.config.placement, waves=self.n_groups(plan))
        config = replace(plan.config, shape=model.shape, placement=placement, parts=())
        lines = tuple(x for x in ledger(plan.facts, config) if x.name != "smaller model")
        return replace(plan, model=model, config=config, ledger=lines)

    def projected_bytes(self, plan: Plan, *, decides: bool) -> int:
        """Return the bytes of memory that it takes: those of the whole model where it decides."""
        mine = self.plan(plan).projected_bytes
        return max(mine, plan.projected_bytes) if decides or self.number == 1 else mine

    def disk_bytes(self, plan: Plan, epochs: int | None) -> int:
        """Return the bytes of disk that it takes: a checkpoint of each epoch, and two more."""
        lines = [x for x in self.plan(plan).ledger if x.name in ("weights", "optimizer")]
        checkpoints = (epochs or EPOCHS[plan.config.dense]) + 2
        parts = bytes_of_parts(plan.facts, plan.config).values() if self.number == 1 else ()
        return checkpoints * bytes_in(lines, "host") + sum(part.saved for part in parts)

    def check(self, plan: Plan, options: TrainingOptions) -> None:
        """Raise UsageError if a run cannot be had in such shares."""
        config = plan.config
        if config.linear:
            what = "linear classifiers are not trained in parts: --part, --dask, --devices"
            raise UsageError(what, hint="Train with --linear off for hashed models.")
        if self.of > plan.n_repetitions:
            raise UsageError(
                f"a model of {plan.n_repetitions} repetitions is not trained in {self.of} parts: "
                "--part"
            )
        if config.dense:
            raise UsageError(
                "dense rows are not trained in parts: the bits of their matrix products depend on "
                "the repetitions beside: --part"
            )
        if config.placement.weights == "bfloat16":
            what = "bfloat16 weights are rounded by their places in the whole model: --part"
            raise UsageError(what, hint="Use --weights float32.")
        if options.epochs == 0:
            raise UsageError("at least one epoch is needed: --epochs")
        for part in parts_of_plan(config):
            if part.couples:
                raise UsageError(
                    f"the repetitions may learn together ({part.name}), which parts cannot: --part",
                    hint=f"Use {part.switch.flag} {part.switch.words[2]}.",
                )


class PartFacts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a share says of itself, beside its plan."""

    part: PartNumber
    options: TrainingOptions  # what is fixed of the training
    store: str  # the training store, as an absolute path
    request: str  # digest of all that decides the run


@dataclass(frozen=True, kw_only=True, repr=False)
class RunPart:
    """A share of a run: its folder, what was decided, how far it is."""

    path: Path  # the folder
    facts: PartFacts  # which share it is, and of what
    plan: Plan  # the plan of the whole run
    settings: RunSettings | None  # what was decided; None before that

    def __repr__(self) -> str:
        return f"RunPart({str(self.path)!r}: {self.facts.part})"

    @property
    def repetitions(self) -> tuple[int, int]:
        """Its repetitions of the model, ``first:last``."""
        return self.facts.part.repetitions(self.plan.n_repetitions)

    @property
    def n_groups(self) -> int:
        """In how many groups they were trained; each goes through all rows."""
        return self.facts.part.n_groups(self.plan)

    @property
    def open_work(self) -> str:
        """What is not done yet, in words; empty where it is finished. Raises ModelError."""
        if self.settings is None:
            return "nothing is decided yet"
        epochs, ends = self.settings.training.epochs, self.checkpoints.ends()
        done = next((n for n in range(epochs) if n + 1 not in ends), epochs)
        if self.first:
            return f"no {', no '.join(self.first)}"
        return f"{done} of {epochs} epochs" if done < epochs else ""

    @property
    def first(self) -> tuple[str, ...]:
        """What the first share has still to do without hashed models, by the parts' names."""
        if self.facts.part.number > 1:
            return ()
        names = (part.name for part in parts_of_plan(self.plan.config) if part.fit_first)
        return tuple(name for name in names if not (self.path / CHECKPOINTS / name).is_dir())

    @property
    def checkpoints(self) -> Checkpoints:
        """Its checkpoints."""
        return Checkpoints(self.path / CHECKPOINTS, self.facts.request, every_epoch=True)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> RunPart:
        """Open the folder of a part, finished or not, or raise UsageError or MismatchError."""
        folder = Path(path)
        if not os.path.lexists(folder):
            hint = "Make one with: streammach train --part"
            raise UsageError("there is no such part", path=folder, hint=hint)
        if workplace(folder, PART_OF_RUN).facts() is None:
            raise MismatchError("not the folder of a part of a run", path=folder)
        what = "damaged: not the folder of a part of a run"
        plan, facts = (
            read_document(folder, PLAN, Plan, what),
            read_document(folder, PART, PartFacts, what),
        )
        if facts.part.of > plan.n_repetitions:
            raise MismatchError(f"{what} (it has no repetitions)", path=folder)
        return cls(path=folder, facts=facts, plan=plan, settings=read_settings(folder))

    def check_like(self, other: RunPart) -> None:
        """Raise MismatchError, which says what differs, if another part is one of another run."""
        found = _difference(self, other)
        if found:
            what = f"it is of another run than {clean(other.path, 100)}: another {found}"
            raise MismatchError(what, path=self.path, hint=ALIKE)


@dataclass(kw_only=True)
class RunTraining(Training):
    """The training of a run: whole, perhaps from a `start`; of a shard; or all shards merged."""

    start: Start | None = None
    shard: PartNumber | None = None
    shards: tuple[RunPart, ...] = ()
    decided_in: str | os.PathLike[str] | None = None  # the folder of another shard
    decided: RunSettings | None = None  # what that has decided
    projected_bytes: int = 0  # of memory, a compiler's included


def settings_of(
    folder: str | os.PathLike[str], plan: Plan, options: TrainingOptions
) -> RunSettings:
    """Return what another share of the same run decided, or raise UsageError or MismatchError."""
    other = RunPart.open(folder)
    if other.settings is None:
        raise UsageError("nothing is decided there yet: --settings", path=folder)
    facts = msgspec.structs.replace(other.facts, options=with_text_options(options))
    replace(other, facts=facts, plan=plan, path=Path("--settings")).check_like(other)
    return other.settings


def with_text_options(options: TrainingOptions) -> TrainingOptions:
    """Return options that JSON can hold: the name of a store may be any bytes."""
    if options.validation is None:
        return options
    return replace(options, validation=name_of(absolute(options.validation)))


def in_order(paths: list[str | os.PathLike[str]]) -> list[RunPart]:
    """Return the parts of a run in their order."""
    if not paths:
        raise UsageError("no part is named", hint="Name all parts of a run.")
    parts = sorted((RunPart.open(path) for path in paths), key=lambda one: one.facts.part)
    first, n = parts[0], parts[0].facts.part.of
    for part in parts[1:]:
        part.check_like(first)
        if part.facts.part.of != n:
            raise MismatchError(
                f"it is part {part.facts.part}, and {clean(first.path, 100)} is part "
                f"{first.facts.part}",
                path=part.path, hint=ALIKE,
            )  # fmt: skip
    for before, part in itertools.pairwise(parts):
        if before.facts.part == part.facts.part:
            what = f"part {part.facts.part} is there twice, in {clean(before.path, 100)} too"
            raise UsageError(what, path=part.path)
    missing = sorted({*range(1, n + 1)} - {part.facts.part.number for part in parts})
    if missing:
        rest = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise UsageError(f"part {missing[0]}/{n} is missing{rest}", hint="Name all parts of a run.")
    for part in parts:
        if part.open_work:
            what = f"part {part.facts.part} is not finished: {part.open_work}"
            raise MismatchError(what, path=part.path, hint="Its command with --resume goes on.")
    return parts


def read_ends(training: RunTraining, n_epochs: int) -> list[RunPosition]:
    """Read the weights after so many epochs into a backend; return where each shard was then."""
    arrays, ends, shards = training.backend.arrays(), list[RunPosition](), training.shards
    for i, shard in enumerate(shards):
        training.check_stop()
        step = shard.checkpoints.ends()[n_epochs]
        ends.append(shard.checkpoints.read(step, _arrays_of(shard, arrays)))
        if step * shards[0].n_groups != ends[0].step * shard.n_groups:
            what = "damaged: its epochs are not those of the first part"
            raise ModelError(what, path=shard.path, hint="Train it again.")
        assert shard.settings is not None, "it is finished"
        total = shard.settings.training.epochs * len(shards)
        training.report_progress((n_epochs - 1) * len(shards) + i + 1, total)
    return ends


def _arrays_of(shard: RunPart, arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the columns of a shard's repetitions."""
    n, (first, last) = shard.plan.n_repetitions, shard.repetitions

    def columns(array: NDArray[Any]) -> NDArray[Any]:
        width = array.shape[-1] // n
        return array[..., first * width : last * width]

    return {name: a if name == STEPS else columns(a) for name, a in arrays.items()}


def _difference(part: RunPart, other: RunPart) -> str:
    """Return what decides the run and is another one in two parts, in words; empty if nothing."""
    if part.plan.facts.digest != other.plan.facts.digest:
        return "store"
    for name in ("seed", *(one.name for one in fields(TrainingOptions))):
        if getattr(part.facts.options, name) != getattr(other.facts.options, name):
            return f"--{name.replace('_', '-')}"
    mine, theirs = part.plan.config.decisive, other.plan.config.decisive
    if mine.shape != theirs.shape:
        return f"plan ({mine.shape}, not {theirs.shape})"
    differ = [
        one.name for one in fields(mine) if getattr(mine, one.name) != getattr(theirs, one.name)
    ]
    if differ:
        return f"plan ({', '.join(differ)})"
    if part.plan.model != other.plan.model:
        return "--seed"
    if part.facts.request != other.facts.request:
        return "request"
    settings = part.settings, other.settings
    if None not in settings and len({one.training for one in settings if one is not None}) > 1:
        return "outcome of the search (training.json)"
    return ""
