"""Exact top-k predictions of a model: for rows in memory, or streamed over a store or a text."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from streammach.backends.base import open_to_predict
from streammach.counts.scores import CountScorer, CountWeights
from streammach.errors import DataError, UsageError, clean
from streammach.machine import cores
from streammach.model.model import Model
from streammach.prediction.inputs import Seen, rows_of
from streammach.prediction.ranking import by_counts, by_hashes
from streammach.rows.block import RowBlock
from streammach.spec import Estimator, Ranker

ESTIMATORS: tuple[Estimator, ...] = ("logsum", "mean", "median", "min")
RANKERS: tuple[Ranker, ...] = ("blend", *ESTIMATORS)


@dataclass(frozen=True)
class Predictions:
    """The best classes of some rows.

    Attributes
    ----------
    first_row : int
        Number of the first row in the input, from 0.
    ids : int64 (n, k)
        Class ids, best first.
    scores : float32 (n, k)
        Their scores by the estimator.
    """

    first_row: int
    ids: NDArray[np.int64]
    scores: NDArray[np.float32]


class Predictor:
    """Applies a model.

    Parameters
    ----------
    model : Model
        The model.
    estimator : str, optional
        ``mean``, ``min``, ``median`` or ``logsum`` of the hashed models, or ``blend``: counts and
        hashed models together; the one stored with the model otherwise.
    device : str
        ``auto``, ``cpu`` or ``cuda``.
    threads : int, optional
        Threads that compute; all cores otherwise.

    Raises
    ------
    UsageError
        If there is no such estimator, or the model has no counts to blend.
    DeviceError
        If the device cannot be used.
    BudgetError
        If the model does not fit the memory of a device that was asked for.
    """

    def __init__(
        self,
        model: Model,
        *,
        estimator: str | None = None,
        device: str = "auto",
        threads: int | None = None,
    ) -> None:
        if estimator is not None and estimator not in RANKERS:
            known = ", ".join(RANKERS)
            raise UsageError(f"'{clean(estimator)}' is not one of {known}: --estimator")
        if estimator == "blend" and model.counts is None:
            raise UsageError("the model has no counts to blend: --estimator blend")
        self.model = model
        self.estimator: Ranker = next(
            (name for name in RANKERS if name == estimator), model.estimator
        )
        self._scorer: CountScorer | None = None
        if model.counts is not None:
            weights = CountWeights(**model.counts, hashed=model.hashed_weight)
            self._scorer = CountScorer(weights, threads or cores())
        self._backend = open_to_predict(
            device,
            model.spec,
            dense=model.dense,
            threads=threads or cores(),
            weights=model.hashed,
        )

    def topk(
        self, rows: RowBlock | NDArray[Any] | Any, k: int = 5
    ) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """Return the k best labels of each row and their scores, best first.

        Parameters
        ----------
        rows : RowBlock, scipy sparse matrix or array (n, d)
            Rows with the model's features as columns, before its transform.
        k : int
            How many; all classes if there are fewer.

        Returns
        -------
        labels : array (n, k)
            In the type of the training data: int64 or object.
        scores : float32 (n, k)
            By the estimator: an unbiased probability, a logarithm for ``logsum``, a log odds for
            ``blend``.

        Raises
        ------
        DataError
            If the number of columns is wrong or a value is not finite.
        """
        block = rows if isinstance(rows, RowBlock) else as_block(rows, self.model.spec.n_features)
        ids, scores = self.topk_ids(block, k)
        return self.labels(ids), scores

    def topk_ids(
        self, block: RowBlock, k: int, estimator: Ranker | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the k best class ids of each row and their scores: (n, k) each."""
        name, transform = estimator or self.estimator, self.model.training.transform
        if name == "blend":
            assert self._scorer is not None
            return by_counts(self._backend, self._scorer, transform)(block, k)
        return by_hashes(self._backend, name, transform)(block, k)

    def stream(
        self,
        path: str | os.PathLike[str],
        k: int = 5,
        *,
        form: str | None = None,
        seen: Seen | None = None,
    ) -> Iterator[Predictions]:
        """Yield the best classes of every row of a store or text, in its order, in bounded memory.

        Parameters
        ----------
        path : path-like
            A store, or VW or svmlight text whose rows need no labels.
        k : int
            How many classes a row.
        form : str, optional
            Format of a text; guessed otherwise.
        seen : Seen, optional
            Counts rows and what the model does not know.

        Raises
        ------
        UsageError, DataError, StoreError, DiskError
            If the input cannot be read.
        """
        first = 0
        rows = rows_of(Path(path), self.model, seen or Seen(), form=form, label_needed=False)
        for block in rows:
            ids, scores = self.topk_ids(block, k)
            yield Predictions(first, ids, scores)
            first += block.n_rows

    def labels(self, ids: NDArray[np.int64]) -> NDArray[Any]:
        """Return the labels of class ids, in the type of the training data."""
        names = self.model.labels
        unique, where = np.unique(ids, return_inverse=True)
        dtype = np.int64 if names.kind == "integer" else object
        found = np.empty(len(unique), dtype)
        for i, class_id in enumerate(unique.tolist()):
            found[i] = names.label(class_id)
        return found[where].reshape(ids.shape)

    def close(self) -> None:
        """Stop the threads."""
        self._backend.close()
        if self._scorer is not None:
            self._scorer.close()

    def __enter__(self) -> Predictor:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def as_block(rows: Any, n_features: int) -> RowBlock:
    """Return a matrix as rows without labels.

    Parameters
    ----------
    rows : scipy sparse matrix or array (n, d)
        The matrix.
    n_features : int
        d.

    Raises
    ------
    DataError
        If it does not have d columns or a value is not finite.
    """
    matrix = scipy.sparse.csr_array(rows, dtype=np.float32)
    if matrix.ndim != 2 or matrix.shape[1] != n_features:
        raise DataError(f"rows have the shape {matrix.shape}, not (n, {n_features})")
    matrix.sum_duplicates()
    if not np.isfinite(matrix.data).all():
        raise DataError("a value is not a finite float32")
    return RowBlock(
        matrix.indptr.astype(np.int64),
        matrix.indices.astype(np.int32),
        matrix.data,
        np.full(matrix.shape[0], -1, np.int32),
    )
