"""What a format of predictions is: how rows are made ready, and what writes them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streammach.prediction.order import Predictions
from streammach.rows.names import Names

Write = Callable[[Any], object]  # takes bytes of a file, or rows as a format makes them


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What all rows of a table of predictions have in common."""

    k: int  # classes a row
    labels: Names  # the labels by class id
    word: str = "score"  # what stands beside a label: `score` or `probability`

    @property
    def plural(self) -> str:
        """Several of what stands beside a label."""
        return "probabilities" if self.word == "probability" else f"{self.word}s"


class OutputFormat(ABC):
    """A format of predictions.

    Attributes
    ----------
    name : str
        What it is called in options.
    endings : tuple of str
        How names of its files end.
    text : bool
        Whether it is text, whose rows can be read as they come.
    import_bytes : int
        What a library that it needs takes of the memory, and its own work.
    """

    name: str
    endings: tuple[str, ...]
    text = True
    import_bytes = 0

    def check(self) -> None:
        """Raise UsageError if what it needs is not installed."""
        return

    @abstractmethod
    def rows(self, part: Predictions, shape: Shape) -> Any:
        """Return some rows ready to be written; cells of the id -1 are empty."""

    def heading(self, shape: Shape) -> bytes:
        """Return what stands before the rows of a text."""
        del shape
        return b""

    @contextmanager
    def table(self, write: Write, shape: Shape) -> Iterator[Write]:
        """Yield what writes rows; these are text, unless a format says otherwise.

        Parameters
        ----------
        write : callable
            Takes the bytes of the file.
        shape : Shape
            What all rows have in common.

        Yields
        ------
        callable
            Takes what :meth:`rows` returns.
        """
        write(self.heading(shape))
        yield write

    @abstractmethod
    def is_ours(self, path: Path, start: bytes) -> bool:
        """Return whether a file with such first bytes of text was made here."""


class ByteFile:
    """What takes bytes, as a file of Python that is only written to."""

    closed = False

    def __init__(self, write: Write) -> None:
        self._write, self._size = write, 0

    def write(self, data: Any) -> int:
        """Write bytes."""
        self._write(memoryview(data))
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        """Return how many bytes were written."""
        return self._size

    def flush(self) -> None:
        """Do nothing: what is written is written."""

    def close(self) -> None:
        """Do nothing: the file is closed by its owner."""
