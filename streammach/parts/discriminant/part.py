"""A closed form beside trained exact weights of dense rows, as an optional part."""

from __future__ import annotations

from collections.abc import Iterator

from streammach.parts.base import Decision, Part, Session
from streammach.parts.discriminant import sums
from streammach.parts.discriminant.fit import Fitting, Share
from streammach.parts.discriminant.switch import SWITCH
from streammach.parts.expected import AccuracyDrop, Choice, Work
from streammach.rows.dense import MAX_FEATURES
from streammach.spec.config import PartPlan, RunConfig
from streammach.spec.facts import DataFacts
from streammach.spec.training import TrainSpec

CLOSED = 6e-12  # seconds of a row, a feature, and a feature or eight columns of a closed form
LOST = AccuracyDrop(2.1, 2.1)  # by exact weights of dense rows without: 4.2 and 0 were measured


class ClosedFormDecision(Decision):
    """How much of a closed form is added to the weights."""

    def __init__(self, fitting: Fitting, share: Share) -> None:
        super().__init__(reasons=(share.reason,))
        self._fitting, self._share = fitting, share

    def learn_held_out(self) -> None:
        """Take the held-out rows into what was added to the weights."""
        self._fitting.add_held_out(self._share)


class ClosedForm(Part):
    """A linear discriminant that is added to exact weights of dense rows."""

    name = "closed_form"
    switch = SWITCH
    weighed = True
    exact_only = True
    changes_weights = True

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
        return {"closed form": sums.footprint(config.weight_rows, facts.n_rows)}

    def work(self, facts: DataFacts, config: RunConfig) -> Work:
        """Return the time of the sums and of the solution."""
        rows = config.weight_rows
        wide = rows + 8 * config.shape.n_columns
        return Work(finish=facts.n_rows * rows * wide * CLOSED)

    def text(self, part: PartPlan) -> str:
        """Return its name."""
        return "closed form"

    def choose(self, session: Session, spec: TrainSpec) -> Decision:
        """Add the share that held-out rows want to the weights."""
        fitting = Fitting(session, spec.transform)
        share = fitting.choose()
        session.tell(share.reason)
        fitting.add(share)
        return ClosedFormDecision(fitting, share)


PART = ClosedForm()
