"""Predictions as a tab-separated table: a header, then a line for each row."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from streammach.errors import DiskError, escaped
from streammach.files.destinations import Destination, is_stream, told_by_start
from streammach.files.reading import disk_error
from streammach.files.writing import Writer
from streammach.prediction.order import Predictions

PIECE_CHARACTERS = 1 << 20
HEADING = "row\ttag\tlabel_1\tscore_1"  # of every table of ours
TABLE = told_by_start(
    "a table of predictions", HEADING, "it is no table of predictions that streammach made"
)
ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


class Target(Protocol):
    """What takes text."""

    def write(self, text: str, /) -> Any:
        """Take in some text."""
        ...


def heading(k: int) -> str:
    """Return the first line of a table of k classes a row, with its end."""
    cells = (f"label_{i}\tscore_{i}" for i in range(1, k + 1))
    return "\t".join(("row", "tag", *cells)) + "\n"


def lines(part: Predictions, labels: NDArray[Any]) -> str:
    """Return predictions as lines.

    Parameters
    ----------
    part : Predictions
        The rows.
    labels : array (n, k)
        The names of their classes; cells of the id -1 are empty.
    """
    tags = [b""] * len(part.rows) if part.tags is None else part.tags.raws()
    out = []
    for row, tag, ids, names, scores in zip(
        part.rows.tolist(), tags, part.ids.tolist(), labels, part.scores.tolist(), strict=True
    ):
        pairs = (
            f"{cell(name)}\t{score:.6g}" if class_id >= 0 else "\t"
            for class_id, name, score in zip(ids, names, scores, strict=True)
        )
        out.append(f"{row}\t{cell(tag)}\t" + "\t".join(pairs) + "\n")
    return "".join(out)


def cell(label: object) -> str:
    """Return a label or a tag as it may stand in a table."""
    # A backslash stands as \\, tab, newline and carriage return as \t, \n, \r, and bytes and
    # characters that no terminal should be sent as \xNN or \uNNNN.
    text = label.decode("utf-8", "surrogateescape") if isinstance(label, bytes) else str(label)
    whole = text.translate(ESCAPES).encode("utf-8", "surrogateescape")
    return escaped(whole.decode("utf-8", "backslashreplace"))


@contextmanager
def opened(destination: Destination | Path | None) -> Iterator[Target]:
    """Yield where a table goes.

    Parameters
    ----------
    destination : Destination, Path or None
        A file, which appears when it is whole; a pipe or device, which is written to; standard
        output.

    Raises
    ------
    DiskError
        If it cannot be written.
    """
    if destination is None:
        yield sys.stdout
    elif isinstance(destination, Path):
        try:
            with open(destination, "w", encoding="utf-8") as stream:
                yield stream
        except BrokenPipeError:
            raise
        except OSError as error:
            if isinstance(error, DiskError):
                raise
            raise disk_error(error, destination) from error
    else:
        with destination.scratch() as made:
            with Writer(made) as out:
                pieces = _Pieces(out)
                yield pieces
                pieces.flush()
                out.commit()
            destination.take(made)


def target(path: Path | None, *, force: bool, inputs: list[Path]) -> Destination | Path | None:
    """Return where a table goes; None stands for standard output.

    Parameters
    ----------
    path : Path or None
        The name that the user gave, if any; a pipe or a device is returned as it is.
    force : bool
        Whether a table that is there may be replaced.
    inputs : list of Path
        What the work reads.

    Raises
    ------
    UsageError
        If nothing may be written there.
    DiskError
        If it is standard output, and that is closed.
    """
    if path is None or (is_stream(path) and str(path) in ("-", "/dev/stdout")):
        if sys.stdout is None:
            raise DiskError("it is closed", path="standard output", hint="Name a file with --out.")
        return None
    return path if is_stream(path) else Destination(path, TABLE, force=force, inputs=inputs)


class _Pieces:
    """Hands text on to a file in large pieces."""

    def __init__(self, out: Writer) -> None:
        self._out = out
        self._held: list[str] = []
        self._size = 0

    def write(self, text: str) -> None:
        """Take in some text."""
        self._held.append(text)
        self._size += len(text)
        if self._size > PIECE_CHARACTERS:
            self.flush()

    def flush(self) -> None:
        """Hand on what is held."""
        self._out.write("".join(self._held).encode())
        self._held, self._size = [], 0
