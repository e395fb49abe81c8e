"""The folder of a conversion that is under way, and the memory that it may take."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import psutil

from streammach.errors import BudgetError, DiskError, UsageError, clean
from streammach.files.folders import make_folder, remove_folder
from streammach.files.reading import read_small
from streammach.files.writing import (
    TEMPORARY,
    remove_file,
    remove_temporaries,
    write_atomic,
)
from streammach.machine import memory_limit, size_text, within

WORK_BYTES = 128 << 20  # of pieces on their way, and of what calls leave behind
THREAD_BYTES = 32 << 20  # of a thread's pieces
LEAST_ROOM = 32 << 20
DEFAULT_SHARE = 0.5
MAX_IDENTITY = 1 << 20
IDENTITY = "conversion.json"  # what is converted; it marks the folder


@dataclass(frozen=True)
class Memory:
    """The memory of the process that a conversion may take.

    Attributes
    ----------
    n_bytes : int
        All of it.
    fixed : int
        What is taken beside rows and names.
    """

    n_bytes: int
    fixed: int

    @classmethod
    def of(cls, asked: str | int | float | None, n_threads: int) -> Memory:
        """Return what was asked for, or half of what there is.

        Raises
        ------
        BudgetError
            If there is less than that, or if it is too little for anything.
        """
        limit = memory_limit()
        n_bytes = int(limit.n_bytes * DEFAULT_SHARE) if asked is None else within(limit, asked)
        fixed = psutil.Process().memory_info().rss + WORK_BYTES + THREAD_BYTES * n_threads
        if n_bytes < fixed + LEAST_ROOM:
            raise BudgetError(
                f"{size_text(n_bytes)} are too little, {size_text(fixed + LEAST_ROOM)} are needed: "
                "--memory"
            )
        return cls(n_bytes, fixed)

    def room(self, others: int) -> int:
        """Return the bytes that rows may take beside so many others.

        Raises
        ------
        BudgetError
            If nothing useful is left.
        """
        left = self.n_bytes - self.fixed - others
        if left < LEAST_ROOM // 2:
            raise BudgetError(
                f"labels and features take {size_text(others)}, too much for --memory "
                f"{size_text(self.n_bytes)}",
                hint=f"Give {size_text(self.fixed + others + LEAST_ROOM)} or more.",
            )
        return left


class Job:
    """The folder beside a store in which it is made.

    Parameters
    ----------
    target : Path
        The store.

    Attributes
    ----------
    folder, runs, store, written, listed : Path
        The folder, and in it: runs, the store, what is written of it, the list of bad rows.
    """

    def __init__(self, target: Path) -> None:
        self.folder = target.with_name(f".{target.name}.partial")
        self.runs = self.folder / "runs"
        self.store = self.folder / "store"
        self.written = self.folder / "written"
        self.listed = self.folder / "rejects.tsv"

    @property
    def has_runs(self) -> bool:
        """Whether there is something to go on from."""
        return self.runs.is_dir() and any(self.runs.glob("run-*"))

    def check(self) -> bool:
        """Return whether the folder is there; refuse one that is not that of a conversion.

        Raises
        ------
        UsageError
            If something else has its name.
        """
        if not os.path.lexists(self.folder):
            return False
        path = self.folder / IDENTITY
        if self.folder.is_dir() and not self.folder.is_symlink():
            try:
                known = msgspec.json.decode(read_small(path, MAX_IDENTITY)) if path.exists() else {}
            except (DiskError, msgspec.DecodeError, RecursionError):
                known = {}
            begun = isinstance(known, dict) and known.keys() >= {"sources", "seed"}
            files = (name for _, _, names in os.walk(self.folder) for name in names)
            if begun or not any(not TEMPORARY.fullmatch(name) for name in files):
                return True
        raise UsageError(
            "it has the name of an unfinished conversion and is none",
            path=clean(self.folder, 300),
            hint="Move it away, or name another store.",
        )

    def prepare(self, identity: dict[str, Any]) -> bool:
        """Make the folder, or keep that of an interrupted conversion of the same sources.

        Parameters
        ----------
        identity : dict
            What decides the store's content.

        Returns
        -------
        bool
            Whether there is something to go on from.

        Raises
        ------
        DiskError
            If the folder cannot be made or read.
        """
        document = msgspec.json.encode(identity, order="deterministic")
        path = self.folder / IDENTITY
        if self.has_runs and path.is_file() and read_small(path, MAX_IDENTITY) == document:
            self._prepare_to_go_on()
            return True
        self.remove()
        make_folder(self.runs)
        write_atomic(path, document)
        return False

    def _prepare_to_go_on(self) -> None:
        """Remove what cannot be gone on from.

        A store that has its root document is whole, or is the one that it was to replace: the two
        are swapped. It is written again, for what is written of it cannot be told from the other.
        """
        remove_temporaries(self.folder)
        complete = (self.store / "zarr.json").exists()
        if complete or not self.store.is_dir() or not self.written.is_file():
            remove_folder(self.store)
            remove_file(self.written)

    @property
    def is_over(self) -> bool:
        """Whether the store was given its name, or there is nothing to go on from."""
        return not self.has_runs or (self.written.is_file() and not self.store.exists())

    def remove(self) -> None:
        """Remove the folder."""
        remove_folder(self.folder)
