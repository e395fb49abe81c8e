"""Candidates of the fit of group weights, and its kernels: scores, and what their loss asks for."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammach.system.jit import Array, Number, kernel
from streammach.system.threads import Workers, in_pieces

REPEATED = np.float32(-1e9)  # the score of a candidate that stands further left already


class FitRoom(NamedTuple):
    """Scratch for a row at a time: its columns, and which weights each of them has."""

    columns: Array  # float32 (2 G + 4, m): those that are not zero, then ln N, ln n, and hashed
    each: Array  # float32 (2 G + 4,): the weight of each column, then its gradient
    products: Array  # float32 (2 G + 4, 2 G + 4): of the columns with one another
    scores: Array  # scores, chances: float32 (m,)
    chances: Array
    which: Array  # int64 (3 G + 3,): the weights that the row has a part of, rising
    of: Array  # int64 (3 G + 3,): the column of each
    by: Array  # float32 (3 G + 3,): and what it is multiplied with

    @classmethod
    def of_rows(cls, n_groups: int, m: int) -> FitRoom:
        """Return scratch for m candidates of rows with so many groups."""
        n, weights = 2 * n_groups + 4, 3 * n_groups + 3
        which, of = np.empty((2, weights), np.int64)
        scores, chances = np.empty((2, m), np.float32)
        columns, products = np.empty((n, m), np.float32), np.empty((n, n), np.float32)
        by, each = np.empty(weights, np.float32), np.empty(n, np.float32)
        return cls(columns, each, products, scores, chances, which, of, by)

    @staticmethod
    def footprint(n_groups: int, m: int) -> int:
        """Return the bytes of a thread's scratch."""
        n = 2 * n_groups + 4
        return 4 * n * (m + n + 1) + 8 * m + 20 * (3 * n_groups + 3)


class CandidateFeatures(NamedTuple):
    """What is known of the candidates of some rows, whose class is among them."""

    # counted, starts, groups: float32 (C, m), int64 (n + 1,), float32 (n, G): see
    # :class:`Evidence`
    counted: NDArray[np.float32]
    starts: NDArray[np.int64]
    groups: NDArray[np.float32]
    # log_rows, log_values: float32 (n, m): logarithms of the rows of each candidate's class, and of
    # the features that they hold
    log_rows: NDArray[np.float32]
    log_values: NDArray[np.float32]
    hashed: NDArray[np.float32]  # float32 (n, m): mean logarithm of the hashed models
    repeated: NDArray[np.bool_]  # bool (n, m): whether the candidate stands further left already
    number: NDArray[np.int64]  # int64 (n,): number of each row, rising
    # float32 (n, m): for each candidate that is one of the row's 1, or its weight; 0 for others
    targets: NDArray[np.float32]
    weights: NDArray[np.float32]  # float32 (n,): what each row counts
    listed: bool  # whether rows have lists of labels

    def part(self, first: int, last: int) -> CandidateFeatures:
        """Return the rows with numbers from `first` to below `last`."""
        a, b = np.searchsorted(self.number, [first, last])
        arrays: dict[str, Any] = {
            name: x[a:b] for name, x in self._asdict().items() if isinstance(x, np.ndarray)
        }
        arrays |= {"counted": self.counted, "starts": self.starts[a : b + 1]}
        return self._replace(**arrays)

    def scores(self, x: NDArray[np.float64], workers: Workers) -> NDArray[np.float32]:
        """Return each candidate's score by weights in the order of :func:`in_order`."""
        out = np.empty(self.repeated.shape, np.float32)

        def piece(first: int, last: int) -> None:
            score_rows(self, x, first, last, self.room(), out)

        in_pieces(workers, self.n_rows, piece)
        return out

    def room(self) -> FitRoom:
        """Return a thread's scratch for kernels."""
        return FitRoom.of_rows(self.n_groups, self.repeated.shape[1])

    def merge_groups(self) -> CandidateFeatures:
        """Return the same with all groups as one."""
        counted = np.empty((3 * self.n_rows, self.repeated.shape[1]), np.float32)
        for i, (a, b) in enumerate(pairwise(self.starts)):
            middle = (a + b - 1) // 2
            for j, own in enumerate((slice(a, middle), slice(middle, b - 1), slice(b - 1, b))):
                self.counted[own].sum(axis=0, out=counted[3 * i + j])
        return self._replace(
            counted=counted, starts=3 * np.arange(self.n_rows + 1),
            groups=self.groups.sum(axis=1, keepdims=True),
        )  # fmt: skip

    @property
    def n_rows(self) -> int:
        """Number of rows, n."""
        return len(self.number)

    @property
    def n_groups(self) -> int:
        """Number of groups, G."""
        return int(self.groups.shape[1])


