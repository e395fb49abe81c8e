"""A training under way: what every stage of it is given."""

from __future__ import annotations

import gc
import os
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from streammach.backends.registry import BACKENDS
from streammach.clock import Clock
from streammach.data.holdout import (
    HeldOut,
    check_held_out,
    held_numbers,
    hold_out,
    left_out,
    masked_rows,
)
from streammach.data.store.dataset import Dataset
from streammach.errors import (
    BudgetError,
    Interrupted,
    MismatchError,
    StreammachError,
    UsageError,
    clean,
)
from streammach.figures import HeldOutMetrics
from streammach.files.reading import sha256
from streammach.files.workplaces import GOES_ON
from streammach.jit import TRAINING_COMPILER_BYTES, compiler_bytes
from streammach.machine import advise_memory, size_text
from streammach.model.checkpoint import Checkpoints
from streammach.model.findings import Findings
from streammach.model.model import Model
from streammach.parts.base import FirstFit
from streammach.parts.registry import parts_of_plan
from streammach.planning.cost import BYTE
from streammach.planning.ledger import kernels
from streammach.planning.speed import known_speed
from streammach.prediction.selection_metrics import weigh_labels
from streammach.processes import StopSignals
from streammach.rehearsals import compile_first
from streammach.rows.block import RowBlock
from streammach.rows.dense import RowMap
from streammach.spec.byte_lines import bytes_in
from streammach.spec.documents import encode_json
from streammach.spec.facts import DataFacts
from streammach.spec.plan import Plan
from streammach.spec.training import PROPENSITY, TrainingOptions, TrainSpec
from streammach.spec.types import Transform
from streammach.stages import Stages
from streammach.training.events import Events
from streammach.training.run import (
    CHECKPOINTS,
    KEPT,
    PART_OF_RUN,
    RESULT,
    RunSettings,
    check_not_begun,
    workplace,
)
from streammach.training.run_part import COUNT, PartNumber, RunPart, settings_of
from streammach.training.time_budget import EPOCHS, HELD_OUT, LOOKING_SHARE, TimeBudget, timetable
from streammach.training.trial import BestTrial
from streammach.training.warm_start import OLD_SHARE, Start

SMALL = "streammach.training.small_training:train_few"  # which trains, as this does
LISTS_ALONE = "It is for lists of labels."
MOST_JUDGES = 256  # training rows that judge trials where none are held out


