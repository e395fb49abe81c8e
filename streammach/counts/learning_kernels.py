"""Compiled loops that learn weights on top of counts.

Group weights see each candidate as sums of evidence by group. Feature and pair weights are learnt
from rows that were counted themselves, so each row is scored as if it had not been: its own counts
are taken off its class, and a pair that only it made neither scores nor learns for that class.
"""

from __future__ import annotations

import math

import numpy as np

from streammach.counts.kernels import NOWHERE, best_of, find, sum_row
from streammach.jit import Array, Number, kernel

EXCLUDED = np.float32(-1e30)


@kernel()
def add_evidence(
    indptr: Array, features: Array, candidates: Array, starts: Array, classes: Array,
    counts: Array, group: Array, theta: Array, delta: Array, first: int, last: int, out: Array,
) -> None:  # fmt: skip
    """Add to `out` what the counts say of the candidates of rows ``first:last``.

    `candidates` int32 (n, m). `out` float32 (n, m, 2 G + 1): sums of ln n by group, numbers of
    counted pairs by group, and the sum of ``theta + delta_f`` where `theta` is not empty.
    """
    n_groups = out.shape[2] // 2
    learnt = theta.shape[0] > 0
    for i in range(first, last):
        for k in range(candidates.shape[1]):
            c = candidates[i, k]
            for p in range(indptr[i], indptr[i + 1]):
                f = features[p]
                z = find(classes, starts[f], starts[f + 1], c)
                if z != NOWHERE and counts[z] > 0:
                    out[i, k, group[f]] += np.float32(math.log(counts[z]))
                    out[i, k, n_groups + group[f]] += 1
                    if learnt:
                        out[i, k, 2 * n_groups] += theta[z] + delta[f]


@kernel(fastmath=False)
def left_out_candidates(
    indptr: Array, features: Array, row_classes: Array, first: int, last: int, starts: Array,
    classes: Array, counts: Array, gains: Array, wide_of: Array, wide: Array, penalty: Array,
    base: Array, log_values: Array, slope: Array, match: Array, prior: Number, class_rows: Array,
    class_values: Array, units: Array, total: Array, scores: Array, ids: Array,
) -> None:  # fmt: skip
    """Write the best classes of counted rows ``first:last``, each row scored as if not counted.

    `slope` and `match` float32 (d,) are the weights that made `gains`; `units` int32 and `total`
    float32 (K,) are scratch; `scores` float32 and `ids` int32 (n, m) are written. A row that is the
    only one of its class has no score for it.
    """
    for i in range(first, last):
        row = features[indptr[i] : indptr[i + 1]]
        sum_row(row, starts, classes, gains, wide_of, wide, penalty, base, log_values, units, total)
        t = row_classes[i]
        total[t] = EXCLUDED
        if class_rows[t] > 1:
            rest, own = np.float32(0), np.float32(0)
            for f in row:
                rest += penalty[f]
                z = find(classes, starts[f], starts[f + 1], t)
                if z != NOWHERE and counts[z] > 1:
                    own += slope[f] * np.float32(math.log(counts[z] - 1)) + match[f]
            values = max(class_values[t] - row.shape[0], 0.5)
            own += prior * np.float32(math.log(class_rows[t] - 1))
            total[t] = own - rest * np.float32(math.log(values))
        best_of(total, scores[i], ids[i])


@kernel()
def learn_rows(
    indptr: Array, features: Array, row_classes: Array, candidates: Array, scores: Array,
    starts: Array, classes: Array, counts: Array, theta: Array, theta_sum: Array, delta: Array,
    delta_sum: Array, pair_rate: Number, feature_rate: Number, place: Array,
) -> None:  # fmt: skip
    """Learn one weight a feature and one a pair from rows, in their order.

    Softmax over the candidates of a row, one Adagrad step a row: ``theta_fi`` and ``delta_f`` join
    the score of class i for every counted pair of the row. `candidates` int32 and `scores` float32
    (n, m); `place` int64 (m, longest row) is scratch. Rows whose class is not among the candidates
    teach nothing.
    """
    m = candidates.shape[1]
    s = np.empty(m, np.float32)
    for i in range(row_classes.shape[0]):
        true = NOWHERE
        for k in range(m):
            s[k] = scores[i, k]
            if candidates[i, k] == row_classes[i] and s[k] > EXCLUDED:
                true = k
        if true == NOWHERE:
            continue
        start, n = indptr[i], indptr[i + 1] - indptr[i]
        for j in range(n):
            f = features[start + j]
            for k in range(m):
                z = find(classes, starts[f], starts[f + 1], candidates[i, k])
                if z != NOWHERE and counts[z] < (2 if k == true else 1):
                    z = NOWHERE
                place[k, j] = z
                if z != NOWHERE:
                    s[k] += theta[z] + delta[f]
        set_residuals(s, true)
        for j in range(n):
            f = features[start + j]
            g = np.float32(0)
            for k in range(m):
                z = place[k, j]
                if z != NOWHERE:
                    g += s[k]
                    theta_sum[z] += s[k] * s[k]
                    theta[z] -= pair_rate * s[k] / math.sqrt(theta_sum[z])
            delta_sum[f] += g * g
            delta[f] -= feature_rate * g / math.sqrt(delta_sum[f])


@kernel(inline=True)
def set_residuals(s: Array, true: int) -> None:
    """Turn scores into ``p - onehot(true)`` in place."""
    high, total = s.max(), np.float32(0)
    for k in range(s.shape[0]):
        s[k] = math.exp(s[k] - high)
        total += s[k]
    for k in range(s.shape[0]):
        s[k] /= total
    s[true] -= np.float32(1)
