"""The folder of a conversion that is under way, and the memory that it may take."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from streammach.inputs.source import ReadingBytes
from streammach.store.writer import MAX_DOCUMENT
from streammach.system.errors import BudgetError, UsageError, clean
from streammach.system.files.folders import check_ours, lock_file, make_folder, remove_folder
from streammach.system.files.reading import read_facts, read_small
from streammach.system.files.writing import TEMPORARY, remove_file, remove_temporaries, write_atomic
from streammach.system.jit import CACHE_DIR
from streammach.system.linux import resident_bytes
from streammach.system.machine import advise_memory, budget, size_text

WORK_BYTES = 96 << 20  # of what is written, and of what calls leave behind
THREAD_BYTES = 16 << 20  # of a thread's work
PIECES_BYTES = 96 << 20  # of pieces on their way, where one is not larger
AHEAD = 3  # pieces that are read or parsed, for each thread
LEAST_ROOM = 32 << 20
STARTS_DIFFER = 6_000_000  # bytes that a process held more where a first kernel was compiled in it
FREE_ROOM = 128 << 20  # that more pieces on their way leave to rows and names
IDENTITY = "conversion.json"  # what is converted; it marks the folder
FILES = re.compile(
    r"conversion\.json|written|rejects\.tsv|runs(/run-\d{6})?|store(/.*)?|"
    rf"(.*/)?({TEMPORARY.pattern}|\.[^/]+\.scratch(/.*)?)"
)


@dataclass
class ConversionMemory:
    """The memory of the process that a conversion may take."""

    n_bytes: int  # all of it; where the user named no budget it grows with what names need
    limit: int  # the most that it may grow to
    base: int  # what is taken beside rows, names and pieces on their way
    most_ahead: int  # pieces that are on their way at a time, where there is room for them
    piece: int = 0  # bytes of one
    large: int = 0  # what the largest piece takes, where one is larger than usual
    compiler: int = 0  # of `base`: what compiling takes, where it is not done before
    rows_known: bool = False  # whether all of it is for rows, since it is known how many there are

    @classmethod
    def of(
        cls, given: str | int | float | None, reading: Sequence[ReadingBytes], n_threads: int,
        compiler: int,
    ) -> ConversionMemory:  # fmt: skip
        """Return a budget, or the default; it is compared when the first rows are there.

        `compiler` is in bytes.
        """
        most = budget(given)
        piece = max((one.piece for one in reading), default=1)
        ahead = max(n_threads, min(AHEAD * n_threads, PIECES_BYTES // max(piece, 1)))
        base = resident_bytes() + WORK_BYTES + THREAD_BYTES * n_threads
        base += compiler + max((one.whole for one in reading), default=0)
        return cls(most.n_bytes, most.most, base, ahead, piece, compiler=compiler)

    @property
    def most_pieces(self) -> int:
        """How many pieces are on their way at a time: few, where more leave rows no room."""
        return self._pieces_within(self.limit)

    def _pieces_within(self, n_bytes: int) -> int:
        fits = (n_bytes - self.base - FREE_ROOM) // max(self.piece, 1) - 1
        return max(1, min(self.most_ahead, fits))

    def meet(self, large: int) -> None:
        """Count so many bytes of a piece that is larger than usual, which is read alone."""
        self.base += max(0, large - self.large)
        self.large = max(self.large, large)

    def room(self, others: int, in_the_end: int, piece: int = 0) -> int:
        """Return the bytes that rows may take beside labels and features, or raise BudgetError.

        `others`, `in_the_end`, `piece` are in bytes.
        """
        if self.rows_known:
            return self.n_bytes
        fixed = self._fixed_bytes(self.limit)
        self.n_bytes = max(self.n_bytes, min(fixed + others + max(LEAST_ROOM, piece), self.limit))
        least = max(LEAST_ROOM // 2, piece)
        left = self.n_bytes - fixed - others
        if left < least:
            enough = self._enough(max(others, in_the_end) + least)
            what = f"labels and features take {size_text(others)} and more"
            if others < LEAST_ROOM:
                what = f"{size_text(enough)} are needed"
            raise BudgetError(
                f"{what}, {size_text(self.n_bytes)} are too little", path="--memory",
                hint=f"Use --memory {advise_memory(enough)} or more.",
            )  # fmt: skip
        return left

    def _fixed_bytes(self, n_bytes: int) -> int:
        """Return what is taken beside rows and names, where so much may be taken."""
        return self.base + (self._pieces_within(n_bytes) + 1) * self.piece

    def _enough(self, needed: int) -> int:
        """Return the least that leaves so many bytes; what is compiled before takes none then."""
        bare = replace(self, base=self.base - self.compiler) if CACHE_DIR else self
        each = (bare.base + (n + 1) * self.piece + needed for n in range(1, self.most_ahead + 1))
        return next(n for n in each if bare._fixed_bytes(n) + needed <= n) + STARTS_DIFFER


class ConversionFolder:
    """The folder beside a store in which it is made."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.folder = target.with_name(f".{target.name}.partial")
        self.lock = target.with_name(f".{target.name}.lock")
        self.rejects = target.with_name(f"{target.name}.rejects.tsv")  # rows which the store lacks
        # in the folder: spills, the store, an empty file when that is whole, the list of bad rows
        self.runs = self.folder / "runs"
        self.store = self.folder / "store"
        self.written = self.folder / "written"
        self.listed = self.folder / "rejects.tsv"

    def hold_lock(self) -> AbstractContextManager[None]:
        """Keep other processes from making the same store while a block runs."""
        return lock_file(self.lock, clean(self.target))

    @property
    def has_runs(self) -> bool:
        """Whether there is something to go on from."""
        return self.runs.is_dir() and any(self.runs.glob("run-*"))

    def check(self) -> bool:
        """Return whether the folder is there; UsageError if it is not that of a conversion."""
        if not os.path.lexists(self.folder):
            return False
        if self.folder.is_dir() and not self.folder.is_symlink():
            known = read_facts(self.folder / IDENTITY, MAX_DOCUMENT)
            begun = known.keys() >= {"sources", "seed"}
            files = (name for _, _, names in os.walk(self.folder) for name in names)
            if begun or all(TEMPORARY.fullmatch(name) for name in files):
                check_ours(self.folder, FILES)
                return True
        what = "it has the name of an unfinished conversion and is none"
        raise UsageError(what, path=self.folder, hint="Move it away, or name another store.")

    def prepare(self, identity: bytes) -> bool:
        """Make or keep the folder; return whether an equal `identity` left something in it."""
        path = self.folder / IDENTITY
        if len(identity) > MAX_DOCUMENT:
            what = "the sources have more names and columns than a store can list"
            raise UsageError(what, path=self.target, hint="Convert fewer files at a time.")
        if not (self.has_runs and path.is_file() and read_small(path, MAX_DOCUMENT) == identity):
            self.remove()
            make_folder(self.runs)
            write_atomic(path, identity)
            return False
        # The store is written again: a whole one may be that which it was to replace, since the two
        # are swapped.
        remove_temporaries(self.runs)
        remove_file(self.written)
        remove_folder(self.store)
        return True

    @property
    def is_over(self) -> bool:
        """Whether the store was given its name, or there is nothing to go on from."""
        return not self.has_runs or (self.written.is_file() and not self.store.exists())

    def remove(self) -> None:
        """Remove the folder."""
        remove_folder(self.folder)