@dataclass(frozen=True, kw_only=True)
class FitRequest:
    """What is asked for: a whole run; a share of one; or one that is merged from its shares."""

    plan: Plan  # of the whole run
    options: TrainingOptions
    folder: Path
    resume: bool  # whether to go on with what the folder holds
    callbacks: tuple[object, ...]
    checkpoint_seconds: float
    clock: Clock  # the time that there is
    stop: StopSignals | None = None  # asks for the end; the signals of the process otherwise
    start: Start | None = None  # where the weights start
    lasting: bool = True  # whether the folder stays
    share: PartNumber | None = None
    settings: str | os.PathLike[str] | None = None  # another share, where all is decided already
    shares: tuple[RunPart, ...] = ()  # all of them in their order, where they are merged

    @property
    def kind(self) -> str:
        """What the folder is, as its marker says."""
        return "run" if self.share is None else PART_OF_RUN

    @property
    def facts(self) -> dict[str, str]:
        """What the folder's marker says beside."""
        number = {} if self.share is None else {COUNT: str(self.share)}
        return {"request": self.identity, **number}

    @cached_property
    def identity(self) -> str:
        """Digest of all that decides the result: the store, the plan, the options."""
        plan, options = self.plan, msgspec.to_builtins(self.options)
        if (path := self.options.validation) is not None:
            with Dataset.open(path) as held_out:
                options["validation"] = held_out.digest
        decisive = [plan.facts.digest, plan.model, plan.config.decisive, options]
        if self.start is not None:
            decisive.append(self.start.identity)
        return sha256([encode_json(decisive)])

    @cached_property
    def settings_of_share(self) -> RunSettings | None:
        """What another share decided, if it is named; or raise UsageError or MismatchError."""
        if self.settings is None:
            return None
        return settings_of(self.settings, self.plan, self.options)

    @property
    def checkpoints(self) -> Checkpoints:
        """The checkpoints; a share keeps those of all epochs' ends."""
        folder = self.folder / CHECKPOINTS
        return Checkpoints(folder, self.identity, every_epoch=self.share is not None)

    @property
    def disk_bytes(self) -> int:
        """Bytes of disk that it takes at most; a merge keeps no checkpoints."""
        if self.share is not None:
            return self.share.disk_bytes(self.plan, self.options.epochs)
        lines = [x for x in self.plan.ledger if not self.shares or x.name == "model"]
        return bytes_in(lines, "disk")

    @property
    def kernels(self) -> tuple[object, ...]:
        """What decides which kernels are compiled for it."""
        options = self.options
        return (
            *kernels(self.plan.facts, self.plan.config), self.share is None, len(self.shares) > 0,
            options.transform, options.hold_out_by, options.validation is None,
        )  # fmt: skip

    def expected_seconds(self) -> dict[str, float]:
        """Return the seconds of each stage in their order, of those too that may not come."""
        plan, speed = self.plan, known_speed()
        found = timetable(plan.facts, plan.config, self.options, speed=speed)
        if self.share is not None:
            first, last = self.share.repetitions(plan.n_repetitions)
            found = dict(list(found.items())[: list(found).index(EPOCHS) + 1])
            found[EPOCHS] *= (last - first) / plan.n_repetitions
        elif self.shares:  # they are read
            settings = self.shares[0].settings
            assert settings is not None, "it is finished"
            table = 4 * plan.config.weight_rows * plan.config.shape.n_columns
            found[EPOCHS] = settings.training.epochs * BYTE * table
        return found

    def _compiler_bytes(self) -> int:
        plan, limits = self.plan, self.plan.limits
        if not BACKENDS[plan.config.placement.device].keeps_kernels:
            return 0
        more = compiler_bytes(*self.kernels, n_bytes=TRAINING_COMPILER_BYTES)
        needed = plan.projected_bytes + more
        if not more or needed <= limits.host:
            return more
        if not compile_first(SMALL, self.kernels, plan, self.options, most=limits.host):
            raise BudgetError(
                f"no compiled kernels can be kept, and compiling them takes {size_text(more)}: "
                f"it needs {size_text(needed)}",
                path=f"{size_text(limits.host)} ({limits.host_source})",
                hint=f"Nothing was allocated; use --memory {advise_memory(needed)} or more.",
            )
        return 0

    def check(self, facts: DataFacts) -> int:
        """Return the bytes that compiling takes beside the plan; raise what speaks against it."""
        options, config = self.options, self.plan.config
        check_held_out(options)
        if options.label_loss != "auto" and not facts.listed:
            raise UsageError("each row has one label: --label-loss", hint=LISTS_ALONE)
        if options.optimise == PROPENSITY and not facts.listed:
            raise UsageError("each row has one label: --optimise propensity", hint=LISTS_ALONE)
        if config.part("linear") is not None and options.of_epochs is not None:
            what = f"linear classifiers are learnt to the end, not in epochs: {options.of_epochs}"
            raise UsageError(what, hint="Plan with --linear off.")
        joint = config.part("joint")
        if options.label_loss == "logistic" and joint is not None and joint.fixed:
            raise UsageError("the joint loss has no sigmoids: --label-loss logistic, --loss joint")
        if self.share is not None:
            self.share.check(self.plan, options)
            if self.clock.limited:
                raise UsageError("what a time allows differs from part to part: --time with --part")
            if self.start is not None:
                raise UsageError("a part starts from no other model: --part")
            _ = self.settings_of_share
        needed = not any(part.measure_untrained for part in parts_of_plan(config))
        if options.epochs == 0 and (needed or not config.batching.held_out_rows):
            raise UsageError("at least one epoch is needed: --epochs")
        return self._compiler_bytes()

    def finished(self) -> bool:
        """Return whether it is done in its folder already, and gone on with."""
        if not self.resume or self.share is None:
            return self.resume and (self.folder / RESULT).exists()
        try:
            return not RunPart.open(self.folder).open_work
        except StreammachError:
            return False

    def begin(self) -> None:
        """Raise UsageError or MismatchError if the folder holds something else than this."""
        check_not_begun(self.folder, resume=self.resume, kind=self.kind)
        if self.share is None:
            return
        known = (workplace(self.folder, self.kind).facts() or {}).get(COUNT, str(self.share))
        if known != str(self.share):
            what = f"it is part {clean(known, 20)} of a run, not {self.share}"
            raise MismatchError(what, path=self.folder)


