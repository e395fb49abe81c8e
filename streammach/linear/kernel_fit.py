"""Ridge regression of classes on mapped rows, in closed form, and a linear discriminant.

Bandwidth and ridge are chosen by rows that are held out, or by each row of a sample when it is
left out of the training, which a closed form gives for all rows at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy  # its modules load when they are used
import threadpoolctl
from numpy.typing import NDArray

from streammach.linear.kernel_map import LINEAR, KernelMap, KernelWeights, pieces_of
from streammach.rows.dense import product

# rows float32 (n, d), their classes int (n,), and what each counts, float32 (n,)
Rows = tuple[NDArray[np.float32], NDArray[Any], NDArray[np.float32]]
Blocks = Callable[[], Iterable[Rows]]

# of kernels: exp(-bandwidth / 2d |x - y|^2) of d columns whose variance is 1
BANDWIDTHS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
FIRST = BANDWIDTHS.index(2.0)  # tried; its neighbours follow while they are better
RIDGES = (1e-1, 1.0, 1e-2, 10.0, 1e-3)  # beside sums over rows; the usual one first
# 16,000 rows of 10 columns take 7 processor seconds by them, 65,000 take 16; 1,024 lose 2 points
MOST_CENTRES = 2048
SEARCH_CENTRES = 1024
SAMPLE = 8000  # rows by which bandwidth and quantiles are chosen
# Rows count n ** -0.25 by the number n of rows of their class: on two sets of 26 and 58 classes
# macro F1 gains 1.0 and 1.2 points, and accuracy loses nothing.
BALANCE = 0.25
ROUNDING = 1e-12  # of sums over up to some ten million rows
SQUARES = 0.3  # beside wrong rows: surer where rows are few, another choice where classes are many
LARGEST_SHARE = 0.999  # of a row in its own score
# Of a linear discriminant: classes as normal distributions of the same shape. Where that is so, it
# needs fewer rows than any other way.
FOLDS = 5  # by which rows are scored that were not learnt from
PRIOR_ROWS = 0.3  # rows of the mean of all that a class has beside its own
SHRUNK = 1e-3  # share of the mean variance that is added to each column's
STREAM = 0x53414D50  # keeps these random numbers apart from others of the same seed


@dataclass(frozen=True)
class KernelFit:
    """Weights, and what rows score that were not in them: held-out rows, or each by all others."""

    weights: KernelWeights
    ridge: float
    loss: float  # how bad the scores are
    scores: NDArray[np.float32] | None  # float32 (n, K); `None` if they are those of a sample


def fit_bytes(n_features: int, n_rows: int, n_classes: int) -> int:
    """Return the most bytes that a fit takes beside its rows."""
    columns = min(n_rows, MOST_CENTRES) + n_features + 1
    search = min(n_rows, SAMPLE) * (min(columns, SEARCH_CENTRES + n_features + 1) + n_features)
    return 3 * 8 * columns * columns + 4 * 8 * columns * n_classes + 2 * 4 * search + (96 << 20)


def fit_kernel(
    blocks: Blocks, n_classes: int, *, held: Rows | None = None,
    learn_held: bool = False, missing: NDArray[np.int64] | None = None, seed: int = 0,
    check: Callable[[], None] = lambda: None, most_centres: int = MOST_CENTRES,
    is_over: Callable[[], bool] = lambda: False,
) -> KernelFit:  # fmt: skip
    """Return a linear scorer of mapped rows, its bandwidth and ridge chosen.

    Blocks are read twice. `held` rows judge, and are learnt too if `learn_held`, after the
    choice and their scores; without them each row judges that is left out of the others.
    `missing`, int64 (d,), is the place of the column that is 1 where a column is missing, or -1.
    `check` is called often and may raise; no more is tried when `is_over` says so.
    """
    # Threads that wait for one another take more time than they save, and change last digits.
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        sample, counts = sample_rows(blocks, n_classes, seed)
        n_rows, balance = int(counts.sum()), weigh_classes(counts)
        base = KernelMap.of(sample[0], missing, most_centres, seed)
        search = KernelSearch(base, sample, held, balance, check, is_over)
        sums = Sums(base.at_bandwidth(search.choose_bandwidth()), n_classes)
        for x, classes, weights in blocks():
            check()
            sums.add(x, classes, weights * balance[classes])
        best, plain = search.choose_ridge(sums), search.fit_plain()
        if held is not None and learn_held:
            sums.add(held[0], held[1], held[2] * balance[held[1]])
            best = replace(best, weights=sums.solve(best.ridge)[0])
        if plain is not None and search.is_better(plain, best):
            best = plain
    return best if held is not None or n_rows <= SAMPLE else replace(best, scores=None)


def sample_rows(blocks: Blocks, n_classes: int, seed: int) -> tuple[Rows, NDArray[np.int64]]:
    """Return some rows, all where there are few, and how many of each class there are."""
    rng, counts = np.random.default_rng([seed, STREAM]), np.zeros(n_classes, np.int64)
    found: list[NDArray[Any]] = []  # of the rows that were chosen
    for block in blocks():
        counts += np.bincount(block[1], minlength=n_classes)
        own = [*block, rng.random(len(block[1]))]  # those of the smallest numbers are chosen
        found = [np.concatenate(pair) for pair in zip(found, own, strict=True)] if found else own
        if len(found[3]) > SAMPLE:
            chosen = np.sort(np.argpartition(found[3], SAMPLE)[:SAMPLE])
            found = [array[chosen] for array in found]
    return (found[0], found[1], found[2]), counts


def weigh_classes(counts: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return what a row of each class counts, 1 for all rows on average: float32 (K,)."""
    own: NDArray[np.float64] = np.maximum(counts, 1.0) ** -BALANCE
    own *= counts.sum() / max(float((own * counts).sum()), 1e-30)
    return own.astype(np.float32)


