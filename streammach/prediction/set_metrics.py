"""How good rankings are of rows with lists of labels: the metrics of extreme classification.

Their names are those of the XMC repository: P@k, N@k (nDCG), PSP@k, PSN@k, and R@k. Rows without a
label count as rows in all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streammach.jit import Array, kernel
from streammach.prediction.sums import GROUPS, BlockSums, Figures, IdCounts
from streammach.rows.label_lists import LabelLists

PLACES = (1, 3, 5)
MOST = PLACES[-1]
DEFAULT_A, DEFAULT_B = 0.55, 1.5
PRECISION, RECALL, NDCG, GAINED, BEST, GAINED_DCG, BEST_DCG = range(7)


@dataclass(frozen=True, kw_only=True)
class SetMetrics:
    """What a ranking reaches on rows with lists of labels.

    Attributes
    ----------
    n_rows, n_labels : int
        Rows, and labels of all of them; those that training never saw count.
    precision, recall, ndcg, psp, psndcg : dict of int to float
        At 1, 3 and 5. Precision: mean share of the first k that are labels of the row. Recall: mean
        share of a row's labels that are among the first k. nDCG: sum of ``1 / log2(place + 1)``
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
    ndcg: dict[int, float]
    psp: dict[int, float]
    psndcg: dict[int, float]
    decile_recall: tuple[float, ...]

    def named(self) -> dict[str, float]:
        """Return all figures by their names in the XMC repository."""
        kinds = {"P": self.precision, "N": self.ndcg, "R": self.recall, "PSP": self.psp,
                 "PSN": self.psndcg}  # fmt: skip
        return {f"{name}@{k}": found[k] for name, found in kinds.items() for k in PLACES}


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


def propensities(
    counts: NDArray[np.int64], n_rows: int, *, a: float = DEFAULT_A, b: float = DEFAULT_B
) -> NDArray[np.float64]:
    """Return the propensity of labels of which training rows have so many: float64 (K,).

    ``p = 1 / (1 + C e^(-a ln(n + b)))`` with ``C = (ln N - 1) (b + 1)^a`` (Jain et al., 2016).

    `counts` is int64 (K,).
    """
    c = max(np.log(max(n_rows, 1)) - 1, 0.0) * (b + 1) ** a
    found: NDArray[np.float64] = 1 / (1 + c * (counts + b) ** -a)
    return found


class SetFigures(Figures):
    """Adds up what rankings reach, block by block.

    `counts` is int64 (K,).
    """

    def __init__(
        self, counts: NDArray[np.int64], n_rows: int, *, a: float = DEFAULT_A, b: float = DEFAULT_B
    ) -> None:
        super().__init__(
            n=np.zeros(2, np.int64),  # rows, and labels of all of them
            reached=np.zeros((7, MOST)),  # what :func:`add_rows` adds up
            # how often each label occurs, and how often it is among the first five
            there=np.zeros(len(counts), np.int64), found=np.zeros(len(counts), np.int64),
        )  # fmt: skip
        self._counts = counts
        with_unseen = np.append(counts, 0)  # the last one stands for labels never seen
        self._gains = 1 / propensities(with_unseen, n_rows, a=a, b=b)

    def block_sums(self, ids: NDArray[np.int64], labels: LabelLists) -> BlockSums:
        """Return what rows add; `ids` is int64 (n, k)."""
        first = np.full((len(ids), MOST), -2, np.int64)
        first[:, : ids.shape[1]] = ids[:, :MOST]
        own, places = np.unique(labels.classes, return_inverse=True)
        n_unseen, known = int(np.searchsorted(own, 0)), own[own >= 0].astype(np.int64)
        # Labels by their place among those that are there: nothing of the size of K is filled.
        gains = np.append(self._gains[known], self._gains[-1])
        sums = np.zeros((7, MOST))
        found, there = np.zeros((2, len(known)), np.int64)
        classes = (places.reshape(-1) - n_unseen).astype(np.int32)
        near = np.searchsorted(known, first)
        first = np.where(np.append(known, -3)[near] == first, near, -2)
        add_rows(first, labels.starts, classes, gains, sums, found, there)
        return {
            "n": np.array([len(labels), labels.n_labels]), "reached": sums,
            "there": IdCounts(known, there), "found": IdCounts(known, found),
        }  # fmt: skip

    def result(self) -> SetMetrics:
        """Return the figures of all rows."""
        (n_rows, n_labels), sums = self.sums["n"].tolist(), self.sums["reached"]
        n = max(n_rows, 1)

        def at(values: NDArray[np.float64]) -> dict[int, float]:
            return {k: float(values[k - 1]) for k in PLACES}

        places = np.arange(1, MOST + 1)
        return SetMetrics(
            n_rows=n_rows, n_labels=n_labels,
            precision=at(sums[PRECISION] / places / n), recall=at(sums[RECALL] / n),
            ndcg=at(sums[NDCG] / n), psp=at(sums[GAINED] / np.maximum(sums[BEST], 1e-300)),
            psndcg=at(sums[GAINED_DCG] / np.maximum(sums[BEST_DCG], 1e-300)),
            decile_recall=tuple(tenth.recall for tenth in self.tenths()),
        )  # fmt: skip

    def tenths(self) -> tuple[Tenth, ...]:
        """Return the labels that occur by tenths, from the rarest in training on."""
        there = np.flatnonzero(self.sums["there"])
        there = there[np.lexsort((there, self._counts[there]))]
        return tuple(self._tenth(part) for part in np.array_split(there, GROUPS))

    def _tenth(self, labels: NDArray[np.int64]) -> Tenth:
        if not len(labels):
            return Tenth(n_labels=0, n_rows=0, least=0, most=0, recall=float("nan"))
        there, counts = self.sums["there"][labels], self._counts[labels]
        return Tenth(
            n_labels=len(labels), n_rows=int(there.sum()), least=int(counts.min()),
            most=int(counts.max()), recall=float((self.sums["found"][labels] / there).mean()),
        )  # fmt: skip


