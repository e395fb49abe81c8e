"""What a model answers for rows in memory, from any thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from streammach.model.thresholds import Curve, find_threshold
from streammach.options.annotated import check_options
from streammach.options.figures import Explanation
from streammach.rows.block import RowBlock
from streammach.rows.names import Label
from streammach.system.forks import ForkSafeLock

if TYPE_CHECKING:
    from streammach.prediction.predictor import Predictor

NEVER = 1.0  # probability of a label that no threshold gives what is wanted


class SharedPredictor:
    """A predictor of a model, which one thread has at a time; made when it is first asked for."""

    def __init__(self, **options: Any) -> None:
        self._options, self._lock = options, ForkSafeLock()
        self._made: Predictor | None = None

    @contextmanager
    def of(self, model: Any) -> Iterator[Predictor]:
        """Yield the predictor, always of the same model."""
        from streammach.prediction.predictor import Predictor  # a floor above: on demand

        with self._lock as lost:
            if self._made is None or lost:  # at a fork: this process makes its own
                self._made = Predictor(model, **self._options)
            yield self._made


@dataclass(frozen=True, kw_only=True, repr=False)
class RowAnswers:
    """The methods of a model that rank labels; each thread waits for its turn."""

    label_kind: str = ""  # the type in which labels are given back
    _shared: SharedPredictor = field(
        default_factory=SharedPredictor, init=False, repr=False, compare=False
    )

    def predict(
        self, rows: Any, k: int = 1, *, columns: Sequence[Label] | None = None,
        threshold: float | None = None, only: Any = None, never: Any = None,
    ) -> NDArray[Any]:  # fmt: skip
        """Return the best label of each row, or its k best, the best first.

        Parameters
        ----------
        rows, k, columns, threshold, only, never : as there
            The rows and what is asked of them:
            :meth:`streammach.prediction.predictor.Predictor.topk`.

        Returns
        -------
        array (n,), or (n, k) for more than one
            The labels; empty strings where a row has no further one that may be said.
        """
        labels, _ = self.predict_topk(
            rows, k, columns=columns, threshold=threshold, only=only, never=never
        )
        return labels[:, 0] if k == 1 else labels

    def predict_topk(
        self, rows: Any, k: int = 5, *, columns: Sequence[Label] | None = None,
        probabilities: bool = False, threshold: float | None = None, only: Any = None,
        never: Any = None,
    ) -> tuple[NDArray[Any], NDArray[np.float32]]:  # fmt: skip
        """Return the k best labels of each row and their scores, as :meth:`predict` and a matrix.

        Parameters
        ----------
        rows, k, columns, probabilities, threshold, only, never : as there
            The rows and what is asked of them:
            :meth:`streammach.prediction.predictor.Predictor.topk`.

        Returns
        -------
        labels, scores : arrays (n, k)
            As there; labels are of the type of `y`, where the model was trained on rows in memory.
        """
        with self._shared.of(self) as predictor:
            return predictor.topk(
                rows, k, columns=columns, probabilities=probabilities, threshold=threshold,
                only=only, never=never, kind=self.label_kind,
            )  # fmt: skip

    def buckets(self, rows: Any, *, columns: Sequence[Label] | None = None) -> NDArray[np.float32]:
        """Return what the hashed models say of rows: the probability of each bucket.

        That of class i in repetition r stands at ``[:, r, spec.codes()[i, r]]``.

        Parameters
        ----------
        rows, columns : as there
            The rows: :meth:`streammach.prediction.predictor.Predictor.topk`.

        Returns
        -------
        float32 (n, R, B)
            The probabilities, which add up to 1 in each repetition; where rows have lists of
            labels, each bucket's own.

        Raises
        ------
        UsageError
            If the model has no hashed models.
        """
        spec = cast(Any, self).spec
        with self._shared.of(self) as predictor:
            block = rows if isinstance(rows, RowBlock) else predictor.rows.block(rows, columns)
            found = predictor.scorers.bucket_probabilities(block)
        return found.reshape(-1, spec.n_repetitions, spec.n_buckets)

    def explain(
        self, rows: Any, k: int = 1, n: int = 10, *, columns: Sequence[Label] | None = None
    ) -> list[list[Explanation]]:
        """Return why each row gets its k best labels: what features and the model add to scores.

        An explanation has ``label``, ``score``, ``contributions`` (``feature``, ``value``,
        ``contribution``) and ``lines``, by name; all contributions and lines add up to the score.

        Parameters
        ----------
        rows, k : as there
            The rows, and how many labels of each: those of :meth:`predict`.
        n : int
            How many features that raise a score most, and how many that lower it most. The line
            ``rest`` is what all others add.
        columns : sequence, optional
            A name for each column of a matrix.

        Returns
        -------
        list of list of Explanation
            For each row those of its labels, the best first.
        """
        with self._shared.of(self) as predictor:
            return predictor.explain(rows, k, n, columns=columns, kind=self.label_kind)

    def threshold(
        self, *, precision: float | None = None, recall: float | None = None,
        per_label: bool = False,
    ) -> float | NDArray[np.float64]:  # fmt: skip
        """Return the probability from which on labels have a precision, or a recall.

        Held-out rows said so, before the training learnt from them; of rows with one label each
        their best one.

        Parameters
        ----------
        precision, recall : float, optional
            The share of such labels that are right, whose lowest probability is given; or the share
            of the rows' labels that are found, whose highest is.
        per_label : bool
            Give one for each label by its own rows: 1 where none is enough, and that of all labels
            where the label was right for fewer than 20 rows.

        Returns
        -------
        float, or float64 (K,) by class id
            For ``threshold=`` of other functions.

        Raises
        ------
        UsageError
            If there were no held-out rows, or it is not reached: then the highest is said.
        """
        check_options(RowAnswers.threshold.__annotations__, locals())
        model = cast(Any, self)
        curves: tuple[Curve, ...] = model.calibration.curves
        common = find_threshold(curves, precision=precision, recall=recall)
        each = np.full(model.spec.n_classes, common)
        for curve in curves[1:]:
            own = curve.threshold(precision, recall)
            each[curve.label] = NEVER if own is None else own
        return each if per_label else common
