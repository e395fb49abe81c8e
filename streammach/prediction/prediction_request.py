"""What is asked of each row of an input that is predicted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from streammach.model.calibration import CANDIDATES
from streammach.model.model import Model
from streammach.prediction.allowed import Allowed, bytes_of
from streammach.prediction.explain import LINES, WORK_BYTES, reason_type
from streammach.prediction.output import AnswerShape
from streammach.prediction.room import CELL_BYTES, Task

BUCKET_BYTES = 20  # of a bucket's probability: of ranked, sorted and written rows, and work


@dataclass(frozen=True, kw_only=True)
class PredictionRequest:
    """What is wanted of each row."""

    task: ClassVar[Task] = "predict"
    k: int  # most classes a row
    threshold: float | None = None  # the least probability of a label that is given
    probabilities: bool = False  # whether probabilities stand in place of scores
    # labels that may be said alone, or may not be said; None without such a limit
    only: tuple[Any, ...] | None = None
    never: tuple[Any, ...] | None = None
    explain: int = 0  # features that raise a score, and that lower it, which are given at most
    n_columns: int = 0  # R*B of the bucket probabilities that are given; 0 without these

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

    def cells(self, allowed: Allowed | None = None) -> int:
        """Return cells of a row: classes that are ranked, two for what adds to a score of each."""
        ranked = self.k if allowed is None else allowed.n_to_rank(self.k)
        ranked = max(ranked, CANDIDATES) if self.calibrated else ranked
        explained = 2 * self.k * (2 * self.explain + len(LINES)) * (self.explain > 0)
        return ranked + explained + -(-BUCKET_BYTES * self.n_columns // CELL_BYTES)

    def beside(self, n_classes: int) -> dict[str, int]:
        """Return the memory that explaining and files of labels take, by name."""
        del n_classes
        files = bytes_of((*(self.only or ()), *(self.never or ())))
        found = {"explanations": WORK_BYTES * bool(self.explain), "files of labels": files}
        return {name: n_bytes for name, n_bytes in found.items() if n_bytes}

    def record_type(self, k: int) -> np.dtype[Any]:
        """Return how a row is held with the bytes of its tag, while rows are put in order."""
        best: list[Any] = [("ids", "i4", (k,)), ("scores", "f4", (k,))]
        best += [("reasons", reason_type(self.explain), (k,))] * (self.explain > 0)
        best += [("buckets", "f4", (self.n_columns,))] * (self.n_columns > 0)
        return np.dtype([("rows", "i8"), ("tag", "i4"), *best])

    def shape(self, model: Model, allowed: Allowed | None) -> AnswerShape:
        """Return what all rows of the table have in common."""
        word = "probability" if self.probabilities else "score"
        most = model.n_labels if allowed is None else allowed.n_labels
        return AnswerShape(
            k=min(self.k, most), labels=model.labels, word=word, titles=model.titles,
            features=model.features if self.explain else None,
        )  # fmt: skip
