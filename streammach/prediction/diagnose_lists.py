"""Where a model is right on rows with lists of labels: by probability, frequency, their number."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streammach.model.model import Model
from streammach.prediction.calibrate import label_probabilities
from streammach.prediction.evaluate import Depth
from streammach.prediction.predictor import Predictor
from streammach.prediction.reached import ranked
from streammach.prediction.set_metrics import MOST, PLACES, SetFigures, Tenth
from streammach.prediction.sums import BINS, Bin, Reliability, binned, reliability
from streammach.rows.block import RowBlock
from streammach.rows.label_lists import LabelLists
from streammach.spec.types import Ranker

LIKELY = 0.5  # probability of a label from which on it is said to be there
LEAST = (0, 1, 2, 3, 4, 5, 6, 11, 21, 51)  # labels of a row that begin a group of rows
GROUPED = ("P@1", "P@5", "N@5", "R@5")  # what is said of a group


@dataclass(frozen=True, kw_only=True)
class RowGroup:
    """Rows by their number of labels."""

    least: int  # least, most: labels of a row; without an end where `most` is None
    most: int | None
    n_rows: int  # rows of so many
    figures: dict[str, float]  # their P@1, P@5, N@5 and R@5


@dataclass(frozen=True, kw_only=True)
class ListDiagnosis:
    """What a model does on rows with lists of labels, in parts."""

    path: str  # where the rows come from
    # n_rows, n_labels, n_unseen: rows used, their labels, and those of them that training never
    # saw: they count as missed
    n_rows: int
    n_labels: int
    n_unseen: int
    # of the model as it ranks, by the names of the XMC repository: P@k, N@k, R@k, PSP@k, PSN@k
    figures: dict[str, float]
    possible: dict[str, float]  # the most that P@1, P@3 and P@5 can be on these rows
    majority: float  # P@1 of always answering the label that is most frequent in training
    estimator: Ranker  # how it ranks
    # probabilities of the best candidates of all rows, of each label on its own; its rows are
    # candidates
    reliability: Reliability
    likely: Bin | None  # those with a probability of 0.5 or more; None without any
    # recall at 5 by tenths of the labels that occur, from the rarest in training on
    tenths: tuple[Tenth, ...]
    by_labels: tuple[RowGroup, ...]  # rows by their number of labels, those that there are
    depth_rows: int  # rows used for `depths`
    # precision at 1 by rising number of repetitions; empty with one repetition
    depths: tuple[Depth, ...]

    @property
    def accuracy(self) -> float:
        """Precision at 1."""
        return self.figures["P@1"]

    @property
    def top_5_accuracy(self) -> float:
        """Precision at 5."""
        return self.figures["P@5"]


class ListSums:
    """Adds up what is asked of rows with lists of labels; of the rows nothing is kept."""

    def __init__(self, model: Model) -> None:
        assert model.label_counts is not None, "it was trained on lists"
        self._model, self.n_rows, self._n_unseen = model, 0, 0
        self._majority = 0
        self._sets = SetFigures(model.label_counts, model.n_rows)
        self._stated, self._possible = np.zeros((3, BINS)), np.zeros(MOST)
        self._likely = np.zeros(3)  # candidates, stated, right
        self._groups = np.zeros((len(LEAST), 1 + len(GROUPED)))  # rows, and sums of figures

    def add(self, predictor: Predictor, block: RowBlock) -> None:
        """Add rows as a predictor ranks them."""
        lists, (best, ids, scores) = block.lists, ranked(predictor, block)
        self.n_rows += block.n_rows
        self._n_unseen += int((lists.classes < 0).sum())
        self._sets.take(self._sets.block_sums(best, lists))
        self._majority += int((lists.classes == self._model.majority).sum())
        some = np.isfinite(scores)
        stated = label_probabilities(scores, self._model.calibration)[some]
        right = lists.matched(ids)[some]
        self._stated += binned(stated, right)
        likely = stated >= LIKELY
        self._likely += likely.sum(), stated[likely].sum(), right[likely].sum()
        places = np.arange(1, MOST + 1)
        self._possible += np.minimum(lists.lengths[:, None], places).sum(axis=0) / places
        group = np.searchsorted(LEAST, lists.lengths, side="right") - 1
        np.add.at(self._groups, group, row_figures(best[:, :MOST], lists))

    def result(self, path: str, depth_rows: int, depths: tuple[Depth, ...]) -> ListDiagnosis:
        """Return it, with what was found elsewhere."""
        sets, n = self._sets.result(), self.n_rows
        n_likely, stated, right = self._likely.tolist()
        likely = Bin(int(n_likely), stated / n_likely, right / n_likely) if n_likely else None
        return ListDiagnosis(
            path=path, n_rows=n, n_labels=sets.n_labels, n_unseen=self._n_unseen,
            figures=sets.named(), majority=self._majority / n,
            possible={f"P@{k}": float(self._possible[k - 1]) / n for k in PLACES},
            estimator=self._model.estimator, reliability=reliability(self._stated), likely=likely,
            tenths=self._sets.tenths(), by_labels=self._by_labels(), depth_rows=depth_rows,
            depths=depths,
        )  # fmt: skip

    def _by_labels(self) -> tuple[RowGroup, ...]:
        """Return the groups that have rows."""
        most = [*(least - 1 for least in LEAST[1:]), None]
        return tuple(
            RowGroup(
                least=least, most=last, n_rows=int(sums[0]),
                figures=dict(zip(GROUPED, (sums[1:] / sums[0]).tolist(), strict=True)),
            )
            for least, last, sums in zip(LEAST, most, self._groups, strict=True)
            if sums[0]
        )  # fmt: skip


def row_figures(best: NDArray[np.int64], lists: LabelLists) -> NDArray[np.float64]:
    """Return 1, P@1, P@5, N@5 and R@5 of each row: float64 (n, 5), 0 without labels.

    `best` is int64 (n, k).
    """
    hits, n = lists.matched(best), lists.lengths
    discounts = 1 / np.log2(np.arange(2, MOST + 2))
    ideal = np.append(0.0, np.cumsum(discounts))[np.minimum(n, MOST)]
    found = hits.sum(axis=1)
    return np.column_stack([
        np.ones(len(n)), hits[:, 0], found / MOST,
        (hits * discounts[: hits.shape[1]]).sum(axis=1) / np.maximum(ideal, discounts[-1]),
        found / np.maximum(n, 1),
    ])  # fmt: skip
