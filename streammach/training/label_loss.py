"""What buckets learn where rows have lists of labels: as asked for, or as held-out rows say.

Each bucket may learn on its own whether one of the labels is in it (``logistic``), or all buckets
of a repetition together, by a softmax whose target the labels of a row share (``shared``) or have
in full (``each``).
"""

from __future__ import annotations

from dataclasses import replace

from streammach.errors import UsageError
from streammach.parts.base import PartSession, Trials
from streammach.spec.config import RunConfig
from streammach.spec.facts import DataFacts
from streammach.spec.training import TrainingOptions, TrainSpec


def check_label_loss(options: TrainingOptions, facts: DataFacts, config: RunConfig) -> None:
    """Refuse a loss of lists of labels that cannot be, or raise UsageError."""
    if options.label_loss == "auto":
        return
    if not facts.listed:
        raise UsageError("each row has one label: --label-loss", hint="It is for lists of labels.")
    joint = config.part("joint")
    if options.label_loss == "logistic" and joint is not None and joint.fixed:
        raise UsageError("the joint loss has no sigmoids: --label-loss logistic, --loss joint")


def begin_with(spec: TrainSpec, options: TrainingOptions, session: PartSession) -> TrainSpec:
    """Return the training that the search starts from: sigmoids, unless a softmax is asked for."""
    if options.label_loss == "shared":
        return spec.with_softmax("shared")
    if options.label_loss == "each":
        return spec.with_softmax("each")
    facts, config = session.dataset.facts, session.plan.config
    labels = facts.n_labels / max(facts.n_rows * config.shape.n_buckets, 1)
    return replace(spec, loss="logistic", label_share="each", bucket_share=min(labels, 1))


def choose(trials: Trials, spec: TrainSpec, session: PartSession) -> tuple[TrainSpec, list[str]]:
    """Choose between sigmoids and a softmax, of which the labels share the target or do not."""
    if session.options.label_loss != "auto":
        return spec, []
    if session.clock.left <= 0:
        return spec, ["no time was left to try a softmax"]
    reasons, shared = [], spec.with_softmax("shared")
    if trials.climbs:
        shared, reason = trials.choose_rate(shared, "learning rate of a softmax")
        reasons.append(reason)
    each = replace(shared, label_share="each")
    better, reason = trials.better(shared, each, "target of a softmax", ("1 a row", "1 a label"))
    reasons.append(reason)
    softmax = each if better else shared
    better, reason = trials.better(spec, softmax, "loss", ("a sigmoid a bucket", "a softmax"))
    return softmax if better else spec, [*reasons, reason]
