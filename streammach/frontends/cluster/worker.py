"""What a worker of a cluster does: one task at a time, as long as it is wanted; ranges of rows."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from streammach.model.document import document_digest
from streammach.model.model import Model
from streammach.prediction.evaluate import count_blocks
from streammach.prediction.inputs import InputCounts, Room, StoreRows
from streammach.prediction.metric_table import EvaluationRequest, MetricSums
from streammach.prediction.order import rank_blocks
from streammach.prediction.predictor import Predictor
from streammach.prediction.scorer_sum import PredictionRequest
from streammach.store.dataset import Dataset
from streammach.system.errors import Interrupted, MismatchError
from streammach.system.files.urls import locate
from streammach.system.linux import keep_freed_memory, peak_bytes
from streammach.system.processes import StopSignals
from streammach.system.stages import StageState

if TYPE_CHECKING:
    from distributed import Worker

ONE = threading.Lock()  # held by the task that this process works at
ELSEWHERE_SECONDS = 2.0  # a task waits here before another worker is asked
AGAIN_SECONDS = 0.05

# Yields of each block of a range of rows, whose counts it adds up, what comes of it.
Ranker = Callable[[int, int, InputCounts], Generator[Any, None, None]]
_at_work: set[str] = set()  # the keys of tasks that this process has begun and not ended


def dask_setup(worker: Worker) -> None:
    """Leave Ctrl-C to the client, in a worker process that it started; called by Dask there."""
    del worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class WorkerTask:
    """Says whether the task that this thread works at is still wanted; `what` is in the error."""

    def __init__(self, worker: Worker, what: str) -> None:
        self.worker, self.key, self._what = worker, worker.get_current_task(), what
        self.stop = StopSignals()  # asked to end a training, once it is not wanted

    @property
    def threads(self) -> int:
        """Threads that Dask gives a task."""
        return int(self.worker.state.nthreads)

    def __bool__(self) -> bool:
        from distributed.core import Status

        task = self.worker.state.tasks.get(self.key)
        alive = self.worker.status in (Status.running, Status.paused)
        return alive and task is not None and task.state == "executing"

    def on_stage(self, state: StageState) -> None:
        """Ask the training for its end, twice a second, once it is not wanted."""
        del state
        if not self:
            self.stop.requested = True

    def check(self) -> None:
        """Raise Interrupted if it is not."""
        if not self:
            raise Interrupted(f"{self._what} no longer wanted here")


@contextmanager
def hold_process(what: str) -> Iterator[WorkerTask]:
    """Hold this process for the task that this thread works at."""
    from distributed import Reschedule, get_worker

    wanted = WorkerTask(get_worker(), what)
    _at_work.add(wanted.key)
    try:
        if not ONE.acquire(timeout=ELSEWHERE_SECONDS):
            raise Reschedule
        try:
            with keep_freed_memory():
                wanted.check()
                yield wanted
        finally:
            ONE.release()
    finally:
        _at_work.discard(wanted.key)


async def leave_tasks(keys: Sequence[str], seconds: float) -> None:
    """Wait, on a worker, until it works at none of some tasks, but not for ever; free its model."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and not _at_work.isdisjoint(keys):
        await asyncio.sleep(AGAIN_SECONDS)
    if ONE.acquire(blocking=False):
        try:
            LAST.close()
        finally:
            ONE.release()


@dataclass(frozen=True, kw_only=True)
class RowsTask:
    """Whose rows are ranked, by what, and what for."""

    run: str  # the run or model, as an absolute path
    document: str  # digest of the model's document
    store: str  # the store, as an absolute path or a URL
    digest: str  # digest of the store
    room: Room  # how much is held at a time; it decides where blocks end
    estimator: str | None = None  # what ranks them; None: what the model says
    # what is predicted of each row, or what is measured
    wanted: PredictionRequest | EvaluationRequest


@dataclass(frozen=True, kw_only=True)
class RangeResult:
    """What a worker says of a range."""

    seen: InputCounts  # rows, and what the model does not know of them
    blocks: list[Any]  # of each of its blocks Predictions, or what it adds to an evaluation
    worker: str  # its address
    peak_bytes: int  # the most memory that the worker's process held


def open_ranker(task: RowsTask, threads: int, stack: ExitStack) -> Ranker:
    """Return what ranks or measures any range of a store's rows, block by block."""
    data = stack.enter_context(Dataset.open(task.store))
    document = document_digest(task.run)
    known = {task.run: document == task.document, task.store: data.digest == task.digest}
    for path, same in known.items():
        if not same:
            raise MismatchError("another one lies here on a worker", path=path)
    model, wanted, store = Model.load(task.run), task.wanted, locate(task.store)
    predictor = stack.enter_context(
        Predictor(model, estimator=task.estimator, device="cpu", threads=threads)
    )
    rows = StoreRows(data, model, label_needed=isinstance(wanted, EvaluationRequest))
    work: Callable[..., Generator[Any, None, None]]
    if isinstance(wanted, PredictionRequest):
        allowed = predictor.limit_labels(wanted.only, wanted.never, warned=False)
        work = partial(rank_blocks, predictor.scorers, request=wanted, allowed=allowed)
    else:
        work = partial(count_blocks, predictor, MetricSums(model, wanted), path=store)
    return lambda start, stop, seen: work(blocks=rows.blocks(start, stop, seen, task.room))


class LastRanker:
    """What was opened last, until a task needs another one or all ranges are done."""

    def __init__(self) -> None:
        self._opened: tuple[RowsTask, int, Ranker] | None = None
        self._stack = ExitStack()

    def of(self, task: RowsTask, threads: int) -> Ranker:
        """Return what a task needs, while nobody else works in this process."""
        if self._opened is None or self._opened[:2] != (task, threads):
            self.close()
            with ExitStack() as stack:
                self._opened = task, threads, open_ranker(task, threads, stack)
                self._stack = stack.pop_all()
        return self._opened[2]

    def close(self) -> None:
        """Free it."""
        self._opened = None
        self._stack.close()


LAST = LastRanker()


def do_range(task: RowsTask, start: int, stop: int) -> RangeResult:
    """Rank or measure rows ``start:stop`` of a store, while this process does nothing else."""
    with hold_process("the rows are") as wanted:
        seen, blocks = InputCounts(), []
        with closing(LAST.of(task, wanted.threads)(start, stop, seen)) as results:
            for block in results:
                blocks.append(block)
                wanted.check()
        task.room.keep_kernels()
    return RangeResult(
        seen=seen, blocks=blocks, worker=wanted.worker.address, peak_bytes=peak_bytes()
    )
