"""A training under way: what every stage of it is given."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from streammach.backends.base import Backend
from streammach.backends.registry import BACKENDS
from streammach.clock import Clock
from streammach.data.holdout import HeldOut, hold_out
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
from streammach.spec.training import TrainingOptions, TrainSpec
from streammach.spec.types import LabelShare, Transform
from streammach.stages import Stages
from streammach.training.events import Events, Interruption, Measured, Message
from streammach.training.signals import StopSignals
from streammach.training.timetable import EPOCHS

NOTHING_SAVED = ("interrupted", "Nothing is saved yet; run the command again.")
FOUND_SAVED = ("interrupted: what was found is saved", GOES_ON)
EPOCHS_SAVED = ("interrupted: the trained epochs are saved", GOES_ON)
MODEL_SAVED = ("interrupted: a model without hashed ones is saved", GOES_ON)

Mapped = tuple[Transform, bool, float]  # what the map of a training's rows depends on


class Session:
    """What the stages of a training share.

    Attributes
    ----------
    epochs_saved, model_saved : bool
        Whether a checkpoint holds what was done, and a model what parts did ahead of the
        epochs.
    """

    def __init__(
        self,
        dataset: Dataset,
        plan: Plan,
        backend: Backend,
        held: HeldOut,
        *,
        options: TrainingOptions,
        events: Events,
        stop: StopSignals,
        clock: Clock,
        stages: Stages,
    ) -> None:
        self.dataset, self.plan, self.backend, self.held = dataset, plan, backend, held
        self.options, self.events, self.stop, self.clock = options, events, stop, clock
        self.stages = stages
        self.epochs_saved, self.model_saved = False, False
        self.trained_share = 1.0  # share of the repetitions whose epochs are trained here
        self.ahead: dict[str, Ahead] = {}  # what parts did before the first epoch, by name
        # what stages found, for a run that goes on behind them; nothing is kept at first
        self.findings = Findings(events.folder, "", lasting=False)
        self._basis: tuple[Mapped, RowMap] | None = None  # the last one that was found

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
            if self.model_saved and not self.epochs_saved:
                message, hint = MODEL_SAVED
            raise Interrupted(message, hint=hint)

    def begin(self, stage: str) -> None:
        """Begin a stage of the run, and end the one before."""
        self.stages.begin(stage)

    def at(self, done: float, total: float) -> None:
        """Note how much of the present stage is done; 0 in all where that is not known."""
        self.stages.at(done, total)

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


def label_share(dataset: Dataset) -> LabelShare | None:
    """Return how the labels of a row share its target; None where each row has one."""
    return "shared" if dataset.listed else None


@contextmanager
def opened(
    plan: Plan,
    options: TrainingOptions,
    dataset: Dataset,
    *,
    events: Events,
    stop: StopSignals,
    clock: Clock,
    stages: Stages,
) -> Iterator[Session]:
    """Open a backend and read the held-out rows; close what was opened at the end."""
    with ExitStack() as closing:
        backend = BACKENDS[plan.config.placement.device].open(
            plan.model, plan.config, facts=plan.facts, device_bytes=plan.limits.device
        )
        closing.callback(backend.close)
        held = hold_out(dataset, plan.config.batching, options)
        session = Session(
            dataset, plan, backend, held, options=options, events=events, stop=stop, clock=clock,
            stages=stages,
        )  # fmt: skip
        if held.looked:
            session.tell(f"held out {held.origin}")
        yield session
