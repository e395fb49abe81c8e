"""Where a model is right on rows with lists of labels: by probability, frequency, their number."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streammach.model.model import Model
from streammach.prediction.calibrate import label_probabilities
from streammach.prediction.depths import Depth
from streammach.prediction.diagnosis import LIKELY, ListDiagnosis, RowGroup
from streammach.prediction.predictor import Predictor
from streammach.prediction.reached import ranked
from streammach.prediction.reliability import Bin, ReliabilitySums
from streammach.prediction.set_metrics import MOST, PLACES, SetFigures
from streammach.rows.block import RowBlock
from streammach.rows.label_lists import LabelLists

LEAST = (0, 1, 2, 3, 4, 5, 6, 11, 21, 51)  # labels of a row that begin a group of rows
GROUPED = ("P@1", "P@5", "N@5", "R@5")  # what is said of a group


class ListSums:
    """Adds up what is asked of rows with lists of labels; of the rows nothing is kept."""

    def __init__(self, model: Model) -> None:
        assert model.label_counts is not None, "it was trained on lists"
        self._model, self.n_rows, self._n_unseen = model, 0, 0
        self._majority = 0
        self._sets = SetFigures(model.label_counts, model.n_rows)
        self._reliability, self._possible = ReliabilitySums(), np.zeros(MOST)
        self._likely = np.zeros(3)  # candidates, stated, right
        self._groups = np.zeros((len(LEAST), 1 + len(GROUPED)))  # rows, and sums of figures

    def add(self, predictor: Predictor, block: RowBlock) -> None:
        """Add rows as a predictor ranks them."""
        lists, (best, ids, scores) = block.lists, ranked(predictor, block)
        self.n_rows += block.n_rows
        self._n_unseen += int((lists.classes < 0).sum())
        self._sets.add(best, lists)
        self._majority += int((lists.classes == self._model.majority).sum())
        some = np.isfinite(scores)
        stated = label_probabilities(scores, self._model.calibration)[some]
        right = lists.matched(ids)[some]
        self._reliability.add(stated, right)
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
            estimator=self._model.estimator, reliability=self._reliability.result(), likely=likely,
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
