"""Reads a partition of the sources, as runs on disk with names of their own."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streammach.data.bad_rows import BadRows
from streammach.data.conversion.intake import Intake
from streammach.data.conversion.job import Memory
from streammach.data.conversion.ranking import Known
from streammach.data.source_options import SourceOptions
from streammach.data.sources import open_source
from streammach.data.tables.opening import tables_of
from streammach.errors import LockedError, clean
from streammach.files.folders import make_folder
from streammach.files.locks import locked
from streammach.jit import compiler_bytes, keep_compiled

LISTED, LOCK = "rejects.tsv", ".lock"
LOCKED_SECONDS = 600.0  # in which a process notices that its work was given to another one
AGAIN_SECONDS = 0.5


@dataclass(frozen=True, kw_only=True)
class Partition:
    """Sources that follow one another, as a process is sent them.

    Attributes
    ----------
    folder : str
        Where its runs go.
    paths : list of str
        The sources, as absolute paths.
    options : list of SourceOptions
        How each is read; files that these name are absolute paths, too.
    first : int
        The number of the first source among all.
    like : str or None
        The store whose ids are used.
    skip : bool
        Whether bad rows are left out.
    max_bad : int or None
        How many may be.
    seed : int
        Decides the order of the rows.
    memory : str or int or float or None
        The memory that the user named.
    shares : int
        Among how many processes it is divided.
    """

    folder: str
    paths: list[str]
    options: list[SourceOptions]
    first: int
    like: str | None
    skip: bool
    max_bad: int | None
    seed: int
    memory: str | int | float | None
    shares: int


@dataclass(frozen=True)
class PartitionRead:
    """What is said of a partition beside its runs.

    Attributes
    ----------
    warnings : list of str
        What its reader warned of.
    met : list of (int, dict)
        Of each table the rows that were read, and how many have nothing in each column.
    """

    warnings: list[str]
    met: list[tuple[int, dict[str, int]]]


def read_partition(task: Partition, n_threads: int, told: Callable[..., Any]) -> PartitionRead:
    """Read the sources of a partition; go on from the runs of it that are there.

    Parameters
    ----------
    task : Partition
        The partition.
    n_threads : int
        Threads that parse and compress.
    told : callable
        Called for each piece that was read; what it raises ends the work.

    Raises
    ------
    DataError, BudgetError, DiskError, LockedError
        If it cannot be read; see :meth:`streammach.data.conversion.intake.Intake.read`.
    """
    folder = Path(task.folder)
    make_folder(folder)
    until = time.monotonic() + LOCKED_SECONDS
    while True:
        try:
            with locked(folder / LOCK, clean(folder)), warnings.catch_warnings(record=True) as met:
                warnings.simplefilter("always")
                tables = _read(task, n_threads, told)
            return PartitionRead([str(one.message) for one in met], tables)
        except LockedError:
            if time.monotonic() >= until:
                raise
        told()
        time.sleep(AGAIN_SECONDS)


def _read(
    task: Partition, n_threads: int, told: Callable[..., Any]
) -> list[tuple[int, dict[str, int]]]:
    """Read the sources; return what was met in those that are tables."""
    opened = [open_source(Path(p), o) for p, o in zip(task.paths, task.options, strict=True)]
    forms = sorted({source.form for source in opened})
    kind = ("convert", forms, task.like is not None, n_threads > 1)
    memory = Memory.of(
        task.memory, [source.held() for source in opened], n_threads, compiler_bytes(*kind),
        task.shares,
    )  # fmt: skip
    folder = Path(task.folder)
    bad_rows = BadRows(skip=task.skip, most=task.max_bad, listed=folder / LISTED)
    with closing(bad_rows), ThreadPoolExecutor(n_threads, "convert") as pool:
        intake = Intake(
            opened, Known.of(task.like).vocabulary(), bad_rows, folder=folder, seed=task.seed,
            memory=memory, pool=pool, n_threads=n_threads, first=task.first,
        )  # fmt: skip
        intake.resume()
        if not intake.at_end:
            intake.read(told)
            intake.put_aside(always=True)
    keep_compiled(*kind)
    return [(table.met.rows, dict(table.met.missing)) for table in tables_of(opened)]
