"""What a user says about a source beside its path."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class SourceOptions:
    """How to read a source.

    Attributes
    ----------
    form : str or None
        Its format; None: guessed.
    labels : Path or None
        A file with the labels of its rows: .npy, or text with one label a line.
    x_path, y_path : str or None
        Which member, dataset or group holds the rows and the labels; None: guessed.
    first_label : bool
        Whether a text row with several labels counts under its first one.
    """

    form: str | None = None
    labels: Path | None = None
    x_path: str | None = None
    y_path: str | None = None
    first_label: bool = False


GUESSED = SourceOptions()
