"""What an optional part of a training is: what may stand beside or within the hashed models.

A part is a folder here and a name in :mod:`streammach.parts.switches`. Planner, ledger, search,
trainer, command and report ask all parts and know none of them by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
from streammach.parts.expected import WITHOUT, Choice, PartTime
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
    ahead: dict[str, Ahead]  # what parts did before the first epoch, by name
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


class Ahead:
    """What a part did before the first epoch, without hashed models."""

    unfinished: tuple[str, ...] = ()  # names under which findings keep its work until it is written
    measured: dict[str, float]  # seconds of stages to come by name, by what those before them took
    named: dict[str, int]  # the fields of TrainingOptions that do the same without a limit of time

    def save(self, folder: Path, identity: str) -> None:
        """Write it into a folder, which appears whole; `identity` is the digest of the training."""
        raise NotImplementedError

    def decision(self, session: PartSession) -> Decision:
        """Return it as what ranks classes, without hashed models."""
        raise NotImplementedError


class Part:
    """An optional part; every method has a default that does nothing."""

    name: str  # its name in plans
    switch: Switch  # how it is asked for
    # Whether plans with it and without it, or with more and less of it, are weighed against one
    # another; otherwise it is planned wherever there is room.
    weighed = False
    sole = False  # whether it is the whole model, without hashed models and other parts
    exact_only = False  # whether it goes with exact models alone
    ranks_alone = False  # whether it ranks classes without hashed models, too
    ranks_untrained = False  # whether it gives weights that were not trained: no epoch is needed
    # before the first epoch or after the last one: when its memory is taken
    when: Literal["before", "after"] = "after"
    # Whether what is done after the last epoch changes the weights, so that it comes first.
    changes_weights = False
    # Whether repetitions learn together with it, so that none can be trained without the others.
    couples = False

    def possible(self, facts: DataFacts, config: RunConfig) -> str | None:
        """Return why it cannot be with this store and optimiser, in words; None if it can."""
        return None

    def reason_against(self, config: RunConfig) -> str | None:
        """Return why the model's shape or place excludes it, in words; None if it does not."""
        only = "exact models alone have it"
        return only if self.exact_only and not config.shape.exact else None

    def choices(self, facts: DataFacts, config: RunConfig, *, sure: bool) -> Iterator[Choice]:
        """Yield what may be planned, the best first; `sure` where the user wants it."""
        yield Choice(plan=PartPlan(name=self.name, fixed=sure))

    def without(self, why: str | None) -> Choice:
        """Return the choice to plan without it; `why` is None where the user says so."""
        return WITHOUT

    def footprint(self, facts: DataFacts, config: RunConfig) -> dict[str, int]:
        """Return the bytes of host memory that it takes, by name."""
        return {}

    def judged_bytes(self, facts: DataFacts, config: RunConfig) -> int:
        """Return the bytes that are still taken while forms of the model are judged."""
        return 0

    def smaller_bytes(self, facts: DataFacts, config: RunConfig) -> int:
        """Return the bytes that its share of a model takes while that becomes smaller."""
        return 0

    def model_bytes(self, config: RunConfig) -> int:
        """Return the bytes that it adds to a model on disk."""
        return 0

    def kept_bytes(self, facts: DataFacts, config: RunConfig) -> int:
        """Return the bytes of what it keeps on disk until hashed models are trained."""
        return 0

    def work(self, facts: DataFacts, config: RunConfig) -> PartTime:
        """Return the time that it takes."""
        return PartTime()

    def stages_ahead(self, facts: DataFacts, config: RunConfig, scale: float) -> dict[str, float]:
        """Return the seconds of the stages ahead of the first epoch, by name and in their order."""
        # `scale` is what a second of one thread of the reference machine takes all threads here.
        return {}

    def stages(self, facts: DataFacts, config: RunConfig, scale: float) -> dict[str, float]:
        """Return the seconds of the stages after the last epoch, in the same way."""
        work = self.work(facts, config)
        found = work.finish * scale + work.fixed
        return {self.name: found} if found else {}

    def text(self, part: PartPlan) -> str:
        """Return it in a word or two, for a table of plans."""
        return part.name

    def begin(self, spec: TrainSpec, part: PartPlan) -> TrainSpec:
        """Return the training that the search starts from."""
        return spec

    def search(
        self, session: PartSession, trials: Trials, spec: TrainSpec
    ) -> tuple[TrainSpec, list[str]]:
        """Return the training with it or without it, as held-out rows say, and why."""
        return spec, []

    def in_use(self, spec: TrainSpec) -> bool | None:
        """Return whether a training uses it; None if its search does not decide that."""
        return None

    def basis(self, session: PartSession, spec: TrainSpec, before: RowMap | None) -> RowMap | None:
        """Return what rows of a training are brought to, beside what parts before do to them."""
        return before

    def work_ahead(self, session: PartSession) -> Ahead:
        """Do what needs no hashed models, where it ranks classes without them."""
        raise NotImplementedError

    def reopen(self, session: PartSession, folder: Path, identity: str) -> Ahead | None:
        """Return what :meth:`Ahead.save` wrote, or None; MismatchError of another training."""
        return None

    def measure_untrained(self, session: PartSession, spec: TrainSpec) -> HeldOutMetrics:
        """Return what held-out rows reach with its weights, which take those of the backend."""
        raise NotImplementedError

    def choose(self, session: PartSession, spec: TrainSpec) -> Decision:
        """Return what held-out rows say of it after the last epoch."""
        return Decision()


def switch_value(part: Part, words: Mapping[str, str]) -> str:
    """Return what the user says of a part, ``auto``, ``on`` or ``off``, or raise UsageError."""
    switch = part.switch
    word = words.get(switch.option, switch.words[0])
    check_word(word, switch.words, switch.flag)
    return ("auto", "on", "off")[switch.words.index(word)]
