"""Fits the weights by feature group: softmax over candidates of held-out rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.optimize
from numpy.typing import NDArray

from streammach.counts.learning import GroupWeights
from streammach.counts.table import CountTable
from streammach.data.store.dataset import Dataset
from streammach.parts.counts.count_bytes import MAX_GROUPS
from streammach.rows.dense import product
from streammach.rows.names import namespace_ids

# Where the fit starts, and what counts have where there is no time for one: fitted to three data
# sets, one group of features each (docs/experiments.md, "Counts alone").
SLOPE, MATCH, PENALTY, PRIOR, HASHED = 0.075, 0.56, 0.033, -0.15, 9.0
STRENGTH = 10.0  # of the pull towards the start, in rows of weight 1; measured between 1 and 10
SPREAD = (1.0, 5.0, 1.0, 1.0, 1.0, 30.0)  # of slope, match, learnt, penalty, prior, hashed
STEPS = 100
CURVATURE_ROWS = 256  # rows whose squares are held at once
REPEATED = np.float32(-1e9)
NAMESPACES = MAX_GROUPS // 5 - 1
OCTAVES = 5  # of a feature's rows: below 64, 256, 1,024, 4,096, and more
ENTROPIES = 5  # of a feature's classes, in steps of 1.5 nats


@dataclass(frozen=True, kw_only=True)
class CandidateFeatures:
    """What is known of the candidates of some rows, whose class is among them."""

    # float32 (n, m, 2 G + 1): sums of ln n by group, numbers of counted pairs by group, the sum of
    # learnt weights
    counted: NDArray[np.float32]
    groups: NDArray[np.float32]  # float32 (n, G): features of each group that the row holds
    # log_rows, log_values: float32 (n, m): logarithms of the rows of each candidate's class, and of
    # the features that they hold
    log_rows: NDArray[np.float32]
    log_values: NDArray[np.float32]
    hashed: NDArray[np.float32]  # float32 (n, m): mean logarithm of the hashed models
    repeated: NDArray[np.bool_]  # bool (n, m): whether the candidate stands further left already
    number: NDArray[np.int64]  # int64 (n,): number of each row, rising
    targets: NDArray[np.float32]  # float32 (n, m): 1 for each candidate that is one of the row's
    weights: NDArray[np.float32]  # float32 (n,): what each row counts
    listed: bool  # whether rows have lists of labels

    def own(self, z: NDArray[Any]) -> NDArray[Any]:
        """Return the sum of the scores of a row's classes, by scores (n, m)."""
        found: NDArray[Any] = (self.targets * z).sum(axis=1)
        return found

    def of_labels(self, each: NDArray[Any]) -> NDArray[Any]:
        """Return what is given for each label of a row, (n,) or (n, m), for all of them."""
        labels = self.targets.sum(axis=1).astype(each.dtype)
        found: NDArray[Any] = each * labels.reshape(-1, *(1,) * (each.ndim - 1))
        return found

    def part(self, first: int, last: int) -> CandidateFeatures:
        """Return the rows with numbers from `first` to below `last`."""
        a, b = np.searchsorted(self.number, [first, last])
        arrays: dict[str, Any] = {
            name: x[a:b] for name, x in vars(self).items() if isinstance(x, np.ndarray)
        }
        return replace(self, **arrays)

    def scores(self, x: NDArray[np.float64]) -> NDArray[np.float32]:
        """Return each candidate's score by weights in the order of :func:`in_order`."""
        w, g = x.astype(np.float32), self.n_groups
        n = 2 * g + 1
        z = product(self.counted.reshape(-1, n), w[:n]).reshape(self.repeated.shape)
        z -= product(self.groups, w[n : n + g])[:, None] * self.log_values
        z += w[-2] * self.log_rows + w[-1] * self.hashed
        z[self.repeated] = REPEATED
        return z

    def merged(self) -> CandidateFeatures:
        """Return the same with all groups as one."""
        g = self.n_groups
        slope, match = (self.counted[:, :, i : i + g].sum(axis=2) for i in (0, g))
        counted = np.stack([slope, match, self.counted[:, :, -1]], axis=2)
        return replace(self, counted=counted, groups=self.groups.sum(axis=1, keepdims=True))

    @property
    def n_rows(self) -> int:
        """Number of rows, n."""
        return len(self.number)

    @property
    def n_groups(self) -> int:
        """Number of groups, G."""
        return int(self.groups.shape[1])


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


def fit_groups(
    found: CandidateFeatures, start: GroupWeights, *, hashed: bool, learnt: bool
) -> GroupWeights:
    """Return the weights with the smallest loss.

    The loss is ``-ln softmax`` of the row's class over its candidates, which is convex in the
    weights, plus a pull: first one weight for all groups is fitted, then the groups, pulled towards
    it, so that a group which the rows hardly hold is weighed like the others.
    """
    g = found.n_groups
    common = np.array([SLOPE, MATCH, float(learnt), PENALTY, PRIOR, HASHED * hashed])
    active = np.array([True, True, learnt, True, True, hashed])
    one = _Problem(found.merged(), common, active).solve()
    sizes = [g, g, 1, g, 1, 1]
    x = _Problem(found, np.repeat(one, sizes), np.repeat(active, sizes)).solve()
    slope, match, rest, penalty, last = np.split(x, [g, 2 * g, 2 * g + 1, 3 * g + 1])
    return replace(
        start, slope=slope.astype(np.float32), match=match.astype(np.float32),
        penalty=penalty.astype(np.float32), prior=float(last[0]), learnt=float(rest[0]),
        hashed=float(last[1]),
    )  # fmt: skip


