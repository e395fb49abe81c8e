"""From trained weights to a finished model: what joins them, how classes are ranked, and why."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.figures import HeldOutMetrics, gain_text, scores_text, words
from streammach.linear.late import LateLabels
from streammach.linear.scorer import Linear
from streammach.linear.weights import LinearWeights
from streammach.machine import time_text
from streammach.model.calibration import Calibration, fit_calibration
from streammach.model.model import Model
from streammach.parts.base import Decision
from streammach.parts.registry import parts_of_plan
from streammach.prediction.evaluate import choose_estimator
from streammach.prediction.metrics import MOST
from streammach.prediction.ranking import Ranking, by_hashes, largest_discount
from streammach.prediction.selection_metrics import measure_ids, score_rows
from streammach.rows.block import RowBlock
from streammach.rows.pairs import CountWeights
from streammach.spec.estimators import BLEND, USUAL
from streammach.spec.model_spec import ModelSpec
from streammach.spec.training import TrainSpec
from streammach.spec.types import Ranker
from streammach.training import model_form
from streammach.training.loop import open_reader, train_epoch
from streammach.training.session import Session
from streammach.training.time_budget import CALIBRATION, LEARNING, RANKING, SMALLER, WRITING

LATE = 0.1  # of its time, from which on it is told that a training was late


@dataclass(frozen=True, kw_only=True)
class FinalDecisions:
    """What held-out rows decided after the last epoch."""

    ranker: Ranker  # the best estimator of the hashed models
    calibration: Calibration = field(default_factory=Calibration)  # how scores become probabilities
    parts: tuple[Decision, ...] = ()  # what they say of optional parts
    figures: dict[Ranker, HeldOutMetrics] = field(
        default_factory=dict
    )  # measured, by way of ranking
    reasons: tuple[str, ...]  # why, in sentences

    @property
    def counts(self) -> CountWeights | None:
        """The counts beside the hashed models, if there are any."""
        return next((part.counts for part in self.parts if part.counts is not None), None)

    @property
    def linear(self) -> Linear | None:
        """The linear classifiers, where they are the model."""
        return next((part.linear for part in self.parts if part.linear is not None), None)

    @property
    def late(self) -> LateLabels | None:
        """The classifiers that score the best classes again, if there are any."""
        return next((part.late for part in self.parts if part.late is not None), None)


def finalize(
    session: Session, spec: TrainSpec | None, size: str, judges: int
) -> tuple[Model, tuple[str, ...]]:
    """Save and return the finished model, and why it ranks classes as it does.

    Without a training it is made of what parts did ahead. When everything is chosen and calibrated
    on the held-out rows, these are learnt from too; the model is built last, and made as small as
    was chosen before. What parts did ahead is let go.
    """
    hashed = spec is not None
    if spec is None:
        config = session.plan.config
        spec = TrainSpec(
            epochs=0, batch_size=config.batching.batch_size, learning_rate=0.0, transform="binary",
            label_smoothing=0.0, optimizer=config.optimizer_kind.name, epsilon=0.0,
            seed=session.options.seed, label_share="shared" if session.dataset.listed else None,
        )  # fmt: skip
    model, reasons, found = _whole(session, spec, size, judges, hashed=hashed)
    session.let_go()
    session.begin(WRITING)
    small, how = model_form.save(session, model, size, found)
    return small, (*reasons, *how)


def _whole(
    session: Session, spec: TrainSpec, size: str, judges: int, *, hashed: bool
) -> tuple[Model, tuple[str, ...], model_form.SmallForm | None]:
    """Return the whole model, why it is so, and the smallest form; what decided is let go."""
    held_out = session.held.rows.n_rows > 0
    shape = session.plan.model if hashed else ModelSpec.unhashed_of(session.plan.config.shape)
    if hashed and not held_out:
        reasons = ("estimator logsum: no held-out rows to choose on",)
        decided = FinalDecisions(ranker=USUAL, reasons=reasons)
        return _build_model(session, spec, decided, shape), reasons, None
    with ExitStack() as closing:
        decided = (decide if hashed else _decide_alone)(session, spec, closing, judges)
        judge = model_form.FormComparison(
            session=session, spec=spec, model=shape, ranker=decided.ranker, most_rows=judges,
            counts=decided.counts, late=decided.late,
        )  # fmt: skip
        found = None
        sole = decided.counts is None and shape.unhashed
        if size == "auto" and judge.n_rows >= model_form.LEAST_ROWS and not sole:
            session.begin(SMALLER)
            found = model_form.choose(judge)
            session.backend.apply(None)
            if found.calibration is not None:
                decided = replace(decided, calibration=found.calibration)
        session.begin(LEARNING)
        if hashed:
            learn_held_out(session, replace(spec, epochs=session.options.last_passes))
        for part in decided.parts:
            part.learn_held_out()
        return _build_model(session, spec, decided, shape), decided.reasons, found


def _decide_alone(
    session: Session, spec: TrainSpec, closing: ExitStack, judges: int
) -> FinalDecisions:
    del spec
    assert session.first is not None, "it ranks alone"
    part = session.first.decide(session)
    closing.callback(part.close)
    assert part.ranking is not None, "it ranks alone"
    session.begin(CALIBRATION)
    calibration = Calibration()
    if part.judged is not None:
        calibration = fit_calibration(*part.judged, session.dataset.n_classes)
    elif session.held.rows.n_rows:
        calibration = _calibration(session, part.ranking, judges, of=judges)
    return FinalDecisions(
        ranker=BLEND, calibration=calibration, parts=(part,), figures=part.figures,
        reasons=part.reasons,
    )  # fmt: skip


def _calibration(session: Session, ranking: Ranking, judges: int, of: object = None) -> Calibration:
    rows, n_classes = model_form.calibrating_rows(session, judges), session.dataset.n_classes
    return session.findings.once(
        "calibration", Calibration, lambda: fit_calibration(rows, ranking, n_classes), of=of
    )


def decide(session: Session, spec: TrainSpec, closing: ExitStack, judges: int) -> FinalDecisions:
    """Let held-out rows decide on optional parts, ranking and calibration."""
    rows, backend = model_form.judging_rows(session, judges), session.backend

    def choose_all(*, change_weights: bool) -> list[Decision]:
        found = []
        for part in parts_of_plan(session.plan.config):
            if part.fit is not None and part.changes_weights == change_weights:
                found.append(part.fit(session, spec))
                closing.callback(found[-1].close)
        return found

    within = choose_all(change_weights=True)
    session.begin(RANKING)
    estimator, hashed = session.findings.once(
        "ranking", tuple[str, dict[str, HeldOutMetrics]],
        lambda: choose_estimator(backend, rows, spec.transform),
    )  # fmt: skip
    beside = choose_all(change_weights=False)
    ranking: Ranking = by_hashes(backend, "logsum", spec.transform)
    session.begin(CALIBRATION)
    figures: dict[Ranker, HeldOutMetrics] = dict(hashed.items())
    for part in (*within, *beside):
        figures |= part.figures
        ranking = part.ranking or ranking
    reasons: tuple[str, ...] = ()
    alone = session.plan.config.shape.exact and all(part.counts is None for part in beside)
    if session.dataset.listed and alone:
        figures[estimator], reason = _discount_bias(session, spec, rows)
        reasons = (reason,)
    both = words(session.dataset.listed).both
    reasons = (
        *(reason for part in within for reason in part.reasons),
        f"estimator {estimator}: held-out {both} {scores_text(hashed.items())}",
        *(reason for part in beside for reason in part.reasons),
        *reasons,
    )
    return FinalDecisions(
        ranker=estimator, calibration=_calibration(session, ranking, judges),
        parts=(*within, *beside), figures=figures, reasons=reasons,
    )  # fmt: skip


def warnings_of(session: Session, model: Model) -> tuple[str, ...]:
    """Return what is to be said of a model that is worth nothing on held-out rows."""
    rows, own = session.held.rows, model.validation.get(model.estimator)
    if own is None or not rows.n_rows:
        return ()
    order = np.argsort(-session.dataset.label_counts, kind="stable")[:MOST]
    usual = measure_ids(rows, np.tile(order, (rows.n_rows, 1))).accuracy
    if not own.accuracy <= usual < 1:
        return ()
    more = "more --time" if session.request.clock.limited else "more rows or --epochs"
    first = words(session.dataset.listed).first
    return (
        f"held-out {first} {own.accuracy:z.3f} is not above {usual:z.3f}, which the most frequent "
        f"label reaches: {more} may help, or the features do not tell the labels",
    )


def gain_over_usual(session: Session, model: Model) -> tuple[str, ...]:
    """Return what the most frequent label reaches by itself, and the gain of the model.

    Linear classifiers say it themselves.
    """
    own, data, n = model.validation.get(model.estimator), session.dataset, session.held.rows.n_rows
    if own is None or not n or model.linear is not None:
        return ()
    usual = float(data.label_counts.max()) / data.n_rows
    return (gain_text("held-out", words(data.listed).first, own, n, usual),)


def lateness(session: Session) -> tuple[str, ...]:
    """Return what is to be said of a training that took more than its time."""
    clock = session.request.clock
    if clock.seconds is None or clock.elapsed_seconds <= (1 + LATE) * clock.seconds:
        return ()
    by_time = sorted(session.stages.took.items(), key=lambda item: -item[1])[:3]
    stages = ", ".join(f"{name} {time_text(seconds)}" for name, seconds in by_time)
    return (
        f"it took {time_text(clock.elapsed_seconds)}, {time_text(clock.seconds)} were allowed: "
        f"{stages}; some of each stage is not left out, nor are kernels, which are compiled once",
    )


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
            if session.clock.remaining_seconds <= 0:
                return
            done += step.n_rows / session.backend.n_waves
            session.at(done, spec.epochs * reader.n_rows)


def _build_model(
    session: Session, spec: TrainSpec, decided: FinalDecisions, model: ModelSpec
) -> Model:
    arrays: dict[str, NDArray[Any]] = {
        "weights": np.zeros((model.n_features, 0), np.float32), "bias": np.zeros(0, np.float32),
    }  # fmt: skip
    if not model.unhashed:
        arrays = session.backend.arrays()
    counts, linear, dataset = decided.counts, decided.linear, session.dataset
    if linear is not None and not (isinstance(linear, LinearWeights) and not linear.valued):
        spec = replace(spec, transform="raw")
    return Model(
        spec=model, training=spec, dense=session.plan.config.dense,
        estimator=decided.ranker if counts is None and linear is None else BLEND,
        calibration=decided.calibration,
        store=dataset.store_digest, majority=int(dataset.counting.labels.argmax()),
        validation=decided.figures, labels=dataset.labels, features=dataset.features,
        weights=arrays["weights"], bias=arrays["bias"],
        counts=None if counts is None else counts.compact(), linear=linear, late=decided.late,
        columns=dataset.columns,
        projection=arrays.get("projection"),
        label_counts=dataset.label_counts if dataset.listed else None,
        n_rows=dataset.n_rows if dataset.listed else 0, recipe=dataset.root.recipe,
    )  # fmt: skip


def _discount_bias(session: Session, spec: TrainSpec, rows: RowBlock) -> tuple[HeldOutMetrics, str]:
    """Take a share of ln n_i from the bias of each class; return what is reached then, and why."""
    backend = session.backend
    held = backend.arrays()["bias"]
    bias, columns = held.copy(), backend.codes[:, 0]
    logs = np.log(np.maximum(session.dataset.counting.labels, 1)).astype(bias.dtype)
    ranking = by_hashes(backend, USUAL, spec.transform)

    def use(tilt: float) -> None:
        held[:] = bias
        held[columns] -= bias.dtype.type(tilt) * logs
        backend.restore()

    found: dict[float, HeldOutMetrics] = {}

    def scores(tilt: float) -> NDArray[np.float64]:
        use(tilt)
        ids = ranking(rows, MOST)[0]
        found[tilt] = measure_ids(rows, ids)
        return score_rows(rows, ids)

    tilt, _ = largest_discount(scores, best_alone=rows.lists.weights is not None)
    use(tilt)
    tried = scores_text((f"{t:g}", one) for t, one in found.items())
    return found[tilt], f"ln n taken from the bias {tilt:g} times: {tried}"
