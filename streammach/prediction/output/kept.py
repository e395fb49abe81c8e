"""The work on a table of predictions: kept beside it until it is whole, and gone on from."""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import msgspec
from isal import igzip

from streammach.errors import (
    DiskError,
    Interrupted,
    LockedError,
    MismatchError,
    StreammachError,
    UsageError,
    clean,
)
from streammach.files.destinations import Destination
from streammach.files.folders import remove_folder, remove_left
from streammach.files.locks import locked
from streammach.files.reading import file_pieces, read_small
from streammach.files.workplaces import GOES_ON, Workplace
from streammach.files.writing import TEMPORARY, Writer, remove_file, write_atomic
from streammach.prediction.order import SAVED, SAVED_SECONDS, Kept
from streammach.prediction.output.base import Bytes, Shape
from streammach.prediction.output.registry import Output

MAX_STATE = 1 << 12
WHOLE = "whole"  # names the file that is about to get the table's name
IDENTITY = "identity"
WHAT = {"model": "the model", "input": "the input", "options": "what the options say"}
LEVEL = 1  # of gzip


class Written(msgspec.Struct, frozen=True):
    """How much was appended: rows, and the bytes of these and of the heading."""

    rows: int = 0
    bytes: int = 0


class KeptWork:
    """The folder beside a table in which it is made."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self.folder = target.with_name(f".{target.name}.partial")
        self._place = Workplace(self.folder, "prediction")
        self._appended = self.folder / "rows"
        self._state = self.folder / "state.json"
        self._order = self.folder / "order"
        self.ranges = self.folder / "ranges"  # made by other processes

    @property
    def kept(self) -> Kept:
        """What a prediction needs to know of it."""
        return Kept(self.written().rows, self._order)

    @property
    def appended(self) -> Path:
        """What was appended so far."""
        return self._appended

    def check(self) -> None:
        """Raise UsageError if something else has the name of the folder."""
        if not self._unsaid():
            self._place.check()

    @property
    def is_there(self) -> bool:
        """Whether an earlier prediction left it."""
        return self.folder.exists()

    def _unsaid(self) -> bool:
        """Whether it was killed before it said what it is: it holds what a writer left, or none."""
        folder = self.folder
        if folder.is_symlink() or not folder.is_dir():
            return False
        return all(TEMPORARY.fullmatch(name) for name in os.listdir(folder))

    @property
    def has_rows(self) -> bool:
        """Whether there is something to go on from."""
        order, ranges = self._order / SAVED, self.ranges.glob("*/range-*")
        return self.written().rows > 0 or order.exists() or any(ranges)

    def tidy(self) -> None:
        """Remove what a process left that was killed after the table had got its name."""
        lock = self.lock
        for path in (self._target, self.folder):
            remove_left(path)
        if self.is_there or lock.exists():
            with contextlib.suppress(DiskError, LockedError, UsageError), self.locked():
                if self._place.facts() is not None and self._is_over:
                    self.remove()

    @property
    def lock(self) -> Path:
        """The file that is locked while the folder is worked in."""
        return self._target.with_name(f".{self._target.name}.lock")

    def locked(self) -> AbstractContextManager[None]:
        """Hold the lock while a block runs, or raise LockedError."""
        return locked(self.lock, clean(self._target))

    @property
    def _is_over(self) -> bool:
        """Whether the table got its name, and only the rest is left."""
        whole = self.folder / WHOLE
        try:
            return not (self.folder / read_small(whole, MAX_STATE).decode()).exists()
        except (DiskError, UnicodeDecodeError):
            return False

    def written(self) -> Written:
        """Return how much can be gone on from."""
        try:
            found = msgspec.json.decode(read_small(self._state, MAX_STATE), type=Written)
            size = self._appended.stat().st_size
        except (DiskError, OSError, msgspec.MsgspecError):
            return Written()
        return found if 0 <= found.bytes <= size else Written()

    def check_same(self, identity: Mapping[str, Any]) -> None:
        """Raise MismatchError if something else was predicted here."""
        if self._unsaid():
            return
        known = self.identity()
        same = msgspec.json.decode(msgspec.json.encode(identity))
        if known == same:
            return
        other = next((WHAT.get(key, key) for key in same if known.get(key) != same[key]), "it")
        raise MismatchError(
            f"{other} is not that of the prediction that was interrupted",
            path=self.folder,
            hint="Leave --resume out to start anew.",
        )

    def identity(self) -> Mapping[str, Any]:
        """Return what was predicted here; nothing where that is not known."""
        known = (self._place.facts() or {}).get(IDENTITY)
        return known if isinstance(known, dict) else {}

    def start(self, identity: Mapping[str, Any], *, resume: bool) -> bool:
        """Make the folder, or go on with the one that is there; return whether it goes on."""
        goes_on = self.is_there and resume
        if goes_on:
            self.check_same(identity)
        elif self.is_there:
            if self.has_rows:
                warnings.warn(
                    "what an interrupted prediction had kept is given up, --resume would have gone "
                    f"on with it: {clean(self.folder, 300)}",
                    stacklevel=5,
                )
            self.remove()
        self.begin(identity)
        return goes_on

    @contextlib.contextmanager
    def gone_on_with(
        self, *, again: bool = True, also: type[StreammachError] = DiskError
    ) -> Iterator[None]:
        """Keep the folder where a block ends early and there is something to go on from.

        It does after a signal and errors of the disk; after others the folder is removed.
        """
        try:
            yield
        except KeyboardInterrupt:
            if not again or not self.has_rows:
                self.remove()
                raise
            raise Interrupted("what was predicted is kept", hint=GOES_ON) from None
        except (DiskError, also) as error:
            if not again or not self.has_rows:
                self.remove()
            else:
                error.hint = GOES_ON
            raise
        except BaseException:
            self.remove()
            raise

    def begin(self, identity: Mapping[str, Any]) -> None:
        """Make the folder, or keep one that is there."""
        if self._unsaid():
            self.remove()
        self._place.open(**{IDENTITY: identity})

    def save(self, written: Written) -> None:
        """Say how much was appended and is durable."""
        write_atomic(self._state, msgspec.json.encode(written))

    def finished(self, output: Output, shape: Shape) -> Path:
        """Return the file that was made, under a name in the folder."""
        if output.format.text and not output.packed:
            return self._appended
        made = self.folder / "made"
        remove_file(made)
        with Writer(made) as out:
            if output.packed:
                with igzip.GzipFile(fileobj=Bytes(out), mode="wb", compresslevel=LEVEL,
                                    mtime=0) as packed:  # fmt: skip
                    for piece in file_pieces(self._appended):
                        packed.write(piece)
            else:
                output.format.finish(self._appended, out, shape)
            out.commit()
        return made

    def take(self, destination: Destination, made: Path) -> None:
        """Give the file that was made its name; the folder is gone then."""
        write_atomic(self.folder / WHOLE, made.name.encode())
        destination.take(made)
        self.remove()

    def remove(self) -> None:
        """Remove the folder."""
        remove_folder(self.folder)


class Appended:
    """Takes rows of a table in, and makes them durable now and then."""

    def __init__(self, work: KeptWork, target: Path, heading: bytes) -> None:
        self._work, self.written = work, work.written()
        self._out = Writer(target, temporary=work.appended, keep=self.written.bytes)
        if not self.written.bytes:
            self._out.write(heading)
            self.written = Written(0, len(heading))
        self._due = time.monotonic() + SAVED_SECONDS

    def add(self, rows: bytes, n_rows: int) -> None:
        """Append some rows."""
        self._out.write(rows)
        self.written = Written(self.written.rows + n_rows, self._out.size)
        if time.monotonic() > self._due:
            self.save()
            self._due = time.monotonic() + SAVED_SECONDS

    def save(self) -> None:
        """Make what was appended durable, and say how much it is."""
        self._out.sync()
        self._work.save(self.written)

    def close(self) -> None:
        """Close the file."""
        self._out.close()
