"""Exact top-k predictions of a model: for rows in memory, or streamed over a store or a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.backends.registry import open_to_predict
from streammach.conversion.memory_labels import label_values
from streammach.inputs.bad_rows import BadRows
from streammach.inputs.source_options import GUESSED, SourceOptions
from streammach.inputs.tables.memory_objects import as_rows
from streammach.model.model import Model
from streammach.model.size import size_in_memory
from streammach.options.annotated import check_options
from streammach.options.estimators import BLEND, rankers
from streammach.options.figures import Explanation
from streammach.options.option_fields import add_parameters
from streammach.options.types import Ranker
from streammach.prediction.allowed import Allowed, SomeLabels
from streammach.prediction.explain import explanations
from streammach.prediction.in_memory import ModelRows
from streammach.prediction.inputs import InputCounts, Room, rows_of
from streammach.prediction.options import Device, EvaluateOptions, PredictOptions
from streammach.prediction.order import in_source_order, rank_blocks, source_order
from streammach.prediction.ranking import Top
from streammach.prediction.room import NOTHING, Input, Task, room_for
from streammach.prediction.scorer_sum import PredictionRequest, Predictions, ScorerSum
from streammach.rows.block import RowBlock
from streammach.system.errors import UsageError, check_word
from streammach.system.files.urls import locate
from streammach.system.machine import budget, cores

FEW_IDS = 256  # whose labels are looked up one by one


@add_parameters(EvaluateOptions, Device)
class Predictor(AbstractContextManager["Predictor"]):
    """Applies a model.

    Parameters
    ----------
    model : Model
        The model.

    Attributes
    ----------
    model : Model
        The model.
    estimator : str
        How classes are ranked.
    device : str
        Where it computes.
    threads : int
        Threads that compute.
    decoding : str
        How the best classes of many rows are found by the hashed models: ``tile`` (64 rows a
        vector), ``one`` (class by class) or ``cuda``; empty without these.

    Raises
    ------
    UsageError
        If there is no such estimator, or the model does not have what it ranks by.
    DeviceError
        If the device cannot be used.
    BudgetError
        If the model does not fit the memory, or that of a device that was asked for.
    """

    def __init__(
        self, model: Model, *, estimator: str | None = None, device: str = "auto",
        threads: int | None = None, memory: str | int | None = None,
    ) -> None:  # fmt: skip
        check_options(Predictor.__init__.__annotations__, locals())
        if estimator is not None:
            check_word(estimator, rankers(), "--estimator")
        if estimator == "blend" and model.calibrated_ranking != BLEND:
            raise UsageError("the model has no counts to blend: --estimator blend")
        if model.spec.unhashed and estimator not in (None, BLEND):
            raise UsageError(f"the model has no hashed models: --estimator {estimator}")
        self.threads, self._budget = threads or cores(), budget(memory)
        self._size = size_in_memory(model)
        self.device, self._backend = open_to_predict(
            device, model.spec, dense=model.dense, threads=self.threads,
            weights=model.hashed_arrays, logistic=model.training.logistic,
        )  # fmt: skip
        self.model, self.estimator = model, estimator or model.estimator
        self.scorers = ScorerSum(model, self._backend, estimator, self.threads)
        self.decoding = model.spec.decoding
        if self.decoding and self.device != "cpu":
            self.decoding = self.device
        self.rows, self._rooms = ModelRows(model), dict[tuple[int, bool], Room]()

    def topk(
        self, rows: RowBlock | NDArray[Any] | Any, k: int = 5, *,
        columns: Sequence[str | int | bytes] | None = None, probabilities: bool = False,
        threshold: float | None = None, only: SomeLabels | None = None,
        never: SomeLabels | None = None, kind: str = "",
    ) -> tuple[NDArray[Any], NDArray[np.float32]]:  # fmt: skip
        """Return the k best labels of each row and their scores, best first.

        Parameters
        ----------
        rows : scipy sparse matrix, array (n, columns), table or RowBlock
            A DataFrame of pandas or polars, an Arrow table, a list of dictionaries, or of strings
            where the model reads one column of text: rows of a table, read by the model's recipe,
            or features by name where it has none. Otherwise rows before the model's transform.
            Columns are those of the matrix that was trained on, in its order, those without a value
            too; of a model of svmlight or XMC text they are numbered from 0 as there. A block has
            the model's ids.
        k : int
            How many; all classes if there are fewer.
        columns : sequence, optional
            A name for each column of the matrix, in any order, and other ones than in training:
            features as the model lists them. Needed for a model of text whose features have names.
        probabilities : bool
            Give calibrated probabilities, from 0 to 1, in place of scores. They are those of the
            ranking that was calibrated (``model.calibrated``), and of its best classes. Of all K
            classes of a row they add up to 1; where rows have lists of labels each label has a
            probability of its own.
        threshold : float, optional
            Give labels with at least this probability alone, and their probabilities as scores.
        only, never : sequence, optional
            Labels that may be said alone, or may not be said; or a list of them for each row. What
            the model does not know is left out, and a warning names it. No score and no probability
            changes by them.
        kind : str
            The type in which labels are given; that of the training data otherwise.

        Returns
        -------
        labels : array (n, k)
            In the type of the training data: int64 or object; empty strings where a row has no
            further label.
        scores : float32 (n, k)
            By the estimator: an unbiased probability, a logarithm for ``logsum``, a log odds for
            ``blend``; or calibrated probabilities.

        Raises
        ------
        DataError
            If columns cannot be told apart, or a value is not finite, or a cell cannot be read.
        UsageError
            If probabilities are asked of an estimator that is not the calibrated one, or the model
            knows no label that may be said, or there is not one list of them for each row.
        """
        block = rows if isinstance(rows, RowBlock) else self.rows.block(rows, columns)
        ids, scores = self.rank(
            block, k, probabilities=probabilities, threshold=threshold,
            allowed=self.limit_labels(only, never, block.n_rows),
        )  # fmt: skip
        return self.labels(ids, kind), scores

    def query(
        self, features: NDArray[np.integer[Any]] | Sequence[int | str | bytes],
        values: NDArray[Any] | Sequence[float] | None = None, k: int = 5, *,
        probabilities: bool = False, threshold: float | None = None,
        only: SomeLabels | None = None, never: SomeLabels | None = None,
    ) -> tuple[NDArray[Any], NDArray[np.float32]]:  # fmt: skip
        """Return the k best labels of one row and their scores, best first, in the least time.

        They are those that :meth:`topk` gives for the row among others.

        Parameters
        ----------
        features : int array (m,), or sequence of int, str or bytes
            Ids of the row's features, as :meth:`ids` gives them, or their names, as the model lists
            them: ``namespace^name``, or what a column was called. What the model does not know is
            left out.
        values : array (m,), optional
            Their values before the model's transform; all are 1 otherwise.
        k : int
            How many; all K classes if there are fewer.
        probabilities, threshold, only, never : optional
            As for :meth:`topk`.

        Returns
        -------
        labels : array (min(k, K),)
            As of :meth:`topk`.
        scores : float32 (min(k, K),)
            As of :meth:`topk`.

        Raises
        ------
        DataError
            If an id is none, a value is not a finite float32, or there are more or fewer.
        UsageError
            As for :meth:`topk`.
        """
        row, allowed = self.rows.features.row(features, values), self.limit_labels(only, never)
        best = self.scorers.topk(
            row, k, probabilities=probabilities, threshold=threshold, allowed=allowed
        )
        return self.labels(best.ids[0]), best.values[0]

    def ids(self, names: Sequence[str | bytes]) -> NDArray[np.int32]:
        """Return the ids of features by name, for :meth:`query`: int32 (n,), -1 where unknown.

        Parameters
        ----------
        names : sequence of str or bytes
            Features as the model lists them, ``namespace^name``, or what a column was called.

        Raises
        ------
        DataError
            If one is neither str nor bytes.
        """
        return self.rows.features.ids(list(names))

    def explain(
        self, rows: RowBlock | NDArray[Any] | Any, k: int = 1, n: int = 10, *,
        columns: Sequence[str | int | bytes] | None = None, kind: str = "",
    ) -> list[list[Explanation]]:  # fmt: skip
        """Return why each row gets its k best labels; see :meth:`streammach.Model.explain`.

        Parameters
        ----------
        rows, k, n, columns : as there
            The rows, and what is wanted of them.
        kind : str
            The type in which labels are given; that of the training data otherwise.
        """
        check_options(Predictor.explain.__annotations__, locals())
        rows = rows if isinstance(rows, RowBlock) else as_rows(rows)
        block = rows if isinstance(rows, RowBlock) else self.rows.block(rows, columns)
        ids, _ = self.rank(block, k)
        reasons = self.scorers.reasons(block, ids, n)
        there, names = (ids >= 0).sum(axis=1).tolist(), self.labels(ids, kind).tolist()
        labels = [own[:m] for own, m in zip(names, there, strict=True)]
        return explanations(reasons, labels, self.model.features, self.rows.places(rows, reasons))

    def rank(
        self, block: RowBlock, k: int, estimator: Ranker | None = None, *,
        probabilities: bool = False, threshold: float | None = None, allowed: Allowed | None = None,
    ) -> Top:  # fmt: skip
        """Return class ids and scores, or probabilities, of any rows in bounded memory."""
        scorers, k = self.scorers, self.scorers.most(k, allowed)
        shape = block.n_rows, k
        ids, values = np.empty(shape, np.int64), np.empty(shape, np.float32)
        best = scorers.n_to_rank(k, allowed, calibrated=probabilities or threshold is not None)
        key = best, allowed is not None
        if key not in self._rooms:
            self._rooms[key] = self.room("rows", None, best, some_labels=allowed is not None)
        for rows in self._rooms[key].ranges(block.indptr):
            whole = rows == slice(0, block.n_rows)
            part = block if whole else block.part(rows.start, rows.stop)
            found = scorers.topk(
                part, k, estimator, probabilities=probabilities, threshold=threshold,
                allowed=None if allowed is None else allowed.part(rows),
            )  # fmt: skip
            ids[rows], values[rows] = found.ids, found.values
        return ids, values

    def room(
        self, task: Task, path: str | os.PathLike[str] | None, k: int,
        options: SourceOptions = GUESSED, beside: Mapping[str, int] = NOTHING,
        some_labels: bool = False,
    ) -> Room:  # fmt: skip
        """Return how much of an input is held at a time, or raise BudgetError."""
        source = None
        if path is not None:
            source = Input.of(path, self._size, options, labels=task != "predict")
        return room_for(
            self._size, task, source, k, device=self.device, threads=self.threads,
            budget=self._budget, beside=beside, some_labels=some_labels,
        )  # fmt: skip

    @add_parameters(PredictOptions)
    def stream(
        self, path: str | os.PathLike[str], k: int = 5, *, options: SourceOptions = GUESSED,
        threshold: float | None = None, probabilities: bool = False, explain: int = 0,
    ) -> Iterator[Predictions]:  # fmt: skip
        """Yield the best classes of every row of a store or file in bounded memory.

        Rows come in the order of the source, those of a store in that of what it was converted
        from, with the number that they had there; an id of -1 stands for no further label.

        Parameters
        ----------
        path : path-like
            A store, or a file of any format that can be converted; rows need no labels.
        options : SourceOptions, optional
            How a file is read; guessed otherwise.

        Raises
        ------
        UsageError, DataError, StoreError, DiskError
            If the input cannot be read, or probabilities are asked of an estimator that is not the
            calibrated one.
        """
        check_options(Predictor.stream.__annotations__, locals())
        request = PredictionRequest(
            k=k, threshold=threshold, probabilities=probabilities, explain=explain
        )
        return self.rank_input(locate(path), request, options=options)

    def rank_input(
        self, path: Path, request: PredictionRequest, *, options: SourceOptions = GUESSED,
        room: Room | None = None, allowed: Allowed | None = None, seen: InputCounts | None = None,
        bad_rows: BadRows | None = None, report: Callable[[int], None] | None = None,
        beside: Path | None = None,
    ) -> Iterator[Predictions]:  # fmt: skip
        """Yield what is asked of rows, in their order; some lie `beside` a path until then."""
        k = self.scorers.most(request.k, allowed)  # refused now, not with the first rows
        if request.calibrated:
            self.scorers.check_calibrated(None, request.threshold)
        best = self.scorers.n_to_rank(k, allowed, calibrated=request.calibrated)
        room = room or self.room("predict", path, best, options, some_labels=allowed is not None)
        blocks = rows_of(
            path, self.model, seen or InputCounts(), room, options=options, label_needed=False,
            bad_rows=bad_rows,
        )  # fmt: skip
        order = source_order(path)
        # Of a store all rows are ranked before the first is given.
        parts: Iterator[Predictions] = rank_blocks(
            self.scorers, blocks, request, allowed, None if order is None else report
        )
        if order is not None:
            record = request.record_type(k)
            parts = in_source_order(parts, order, record, room.sorted_bytes, beside)
        return room.keep_kernels_after(parts)

    def limit_labels(
        self, only: SomeLabels | None, never: SomeLabels | None, n_rows: int | None = None, *,
        warned: bool = True, names: Mapping[Any, bytes] | None = None,
    ) -> Allowed | None:  # fmt: skip
        """Return which labels may be said of rows; :meth:`topk` says what is raised."""
        return self.scorers.known.limit_labels(only, never, n_rows, warned=warned, names=names)

    def labels(self, ids: NDArray[np.int64], kind: str = "") -> NDArray[Any]:
        """Return the labels of class ids, in the type of the training data, or in another kind."""
        # Of the id -1 it is the empty string, in an array of objects.
        names, few = self.model.labels, ids.size <= FEW_IDS
        unique, where = (ids.reshape(-1), ...) if few else np.unique(ids, return_inverse=True)
        there = unique >= 0
        own = label_values(names.raws(unique[there]), kind, names.kind)
        found = own if there.all() else np.full(len(unique), "", object)
        found[there] = own
        return found[where].reshape(ids.shape)

    def close(self) -> None:
        """Stop the threads."""
        self._backend.close()
        self.scorers.close()

    def __exit__(self, *exc: object) -> None:
        self.close()
