"""What was measured and is given as JSON: of a ranking, an epoch, a short training, a score."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from streammach.options.types import Amount, Count, LossKind, Share, Size, Transform

FEW_ROWS = 100  # fewer held-out rows say little, which is reported


class HeldOutMetrics(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Accuracy and top-5 accuracy on some rows: shares whose class is first, or among five.

    Of rows with lists of labels they are precision at 1 and at 5.
    """

    accuracy: Share
    top_5_accuracy: Share
    psp_5: Share | None = None  # propensity-scored precision at 5, where choices go by it

    @property
    def selection_score(self) -> float:
        """Accuracy + top-5 accuracy / 2, which compares settings: accuracy alone has more noise.

        PSP@5 where choices go by it.
        """
        return self.accuracy + self.top_5_accuracy / 2 if self.psp_5 is None else self.psp_5

    def error(self, n_rows: float) -> float:
        """Return the standard error of the first figure that choices go by, of so many rows."""
        return standard_error(self.accuracy if self.psp_5 is None else self.psp_5, n_rows)

    @property
    def text(self) -> str:
        """The figures for people."""
        psp = "" if self.psp_5 is None else f" (PSP@5 {self.psp_5:z.3f})"
        return f"{self.accuracy:z.3f} / {self.top_5_accuracy:z.3f}{psp}"


def standard_error(share: float, n_rows: float) -> float:
    """Return the standard error of a share of so many rows."""
    return math.sqrt(share * (1 - share) / max(n_rows, 1))


def gain_text(how: str, first: str, own: HeldOutMetrics, n_rows: int, usual: float) -> str:
    """Return what a model reaches on rows, beside what the most frequent label reaches by itself.

    `how` says how the rows were chosen, `first` names the first figure, `usual` is the share of
    that label.
    """
    error = standard_error(own.accuracy, n_rows)
    few = f"; only {n_rows:,} rows decided, which say little" if n_rows < FEW_ROWS else ""
    return (
        f"{how} {first} {own.accuracy:z.3f} +- {error:z.3f}; the most frequent label "
        f"alone reaches {usual:z.3f} ({own.accuracy - usual:+z.3f}){few}"
    )


def scores_text(found: Iterable[tuple[str, HeldOutMetrics]]) -> str:
    """Return settings with what they reach, for people."""
    return ", ".join(f"{name} {reached.text}" for name, reached in found)


class TopK(Protocol):
    """What has an accuracy and a top-5 accuracy."""

    @property
    def accuracy(self) -> float:
        """Share of the rows whose class is first."""

    @property
    def top_5_accuracy(self) -> float:
        """Share of the rows whose class is among the first five."""


@dataclass(frozen=True)
class Words:
    """What is said of a :class:`TopK`."""

    kind: str  # what both are
    first: str  # first, five: their names
    five: str

    @property
    def both(self) -> str:
        """Their names before figures with a stroke between."""
        return f"{self.first} / {self.five}"


ONE_LABEL = Words("accuracy", "accuracy", "top-5")
LISTS = Words("precision", "P@1", "P@5")  # as in the XMC repository


def words(listed: bool) -> Words:
    """Return what figures are called, by whether rows have lists of labels."""
    return LISTS if listed else ONE_LABEL


def figures_text(found: TopK, *, listed: bool, digits: int = 3) -> str:
    """Return both figures as text."""
    said = words(listed)
    return (
        f"{said.first} {found.accuracy:z.{digits}f}, {said.five} {found.top_5_accuracy:z.{digits}f}"
    )


class EpochFigures(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True,
    omit_defaults=True,
):  # fmt: skip
    """What was measured at the end of an epoch."""

    epoch: Size  # its number, from 1
    loss: float  # mean loss in nats per row and model
    rows_per_second: Amount  # since the run began or was resumed
    waited_share: Amount  # share of the time in which training waited for rows
    peak_bytes: Count  # the largest resident memory so far
    # accuracy, top_5_accuracy, selection_score: on the held-out rows, if there are any; the score
    # compares epochs
    accuracy: Share | None = None
    top_5_accuracy: Share | None = None
    selection_score: Amount | None = None


class TrialFigures(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One short training of a search and what it reached on held-out rows."""

    transform: Transform
    whitened: bool
    loss: LossKind
    learning_rate: Amount
    rows: Count
    epochs: Count
    accuracy: Share
    top_5_accuracy: Share
    bandwidth: Amount = 0.0


class Contribution(msgspec.Struct, frozen=True, omit_defaults=True):
    """A feature of a row, its value after the model's transform, and what it adds to a score."""

    feature: int | str
    value: float
    contribution: float
    # where its words stand in the row's cell of text, as that is given: from and to which character
    places: tuple[tuple[int, int], ...] = ()


class Explanation(msgspec.Struct, frozen=True):
    """Why a row has a label: all contributions and lines add up to the score."""

    label: Any
    score: float
    contributions: list[Contribution]  # the largest ones first, by magnitude
    # `prior` of counts; `bias`, `cosines` and `normaliser` of hashed models; the `rest`. 0 where
    # the model has none
    lines: dict[str, float]

    def __str__(self) -> str:
        parts = [(str(one.feature), one.contribution) for one in self.contributions]
        parts += [(f"({name})", line) for name, line in self.lines.items() if line]
        return " ".join(f"{name}:{x:+z.4g}" for name, x in parts)
