"""What a user says about a source beside its path."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from streammach.spec.types import Multilabel

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@dataclass(frozen=True, kw_only=True)
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
    multilabel : str
        ``on``: a row has a list of labels, perhaps an empty one; ``off``: it has one label;
        ``auto``: rows have lists if one of them has several.
    """

    form: str | None = None
    labels: Path | None = None
    x_path: str | None = None
    y_path: str | None = None
    first_label: bool = False
    multilabel: Multilabel = "auto"

    def each(self, n_sources: int, labels: Sequence[Path]) -> list[SourceOptions]:
        """Return the options of sources, each with its file of labels where there are any."""
        return [replace(self, labels=file) for file in labels] or [self] * n_sources


GUESSED = SourceOptions()


def paths_of(given: Paths) -> list[Path]:
    """Return one path or several as a list."""
    return [Path(p) for p in ([given] if isinstance(given, str | os.PathLike) else given)]
