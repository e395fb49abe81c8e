"""Plans as they were written before the configuration of a run was one record."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from streammach.spec.config import Batching, PartPlan, Placement, RunConfig
from streammach.spec.documents import from_json
from streammach.spec.facts import DataFacts
from streammach.spec.ledger import Limits, Line
from streammach.spec.model import ModelShape, ModelSpec
from streammach.spec.plan import Budget, Option, Pilot, Plan
from streammach.spec.types import Amount, Count, Index, Objective, Optimizer, Share, Size, Weights


@dataclass(frozen=True, kw_only=True)
class OlderOption:
    """A model that was weighed, with the fields that it had."""

    n_buckets: Index
    n_repetitions: Index
    max_pairs: Count
    closed_form: bool
    batch_size: Size
    projected_bytes: Count
    model_bytes: Count
    loss: float
    loss_error: Amount
    seconds: Amount
    query_seconds: Amount
    fits: bool
    chosen: bool

    def option(self, plan: RunConfig) -> Option:
        """Return it as it is now; what it did not say is that of the plan."""
        shape = replace(plan.shape, n_buckets=self.n_buckets, n_repetitions=self.n_repetitions)
        batching = replace(plan.batching, batch_size=self.batch_size)
        parts = _parts(self.max_pairs, self.closed_form, whitened=plan.basis)
        return Option(
            config=replace(plan, shape=shape, batching=batching, parts=parts),
            projected_bytes=self.projected_bytes, model_bytes=self.model_bytes, loss=self.loss,
            loss_error=self.loss_error, seconds=self.seconds, query_seconds=self.query_seconds,
            fits=self.fits, chosen=self.chosen,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class OlderPilot:
    """A training on a sample, with the fields that it had."""

    n_buckets: Index
    n_repetitions: Index
    max_pairs: Count
    closed_form: bool
    rows: Count
    held_out: Count
    p_at_1: Share
    p_at_5: Share
    seconds: Amount

    def pilot(self, shape: ModelShape) -> Pilot:
        """Return it as it is now."""
        return Pilot(
            shape=replace(shape, n_buckets=self.n_buckets, n_repetitions=self.n_repetitions),
            parts=_parts(self.max_pairs, self.closed_form, whitened=False), rows=self.rows,
            held_out=self.held_out, accuracy=self.p_at_1,
            top_5_accuracy=self.p_at_5, seconds=self.seconds,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class OlderBudget:
    """What another budget would have brought."""

    allowed_bytes: Count
    best: OlderOption | None


@dataclass(frozen=True, kw_only=True)
class OlderPlan:
    """A plan with the fields that it had; those that came later have defaults."""

    facts: DataFacts
    model: ModelSpec
    batch_size: Size
    batch_nnz: Size
    optimizer: Optimizer
    dense: bool
    pool_blocks: Size
    validation_rows: Count
    validation_nnz: Count
    max_pairs: Count
    closed_form: bool
    whitened: bool
    device: str
    threads: Size
    allowed_bytes: Count
    limit_source: str
    ledger: tuple[Line, ...]
    reasons: tuple[str, ...] = field(default=())
    device_reason: str = ""
    device_allowed_bytes: Count = 0
    device_limit_source: str = ""
    waves: Size = 1
    weights: Weights = "float32"
    resident: bool = False
    objective: Objective = "accuracy"
    expected: OlderOption | None = None
    options: tuple[OlderOption, ...] = ()
    budgets: tuple[OlderBudget, ...] = ()
    pilots: tuple[OlderPilot, ...] = ()

    def plan(self) -> Plan:
        """Return it as it is now."""
        config = RunConfig(
            shape=self.model.shape, dense=self.dense, optimizer=self.optimizer,
            batching=Batching(
                batch_size=self.batch_size, batch_nnz=self.batch_nnz,
                pool_blocks=self.pool_blocks, held_out_rows=self.validation_rows,
                held_out_nnz=self.validation_nnz,
            ),
            placement=Placement(
                device=self.device, threads=self.threads, waves=self.waves,
                weights=self.weights, resident=self.resident,
            ),
            parts=_parts(
                self.max_pairs, self.closed_form, whitened=self.whitened,
                joint=self.dense and not self.model.exact and self.waves == 1,
            ),
        )  # fmt: skip
        budgets = (
            Budget(b.allowed_bytes, None if b.best is None else b.best.option(config))
            for b in self.budgets
        )
        return Plan(
            facts=self.facts, model=self.model, config=config, ledger=self.ledger,
            limits=Limits(
                host=self.allowed_bytes, host_source=self.limit_source,
                device=self.device_allowed_bytes, device_source=self.device_limit_source,
            ),
            reasons=self.reasons, device_reason=self.device_reason, objective=self.objective,
            expected=None if self.expected is None else self.expected.option(config),
            options=tuple(option.option(config) for option in self.options),
            budgets=tuple(budgets),
            pilots=tuple(pilot.pilot(config.shape) for pilot in self.pilots),
        )  # fmt: skip


def _parts(
    max_pairs: int, closed_form: bool, *, whitened: bool, joint: bool = False
) -> tuple[PartPlan, ...]:
    found = [
        (whitened, PartPlan(name="whitening", basis=True)),
        (joint, PartPlan(name="joint")),
        (closed_form, PartPlan(name="closed_form")),
        (max_pairs > 0, PartPlan(name="counts", size=max_pairs)),
    ]
    return tuple(part for there, part in found if there)


def plan_from(text: bytes) -> Plan:
    """Return the plan of a document of this version or of an older one, or raise ValueError."""
    try:
        return from_json(text, Plan)
    except ValueError:
        if b'"config"' in text:
            raise
        return from_json(text, OlderPlan).plan()
