"""Counts beside hashed models in plain NumPy and dictionaries, float64."""

import numpy as np


def pair_counts(block, held=None):
    """{(feature, class): rows}, and rows and values by class; held-out rows are left out."""
    pairs, rows, values = {}, {}, {}
    for i in range(block.n_rows):
        if held is not None and held[i]:
            continue
        y = int(block.classes[i])
        features = block.features[block.indptr[i] : block.indptr[i + 1]].tolist()
        rows[y] = rows.get(y, 0) + 1
        values[y] = values.get(y, 0) + len(features)
        for f in features:
            pairs[f, y] = pairs.get((f, y), 0) + 1
    return pairs, rows, values


class ReferenceScores:
    """score(i | x) = prior ln n_i + sum_f [slope_f ln n_fi + match_f + share (theta + delta_f) if
    counted, - penalty_f ln N_i]."""

    def __init__(self, block, n_classes, weights, theta=None, delta=None):
        self.pairs, self.rows, self.values = pair_counts(block)
        self.n_classes, self.weights = n_classes, weights
        self.theta = theta or {}
        self.delta = delta if delta is not None else {}

    def score(self, features, c, own=None):
        """Score of class c; `own`: the row's own class, from which its counts are taken."""
        w = self.weights
        mine = own == c
        n = self.rows.get(c, 0) - mine
        values = self.values.get(c, 0) - len(features) * mine
        total = w.prior * np.log(max(n, 0.5))
        for f in features:
            g = w.group[f]
            total -= w.penalty[g] * np.log(max(values, 0.5))
            count = self.pairs.get((f, c), 0) - mine
            if count > 0:
                gain = w.slope[g] * np.log(count) + w.match[g] + self.learnt(f, c)
                total += gain if mine else np.round(gain * 1024) / 1024
        return total

    def learnt(self, f, c):
        return self.weights.learnt * (self.theta.get((f, c), 0.0) + self.delta.get(f, 0.0))

    def scores(self, features):
        return np.array([self.score(features, c) for c in range(self.n_classes)])


def learn(block, scores, m, *, pair_rate, feature_rate, pair_prior, feature_prior):
    """One leave-one-out pass: theta by (feature, class), delta by feature."""
    theta, delta, theta_sum, delta_sum = {}, {}, {}, {}
    for i in range(block.n_rows):
        features = block.features[block.indptr[i] : block.indptr[i + 1]].tolist()
        y = int(block.classes[i])
        base = np.array([scores.score(features, c, own=y) for c in range(scores.n_classes)])
        if scores.rows[y] == 1:
            base[y] = -np.inf
        best = np.lexsort((np.arange(len(base)), -base))[:m].tolist()
        if y not in best or scores.rows[y] == 1:
            continue
        there = {(f, c): scores.pairs.get((f, c), 0) - (c == y) > 0 for f in features for c in best}
        s = np.array(
            [
                base[c]
                + sum(theta.get((f, c), 0) + delta.get(f, 0) for f in features if there[f, c])
                for c in best
            ]
        )
        p = np.exp(s - s.max())
        p /= p.sum()
        p[best.index(y)] -= 1
        for f in features:
            g = 0.0
            for k, c in enumerate(best):
                if there[f, c]:
                    g += p[k]
                    theta_sum[f, c] = theta_sum.get((f, c), pair_prior) + p[k] ** 2
                    theta[f, c] = theta.get((f, c), 0) - pair_rate * p[k] / np.sqrt(theta_sum[f, c])
            delta_sum[f] = delta_sum.get(f, feature_prior) + g * g
            delta[f] = delta.get(f, 0) - feature_rate * g / np.sqrt(delta_sum[f])
    return theta, delta
