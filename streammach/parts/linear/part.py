"""A linear classifier of each class as the whole model, where classes and rows are few.

With few classes all are learnt to the end in seconds, and no hashed models or counts gain beside
them; see docs/understand/linear.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from streammach.linear.kernel_fit import MOST_CENTRES, SAMPLE, fit_bytes
from streammach.linear.learner import LinearLearner
from streammach.options.config import PartPlan, RunConfig
from streammach.options.facts import DataFacts
from streammach.parts.base import Part
from streammach.parts.expected import AccuracyDrop, Choice, PartBytes, PartTime
from streammach.parts.linear.choice import decide
from streammach.parts.linear.dense_choice import PRODUCT, SEARCHED, decide_dense
from streammach.parts.switches import SWITCHES
from streammach.parts.training_record import FirstFit, Training

NAME, STAGE = "linear", "linear classifiers"
MOST_CLASSES = 500  # more are proposed by counts, and not all learnt from all rows
# Values times classes that are learnt from: about a minute of two cores; a quarter of that where
# classes are many, since hashed models with counts come close to them in less time.
MOST_WORK, MANY_CLASSES, MOST_WORK_OF_MANY = 400_000_000, 128, 100_000_000
WEIGHTS = (8_000_000, 1_000_000)  # of the model, at most
ROW_BYTES, VALUE_BYTES = 24, 40  # of rows in memory: as they are, parts of them, unit values
WEIGHT_BYTES = 32  # while they become lists by feature
# Seconds of one thread of the machine of docs/planner.md: of a value and a class, all passes and
# tries; of a trial, whatever its rows.
LEARN, FIXED = 0.9e-6, 0.3
# Dense rows: columns; rows times squared columns of their map, some 30 s.
MOST_FEATURES, MOST_PRODUCTS = 2048, 1.1e12


def find_obstacle(facts: DataFacts, config: RunConfig) -> str | None:
    """Return why there are no linear classifiers, in words; None if there may be."""
    if facts.listed:
        return "rows have lists of labels"
    if not 2 <= facts.n_classes <= MOST_CLASSES:
        return f"classes are not from 2 to {MOST_CLASSES}"
    if config.dense:
        size = min(facts.n_rows, MOST_CENTRES) + facts.n_features
        few = facts.n_features <= MOST_FEATURES and facts.n_rows * size**2 <= MOST_PRODUCTS
        return None if few else "rows are too many for kernels"
    most = MOST_WORK_OF_MANY if facts.n_classes > MANY_CLASSES else MOST_WORK
    if facts.nnz * facts.n_classes > most:
        return "rows are too many to learn each class from all"
    return None


def list_choices(facts: DataFacts, config: RunConfig, *, sure: bool) -> Iterator[Choice]:
    """Yield room for all weights, then for fewer."""
    why = f"a linear classifier for each of {facts.n_classes:,} classes, learnt to the end"
    sizes = sorted({min(facts.n_classes * facts.n_features, n) for n in WEIGHTS}, reverse=True)
    if config.dense:
        m, d = min(facts.n_rows, MOST_CENTRES), facts.n_features
        sizes, why = [m * d + (m + d) * facts.n_classes], f"{why}, of {m:,} kernels"
    for size in sizes:
        plan = PartPlan(name=NAME, size=size, fixed=sure)
        yield Choice(plan=plan, why=why, alone=AccuracyDrop(0.0, 1.0))


def project_bytes(facts: DataFacts, config: RunConfig) -> PartBytes:
    """Return the bytes of the rows, the scratch of threads, and the weights."""
    n, nnz, d, size = facts.n_rows, facts.nnz, facts.n_features, config.size_of(NAME)
    if config.dense:
        rows = 4 * d * (facts.block_rows + min(n, SAMPLE) + config.batching.held_out_rows)
        scores = 12 * facts.n_classes * max(min(n, SAMPLE), config.batching.held_out_rows)
        room = fit_bytes(d, n, facts.n_classes) + 2 * rows + scores
        return PartBytes(memory={NAME: room}, model=4 * size + 2060 * d)
    learner = LinearLearner.footprint(n, nnz, d, config.placement.threads)
    rows = ROW_BYTES * n + VALUE_BYTES * nnz
    return PartBytes(
        memory={NAME: learner + rows + WEIGHT_BYTES * size + 16 * d},
        model=8 * size + 12 * d + 8 * facts.n_classes,
    )


def project_time(facts: DataFacts, config: RunConfig) -> PartTime:
    """Return the time of learning, and of a row's scores."""
    learnt = facts.nnz * facts.n_classes * LEARN
    row = facts.nnz / facts.n_rows * facts.n_classes * 1e-9
    if config.dense:
        size = min(facts.n_rows, MOST_CENTRES) + facts.n_features
        learnt = (facts.n_rows + SEARCHED) * size**2 * PRODUCT
        row = size * (facts.n_features + facts.n_classes) * PRODUCT
    return PartTime(
        finish=learnt, fixed=FIXED, elastic=0.7 * learnt, scoring=row,
        stages_before={STAGE: (learnt, FIXED)},
    )  # fmt: skip


def fit_first(training: Training, saved: Path, identity: str) -> FirstFit:
    """Choose how classifiers are learnt; no stage comes between them and the model."""
    training.begin_stage(STAGE)
    config = training.plan.config
    decision = decide_dense(training) if config.dense else decide(training, config.size_of(NAME))
    return FirstFit(name=NAME, decide_alone=lambda _: decision)


PART = Part(
    name=NAME, switch=SWITCHES["linear"], weighed=True, sole=True, find_obstacle=find_obstacle,
    list_choices=list_choices, project_bytes=project_bytes, project_time=project_time,
    fit_first=fit_first,
)  # fmt: skip
