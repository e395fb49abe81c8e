"""From which probability on labels have a precision or a recall, by held-out rows."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streammach.rows.block import RowBlock
from streammach.system.errors import UsageError, clean

ALL = -1  # stands for all labels together
POINTS, LABEL_POINTS = 100, 10  # of the curve of all labels, and of one label's
LEAST_RIGHT = 10.0  # right labels between two points: fewer tell no precision
LEAST_LABEL, MOST_LABELS = 20, 500  # right labels that give one a curve, and how many get one
TRUST = 10.0  # labels of the precision of all that count beside one label's own
DIGITS = 1e5  # of a share in a document


@dataclass(frozen=True)
class Curve:
    """What held-out rows reach with the labels from thresholds on, from the highest down.

    The points stand where recall rises by equal steps.
    """

    thresholds: tuple[float, ...]
    precisions: tuple[float, ...]  # shares of the labels that are said
    recalls: tuple[float, ...]  # shares of the rows' labels, those never seen among them
    label: int = ALL

    def threshold(self, precision: float | None, recall: float | None) -> float | None:
        """Return the lowest threshold of a precision, or the highest of a recall, if any."""
        points = zip(self.thresholds, self.precisions, self.recalls, strict=True)
        found = [t for t, p, r in points if p >= (precision or 0) and r >= (recall or 0)]
        return (found[-1] if recall is None else found[0]) if found else None


def curves_of(rows: RowBlock, ids: NDArray[np.int64], p: NDArray[np.float64]) -> tuple[Curve, ...]:
    """Return what labels of held-out rows reach: all, then each of which there are enough.

    `ids` and `p` (n, k) are those that may be said, and their probabilities; 0 where there is none.
    """
    lists, w = rows.lists, rows.weights.astype(np.float64)
    each = np.broadcast_to(w[:, None], p.shape)
    usable, weights = (p > 0) & (each > 0), w[lists.rows]
    right, ids, p, w = lists.match(ids)[usable], ids[usable], p[usable], each[usable]
    hits = float((w * right).sum())
    if not hits:
        return ()
    n, order = min(POINTS, max(int(hits / LEAST_RIGHT), 1)), np.argsort(-p, kind="stable")
    common = _curve(p[order], right[order], w[order], float(weights.sum()), n)
    found, counts = [common], np.bincount(ids[right])
    for label in np.flatnonzero(counts >= LEAST_LABEL)[:MOST_LABELS].tolist():
        own, there = order[ids[order] == label], float(weights[lists.classes == label].sum())
        pull = np.interp(p[own], common.thresholds[::-1], common.precisions[::-1])
        found.append(_curve(p[own], right[own], w[own], there, LABEL_POINTS, pull, label))
    return tuple(found)


def _curve(
    p: NDArray[np.float64], right: NDArray[np.bool_], weights: NDArray[np.float64], there: float,
    n: int, pull: NDArray[np.float64] | float = 0.0, label: int = ALL,
) -> Curve:  # fmt: skip
    """Return a curve of n points by labels (m,) that are ever less probable, some of them right.

    `there` is what the labels of all rows weigh. A label's precision is pulled to that of all.
    """
    trust = 0.0 if label == ALL else TRUST
    said, hits = weights.cumsum(), (weights * right).cumsum()
    last = np.searchsorted(hits, hits[-1] * np.arange(1, n + 1) / n * (1 - 1e-9))
    last = np.searchsorted(-p, -p[last], "right") - 1  # all that are as probable
    precisions = ((hits + trust * pull) / (said + trust))[last]
    # Rounded down, so that a float32 is not below what it comes from.
    shares = p[last], precisions, hits[last] / max(there, float(hits[-1]))
    first, second, third = (tuple((np.floor(x * DIGITS) / DIGITS).tolist()) for x in shares)
    return Curve(first, second, third, label)


def find_threshold(
    curves: tuple[Curve, ...], *, precision: float | None = None, recall: float | None = None,
    path: str | os.PathLike[str] | None = None,
) -> float:  # fmt: skip
    """Return the threshold of a precision or a recall of all labels, or raise UsageError."""
    if (precision is None) == (recall is None):
        raise UsageError("name a precision or a recall, one of both: --precision, --recall")
    name, wanted = ("precision", precision) if recall is None else ("recall", recall)
    if wanted is None or not 0 < wanted <= 1:
        raise UsageError(f"{clean(wanted, 60)} is no share above 0 and up to 1: --{name}")
    found = curves[0].threshold(precision, recall) if curves else None
    if found is None:
        what, hint = f"no held-out rows tell a {name}: --{name}", "Name a probability: --threshold."
        if curves:
            highest = max(curves[0].precisions if recall is None else curves[0].recalls)
            what = f"no threshold has a {name} of {wanted:g} on held-out rows: --{name}"
            hint = f"The highest is {highest:z.3f}."
        raise UsageError(what, path=path, hint=hint)
    return found
