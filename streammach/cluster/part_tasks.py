"""The shares of a run: a task for each, what a worker does of one, and how far all are."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from streammach.cluster.at_work import AtWork
from streammach.cluster.worker import WorkerTask, alone
from streammach.cluster.workers import ClusterWorkers
from streammach.data.class_weights import weighed
from streammach.data.store.dataset import Dataset
from streammach.errors import Interrupted, LockedError, StreammachError, clean
from streammach.files.workplaces import GOES_ON
from streammach.machine import peak_bytes, size_text
from streammach.planning.ledger import ledger
from streammach.spec.plan import Plan
from streammach.spec.training import TrainingOptions
from streammach.training.run_part import PartNumber, RunPart
from streammach.training.trainer import Trainer

if TYPE_CHECKING:
    from distributed import Client, Worker

LOCKED_SECONDS = 600.0  # in which a worker notices that it was given up
AGAIN_SECONDS = 0.5


@dataclass(frozen=True, kw_only=True)
class PartTask:
    """A part of a run, as workers are sent it."""

    store: str  # the training store, as an absolute path
    folder: str  # the part's folder, as an absolute path
    plan: Plan  # the plan of the whole run
    options: TrainingOptions  # what is fixed of the training
    number: PartNumber  # which part
    settings: str | None  # the part in which all is decided already
    # what rows count by their class, as for :func:`streammach.data.class_weights.weighed`
    class_weight: str | None
    checkpoint_minutes: float  # time between checkpoints


def dask_setup(worker: Worker) -> None:
    """Leave Ctrl-C to the client, in a worker process that it started; called by Dask there."""
    del worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def train_part(task: PartTask) -> tuple[str, int]:
    """Train a part in its folder, from its last checkpoint on if there is one.

    Return the worker's address, and the most memory that its process held.
    """
    with alone("the part is") as wanted:
        _train(task, wanted)
    return wanted.worker.address, peak_bytes()


def _train(task: PartTask, wanted: WorkerTask) -> None:
    """Train a part; wait until a worker that was taken for lost has left its folder."""
    place = replace(task.plan.config.placement, threads=wanted.threads)
    config = replace(task.plan.config, placement=place)
    plan = replace(task.plan, config=config, ledger=ledger(task.plan.facts, config))
    trainer = Trainer(
        plan, task.options, callbacks=[wanted], checkpoint_minutes=task.checkpoint_minutes,
        stop=wanted.stop,
    )  # fmt: skip
    number, until = (task.number.number, task.number.of), time.monotonic() + LOCKED_SECONDS
    with ExitStack() as opened:
        data = opened.enter_context(Dataset.open(task.store))
        if task.class_weight is not None:
            data = weighed(data, task.class_weight)
        while True:
            try:
                trainer.fit_part(data, task.folder, number, settings=task.settings, resume=True)
            except LockedError:
                if time.monotonic() >= until:
                    raise
            else:
                return
            wanted.check()
            time.sleep(AGAIN_SECONDS)


class Tasks:
    """A task for each part of a run."""

    def __init__(
        self, client: Client, workers: ClusterWorkers, first: PartTask, tell: Callable[[str], None]
    ) -> None:
        self._workers, self._first, self._tell = workers, first, tell
        self._n = first.number.of
        self._paths = [Path(first.folder) / f"part-{k}" for k in range(1, self._n + 1)]
        self._tasks = AtWork(client, GOES_ON)
        self._given = 0
        self._epochs: dict[int, int] = {}  # that were told, by part
        self._done: set[int] = set()

    def run(self) -> list[Path]:
        """Train all parts; return their folders. Tasks are cancelled where that fails."""
        plan = self._first.plan
        try:
            with self._tasks.watched():
                self._submit(1, self._workers.able(plan.projected_bytes))
                while len(self._done) < self._n:
                    if self._given < self._n and self._decided():
                        last = PartNumber(self._n, self._n)
                        able = self._workers.able(last.plan(plan).projected_bytes)
                        for k in range(2, self._n + 1):
                            self._submit(k, able)
                    self._look(dict(self._tasks.ended()))
        except KeyboardInterrupt:
            raise Interrupted("interrupted while parts were trained", hint=GOES_ON) from None
        finally:
            self._tasks.leave()
        return list(self._paths)

    def _submit(self, k: int, able: list[str] | None) -> None:
        """Submit a part, to some of the workers or to all."""
        task = replace(
            self._first, number=PartNumber(k, self._n), folder=str(self._paths[k - 1]),
            settings=str(self._paths[0]) if k > 1 else None,
        )  # fmt: skip
        self._tasks.give(k - 1, f"part {task.number}", train_part, task, able=able)
        self._given += 1
        first, last = task.number.repetitions(task.plan.n_repetitions)
        of = task.plan.n_repetitions
        self._tell(f"part {task.number}: repetitions {first + 1} to {last} of {of}")

    def _decided(self) -> bool:
        """Return whether the first part has decided what the others need."""
        part = _opened(self._paths[0])
        return part is not None and part.settings is not None

    def _look(self, ended: dict[int, tuple[str, int] | StreammachError]) -> None:
        """Tell how far the parts are, of which some ended; raise what one raised."""
        for k in range(self._given):
            if k not in self._done:
                self._tell_epochs(k)
        for k, found in ended.items():
            if isinstance(found, StreammachError):
                raise found
            self._done.add(k)
            worker, peak = found
            self._tell(f"part {k + 1}/{self._n}: done by {clean(worker)}, peak {size_text(peak)}")

    def _tell_epochs(self, k: int) -> None:
        """Tell the epochs of a part that have ended since it was last asked."""
        part = _opened(self._paths[k])
        if part is None or part.settings is None:
            return
        n, epochs = len(part.checkpoints.ends()), part.settings.training.epochs
        if n > self._epochs.get(k, 0):
            self._epochs[k] = n
            self._tell(f"part {part.facts.part}: epoch {n} of {epochs}")


def _opened(path: Path) -> RunPart | None:
    """Return a part as it is on disk; None where it is not begun, or a file is just written."""
    try:
        return RunPart.open(path)
    except StreammachError:
        return None
