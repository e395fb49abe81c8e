"""A training under way: what every stage of it is given."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from streammach.backends.registry import BACKENDS
from streammach.data.holdout import hold_out
from streammach.data.store.dataset import Dataset
from streammach.errors import Interrupted
from streammach.figures import Reached
from streammach.files.workplaces import GOES_ON
from streammach.model.findings import Findings
from streammach.parts.base import Ahead
from streammach.parts.registry import planned
from streammach.planning.cost import BYTE
from streammach.rows.waves import RowMap
from streammach.spec.plan import Plan
from streammach.spec.training import TrainSpec
from streammach.spec.types import Transform
from streammach.stages import Stages
from streammach.training.events import Events, Interruption, Measured, Message
from streammach.training.request import FitRequest
from streammach.training.run import CHECKPOINTS, KEPT
from streammach.training.signals import StopSignals
from streammach.training.timetable import EPOCHS, HELD_OUT

NOTHING_SAVED = ("interrupted", "Nothing is saved yet; run the command again.")
FOUND_SAVED = ("interrupted: what was found is saved", GOES_ON)
EPOCHS_SAVED = ("interrupted: the trained epochs are saved", GOES_ON)
MODEL_SAVED = ("interrupted: a model without hashed ones is saved", GOES_ON)

Mapped = tuple[Transform, bool, float]  # what the map of a training's rows depends on


class Session:
    """What the stages of a training share; the plan may be that of a share's repetitions."""

    def __init__(
        self, request: FitRequest, dataset: Dataset, plan: Plan, *, events: Events,
        stop: StopSignals, stages: Stages, closing: ExitStack,
    ) -> None:  # fmt: skip
        self.request, self.plan, self.dataset = request, plan, dataset
        self.options, self.clock = request.options, request.clock
        self.events, self.stop, self.stages = events, stop, stages
        self.begin(HELD_OUT)
        self.backend = BACKENDS[plan.config.placement.device].open(
            plan.model, plan.config, facts=plan.facts, device_bytes=plan.limits.device
        )
        closing.callback(self.backend.close)
        self.held = hold_out(dataset, plan.config.batching, self.options)
        # Whether a checkpoint holds the epochs, and a model what parts did ahead of them.
        self.epochs_saved, self.model_saved = False, False
        self.trained_share = 1.0  # share of the repetitions whose epochs are trained here
        self.ahead: dict[str, Ahead] = {}  # what parts did before the first epoch, by name
        self.findings = Findings(request.folder, "", lasting=False)
        self._basis: tuple[Mapped, RowMap] | None = None  # the last one that was found
        if self.held.looked:
            self.tell(f"held out {self.held.origin}")

    @property
    def threads(self) -> int:
        """Threads that compute."""
        return self.plan.config.placement.threads

    def check(self) -> None:
        """End the work where a signal asks for it."""
        if self.stop.requested:
            self.events.log(Interruption())
            message, hint = FOUND_SAVED if self.findings.lasting else NOTHING_SAVED
            if self.epochs_saved:
                message, hint = EPOCHS_SAVED
            elif self.model_saved:
                message, hint = MODEL_SAVED
            raise Interrupted(message, hint=hint)

    def begin(self, stage: str) -> None:
        """Begin a stage of the run, and end the one before."""
        self.stages.begin(stage)

    def at(self, done: float, total: float) -> None:
        """Note how much of the present stage is done; 0 in all where that is not known."""
        self.stages.at(done, total)

    def work_ahead(self) -> None:
        """Do what parts can do without hashed models, or find it on disk."""
        self.read_ahead()
        for part in planned(self.plan.config):
            if part.ranks_alone and part.name not in self.ahead:
                self.ahead[part.name] = part.work_ahead(self)

    def read_ahead(self) -> None:
        """Take what was done ahead from disk; of a merge the first share did it."""
        first, self.ahead = next(iter(self.request.shares), None), {}
        folder, identity = self.request.folder, self.request.identity
        if first is not None:
            folder, identity = first.path, first.facts.request
        for part in planned(self.plan.config):
            if part.ranks_alone:
                known = part.reopened(self, folder / CHECKPOINTS / part.name, identity)
                if known is not None:
                    self.ahead[part.name] = known

    def keep_ahead(self) -> None:
        """Write what was done ahead, and let go what was kept until then; or raise DiskError."""
        for name, ahead in self.ahead.items():
            folder = self.request.folder / CHECKPOINTS / name
            if not folder.is_dir():
                ahead.save(folder, self.request.identity)
            self.findings.drop(*ahead.unfinished)

    def let_go(self) -> None:
        """Give back the memory of what parts did ahead."""
        self.ahead.clear()
        # Frames in which kernels were compiled hang in cycles, with the arrays of those who called.
        gc.collect()

    def expect_epochs(self, epochs: int, seconds: float) -> None:
        """Note what so many epochs should take, of so many seconds each and a checkpoint."""
        config = self.plan.config
        tables = 1 + len(config.optimizer_kind.per_weight)
        saved = 4 * BYTE * tables * config.weight_rows * config.shape.n_columns
        self.stages.expect({EPOCHS: epochs * (seconds + saved) * self.trained_share})

    def keep_findings(self) -> None:
        """Keep what stages find from now on, for a run that goes on behind them."""
        folder = self.request.folder / CHECKPOINTS / KEPT
        self.findings = Findings(folder, self.request.identity, lasting=True)

    def tell(self, text: str) -> None:
        """Say what a part found."""
        self.events.log(Message(text))
        self.events.call("on_message", text)

    def measured(self, stage: str, reached: Reached) -> None:
        """Note what a stage reached on held-out rows."""
        self.events.log(Measured(stage, reached))

    def prepare(self, spec: TrainSpec, basis: RowMap | None = None) -> None:
        """Make the backend ready to train from zero weights, in the room that the plan gives."""
        room = self.plan.config.batching
        self.backend.prepare(spec, room.batch_nnz, basis, room.batch_labels)

    def basis(self, spec: TrainSpec) -> RowMap | None:
        """Return the basis of a training's rows, and columns beside it, if parts want that."""
        if not (spec.whitened or spec.bandwidth):
            return None
        wanted = (spec.transform, spec.whitened, spec.bandwidth)
        if self._basis is not None and self._basis[0] == wanted:
            return self._basis[1]
        self._basis = None  # there is room for one
        found: RowMap | None = None
        for part in planned(self.plan.config):
            found = part.basis(self, spec, found)
        if found is not None:
            self._basis = (wanted, found)
        return found

    def forget_basis(self) -> None:
        """Give back what was kept for further trials."""
        self._basis = None


@contextmanager
def opened(
    request: FitRequest, dataset: Dataset, plan: Plan, *, events: Events, stop: StopSignals,
    stages: Stages,
) -> Iterator[Session]:  # fmt: skip
    """Open a backend and read the held-out rows; close what was opened at the end."""
    with ExitStack() as closing:
        yield Session(
            request, dataset, plan, events=events, stop=stop, stages=stages, closing=closing
        )
