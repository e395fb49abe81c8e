"""How good rankings are of rows with lists of labels: the metrics of extreme classification.

Their names are those of the XMC repository: P@k, N@k (nDCG), PSP@k, PSN@k, and R@k, F1@k. Rows
without a label count as rows in all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammach.data.store.dataset import Dataset
from streammach.model.calibration import Calibration, label_probabilities
from streammach.prediction.by_class import ByClass, ClassAnswers
from streammach.prediction.sums import (
    BINS,
    GROUPS,
    Bin,
    BlockSums,
    Figures,
    IdCounts,
    RankedRows,
    binned,
    reliability,
)
from streammach.rows.block import RowBlock
from streammach.rows.label_lists import LabelLists

PLACES = (1, 3, 5)
MOST = PLACES[-1]
DEFAULT_A, DEFAULT_B = 0.55, 1.5
LEAST_LABELS = (0, 1, 2, 3, 4, 5, 6, 11, 21, 51)  # of a row, that begin a group of rows
GROUPED = ("P@1", "P@5", "N@5", "R@5")  # what is said of a group of rows
LIKELY = 0.5  # probability of a label from which on it is said to be there
FIRST = 10  # best labels of a row whose probabilities are compared with the share that is right


@dataclass(frozen=True, kw_only=True)
class SetMetrics:
    """What a ranking reaches on rows with lists of labels.

    Attributes
    ----------
    n_rows, n_labels : int
        Rows, and labels of all of them; those that training never saw count.
    precision, recall, f1, ndcg, psp, psndcg : dict of int to float
        At 1, 3 and 5, and at what was asked for. Precision: mean share of the first k that are
        labels of the row. Recall: mean share of a row's labels that are among the first k. F1: mean
        of ``2 hits / (k + labels of the row)``. nDCG: sum of ``1 / log2(place + 1)``
        over labels among the first k, by what min(k, labels of the row) at the top would give.
        PSP, PSnDCG (Jain et al., 2016): the same sums weighted by 1 / p of each label, over all
        rows together, by the best that any ranking could have.
    decile_recall : tuple of float
        Mean recall at 5 of labels by tenths of the labels that occur, from the rarest in training
        to the most frequent; NaN where a tenth is empty.
    """

    n_rows: int
    n_labels: int
    precision: dict[int, float]
    recall: dict[int, float]
    f1: dict[int, float]
    ndcg: dict[int, float]
    psp: dict[int, float]
    psndcg: dict[int, float]
    decile_recall: tuple[float, ...]

    def named(self) -> dict[str, float]:
        """Return all figures by their names in the XMC repository."""
        kinds = {"P": self.precision, "N": self.ndcg, "R": self.recall, "F1": self.f1,
                 "PSP": self.psp, "PSN": self.psndcg}  # fmt: skip
        return {f"{name}@{k}": x for name, found in kinds.items() for k, x in found.items()}


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


@dataclass(frozen=True, kw_only=True)
class RowGroup:
    """Rows by their number of labels."""

    least: int  # least, most: labels of a row; without an end where `most` is None
    most: int | None
    n_rows: int  # rows of so many
    figures: dict[str, float]  # their P@1, P@5, N@5 and R@5


@dataclass(frozen=True, kw_only=True)
class F1:
    """Micro and macro F1 of labels whose probability is above a threshold."""

    micro: float
    macro: float


def propensities(
    counts: NDArray[np.int64], n_rows: int, *, a: float = DEFAULT_A, b: float = DEFAULT_B
) -> NDArray[np.float64]:
    """Return the propensity of labels that so many training rows have: float64 (K,).

    ``p = 1 / (1 + C e^(-a ln(n + b)))`` with ``C = (ln N - 1) (b + 1)^a`` (Jain et al., 2016).

    `counts` is int64 (K,).
    """
    c = max(np.log(max(n_rows, 1)) - 1, 0.0) * (b + 1) ** a
    found: NDArray[np.float64] = 1 / (1 + c * (counts + b) ** -a)
    return found


def by_propensity(rows: RowBlock, data: Dataset) -> RowBlock:
    """Return rows with lists of labels of a store, which weigh 1 / propensity."""
    lists = rows.lists
    counts = np.append(data.label_counts, 0)  # the last one stands for labels never seen
    weights = (1 / propensities(counts, data.n_rows)[lists.classes]).astype(np.float32)
    return rows.with_labels(replace(lists, weights=weights))


def discounts(most: int) -> NDArray[np.float64]:
    """Return what nDCG counts a hit at each of the first places: float64 (most,)."""
    found: NDArray[np.float64] = 1 / np.log2(np.arange(2, most + 2))
    return found


def precision_and_recall(right: float, said: float, there: float) -> dict[str, float]:
    """Return the share of what is said, and of what is there, that is right; NaN of none."""
    return {"precision": right / said if said else np.nan,
            "recall": right / there if there else np.nan}  # fmt: skip


class RowFigures(NamedTuple):
    """What rows reach with their first class, their first two, and so on: float64 (n, k) each."""

    hits: NDArray[np.float64]
    recall: NDArray[np.float64]
    f1: NDArray[np.float64]
    ndcg: NDArray[np.float64]
    # gained, possible: sums of 1 / propensity of the hits, and of the best ranking; then discounted
    gained: NDArray[np.float64]
    possible: NDArray[np.float64]
    gained_dcg: NDArray[np.float64]
    possible_dcg: NDArray[np.float64]

    @classmethod
    def of(
        cls, best: NDArray[np.int64], lists: LabelLists, gains: NDArray[np.float64], most: int
    ) -> RowFigures:
        """Return the figures of rankings int64 (n, k) at the first `most` places, 5 or more.

        `gains` float64 (K + 1,) are 1 / propensity of each label; the last one of those never seen.
        """
        n, first, discount = lists.lengths, best[:, :most], discounts(most)
        hit = np.zeros((len(best), most))
        hit[:, : first.shape[1]] = lists.matched(first)
        own = hit.copy()
        own[:, : first.shape[1]] *= gains[first]
        rows, all_gains = lists.rows, gains[lists.classes]  # -1 takes the last one
        order = np.lexsort((-all_gains, rows))
        places = np.arange(len(order)) - (lists.starts - lists.starts[0])[rows]
        few, largest = places < most, np.zeros(hit.shape)
        largest[rows[few], places[few]] = all_gains[order[few]]
        hits, count = hit.cumsum(axis=1), np.arange(1, most + 1)
        ideal = discount.cumsum()[np.minimum(n[:, None], count) - 1]
        return cls(
            hits=hits, recall=hits / np.maximum(n, 1)[:, None],
            f1=2 * hits / (n[:, None] + count), ndcg=(hit * discount).cumsum(axis=1) / ideal,
            gained=own.cumsum(axis=1), possible=largest.cumsum(axis=1),
            gained_dcg=(own * discount).cumsum(axis=1),
            possible_dcg=(largest * discount).cumsum(axis=1),
        )  # fmt: skip

    @property
    def grouped(self) -> NDArray[np.float64]:
        """1 for each row, and the figures of :data:`GROUPED`: float64 (n, 5)."""
        hits, last = self.hits, MOST - 1
        return np.column_stack([
            np.ones(len(hits)), hits[:, 0], hits[:, last] / MOST, self.ndcg[:, last],
            self.recall[:, last],
        ])  # fmt: skip


class SetFigures(Figures):
    """What the rankings of rows reach.

    `counts` is int64 (K,).
    """

    def __init__(
        self, counts: NDArray[np.int64], n_rows: int, *, a: float = DEFAULT_A,
        b: float = DEFAULT_B, at: Sequence[int] = (),
    ) -> None:  # fmt: skip
        self._at = sorted({*PLACES, *at})
        super().__init__(
            n=np.zeros(2, np.int64),  # rows, and labels of all of them
            reached=np.zeros((len(RowFigures._fields), self._at[-1])),
            # how often each label occurs, and how often it is among the first five
            there=np.zeros(len(counts), np.int64), found=np.zeros(len(counts), np.int64),
            possible=np.zeros(len(PLACES), np.int64),  # hits of the best ranking
            groups=np.zeros((len(LEAST_LABELS), 1 + len(GROUPED))),  # by number of labels
        )  # fmt: skip
        self._counts = counts
        with_unseen = np.append(counts, 0)  # the last one stands for labels never seen
        self._gains = 1 / propensities(with_unseen, n_rows, a=a, b=b)

    def block_sums(self, rows: RankedRows) -> BlockSums:
        return self.of_lists(rows.best, rows.block.lists)

    def of_lists(self, best: NDArray[np.int64], lists: LabelLists) -> BlockSums:
        """Return what rankings int64 (n, k) of rows add."""
        own, first = RowFigures.of(best, lists, self._gains, self._at[-1]), best[:, :MOST]
        groups = np.zeros_like(self.sums["groups"])
        np.add.at(groups, np.searchsorted(LEAST_LABELS, lists.lengths, "right") - 1, own.grouped)
        return {
            "n": np.array([len(lists), lists.n_labels]), "reached": np.sum(own, axis=1),
            "there": IdCounts.of(lists.classes[lists.classes >= 0]),
            "found": IdCounts.of(first[lists.matched(first)]), "groups": groups,
            "possible": np.minimum(lists.lengths[:, None], PLACES).sum(axis=0),
        }  # fmt: skip

    def metrics(self) -> SetMetrics:
        """Return the metrics of all rows."""
        (n_rows, n_labels), sums = self.sums["n"].tolist(), RowFigures(*self.sums["reached"])
        n = max(n_rows, 1)

        def at(values: NDArray[np.float64]) -> dict[int, float]:
            return {k: float(values[k - 1]) for k in self._at}

        return SetMetrics(
            n_rows=n_rows, n_labels=n_labels, recall=at(sums.recall / n), f1=at(sums.f1 / n),
            precision=at(sums.hits / np.arange(1, self._at[-1] + 1) / n), ndcg=at(sums.ndcg / n),
            psp=at(sums.gained / np.maximum(sums.possible, 1e-300)),
            psndcg=at(sums.gained_dcg / np.maximum(sums.possible_dcg, 1e-300)),
            decile_recall=tuple(tenth.recall for tenth in self.tenths()),
        )  # fmt: skip

    def fields(self) -> dict[str, Any]:
        """Return the metrics, and precision as accuracy."""
        sets = self.metrics()
        p = sets.precision
        return {
            "accuracy": p[1], "top_3_accuracy": p[3], "top_5_accuracy": p[5],
            "log_loss": float("nan"), "sets": sets,
        }  # fmt: skip

    def details(self) -> dict[str, Any]:
        """Return the best that could be reached, tenths of the labels, and groups of rows."""
        n, most = self.sums["n"][0], [*(least - 1 for least in LEAST_LABELS[1:]), None]
        best = zip(PLACES, self.sums["possible"].tolist(), strict=True)
        return {
            "possible": {f"P@{k}": hits / (k * int(n)) for k, hits in best},
            "tenths": self.tenths(),
            "by_labels": tuple(
                RowGroup(
                    least=least, most=last, n_rows=int(group[0]),
                    figures=dict(zip(GROUPED, (group[1:] / group[0]).tolist(), strict=True)),
                )
                for least, last, group in zip(LEAST_LABELS, most, self.sums["groups"], strict=True)
                if group[0]
            ),
        }  # fmt: skip

    def tenths(self) -> tuple[Tenth, ...]:
        """Return the labels that occur by tenths, from the rarest in training on."""
        there = np.flatnonzero(self.sums["there"])
        there = there[np.lexsort((there, self._counts[there]))]
        return tuple(self._tenth(some) for some in np.array_split(there, GROUPS))

    def _tenth(self, labels: NDArray[np.int64]) -> Tenth:
        if not len(labels):
            return Tenth(n_labels=0, n_rows=0, least=0, most=0, recall=float("nan"))
        there, counts = self.sums["there"][labels], self._counts[labels]
        return Tenth(
            n_labels=len(labels), n_rows=int(there.sum()), least=int(counts.min()),
            most=int(counts.max()), recall=float((self.sums["found"][labels] / there).mean()),
        )  # fmt: skip


class LabelFigures(Figures):
    """What is stated of candidates, each on its own, and which of them are labels of the row."""

    def __init__(
        self, n_classes: int, calibration: Calibration | None, threshold: float,
        by_class: ByClass | None = None,
    ) -> None:  # fmt: skip
        # labels that are right, said and true by class, and how many of the true are unseen
        counts = {name: np.zeros(n_classes, np.int64) for name in ("right", "said", "true")}
        super().__init__(
            **counts, unseen=np.zeros((), np.int64), stated=np.zeros((3, BINS)),
            likely=np.zeros(3),  # how many are likely, what these state, how many are right
            **({} if by_class is None else {"by_class": by_class}),
        )  # fmt: skip
        self._calibration, self._threshold, self._by_class = calibration, threshold, by_class

    def block_sums(self, rows: RankedRows) -> BlockSums:
        lists, ids = rows.block.lists, rows.candidates
        p: NDArray[np.float64] = rows.scores.astype(np.float64)
        if self._calibration is not None:
            p = label_probabilities(rows.scores, self._calibration, rows.of_classes)
        hits, said = lists.matched(ids), p >= self._threshold
        known = lists.classes[lists.classes >= 0]
        sums = {
            "right": IdCounts.of(ids[said & hits]), "said": IdCounts.of(ids[said]),
            "true": IdCounts.of(known), "unseen": lists.n_labels - len(known),
        }  # fmt: skip
        if self._calibration is not None:
            there = np.isfinite(rows.scores)
            stated, right = p[there], hits[there]
            likely = stated >= LIKELY
            first = there[:, :FIRST]
            sums["stated"] = binned(p[:, :FIRST][first], hits[:, :FIRST][first])
            sums["likely"] = np.array([likely.sum(), stated[likely].sum(), right[likely].sum()])
        if self._by_class is not None:
            sums["by_class"] = self._by_class.block_sums(self._answers(rows, hits, said, p))
        return sums

    def _answers(
        self, rows: RankedRows, hits: NDArray[np.bool_], said: NDArray[np.bool_],
        p: NDArray[np.float64],
    ) -> ClassAnswers:  # fmt: skip
        """Return the labels of rows that are known, each with what is said of it."""
        lists, best, n = rows.block.lists, rows.best, len(self.sums["true"])
        known = lists.classes >= 0
        own, classes = lists.rows[known], lists.classes[known]
        stated, missed = np.zeros(len(classes)), np.ones(len(classes), np.bool_)
        # Labels rise within a row, so that these numbers rise.
        place = np.searchsorted(own * n + classes, np.nonzero(hits)[0] * n + rows.candidates[hits])
        stated[place], missed[place] = p[hits], ~said[hits]
        others = ~lists.matched(best)
        first = np.where(others.any(axis=1), best[np.arange(len(best)), others.argmax(axis=1)], -1)
        return ClassAnswers(
            classes, missed, None if self._calibration is None else stated, first[own],
            rows.numbers[own],
        )  # fmt: skip

    def fields(self) -> dict[str, Any]:
        """Return F1 over all labels together, and its mean over labels that are said or true."""
        right, both = self.sums["right"], self.sums["said"] + self.sums["true"]
        total = int(both.sum()) + int(self.sums["unseen"])
        some = both > 0
        macro = float((2 * right[some] / both[some]).mean()) if some.any() else 0.0
        f1 = F1(micro=2 * int(right.sum()) / max(total, 1), macro=macro)
        found = {"f1": f1, "threshold": self._threshold}
        there = int(self.sums["true"].sum() + self.sums["unseen"])
        found |= precision_and_recall(int(right.sum()), int(self.sums["said"].sum()), there)
        if self.sums["stated"].any():
            found["ece"] = reliability(self.sums["stated"]).ece
        if self._by_class is not None:
            found |= self._by_class.fields(self.sums["true"], self.sums["said"], right)
        return found

    def details(self) -> dict[str, Any]:
        n, stated, right = self.sums["likely"].tolist()
        likely = Bin(int(n), stated / n, right / n) if n else None
        return {"reliability": reliability(self.sums["stated"]), "likely": likely}
