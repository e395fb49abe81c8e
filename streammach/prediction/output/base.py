"""What a format of predictions is: a heading, the rows, what becomes of them when all are there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streammach.files.writing import Writer
from streammach.model.packed_names import LabelNames
from streammach.prediction.order import Predictions


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What all rows of a table of predictions have in common."""

    k: int  # classes a row
    labels: LabelNames  # the labels by class id
    word: str = "score"  # what stands beside a label: `score` or `probability`

    @property
    def plural(self) -> str:
        """Several of what stands beside a label."""
        return "probabilities" if self.word == "probability" else f"{self.word}s"


class OutputFormat(ABC):
    """A format of predictions.

    What it makes of rows is appended to a file, in pieces of any size. Of text that is the file;
    otherwise :meth:`finish` makes it.

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
    def heading(self, shape: Shape) -> bytes:
        """Return what stands before the rows."""

    @abstractmethod
    def rows(self, part: Predictions, shape: Shape) -> bytes:
        """Return some rows; cells of the id -1 are empty."""

    def finish(self, made: Path, out: Writer, shape: Shape) -> None:
        """Write the file from what was appended to one, where that is not the file itself.

        Parameters
        ----------
        made : Path
            What was appended.
        out : Writer
            The file.
        shape : Shape
            What all rows have in common.

        Raises
        ------
        DiskError
            If it cannot be read or written.
        """
        raise NotImplementedError

    @abstractmethod
    def is_ours(self, path: Path, start: bytes) -> bool:
        """Return whether a file with such first bytes of text was made here."""


class Bytes:
    """A writer of ours as a file of Python that is only written to."""

    closed = False

    def __init__(self, out: Writer) -> None:
        self._out = out

    def write(self, data: Any) -> int:
        """Write bytes."""
        self._out.write(memoryview(data))
        return len(data)

    def tell(self) -> int:
        """Return how many bytes were written."""
        return self._out.size

    def flush(self) -> None:
        """Do nothing: what is written is written."""

    def close(self) -> None:
        """Do nothing: the writer is closed by its owner."""
