"""What a worker of a cluster does with a range of a store's rows: it ranks or measures them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from streammach.cluster.worker import ONE, alone
from streammach.data.store.dataset import Dataset
from streammach.errors import MismatchError, clean
from streammach.files.reading import file_pieces, sha256
from streammach.files.urls import located
from streammach.machine import peak_bytes
from streammach.model.model import Model, folder_of
from streammach.model.ours import DOCUMENT
from streammach.prediction.inputs import InputCounts, Room, StoreRows
from streammach.prediction.order import Predictions, ranked_blocks
from streammach.prediction.predict import PredictionRequest
from streammach.prediction.predictor import Predictor
from streammach.prediction.reached import EvaluationRequest, EvaluationSums
from streammach.prediction.sums import BlockSums
from streammach.spec.types import Decoding

IDLE_SECONDS = 10.0  # for which a worker keeps a model after its last range


@dataclass(frozen=True, kw_only=True)
class RowsTask:
    """Whose rows are ranked, by what, and what for."""

    run: str  # the run or model, as an absolute path
    document: str  # digest of the model's document
    store: str  # the store, as an absolute path or a URL
    digest: str  # digest of the store
    room: Room  # how much is held at a time; it decides where blocks end
    decode: Decoding  # how the CPU finds the best classes
    estimator: str | None = None  # what ranks them; None: what the model says
    # what is predicted of each row, or what is measured
    wanted: PredictionRequest | EvaluationRequest


@dataclass(frozen=True, kw_only=True)
class RangeDone:
    """What a worker says of a range."""

    seen: InputCounts  # rows, and what the model does not know of them
    predicted: list[Predictions]  # its blocks, where rows are predicted
    measured: list[BlockSums]  # what each of its blocks adds to an evaluation
    worker: str  # its address
    peak_bytes: int  # the most memory that the worker's process held


def document_digest(folder: Path) -> str:
    """Return the digest of a model's document, which names the content of its other file."""
    return sha256(file_pieces(folder / DOCUMENT))


class _RangeRanker:
    """A model and a store, ready to rank any range of rows."""

    def __init__(self, task: RowsTask, threads: int, stack: ExitStack) -> None:
        data = stack.enter_context(Dataset.open(task.store))
        document = document_digest(folder_of(task.run))
        known = {task.run: document == task.document, task.store: data.digest == task.digest}
        for path, same in known.items():
            if not same:
                raise MismatchError("another one lies here on a worker", path=clean(path, 300))
        model, wanted, self._task = Model.load(task.run), task.wanted, task
        self._predictor = stack.enter_context(
            Predictor(
                model, estimator=task.estimator, device="cpu", threads=threads, decode=task.decode
            )
        )
        self._measured = (
            EvaluationSums(model, wanted) if isinstance(wanted, EvaluationRequest) else None
        )
        self._rows = StoreRows(data, model, self._measured is not None)

    def done(
        self, start: int, stop: int, check: Callable[[int], None]
    ) -> tuple[InputCounts, list[Predictions], list[BlockSums]]:
        """Rank or measure rows ``start:stop``; `check` raises where they are no longer wanted."""
        seen, wanted, predictor = InputCounts(), self._task.wanted, self._predictor
        blocks = self._rows.blocks(start, stop, seen, self._task.room)
        if isinstance(wanted, PredictionRequest):
            rank = predictor.ranking(threshold=wanted.threshold, probabilities=wanted.probabilities)
            with closing(ranked_blocks(blocks, predictor.most(wanted.k), rank, check)) as parts:
                return seen, [_alone(part) for part in parts], []
        measured = list[BlockSums]()
        for block in blocks:
            assert self._measured is not None, "it was asked for"
            measured.append(self._measured.block_sums(predictor, block, located(self._task.store)))
            check(seen.rows)
        return seen, [], measured


def _alone(part: Predictions) -> Predictions:
    """Return predictions that hold no bytes of tags but their own: they are sent."""
    tags = None if part.tags is None else part.tags.take(np.arange(len(part.rows)))
    return replace(part, tags=tags)


class _LastRanker:
    """What was opened last; it is closed when no range has asked for it for a while."""

    def __init__(self) -> None:
        self._key: object = None
        self._ranker: _RangeRanker | None = None
        self._stack = ExitStack()
        self._timer: threading.Timer | None = None

    @contextmanager
    def of(self, task: RowsTask, threads: int) -> Iterator[_RangeRanker]:
        """Hold what a task needs, while nobody else works in this process."""
        if self._timer is not None:
            self._timer.cancel()
        if self._ranker is None or self._key != (task, threads):
            self._close()
            with ExitStack() as stack:
                self._ranker, self._key = _RangeRanker(task, threads, stack), (task, threads)
                self._stack = stack.pop_all()
        try:
            yield self._ranker
        finally:
            self._timer = threading.Timer(IDLE_SECONDS, self._close_idle)
            self._timer.daemon = True
            self._timer.start()

    def _close(self) -> None:
        self._ranker = None
        self._stack.close()

    def _close_idle(self) -> None:
        with ONE:
            if self._timer is threading.current_thread():  # no range came meanwhile
                self._close()


_last = _LastRanker()


def do_range(task: RowsTask, start: int, stop: int) -> RangeDone:
    """Rank or measure rows ``start:stop`` of a store, while this process does nothing else."""
    with alone("the rows are") as wanted:
        with _last.of(task, wanted.threads) as ranker:
            seen, predicted, measured = ranker.done(start, stop, wanted.check)
        task.room.done()
    return RangeDone(
        seen=seen, predicted=predicted, measured=measured, worker=wanted.worker.address,
        peak_bytes=peak_bytes(),
    )  # fmt: skip
