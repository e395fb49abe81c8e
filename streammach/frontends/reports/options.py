"""What a report shows, and where it goes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from streammach.options.option_fields import option
from streammach.options.types import StorePath
from streammach.prediction.options import Resources


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """What a report shows, and where it goes."""

    on: StorePath | None = option(
        None, "Labelled rows for the plots of probabilities, class frequency and repetitions.",
        "STORE",
    )  # fmt: skip
    rows: int = option(20_000, "Use the first so many of those rows.", least=1)
    out: Path | None = option(None, "Where to write.", "FILE", usual="RUN/report.html")
    card: Path | None = option(
        None, "Write a card of the model, too, in Markdown: data, figures, use, limits.",
        "FILE",
    )  # fmt: skip
    force: bool = option(False, "Replace an existing page or card.")
    room: Resources = field(default_factory=Resources)
