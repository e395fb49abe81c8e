"""Random Fourier features beside dense rows, as an optional part of their training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from streammach.parts.base import Part, PartSession, Trials
from streammach.parts.expected import RATES, WITHOUT, AccuracyDrop, Choice, PartTime
from streammach.parts.fourier import projection
from streammach.parts.switches import SWITCHES
from streammach.rows.dense import Basis, RowMap
from streammach.spec.config import PartPlan, RunConfig
from streammach.spec.facts import DataFacts
from streammach.spec.training import TrainSpec

SIZES = {4096: 0.0, 2048: 0.5, 1024: 1.5}  # D, and the points that fewer columns lose
LOST = AccuracyDrop(2.0, 2.0)  # without: 4.5 and 0 were measured
MAX_FEATURES = 2048  # of rows: more directions are not made orthogonal in a moment
ROWS_A_COLUMN = 8  # fewer rows do not fill the columns
BANDWIDTHS = (0.3, 0.6)  # tried, in units of the usual distance of two rows

RATE = 0.5  # of rows without them, at which their best rate is looked for

# Seconds of one thread of the machine of docs/planner.md.
PROJECT, COSINE = 0.011e-9, 1.5e-9  # a feature and a column of a row; a column of a row
TABLE = 0.06e-9  # a column that is added and one of the table, in a step


class Fourier(Part):
    """Cosines of random projections beside the features of dense rows."""

    name = "fourier"
    switch = SWITCHES["fourier"]
    weighed = True
    when = "before"

    def possible(self, facts: DataFacts, config: RunConfig) -> str | None:
        """Return why rows get no more columns."""
        if not config.dense:
            return "rows are sparse"
        if not config.optimizer_kind.gains_by_whitening:
            return f"{config.optimizer} does not train them"
        if facts.n_features > MAX_FEATURES:
            return "there are too many features"
        return None

    def choices(self, facts: DataFacts, config: RunConfig, *, sure: bool) -> Iterator[Choice]:
        """Yield with most columns, with fewer, and without."""
        enough = facts.n_rows // ROWS_A_COLUMN
        if not sure and enough < min(SIZES):
            yield WITHOUT
            return
        for size, points in SIZES.items():
            if size > enough and not sure:
                continue
            plan = PartPlan(name=self.name, size=size, basis=True, fixed=sure)
            why = f"room for {size:,} random Fourier features"
            yield Choice(plan=plan, loss=AccuracyDrop(points, points), why=why)
        if not sure:
            yield Choice(plan=None, loss=LOST)

    def footprint(self, facts: DataFacts, config: RunConfig) -> dict[str, int]:
        """Return the bytes of finding a projection."""
        n_more = config.size_of(self.name)
        return {"fourier": projection.footprint(facts.n_features, n_more)}

    def model_bytes(self, config: RunConfig) -> int:
        """Return the bytes of the projection."""
        return 4 * (config.shape.n_features + 2) * config.size_of(self.name)

    def work(self, facts: DataFacts, config: RunConfig) -> PartTime:
        """Return the time of the columns and of their weights."""
        n_more = config.size_of(self.name)
        row = n_more * (facts.n_features * PROJECT + COSINE)
        weights = n_more * config.shape.n_columns * TABLE
        return PartTime(own_step=row + weights, trials=RATES + len(BANDWIDTHS) - 1)

    def text(self, part: PartPlan) -> str:
        """Return its name with its size."""
        return f"{part.size:,} cosines"

    def begin(self, spec: TrainSpec, part: PartPlan) -> TrainSpec:
        """Return the training with the usual bandwidth, if that is what the user wants."""
        return replace(spec, bandwidth=BANDWIDTHS[0]) if part.fixed else spec

    def search(
        self, session: PartSession, trials: Trials, spec: TrainSpec
    ) -> tuple[TrainSpec, list[str]]:
        """Return the training with them or without, at the best of some bandwidths, and why."""
        best, reasons = spec, list[str]()
        if not spec.bandwidth:
            best = replace(spec, bandwidth=BANDWIDTHS[0])
            if trials.climbs:
                best = replace(best, learning_rate=spec.learning_rate * RATE)
        for bandwidth in BANDWIDTHS[1:]:
            if session.clock.left <= 0:
                break
            other = replace(best, bandwidth=bandwidth)
            names = (f"{best.bandwidth:g}", f"{bandwidth:g}")
            better, reason = trials.better(best, other, "bandwidth", names)
            best = other if better else best
            reasons.append(reason)
        names = ("with Fourier features", "alone")
        if not spec.bandwidth:
            worse, reason = trials.better(best, spec, "rows", names)
            if worse:  # another rate would not make up for it
                return spec, [*reasons, reason]
        if trials.climbs:
            best, reason = trials.choose_rate(best, "learning rate with Fourier features")
            reasons.append(reason)
        if spec.bandwidth:
            return best, reasons
        better, reason = trials.better(spec, best, "rows", names[::-1])
        return best if better else spec, [*reasons, reason]

    def used(self, spec: TrainSpec) -> bool:
        """Return whether a training uses it."""
        return spec.bandwidth > 0

    def basis(self, session: PartSession, spec: TrainSpec, before: RowMap | None) -> RowMap | None:
        """Return what gives rows more columns, beside a basis, if the training uses it."""
        if not spec.bandwidth:
            return before
        n_more = session.plan.config.size_of(self.name)
        assert before is None or isinstance(before, Basis)
        return projection.waves_of(session, spec, n_more, before)


PART = Fourier()