@kernel(fastmath=False, allocates=True)
def add_rows(
    ids: Array, starts: Array, classes: Array, gains: Array, sums: Array, found: Array,
    there: Array,
) -> None:  # fmt: skip
    """Add what rows reach at each place to `sums` float64 (7, 5).

    Parameters
    ----------
    ids : int64 (n, 5)
        The best classes of each row.
    starts, classes : int64 (n + 1,), int32 (m,)
        The labels of each row.
    gains : float64 (K + 1,)
        1 / propensity of each label; the last one of those never seen.
    sums : float64 (7, 5)
        Receives hits, recall, nDCG, and the sums of gains reached and possible, plain and
        discounted.
    found, there : int64 (K,)
        Receive how often each label is among the first five, and how often it occurs.
    """
    most = ids.shape[1]
    best = np.zeros(most)
    for i in range(ids.shape[0]):
        own = classes[starts[i] : starts[i + 1]]
        best[:] = 0
        for c in own:  # the largest gains, falling; an id of -1 takes the last one
            gain = gains[c]
            if c >= 0:
                there[c] += 1
            for k in range(most):
                if gain > best[k]:
                    best[k], gain = gain, best[k]
        hits, dcg, ideal = 0.0, 0.0, 0.0
        gained, possible, gained_dcg, possible_dcg = 0.0, 0.0, 0.0, 0.0
        for k in range(most):
            discount = 1 / np.log2(k + 2)
            for c in own:
                if c == ids[i, k]:
                    hits += 1
                    dcg += discount
                    gained += gains[c]
                    gained_dcg += gains[c] * discount
                    found[c] += 1
            if k < own.shape[0]:
                ideal += discount
            possible += best[k]
            possible_dcg += best[k] * discount
            sums[0, k] += hits
            if own.shape[0]:
                sums[1, k] += hits / own.shape[0]
                sums[2, k] += dcg / ideal
            sums[3, k] += gained
            sums[4, k] += possible
            sums[5, k] += gained_dcg
            sums[6, k] += possible_dcg


@dataclass(frozen=True, kw_only=True)
class F1:
    """Micro and macro F1 of labels whose probability is above a threshold."""

    micro: float
    macro: float


class F1Figures(Figures):
    """Adds up right and wrong labels, block by block."""

    def __init__(self, n_classes: int) -> None:
        # labels that are right, said and true by class, and how many of the true are unseen
        by_class = {name: np.zeros(n_classes, np.int64) for name in ("right", "said", "true")}
        super().__init__(**by_class, unseen=np.zeros((), np.int64))

    def block_sums(
        self, ids: NDArray[np.int64], said: NDArray[np.bool_], labels: LabelLists
    ) -> BlockSums:
        """Return what rows add; `ids` is int64 (n, k), `said` is bool (n, k)."""
        known = labels.classes[labels.classes >= 0]
        return {
            "right": IdCounts.of(ids[said & labels.matched(ids)]), "said": IdCounts.of(ids[said]),
            "true": IdCounts.of(known), "unseen": labels.n_labels - len(known),
        }  # fmt: skip

    def result(self) -> F1:
        """Return F1 over all labels together, and its mean over labels that are said or true."""
        right, both = self.sums["right"], self.sums["said"] + self.sums["true"]
        total = int(both.sum()) + int(self.sums["unseen"])
        some = both > 0
        macro = float((2 * right[some] / both[some]).mean()) if some.any() else 0.0
        return F1(micro=2 * int(right.sum()) / max(total, 1), macro=macro)
