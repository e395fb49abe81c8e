"""The training step in plain NumPy, float64: the equations, loop by loop."""

import itertools

import numpy as np

ROUNDING = 2.0**-22  # of a residual in float32: four units of its last place, from 0.5 to 1
BEST = 32  # classes of the joint loss beside a row's own
NEAR = 1e-5  # of scores: more than float32 and the weights' own rounding move them apart


def softmax(z):
    e = np.exp(z - z.max())
    return e / e.sum()


class ReferenceMach:
    """R softmax models of B buckets; weights (d, R*B) in float64.

    `slack` (d + 1, R*B) is how far rounding of residuals may have moved each weight, the bias as
    the last row: much where a gradient is nearly zero and Adam divides it by its own size.
    """

    def __init__(self, d, codes, n_buckets, optimizer="adagrad", epsilon=1e-8, smoothing=0.0):
        self.codes, self.B, self.R = codes, n_buckets, codes.shape[1]
        columns = self.B * self.R
        self.W, self.b = np.zeros((d, columns)), np.zeros(columns)
        self.optimizer, self.epsilon, self.smoothing = optimizer, epsilon, smoothing
        per_model, per_weight = (d + 1, self.R), (d + 1, columns)
        self.first = np.zeros(per_model if optimizer == "adagrad" else per_weight)
        self.second, self.slack = np.zeros(per_weight), np.zeros(per_weight)
        self.t = 0

    def rows(self, indptr, features, values):
        for a, b in itertools.pairwise(indptr):
            yield features[a:b], values[a:b].astype(np.float64)

    def logits(self, ids, x):
        return self.b + x @ self.W[ids] if len(ids) else self.b.copy()

    def loss_of_row(self, ids, x, label):
        """Mean over nothing: the sum over models of -ln p of the true bucket."""
        z = self.logits(ids, x)
        total = 0.0
        for r in range(self.R):
            p = softmax(z[r * self.B : (r + 1) * self.B])
            total -= np.log(p[self.codes[label, r]])
        return total

    def objective(self, indptr, features, values, classes, importance):
        """What the step descends: cross entropy against the smoothed target, summed."""
        total = 0.0
        for (ids, x), y, w in zip(
            self.rows(indptr, features, values), classes, importance, strict=True
        ):
            total += w * self.cross_entropy(self.logits(ids, x), y)
        return total

    def cross_entropy(self, z, y):
        total = 0.0
        for r in range(self.R):
            logs = np.log(softmax(z[r * self.B : (r + 1) * self.B]))
            target = np.full(self.B, self.smoothing / self.B)
            target[self.codes[y, r]] += 1 - self.smoothing
            total -= (target * logs).sum()
        return total

    def gradient(self, indptr, features, values, classes, importance):
        """Gradient of the objective for weights and bias (the last row), from frozen weights."""
        out = np.zeros((len(self.W) + 1, self.W.shape[1]))
        for (ids, x), y, w in zip(
            self.rows(indptr, features, values), classes, importance, strict=True
        ):
            g = self.residual(self.logits(ids, x), y)
            for f, value in zip(ids, x, strict=True):
                out[f] += w * value * g
            out[-1] += w * g
        return out

    def residual(self, z, y):
        """Derivative of a row's cross entropy by its logits."""
        g = np.empty(self.W.shape[1])
        for r in range(self.R):
            part = slice(r * self.B, (r + 1) * self.B)
            g[part] = softmax(z[part]) - self.smoothing / self.B
            g[r * self.B + self.codes[y, r]] -= 1 - self.smoothing
        return g

    def step(self, indptr, features, values, classes, importance, rate):
        loss = sum(
            w * self.loss_of_row(ids, x, y)
            for (ids, x), y, w in zip(
                self.rows(indptr, features, values), classes, importance, strict=True
            )
        )
        gradient = self.gradient(indptr, features, values, classes, importance)
        self.t += 1
        rounding = np.zeros(len(self.W) + 1)
        for (ids, x), w in zip(self.rows(indptr, features, values), importance, strict=True):
            np.add.at(rounding, ids, ROUNDING * w * np.abs(x))
            rounding[-1] += ROUNDING * w
        touched = [*np.unique(features), len(self.W)]
        for f in touched:
            near = [self.tried(f, gradient[f] + sign * rounding[f], rate) for sign in (-1, 1)]
            update = self.update(f, gradient[f], rate)
            self.slack[f] += np.abs(near - update).max(axis=0)
            if f == len(self.W):
                self.b -= update
            else:
                self.W[f] -= update
        return loss

    def decided(self, indptr, features, values):
        """Whether float32 comes to the same choices as float64 in every row."""
        return True

    def tried(self, f, g, rate):
        """The update that a gradient would give; nothing changes."""
        before = self.first[f].copy(), self.second[f].copy()
        found = self.update(f, g, rate)
        self.first[f], self.second[f] = before
        return found

    def check(self, weights, bias, *, atol, rtol):
        """Refuse weights float32 (d, R*B) or a bias that rounding does not explain."""
        found, own = np.vstack([weights, bias[None]]), np.vstack([self.W, self.b[None]])
        over = np.abs(found - own) - (atol + rtol * np.abs(own) + self.slack)
        worst = np.unravel_index(np.argmax(over), over.shape)
        assert over[worst] <= 0, (worst, found[worst], own[worst], self.slack[worst])

    def update(self, f, g, rate):
        if self.optimizer == "sgd":
            return rate * g
        if self.optimizer == "adagrad":
            out = np.empty_like(g)
            for r in range(self.R):
                part = slice(r * self.B, (r + 1) * self.B)
                self.first[f, r] += (g[part] ** 2).sum()
                out[part] = rate / np.sqrt(self.first[f, r] + self.epsilon) * g[part]
            return out
        b1, b2 = 0.9, 0.99
        self.first[f] = b1 * self.first[f] + (1 - b1) * g
        self.second[f] = b2 * self.second[f] + (1 - b2) * g * g
        m, v = self.first[f] / (1 - b1**self.t), self.second[f] / (1 - b2**self.t)
        return rate * m / (np.sqrt(v) + self.epsilon)

    def probabilities(self, indptr, features, values):
        out = []
        for ids, x in self.rows(indptr, features, values):
            z = self.logits(ids, x)
            out.append(
                np.concatenate([softmax(z[r * self.B : (r + 1) * self.B]) for r in range(self.R)])
            )
        return np.array(out)


