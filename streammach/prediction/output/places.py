"""Where predictions go: a file that appears when it is whole, standard output, a pipe, a device."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from streammach.errors import DiskError
from streammach.files.destinations import Destination, is_stream
from streammach.files.reading import disk_error
from streammach.prediction.output.registry import PREDICTIONS


class Sink(Protocol):
    """What takes rows of a table."""

    def add(self, rows: bytes, n_rows: int, /) -> None:
        """Take in some rows."""
        ...


class _Printed:
    """Standard output, whose reader gets rows as they come."""

    def add(self, rows: bytes, n_rows: int, /) -> None:
        """Print some rows."""
        del n_rows
        sys.stdout.write(rows.decode())
        sys.stdout.flush()


class _Piped:
    """A pipe or a device."""

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)

    def add(self, rows: bytes, n_rows: int, /) -> None:
        """Write some rows."""
        del n_rows
        rest = memoryview(rows)
        while rest:
            rest = rest[os.write(self._handle, rest) :]

    def close(self) -> None:
        """Close it."""
        os.close(self._handle)


def target(path: Path | None, *, force: bool, inputs: list[Path]) -> Destination | Path | None:
    """Return where a table goes; None stands for standard output."""
    if path is None or (is_stream(path) and str(path) in ("-", "/dev/stdout")):
        if sys.stdout is None:
            raise DiskError("it is closed", path="standard output", hint="Name a file with --out.")
        return None
    return path if is_stream(path) else Destination(path, PREDICTIONS, force=force, inputs=inputs)


@contextmanager
def streamed(path: Path | None, heading: bytes) -> Iterator[Sink]:
    """Yield standard output, or a pipe or a device, to which the heading was written."""
    if path is None:
        printed = _Printed()
        printed.add(heading, 0)
        yield printed
        return
    try:
        piped = _Piped(path)
        try:
            piped.add(heading, 0)
            yield piped
        finally:
            piped.close()
    except BrokenPipeError:
        raise
    except OSError as error:
        if isinstance(error, DiskError):
            raise
        raise disk_error(error, path) from error
