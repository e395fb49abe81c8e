"""Counts with weights of their own, as a model without hashed ones."""

from __future__ import annotations

from dataclasses import dataclass

from streammach.counts.learning import GroupWeights
from streammach.counts.table import CountTable
from streammach.figures import Reached
from streammach.parts.counts.fitting import Fitted


@dataclass(frozen=True, kw_only=True)
class Counted:
    """What counts are and reach without hashed models.

    Attributes
    ----------
    table : CountTable
        The counts of the rows that are not held out.
    grouped, learnt : GroupWeights
        Weights by group, and those with feature and pair weights; the same where these were not
        learnt.
    reached : tuple of Reached
        What each reaches on held-out rows.
    reasons : tuple of str
        Why, in sentences.
    fit_rows, pair_rows : int
        Held-out rows that were fitted on, and rows that pairs were learnt from.
    fit_seconds : float
        What a fit takes.
    """

    table: CountTable
    grouped: GroupWeights
    learnt: GroupWeights
    reached: tuple[Reached, Reached]
    reasons: tuple[str, ...]
    fit_rows: int
    pair_rows: int
    fit_seconds: float = 0.0

    @property
    def best(self) -> Fitted:
        """The weights that reach more."""
        found = [Fitted(self.grouped, self.reached[0]), Fitted(self.learnt, self.reached[1])]
        return max(found, key=lambda fitted: fitted.reached.selection_score)