class JointMach(ReferenceMach):
    """The same, trained by R times the cross entropy of the scores of the best classes."""

    def ranked(self, z):
        """Scores, means of logarithms, of all classes, and their ids, the best first."""
        logs = [np.log(softmax(z[r * self.B : (r + 1) * self.B])) for r in range(self.R)]
        scores = np.mean([logs[r][self.codes[:, r]] for r in range(self.R)], axis=0)
        return scores, np.argsort(-scores, kind="stable").tolist()

    def decided(self, indptr, features, values):
        """Whether no row has a class beyond the best that is nearly as good as the last of them.

        The residual jumps there: each of the two is right, and no bound of rounding tells of it.
        """
        rows = () if len(self.codes) <= BEST else self.rows(indptr, features, values)
        for ids, x in rows:
            scores, order = self.ranked(self.logits(ids, x))
            last, beyond = order[BEST - 1 : BEST + 1]
            near = scores[last] - scores[beyond] < NEAR
            if near and (self.codes[last] != self.codes[beyond]).any():
                return False
        return True

    def classes(self, z, y):
        """Ids, scores and targets of the best classes and the own one."""
        scores, order = self.ranked(z)
        ids = order[:BEST]
        ids += [] if y in ids else [y]
        target = np.full(len(ids), self.smoothing / len(ids))
        target[ids.index(y)] += 1 - self.smoothing
        return ids, scores[ids], target

    def loss_of_row(self, ids, x, label):
        ids, scores, _ = self.classes(self.logits(ids, x), label)
        return -self.R * np.log(softmax(scores)[ids.index(label)])

    def cross_entropy(self, z, y):
        _, scores, target = self.classes(z, y)
        return -self.R * (target * np.log(softmax(scores))).sum()

    def residual(self, z, y):
        ids, scores, target = self.classes(z, y)
        g = np.zeros(self.W.shape[1])
        for i, wrong in zip(ids, softmax(scores) - target, strict=True):
            for r in range(self.R):
                g[r * self.B + self.codes[i, r]] += wrong
        return g


class ListMach(ReferenceMach):
    """The same for rows with lists of labels: a `y` is a list of (class, share of the target)."""

    def loss_of_row(self, ids, x, own):
        return sum(share * super(ListMach, self).loss_of_row(ids, x, y) for y, share in own)

    def cross_entropy(self, z, own):
        return sum(share * super(ListMach, self).cross_entropy(z, y) for y, share in own)

    def residual(self, z, own):
        found = [share * super(ListMach, self).residual(z, y) for y, share in own]
        return sum(found, np.zeros(self.W.shape[1]))


class LogisticMach(ReferenceMach):
    """The same with a sigmoid a bucket: its target is what of the labels is in it, up to 1."""

    def target(self, own):
        out = np.zeros((self.R, self.B))
        for y, share in own:
            for r in range(self.R):
                out[r, self.codes[y, r]] += share
        spread = min(sum(share for _, share in own) / self.B, 1)
        return ((1 - self.smoothing) * np.minimum(out, 1) + self.smoothing * spread).reshape(-1)

    def cross_entropy(self, z, own):
        return (np.logaddexp(0, z) - self.target(own) * z).sum()

    def loss_of_row(self, ids, x, own):
        return self.cross_entropy(self.logits(ids, x), own)

    def residual(self, z, own):
        return 1 / (1 + np.exp(-z)) - self.target(own)

    def probabilities(self, indptr, features, values):
        return np.array(
            [1 / (1 + np.exp(-self.logits(*row))) for row in self.rows(indptr, features, values)]
        )


class JointListMach(JointMach):
    """The joint loss of rows with lists of labels, all beside the best classes."""

    def classes(self, z, own):
        scores, order = self.ranked(z)
        ids = order[:BEST]
        ids += [y for y, _ in own if y not in ids]
        target = np.full(len(ids), self.smoothing * sum(s for _, s in own) / len(ids))
        for y, share in own:
            target[ids.index(y)] += (1 - self.smoothing) * share
        return ids, scores[ids], target

    def loss_of_row(self, ids, x, own):
        ids, scores, _ = self.classes(self.logits(ids, x), own)
        logs = np.log(softmax(scores))
        return -self.R * sum(share * logs[ids.index(y)] for y, share in own)

    def residual(self, z, own):
        ids, scores, target = self.classes(z, own)
        g = np.zeros(self.W.shape[1])
        for i, wrong in zip(ids, target.sum() * softmax(scores) - target, strict=True):
            for r in range(self.R):
                g[r * self.B + self.codes[i, r]] += wrong
        return g
