"""What scores of classes by counts are made of, and those of some classes of each row."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammach.counts.count_kernels import STEP
from streammach.rows.candidate_lists import CandidateLists
from streammach.rows.packed import Counts, PackedCounts
from streammach.system.jit import Array, Number, kernel
from streammach.system.simd import LANES

BLOCK = LANES  # classes
NO_PEAKS = np.zeros(0, np.int16)


class ScoreLists(NamedTuple):
    """What scores are made of, and what bounds them in each of b blocks of 64 classes."""

    # Those of PackedCounts, `classes` being the steps; or with 0 as the unit, and no peaks, those
    # of CountWeights.
    starts: Array
    classes: Array
    gains: Array
    peaks: Array
    unit: int
    wide_of: Array  # this and the next ones: those of both
    wide: Array
    penalty: Array
    base: Array
    log_values: Array
    block_bases: Array  # float32 (b,): the largest `base`
    block_logs: Array  # float32 (2, b): the smallest and the largest `log_values`
    block_gains: Array  # int8 or int16 (w, b): the largest gains of each feature in `wide`
    sizes: Array  # float32 (2,): largest magnitudes of `base` and of `log_values` of all classes

    @classmethod
    def of(cls, w: Counts) -> ScoreLists:
        """Return them for plain or packed counts."""
        wide, firsts = np.ascontiguousarray(w.wide), np.arange(0, w.n_classes, BLOCK)
        if isinstance(w, PackedCounts):
            classes: NDArray[Any] = w.steps
            peaks, unit = w.peaks, w.unit
        else:
            classes, peaks, unit = w.classes, NO_PEAKS, 0
        logs = [part.reduceat(w.log_values, firsts) for part in (np.minimum, np.maximum)]
        return cls(
            w.starts, classes, w.gains, peaks, unit, w.wide_of, wide, w.penalty, w.base,
            w.log_values, np.maximum.reduceat(w.base, firsts), np.stack(logs),
            np.maximum.reduceat(wide, firsts, axis=1),
            np.array([abs(w.base).max(), abs(w.log_values).max()], np.float32),
        )  # fmt: skip

    @staticmethod
    def footprint(n_classes: int, n_wide: int) -> int:
        """Return the bytes of what bounds, with so many features in `wide`."""
        return -(-n_classes // BLOCK) * (12 + 2 * n_wide)


class HashedScores(NamedTuple):
    """What hashed models add to the scores of rows: nothing where R is 0."""

    logs: Array  # float32 (n, R * B): logarithms of the rows' bucket probabilities
    codes: Array  # unsigned (K * R,): buckets of the classes, class by class
    n_buckets: int  # B
    n_repetitions: int  # R
    weight: Any = np.float32(0)  # float32: that of the models over R, 0 or more

    def means(self, candidates: NDArray[np.int32]) -> NDArray[np.float32]:
        """Return ``(1/R) sum_r ln P_r[h_r(i)]`` of candidates int32 (n, m): float32 (n, m)."""
        out = np.zeros(candidates.shape, np.float32)
        codes = self.codes.reshape(-1, self.n_repetitions)
        for r in range(self.n_repetitions):
            buckets = codes[candidates, r].astype(np.int64) + r * self.n_buckets
            out += np.take_along_axis(self.logs, buckets, axis=1)
        return out / np.float32(self.n_repetitions)


# Codes of the type of most models, so that kernels are not compiled once more.
UNHASHED = HashedScores(np.zeros((1, 0), np.float32), np.zeros(0, np.uint16), 1, 0)


class BoundedRow(NamedTuple):
    """A row while its classes are looked at, in a kernel."""

    spread: Array  # its features that stand in `wide`
    rest: Number  # float32: the sum of its penalties
    cap: Number  # float32: what hashed models add at most
    step: Number  # float32: a unit of gains in nats
    logs: Array  # float32 (R * B,)


@kernel(fastmath=False)
def score_some(
    indptr: Array, features: Array, first: int, last: int, lists: ScoreLists,
    hashed: HashedScores, some: CandidateLists, units: Array, columns: Array, scores: Array,
) -> None:  # fmt: skip
    """Write the scores of the listed classes of rows ``first:last``, where these stand.

    Parameters
    ----------
    indptr, features, first, last : int64 (n + 1,), int32 (nnz,), int, int
        The rows, and which of them.
    lists, hashed, some : ScoreLists, HashedScores, CandidateLists
        What scores are made of; which classes.
    units, columns : int32 (K,), int64 (m,)
        Scratch: zeros before and after; for the features of the longest row.
    scores : float32 (m,)
        Receives them.
    """
    for i in range(first, last):
        own = features[indptr[i] : indptr[i + 1]]
        rest, n_wide = add_features(own, lists, units, columns)
        step = np.float32(max(lists.unit, 1)) * STEP
        logs = hashed.logs[i if hashed.n_repetitions > 0 else 0]
        row = BoundedRow(columns[:n_wide], rest, np.float32(0), step, logs)
        for z in range(some.first[i], some.last[i]):
            scores[z] = score(row, np.int64(some.classes[z]), lists, hashed, units)
        units[:] = 0


@kernel(fastmath=False, inline=True)
def add_features(features: Array, lists: ScoreLists, units: Array, columns: Array) -> Any:
    """Add the gains of features' lists; return the sum of penalties, and how many are wide."""
    # Their places in `wide` go to the first `columns`.
    rest, n_wide = np.float32(0), 0
    for f in features:
        rest += lists.penalty[f]
        if lists.wide_of[f] >= 0:
            columns[n_wide] = lists.wide_of[f]
            n_wide += 1
        else:
            add_list(lists, f, units)
    return rest, n_wide


@kernel(inline=True)
def add_list(lists: ScoreLists, f: int, units: Array) -> None:
    """Add the gains of a feature's list to those of their classes."""
    # Gains are integers, so their sum does not depend on its order. Indices are unsigned: no test
    # for negative ones.
    classes, gains = lists.classes, lists.gains
    first, last = np.int64(lists.starts[f]), np.int64(lists.starts[f + 1])
    if lists.unit == 0:
        for z in range(first, last):
            units[np.uint32(classes[z])] += gains[z]
    else:
        c = np.uint32(0)
        for z in range(first, last):
            c += classes[z]
            units[np.uint32(c)] += gains[z]


@kernel(fastmath=False, inline=True, inner=True)
def score(row: BoundedRow, c: Number, lists: ScoreLists, hashed: HashedScores, units: Array) -> Any:
    """Return the score of a class."""
    gained = np.int64(units[c])
    for w in row.spread:
        gained += lists.wide[w, c]
    s = np.float32(lists.base[c] - row.rest * lists.log_values[c] + gained * row.step)
    if hashed.n_repetitions > 0:  # the sum of its logarithms, r rising
        some = np.float32(0)
        for r in range(hashed.n_repetitions):
            at = np.int64(hashed.codes[c * hashed.n_repetitions + r])
            some += row.logs[r * hashed.n_buckets + at]
        s = s + hashed.weight * some
    return s
