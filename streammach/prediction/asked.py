"""What is asked of a prediction, and by what one that was interrupted is known again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streammach.data.source_options import GUESSED, SourceOptions
from streammach.files.reading import file_pieces, sha256
from streammach.model.ours import DOCUMENT
from streammach.prediction.calibrate import CANDIDATES
from streammach.prediction.output.registry import Output

WORK_FORMAT = 1  # of what is kept of a prediction; another one is not gone on from


@dataclass(frozen=True, kw_only=True)
class Ask:
    """What is wanted of each row, and how the input is read."""

    k: int  # most classes a row
    threshold: float | None  # the least probability of a label that is given
    probabilities: bool  # whether probabilities stand in place of scores
    options: SourceOptions = GUESSED  # how a file is read

    @property
    def calibrated(self) -> bool:
        """Whether the ranking that is calibrated is used."""
        return self.probabilities or self.threshold is not None

    @property
    def best(self) -> int:
        """Classes that are ranked of each row."""
        return max(self.k, CANDIDATES) if self.calibrated else self.k

    @property
    def word(self) -> str:
        """What stands beside a label."""
        return "probability" if self.probabilities else "score"

    def facts(
        self, output: Output, *, skip: bool, device: str, cut: Sequence[int]
    ) -> dict[str, Any]:
        """Return all that decides the bytes of a table beside model and input."""
        return {
            "work": WORK_FORMAT, "k": self.k, "threshold": self.threshold,
            "probabilities": self.probabilities, "format": self.options.form,
            "x_path": self.options.x_path, "layout": str(self.options.layout),
            "out_format": output.format.name, "skip": skip, "device": device, "cut": list(cut),
        }  # fmt: skip


def document_digest(folder: Path) -> str:
    """Return the digest of a model's document, which names the content of its other file."""
    return sha256(file_pieces(folder / DOCUMENT))
