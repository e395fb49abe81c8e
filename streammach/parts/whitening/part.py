"""Whitening of dense rows as an optional part of their training.

Where features vary together, steps along them crowd out the directions that tell classes apart.
Training on ``x' = (x - m) P`` instead, with P a power of the covariance within classes, sees all
directions alike. What is learnt there is a model of plain rows: ``W = P W'`` and
``b = b' - m P W'``, of the same size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import scipy  # its modules load when they are used
import threadpoolctl
from numpy.typing import NDArray

from streammach.options.config import PartPlan, RunConfig
from streammach.options.facts import DataFacts
from streammach.options.training import TrainSpec
from streammach.options.types import Transform
from streammach.parts.base import Part
from streammach.parts.expected import WITHOUT, Choice, PartBytes, PartTime
from streammach.parts.switches import SWITCHES
from streammach.parts.training_record import Training, Trials
from streammach.rows import dense
from streammach.rows.block import RowBlock
from streammach.rows.dense import PIECE_BYTES, RowMap
from streammach.rows.label_lists import LabelLists
from streammach.rows.transforms import transform_block
from streammach.store.holdout import unmasked_rows

NAME = "whitening"
# Seconds of one thread of the machine of docs/planner.md.
BASIS = 0.011e-9  # a feature and a feature of a row that is whitened
DIRECTION = 0.3e-9  # three features: directions of a covariance
ROWS, ROWS_A_FEATURE = 65_536, 128  # looked at: at least, and at most where classes are rare
RATES = 2.0  # tried with whitened rows: one where they do not pay
POWER = 1.0  # of the standard deviations that are divided by
RIDGE = 1e-3  # of the mean variance, added to every direction's
MIN_ROWS = 4  # a feature, below which directions would be those of chance
TINY = 1e-30
FREEDOM = 8  # degrees of freedom a feature that a covariance within classes rests on


def find_obstacle(facts: DataFacts, config: RunConfig) -> str | None:
    """Return why rows cannot be whitened, in words; None if they can."""
    if not config.dense:
        return "rows are sparse"
    if not config.optimizer_kind.gains_by_whitening:
        return f"{config.optimizer} does not gain by it"
    if facts.n_features > dense.MAX_FEATURES or facts.n_rows < MIN_ROWS * facts.n_features:
        return "there are too few rows for so many features"
    return None


def list_choices(facts: DataFacts, config: RunConfig, *, sure: bool) -> Iterator[Choice]:
    """Yield with whitened rows, and without."""
    plan = PartPlan(name=NAME, basis=True, fixed=sure)
    yield Choice(plan=plan, why="room to whiten rows")
    if not sure:
        yield WITHOUT


def project_bytes(facts: DataFacts, config: RunConfig) -> PartBytes:
    """Return the bytes of finding a basis."""
    return PartBytes(memory={NAME: footprint(facts.n_features, facts.n_rows, facts.labels)})


def project_time(facts: DataFacts, config: RunConfig) -> PartTime:
    """Return the time of finding a basis, of products with it, and of its trials."""
    d = facts.n_features
    return PartTime(step=d**2 * BASIS, search=d**3 * DIRECTION, trials=RATES)


def search(training: Training, trials: Trials, spec: TrainSpec) -> tuple[TrainSpec, list[str]]:
    """Return the training with whitened rows or without, as held-out rows say, and why."""
    # Whitened rows are as large as plain ones, so that both are compared at the same rate.
    if spec.whitened:
        return spec, []
    white = switch_on(spec)
    better, reason = trials.better(spec, white, "rows", ("plain", "whitened"))
    if not better:
        return spec, [reason]
    if not trials.climbs:
        return white, [reason]
    white, why_rate = trials.choose_rate(white, "learning rate of whitened rows")
    return white, [reason, why_rate]


def switch_on(spec: TrainSpec) -> TrainSpec:
    """Return the training with whitened rows."""
    return replace(spec, whitened=True)


def map_rows(training: Training, spec: TrainSpec, before: RowMap | None) -> RowMap | None:
    """Return the basis of whitened rows, if the training has them."""
    return whitening_map(training, spec.transform) if spec.whitened else before


def whitening_map(training: Training, transform: Transform) -> RowMap:
    """Return the basis from the first rows of a store that are not held out.

    Rows of a store are shuffled, so that the first ones stand for all.
    """
    dataset, threads = training.dataset, training.plan.config.placement.threads
    d = dataset.n_features
    spread = Spread(d)
    with threadpoolctl.threadpool_limits(threads, user_api="blas"):
        for rows in unmasked_rows(dataset, training.holdout.mask):
            training.check_stop()
            spread.add(transform_block(rows, transform))
            if spread.n_rows >= ROWS and (spread.enough or spread.n_rows >= ROWS_A_FEATURE * d):
                break
        return spread.make_map()


def footprint(n_features: int, n_rows: int, labels: tuple[int, int] = (0, 0)) -> int:
    """Return the bytes of finding a basis from so many rows, and of the one before it."""
    square, piece = n_features * n_features, dense.piece_bytes(n_features, n_rows, labels)
    return square * (5 * 8 + 4) + 3 * piece + (16 + 8 * any(labels)) * (piece // n_features)


class Spread:
    """How rows spread, within classes and in all, from rows that are added.

    Classes are compared within pieces of rows, so that no table of their means is needed. A row
    with n labels that weigh alike counts under each with 1/n; one of importance w as w rows.
    """

    def __init__(self, n_features: int) -> None:
        self._within = np.zeros((n_features, n_features))
        self._all = np.zeros((n_features, n_features))
        self._sum, self._origin = np.zeros(n_features), np.zeros(n_features, np.float32)
        self._rows, self._n, self._values, self._squares = 0, 0.0, 0.0, 0.0
        self._free = 0.0  # degrees of freedom within classes

    @property
    def n_rows(self) -> int:
        """How many rows were added."""
        return self._rows

    @property
    def enough(self) -> bool:
        """Whether the covariance within classes rests on enough rows."""
        return self._free >= FREEDOM * len(self._sum)

    def add(self, rows: RowBlock) -> None:
        """Add rows with known classes, after their transform."""
        for part in dense.parts(rows, 4 * len(self._sum)):
            w = part.importance
            own = 1.0 if w is None else np.repeat(w, np.diff(part.indptr)).astype(np.float64)
            self._values += part.nnz if w is None else float(np.sum(own))
            self._squares += float((np.square(part.values, dtype=np.float64) * own).sum())
            x = dense.expand_rows(part, len(self._sum))
            if not self._rows:  # sums of squares lose less around a row's place than around 0
                self._origin = x.mean(axis=0)
            x -= self._origin
            self._rows += len(x)
            self._n += float(part.weights.sum(dtype=np.float64))
            self._sum += (
                x.sum(axis=0, dtype=np.float64) if w is None
                else np.einsum("i,ij->j", w, x, dtype=np.float64)
            )  # fmt: skip
            self._all += dense.squares(x, w)
            self._add_within(x, part.lists, w)

    def _add_within(
        self, x: NDArray[np.float32], labels: LabelLists, weights: NDArray[np.float32] | None
    ) -> None:
        # A class's mean is that with shares w. Where ``n = sum w``, the sum of squares around it
        # rests on ``n - (sum w^2) / n`` degrees of freedom: n - 1 where all w are 1.
        found = dense.LabelSums.of(x, labels, weights)
        means, rows = found.sums, labels.rows
        roots = np.sqrt(found.shares * found.weights).astype(np.float32)
        means /= np.maximum(found.rows, TINY)[:, None].astype(np.float32)
        step = max(1, PIECE_BYTES // (8 * x.shape[1]))
        for first in range(0, len(rows), step):
            some = slice(first, first + step)
            apart = x[rows[some]]
            apart -= means[found.which[some]]
            apart *= roots[some, None]
            self._within += dense.product(apart.T, apart)
        free = found.rows - found.squares / np.maximum(found.rows, TINY)
        self._free += float(np.sum(np.maximum(free, 0)))

    def make_map(self) -> RowMap:
        """Return the basis in which these rows are white, as large as before.

        ``P = c V (D + ridge)^(-POWER / 2) V^T`` of the covariance ``V D V^T`` within classes, or of
        all rows where too few share a class. c keeps the sum of a row's magnitudes about what it
        was, so that the same rates serve.
        """
        mean = self._sum / self._n
        overall = self._all / self._n - np.outer(mean, mean)
        chosen = self._within / self._free if self.enough else overall.copy()
        ridge = RIDGE * np.trace(chosen) / len(chosen) + np.finfo(np.float32).tiny
        chosen[np.diag_indices_from(chosen)] += ridge
        variances, directions = scipy.linalg.eigh(chosen, overwrite_a=True, check_finite=False)
        scaled = directions * np.maximum(variances, ridge) ** (-POWER / 2)
        rotation = dense.product(scaled, directions.T)
        spread = np.sqrt(
            max(float(np.sum(dense.product(rotation, overall) * rotation)), 1e-30) / len(mean)
        )
        size = np.sqrt(self._values * self._squares) / self._n
        rotation *= size / (len(mean) * spread)
        return RowMap(
            rotation.astype(np.float32),
            dense.product(self._origin + mean, rotation).astype(np.float32),
        )


PART = Part(
    name=NAME, switch=SWITCHES["whitening"], when="before", find_obstacle=find_obstacle,
    list_choices=list_choices, project_bytes=project_bytes, project_time=project_time,
    switch_on=switch_on, search=search, map_rows=map_rows,
)  # fmt: skip
