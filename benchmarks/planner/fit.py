"""The constants of planning/candidates.py: what being small costs, fitted to measured grids.

    python -m benchmarks.planner.fit [benchmarks/results/planner_grid.json]

The file holds both accuracies by data set, kind (hashed alone, beside counts, or of dense rows;
precision of rows with lists of labels, alone and beside counts), B and R, and those of exact models
of dense rows, which are the best of their sets. For each kind one curve is fitted to the means of
both, all data sets together, each with a best of its own:

    mean = best(data) - columns (n / (B R))^power - repetitions / R^2 - buckets / B

in points (n is 256, and K for dense rows and for lists of labels beside counts), by least squares
with all four at least 0. The error is the root mean square of what is left over. Where hashed
models knew a `share` of all values only, what that is expected to cost is added.
"""

import json
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from benchmarks.planner import RESULTS
from streammach.parts.expected import Fit
from streammach.planning.candidates import ENOUGH, LEFT_OUT

# Of each kind the one whose buckets cost no more: lists of labels were measured at 32 and more.
KINDS = {"hashed": None, "counts": None, "dense": None, "lists": "hashed",
         "counts of lists": "counts"}  # fmt: skip


def loss(constants, b, r, n):
    """Points lost at B and R."""
    columns, power, repetitions, buckets = constants
    return columns * (n / (b * r)) ** power + repetitions / r**2 + buckets / b


def fitted(rows, known, least=0.0):
    """Return the four constants, the best of each data set, and what is left over.

    `known` holds accuracy and top-5 accuracy of the best of some data sets; a bucket costs at
    `least` so much.
    """
    names = sorted({row["data"] for row in rows})
    which = np.array([names.index(row["data"]) for row in rows])
    b, r = (np.array([row[name] for row in rows], float) for name in ("buckets", "repetitions"))
    n = np.array([row.get("classes", ENOUGH) for row in rows], float)
    reached = 50 * np.array([row["p_at_1"] + row["p_at_5"] for row in rows])
    reached += LEFT_OUT[True] * np.array([1 - row.get("share", 1) for row in rows])
    counts = np.bincount(which)

    def rest(x):
        return (reached - (x[4:][which] - loss(x[:4], b, r, n))) / np.sqrt(counts[which])

    start = np.concatenate(
        [[1.0, 1.0, 5.0, least + 5.0], [reached[which == i].max() for i in range(len(names))]]
    )
    low = np.concatenate([[0.0, 0.3, 0.0, least], np.zeros(len(names))])
    high = np.concatenate([[100.0, 2.0, 200.0, 400.0], np.full(len(names), 100.0)])
    for i, name in enumerate(names, 4):
        if name in known:
            start[i] = 50 * sum(known[name])
            low[i], high[i] = start[i] - 1e-6, start[i] + 1e-6
    found = least_squares(rest, start, bounds=(low, high))
    left = rest(found.x) * np.sqrt(counts[which])
    return found.x[:4], dict(zip(names, found.x[4:], strict=True)), left


def known(document, *, listed):
    """Mean of the best that each data set reached, the error of leaving one out, how many sets."""
    best = {}
    for row in document["points"]:
        if row["kind"].endswith("lists") == listed:
            reached = 50 * (row["p_at_1"] + row["p_at_5"])
            best[row["data"]] = max(best.get(row["data"], 0.0), reached)
    if not listed:
        exact = {name: 50 * sum(both) for name, both in document["exact"].items()}
        best = {name: max(reached, exact.get(name, 0.0)) for name, reached in best.items()}
    found = np.array(list(best.values()))
    others = (found.sum() - found) / (len(found) - 1)
    return (
        round(found.mean(), 1),
        round(float(np.sqrt(((found - others) ** 2).mean())), 1),
        len(found),
    )


def main():
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS / "planner_grid.json"
    document = json.loads(path.read_text())
    costs = {}
    for listed in (False, True):
        print(f"KNOWN {listed}: {known(document, listed=listed)}")
    for kind, alike in KINDS.items():
        some = [row for row in document["points"] if row["kind"] == kind]
        constants, best, left = fitted(some, document["exact"], costs.get(alike, 0.0))
        costs[kind] = constants[3]
        error = float(np.sqrt(np.mean(left**2)))
        named = zip((field.name for field in fields(Fit)), (*constants, error), strict=True)
        print(f'"{kind}": Fit({", ".join(f"{name}={c:.3g}" for name, c in named)}),')
        for name, value in best.items():
            mine = [x for x, row in zip(left, some, strict=True) if row["data"] == name]
            print(f"    {name}: best {value:.1f}, {len(mine)} points, largest error "
                  f"{max(abs(x) for x in mine):.1f}")  # fmt: skip


if __name__ == "__main__":
    main()
