"""Short trainings compared on held-out rows: which transform, which learning rate, which loss."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from streammach.backends.base import Backend
from streammach.data.store.dataset import Dataset
from streammach.errors import DivergedError, UsageError, clean
from streammach.figures import TrialFigures
from streammach.planning.schedule import screen, trial
from streammach.prediction.evaluate import Measured, measure
from streammach.prediction.ranking import by_hashes
from streammach.rows.batch import transformed
from streammach.rows.block import RowBlock
from streammach.rows.dense import Basis
from streammach.spec import Coupling, Optimizer, Plan, TrainSpec, Transform
from streammach.training.holdout import HeldOut
from streammach.training.loop import open_reader, train_epoch
from streammach.training.whitened import basis_of

TRANSFORMS: tuple[Transform, ...] = ("binary", "raw", "log1p", "l2")
MAX_STEPS = 6  # rates tried in one direction
RATE_FACTOR = 2.0
WHOLE = 0.9  # rows that hold more than this share of the features are not made binary


@dataclass(frozen=True)
class Trial:
    """One short training and what it reached."""

    transform: Transform
    whitened: bool
    loss: Coupling
    learning_rate: float
    rows: int
    epochs: int
    measured: Measured

    @property
    def figures(self) -> TrialFigures:
        """What is saved of it."""
        return TrialFigures(
            self.transform, self.whitened, self.loss, self.learning_rate, self.rows, self.epochs,
            self.measured.p_at_1, self.measured.p_at_5,
        )  # fmt: skip


@dataclass(frozen=True)
class Choice:
    """What a search chose, what it tried, and why, in sentences."""

    spec: TrainSpec
    trials: tuple[Trial, ...]
    reasons: tuple[str, ...]


def couplings(plan: Plan, asked: str) -> tuple[Coupling, ...]:
    """Return the losses that a training by a plan may have, those of them that are tried.

    The joint loss pays for hashed models of dense rows; for sparse rows it is as good as the other
    and slower. It needs all repetitions at once.

    Parameters
    ----------
    plan : Plan
        The plan.
    asked : str
        ``apart``, ``joint``, or ``auto``.

    Raises
    ------
    UsageError
        If it is none of them, or the plan's model cannot be trained so.
    """
    if asked not in ("auto", "apart", "joint"):
        raise UsageError(f"'{clean(asked)}' is not one of auto, apart, joint: --loss")
    impossible = ""
    if plan.model.exact:
        impossible = "an exact model has no repetitions to join"
    elif plan.waves > 1:
        impossible = f"the repetitions are trained in {plan.waves} waves"
    if asked == "joint":
        if impossible:
            raise UsageError(f"{impossible}: --loss joint")
        return ("joint",)
    if asked == "auto" and plan.dense and not impossible:
        return ("apart", "joint")
    return ("apart",)


def typical_value(rows: RowBlock, transform: Transform) -> float:
    """Return the root mean square of the stored values after a transform; 1 without any."""
    values = transformed(rows, transform).values
    return float(np.sqrt(np.mean(np.square(values, dtype=np.float64)))) if len(values) else 1.0


def usual_rate(optimizer: Optimizer, rows: RowBlock, transform: Transform) -> float:
    """Return the rate that the search starts from.

    A first step of row-wise Adagrad moves a logit by rate times value, one of Adam by rate times
    value for every value of the row; SGD's depends on the gradient too. The constants are the
    middle of what did best on the data sets measured.
    """
    value = max(typical_value(rows, transform), 1e-6)
    mean_nnz = max(rows.nnz / max(rows.n_rows, 1), 1.0)
    if optimizer == "adam":
        return 1.5 / (mean_nnz * value)
    if optimizer == "sgd":
        return 1.0 / (mean_nnz * value * value)
    return 0.5 / value


def prior(optimizer: Optimizer, rows: RowBlock, transform: Transform) -> float:
    """Return the epsilon of the optimiser.

    Row-wise Adagrad starts its sum of squares as if one gradient of a typical value had been seen,
    so that a feature with few rows moves less.
    """
    return max(typical_value(rows, transform), 1e-6) ** 2 if optimizer == "adagrad" else 1e-8


class Search:
    """Chooses what was left open of a training by short trainings on part of the rows.

    Parameters
    ----------
    dataset : Dataset
        The training store.
    plan : Plan
        The plan.
    backend : Backend
        Trains the trials; its weights are overwritten.
    held : HeldOut
        The rows on which trials are compared.
    on_trial : callable
        Told each trial.
    on_batch : callable
        Called after each batch; what it raises ends the search.
    """

    def __init__(
        self,
        dataset: Dataset,
        plan: Plan,
        backend: Backend,
        held: HeldOut,
        *,
        on_trial: Callable[[Trial], None],
        on_batch: Callable[[], None],
    ) -> None:
        self._dataset, self._plan, self._backend, self._held = dataset, plan, backend, held
        self._on_trial, self._on_batch = on_trial, on_batch
        self._trials: dict[tuple[TrainSpec, int], Trial] = {}
        self._basis: tuple[Transform, Basis] | None = None  # the last one that was found

    def choose(
        self,
        spec: TrainSpec,
        *,
        transform: Transform | None,
        learning_rate: float | None,
        losses: tuple[Coupling, ...],
    ) -> Choice:
        """Return the training with everything chosen.

        Parameters
        ----------
        spec : TrainSpec
            What is fixed.
        transform, learning_rate : str, float, optional
            What the user fixed.
        losses : tuple of str
            What may be learnt; the first one decides the transform.
        """
        reasons = []
        spec = replace(spec, loss=losses[0])
        if transform is None:
            transform, reason = self._choose_transform(spec, learning_rate)
            reasons.append(reason)
        spec = self._with(spec, transform, learning_rate)
        if learning_rate is None:
            spec, reason = self._choose_rate(spec, "learning rate")
            reasons.append(reason)
        climbs = learning_rate is None
        if self._plan.whitened:
            spec, more = self._choose_whitening(spec, climbs=climbs)
            reasons += more
        for loss in losses[1:]:
            spec, more = self._choose_loss(spec, loss, climbs=climbs)
            reasons += more
        return Choice(spec, tuple(self._trials.values()), tuple(reasons))

    def _with(self, spec: TrainSpec, transform: Transform, rate: float | None) -> TrainSpec:
        rows = self._held.rows
        return replace(
            spec,
            transform=transform,
            learning_rate=rate or usual_rate(spec.optimizer, rows, transform),
            epsilon=prior(spec.optimizer, rows, transform),
        )

    def _choose_transform(self, spec: TrainSpec, rate: float | None) -> tuple[Transform, str]:
        values = np.unique(self._held.rows.values)
        names: list[Transform] = list(TRANSFORMS)
        if len(values) == 1:  # scaled copies of one another
            names = ["binary", "l2"]
        if self._plan.facts.density > WHOLE:
            names.remove("binary")
        if len(names) == 1:
            return names[0], f"transform {names[0]}: the only one that makes a difference"
        rows, epochs = screen(self._dataset.n_rows)
        tried = [
            self._try(
                self._with(spec, n, rate and rate / typical_value(self._held.rows, n)),
                rows,
                epochs,
            )
            for n in names
        ]
        best = max(tried, key=lambda trial: trial.measured.merit)
        return best.transform, _reason(
            "transform", best.transform, [(t.transform, t) for t in tried]
        )

    def basis(self, spec: TrainSpec) -> Basis | None:
        """Return the basis of a training's rows, if they are whitened."""
        if not spec.whitened:
            return None
        if self._basis is None or self._basis[0] != spec.transform:
            self._basis = None  # there is room for one
            found = basis_of(
                self._dataset, self._held, spec.transform, threads=self._plan.threads,
                check=self._on_batch,
            )  # fmt: skip
            self._basis = (spec.transform, found)
        return self._basis[1]

    def _choose_rate(self, spec: TrainSpec, what: str) -> tuple[TrainSpec, str]:
        """Climb from the usual rate in factors of two until both neighbours are worse.

        Of rates that the held-out rows cannot tell apart the smallest is taken: the training
        itself is longer than a trial, and a longer one wants a smaller rate.
        """

        def at(rate: float) -> Trial:
            return self._rehearsed(replace(spec, learning_rate=rate))

        tried = [at(spec.learning_rate), at(spec.learning_rate * RATE_FACTOR)]
        factor = (
            RATE_FACTOR if tried[1].measured.merit > tried[0].measured.merit else 1 / RATE_FACTOR
        )
        best = max(tried, key=lambda trial: trial.measured.merit)
        for _ in range(MAX_STEPS):
            tried.append(at(best.learning_rate * factor))
            if tried[-1].measured.merit <= best.measured.merit:
                break
            best = tried[-1]
        tried.sort(key=lambda trial: trial.learning_rate)
        enough = best.measured.merit - self._noise(best)
        chosen = next(trial for trial in tried if trial.measured.merit >= enough).learning_rate
        figures = [(f"{trial.learning_rate:.3g}", trial) for trial in tried]
        return (
            replace(spec, learning_rate=chosen),
            _reason(what, f"{chosen:.3g}", figures),
        )

    def _choose_whitening(self, spec: TrainSpec, *, climbs: bool) -> tuple[TrainSpec, list[str]]:
        """Return the training with rows whitened or not, and why.

        Whitened rows are as large as plain ones, so that both are compared at the same rate.
        """
        white = replace(spec, whitened=True)
        better, reason = self._better(spec, white, "rows", ("plain", "whitened"))
        if not better:
            return spec, [reason]
        if not climbs:
            return white, [reason]
        white, why_rate = self._choose_rate(white, "learning rate of whitened rows")
        return white, [reason, why_rate]

    def _choose_loss(
        self, spec: TrainSpec, loss: Coupling, *, climbs: bool
    ) -> tuple[TrainSpec, list[str]]:
        """Return the training with the better of two losses, each at its own rate, and why."""
        other, reasons = replace(spec, loss=loss), list[str]()
        if climbs:
            other, why_rate = self._choose_rate(other, f"learning rate of the {loss} loss")
            reasons.append(why_rate)
        better, reason = self._better(spec, other, "loss", (spec.loss, loss))
        return other if better else spec, [*reasons, reason]

    def _better(
        self, spec: TrainSpec, other: TrainSpec, what: str, names: tuple[str, str]
    ) -> tuple[bool, str]:
        """Return whether another training is better by more than noise, and the evidence.

        It has to be, since it takes longer.
        """
        tried = [self._rehearsed(spec), self._rehearsed(other)]
        better = tried[1].measured.merit > tried[0].measured.merit + self._noise(tried[0])
        return better, _reason(what, names[better], list(zip(names, tried, strict=True)))

    def _rehearsed(self, spec: TrainSpec) -> Trial:
        """Train as long as it takes to compare rates."""
        return self._try(spec, *trial(self._dataset.n_rows, spec.epochs))

    def _noise(self, trial: Trial) -> float:
        """Return half the standard error of P@1 on the held-out rows."""
        p = trial.measured.p_at_1
        return 0.5 * math.sqrt(p * (1 - p) / max(self._held.rows.n_rows, 1))

    def _try(self, spec: TrainSpec, rows: int, epochs: int) -> Trial:
        short = replace(spec, epochs=epochs)
        key = (short, rows)
        if key in self._trials:
            return self._trials[key]
        self._backend.prepare(short, self._plan.batch_nnz, self.basis(spec))
        reader = open_reader(self._dataset, self._plan, self._backend, short, self._held, rows=rows)
        try:
            for epoch in range(epochs):
                for _ in train_epoch(self._backend, reader, short, epoch):
                    self._on_batch()
            measured = measure(self._held.rows, by_hashes(self._backend, "logsum", spec.transform))
        except DivergedError:
            measured = Measured(0.0, 0.0)
        done = Trial(
            spec.transform, spec.whitened, spec.loss, spec.learning_rate, reader.n_rows, epochs,
            measured,
        )  # fmt: skip
        self._trials[key] = done
        self._on_trial(done)
        return done


def _reason(what: str, chosen: str, tried: list[tuple[str, Trial]]) -> str:
    first = tried[0][1]
    figures = ", ".join(
        f"{name} {t.measured.p_at_1:.3f} / {t.measured.p_at_5:.3f}" for name, t in tried
    )
    return (
        f"{what} {chosen}: held-out P@1 / P@5 after {first.epochs} epoch"
        f"{'s' if first.epochs > 1 else ''} of {first.rows:,} rows: {figures}"
    )
