"""Counts with weights of their own, as a model without hashed ones."""

from __future__ import annotations

from dataclasses import dataclass

from streammach.counts.learning import GroupWeights
from streammach.counts.table import CountTable
from streammach.figures import Reached
from streammach.parts.counts.fitting import Fitted


@dataclass(frozen=True, kw_only=True)
class Counted:
    """What counts are and reach without hashed models."""

    table: CountTable  # the counts of the rows that are not held out
    # grouped, learnt: weights by group, and those with feature and pair weights; the same where
    # these were not learnt
    grouped: GroupWeights
    learnt: GroupWeights
    reached: tuple[Reached, Reached]  # what each reaches on held-out rows
    reasons: tuple[str, ...]  # why, in sentences
    # fit_rows, pair_rows: held-out rows that were fitted on, and rows that pairs were learnt from
    fit_rows: int
    pair_rows: int
    fit_seconds: float = 0.0  # what a fit takes

    @property
    def best(self) -> Fitted:
        """The weights that reach more."""
        found = [Fitted(self.grouped, self.reached[0]), Fitted(self.learnt, self.reached[1])]
        return max(found, key=lambda fitted: fitted.reached.selection_score)
