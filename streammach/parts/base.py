"""What an optional part of a training is: what may stand beside or within the hashed models.

A part is a folder here and a name in :mod:`streammach.parts.switches`. Planner, ledger, search,
trainer, command and report ask all parts and know none of them by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from streammach.backends.protocol import Backend
from streammach.clock import Clock
from streammach.data.holdout import HeldOut
from streammach.data.store.dataset import Dataset
from streammach.errors import check_word
from streammach.figures import HeldOutMetrics
from streammach.linear.late import LateLabels
from streammach.linear.scorer import Linear
from streammach.model.findings import Findings
from streammach.model.model import Model
from streammach.parts.expected import WITHOUT, Choice, PartBytes, PartTime
from streammach.parts.switches import Switch
from streammach.prediction.ranking import Ranking
from streammach.rows.block import RowBlock
from streammach.rows.dense import RowMap
from streammach.rows.pairs import CountWeights
from streammach.spec.config import PartPlan, RunConfig
from streammach.spec.facts import DataFacts
from streammach.spec.plan import Plan
from streammach.spec.training import TrainingOptions, TrainSpec
from streammach.spec.types import Ranker


class PartSession(Protocol):
    """What a part is given of a training."""

    dataset: Dataset  # the training store
    plan: Plan
    backend: Backend  # holds the weights
    held: HeldOut  # the rows that decide
    options: TrainingOptions  # what the user fixed
    clock: Clock  # the time that there is for the stage
    first: FirstFit | None  # what was fitted before the first epoch
    known: Model | None  # the model that the training goes on from
    new: NDArray[np.bool_]  # bool (n_rows,): which rows that has not seen
    findings: Findings  # what stages found, for a run that goes on behind them
    interim: bool  # whether a model is made that another one follows

    def check(self) -> None:
        """End the work where a signal asks for it."""

    def begin(self, stage: str) -> None:
        """Begin a stage of the run, and end the one before."""

    def at(self, done: float, total: float) -> None:
        """Note how much of the present stage is done; 0 in all where that is not known."""

    def tell(self, text: str) -> None:
        """Say what was found."""

    def note_metrics(self, stage: str, reached: HeldOutMetrics) -> None:
        """Note what a stage, by its name, reached on held-out rows."""


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
    linear: Linear | None = None  # linear classifiers, which are the model
    # rows that decide, and their ranking, where they are not the held-out ones
    judged: tuple[RowBlock, Ranking] | None = None
    late: LateLabels | None = None  # classifiers that score the best classes again

    def learn_held_out(self) -> None:
        """Learn from the rows that were held out, when all choices are made."""

    def close(self) -> None:
        """Give back what is held."""


class FirstFit:
    """What a part fitted before the first epoch: it ranks classes without hashed models."""

    unfinished: tuple[str, ...] = ()  # names under which findings keep its work until it is saved
    seconds: dict[str, float]  # of stages to come, by name and by what those before them took
    options: dict[str, int]  # fields of TrainingOptions that do the same without a limit of time

    def save(self, folder: Path, identity: str) -> None:
        """Write it into a folder, which appears whole; `identity` is the digest of the training."""
        raise NotImplementedError

    def decide(self, session: PartSession) -> Decision:
        """Return it as what ranks classes, without hashed models."""
        raise NotImplementedError


class SearchStage(Protocol):
    """Returns the training with a part or without it, as held-out rows say, and why."""

    def __call__(
        self, session: PartSession, trials: Trials, spec: TrainSpec
    ) -> tuple[TrainSpec, list[str]]: ...


class ListChoices(Protocol):
    """Yields what may be planned, the best first; `sure` where the user wants the part."""

    def __call__(self, facts: DataFacts, config: RunConfig, *, sure: bool) -> Iterator[Choice]: ...


@dataclass(frozen=True, kw_only=True)
class Part:
    """An optional part: what planning knows of it, and its stages of a training."""

    name: str  # its name in plans
    switch: Switch  # how it is asked for
    find_obstacle: Callable[[DataFacts, RunConfig], str | None]  # why data or optimiser exclude it
    list_choices: ListChoices
    project_bytes: Callable[[DataFacts, RunConfig], PartBytes] | None = None
    project_time: Callable[[DataFacts, RunConfig], PartTime] | None = None
    describe: Callable[[PartPlan], str] | None = None  # in a word or two; its name otherwise
    absence: str = ""  # how a plan says that it is left out, where it says so
    # Whether plans with it and without it, or with more and less of it, are weighed against one
    # another; otherwise it is planned wherever there is room.
    weighed: bool = False
    sole: bool = False  # whether it is the whole model, without hashed models and other parts
    exact_only: bool = False  # whether it goes with exact models alone
    # before the first epoch or after the last one: when its memory is taken
    when: Literal["before", "after"] = "after"
    # Whether what is done after the last epoch changes the weights, so that it comes first.
    changes_weights: bool = False
    # Whether repetitions learn together with it, so that none can be trained without the others.
    couples: bool = False

    # Stages of a training; None where there is none.
    # Of an option of hashed models: switches it on, searches for it, brings rows to another basis.
    switch_on: Callable[[TrainSpec], TrainSpec] | None = None
    search: SearchStage | None = None
    map_rows: Callable[[PartSession, TrainSpec, RowMap | None], RowMap | None] | None = None
    # Fits what ranks classes without hashed models, or reads it where it was saved: `fit_first` is
    # given its folder and the digest of the training.
    fit_first: Callable[[PartSession, Path, str], FirstFit] | None = None
    fit: Callable[[PartSession, TrainSpec], Decision] | None = None  # after the last epoch
    # Measures weights that need no epoch, which take those of the backend.
    measure_untrained: Callable[[PartSession, TrainSpec], HeldOutMetrics] | None = None

    def reason_against(self, config: RunConfig) -> str | None:
        """Return why the model's shape or place excludes it, in words; None if it does not."""
        shape, waves = config.shape, config.placement.waves
        if self.sole and not shape.unhashed:
            return "it stands without hashed models"
        if self.exact_only and not shape.exact:
            return "exact models alone have it"
        if self.couples and shape.exact:
            return "an exact model has no repetitions to join"
        if self.couples and waves > 1:
            return f"the repetitions are trained in {waves} waves"
        return None

    def without(self, why: str | None) -> Choice:
        """Return the choice to plan without it; `why` is None where the user says so."""
        if not self.absence:
            return WITHOUT
        return Choice(plan=None, why=self.absence + (f": {why}" if why else ", as asked"))


def switch_value(part: Part, words: Mapping[str, str]) -> str:
    """Return what the user says of a part, ``auto``, ``on`` or ``off``, or raise UsageError."""
    switch = part.switch
    word = words.get(switch.option, switch.words[0])
    check_word(word, switch.words, switch.flag)
    return ("auto", "on", "off")[switch.words.index(word)]
