"""From trained weights to a finished model: what joins them, how classes are ranked, and why."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.figures import Reached, words
from streammach.model.calibration import Calibration
from streammach.model.model import Model
from streammach.parts.base import Decision, Draft
from streammach.parts.registry import planned
from streammach.prediction.evaluate import choose_estimator, scores_text
from streammach.prediction.fit_calibration import fit_calibration
from streammach.prediction.ranking import Ranking, by_hashes
from streammach.spec.estimators import BLEND, USUAL
from streammach.spec.model import ModelSpec
from streammach.spec.training import TrainSpec
from streammach.spec.types import Ranker
from streammach.training.compact import (
    LEAST_ROWS,
    MOST_ROWS,
    Compact,
    Found,
    Judge,
    calibrating_rows,
    choose,
    compacted,
    judging_rows,
)
from streammach.training.loop import open_reader, train_epoch
from streammach.training.prior import tilt_bias
from streammach.training.session import Session, label_share
from streammach.training.timetable import CALIBRATION, LEARNING, RANKING, SMALLER, WRITING


@dataclass(frozen=True, kw_only=True)
class Decided:
    """What held-out rows decided after the last epoch."""

    ranker: Ranker  # the best estimator of the hashed models
    calibration: Calibration = field(default_factory=Calibration)  # how scores become probabilities
    parts: tuple[Decision, ...] = ()  # what they say of optional parts
    # what was measured, by way of ranking
    figures: dict[Ranker, Reached] = field(default_factory=dict)
    reasons: tuple[str, ...]  # why, in sentences


def finalize(
    session: Session, spec: TrainSpec, size: str, *, judges: int = MOST_ROWS
) -> tuple[Compact, tuple[str, ...]]:
    """Return the finished model, and why it ranks classes as it does.

    When everything is chosen and calibrated on the held-out rows, these are learnt from too; the
    model is built last, and made as small as was chosen before. What parts did ahead is let go.
    """
    model, reasons, found = _decided(session, spec, size, judges)
    session.let_go()
    session.begin(WRITING)
    return compacted(session, model, size, found), reasons


def _decided(
    session: Session, spec: TrainSpec, size: str, judges: int
) -> tuple[Model, tuple[str, ...], Found | None]:
    """Return the whole model, why it is so, and the smallest form; what decided is let go."""
    if not session.held.rows.n_rows:
        reason = "estimator logsum: no held-out rows to choose on"
        return build(session, spec, Decided(ranker=USUAL, reasons=(reason,))), (reason,), None
    with ExitStack() as closing:
        decided = decide(session, spec, closing, judges)
        judge = _judge(session, spec, decided, session.plan.model, judges)
        decided, found = _smallest(judge, decided, size)
        session.begin(LEARNING)
        learn_held_out(session, replace(spec, epochs=session.options.last_passes))
        for part in decided.parts:
            part.learn_held_out()
        return build(session, spec, decided), decided.reasons, found


def _judge(
    session: Session, spec: TrainSpec, decided: Decided, model: ModelSpec, judges: int
) -> Judge:
    """Return what says how good forms of a model are."""
    counts = next((part.counts for part in decided.parts if part.counts is not None), None)
    return Judge(
        session=session, spec=spec, model=model, ranker=decided.ranker, counts=counts,
        most_rows=judges,
    )  # fmt: skip


def _smallest(judge: Judge, decided: Decided, size: str) -> tuple[Decided, Found | None]:
    """Return the smallest form of a model that is free, if it is asked for and can be judged."""
    if size != "auto" or judge.n_rows < LEAST_ROWS:
        return decided, None
    judge.session.begin(SMALLER)
    found = choose(judge)
    if found.calibration is not None:
        decided = replace(decided, calibration=found.calibration)
    return decided, found


def finalize_alone(
    session: Session, size: str, *, judges: int = MOST_ROWS
) -> tuple[Compact, TrainSpec, tuple[str, ...]]:
    """Return the model of what parts did ahead, without hashed models, its training, and why.

    Held-out rows are learnt from, too, when everything is chosen and calibrated on them. What parts
    did ahead is let go.
    """
    config = session.plan.config
    spec = TrainSpec(
        epochs=0, batch_size=config.batching.batch_size, learning_rate=0.0, transform="binary",
        label_smoothing=0.0, optimizer=config.optimizer_kind.name, epsilon=0.0,
        seed=session.options.seed, label_share=label_share(session.dataset),
    )  # fmt: skip
    model, reasons, found = _decided_alone(session, spec, size, judges)
    session.let_go()
    session.begin(WRITING)
    return compacted(session, model, size, found), spec, reasons


def _decided_alone(
    session: Session, spec: TrainSpec, size: str, judges: int
) -> tuple[Model, tuple[str, ...], Found | None]:
    """Return what :func:`_decided` does, without hashed models."""
    shape = ModelSpec.unhashed_of(session.plan.config.shape)
    ahead = next(iter(session.ahead.values()))
    with ExitStack() as closing:
        part = ahead.decision(session)
        closing.callback(part.close)
        assert part.ranking is not None, "it ranks alone"
        calibration = Calibration()
        session.begin(CALIBRATION)
        if session.held.rows.n_rows:
            some, ranking = calibrating_rows(session, judges), part.ranking
            calibration = session.findings.once(
                "calibration", Calibration,
                lambda: fit_calibration(some, ranking, session.dataset.n_classes), of=judges,
            )  # fmt: skip
        decided = Decided(
            ranker=BLEND, calibration=calibration, parts=(part,), figures=part.figures,
            reasons=part.reasons,
        )  # fmt: skip
        decided, found = _smallest(_judge(session, spec, decided, shape, judges), decided, size)
        session.begin(LEARNING)
        part.learn_held_out()
        nothing = {"weights": np.zeros((shape.n_features, 0), np.float32),
                   "bias": np.zeros(0, np.float32)}  # fmt: skip
        return _built(session, spec, decided, shape, nothing), decided.reasons, found


def decide(session: Session, spec: TrainSpec, closing: ExitStack, judges: int) -> Decided:
    """Let held-out rows decide on optional parts, ranking and calibration."""
    rows, backend = judging_rows(session, judges), session.backend

    def chosen(*, change_weights: bool) -> list[Decision]:
        found = []
        for part in planned(session.plan.config):
            if part.changes_weights == change_weights:
                found.append(part.choose(session, spec))
                closing.callback(found[-1].close)
        return found

    within = chosen(change_weights=True)
    session.begin(RANKING)
    estimator, hashed = session.findings.once(
        "ranking", tuple[str, dict[str, Reached]],
        lambda: choose_estimator(backend, rows, spec.transform),
    )  # fmt: skip
    beside = chosen(change_weights=False)
    ranking: Ranking = by_hashes(backend, "logsum", spec.transform)
    session.begin(CALIBRATION)
    figures: dict[Ranker, Reached] = dict(hashed.items())
    for part in (*within, *beside):
        figures |= part.figures
        ranking = part.ranking or ranking
    reasons: tuple[str, ...] = ()
    alone = session.plan.config.shape.exact and all(part.counts is None for part in beside)
    if session.dataset.listed and alone:
        figures[estimator], reason = tilt_bias(session, spec, rows)
        reasons = (reason,)
    calibration = session.findings.once(
        "calibration", Calibration,
        lambda: fit_calibration(
            calibrating_rows(session, judges), ranking, session.dataset.n_classes
        ),
    )  # fmt: skip
    both = words(session.dataset.listed).both
    reasons = (
        *(reason for part in within for reason in part.reasons),
        f"estimator {estimator}: held-out {both} {scores_text(hashed.items())}",
        *(reason for part in beside for reason in part.reasons),
        *reasons,
    )
    return Decided(
        ranker=estimator, calibration=calibration, parts=(*within, *beside), figures=figures,
        reasons=reasons,
    )  # fmt: skip


def learn_held_out(session: Session, spec: TrainSpec) -> None:
    """Train on the rows that were held out, as a training of a few passes of its own.

    Adagrad's rates have fallen feature by feature, so that a few rows change little; other
    optimisers would move all weights.
    """
    if session.held.mask is None or not spec.optimizer_kind.settles or not spec.epochs:
        return
    reader, done = open_reader(session, spec, held=~session.held.mask), 0.0
    for epoch in range(spec.epochs):
        for step in train_epoch(session.backend, reader, spec, epoch):
            session.check()
            done += step.n_rows / session.backend.n_waves
            session.at(done, spec.epochs * reader.n_rows)


def build(session: Session, spec: TrainSpec, decided: Decided) -> Model:
    """Return the model of what was trained and decided."""
    return _built(session, spec, decided, session.plan.model, session.backend.arrays())


def _built(
    session: Session, spec: TrainSpec, decided: Decided, model: ModelSpec,
    arrays: dict[str, NDArray[Any]],
) -> Model:  # fmt: skip
    draft = Draft(ranker=decided.ranker)
    for part in decided.parts:
        part.finalize(draft)
    dataset = session.dataset
    return Model(
        spec=model, training=spec, dense=session.plan.config.dense,
        estimator=draft.ranker, calibration=decided.calibration, store=dataset.digest,
        majority=int(dataset.counting.labels.argmax()),
        validation=decided.figures,
        labels=dataset.labels, features=dataset.features, weights=arrays["weights"],
        bias=arrays["bias"], counts=draft.counts, columns=dataset.columns,
        projection=arrays.get("projection"),
        label_counts=dataset.label_counts if dataset.listed else None,
        n_rows=dataset.n_rows if dataset.listed else 0, recipe=dataset.root.recipe,
    )  # fmt: skip
