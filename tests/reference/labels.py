"""Linear classifiers of labels in plain NumPy, float64."""

import itertools

import numpy as np

from tests.reference.counts import best_without, classes_of, left_out_scores


def examples_of(block, scores, m, far):
    """By class: rows that have it, and rows among whose m candidates it is, left out each."""
    own, others = {}, {}
    for i, best in enumerate(best_without(block, scores, m)):
        classes = classes_of(block, i)
        base = left_out_scores(block, scores, i)
        for c in classes:
            own.setdefault(c, []).append(i)
        for c in best if classes else ():
            if c not in classes and base[c] >= base[best].max() - far:
                others.setdefault(c, []).append(i)
    return own, others


def classifier(x, y, cost):
    """The weights that are least in |w|^2 / 2 + sum cost max(0, 1 - y x w)^2, by Newton's method.

    `x` (n, d), `y` (n,) 1 or -1, `cost` (n,).
    """
    w, active = np.zeros(x.shape[1]), np.ones(len(y), bool)
    while True:
        a = x[active]
        hessian = np.eye(len(w)) + 2 * (a * cost[active, None]).T @ a
        w = np.linalg.solve(hessian, 2 * a.T @ (cost * y)[active])
        now = y * (x @ w) < 1
        if (now == active).all():
            return w
        active = now


def learn(block, scores, m, far, cost, gains):
    """{(feature, class): weight} of all classes that rows have."""
    own, others = examples_of(block, scores, m, far)
    held = [set(block.features[a:b].tolist()) for a, b in itertools.pairwise(block.indptr)]
    theta = {}
    for c, rows in own.items():
        features = sorted(set().union(*(held[i] for i in rows)))
        some = rows + others.get(c, [])
        x = np.array([[f in held[i] for f in features] for i in some], float)
        y = np.where(np.arange(len(some)) < len(rows), 1.0, -1.0)
        costs = cost * block.weights[some].astype(float) * np.where(y > 0, gains[c], 1)
        w = classifier(x, y, costs)
        theta |= {(f, c): float(value) for f, value in zip(features, w, strict=True)}
    return theta
