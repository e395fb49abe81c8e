"""Counts beside hashed models in plain NumPy and dictionaries, float64."""

import numpy as np


def classes_of(block, i):
    """The classes of a row."""
    lists = block.lists
    return lists.classes[lists.starts[i] : lists.starts[i + 1]].tolist()


def pair_counts(block, held=None):
    """{(feature, class): rows}, and rows and values by class; held-out rows are left out."""
    pairs, rows, values = {}, {}, {}
    for i in range(block.n_rows):
        if held is not None and held[i]:
            continue
        features = block.features[block.indptr[i] : block.indptr[i + 1]].tolist()
        for y in classes_of(block, i):
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

    def score(self, features, c, own=()):
        """Score of class c; `own`: the row's own classes, from which its counts are taken."""
        w = self.weights
        mine = c in own
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


def left_out_scores(block, scores, i):
    """Each class's score for a row that is not counted; -inf for a class of that row alone."""
    features = block.features[block.indptr[i] : block.indptr[i + 1]].tolist()
    own = classes_of(block, i)
    out = np.array([scores.score(features, c, own=own) for c in range(scores.n_classes)])
    out[[y for y in own if scores.rows[y] == 1]] = -np.inf
    return out


def best_without(block, scores, m):
    """Each row's best classes, the row left out of the counts."""
    found = []
    for i in range(block.n_rows):
        base = left_out_scores(block, scores, i)
        found.append(np.lexsort((np.arange(len(base)), -base))[:m].tolist())
    return found


def learn(block, scores, best, *, batches, far, pair_rate, feature_rate, pair_prior, feature_prior):
    """One pass, each row left out: theta by (feature, class), delta by feature.

    `best` are the candidates of each row, `far` how much less than the best one reach others that
    are left out; the rows of a batch are compared with the same weights.
    """
    theta, delta, theta_sum, delta_sum = {}, {}, {}, {}
    for first, last in batches:
        before = dict(theta), dict(delta)
        for i in range(first, last):
            features = block.features[block.indptr[i] : block.indptr[i + 1]].tolist()
            own, labels = best[i], classes_of(block, i)
            true = [c for c in own if c in labels and scores.rows[c] > 1]
            own = [c for c in own if c in true or c not in labels]
            base = left_out_scores(block, scores, i)
            own = [c for c in own if base[c] >= base[own].max() - far]
            true = [c for c in true if c in own]
            if not true:
                continue
            there = {(f, c): scores.pairs.get((f, c), 0) - (c in true) > 0
                     for f in features for c in own}  # fmt: skip
            learnt = [sum(before[0].get((f, c), 0) + before[1].get(f, 0)
                          for f in features if there[f, c]) for c in own]  # fmt: skip
            s = base[own] + learnt
            p = np.exp(s - s.max())
            p /= p.sum()
            p *= len(true)
            p[[own.index(y) for y in true]] -= 1
            for f in features:
                g = 0.0
                for k, c in enumerate(own):
                    if there[f, c]:
                        g += p[k]
                        theta_sum[f, c] = theta_sum.get((f, c), pair_prior) + p[k] ** 2
                        step = pair_rate * p[k] / np.sqrt(theta_sum[f, c])
                        theta[f, c] = theta.get((f, c), 0) - step
                delta_sum[f] = delta_sum.get(f, feature_prior) + g * g
                delta[f] = delta.get(f, 0) - feature_rate * g / np.sqrt(delta_sum[f])
    return theta, delta


def blended_scores(block, weights, hashed=None):
    """Every class's score as it is defined, in float32 and in the order of the definition."""
    out = np.zeros((block.n_rows, weights.n_classes), np.float32)
    for i in range(block.n_rows):
        units, rest = np.zeros(weights.n_classes, np.int64), np.float32(0)
        for f in block.features[block.indptr[i] : block.indptr[i + 1]]:
            rest += weights.penalty[f]
            if weights.wide_of[f] >= 0:
                units += weights.wide[weights.wide_of[f]]
                continue
            own = slice(weights.starts[f], weights.starts[f + 1])
            units[weights.classes[own]] += weights.gains[own]
        plain = (weights.base - rest * weights.log_values).astype(np.float64)
        out[i] = plain + units / 1024
    if hashed is None:
        return out
    n = hashed.n_repetitions
    codes, total = hashed.codes.reshape(-1, n).astype(int), np.zeros_like(out)
    for r in range(n):
        total += hashed.logs[:, r * hashed.n_buckets + codes[:, r]]
    return out + np.float32(weights.hashed / n) * total
