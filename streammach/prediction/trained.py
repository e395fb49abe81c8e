"""A trained model that answers: the labels of rows in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.data.given_labels import label_values
from streammach.files.folders import make_folder, temporary_folder
from streammach.files.writing import write_atomic
from streammach.forks import Turn
from streammach.model import model
from streammach.prediction.predictor import Predictor
from streammach.rows.names import Label


@dataclass(frozen=True, kw_only=True, repr=False)
class Model(model.Model):
    """A trained model, which answers for rows in memory, from any thread.

    Attributes
    ----------
    label_kind : str
        The type in which labels are given back: that of those it was trained on, while these are
        known; otherwise integers where all labels are, else strings. It is no part of the files.
    """

    label_kind: str = ""
    _lock: Any = field(default_factory=Turn, repr=False, compare=False)

    def predict(
        self, rows: Any, k: int = 1, *, columns: Sequence[Label] | None = None
    ) -> NDArray[Any]:
        """Return the best label of each row, or its k best, the best first.

        Parameters
        ----------
        rows : scipy sparse matrix, array (n, columns), DataFrame or list of dicts
            The rows; see :meth:`streammach.prediction.predictor.Predictor.topk`.
        k : int
            How many; all if there are fewer labels.
        columns : sequence, optional
            A name for each column of a matrix.

        Returns
        -------
        array (n,), or (n, k) for more than one
            The labels.

        Raises
        ------
        DataError
            If columns cannot be told apart, or a value is not finite.
        """
        labels, _ = self.predict_topk(rows, k, columns=columns)
        return labels[:, 0] if k == 1 else labels

    def predict_topk(
        self,
        rows: Any,
        k: int = 5,
        *,
        columns: Sequence[Label] | None = None,
        probabilities: bool = False,
    ) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """Return the k best labels of each row and their scores, as :meth:`predict` and a matrix.

        Parameters
        ----------
        rows : scipy sparse matrix, array (n, columns), DataFrame or list of dicts
            The rows.
        k : int
            How many; all if there are fewer labels.
        columns : sequence, optional
            A name for each column of a matrix.
        probabilities : bool
            Give calibrated probabilities, from 0 to 1, in place of scores.

        Returns
        -------
        labels : array (n, k)
            The best first.
        scores : float32 (n, k)
            Their scores; see :meth:`streammach.prediction.predictor.Predictor.topk`.
        """
        with self._lock as lost:
            if lost:  # at a fork: this process makes its own
                self.__dict__.pop("_predictor", None)
            block = self._predictor.block(rows, columns)
            ids, scores = self._predictor.ranked(block, k, probabilities=probabilities)
        unique, where = np.unique(ids, return_inverse=True)
        labels = label_values(self.labels.raws(unique), self.label_kind, self.labels.kind)
        return labels[where].reshape(ids.shape), scores

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the bytes of its own files, of which pickles and copies are made."""
        with temporary_folder() as folder:
            self.save(folder)
            files = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
        return _restored, (files, self.label_kind)

    @cached_property
    def _predictor(self) -> Predictor:
        return Predictor(self)


def _restored(files: dict[str, bytes], label_kind: str) -> Model:
    """Return the model of its files, or raise ModelError if they are damaged."""
    with temporary_folder() as folder:
        make_folder(folder)
        for name, content in files.items():
            write_atomic(folder / Path(name).name, content)
        return replace(Model.load(folder), label_kind=label_kind)
