"""One training: what its stages share, and what optional parts give it."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from streammach.backends.protocol import Backend
from streammach.linear.late import LateLabels
from streammach.linear.scorer import Linear
from streammach.model.findings import Findings
from streammach.model.model import Model
from streammach.options.figures import HeldOutMetrics
from streammach.options.plan import Plan
from streammach.options.training import TrainingOptions, TrainSpec
from streammach.options.types import Ranker, Transform
from streammach.prediction.ranking import Ranking
from streammach.rows.block import RowBlock
from streammach.rows.dense import RowMap
from streammach.rows.pairs import CountWeights, NamePairs
from streammach.store.dataset import Dataset
from streammach.store.holdout import HeldOut
from streammach.system.clock import Clock
from streammach.system.errors import Interrupted
from streammach.system.files.reading import disk_errors, regular
from streammach.system.files.workplaces import GOES_ON
from streammach.system.processes import StopSignals
from streammach.system.stages import Stages, StageState

LOG = "log.jsonl"
LOGGER = logging.getLogger("streammach")
STOPPING = "stopping; again: now"  # what is shown after a signal, until its step is over
MapKey = tuple[Transform, bool, float]  # what the map of a training's rows depends on


@dataclass(kw_only=True)
class Training:
    """One training, which its stages share; what has no value here is set when it is opened."""

    plan: Plan  # of the epochs of a shard: that of its repetitions
    options: TrainingOptions  # what the user fixed
    folder: Path  # of the run
    clock: Clock  # the time that there is, later that for the present stage
    callbacks: tuple[object, ...] = ()  # who watches it
    checkpoint_seconds: float = float("inf")  # between two checkpoints
    stop: StopSignals = field(default_factory=StopSignals)  # asks for the end
    resume: bool = False  # whether it goes on with what the folder holds
    lasting: bool = True  # whether the folder stays

    dataset: Dataset = field(init=False)  # the training store
    identity: str = field(init=False)  # digest of all that decides the result
    stages: Stages = field(init=False)  # how far it is
    holdout: HeldOut = field(init=False)  # the rows that decide
    backend: Backend = field(init=False)  # holds the weights
    findings: Findings = field(init=False)  # what stages found, for a run that goes on behind them
    # rows that epochs do not learn from, bool (n_rows,), or None
    excluded: NDArray[np.bool_] | None = None
    # known, n_known, new: the model that it goes on from, how many of its classes are known, and
    # which rows it has not seen: bool (n_rows,)
    known: Model | None = None
    n_known: int = 0
    new: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    first: FirstFit | None = None  # what was fitted before the first epoch
    row_map: tuple[MapKey, RowMap] | None = None  # the last map of rows that was found
    trained_share: float = 1.0  # share of the repetitions whose epochs are trained here
    began: float = 0.0  # when its log did
    interim: bool = False  # whether a model is made that another one follows
    saved: str = ""  # what an interruption leaves beside findings, in words
    finishing: bool = False  # whether a model is made of what was trained

    def __post_init__(self) -> None:
        self.whole_clock = self.clock

    def begin_stage(self, stage: str) -> None:
        """Begin a stage of the run, and end the one before."""
        self.stages.begin(stage)

    def report_progress(self, n_done: float, total: float) -> None:
        """Note how much of the present stage is done; 0 in all where that is not known."""
        self.stages.at(n_done, total)

    def check_stop(self) -> None:
        """End the work where a signal asks for it."""
        if not self.stop.requested:
            return
        if self.ends_early and self.finishing:
            self.whole_clock.end()  # so that it takes little time
            return
        self.log("interrupted")
        if self.ends_early:
            raise KeyboardInterrupt
        if not self.lasting:
            raise Interrupted("interrupted: nothing is kept of a run in a temporary folder")
        kept = self.saved or ("what was found is saved" if self.findings.lasting else "")
        raise Interrupted(
            f"interrupted: {kept}" if kept else "interrupted",
            hint=GOES_ON if kept else "Nothing is saved yet; run the command again.",
        )

    @property
    def ends_early(self) -> bool:
        """Whether Ctrl-C came to a run that does not last: its model is the best by then."""
        return self.stop.by_user and not self.lasting

    def forget_first(self) -> None:
        """Give back the memory of what was fitted first."""
        if self.first is not None:
            self.first = None
            gc.collect()  # frames in which kernels were compiled hang in cycles, with arrays

    def report(self, text: str) -> None:
        """Report what a stage found."""
        self.log("message", text=text)
        self.call("on_message", text)

    def log_metrics(self, stage: str, metrics: HeldOutMetrics) -> None:
        """Log what a stage reached on held-out rows."""
        self.log("measured", metrics, stage=stage)

    def report_stage(self, state: StageState) -> None:
        """Tell callbacks how far the run is; called by a thread of its own."""
        self.call("on_stage", replace(state, note=STOPPING) if self.stop.requested else state)
        if state.moment == "end":
            self.log("stage", stage=state.stage, seconds=round(state.stage_seconds, 3))

    def call(self, method: str, *args: object) -> None:
        """Call a method of every callback that has it, in their order."""
        for callback in self.callbacks:
            function = getattr(callback, method, None)
            if function is not None:
                function(*args)

    def log(self, event: str, figures: msgspec.Struct | None = None, /, **fields: object) -> None:
        """Append a line to the log with the name of an event, or raise DiskError."""
        if figures is not None:
            fields |= msgspec.to_builtins(figures)
        LOGGER.info("%s %s", event, fields)
        line = {"t": round(time.monotonic() - self.began, 3), "event": event, **fields}
        path = self.folder / LOG
        with disk_errors(path), open(path, "ab", opener=regular) as log:
            log.write(msgspec.json.encode(line) + b"\n")


class Trials(Protocol):
    """Short trainings that are compared on held-out rows."""

    climbs: bool  # whether rates are searched

    def choose_rate(self, spec: TrainSpec, what: str) -> tuple[TrainSpec, str]:
        """Return the training at the best rate near its own, and why."""

    def better(
        self, spec: TrainSpec, other: TrainSpec, what: str, names: tuple[str, str]
    ) -> tuple[bool, str]:
        """Return whether another training is better by more than noise, and the evidence."""


@dataclass
class Decision:
    """What held-out rows said of a part after the last epoch."""

    reasons: tuple[str, ...] = ()  # why, in sentences
    # what was measured on held-out rows, by way of ranking
    figures: dict[Ranker, HeldOutMetrics] = field(default_factory=dict)
    ranking: Ranking | None = None  # how classes are ranked with the part, where it changes that
    counts: CountWeights | None = None  # counts beside the hashed models
    names: NamePairs | None = None  # what names of labels add to these
    linear: Linear | None = None  # linear classifiers, which are the model
    # rows that decide, and their ranking, where they are not the held-out ones
    judged: tuple[RowBlock, Ranking] | None = None
    late: LateLabels | None = None  # classifiers that score the best classes again

    def learn_held_out(self) -> None:
        """Learn from the rows that were held out, when all choices are made."""

    def close(self) -> None:
        """Give back what is held."""


@dataclass(frozen=True, kw_only=True)
class FirstFit:
    """What was fitted before the first epoch: it ranks classes without hashed models."""

    name: str  # the part's
    decide_alone: Callable[[Training], Decision]  # what ranks without hashed models
    decide_beside: Callable[[Training, TrainSpec], Decision] | None = None  # what ranks beside them
    # Writes a folder, which appears whole, for the digest of a training.
    save: Callable[[Path, str], None] | None = None
    unfinished: tuple[str, ...] = ()  # names under which findings keep its work until it is saved
    # seconds of stages to come, by name and by what those before them took
    seconds: dict[str, float] = field(default_factory=dict)
    # fields of TrainingOptions that do the same without a limit of time
    options: dict[str, int] = field(default_factory=dict)
