"""Whitening of dense rows as an optional part of their training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import threadpoolctl

from streammach.data.holdout import masked_blocks
from streammach.parts.base import Part, PartSession, Trials
from streammach.parts.expected import WITHOUT, Choice, PartTime
from streammach.parts.switches import SWITCHES
from streammach.parts.whitening import spread
from streammach.parts.whitening.spread import Spread
from streammach.rows.dense import Basis, RowMap
from streammach.rows.transforms import transformed
from streammach.spec.config import PartPlan, RunConfig
from streammach.spec.facts import DataFacts
from streammach.spec.training import TrainSpec
from streammach.spec.types import Transform

# Seconds of one thread of the machine of docs/planner.md.
BASIS = 0.011e-9  # a feature and a feature of a row that is whitened
DIRECTION = 0.3e-9  # three features: directions of a covariance
ROWS, ROWS_A_FEATURE = 65_536, 128  # looked at: at least, and at most where classes are rare
RATES = 2.0  # tried with whitened rows: one where they do not pay


class Whitening(Part):
    """Whitening: dense rows are trained on in coordinates in which all directions spread alike."""

    name = "whitening"
    switch = SWITCHES["whitening"]
    when = "before"

    def possible(self, facts: DataFacts, config: RunConfig) -> str | None:
        """Return why rows cannot be whitened."""
        if not config.dense:
            return "rows are sparse"
        if not config.optimizer_kind.gains_by_whitening:
            return f"{config.optimizer} does not gain by it"
        if not spread.possible(facts.n_features, facts.n_rows):
            return "there are too few rows for so many features"
        return None

    def choices(self, facts: DataFacts, config: RunConfig, *, sure: bool) -> Iterator[Choice]:
        """Yield with it, then without."""
        plan = PartPlan(name=self.name, basis=True, fixed=sure)
        yield Choice(plan=plan, why="room to whiten rows")
        if not sure:
            yield WITHOUT

    def footprint(self, facts: DataFacts, config: RunConfig) -> dict[str, int]:
        """Return the bytes of finding a basis."""
        return {"whitening": spread.footprint(facts.n_features, facts.n_rows, facts.labels)}

    def work(self, facts: DataFacts, config: RunConfig) -> PartTime:
        """Return the time of finding a basis, of products with it, and of its trials."""
        d = facts.n_features
        return PartTime(step=d**2 * BASIS, search=d**3 * DIRECTION, trials=RATES)

    def begin(self, spec: TrainSpec, part: PartPlan) -> TrainSpec:
        """Return the training with whitened rows, if that is what the user wants."""
        return replace(spec, whitened=True) if part.fixed else spec

    def search(
        self, session: PartSession, trials: Trials, spec: TrainSpec
    ) -> tuple[TrainSpec, list[str]]:
        """Return the training with rows whitened or not, and why."""
        # Whitened rows are as large as plain ones, so that both are compared at the same rate.
        if spec.whitened:
            return spec, []
        white = replace(spec, whitened=True)
        better, reason = trials.better(spec, white, "rows", ("plain", "whitened"))
        if not better:
            return spec, [reason]
        if not trials.climbs:
            return white, [reason]
        white, why_rate = trials.choose_rate(white, "learning rate of whitened rows")
        return white, [reason, why_rate]

    def used(self, spec: TrainSpec) -> bool:
        """Return whether a training uses it."""
        return spec.whitened

    def basis(self, session: PartSession, spec: TrainSpec, before: RowMap | None) -> RowMap | None:
        """Return the basis in which rows are white, if the training uses it."""
        return basis_of(session, spec.transform) if spec.whitened else before


def basis_of(session: PartSession, transform: Transform) -> Basis:
    """Return the basis from the first rows of a store that are not held out.

    Rows of a store are shuffled, so that the first ones stand for all.
    """
    dataset, threads = session.dataset, session.plan.config.placement.threads
    d = dataset.n_features
    spread = Spread(d)
    with threadpoolctl.threadpool_limits(threads, user_api="blas"):
        for block, out in masked_blocks(dataset, session.held):
            session.check()
            spread.add(transformed(block.take(np.flatnonzero(~out)), transform))
            if spread.n_rows >= ROWS and (spread.enough or spread.n_rows >= ROWS_A_FEATURE * d):
                break
        return spread.basis()


PART = Whitening()
