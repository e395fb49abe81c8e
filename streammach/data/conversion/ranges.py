"""Writes a range of a store's rows: those of some bins of all runs, brought into their order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import psutil
from numpy.typing import NDArray

from streammach.data.conversion.buffer import Ids, RowBuffer
from streammach.data.conversion.build import RUN_SHARE
from streammach.data.conversion.job import Memory
from streammach.data.conversion.runs import BINS, INDEX_COLUMNS, Run, read_behind, write_behind
from streammach.data.conversion.shuffle import Ranks, Shuffle, Written
from streammach.data.store.segments import Segment
from streammach.data.store.writer import RangeWriter
from streammach.errors import StoreError
from streammach.files.reading import disk_error
from streammach.files.writing import Writer
from streammach.jit import compiler_bytes, keep_compiled

INDEX, CLASSES, FEATURES = "index", "classes", "features"  # files of what was joined


class RangeState(msgspec.Struct, frozen=True, kw_only=True):
    """What the file of a range holds behind its chunks."""

    written: Written
    segments: dict[str, Segment]


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The runs of all partitions, as processes are sent them.

    Attributes
    ----------
    folder : str
        Holds what was joined: the runs' indices, the final ids of each partition's names.
    runs : list of (str, int, int)
        Each run's file, its partition, and what is added to the numbers of its rows.
    classes, features : list of int
        Where the ids of each partition begin.
    n_classes, n_features : int
        How many there are.
    values : str
        Type of the values: ``uint8`` or ``float32``.
    weighted, tagged : bool
        What rows have.
    labels : str or None
        Where rows have lists of labels, the type of the weights of these.
    block_rows : int
        Rows of a block.
    memory : str or int or float or None
        The memory that the user named.
    shares : int
        Among how many processes it is divided.
    """

    folder: str
    runs: list[tuple[str, int, int]]
    classes: list[int]
    features: list[int]
    n_classes: int
    n_features: int
    values: str
    weighted: bool
    tagged: bool
    labels: str | None
    block_rows: int
    memory: str | int | float | None
    shares: int

    def opened(self) -> tuple[list[Run], Ids]:
        """Return the runs and the ids of their features; they are read from disk as needed.

        Raises
        ------
        DiskError
            If a file cannot be read.
        """
        index = self._array(INDEX, np.int64).reshape(-1, BINS, INDEX_COLUMNS)
        classes = self._array(CLASSES, np.int32)
        ends = [*self.classes[1:], len(classes)]
        runs = [
            Run(Path(path), index[i], group, before, classes[self.classes[group] : ends[group]])
            for i, (path, group, before) in enumerate(self.runs)
        ]
        return runs, Ids(self._array(FEATURES, np.int32), np.array(self.features, np.int64))

    def _array(self, name: str, kind: type[np.generic]) -> NDArray[Any]:
        path = Path(self.folder, name)
        try:
            return np.asarray(np.memmap(path, kind, mode="c"))  # kernels want what is writable
        except OSError as error:
            raise disk_error(error, path) from error


@dataclass(frozen=True, kw_only=True)
class Range:
    """A range of a store's rows.

    Attributes
    ----------
    path : str
        The file for it.
    parts : Parts
        Where its rows come from.
    first, stop : int
        Its bins.
    starts : dict of str to int
        The first value of each array that is in it.
    """

    path: str
    parts: Parts
    first: int
    stop: int
    starts: Mapping[str, int]


def write_range(task: Range, n_threads: int, told: Callable[..., Any]) -> None:
    """Write a range of a store's rows into a file, unless it is there.

    Parameters
    ----------
    task : Range
        The range.
    n_threads : int
        Threads that sort and compress.
    told : callable
        Called with the rows that are done; what it raises ends the work.

    Raises
    ------
    BudgetError, StoreError, DiskError
        If it cannot be written.
    """
    if range_of(task) is not None:
        return
    parts, kind = task.parts, ("convert range", task.parts.values, n_threads > 1)
    memory = Memory.of(parts.memory, [], n_threads, compiler_bytes(*kind), parts.shares)
    runs, ids = parts.opened()
    named = ids.ids.nbytes + 8 * parts.n_classes
    room = min(memory.room(named, named), memory.n_bytes - psutil.Process().memory_info().rss)
    rows = RowBuffer(int(RUN_SHARE * room), wide=parts.values == "float32")
    if parts.labels is not None:
        rows.list_labels()
    same = np.arange(parts.n_classes, dtype=np.int32)
    with ThreadPoolExecutor(n_threads, "convert") as pool, Writer(Path(task.path)) as out:
        shuffle = Shuffle(Ranks(same, ids, parts.n_features), parts.block_rows, pool, told)
        writer = RangeWriter(
            out, _type(parts.values), starts=task.starts, pool=pool if n_threads > 1 else None,
            weighted=parts.weighted, tagged=parts.tagged,
            labels=None if parts.labels is None else _type(parts.labels),
        )  # fmt: skip
        for _ in shuffle.write_bins(runs, rows, writer, task.first, task.stop):
            pass
        write_behind(out, RangeState(written=shuffle.saved(), segments=writer.segments()))
    keep_compiled(*kind)


def range_of(task: Range) -> RangeState | None:
    """Return what is known of a range that was written; None of one that was not."""
    path = Path(task.path)
    if not path.is_file():
        return None
    try:
        state = read_behind(path, RangeState)
    except StoreError:
        return None
    same = all(task.starts[name] == one.first for name, one in state.segments.items())
    return state if same else None


def _type(name: str) -> type[np.generic]:
    """Return a type of values by its name."""
    kind: type[np.generic] = np.dtype(name).type
    return kind
