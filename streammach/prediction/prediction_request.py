"""What is asked of each row of an input that is predicted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streammach.model.calibration import CANDIDATES
from streammach.model.model import Model
from streammach.prediction.allowed import Allowed, LabelFile, bytes_of, labels_in
from streammach.prediction.explain import LINES, WORK_BYTES
from streammach.prediction.output import AnswerShape
from streammach.prediction.room import CELL_BYTES
from streammach.system.machine import budget

BUCKET_BYTES = 20  # of a bucket's probability: of ranked, sorted and written rows, and work


@dataclass(frozen=True, kw_only=True)
class PredictionRequest:
    """What is wanted of each row."""

    k: int  # most classes a row
    threshold: float | None = None  # the least probability of a label that is given
    probabilities: bool = False  # whether probabilities stand in place of scores
    # labels that may be said alone, or may not be said; None without such a limit
    only: tuple[Any, ...] | None = None
    never: tuple[Any, ...] | None = None
    explain: int = 0  # features that raise a score, and that lower it, which are given at most
    n_columns: int = 0  # R*B of the bucket probabilities that are given; 0 without these

    @classmethod
    def of(
        cls, k: int, threshold: float | None, only: LabelFile | None, never: LabelFile | None, *,
        probabilities: bool, explain: int = 0, memory: str | int | None = None, n_columns: int = 0,
    ) -> PredictionRequest:  # fmt: skip
        """Return what is wanted; labels are read within the memory, or an error is raised."""
        most = budget(memory).most
        named = [None if one is None else labels_in(one, most) for one in (only, never)]
        return cls(
            k=k, threshold=threshold, probabilities=probabilities, only=named[0], never=named[1],
            explain=explain, n_columns=n_columns,
        )  # fmt: skip

    @property
    def some_labels(self) -> bool:
        """Whether only some of the labels may be said."""
        return (self.only, self.never) != (None, None)

    @property
    def calibrated(self) -> bool:
        """Whether the ranking that is calibrated is used."""
        return self.probabilities or self.threshold is not None

    @property
    def arguments(self) -> dict[str, Any]:
        """What :meth:`streammach.prediction.scorer_sum.ScorerSum.topk` is asked for."""
        names = ("threshold", "probabilities", "explain")
        found = {name: getattr(self, name) for name in names}
        return {"k": self.k, "buckets": self.n_columns > 0, **found}

    @property
    def best(self) -> int:
        """Classes that are ranked of each row."""
        return max(self.k, CANDIDATES) if self.calibrated else self.k

    @property
    def cells(self) -> int:
        """Cells of a row: classes that are ranked, two for what adds to the score of each."""
        explained = 2 * self.k * (2 * self.explain + len(LINES)) * (self.explain > 0)
        return self.best + explained + -(-BUCKET_BYTES * self.n_columns // CELL_BYTES)

    @property
    def beside(self) -> dict[str, int]:
        """Memory that explaining and files of labels take, by name."""
        files = bytes_of((*(self.only or ()), *(self.never or ())))
        found = {"explanations": WORK_BYTES * bool(self.explain), "files of labels": files}
        return {name: n_bytes for name, n_bytes in found.items() if n_bytes}

    def shape(self, model: Model, allowed: Allowed | None) -> AnswerShape:
        """Return what all rows of the table have in common."""
        word = "probability" if self.probabilities else "score"
        most = model.n_labels if allowed is None else allowed.n_labels
        return AnswerShape(
            k=min(self.k, most), labels=model.labels, word=word, titles=model.titles,
            features=model.features if self.explain else None,
        )  # fmt: skip