@kernel()
def score_rows(
    rows: CandidateFeatures, weights: Array, first: int, last: int, room: FitRoom, out: Array
) -> None:
    """Write the scores of the candidates of rows ``first:last`` to `out` float32 (n, m).

    Parameters
    ----------
    rows, weights : CandidateFeatures, float64 (3 G + 3,)
        The rows; slope, match, learnt, penalty, prior, hashed.
    first, last, room : int, int, FitRoom
        Which rows; scratch.
    out : float32 (n, m)
        Receives them.
    """
    for i in range(first, last):
        score_row(rows, i, weights, room)
        copy(room.scores, out[i])


@kernel()
def add_losses(
    rows: CandidateFeatures, weights: Array, first: int, last: int, room: FitRoom, gradient: Array,
    curvature: Array,
) -> float:  # fmt: skip
    """Return the loss of rows ``first:last``; add up its first and second derivatives.

    The loss of a row is ``w sum_l -ln softmax(scores)[l]`` over its labels l.

    Parameters
    ----------
    rows, weights, first, last, room : CandidateFeatures, float64 (3 G + 3,), int, int, FitRoom
        As of :func:`score_rows`.
    gradient, curvature : float64 (3 G + 3,), float64 (3 G + 3, 3 G + 3)
        Grow by the derivatives, `curvature` at and below its diagonal.
    """
    loss = 0.0
    for i in range(first, last):
        n_columns, n = score_row(rows, i, weights, room)
        loss += derive_row(rows.targets[i], rows.weights[i], n_columns, room)
        for a in range(n):
            gradient[room.which[a]] += room.by[a] * room.each[room.of[a]]
            products, own = room.products[room.of[a]], curvature[room.which[a]]
            for b in range(a + 1):
                own[room.which[b]] += room.by[a] * room.by[b] * products[room.of[b]]
    return loss


@kernel(fastmath=False, inner=True)
def score_row(rows: CandidateFeatures, i: int, weights: Array, room: FitRoom) -> Any:
    """Write a row's columns and scores; return how many columns and weights it has."""
    n_columns, n = take_columns(rows, i, room)
    each, scores = room.each[:n_columns], room.scores
    each[:], scores[:] = 0, 0
    for j in range(n):
        each[room.of[j]] += room.by[j] * weights[room.which[j]]
    for c in range(n_columns):
        for k in range(scores.shape[0]):
            scores[k] += each[c] * room.columns[c, k]
    for k in range(scores.shape[0]):
        if rows.repeated[i, k]:
            scores[k] = REPEATED
    return n_columns, n


@kernel(fastmath=False, inner=True)
def take_columns(rows: CandidateFeatures, i: int, room: FitRoom) -> Any:
    """Copy a row's columns, and note which weights stand for them; return how many each are."""
    groups, counted = rows.groups[i], rows.counted[rows.starts[i] : rows.starts[i + 1]]
    n_groups, n = groups.shape[0], 0
    for w in range(2 * n_groups + 1):
        if w == 2 * n_groups or groups[w % n_groups] != 0:
            copy(counted[n], room.columns[n])
            room.which[n], room.of[n], room.by[n] = w, n, 1
            n += 1
    c = n
    for g in range(n_groups):
        if groups[g] != 0:
            room.which[n], room.of[n], room.by[n] = 2 * n_groups + 1 + g, c, -groups[g]
            n += 1
    copy(rows.log_values[i], room.columns[c])
    copy(rows.log_rows[i], room.columns[c + 1])
    copy(rows.hashed[i], room.columns[c + 2])
    for j in range(2):
        room.which[n], room.of[n], room.by[n] = 3 * n_groups + 1 + j, c + 1 + j, 1
        n += 1
    return c + 3, n


@kernel(inline=True)
def copy(x: Array, out: Array) -> None:
    """Copy numbers: float32 (m,)."""
    for k in range(x.shape[0]):
        out[k] = x[k]


@kernel(inline=True)
def derive_row(targets: Array, weight: Number, n_columns: int, room: FitRoom) -> Any:
    """Return a row's loss; write its gradient by column, and the products of the columns."""
    m, scores, chances = targets.shape[0], room.scores, room.chances
    top, labels, own, total = scores[0], np.float32(0), np.float32(0), np.float32(0)
    for k in range(1, m):
        top = max(top, scores[k])
    for k in range(m):
        chances[k] = math.exp(scores[k] - top)
        total += chances[k]
        labels += targets[k]
        own += targets[k] * (scores[k] - top)
    for k in range(m):
        chances[k] /= total
        scores[k] = math.sqrt(weight * labels * chances[k])
    for c in range(n_columns):
        x, mean, slope = room.columns[c], np.float32(0), np.float32(0)
        for k in range(m):
            mean += chances[k] * x[k]
            slope += targets[k] * x[k]
        room.each[c] = weight * (labels * mean - slope)
        for k in range(m):
            x[k] = (x[k] - mean) * scores[k]
        for b in range(c + 1):
            other, product = room.columns[b], np.float32(0)
            for k in range(m):
                product += x[k] * other[k]
            room.products[c, b] = product
    return weight * (labels * math.log(total) - own)
