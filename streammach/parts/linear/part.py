"""A linear classifier of each class as the whole model, where classes and rows are few.

With few classes all are learnt to the end in seconds, and no hashed models or counts gain beside
them; see docs/understand/linear.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from streammach.linear.kernel_fit import MOST_CENTRES, SAMPLE, fit_bytes
from streammach.linear.learner import LinearLearner
from streammach.parts.base import Ahead, Decision, Part, PartSession
from streammach.parts.expected import AccuracyDrop, Choice, PartTime
from streammach.parts.linear.choice import LinearDecision, decide
from streammach.parts.linear.dense_choice import PRODUCT, SEARCHED, decide_dense
from streammach.parts.switches import SWITCHES
from streammach.spec.config import PartPlan, RunConfig
from streammach.spec.facts import DataFacts

STAGE = "linear classifiers"
MOST_CLASSES = 128  # more are proposed by counts, and not all learnt from all rows
MOST_WORK = 400_000_000  # values times classes that are learnt from: about a minute of two cores
WEIGHTS = (8_000_000, 1_000_000)  # of the model, at most
ROW_BYTES, VALUE_BYTES = 24, 40  # of rows in memory: as they are, parts of them, unit values
WEIGHT_BYTES = 32  # while they become lists by feature
# Seconds of one thread of the machine of docs/planner.md: of a value and a class, all passes and
# tries; of a trial, whatever its rows.
LEARN, FIXED = 0.9e-6, 0.3
# Dense rows: columns; rows times squared columns of their map, some 30 s.
MOST_FEATURES, MOST_PRODUCTS = 2048, 1.1e12


class Linear(Part):
    """Linear classifiers, one a class, of sparse rows."""

    name = "linear"
    switch = SWITCHES["linear"]
    weighed = True
    sole = True
    ranks_alone = True

    def possible(self, facts: DataFacts, config: RunConfig) -> str | None:
        if facts.listed:
            return "rows have lists of labels"
        if not 2 <= facts.n_classes <= MOST_CLASSES:
            return f"classes are not from 2 to {MOST_CLASSES}"
        if config.dense:
            size = min(facts.n_rows, MOST_CENTRES) + facts.n_features
            few = facts.n_features <= MOST_FEATURES and facts.n_rows * size**2 <= MOST_PRODUCTS
            return None if few else "rows are too many for kernels"
        if facts.nnz * facts.n_classes > MOST_WORK:
            return "rows are too many to learn each class from all"
        return None

    def reason_against(self, config: RunConfig) -> str | None:
        return None if config.shape.unhashed else "it stands without hashed models"

    def choices(self, facts: DataFacts, config: RunConfig, *, sure: bool) -> Iterator[Choice]:
        """Yield room for all weights, then for fewer."""
        why = f"a linear classifier for each of {facts.n_classes:,} classes, learnt to the end"
        if config.dense:
            m, d = min(facts.n_rows, MOST_CENTRES), facts.n_features
            size = m * d + (m + d) * facts.n_classes
            plan = PartPlan(name=self.name, size=size, fixed=sure)
            yield Choice(plan=plan, why=f"{why}, of {m:,} kernels", alone=AccuracyDrop(0.0, 1.0))
            return
        most = facts.n_classes * facts.n_features
        for size in sorted({min(most, n) for n in WEIGHTS}, reverse=True):
            plan = PartPlan(name=self.name, size=size, fixed=sure)
            yield Choice(plan=plan, why=why, alone=AccuracyDrop(0.0, 1.0))

    def without(self, why: str | None) -> Choice:
        return Choice(plan=None)

    def footprint(self, facts: DataFacts, config: RunConfig) -> dict[str, int]:
        """Return the bytes of the rows, the scratch of threads, and the weights."""
        n, nnz, d = facts.n_rows, facts.nnz, facts.n_features
        if config.dense:
            rows = 4 * d * (facts.block_rows + min(n, SAMPLE) + config.batching.held_out_rows)
            scores = 12 * facts.n_classes * max(min(n, SAMPLE), config.batching.held_out_rows)
            return {"linear": fit_bytes(d, n, facts.n_classes) + 2 * rows + scores}
        learner = LinearLearner.footprint(n, nnz, d, config.placement.threads)
        rows = ROW_BYTES * n + VALUE_BYTES * nnz
        return {"linear": learner + rows + WEIGHT_BYTES * config.size_of(self.name) + 16 * d}

    def model_bytes(self, config: RunConfig) -> int:
        shape = config.shape
        if config.dense:
            return 4 * config.size_of(self.name) + 2060 * shape.n_features
        return 8 * config.size_of(self.name) + 12 * shape.n_features + 8 * shape.n_classes

    def work(self, facts: DataFacts, config: RunConfig) -> PartTime:
        """Return the time of learning, and of a row's scores."""
        learnt = facts.nnz * facts.n_classes * LEARN
        row = facts.nnz / facts.n_rows * facts.n_classes * 1e-9
        if config.dense:
            size = min(facts.n_rows, MOST_CENTRES) + facts.n_features
            learnt = (facts.n_rows + SEARCHED) * size**2 * PRODUCT
            row = size * (facts.n_features + facts.n_classes) * PRODUCT
        return PartTime(finish=learnt, fixed=FIXED, elastic=0.7 * learnt, scoring=row)

    def stages_ahead(self, facts: DataFacts, config: RunConfig, scale: float) -> dict[str, float]:
        return {STAGE: self.work(facts, config).finish * scale + FIXED}

    def stages(self, facts: DataFacts, config: RunConfig, scale: float) -> dict[str, float]:
        return {}

    def text(self, part: PartPlan) -> str:
        return "linear"

    def work_ahead(self, session: PartSession) -> Ahead:
        """Choose how classifiers are learnt, and learn them."""
        session.begin(STAGE)
        config = session.plan.config
        if config.dense:
            return LinearAhead(decide_dense(session))
        return LinearAhead(decide(session, config.size_of(self.name)))


class LinearAhead(Ahead):
    """Linear classifiers that were chosen."""

    def __init__(self, decision: LinearDecision) -> None:
        self._decision, self.measured, self.named = decision, {}, {}

    def save(self, folder: Path, identity: str) -> None:
        """Write nothing: no stage comes between it and the model."""

    def decision(self, session: PartSession) -> Decision:
        return self._decision


PART = Linear()
