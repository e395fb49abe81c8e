"""A closed form beside trained exact weights of dense rows, as an optional part."""

from __future__ import annotations

from collections.abc import Iterator

from streammach.figures import Reached
from streammach.parts.base import Decision, Part, PartSession
from streammach.parts.discriminant import sums
from streammach.parts.discriminant.fit import (
    PRIOR_ROWS,
    SHARES,
    ClosedFormFit,
    ClosedFormShare,
)
from streammach.parts.expected import AccuracyDrop, Choice, PartTime
from streammach.parts.switches import SWITCHES
from streammach.rows.dense import MAX_FEATURES
from streammach.spec.config import PartPlan, RunConfig
from streammach.spec.facts import DataFacts
from streammach.spec.training import TrainSpec

# Seconds of one thread of the machine of docs/planner.md: a feature of a row that is added, alone
# and with another one; of a solution, a class and two features; of a held-out row and a class, a
# feature and a share.
ADD, SQUARE, SOLVE, PRODUCT, TRY = 12e-9, 0.012e-9, 0.13e-9, 0.03e-9, 1.5e-9
STAGE = "closed form"  # of the run
UNTRAINED_POINTS = 6.0  # that the epochs bring beside it: 1.3 and more were measured
LOST = AccuracyDrop(2.1, 2.1)  # by exact weights of dense rows without: 4.2 and 0 were measured


class ClosedFormDecision(Decision):
    """How much of a closed form is added to the weights."""

    def __init__(self, fitting: ClosedFormFit, share: ClosedFormShare) -> None:
        super().__init__(reasons=(share.reason,))
        self._fitting, self._share = fitting, share

    def learn_held_out(self) -> None:
        """Take the held-out rows into what was added to the weights."""
        self._fitting.add_held_out(self._share)


class ClosedForm(Part):
    """A linear discriminant that is added to exact weights of dense rows."""

    name = "closed_form"
    switch = SWITCHES["discriminant"]
    weighed = True
    exact_only = True
    changes_weights = True
    ranks_untrained = True

    def possible(self, facts: DataFacts, config: RunConfig) -> str | None:
        """Return why there is no closed form."""
        if not config.dense:
            return "rows are sparse"
        if not {"first", "second"} <= set(config.optimizer_kind.per_weight):
            return f"{config.optimizer} leaves no room for it"
        if facts.n_features > MAX_FEATURES:
            return "there are too many features"
        return None

    def choices(self, facts: DataFacts, config: RunConfig, *, sure: bool) -> Iterator[Choice]:
        """Yield with it, then without."""
        why = "room for a closed form beside exact weights"
        yield Choice(plan=PartPlan(name=self.name), why=why)
        if not sure:
            yield Choice(plan=None, loss=LOST)

    def footprint(self, facts: DataFacts, config: RunConfig) -> dict[str, int]:
        """Return the bytes of the covariance and of its use."""
        return {"closed form": sums.footprint(config.weight_rows, facts.n_rows, facts.labels)}

    def work(self, facts: DataFacts, config: RunConfig) -> PartTime:
        """Return the time of the sums and of the solution."""
        d, k, held = config.weight_rows, config.shape.n_columns, config.batching.held_out_rows
        sums = facts.n_rows * d * (ADD + d * SQUARE)
        labels = max(facts.n_labels / facts.n_rows, 1)
        solved = k * (d * d * SOLVE + held * (d * PRODUCT + len(SHARES) * TRY * labels))
        return PartTime(finish=sums + len(PRIOR_ROWS) * solved, elastic_points=UNTRAINED_POINTS)

    def stages(self, facts: DataFacts, config: RunConfig, scale: float) -> dict[str, float]:
        """Return the seconds of its stage."""
        return {STAGE: self.work(facts, config).finish * scale}

    def text(self, part: PartPlan) -> str:
        """Return its name."""
        return "closed form"

    def untrained(self, session: PartSession, spec: TrainSpec) -> Reached:
        """Return what held-out rows reach with it alone."""
        return ClosedFormFit(session, spec).choose(untrained=True).reached

    def choose(self, session: PartSession, spec: TrainSpec) -> Decision:
        """Add the share that held-out rows want to the weights."""
        session.begin(STAGE)
        fitting = ClosedFormFit(session, spec)
        share = fitting.choose(untrained=not spec.epochs)
        session.tell(share.reason)
        fitting.add(share)
        return ClosedFormDecision(fitting, share)


PART = ClosedForm()
