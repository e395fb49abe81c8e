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
    """What a model does on labelled rows, in parts."""

    path: str  # where the rows come from
    # n_rows, n_unseen: rows used, and those of them whose label was never seen in training: they
    # count as wrong
    n_rows: int
    n_unseen: int
    accuracy: float  # accuracy, top_5_accuracy: of the model as it ranks
    top_5_accuracy: float
    majority: float  # accuracy of always answering the class that is most frequent in training
    estimator: Ranker  # how it ranks
    # before, after: probabilities as the scores are, and after calibration, of the rows with a
    # label seen in training
    before: Reliability
    after: Reliability
    deciles: tuple[Decile, ...]  # from frequent to rare classes
    depth_rows: int  # rows used for `depths`
    depths: tuple[Depth, ...]  # by rising number of repetitions; empty with one repetition


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
