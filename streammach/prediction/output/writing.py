"""Tables of predictions: which format one gets, where it goes, which files are ours."""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from isal import igzip

from streammach.errors import DiskError, UsageError, clean
from streammach.files.destinations import Destination, Product, is_stream, not_regular
from streammach.files.reading import PIECE, disk_error
from streammach.files.writing import Writer
from streammach.prediction.output.formats import (
    OUTPUT_FORMATS,
    ByteFile,
    OutputFormat,
    Shape,
    Write,
)

PACKED = ".gz"
START_BYTES = 1 << 16
GZIP_MAGIC, GZIP_BITS, GZIP_LEVEL = b"\x1f\x8b", 31, 1


@dataclass(frozen=True)
class Output:
    """How predictions are written: the format, and whether it is packed by gzip."""

    format: OutputFormat
    packed: bool = False

    @property
    def beside(self) -> dict[str, int]:
        """Memory that the format takes, by its name."""
        return {self.format.name: self.format.import_bytes} if self.format.import_bytes else {}


def output_of(path: Path | None, name: str | None = None) -> Output:
    """Return how predictions are written, or raise UsageError."""
    if name is not None and name not in OUTPUT_FORMATS:
        known = ", ".join(OUTPUT_FORMATS)
        raise UsageError(f"'{clean(name)}' is not one of {known}: --out-format")
    stream = path is None or is_stream(path)
    endings = [] if path is None else [ending.lower() for ending in path.suffixes]
    packed = bool(endings) and endings[-1] == PACKED and not stream
    ending = "".join((endings[:-1] if packed else endings)[-1:])
    by_ending = {known: form.name for form in OUTPUT_FORMATS.values() for known in form.endings}
    form = OUTPUT_FORMATS[name or by_ending.get(ending, "tsv")]
    if not form.text and (stream or packed):
        where = "is packed already: no .gz" if packed else "is written to a file: --out"
        raise UsageError(f"{form.name} {where}", path=None if path is None else clean(path, 300))
    form.check()
    return Output(form, packed)


def _foreign(path: Path) -> str | None:
    """Return why a file holds no predictions of ours, in any format; None if it does."""
    why = not_regular(path)
    if why is not None:
        return why
    with open(path, "rb") as file:
        start = file.read(START_BYTES)
    if start.startswith(GZIP_MAGIC):
        try:
            start = zlib.decompressobj(GZIP_BITS).decompress(start, START_BYTES)
        except zlib.error:
            start = b""
    if any(form.is_ours(path, start) for form in OUTPUT_FORMATS.values()):
        return None
    return "it is no table of predictions that streammach made"


PREDICTIONS = Product("a table of predictions", _foreign)


def target(path: Path | None, *, force: bool, inputs: list[Path]) -> Destination | Path | None:
    """Return where a table goes; None stands for standard output."""
    if path is None or (is_stream(path) and str(path) in ("-", "/dev/stdout")):
        if sys.stdout is None:
            raise DiskError("it is closed", path="standard output", hint="Name a file with --out.")
        return None
    return path if is_stream(path) else Destination(path, PREDICTIONS, force=force, inputs=inputs)


@contextmanager
def writing(goal: Destination | Path | None, output: Output, shape: Shape) -> Iterator[Write]:
    """Yield what writes rows: of a file that appears in the end, a pipe, standard output."""
    with ExitStack() as stack:
        if isinstance(goal, Destination):
            made = stack.enter_context(goal.scratch())
            write: Write = stack.enter_context(Writer(goal.path, temporary=made)).write
        else:
            write = _print if goal is None else stack.enter_context(_piped(goal))
        with ExitStack() as table:
            if output.packed:
                write = table.enter_context(_gzipped(write))
            yield table.enter_context(output.format.table(write, shape))
        if isinstance(goal, Destination):
            goal.take(made)


def _print(rows: bytes) -> None:
    """Write to standard output, whose reader gets rows as they come."""
    sys.stdout.write(rows.decode())
    sys.stdout.flush()


@contextmanager
def _piped(path: Path) -> Iterator[Write]:
    """Yield what writes to a pipe or a device."""

    def write(rows: bytes) -> None:
        rest = memoryview(rows)
        while rest:
            rest = rest[os.write(handle, rest) :]

    try:
        handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            yield write
        finally:
            os.close(handle)
    except (BrokenPipeError, DiskError):
        raise
    except OSError as error:
        raise disk_error(error, path) from error


@contextmanager
def _gzipped(write: Write) -> Iterator[Write]:
    """Yield what packs text in pieces of one size: the bytes do not depend on how rows come."""
    waiting = bytearray()
    with igzip.GzipFile(
        fileobj=ByteFile(write), mode="wb", compresslevel=GZIP_LEVEL, mtime=0
    ) as file:

        def add(rows: bytes) -> None:
            waiting.extend(rows)
            while len(waiting) >= PIECE:
                file.write(waiting[:PIECE])
                del waiting[:PIECE]

        yield add
        file.write(waiting)