class Sums:
    """Sums over rows of a map: all that weights of any ridge are made of."""

    def __init__(self, own: KernelMap, n_classes: int) -> None:
        self.map, size = own, own.n_columns + 1
        self.penalty = scipy.linalg.block_diag(own.penalty(), 1)
        self.squares = np.zeros((size, size))  # P'P, the last column of P being 1
        self.targets = np.zeros((size, n_classes))  # P'Y, Y being 1 for the own class, else -1

    def add(
        self, x: NDArray[np.float32], classes: NDArray[Any], weights: NDArray[np.float32]
    ) -> None:
        """Add rows float32 (n, d), with what each counts."""
        for some in pieces_of(len(x), len(self.squares)):
            roots = np.sqrt(weights[some])[:, None]
            columns = self.columns_of(x[some]) * roots
            self.squares += product(columns.T, columns)
            targets = targets_of(classes[some], self.targets.shape[1])
            self.targets += product(columns.T, targets * roots)

    def columns_of(self, x: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return mapped rows and a 1: float64 (n, m + d + 1)."""
        return np.concatenate([self.map.apply(x), np.ones((len(x), 1))], axis=1)

    def solve(self, ridge: float) -> tuple[KernelWeights, NDArray[np.float64]]:
        """Return weights, and the Cholesky factor of the squares with the ridge."""
        squares = self.squares + ridge * self.penalty
        squares.flat[:: len(squares) + 1] *= 1 + ROUNDING
        factor, _ = scipy.linalg.cho_factor(
            squares, lower=True, overwrite_a=True, check_finite=False
        )
        found = scipy.linalg.cho_solve((factor, True), self.targets).astype(np.float32)
        return KernelWeights(self.map, found[:-1], found[-1]), factor

    def leave_out(self, fit: tuple[KernelWeights, NDArray[np.float64]], rows: Rows) -> Any:
        """Return what rows in the sums score by all others: float32 (n, K).

        The weights without a row, with which the row is left out, follow from those with it.
        """
        x, classes, weights = rows
        (found, factor), n_classes = fit, self.targets.shape[1]
        scores = found.scores(x)
        for some in pieces_of(len(x), len(self.squares)):
            columns = self.columns_of(x[some])
            half = scipy.linalg.solve_triangular(factor, columns.T, lower=True, check_finite=False)
            own = np.minimum(np.einsum("ij,ij->j", half, half) * weights[some], LARGEST_SHARE)
            scores[some] -= own[:, None] * targets_of(classes[some], n_classes)
            scores[some] /= (1 - own)[:, None]
        return scores


@dataclass(frozen=True)
class KernelSearch:
    """What is tried by some rows: with a map for a bandwidth of 1, judged by these or by others."""

    base: KernelMap
    sample: Rows
    held: Rows | None
    balance: NDArray[np.float32]  # float32 (K,): what a row counts by its class
    check: Callable[[], None]
    is_over: Callable[[], bool]  # whether there is no time to try more

    def choose_bandwidth(self) -> float:
        """Return the bandwidth that is best on the way from the first one."""
        losses: dict[int, float] = {}
        best, before = FIRST, -1
        while best != before:
            before = best
            for place in range(max(best - 1, 0), min(best + 2, len(BANDWIDTHS))):
                if place not in losses and not (losses and self.is_over()):
                    losses[place] = self._loss_at(BANDWIDTHS[place])
            best = min(losses, key=lambda place: losses[place])
        return BANDWIDTHS[best]

    def _loss_at(self, bandwidth: float) -> float:
        x, classes, weights = self.sample
        sums = Sums(self.base.at_bandwidth(bandwidth, SEARCH_CENTRES), len(self.balance))
        sums.add(x, classes, weights * self.balance[classes])
        return self.choose_ridge(sums, some=SAMPLE).loss

    def fit_plain(self) -> KernelFit | None:
        """Return a linear discriminant of the sample; None where a row alone says nothing."""
        k, (x, classes, weights) = len(self.balance), self.sample
        if len(x) < 2 * k:
            return None
        found = fit_discriminant(self.base, x, classes, weights, k)
        if self.held is None:
            scores = score_by_folds(self.base, x, classes, weights, k)
        else:
            scores = found.scores(self.held[0])
        return KernelFit(found, 0.0, 0.0, scores)

    def is_better(self, plain: KernelFit, best: KernelFit) -> bool:
        """Return whether a discriminant is wrong less often, by half a standard error or more."""
        _, classes, weights = self.sample if self.held is None else self.held
        wrong = [
            float(np.average(fit.scores.argmax(axis=1) != classes, weights=weights))
            for fit in (plain, best) if fit.scores is not None
        ]  # fmt: skip
        error = np.sqrt(wrong[-1] * (1 - wrong[-1]) / len(classes))
        return bool(wrong[0] < wrong[-1] - error / 2)

    def choose_ridge(self, sums: Sums, some: int | None = None) -> KernelFit:
        """Return the best weights by rows that are held out, or that are left out of the sums."""
        fits: list[KernelFit] = []
        for ridge in RIDGES:
            self.check()
            if fits and self.is_over():
                break
            fit = sums.solve(ridge)
            x, classes, weights = self.sample if self.held is None else self.held
            x, classes, weights = x[:some], classes[:some], weights[:some]
            if self.held is not None:
                scores = fit[0].scores(x)
            else:
                scores = sums.leave_out(fit, (x, classes, weights * self.balance[classes]))
            loss = judge_scores(scores, classes, weights)
            fits.append(KernelFit(fit[0], ridge, loss, scores))
        return min(fits, key=lambda fit: fit.loss)


def targets_of(classes: NDArray[Any], n_classes: int) -> NDArray[np.float32]:
    """Return 1 for the class of a row and -1 for others: float32 (n, K)."""
    targets = np.full((len(classes), n_classes), -1, np.float32)
    targets[np.arange(len(classes)), classes] = 1
    return targets


def judge_scores(
    scores: NDArray[np.float32], classes: NDArray[Any], weights: NDArray[Any]
) -> float:
    """Return the share of wrong rows, and some of the squares of what scores are off."""
    squares = np.square((scores - targets_of(classes, scores.shape[1])) / 2).sum(axis=1)
    wrong = scores.argmax(axis=1) != classes
    return float(np.average(wrong + SQUARES * squares, weights=weights))


def fit_discriminant(
    own: KernelMap, x: NDArray[np.float32], classes: NDArray[Any], weights: NDArray[np.float32],
    n_classes: int,
) -> KernelWeights:  # fmt: skip
    """Return the discriminant of rows float32 (n, d), whose classes are int (n,).

    With means m_c, the covariance W within classes and shares p_c of the rows, a class scores
    ``m_c W^-1 x - m_c W^-1 m_c / 2 + ln p_c`` for a level row x.
    """
    level, w = own.level(x).astype(np.float64), weights.astype(np.float64)
    d, totals = level.shape[1], np.bincount(classes, w, n_classes)
    means = np.stack([np.bincount(classes, w * column, n_classes) for column in level.T], axis=1)
    middle = np.average(level, axis=0, weights=w)
    means = (means + PRIOR_ROWS * middle) / (totals + PRIOR_ROWS)[:, None]
    off = (level - means[classes]) * np.sqrt(w / w.sum())[:, None]
    within = product(off.T, off)
    within.flat[:: d + 1] += SHRUNK * np.trace(within) / d + 1e-9
    found = np.linalg.solve(within, means.T)
    share = np.log((totals + PRIOR_ROWS) / (totals.sum() + PRIOR_ROWS * n_classes))
    bias = share - 0.5 * (means * found.T).sum(axis=1)
    scale = np.sqrt(d) / LINEAR  # of level columns in mapped rows
    flat = own.at_bandwidth(1.0, n_centres=0)
    return KernelWeights(flat, (found * scale).astype(np.float32), bias.astype(np.float32))


def score_by_folds(
    own: KernelMap, x: NDArray[np.float32], classes: NDArray[Any], weights: NDArray[np.float32],
    n_classes: int,
) -> NDArray[np.float32]:  # fmt: skip
    """Return what rows score by the discriminant of other folds: float32 (n, K)."""
    out, fold = np.empty((len(x), n_classes), np.float32), np.arange(len(x)) % FOLDS
    for i in range(min(FOLDS, len(x))):
        rest = fold != i if len(x) > 1 else fold == i
        some = fit_discriminant(own, x[rest], classes[rest], weights[rest], n_classes)
        out[fold == i] = some.scores(x[fold == i])
    return out
