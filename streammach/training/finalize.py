"""From trained weights to a finished model: what joins them, how classes are ranked, and why."""

from __future__ import annotations

import warnings
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.linear.scorer import Linear
from streammach.linear.weights import LinearWeights
from streammach.model.calibration import Calibration, fit_calibration
from streammach.model.checkpoint import RunPosition
from streammach.model.model import Model
from streammach.options.documents import to_json
from streammach.options.estimators import BLEND, USUAL
from streammach.options.figures import HeldOutMetrics, scores_text, words
from streammach.options.model_spec import ModelSpec
from streammach.options.training import TrainSpec
from streammach.options.types import Ranker
from streammach.parts.registry import parts_of_plan, switches_of
from streammach.parts.training_record import Decision, Training
from streammach.prediction.evaluate import choose_estimator
from streammach.prediction.metrics import MOST
from streammach.prediction.ranking import Ranking, by_hashes, largest_discount
from streammach.prediction.selection_metrics import measure_ids, score_rows
from streammach.rows.block import RowBlock
from streammach.rows.pairs import CountWeights, NamePairs
from streammach.system.files.folders import remove_folder
from streammach.system.files.writing import write_atomic
from streammach.system.linux import peak_bytes
from streammach.training import model_form
from streammach.training.loop import START, open_reader, train_epoch
from streammach.training.model_remarks import (
    compare_with_former,
    explain_names,
    gain_over_usual,
    lateness,
    warnings_of,
)
from streammach.training.run import CHECKPOINTS, RESULT, Result
from streammach.training.run_part import RunTraining
from streammach.training.search import write_settings
from streammach.training.time_budget import (
    CALIBRATION,
    LEARNING,
    RANKING,
    SMALLER,
    WRITING,
    TimeBudget,
)


