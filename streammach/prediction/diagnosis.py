"""What a model does on labelled rows, in parts: with one label each, and with lists of them."""

from __future__ import annotations

from dataclasses import dataclass

from streammach.prediction.class_sums import Decile
from streammach.prediction.depths import Depth
from streammach.prediction.reliability import Bin, Reliability
from streammach.prediction.set_metrics import Tenth
from streammach.spec.types import Ranker

LIKELY = 0.5  # probability of a label from which on it is said to be there


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """What a model does on labelled rows, in parts.

    Attributes
    ----------
    path : str
        Where the rows come from.
    n_rows, n_unseen : int
        Rows used, and those of them whose label was never seen in training: they count as wrong.
    accuracy, top_5_accuracy : float
        Of the model as it ranks.
    majority : float
        Accuracy of always answering the class that is most frequent in training.
    estimator : str
        How it ranks.
    before, after : Reliability
        Probabilities as the scores are, and after calibration, of the rows with a label seen in
        training.
    deciles : tuple of Decile
        From frequent to rare classes.
    depth_rows : int
        Rows used for `depths`.
    depths : tuple of Depth
        By rising number of repetitions; empty with one repetition.
    """

    path: str
    n_rows: int
    n_unseen: int
    accuracy: float
    top_5_accuracy: float
    majority: float
    estimator: Ranker
    before: Reliability
    after: Reliability
    deciles: tuple[Decile, ...]
    depth_rows: int
    depths: tuple[Depth, ...]


@dataclass(frozen=True, kw_only=True)
class RowGroup:
    """Rows by their number of labels.

    Attributes
    ----------
    least, most : int or None
        Labels of a row; without an end where `most` is None.
    n_rows : int
        Rows of so many.
    figures : dict of str to float
        Their P@1, P@5, N@5 and R@5.
    """

    least: int
    most: int | None
    n_rows: int
    figures: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class ListDiagnosis:
    """What a model does on rows with lists of labels, in parts.

    Attributes
    ----------
    path : str
        Where the rows come from.
    n_rows, n_labels, n_unseen : int
        Rows used, their labels, and those of them that training never saw: they count as missed.
    figures : dict of str to float
        Of the model as it ranks, by the names of the XMC repository: P@k, N@k, R@k, PSP@k, PSN@k.
    possible : dict of str to float
        The most that P@1, P@3 and P@5 can be on these rows.
    majority : float
        P@1 of always answering the label that is most frequent in training.
    estimator : str
        How it ranks.
    reliability : Reliability
        Probabilities of the best candidates of all rows, of each label on its own; its rows are
        candidates.
    likely : Bin or None
        Those with a probability of 0.5 or more; None without any.
    tenths : tuple of Tenth
        Recall at 5 by tenths of the labels that occur, from the rarest in training on.
    by_labels : tuple of RowGroup
        Rows by their number of labels, those that there are.
    depth_rows : int
        Rows used for `depths`.
    depths : tuple of Depth
        Precision at 1 by rising number of repetitions; empty with one repetition.
    """

    path: str
    n_rows: int
    n_labels: int
    n_unseen: int
    figures: dict[str, float]
    possible: dict[str, float]
    majority: float
    estimator: Ranker
    reliability: Reliability
    likely: Bin | None
    tenths: tuple[Tenth, ...]
    by_labels: tuple[RowGroup, ...]
    depth_rows: int
    depths: tuple[Depth, ...]

    @property
    def accuracy(self) -> float:
        """Precision at 1."""
        return self.figures["P@1"]

    @property
    def top_5_accuracy(self) -> float:
        """Precision at 5."""
        return self.figures["P@5"]