def in_order(weights: GroupWeights) -> NDArray[np.float64]:
    """Return slope, match, learnt, penalty, prior, hashed: float64 (3 G + 3,).

    The first 2 G + 1 are weights of the columns of ``counted``.
    """
    w = weights
    return np.concatenate([w.slope, w.match, [w.learnt], w.penalty, [w.prior, w.hashed]])


def top_k_hits(found: CandidateFeatures, weights: GroupWeights) -> tuple[float, float]:
    """Return what the rows count whose class is first, and among the first five candidates."""
    # Of rows with lists of labels, those with one first, and the fifth part of all among five.
    z, w = found.scores(in_order(weights)), found.weights.astype(np.float64)
    first = np.argsort(-z, axis=1, kind="stable")[:, :5]
    hits = np.take_along_axis(found.targets, first, axis=1) > 0
    five = float((hits.sum(axis=1) * w).sum())
    return float(w[hits[:, 0]].sum()), five / 5 if found.listed else five


class _Problem:
    """The loss and its gradient, at weights in the order of :func:`in_order`."""

    def __init__(
        self, found: CandidateFeatures, start: NDArray[np.float64], active: NDArray[np.bool_]
    ) -> None:
        g = found.n_groups
        self._found, self.start, self._active = found, start, active
        self._spread = np.repeat(SPREAD, [g, g, 1, g, 1, 1])
        self._n_counted = 2 * g + 1
        self._flat = found.counted.reshape(-1, self._n_counted)

    def solve(self) -> NDArray[np.float64]:
        """Return the weights, found by L-BFGS in coordinates scaled by the curvature."""
        scale = self.scale()
        best = scipy.optimize.minimize(
            self.loss, np.zeros(len(scale)), args=(scale,), jac=True, method="L-BFGS-B",
            bounds=self.bounds(scale), options={"maxiter": STEPS},
        )  # fmt: skip
        x: NDArray[np.float64] = self.start + best.x * scale
        return x

    def bounds(self, scale: NDArray[np.float64]) -> list[tuple[float | None, float | None]]:
        """Return bounds that keep the weight of the hashed models from falling below 0."""
        free: list[tuple[float | None, float | None]] = [(None, None)] * (len(scale) - 1)
        low = -self.start[-1] / scale[-1] if scale[-1] else 0.0
        return [*free, (low, None)]

    def scale(self) -> NDArray[np.float64]:
        """Return for each weight the step that changes the loss by about one half: 0 if fixed."""
        found = self._found
        p = self._probabilities(self.start)[0]
        curvature = np.zeros(len(self.start))
        for first in range(0, found.n_rows, CURVATURE_ROWS):
            part = slice(first, first + CURVATURE_ROWS)
            q, x, w = p[part], found.counted[part], found.weights[part, None]
            mean = np.einsum("nm,nmc->nc", q, x)
            square = np.einsum("nm,nmc->c", q * w, x * x)
            curvature[: self._n_counted] += square - (mean**2 * w).sum(0)
        spread = (p * found.log_values**2).sum(1) - (p * found.log_values).sum(1) ** 2
        curvature[self._n_counted : -2] = product(spread * found.weights, found.groups**2)
        for at, x in ((-2, found.log_rows), (-1, found.hashed)):
            curvature[at] = (((p * x * x).sum(1) - (p * x).sum(1) ** 2) * found.weights).sum()
        steps: NDArray[np.float64] = self._active / np.sqrt(
            np.maximum(curvature, 0) + STRENGTH / self._spread**2
        )
        return steps

    def loss(
        self, u: NDArray[np.float64], scale: NDArray[np.float64]
    ) -> tuple[float, NDArray[np.float64]]:
        """Return the loss and its gradient at ``start + u * scale``."""
        found, x = self._found, self.start + u * scale
        p, losses = self._probabilities(x)
        p = found.of_labels(p) - found.targets
        p *= found.weights[:, None]
        gradient = np.concatenate(
            [
                product(p.reshape(-1), self._flat),
                -product((p * found.log_values).sum(1), found.groups),
                [(p * found.log_rows).sum(), (p * found.hashed).sum()],
            ]
        ).astype(np.float64)
        pull = (x - self.start) / self._spread
        total = (losses * found.weights).sum(dtype=np.float64)
        total += STRENGTH / 2 * float(product(pull, pull))
        return total, (gradient + STRENGTH * pull / self._spread) * scale

    def _probabilities(
        self, x: NDArray[np.float64]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return each candidate's probability (n, m) and each row's loss (n,)."""
        found = self._found
        z = found.scores(x)
        top = z.max(axis=1, keepdims=True)
        own = found.own(z) - found.of_labels(top[:, 0])
        p = np.exp(z - top)
        total = p.sum(axis=1, keepdims=True)
        return p / total, found.of_labels(np.log(total[:, 0])) - own