Mapped = tuple[Transform, bool, float]  # what the map of a training's rows depends on


class Session:
    """What the stages of a training share; the plan may be that of a share's repetitions."""

    def __init__(
        self, request: FitRequest, dataset: Dataset, plan: Plan, *, events: Events,
        stop: StopSignals, stages: Stages,
    ) -> None:  # fmt: skip
        self.request, self.plan, self.dataset = request, plan, dataset
        self.options, self.clock = request.options, request.clock
        self.events, self.stop, self.stages = events, stop, stages
        self.begin(HELD_OUT)
        self.saved = ""  # what an interruption leaves beside findings, in words
        self.best_trial: BestTrial | None = None  # of a search, where the time is limited
        self.trained_share = 1.0  # share of the repetitions whose epochs are trained here
        self.first: FirstFit | None = None  # what was fitted before the first epoch
        self.findings = Findings(request.folder, "", lasting=False)
        self.interim = False  # whether a model is made that another one follows
        self._basis: tuple[Mapped, RowMap] | None = None  # the last one that was found
        config = plan.config
        start = request.start if request.start is not None and request.start.training else None
        among, looking = None if start is None else start.judges, request.clock.share(LOOKING_SHARE)
        held = hold_out(dataset, config.batching, self.options, among, looking)
        # the model that it goes on from, and which rows it has not seen: bool (n_rows,)
        self.known: Model | None = None if start is None else start.model
        self.new = np.zeros(0, np.bool_) if start is None else start.new
        # rows that epochs do not learn from, bool (n_rows,), or None
        self.left = held.mask
        if start is not None:
            self.left = left_out(start.new, held.mask, OLD_SHARE)
        self.held = _weigh_held_out(held, dataset, self.options)
        self.backend = BACKENDS[config.placement.device].open(
            plan.model, config, facts=plan.facts, device_bytes=plan.limits.device
        )
        if self.held.looked:
            self.tell(f"held out {self.held.origin}")
        # How long rows were looked at says nothing of other stages.
        stages.expect({HELD_OUT: 1 + stages.took[HELD_OUT]})

    @cached_property
    def judges(self) -> RowBlock:
        """Rows that judge trials: held-out ones, or training rows where none are held out."""
        if self.held.rows.n_rows:
            return self.held.rows
        most = min(self.plan.config.batching.batch_size, MOST_JUDGES)  # the store is shuffled
        first = next(masked_rows(self.dataset, np.arange(self.dataset.n_rows) < most))
        return _weigh_held_out(replace(self.held, rows=first), self.dataset, self.options).rows

    def close(self) -> None:
        """Give back what the backend has of a device and of the process."""
        self.backend.close()

    def settings(self, training: TrainSpec, **why: Any) -> RunSettings:
        """Return what is decided of a training, and on which rows."""
        return RunSettings(
            training=training, held_out=self.held.origin, request=self.request.identity,
            held_out_rows=held_numbers(self.dataset, self.held), **why,
        )  # fmt: skip

    def check(self) -> None:
        """End the work where a signal asks for it."""
        if self.stop.requested:
            self.events.log("interrupted")
            if not self.request.lasting:
                raise Interrupted("interrupted: nothing is kept of a run in a temporary folder")
            found = "what was found is saved" if self.findings.lasting else ""
            kept = self.saved or found
            raise Interrupted(
                f"interrupted: {kept}" if kept else "interrupted",
                hint=GOES_ON if kept else "Nothing is saved yet; run the command again.",
            )

    def time_budget(self) -> TimeBudget:
        """Return how the time that there is from now on is divided."""
        return TimeBudget(self.plan, self.options, self.clock, self.stages)

    def begin(self, stage: str) -> None:
        """Begin a stage of the run, and end the one before."""
        self.stages.begin(stage)

    def at(self, done: float, total: float) -> None:
        """Note how much of the present stage is done; 0 in all where that is not known."""
        self.stages.at(done, total)

    def fit_first(self) -> None:
        """Fit what ranks without hashed models, or read it: a merge from its first share."""
        shares = self.request.shares
        folder, identity = self.request.folder, self.request.identity
        if shares:
            folder, identity = shares[0].path, shares[0].facts.request
        for part in parts_of_plan(self.plan.config):
            if part.fit_first is not None:
                self.first = part.fit_first(self, folder / CHECKPOINTS / part.name, identity)

    def save_first(self) -> None:
        """Write what was fitted first, and let go what was kept until then; or raise DiskError."""
        for part in parts_of_plan(self.plan.config):
            if part.fit_first is not None and self.first is not None:
                folder = self.request.folder / CHECKPOINTS / part.name
                if not folder.is_dir():
                    self.first.save(folder, self.request.identity)
                self.findings.drop(*self.first.unfinished)

    def let_go(self) -> None:
        """Give back the memory of what was fitted first."""
        if self.first is not None:
            self.first = None
            gc.collect()  # frames in which kernels were compiled hang in cycles, with arrays

    def expect_epochs(self, epochs: int, seconds: float) -> None:
        """Note what so many epochs should take, of so many seconds each, and being kept."""
        config = self.plan.config
        tables = 1 + len(config.optimizer_kind.per_weight)
        saved = 4 * BYTE * tables * config.weight_rows * config.shape.n_columns
        saved *= not self.backend.keeps_best  # else the best epoch stays in memory
        self.stages.expect({EPOCHS: epochs * (seconds + saved) * self.trained_share})

    def keep_findings(self) -> None:
        """Keep what stages find from now on, for a run that goes on behind them."""
        folder = self.request.folder / CHECKPOINTS / KEPT
        self.findings = Findings(folder, self.request.identity, lasting=True)

    def tell(self, text: str) -> None:
        """Say what a part found."""
        self.events.log("message", text=text)
        self.events.call("on_message", text)

    def note_metrics(self, stage: str, reached: HeldOutMetrics) -> None:
        """Note what a stage reached on held-out rows."""
        self.events.log("measured", reached, stage=stage)

    def prepare(self, spec: TrainSpec, basis: RowMap | None = None) -> None:
        """Make the backend ready to train from zero weights, in the room that the plan gives."""
        room = self.plan.config.batching
        self.backend.prepare(spec, room.batch_nnz, basis, room.batch_labels)

    def feature_map(self, spec: TrainSpec) -> RowMap | None:
        """Return the basis of a training's rows, and columns beside it, if parts want that."""
        if not (spec.whitened or spec.bandwidth):
            return None
        wanted = (spec.transform, spec.whitened, spec.bandwidth)
        if self._basis is not None and self._basis[0] == wanted:
            return self._basis[1]
        self._basis = None  # there is room for one
        found: RowMap | None = None
        for part in parts_of_plan(self.plan.config):
            if part.map_rows is not None:
                found = part.map_rows(self, spec, found)
        if found is not None:
            self._basis = (wanted, found)
        return found

    def forget_feature_map(self) -> None:
        """Give back what was kept for further trials."""
        self._basis = None


def _weigh_held_out(held: HeldOut, dataset: Dataset, options: TrainingOptions) -> HeldOut:
    """Return held-out rows whose labels weigh 1 / propensity if choices go by it, else alike."""
    lists = held.rows.labels
    if lists is None:
        return held
    if options.optimise == PROPENSITY:
        return replace(held, rows=weigh_labels(held.rows, dataset))
    return replace(held, rows=held.rows.with_labels(replace(lists, weights=None)))
