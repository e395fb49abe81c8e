"""Fits the weights by feature group: softmax over candidates of held-out rows."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammach.counts.table import CountTable, GroupWeights
from streammach.parts.counts.count_bytes import FIT_PIECES, MAX_GROUPS
from streammach.parts.counts.group_kernels import CandidateFeatures, add_losses
from streammach.prediction.selection_metrics import sum_hits
from streammach.rows.dense import product
from streammach.rows.names import namespace_ids
from streammach.store.dataset import Dataset
from streammach.system.threads import Workers

# Where the fit starts, and what counts have where there is no time for one: fitted to three data
# sets, one group of features each (docs/experiments.md, "Counts alone").
SLOPE, MATCH, PENALTY, PRIOR, HASHED = 0.075, 0.56, 0.033, -0.15, 9.0
STRENGTH = 10.0  # of the pull towards the start, in rows of weight 1; measured between 1 and 10
SPREAD = (1.0, 5.0, 1.0, 1.0, 1.0, 30.0)  # of slope, match, learnt, penalty, prior, hashed
STEPS = 50  # at most; 5 to 8 were measured
CLOSE = 0.01  # nats of all rows that a last step wins
NAMESPACES = MAX_GROUPS // 5 - 1
OCTAVES = 5  # of a feature's rows: below 64, 256, 1,024, 4,096, and more
ENTROPIES = 5  # of a feature's classes, in steps of 1.5 nats


def groupings(dataset: Dataset, table: CountTable) -> dict[str, NDArray[np.int32]]:
    """Return the ways to group features: names, and int32 (d,) from 0 without gaps."""
    octave = np.log2(np.maximum(dataset.feature_counts, 1) / 16) / 2
    frequency = np.clip(octave, 0, OCTAVES - 1).astype(np.int32)
    entropy = np.clip(table.entropies() / 1.5, 0, ENTROPIES - 1).astype(np.int32)
    space = namespace_ids(dataset.features, NAMESPACES)
    ways = {"frequency x entropy": frequency * ENTROPIES + entropy}
    if len(np.unique(space)) > 1:
        ways = {
            "namespace x frequency": space * OCTAVES + frequency,
            "namespace x entropy": space * ENTROPIES + entropy,
            **ways,
        }
    return {name: np.unique(way, return_inverse=True)[1].astype(np.int32)
            for name, way in ways.items()}  # fmt: skip


def start_weights(group: NDArray[np.int32]) -> GroupWeights:
    """Return the weights where the fit starts, for groups int32 (d,)."""
    n = int(group.max()) + 1
    slope, match, penalty = (np.full(n, x, np.float32) for x in (SLOPE, MATCH, PENALTY))
    return GroupWeights(
        group=group, slope=slope, match=match, penalty=penalty, prior=PRIOR, learnt=0.0,
        hashed=HASHED,
    )  # fmt: skip


def usual_weights(n_features: int) -> GroupWeights:
    """Return what features usually weigh, where nothing was fitted: all are one group."""
    return start_weights(np.zeros(n_features, np.int32))


def fit_groups(
    found: CandidateFeatures, start: GroupWeights, *, hashed: bool, learnt: bool, workers: Workers
) -> GroupWeights:
    """Return the weights with the smallest loss.

    The loss is ``-ln softmax`` of the row's class over its candidates, which is convex in the
    weights, plus a pull: first one weight for all groups is fitted, then the groups, pulled towards
    it, so that a group which the rows hardly hold is weighed like the others.
    """
    g = found.n_groups
    common = np.array([SLOPE, MATCH, float(learnt), PENALTY, PRIOR, HASHED * hashed])
    active = np.array([True, True, learnt, True, True, hashed])
    one = _Problem(found.merge_groups(), common, active, workers).solve()
    sizes = [g, g, 1, g, 1, 1]
    x = _Problem(found, np.repeat(one, sizes), np.repeat(active, sizes), workers).solve()
    slope, match, rest, penalty, last = np.split(x, [g, 2 * g, 2 * g + 1, 3 * g + 1])
    return replace(
        start, slope=slope.astype(np.float32), match=match.astype(np.float32),
        penalty=penalty.astype(np.float32), prior=float(last[0]), learnt=float(rest[0]),
        hashed=float(last[1]),
    )  # fmt: skip


def in_order(weights: GroupWeights) -> NDArray[np.float64]:
    """Return slope, match, learnt, penalty, prior, hashed: float64 (3 G + 3,).

    The first 2 G + 1 are weights of what is counted, see :class:`Evidence`.
    """
    w = weights
    return np.concatenate([w.slope, w.match, [w.learnt], w.penalty, [w.prior, w.hashed]])


def top_k_hits(
    found: CandidateFeatures, weights: GroupWeights, workers: Workers
) -> NDArray[np.float64]:
    """Return the sums of the first five candidates of rows.

    See :func:`streammach.prediction.selection_metrics.sum_hits`: float64 (3,).
    """
    first = np.argsort(-found.scores(in_order(weights), workers), axis=1, kind="stable")[:, :5]
    return sum_hits(np.take_along_axis(found.targets, first, axis=1), found.weights)


class _Loss(NamedTuple):
    """The loss at some weights, and its derivatives."""

    value: float
    gradient: NDArray[np.float64]  # float64 (3 G + 3,)
    curvature: NDArray[np.float64]  # float64 (3 G + 3, 3 G + 3)


class _Problem:
    """The loss as a function of weights in the order of :func:`in_order`, and where it is least."""

    def __init__(
        self, found: CandidateFeatures, start: NDArray[np.float64], active: NDArray[np.bool_],
        workers: Workers,
    ) -> None:  # fmt: skip
        g, n = found.n_groups, len(start)
        self._found, self.start, self._workers = found, start, workers
        self._free = np.flatnonzero(active)
        self._strength = STRENGTH / np.repeat(SPREAD, [g, g, 1, g, 1, 1]) ** 2
        # The sums of each piece: bytes do not depend on the number of threads.
        self._sums = np.empty((FIT_PIECES, n + 1, n))
        self._losses = np.empty(FIT_PIECES)

    def solve(self) -> NDArray[np.float64]:
        """Return the weights, found by Newton's method; that of the hashed models is 0 or more."""
        x, here = self.start, self.loss(self.start)
        step, gain = self._step(x, here)
        for _ in range(STEPS):
            if gain < CLOSE:
                return x + step
            there = self.loss(x + step)
            if there.value < here.value:
                x, here = x + step, there
                step, gain = self._step(x, here)
            else:
                step = step / 2
        return x

    def loss(self, x: NDArray[np.float64]) -> _Loss:
        """Return the loss at some weights."""
        found, n = self._found, self._found.n_rows

        def piece(first: int, last: int) -> None:
            for i in range(first, last):
                rows, sums = (n * i // FIT_PIECES, n * (i + 1) // FIT_PIECES), self._sums[i]
                sums[:] = 0
                self._losses[i] = add_losses(found, x, *rows, found.room(), sums[-1], sums[:-1])

        self._workers.each(piece, [(i, i + 1) for i in range(FIT_PIECES)])
        sums, pull = self._sums.sum(axis=0), (x - self.start) * self._strength
        below = np.tril(sums[:-1], -1)
        value = self._losses.sum() + (pull * (x - self.start)).sum() / 2
        curvature = below + below.T + np.diag(sums[:-1].diagonal() + self._strength)
        return _Loss(float(value), sums[-1] + pull, curvature)

    def _step(self, x: NDArray[np.float64], at: _Loss) -> tuple[NDArray[np.float64], float]:
        """Return the step to where the loss is least if it is quadratic, and what it wins then."""
        step = np.zeros(len(x))
        free, last = self._free, len(x) - 1
        step[free] = np.linalg.solve(at.curvature[np.ix_(free, free)], -at.gradient[free])
        if x[last] + step[last] < 0:
            free = free[free != last]
            step[last] = -x[last]
            rest = at.gradient[free] + at.curvature[free, last] * step[last]
            step[free] = np.linalg.solve(at.curvature[np.ix_(free, free)], -rest)
        slope = at.gradient + product(at.curvature, step) / 2
        return step, -float((step * slope).sum())
