"""What a worker of a cluster does with a range of a store's rows: it ranks, measures or writes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from streammach.cluster.worker import ONE, alone
from streammach.data.store.dataset import Dataset
from streammach.errors import MismatchError, clean
from streammach.files.urls import located
from streammach.files.writing import Writer
from streammach.machine import peak_bytes
from streammach.model.model import Model, folder_of
from streammach.prediction.asked import Ask, document_digest
from streammach.prediction.inputs import Seen, StoreRows
from streammach.prediction.measured import Measured, Measures, RowsPart
from streammach.prediction.output.base import Shape
from streammach.prediction.output.registry import OUTPUT_FORMATS
from streammach.prediction.predictor import Predictor
from streammach.prediction.room import Room
from streammach.prediction.sorted_files import Slices, facts_of, slice_of, write_sorted
from streammach.prediction.streaming import ranked_blocks
from streammach.spec.types import Decoding

T = TypeVar("T")
IDLE_SECONDS = 10.0  # for which a worker keeps a model after its last range


@dataclass(frozen=True, kw_only=True)
class RowsTask:
    """Whose rows are ranked, and by what."""

    run: str  # the run or model, as an absolute path
    document: str  # digest of the model's document
    store: str  # the store, as an absolute path or a URL
    digest: str  # digest of the store
    room: Room  # how much is held at a time; it decides where blocks end
    decode: Decoding  # how the CPU finds the best classes
    estimator: str | None = None  # what ranks them; None: what the model says
    measures: Measures | None = None  # what is measured; None where rows are predicted


@dataclass(frozen=True, kw_only=True)
class TableTask:
    """How ranks of rows become a table."""

    rows: RowsTask  # which rows
    ask: Ask  # what is wanted of each row
    k: int  # classes a row
    folder: str  # where files of ranges and slices are, as an absolute path
    slices: Slices  # how numbers of rows are cut
    format: str  # the name of the table's format

    def range_path(self, number: int) -> Path:
        """Return the file of a range's rows."""
        return Path(self.folder) / f"range-{number}"

    def slice_path(self, number: int) -> Path:
        """Return the file of a slice of the table."""
        return Path(self.folder) / f"slice-{number}"


@dataclass(frozen=True, kw_only=True)
class RangeDone:
    """What a worker says of a range."""

    seen: Seen  # rows, and what the model does not know of them
    parts: list[RowsPart]  # what each of its blocks adds to an evaluation
    worker: str  # its address
    peak_bytes: int  # the most memory that the worker's process held


@dataclass(frozen=True)
class Opened:
    """A model and a store, ready to rank any range of rows."""

    predictor: Predictor
    rows: StoreRows
    measured: Measured | None


class _Kept:
    """What was opened last; it is closed when no range has asked for it for a while."""

    def __init__(self) -> None:
        self._key: object = None
        self._opened: Opened | None = None
        self._stack = ExitStack()
        self._timer: threading.Timer | None = None

    @contextmanager
    def of(self, key: object, opened: Callable[[ExitStack], Opened]) -> Iterator[Opened]:
        """Hold what a key stands for, while nobody else works in this process."""
        if self._timer is not None:
            self._timer.cancel()
        if self._opened is None or self._key != key:
            self.close()
            with ExitStack() as stack:
                self._opened, self._key = opened(stack), key
                self._stack = stack.pop_all()
        try:
            yield self._opened
        finally:
            self._timer = threading.Timer(IDLE_SECONDS, self._close_idle)
            self._timer.daemon = True
            self._timer.start()

    def close(self) -> None:
        """Close what is open."""
        self._opened = None
        self._stack.close()

    def _close_idle(self) -> None:
        with ONE:
            if self._timer is threading.current_thread():  # no range came meanwhile
                self.close()


_kept = _Kept()


def rank_range(task: TableTask, number: int, start: int, stop: int) -> RangeDone:
    """Rank rows ``start:stop`` of a store and leave them, in the order of the source, in a file."""
    path, n_rows = task.range_path(number), stop - start

    def work(opened: Opened, wanted: Callable[[int], None]) -> Seen:
        seen, ask = Seen(), task.ask
        rank = opened.predictor.ranking(threshold=ask.threshold, probabilities=ask.probabilities)
        blocks = opened.rows.blocks(start, stop, seen, task.rows.room)
        with closing(ranked_blocks(blocks, task.k, rank, 0, wanted)) as parts:
            write_sorted(path, parts, n_rows, task.k, task.slices, seen)
        return seen

    # There is a file where a worker was lost after it had left it.
    seen = facts_of(path, n_rows, task.k, task.slices) or _alone(task.rows, work)
    return _done(seen, [])


def measure_range(task: RowsTask, start: int, stop: int) -> RangeDone:
    """Rank rows ``start:stop`` of a store and return what they add to an evaluation."""

    def work(opened: Opened, wanted: Callable[[int], None]) -> tuple[Seen, list[RowsPart]]:
        seen, parts, measured = Seen(), [], opened.measured
        assert measured is not None, "it was asked for"
        for block in opened.rows.blocks(start, stop, seen, task.room):
            parts.append(measured.part(opened.predictor, block, located(task.store)))
            wanted(seen.rows)
        return seen, parts

    return _done(*_alone(task, work))


def write_slice(task: TableTask, number: int, n_ranges: int) -> int:
    """Write the rows of a slice of the table; return how many there are."""
    paths = [task.range_path(i) for i in range(n_ranges)]
    rows_of = OUTPUT_FORMATS[task.format].rows

    def work(opened: Opened, wanted: Callable[[int], None]) -> int:
        labels, n = opened.predictor.model.labels, 0
        shape = Shape(k=task.k, labels=labels, word=task.ask.word)
        with Writer(task.slice_path(number)) as out:
            for part in slice_of(paths, task.k, task.slices, number):
                out.write(rows_of(part, shape))
                n += len(part.rows)
                wanted(n)
            out.commit()
        return n

    return _alone(task.rows, work)


def _done(seen: Seen, parts: list[RowsPart]) -> RangeDone:
    from distributed import get_worker

    return RangeDone(seen=seen, parts=parts, worker=get_worker().address, peak_bytes=peak_bytes())


def _alone(task: RowsTask, work: Callable[[Opened, Callable[[int], None]], T]) -> T:
    """Do some work with a task's model and store, while this process does no other."""
    with alone("the rows are") as wanted:
        threads = wanted.threads
        with _kept.of((task, threads), lambda stack: _opened(task, threads, stack)) as opened:
            done = work(opened, wanted.check)
        task.room.done()
        return done


def _opened(task: RowsTask, threads: int, stack: ExitStack) -> Opened:
    """Open the model and the store of a task, which have to be those that the client saw."""
    data = stack.enter_context(Dataset.open(task.store))
    document = document_digest(folder_of(task.run))
    known = {task.run: document == task.document, task.store: data.digest == task.digest}
    for path, same in known.items():
        if not same:
            raise MismatchError("another one lies here on a worker", path=clean(path, 300))
    model = Model.load(task.run)
    predictor = stack.enter_context(
        Predictor(
            model, estimator=task.estimator, device="cpu", threads=threads, decode=task.decode
        )
    )
    measured = None if task.measures is None else Measured(model, task.measures)
    rows = StoreRows(data, model, label_needed=measured is not None)
    return Opened(predictor, rows, measured)
