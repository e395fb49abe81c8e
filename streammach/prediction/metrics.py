"""Metrics of rankings: plain functions of labels and ranked classes, and what they return.

The names of those at k are those of the XMC repository: P@k, N@k (nDCG), R@k, F1@k, PSP@k, PSN@k.
Rows without a label count as rows in all of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from streammach.options.option_fields import add_attributes, attribute
from streammach.rows.label_lists import LabelLists

PLACES = (1, 3, 5)  # k of metrics that are always there
MOST = PLACES[-1]
DEFAULT_A, DEFAULT_B = 0.55, 1.5  # of propensities (Jain et al., 2016)
BINS = 15  # of stated probability, equally wide
GROUPS = 10  # of classes by frequency, equally many classes each
LEAST_LABELS = (0, 1, 2, 3, 4, 5, 6, 11, 21, 51)  # of a row, that begin a group of rows
GROUP_METRICS = ("P@1", "P@5", "N@5", "R@5")  # of a group of rows
FIRST = 10  # best labels of a row whose probabilities are compared with the share that is right
LIKELY = 0.5  # probability of a label from which on it is predicted
SET_FIELDS = {  # of SetMetrics, by the names of the XMC repository
    "P": "precision", "N": "ndcg", "R": "recall", "F1": "f1", "PSP": "psp", "PSN": "psndcg",
}  # fmt: skip
Numbers = NDArray[np.float64]
Ids = NDArray[np.int64]


class IdCounts(NamedTuple):
    """How often each of some ids occurs, or what rows with each add up to."""

    ids: Ids  # int64 (m,), rising
    n: NDArray[np.int64]  # int64 (m,) or (m, ...)

    @classmethod
    def of(cls, ids: NDArray[np.integer[Any]], each: NDArray[np.int64] | None = None) -> Self:
        """Return how often ids (n,) occur, or the sums of `each` int64 (n, ...) by id."""
        if each is None:
            each = np.ones(len(ids), np.int64)
        order = np.argsort(ids, kind="stable")
        found, first = np.unique(ids[order], return_index=True)
        n = np.add.reduceat(each[order], first) if len(found) else each[:0]
        return cls(found.astype(np.int64), n)

    def plus(self, other: IdCounts) -> IdCounts:
        """Return both together."""
        ids, n = (np.concatenate(both) for both in zip(self, other, strict=True))
        return IdCounts.of(ids, n)


# What a hit adds to a metric at k: a hit at a place (from 1) of a row with `n` labels. The best
# ranking has all labels first.
HIT_VALUES: dict[str, Callable[[Ids, Ids, int], Any]] = {
    "P": lambda n, place, k: 1 / k,
    "N": lambda n, place, k: discounts(k)[place - 1] / discounts(k).cumsum()[np.clip(n, 1, k) - 1],
    "R": lambda n, place, k: 1 / np.maximum(n, 1),
    "F1": lambda n, place, k: 2 / (n + k),
}


def metrics_at(hits: IdCounts, at: Sequence[int]) -> dict[str, float]:
    """Return the metrics at each k by their names, such as ``P@1``, of one row or more.

    `hits` has for each number of labels a row of int64 (1 + m,): how many rows have so many, and
    how many of these have a hit at each of the first m places.
    """
    n, rows = hits.ids[:, None], int(hits.n[:, 0].sum())
    return {
        f"{name}@{k}": float((hits.n[:, 1 : k + 1] * value(n, np.arange(1, k + 1), k)).sum() / rows)
        for name, value in HIT_VALUES.items()
        for k in at
    }


def count_hits(best: Ids, lists: LabelLists, most: int) -> IdCounts:
    """Return the hits of rankings int64 (n, k) at the first places, for :func:`metrics_at`."""
    each = np.zeros((len(lists), 1 + most), np.int64)
    each[:, 0] = 1
    each[:, 1 : best.shape[1] + 1] = lists.match(best[:, :most])
    return IdCounts.of(lists.lengths, each)


def discounts(most: int) -> Numbers:
    """Return what nDCG counts a hit at each of the first places: float64 (most,)."""
    found: Numbers = 1 / np.log2(np.arange(2, most + 2))
    return found


def propensities(
    counts: NDArray[np.int64], n_rows: int, *, a: float = DEFAULT_A, b: float = DEFAULT_B
) -> Numbers:
    """Return the propensity of labels that so many training rows have: float64 (K,).

    ``p = 1 / (1 + C e^(-a ln(n + b)))`` with ``C = (ln N - 1) (b + 1)^a`` (Jain et al., 2016).

    `counts` is int64 (K,).
    """
    c = max(np.log(max(n_rows, 1)) - 1, 0.0) * (b + 1) ** a
    found: Numbers = 1 / (1 + c * (counts + b) ** -a)
    return found


def count_gains(
    best: Ids, lists: LabelLists, gain: Callable[[NDArray[Any]], Numbers], most: int
) -> Numbers:
    """Return sums of 1 / propensity over the first 1, 2, ... classes of rankings: float64 (4, m).

    Those of hits and of the best ranking that there is; each plain, then discounted as by nDCG.
    `best` is int64 (n, k); `gain` says what labels are worth, -1 for one that was never seen.
    """
    first, discount = best[:, :most], discounts(most)
    own, largest = np.zeros((2, len(best), most))
    own[:, : first.shape[1]] = lists.match(first) * gain(first)
    rows, each = lists.rows, gain(lists.classes)
    order = np.lexsort((-each, rows))
    place = np.arange(len(order)) - (lists.starts - lists.starts[0])[rows]
    few = place < most
    largest[rows[few], place[few]] = each[order[few]]
    return np.stack([
        x.cumsum(axis=1).sum(axis=0) for x in (own, largest, own * discount, largest * discount)
    ])  # fmt: skip


def label_gains(
    ids: NDArray[np.integer[Any]], counts: NDArray[np.int64], n_rows: int, **constants: float
) -> Numbers:
    """Return 1 / propensity of labels, -1 for one that was never seen: float64 like `ids`."""
    rows = np.where(ids >= 0, counts[ids], 0)
    gains: Numbers = 1 / propensities(rows, n_rows, **constants)
    return gains


def gain_metrics_at(gains: Numbers, at: Sequence[int]) -> dict[str, float]:
    """Return PSP and PSN at each k by their names, of sums of :func:`count_gains`."""
    shares = gains[::2] / np.maximum(gains[1::2], 1e-300)
    each = zip(("PSP", "PSN"), shares.tolist(), strict=True)
    return {f"{name}@{k}": own[k - 1] for name, own in each for k in at}


@add_attributes
@dataclass(frozen=True, kw_only=True)
class SetMetrics:
    """What a ranking reaches on rows with lists of labels, at 1, 3, 5 and what was asked for."""

    n_rows: int = attribute("Rows.")
    n_labels: int = attribute("Labels of all of them; those that training never saw count.")
    precision: dict[int, float] = attribute("Mean share of the first k that are labels of the row.")
    recall: dict[int, float] = attribute("Mean share of a row's labels among the first k.")
    f1: dict[int, float] = attribute("Mean of ``2 hits / (k + labels of the row)``.")
    ndcg: dict[int, float] = attribute(
        "Sum of ``1 / log2(place + 1)`` over labels among the first k, by what min(k, labels of "
        "the row) at the top would give."
    )
    psp: dict[int, float] = attribute(
        "Precision weighted by 1 / p of each label, over all rows together, by the best that any "
        "ranking could have (Jain et al., 2016)."
    )
    psndcg: dict[int, float] = attribute("The sum of nDCG, weighted alike.")
    decile_recall: tuple[float, ...] = attribute(
        "Mean recall at 5 of labels by tenths of the labels that occur, from the rarest in "
        "training to the most frequent; NaN where a tenth is empty."
    )

    def by_name(self) -> dict[str, float]:
        """Return all metrics by their names in the XMC repository."""
        each = {name: getattr(self, own) for name, own in SET_FIELDS.items()}
        return {f"{name}@{k}": x for name, by_k in each.items() for k, x in by_k.items()}


@dataclass(frozen=True, kw_only=True)
class RowGroup:
    """Rows by their number of labels."""

    least: int  # least, most: labels of a row; without an end where `most` is None
    most: int | None
    n_rows: int  # rows of so many
    figures: dict[str, float]  # their P@1, P@5, N@5 and R@5


def group_rows(hits: IdCounts) -> tuple[RowGroup, ...]:
    """Return the groups of rows by their number of labels that there are, of such counts."""
    ends = [*(least - 1 for least in LEAST_LABELS[1:]), None]
    groups = []
    for least, most in zip(LEAST_LABELS, ends, strict=True):
        some = (hits.ids >= least) & (most is None or hits.ids <= (most or 0))
        if some.any():
            own = IdCounts(hits.ids[some], hits.n[some])
            named = metrics_at(own, (1, MOST))
            figures = {name: named[name] for name in GROUP_METRICS}
            n_rows = int(own.n[:, 0].sum())
            groups.append(RowGroup(least=least, most=most, n_rows=n_rows, figures=figures))
    return tuple(groups)


def best_precisions(hits: IdCounts) -> dict[str, float]:
    """Return the most that P@1, P@3 and P@5 can be, of such counts."""
    rows = hits.n[:, 0]
    return {
        f"P@{k}": int((rows * np.minimum(hits.ids, k)).sum()) / (k * int(rows.sum()))
        for k in PLACES
    }


@dataclass(frozen=True)
class Decile:
    """A tenth of the classes, by their rank of frequency in training."""

    n_classes: int  # n_classes, n_rows: its classes, and the rows that carry one of them
    n_rows: int
    recall: float | None  # share of those rows whose best class is their label; None without rows


def macro_recall(there: NDArray[np.int32], right: NDArray[np.int32]) -> float:
    """Return the mean over the classes that occur of the share of their rows that is right.

    `there` and `right` are int32 (K,): how often each class is there, and how often it is right.
    """
    some = there > 0
    return float((right[some] / there[some]).mean()) if some.any() else float("nan")


def deciles(there: NDArray[np.int32], right: NDArray[np.int32]) -> tuple[Decile, ...]:
    """Return recall by the frequency of classes, whose ids fall with it, from such sums.

    With fewer than ten classes every one is a group.
    """
    n_classes, groups = len(there), min(GROUPS, len(there))
    found = []
    for start, stop in itertools.pairwise(i * n_classes // groups for i in range(groups + 1)):
        n, n_right = (int(x[start:stop].sum(dtype=np.int64)) for x in (there, right))
        found.append(Decile(stop - start, n, n_right / n if n else None))
    return tuple(found)


@dataclass(frozen=True, kw_only=True)
class Tenth:
    """A tenth of the labels that occur, by the training rows that have them."""

    n_labels: int  # n_labels, n_rows: its labels, and how often rows have one of them
    n_rows: int
    # least, most: the fewest and the most training rows that have one of its labels; 0 without
    # labels
    least: int
    most: int
    recall: float  # mean recall at 5 of its labels; NaN without labels


def tenths(
    there: NDArray[np.int64], hit: NDArray[np.int64], counts: NDArray[np.int64]
) -> tuple[Tenth, ...]:
    """Return the labels that occur by tenths, from the rarest in training on: int64 (K,) each.

    `there` says how often each label is there, `hit` how often it is among the first five, `counts`
    how many training rows have it.
    """
    ids = np.flatnonzero(there)
    ids = ids[np.lexsort((ids, counts[ids]))]
    nothing = Tenth(n_labels=0, n_rows=0, least=0, most=0, recall=float("nan"))
    return tuple(
        Tenth(
            n_labels=len(some), n_rows=int(there[some].sum()), least=int(counts[some].min()),
            most=int(counts[some].max()), recall=float((hit[some] / there[some]).mean()),
        ) if len(some) else nothing
        for some in np.array_split(ids, GROUPS)
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class F1:
    """Micro and macro F1 of labels whose probability is above a threshold."""

    micro: float
    macro: float


def f1_of_labels(
    right: NDArray[np.int64], said: NDArray[np.int64], there: NDArray[np.int64], n_unseen: int
) -> F1:
    """Return F1 over all labels together, and its mean over labels that are said or there.

    Arrays are int64 (K,): how often each label is predicted and right, predicted, and there; labels
    that training never saw are in none of them.
    """
    both = said + there
    some = both > 0
    macro = float((2 * right[some] / both[some]).mean()) if some.any() else 0.0
    return F1(micro=2 * int(right.sum()) / max(int(both.sum()) + n_unseen, 1), macro=macro)


@dataclass(frozen=True)
class Bin:
    """Rows whose stated probability lies in one range."""

    n_rows: int  # rows in it
    stated: float  # their mean stated probability
    right: float  # share of them whose best class is their label


@dataclass(frozen=True)
class Reliability:
    """Stated probabilities of the best class against the share that is right."""

    bins: tuple[Bin, ...]  # those that hold rows, by rising probability
    ece: float  # mean distance of stated and right over the rows (expected calibration error)

    @property
    def means(self) -> tuple[float, float]:
        """Stated probability and share that is right over all rows, one at least."""
        n = sum(b.n_rows for b in self.bins)
        stated = sum(b.n_rows * b.stated for b in self.bins) / n
        return stated, sum(b.n_rows * b.right for b in self.bins) / n


def count_bins(stated: Numbers, right: NDArray[np.bool_]) -> Numbers:
    """Return of each of 15 bins how many, the sum of what they state, how many are right.

    `stated` and `right` are (n,). Returns float64 (3, 15), which may be added up.
    """
    place = np.minimum((stated * BINS).astype(np.int64), BINS - 1)
    return np.stack([np.bincount(place, weights, BINS) for weights in (None, stated, right)])


def reliability(sums: Numbers) -> Reliability:
    """Return stated probabilities against the share right, by sums of :func:`count_bins`."""
    n, stated, right = sums.tolist()
    bins = tuple(Bin(int(n[i]), stated[i] / n[i], right[i] / n[i]) for i in range(BINS) if n[i])
    distance = sum(b.n_rows * abs(b.stated - b.right) for b in bins)
    return Reliability(bins, distance / max(sum(n), 1))
