"""What runs that an older version began are known by."""

from __future__ import annotations

from streammach.data.identity import name_of
from streammach.files.reading import sha256
from streammach.planning.schedule import EPOCHS
from streammach.spec.documents import encoded
from streammach.spec.optimizers import EPSILON
from streammach.spec.plan import Plan
from streammach.spec.training import AUTO, RANDOM, TrainingOptions, TrainSpec
from streammach.training.search import SMOOTHING


def older_request(plan: Plan, options: TrainingOptions) -> str:
    """Return the digest by which version 0.1.0 told one training from another."""
    config, batching = plan.config, plan.config.batching
    joint = config.part("joint")
    smoothing, transform = options.label_smoothing, options.fixed_transform
    losses = ("apart",) if joint is None else ("joint",) if joint.fixed else ("apart", "joint")
    assert config.optimizer is not None, "a plan trains"
    spec = TrainSpec(
        epochs=options.epochs or EPOCHS[config.dense], batch_size=batching.batch_size,
        learning_rate=options.learning_rate or 1.0, transform=transform or "raw",
        label_smoothing=SMOOTHING[config.dense] if smoothing is None else smoothing,
        optimizer=config.optimizer, epsilon=EPSILON, seed=options.seed,
    )  # fmt: skip
    decided = [
        plan.facts.digest, plan.model, batching.batch_nnz, batching.pool_blocks, config.dense,
        batching.held_out_rows, batching.held_out_nnz, config.size_of("counts"),
        config.part("closed_form") is not None, config.basis, config.placement.weights, spec,
        transform, options.learning_rate, losses, name_of(str(options.validation)),
        None if options.hold_out_by in (AUTO, RANDOM) else options.hold_out_by,
    ]  # fmt: skip
    return sha256([encoded(decided)])
