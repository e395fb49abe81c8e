"""From trained weights to a finished model: what joins them, how classes are ranked, and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from streammach.backends.base import Backend
from streammach.counts.scores import CountScorer, CountWeights
from streammach.data.store.dataset import Dataset
from streammach.figures import Reached
from streammach.model.document import Calibration
from streammach.model.model import Model
from streammach.prediction.evaluate import Measured, choose_estimator, fit_calibration, merits
from streammach.prediction.predictor import ESTIMATORS
from streammach.prediction.ranking import by_counts, by_hashes
from streammach.spec import Plan, Ranker, TrainSpec
from streammach.training.blend import Blend, Blender
from streammach.training.closed_form import ClosedForm
from streammach.training.holdout import HeldOut
from streammach.training.loop import open_reader, train_epoch

LAST_PASSES = 2  # over the held-out rows, when all choices are made


@dataclass(frozen=True)
class Finish:
    """What a model is made from, and whom to tell.

    Attributes
    ----------
    dataset : Dataset
        The training store.
    plan : Plan
        The plan.
    backend : Backend
        Holds the trained weights and the optimiser's state.
    held : HeldOut
        The rows that decide.
    training : TrainSpec
        How the weights were trained.
    tell : callable
        Told what was found.
    check : callable
        Called now and then; what it raises ends the work.
    """

    dataset: Dataset
    plan: Plan
    backend: Backend
    held: HeldOut
    training: TrainSpec
    tell: Callable[[str], None]
    check: Callable[[], None]

    def model(self) -> tuple[Model, tuple[str, ...]]:
        """Return the finished model, and why it ranks classes as it does.

        When everything is chosen and calibrated on the held-out rows, these are learnt from too.
        """
        if not self.held.rows.n_rows:
            reason = "estimator logsum: no held-out rows to choose on"
            return self._model(ESTIMATORS[0], Calibration(), None, {}), (reason,)
        if self.plan.closed_form:
            return self._with_closed_form()
        finished = self._ranked()
        if self.plan.optimizer == "adagrad":
            self._learn_held_out()
            self.backend.arrays()  # the model holds these very arrays
        return finished

    def _with_closed_form(self) -> tuple[Model, tuple[str, ...]]:
        closed = ClosedForm(
            self.dataset, self.backend, self.held, self.training.transform,
            threads=self.plan.threads, check=self.check,
        )  # fmt: skip
        chosen = closed.choose()
        self.tell(chosen.reason)
        closed.add(chosen)
        model, reasons = self._ranked()
        closed.add_held_out(chosen)
        return model, (chosen.reason, *reasons)

    def _learn_held_out(self) -> None:
        """Train on the rows that were held out, as a training of a few passes of its own."""
        if self.held.mask is None:
            return
        spec = replace(self.training, epochs=LAST_PASSES)
        held = replace(self.held, mask=~self.held.mask)
        reader = open_reader(self.dataset, self.plan, self.backend, spec, held)
        for epoch in range(LAST_PASSES):
            for _ in train_epoch(self.backend, reader, spec, epoch):
                self.check()

    def _ranked(self) -> tuple[Model, tuple[str, ...]]:
        """Return the model of the present weights with counts, ranking and calibration."""
        backend, rows, transform = self.backend, self.held.rows, self.training.transform
        estimator, hashed = choose_estimator(backend, rows, transform)
        reasons: tuple[str, ...] = (
            f"estimator {estimator}: held-out P@1 / P@5 {merits(hashed.items())}",
        )
        found: dict[Ranker, Measured] = dict(hashed.items())
        blend = Blend(None, (), {})
        ranking = by_hashes(backend, "logsum", transform)
        if self.plan.max_pairs:
            blend = Blender(
                self.dataset, self.plan, backend, self.held, transform,
                tell=self.tell, check=self.check,
            ).run()  # fmt: skip
            reasons += blend.reasons
            found |= blend.validation
        if blend.weights is not None:
            ranking = by_counts(backend, CountScorer(blend.weights, self.plan.threads), transform)
        calibration = fit_calibration(rows, ranking, self.dataset.n_classes)
        ranker: Ranker = estimator if blend.weights is None else "blend"
        return self._model(ranker, calibration, blend.whole(), found), reasons

    def _model(
        self,
        ranker: Ranker,
        calibration: Calibration,
        weights: CountWeights | None,
        found: dict[Ranker, Measured],
    ) -> Model:
        dataset, arrays = self.dataset, self.backend.arrays()
        return Model(
            self.plan.model, self.training, self.plan.dense, ranker, calibration, dataset.digest,
            int(dataset.label_counts.argmax()),
            {name: Reached(m.p_at_1, m.p_at_5) for name, m in found.items()},
            dataset.labels, dataset.features, arrays["weights"], arrays["bias"],
            None if weights is None else weights.arrays(),
            0.0 if weights is None else weights.hashed, columns=dataset.columns,
        )  # fmt: skip
