"""What an optional part of a training is: what may stand beside or within the hashed models.

A part is a folder here and a name in :mod:`streammach.parts.switches`. Planner, ledger, search,
trainer, command and report ask all parts and know none of them by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from streammach.options.config import PartPlan, RunConfig
from streammach.options.facts import DataFacts
from streammach.options.figures import HeldOutMetrics
from streammach.options.training import TrainSpec
from streammach.parts.expected import WITHOUT, Choice, PartBytes, PartTime
from streammach.parts.switches import Switch
from streammach.parts.training_record import Decision, FirstFit, Training, Trials
from streammach.rows.dense import RowMap
from streammach.system.errors import check_word


class SearchStage(Protocol):
    """Returns the training with a part or without it, as held-out rows say, and why."""

    def __call__(
        self, training: Training, trials: Trials, spec: TrainSpec
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
    project_bytes: Callable[[DataFacts, RunConfig], PartBytes] = lambda *_: PartBytes()
    project_time: Callable[[DataFacts, RunConfig], PartTime] = lambda *_: PartTime()
    # in a word or two
    describe: Callable[[PartPlan], str] = lambda part: part.name.replace("_", " ")
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
    map_rows: Callable[[Training, TrainSpec, RowMap | None], RowMap | None] | None = None
    # Fits what ranks classes without hashed models, or reads it where it was saved: `fit_first` is
    # given its folder and the digest of the training.
    fit_first: Callable[[Training, Path, str], FirstFit] | None = None
    fit: Callable[[Training, TrainSpec], Decision] | None = None  # after the last epoch
    # Measures weights that need no epoch, which take those of the backend.
    measure_untrained: Callable[[Training, TrainSpec], HeldOutMetrics] | None = None

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
