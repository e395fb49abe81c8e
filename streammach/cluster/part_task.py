"""What a worker of a cluster does: it trains a part of a run, as long as that is wanted."""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from streammach.cluster.worker import Wanted, alone
from streammach.data.class_weights import weighed
from streammach.data.store.dataset import Dataset
from streammach.errors import LockedError
from streammach.machine import peak_bytes
from streammach.planning.ledger import ledger
from streammach.spec.plan import Plan
from streammach.spec.training import TrainingOptions
from streammach.training.run_part import PartNumber
from streammach.training.trainer import Trainer

if TYPE_CHECKING:
    from distributed import Worker

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


@dataclass(frozen=True)
class PartDone:
    """What a worker says of a finished part."""

    worker: str  # its address
    peak_bytes: int  # the most memory that its process held


def dask_setup(worker: Worker) -> None:
    """Leave Ctrl-C to the client, in a worker process that it started; called by Dask there."""
    del worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def train_part(task: PartTask) -> PartDone:
    """Train a part in its folder, from its last checkpoint on if there is one."""
    with alone("the part is") as wanted:
        _train(task, wanted)
    return PartDone(wanted.worker.address, peak_bytes())


def _train(task: PartTask, wanted: Wanted) -> None:
    """Train a part; wait until a worker that was taken for lost has left its folder."""
    plan = with_threads(task.plan, wanted.threads)
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


def with_threads(plan: Plan, threads: int) -> Plan:
    """Return a plan for another number of threads; the result is the same."""
    config = replace(plan.config, placement=replace(plan.config.placement, threads=threads))
    return replace(plan, config=config, ledger=ledger(plan.facts, config))
