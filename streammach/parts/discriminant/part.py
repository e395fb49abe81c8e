"""A closed form beside trained exact weights of dense rows, as an optional part.

Added to the trained weights, which stay one table of the same size, a linear discriminant is to
dense rows what counts are to sparse ones. Held-out rows say with which weight, if with any. Beside
sigmoids it is one of log odds, whose scale theirs is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import threadpoolctl
from numpy.typing import NDArray

from streammach.backends.rowmath import LOWEST
from streammach.options.config import PartPlan, RunConfig
from streammach.options.facts import DataFacts
from streammach.options.figures import HeldOutMetrics, words
from streammach.options.training import TrainSpec
from streammach.parts.base import Part
from streammach.parts.discriminant import class_sums
from streammach.parts.discriminant.class_sums import Discriminant, label_ranks
from streammach.parts.expected import AccuracyDrop, Choice, PartBytes, PartTime
from streammach.parts.switches import SWITCHES
from streammach.parts.training_record import Decision, Training
from streammach.prediction.selection_metrics import measure_hits
from streammach.rows.block import RowBlock
from streammach.rows.dense import MAX_FEATURES, RowMap, laid_out, parts, product
from streammach.rows.transforms import transform_block
from streammach.store.holdout import masked_blocks, masked_rows

# Seconds of one thread of the machine of docs/planner.md: a feature of a row that is added, alone
# and with another one; of a solution, a class and two features; of a held-out row and a class, a
# feature and a share.
ADD, SQUARE, SOLVE, PRODUCT, TRY = 12e-9, 0.012e-9, 0.13e-9, 0.03e-9, 1.5e-9
NAME = "closed_form"
STAGE = "closed form"  # of the run; its name in ledgers
UNTRAINED_POINTS = 6.0  # that the epochs bring beside it: 1.3 and more were measured
LOST = AccuracyDrop(2.1, 2.1)  # by exact weights of dense rows without: 4.2 and 0 were measured
PRIOR_ROWS = (0.0, 0.3, 1.0)  # rows of the mean of all that a class is given beside its own
Linear = tuple[NDArray[np.float32], NDArray[np.float32]]
SHARES = (0.0, 0.03, 0.06, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0)
USUAL_PRIOR_ROWS = 0.3
SOLVED_SHARE = 0.5  # of the time of the sums, what each way to solve takes, about
SATURATED = float(-LOWEST)  # logits from which on sigmoids are 1, and rank alike


def find_obstacle(facts: DataFacts, config: RunConfig) -> str | None:
    """Return why there is no closed form, in words; None if there may be one."""
    if not config.dense:
        return "rows are sparse"
    if not {"first", "second"} <= set(config.optimizer_kind.per_weight):
        return f"{config.optimizer} leaves no room for it"
    if facts.n_features > MAX_FEATURES:
        return "there are too many features"
    return None


def list_choices(facts: DataFacts, config: RunConfig, *, sure: bool) -> Iterator[Choice]:
    """Yield with a closed form, and without."""
    yield Choice(plan=PartPlan(name=NAME), why="room for a closed form beside exact weights")
    if not sure:
        yield Choice(plan=None, loss=LOST)


def project_bytes(facts: DataFacts, config: RunConfig) -> PartBytes:
    """Return the bytes of the covariance and of its use."""
    room = class_sums.footprint(config.weight_rows, facts.n_rows, facts.labels)
    return PartBytes(memory={STAGE: room})


def project_time(facts: DataFacts, config: RunConfig) -> PartTime:
    """Return the time of the sums and of the solution."""
    d, k, held = config.weight_rows, config.shape.n_columns, config.batching.held_out_rows
    sums = facts.n_rows * d * (ADD + d * SQUARE)
    labels = max(facts.n_labels / facts.n_rows, 1)
    solved = k * (d * d * SOLVE + held * (d * PRODUCT + len(SHARES) * TRY * labels))
    finish = sums + len(PRIOR_ROWS) * solved
    return PartTime(
        finish=finish, elastic_points=UNTRAINED_POINTS, stages_after={STAGE: (finish, 0.0)}
    )


def measure_untrained(training: Training, spec: TrainSpec) -> HeldOutMetrics:
    """Return what held-out rows reach with a closed form alone."""
    return ClosedFormFit(training, spec).share_of(untrained=True).metrics


def fit(training: Training, spec: TrainSpec) -> ClosedFormFit:
    """Add the share that held-out rows want to the weights."""
    training.begin_stage(STAGE)
    fitting = ClosedFormFit(training, spec)
    share = fitting.share_of(untrained=not spec.epochs)
    training.report(share.reason)
    fitting.add(share)
    return fitting


@dataclass(frozen=True)
class ClosedFormShare:
    """How much of a closed form is added."""

    share: float  # its weight; 0 to leave it out
    prior_rows: float  # rows of the mean of all rows that each class is given beside its own
    metrics: HeldOutMetrics  # what held-out rows reach
    reason: str  # why, in a sentence


class ClosedFormFit(Decision):
    """A closed form for the exact weights of a backend that trains with Adam.

    Adam's two tables are used as room, and hold no state afterwards.
    """

    def __init__(self, training: Training, spec: TrainSpec) -> None:
        super().__init__()
        self._training, self._transform, self._logistic = training, spec.transform, spec.logistic
        self._threads, self._clock = training.plan.config.placement.threads, training.clock
        self._solving = 0.0  # seconds of the last solution
        self._backend, arrays = training.backend, training.backend.arrays()
        self._weights, self._bias = arrays["weights"], arrays["bias"]
        self._out = arrays["second"]
        projection = arrays.get("projection")
        self._waves = None if projection is None else RowMap(projection=projection)
        room = arrays["first"].reshape(self._out.shape[::-1])
        self._sums = Discriminant(room, self._waves)
        self._added = np.zeros_like(self._bias)

    def share_of(self, *, untrained: bool = False) -> ClosedFormShare:
        """Return the share that held-out rows want, from sums that do not hold them."""
        training, done = self._training, 0
        priors = (USUAL_PRIOR_ROWS,) if untrained else PRIOR_ROWS
        total, n_rows = 1 + SOLVED_SHARE * len(priors), training.dataset.n_rows
        began = self._clock.elapsed_seconds
        with threadpoolctl.threadpool_limits(self._threads, user_api="blas"):
            for block, held in masked_blocks(training.dataset, training.holdout.mask):
                training.check_stop()
                training.report_progress(done, total * n_rows)
                self._add_rows(block.take(np.flatnonzero(~held)))
                done += block.n_rows
                later = (total - 1) * n_rows / done * (self._clock.elapsed_seconds - began)
                if self._clock.remaining_seconds < later:  # the first rows stand for all
                    break
        return training.findings.once(
            "closed-form", ClosedFormShare, lambda: self._best(priors, untrained=untrained),
            of=[self._transform, untrained],
        )  # fmt: skip

    def _best(self, priors: tuple[float, ...], *, untrained: bool) -> ClosedFormShare:
        training, shares = self._training, (1.0,) if untrained else SHARES
        rows = training.holdout.rows
        if rows.labels is None:
            rows = rows.take(np.flatnonzero(rows.classes >= 0))
        rows, most = transform_block(rows, self._transform), SATURATED if self._logistic else None
        found: dict[tuple[float, float], HeldOutMetrics] = {}
        with threadpoolctl.threadpool_limits(self._threads, user_api="blas"):
            for i, prior_rows in enumerate(priors):
                training.check_stop()
                if found and self._clock.remaining_seconds < self._solving:
                    break
                training.report_progress(1 + SOLVED_SHARE * i, 1 + SOLVED_SHARE * len(priors))
                closed = (self._out, self._solve(prior_rows))
                trained = (self._weights, self._bias)
                for share, metrics in _measure_shares(
                    rows, trained, closed, self._waves, shares, most
                ):
                    found[share, prior_rows if share else 0.0] = metrics
        share, prior_rows = max(found, key=lambda tried: found[tried].selection_score)
        best, alone = found[share, prior_rows], found.get((0.0, 0.0))
        both = words(training.dataset.listed).both
        reason = (
            f"closed form {'added' if share else 'left out'}: share {share:g}, means with "
            f"{prior_rows:g} rows of all: held-out {both} {best.text}"
        )
        if alone is not None:
            reason += f", {alone.text} without"
        return ClosedFormShare(share, prior_rows, best, reason)

    def add(self, chosen: ClosedFormShare) -> None:
        """Add what was chosen to the weights; nothing where the share is 0."""
        self._chosen, self.reasons = chosen, (chosen.reason,)
        if chosen.share:
            self._put(chosen)

    def learn_held_out(self) -> None:
        """Take the held-out rows into what was added to the weights."""
        chosen = self._chosen
        if not chosen.share or self._clock.remaining_seconds < self._solving:
            return
        self._weights -= self._out
        self._bias -= self._added
        with threadpoolctl.threadpool_limits(self._threads, user_api="blas"):
            for rows in masked_rows(self._training.dataset, self._training.holdout.mask):
                self._training.check_stop()
                self._add_rows(rows)
        self._put(chosen)

    def _put(self, chosen: ClosedFormShare) -> None:
        share = np.float32(chosen.share)
        with threadpoolctl.threadpool_limits(self._threads, user_api="blas"):
            self._added = share * self._solve(chosen.prior_rows)
        self._out *= share
        self._weights += self._out
        self._bias += self._added
        self._backend.restore()

    def _solve(self, prior_rows: float) -> NDArray[np.float32]:
        began = self._clock.elapsed_seconds
        bias = self._sums.solve(prior_rows, self._out, centred=self._logistic)
        self._solving = self._clock.elapsed_seconds - began
        return bias

    def _add_rows(self, rows: RowBlock) -> None:
        self._sums.add(transform_block(rows, self._transform))


def _measure_shares(
    rows: RowBlock, trained: Linear, closed: Linear, waves: RowMap | None = None,
    shares: tuple[float, ...] = SHARES, most: float | None = None,
) -> Iterable[tuple[float, HeldOutMetrics]]:  # fmt: skip
    """Return what trained weights and a share of closed ones reach together, for each share."""
    hits = np.zeros((len(shares), 3))
    d, k = trained[0].shape
    for part in parts(rows, 4 * max(d, k)):
        labels = part.lists
        w = part.weights.astype(np.float64)[labels.rows]
        rank = np.empty(labels.n_labels, np.int64)
        for i, both in enumerate(_scores(laid_out(part, d, waves), shares, trained, closed)):
            if most is not None:
                np.minimum(both, most, out=both)
            label_ranks(labels.starts, labels.classes, both, rank)
            five, gains = rank < 5, 1 if labels.weights is None else labels.weights
            hits[i] += w[rank < 1].sum(), w[five].sum(), (w * gains)[five].sum()
    return [(share, measure_hits(rows, sums)) for share, sums in zip(shares, hits, strict=True)]


def _scores(
    x: NDArray[np.float32], shares: tuple[float, ...], trained: Linear, closed: Linear
) -> Iterator[NDArray[np.float32]]:
    """Yield the scores of rows with each share, in the same array float32 (n, K)."""
    z, more = (product(x, weights) for weights, _ in (trained, closed))
    z += trained[1]
    more += closed[1]
    both = np.empty_like(z)
    for share in shares:
        np.multiply(more, np.float32(share), out=both)
        both += z
        yield both


PART = Part(
    name=NAME, switch=SWITCHES["discriminant"], weighed=True, exact_only=True,
    changes_weights=True, find_obstacle=find_obstacle, list_choices=list_choices,
    project_bytes=project_bytes, project_time=project_time, fit=fit,
    measure_untrained=measure_untrained,
)  # fmt: skip
