"""What a trainer does in a folder: a whole run, a part of one, or the joining of parts."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from streammach.clock import Clock
from streammach.data.store.dataset import Dataset
from streammach.files.writing import TEMPORARY
from streammach.model.checkpoint import Checkpoints
from streammach.model.model import Model
from streammach.spec.plan import Plan
from streammach.spec.training import TrainingOptions
from streammach.stages import Stages
from streammach.training.events import Events
from streammach.training.session import Session, opened
from streammach.training.signals import StopSignals
from streammach.training.timetable import HELD_OUT

T = TypeVar("T")
CHECKPOINTS = "checkpoints"
# What lies there: checkpoints, what parts did ahead, what stages found, and what was cut off.
CHECKPOINT_FILES = re.compile(
    r"(step-\d+|\.partial)(/state\.(json|safetensors))?|\.?counts(/counts\.(json|safetensors))?|"
    r"kept(/[a-z0-9-]+\.json|/\.?[a-z]+(/(found|counts)\.(json|safetensors))?)?|"
    rf"(.*/)?({TEMPORARY.pattern}|\.[^/]+\.scratch(/.*)?)"
)


@dataclass(frozen=True, kw_only=True)
class Work:
    """A training that goes on in a folder of its own."""

    folder: Path  # the folder
    request: str  # digest of all that decides the result
    dataset: Dataset  # the training store
    options: TrainingOptions  # what the user fixed
    events: Events  # told what happens
    stop: StopSignals  # says whether a signal asks for the end
    stages: Stages  # told where the work is
    clock: Clock  # the time that there is
    lasting: bool  # whether the folder stays
    checkpoint_seconds: float  # time between checkpoints
    start: Model | None = None  # where the weights start
    compiling: int = 0  # bytes that compiling takes beside the plan

    def session(self, plan: Plan) -> AbstractContextManager[Session]:
        """Return what opens a backend and reads the held-out rows, by a plan."""
        self.stages.begin(HELD_OUT)
        return opened(
            plan, self.options, self.dataset, events=self.events, stop=self.stop, clock=self.clock,
            stages=self.stages,
        )  # fmt: skip

    def checkpoints(self, *, every_epoch: bool = False) -> Checkpoints:
        """Return the checkpoints, of which those of epochs' ends may all be kept."""
        return Checkpoints(self.folder / CHECKPOINTS, self.request, every_epoch=every_epoch)


class Job(ABC, Generic[T]):
    """What is done in a folder.

    Attributes
    ----------
    kind : str
        What the folder is, as its marker says.
    plan : Plan
        Model, memory, place.
    """

    kind = "run"
    plan: Plan

    @abstractmethod
    def check(self, options: TrainingOptions, clock: Clock, start: Model | None) -> None:
        """Raise UsageError if it cannot be done."""

    @abstractmethod
    def begin(self, folder: Path, *, resume: bool) -> None:
        """Raise UsageError or MismatchError if it may not be done in a folder."""

    @abstractmethod
    def done(self, folder: Path) -> bool:
        """Return whether it is done in a folder."""

    @abstractmethod
    def reopened(self, folder: Path) -> T:
        """Return what was done in a folder."""

    @property
    def facts(self) -> dict[str, str]:
        """What the folder's marker says beside the request."""
        return {}

    @property
    def disk_bytes(self) -> int:
        """Bytes of disk that it takes at most."""
        return self.plan.disk_bytes

    def expected(self, seconds: dict[str, float]) -> dict[str, float]:
        """Return its stages of those of a whole run, with the seconds that each should take."""
        return seconds

    @abstractmethod
    def work(self, work: Work) -> T:
        """Do it."""
