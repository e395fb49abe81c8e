"""Trains a part of a run: every epoch of some repetitions, and what is counted ahead."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import msgspec

from streammach.clock import Clock
from streammach.data.identity import name_of
from streammach.errors import (
    Interrupted,
    MismatchError,
    ModelError,
    StreammachError,
    UsageError,
    clean,
)
from streammach.figures import EpochFigures
from streammach.files.folders import remove_folder
from streammach.files.urls import absolute
from streammach.files.workplaces import GOES_ON
from streammach.files.writing import write_atomic
from streammach.model.findings import Findings
from streammach.model.model import Model
from streammach.parts.registry import planned
from streammach.planning.ledger import ledger
from streammach.planning.schedule import EPOCHS as USUAL_EPOCHS
from streammach.planning.speed import known_speed
from streammach.spec.documents import to_json
from streammach.spec.ledger import bytes_in
from streammach.spec.plan import Plan
from streammach.spec.training import TrainingOptions
from streammach.training.ahead import WorkAhead
from streammach.training.callbacks import State
from streammach.training.epochs import Epochs
from streammach.training.events import Saved
from streammach.training.job import CHECKPOINTS, Job, Work
from streammach.training.pace import Pace
from streammach.training.run import PART_OF_RUN, SETTINGS, Settings, begun, workplace
from streammach.training.run_part import COUNT, PART, PartFacts, PartNumber, RunPart
from streammach.training.timetable import ALONE, EPOCHS, SEARCH, timetable
from streammach.training.whole import decide

KEPT = "kept"  # what stages found, until it is done


class PartJob(Job[RunPart]):
    """Trains a part of a run."""

    kind = PART_OF_RUN

    def __init__(
        self, plan: Plan, number: PartNumber, options: TrainingOptions,
        settings: str | os.PathLike[str] | None = None,
    ) -> None:  # fmt: skip
        if number.of > plan.n_repetitions:
            raise UsageError(
                f"a model of {plan.n_repetitions} repetitions is not trained in {number.of} parts: "
                "--part"
            )
        self.plan, self._number, self._options = plan, number, options
        self._from = settings
        self._other: Settings | None = None  # what was decided there

    @property
    def facts(self) -> dict[str, str]:
        """What the folder's marker says beside the request."""
        return {COUNT: str(self._number)}

    @property
    def disk_bytes(self) -> int:
        """Bytes of disk that it takes at most: a checkpoint of each epoch, and two more."""
        names = ("weights", "optimizer")
        table = bytes_in([line for line in self.mine.ledger if line.name in names], "host")
        epochs = self._options.epochs or USUAL_EPOCHS[self.plan.config.dense]
        config = self.plan.config
        kept = sum(part.kept_bytes(self.plan.facts, config) for part in planned(config))
        return (epochs + 2) * table + (kept if self._number.number == 1 else 0)

    @property
    def mine(self) -> Plan:
        """The plan of its repetitions: what is trained, without what comes before and after."""
        plan, some = self.plan, self._number.repetitions(self.plan.n_repetitions)
        model = plan.model.some(*some)
        placement = replace(plan.config.placement, waves=self._number.waves(plan))
        config = replace(plan.config, shape=model.shape, placement=placement, parts=())
        lines = tuple(x for x in ledger(plan.facts, config) if x.name != "smaller model")
        return replace(plan, model=model, config=config, ledger=lines)

    @property
    def projected_bytes(self) -> int:
        """Bytes of memory that it takes at most: of the whole model, where that is decided on."""
        mine = bytes_in(self.mine.ledger, "host")
        alone = self._from is not None and self._number.number > 1
        return mine if alone else max(mine, self.plan.projected_bytes)

    def check(self, options: TrainingOptions, clock: Clock, start: Model | None) -> None:
        """Raise UsageError if the run cannot be had in such parts."""
        config = self.plan.config
        if config.dense:
            raise UsageError(
                "dense rows are not trained in parts: the bits of their matrix products depend on "
                "the repetitions beside: --part"
            )
        if config.placement.weights == "bfloat16":
            raise UsageError(
                "bfloat16 weights are rounded by their places in the whole model: --part",
                hint="Use --weights float32.",
            )
        if options.epochs == 0:
            raise UsageError("at least one epoch is needed: --epochs")
        if clock.limited:
            raise UsageError("what a time allows differs from part to part: --time with --part")
        if start is not None:
            raise UsageError("a part starts from no other model: --part")
        self._check_settings(options)
        for part in planned(config):
            if part.couples:
                switch = part.switch
                raise UsageError(
                    f"the repetitions may learn together ({part.name}), which parts cannot: --part",
                    hint=f"Use {switch.flag} {switch.words[2]}.",
                )

    def _check_settings(self, options: TrainingOptions) -> None:
        """Take what another part decided, or raise UsageError or MismatchError."""
        if self._from is None:
            return
        other = RunPart.open(self._from)
        if other.settings is None:
            raise UsageError(
                "nothing is decided there yet: --settings", path=clean(self._from, 300)
            )
        facts = msgspec.structs.replace(other.facts, options=_named(options))
        like = replace(other, facts=facts, plan=self.plan, path=Path("--settings"))
        like.check_like(other)
        self._other = other.settings

    def begin(self, folder: Path, *, resume: bool) -> None:
        """Raise UsageError or MismatchError if a folder holds something else than this part."""
        begun(folder, resume=resume, kind=PART_OF_RUN)
        known = (workplace(folder, PART_OF_RUN).facts() or {}).get(COUNT, str(self._number))
        if known != str(self._number):
            raise MismatchError(
                f"it is part {clean(known, 20)} of a run, not {self._number}",
                path=clean(folder, 300),
            )

    def done(self, folder: Path) -> bool:
        """Return whether a folder holds such a part, and it is finished."""
        try:
            return not RunPart.open(folder).left
        except StreammachError:
            return False

    def reopened(self, folder: Path) -> RunPart:
        """Return a finished part."""
        return RunPart.open(folder)

    def expected(self, seconds: dict[str, float]) -> dict[str, float]:
        """Return the stages until the last epoch, with the seconds that each should take."""
        found, plan = {}, self.plan
        config, number = self.mine.config, self._number.number
        ahead = {name for part in planned(plan.config)
                 for name in part.stages_ahead(plan.facts, plan.config, 1.0)}  # fmt: skip
        for name, each in seconds.items():
            if name == EPOCHS:
                break
            skipped = (name in ahead and number > 1) or (name == SEARCH and self._from is not None)
            if not skipped:
                found[name] = each
        mine = timetable(plan.facts, config, self._options, speed=known_speed())
        return found | {EPOCHS: mine[EPOCHS]}

    def work(self, work: Work) -> RunPart:
        """Decide what is not decided yet; train all epochs of its repetitions."""
        write_atomic(work.folder / PART, to_json(PartFacts(
            part=self._number, options=_named(work.options), request=work.request,
            store=name_of(absolute(work.dataset.path)),
        )))  # fmt: skip
        settings = self._handed_on(work) or self._decided(work)
        with work.session(self.mine) as session:
            session.begin(EPOCHS)
            epochs = PartEpochs(
                session, settings.training, work.checkpoints(every_epoch=True),
                checkpoint_seconds=work.checkpoint_seconds,
            )  # fmt: skip
            state = epochs.run()
            if epochs.progress.epoch < settings.training.epochs:
                raise Interrupted(
                    f"ended after epoch {epochs.progress.epoch} ({epochs.progress.stopped})",
                    hint=GOES_ON,
                )
            remove_folder(work.folder / CHECKPOINTS / KEPT)
            session.stages.close()
            session.events.call("on_fit_end", state)
        part = RunPart.open(work.folder)
        if part.left:
            raise ModelError(
                f"damaged: checkpoints of epochs are missing ({part.left})",
                path=clean(part.path, 300), hint="Train it again in another folder.",
            )  # fmt: skip
        return part

    def _handed_on(self, work: Work) -> Settings | None:
        """Return what was decided in another part, or here before, if no whole model is needed."""
        path, found = work.folder / SETTINGS, self._other
        if found is not None and not path.exists():
            write_atomic(path, to_json(msgspec.structs.replace(found, request=work.request)))
        part = RunPart.open(work.folder)
        return None if part.ahead else part.settings

    def _decided(self, work: Work) -> Settings:
        """Return what is decided on the whole model, before the first epoch."""
        folder = work.folder / CHECKPOINTS
        with work.session(self.plan) as session:
            pace = Pace(session)
            session.findings = Findings(folder / KEPT, work.request, lasting=True)
            first, last = self._number.repetitions(self.plan.n_repetitions)
            session.trained_share = (last - first) / self.plan.n_repetitions
            found = decide(session, work, pace)  # first: other parts may wait for it
            if RunPart.open(work.folder).ahead:
                ahead = WorkAhead(session, folder, work.request)
                done = ahead.run()
                with session.stages.one(ALONE):
                    ahead.keep(done)
            return found


class PartEpochs(Epochs):
    """Trains a part of a run: all epochs, of which each one's end is kept, and none is measured.

    Held-out rows say something of all repetitions together.
    """

    def state(self, first_row: int = 0, seconds: float = 0.0) -> State:
        """Return what callbacks see: no epoch is the best."""
        return replace(super().state(first_row, seconds), best_epoch=-1)

    def _measured(self, speed: float) -> EpochFigures:
        return self._entry(speed)

    def _keep(self, epoch: int) -> None:
        """Save at the end of every epoch; without it the part is of no use."""
        at = self.progress
        self._checkpoints.save(at, self._backend.arrays())
        self._events.log(Saved(step=at.step, epoch=at.epoch, row=at.row))


def _named(options: TrainingOptions) -> TrainingOptions:
    """Return options that JSON can hold: the name of a store may be any bytes."""
    if options.validation is None:
        return options
    return replace(options, validation=name_of(absolute(options.validation)))