def finish(
    training: RunTraining, budget: TimeBudget, spec: TrainSpec | None = None,
    at: RunPosition = START,
) -> None:  # fmt: skip
    """Make the model, without hashed ones where there is no training; save what was measured."""
    shape, folder = training.plan.model, training.folder
    training.finishing = True
    budget.finish(hashed=spec is not None)
    training.clock = budget.end
    stage = ("without hashed models",) if spec is None else (at.step, at.best_step, at.stopped)
    training.findings = training.findings.within(*stage, budget.judges, budget.model_size)
    model, reasons = finalize(training, spec, budget.model_size, budget.judges)
    options: dict[str, Any] = {"repetitions": 0}
    if training.plan.config.linear:
        options = {"linear": "on"}
    if spec is None:
        write_settings(training, model.training, trials=(), reasons=())
    else:
        options = {
            "buckets": shape.n_buckets, "repetitions": shape.n_repetitions, "epochs": spec.epochs,
            "transform": spec.transform, "learning_rate": spec.learning_rate,
            **switches_of(training.plan.facts, training.plan.config, spec),
        }  # fmt: skip
    reasons = (
        *gain_over_usual(training, model),
        *reasons,
        *lateness(training),
        *budget.again(at, **options),
    )
    reasons += compare_with_former(training, model)
    if model.estimator in model.validation:
        training.log_metrics("finished model", model.validation[model.estimator])
    said = warnings_of(training, model)
    if training.ends_early:
        said = ("interrupted: the model is the best one by then", *said)
    result = Result(
        history=at.history, best_epoch=max(at.best_epoch, 0),
        stopped=at.stopped, estimator=model.estimator, reasons=reasons,
        validation=model.validation, seconds=training.stages.seconds,
        stages={name: round(seconds, 3) for name, seconds in training.stages.took.items()},
        projected_bytes=training.projected_bytes, peak_bytes=peak_bytes(),
        device_projected_bytes=training.plan.device_buffer_bytes,
        device_peak_bytes=training.backend.device_bytes()[0], warnings=said,
    )  # fmt: skip
    write_atomic(folder / RESULT, to_json(result))
    remove_folder(folder / CHECKPOINTS)
    training.stages.close()
    for text in said:
        training.log("warning", text=text)
        warnings.warn(text, stacklevel=2)
    training.log("memory", **held_bytes(training.backend.arrays(), training.holdout.rows, model))
    training.log(
        "end", seconds=result.seconds, peak_bytes=result.peak_bytes,
        device_peak_bytes=result.device_peak_bytes,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class FinalDecisions:
    """What held-out rows decided after the last epoch."""

    ranker: Ranker  # the best estimator of the hashed models
    calibration: Calibration = field(default_factory=Calibration)  # how scores become probabilities
    parts: tuple[Decision, ...] = ()  # what they say of optional parts
    # measured, by way of ranking
    figures: dict[Ranker, HeldOutMetrics] = field(default_factory=dict)
    reasons: tuple[str, ...]  # why, in sentences

    def find(self, name: str) -> Any:
        """Return what a part gives under a name, such as its `counts`; None where none does."""
        found = (getattr(part, name) for part in self.parts)
        return next((one for one in found if one is not None), None)


def finalize(
    training: Training, spec: TrainSpec | None, size: str, judges: int
) -> tuple[Model, tuple[str, ...]]:
    """Save and return the finished model, and why it ranks classes as it does.

    Without a training it is made of what was fitted first. When everything is chosen and calibrated
    on the held-out rows, these are learnt from too; the model is built last, and made as small as
    was chosen before. What was fitted first is let go.
    """
    hashed = spec is not None
    if spec is None:
        config = training.plan.config
        spec = TrainSpec(
            epochs=0, batch_size=config.batching.batch_size, learning_rate=0.0, transform="binary",
            label_smoothing=0.0, optimizer=config.optimizer_kind.name, epsilon=0.0,
            seed=training.options.seed, label_share="shared" if training.dataset.listed else None,
        )  # fmt: skip
    model, reasons, found = _whole(training, spec, size, judges, hashed=hashed)
    training.forget_first()
    training.begin_stage(WRITING)
    small, how = model_form.save(training, model, size, found)
    return small, (*reasons, *how)


def _whole(
    training: Training, spec: TrainSpec, size: str, judges: int, *, hashed: bool
) -> tuple[Model, tuple[str, ...], model_form.SmallForm | None]:
    """Return the whole model, why it is so, and the smallest form; what decided is let go."""
    held_out = training.holdout.rows.n_rows > 0
    shape = training.plan.model if hashed else ModelSpec.unhashed_of(training.plan.config.shape)
    if hashed and not held_out:
        reasons: tuple[str, ...] = ("estimator logsum: no held-out rows to choose on",)
        decided = FinalDecisions(ranker=USUAL, reasons=reasons)
        return _build_model(training, spec, decided, shape), reasons, None
    with ExitStack() as closing:
        if hashed:
            decided = decide(training, spec, closing, judges)
        else:
            decided = _decide_without_epochs(training, closing, judges)
        judge = model_form.FormComparison(
            training=training, spec=spec, model=shape, ranker=decided.ranker, most_rows=judges,
            counts=decided.find("counts"), late=decided.find("late"),
        )  # fmt: skip
        found = None
        sole = judge.counts is None and shape.unhashed
        if size == "auto" and judge.n_rows >= model_form.LEAST_ROWS and not sole:
            training.begin_stage(SMALLER)
            found = model_form.choose(judge)
            training.backend.apply(None)
            if found.calibration is not None:
                decided = replace(decided, calibration=found.calibration)
        training.begin_stage(LEARNING)
        if hashed:
            learn_held_out(training, replace(spec, epochs=training.options.last_passes))
        for part in decided.parts:
            part.learn_held_out()
        model = _build_model(training, spec, decided, shape)
        return model, (*decided.reasons, *explain_names(model)), found


def _decide_without_epochs(training: Training, closing: ExitStack, judges: int) -> FinalDecisions:
    assert training.first is not None, "it ranks alone"
    part = training.first.decide_alone(training)
    closing.callback(part.close)
    assert part.ranking is not None, "it ranks alone"
    training.begin_stage(CALIBRATION)
    calibration = Calibration()
    if part.judged is not None:
        calibration = fit_calibration(*part.judged, training.dataset.n_classes)
    elif training.holdout.rows.n_rows:
        calibration = model_form.calibrate(training, part.ranking, judges, of=judges)
    return FinalDecisions(
        ranker=BLEND, calibration=calibration, parts=(part,), figures=part.figures,
        reasons=part.reasons,
    )  # fmt: skip


def decide(training: Training, spec: TrainSpec, closing: ExitStack, judges: int) -> FinalDecisions:
    """Let held-out rows decide on optional parts, ranking and calibration."""
    rows, backend = model_form.judging_rows(training, judges), training.backend

    def choose_all(*, change_weights: bool) -> list[Decision]:
        found = []
        for part in parts_of_plan(training.plan.config):
            if part.fit is not None and part.changes_weights == change_weights:
                found.append(part.fit(training, spec))
                closing.callback(found[-1].close)
        return found

    within = choose_all(change_weights=True)
    training.begin_stage(RANKING)
    estimator, hashed = training.findings.once(
        "ranking", tuple[str, dict[str, HeldOutMetrics]],
        lambda: choose_estimator(backend, rows, spec.transform),
    )  # fmt: skip
    beside = choose_all(change_weights=False)
    if training.first is not None and training.first.decide_beside is not None:
        beside.append(training.first.decide_beside(training, spec))
        closing.callback(beside[-1].close)
    ranking: Ranking = by_hashes(backend, "logsum", spec.transform)
    training.begin_stage(CALIBRATION)
    figures: dict[Ranker, HeldOutMetrics] = dict(hashed.items())
    for part in (*within, *beside):
        figures |= part.figures
        ranking = part.ranking or ranking
    reasons: tuple[str, ...] = ()
    alone = training.plan.config.shape.exact and all(part.counts is None for part in beside)
    if training.dataset.listed and alone:
        figures[estimator], reason = _discount_bias(training, spec, rows)
        reasons = (reason,)
    both = words(training.dataset.listed).both
    reasons = (
        *(reason for part in within for reason in part.reasons),
        f"estimator {estimator}: held-out {both} {scores_text(hashed.items())}",
        *(reason for part in beside for reason in part.reasons),
        *reasons,
    )
    return FinalDecisions(
        ranker=estimator, calibration=model_form.calibrate(training, ranking, judges),
        parts=(*within, *beside), figures=figures, reasons=reasons,
    )  # fmt: skip


def learn_held_out(training: Training, spec: TrainSpec) -> None:
    """Train on the rows that were held out, as a training of a few passes of its own.

    Adagrad's rates have fallen feature by feature, so that a few rows change little; other
    optimisers would move all weights.
    """
    if training.holdout.mask is None or not spec.optimizer_kind.settles or not spec.epochs:
        return
    reader, done = open_reader(training, spec, held=~training.holdout.mask), 0.0
    for epoch in range(spec.epochs):
        for step in train_epoch(training.backend, reader, spec, epoch):
            training.check_stop()
            if training.clock.remaining_seconds <= 0:
                return
            done += step.n_rows / training.backend.n_waves
            training.report_progress(done, spec.epochs * reader.n_rows)


def _build_model(
    training: Training, spec: TrainSpec, decided: FinalDecisions, model: ModelSpec
) -> Model:
    arrays: dict[str, NDArray[Any]] = {
        "weights": np.zeros((model.n_features, 0), np.float32), "bias": np.zeros(0, np.float32),
    }  # fmt: skip
    if not model.unhashed:
        arrays = training.backend.arrays()
    counts: CountWeights | None = decided.find("counts")
    linear: Linear | None = decided.find("linear")
    names: NamePairs | None = decided.find("names")
    dataset = training.dataset
    named, seen = dataset.label_names, dataset.label_counts > 0
    if linear is not None and not (isinstance(linear, LinearWeights) and not linear.valued):
        spec = replace(spec, transform="raw")
    return Model(
        spec=model, training=spec, dense=training.plan.config.dense,
        estimator=decided.ranker if counts is None and linear is None else BLEND,
        calibration=decided.calibration,
        store=dataset.store_digest, majority=int(dataset.counting.labels.argmax()),
        validation=decided.figures, labels=dataset.labels, features=dataset.features,
        weights=arrays["weights"], bias=arrays["bias"],
        counts=None if counts is None else counts.drop_wide_lists(), linear=linear,
        late=decided.find("late"), names=names,
        titles=None if named is None else named.titles(dataset.n_classes),
        # What nothing but a name that adds nothing tells is not said.
        says=None if named is None or names is not None or seen.all()
        else np.where(seen, np.arange(len(seen)), -1).astype(np.int32),
        columns=dataset.columns,
        projection=arrays.get("projection"),
        label_counts=dataset.label_counts if dataset.listed else None,
        n_rows=dataset.n_rows if dataset.listed else 0, recipe=dataset.root.recipe,
    )  # fmt: skip


def held_bytes(arrays: dict[str, NDArray[Any]], rows: RowBlock, model: Model) -> dict[str, int]:
    """Return the bytes of a run's large arrays, by the ledger's names."""
    kept = ("weights", "bias")
    held = (rows.indptr, rows.features, rows.values, rows.classes, rows.importance, rows.places)
    return {
        "weights": sum(arrays[name].nbytes for name in kept),
        "optimizer": sum(a.nbytes for name, a in arrays.items() if name not in kept),
        "held-out rows": sum(a.nbytes for a in held if a is not None),
        "names": model.labels.n_bytes + model.features.n_bytes,
    }


def _discount_bias(
    training: Training, spec: TrainSpec, rows: RowBlock
) -> tuple[HeldOutMetrics, str]:
    """Take a share of ln n_i from the bias of each class; return what is reached then, and why."""
    backend = training.backend
    held = backend.arrays()["bias"]
    bias, columns = held.copy(), backend.codes[:, 0]
    logs = np.log(np.maximum(training.dataset.counting.labels, 1)).astype(bias.dtype)
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
