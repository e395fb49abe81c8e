"""The scikit-learn estimator: a face of the one trainer and the one predictor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import (
    _check_sample_weight,
    check_consistent_length,
    check_is_fitted,
    validate_data,
)

from streammach.data.given import kind_of, listed, without_weightless
from streammach.data.memory_rows import given
from streammach.data.source_options import TableOptions, several
from streammach.data.tables.memory_tables import as_rows, is_recipe_table
from streammach.data.tokenizers import tokenizer
from streammach.model.model import Model
from streammach.prediction.allowed import Allowed
from streammach.prediction.set_metrics import LIKELY
from streammach.progress import Wanted
from streammach.rows.block import RowBlock
from streammach.rows.names import Names
from streammach.sklearn.answers import Answers, check_classes, check_room
from streammach.sklearn.fits import SEVERAL, Passes, new_labels, threads_of, trained
from streammach.sklearn.rows import Rows, Targets, by_class, exact, label_names, places, summed
from streammach.training.onward import Start

ROLES = "text", "category", "number", "date"


@dataclass(eq=False, repr=False)
class MACHClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # without types
    """Classifier for very many classes: small softmax models over hashed classes, in a budget.

    Rows stay in memory where they and the model fit the budget, and are put into a temporary store
    otherwise. Model and batches are chosen for the budget where they are not given. The result is
    the same for any number of threads, on sparse rows, and for any order of up to 4,096 rows.

    Parameters
    ----------
    memory : str or int, default="1GB"
        What a fit may take, such as ``"1GB"``, beside the rows that are given. Of several fits at a
        time each takes as much. It is a constant, so that results do not depend on the machine.
    n_buckets, n_repetitions : int, default=None
        B and R, both or none; chosen for the budget otherwise: a bucket for every class if that
        fits.
    epochs : int, default=10
        Passes over the rows.
    batch_size : int, default=None
        Rows of a batch, all if there are fewer; chosen by the number of rows otherwise.
    learning_rate : float, default=None
        The rate at the start, which falls to 0; by the size of the values otherwise.
    combine : {"auto", "logsum", "mean", "median", "min"}, default="auto"
        How the repetitions become a score.
    device : str, default="cpu"
        Where: ``cpu``, ``cuda``, or ``auto``.
    n_jobs : int, default=None
        Threads that compute; 1 for None, all for -1.
    class_weight : dict or "balanced", default=None
        Weight of each class, which multiplies that of its rows.
    early_stopping : bool, default=False
        Whether some rows are held out, and training ends when it is no better on them; the weights
        of the best epoch are kept, and these rows are learnt from at the end.
    validation_fraction : float, default=0.1
        Share of the rows that is held out then, 10,000 at most.
    n_iter_no_change : int, default=3
        Epochs without a better one, after which training ends then.
    warm_start : bool, default=False
        Whether :meth:`fit` starts from the present weights. Classes that are new come behind the
        others, and so do new features of text and tables; others that are new are left out.
    random_state : int or RandomState, default=None
        Decides hashes and the order of rows; None is 0.
    callbacks : list, default=None
        Objects with any of the methods of :class:`streammach.training.callbacks.Callback`.
    hold_out_by : str, default="auto"
        Which rows are held out: ``auto``, whole documents where rows are near-duplicates, else
        random ones; ``random``; or the namespace, a column of a table, whose values are the
        documents.
    text, category, number, date : str or list of str, default=None
        Columns of a table by what becomes of them; all are looked at where none is named.
    tokenizer : callable, default=None
        What parts a text into words, a function of a module; see :func:`streammach.tokenizer`.
    progress : bool, str or callable, default=None
        Whether a fit tells how it goes, as for :func:`streammach.training.trainer.train`.

    Attributes
    ----------
    classes_ : array (K,)
        The labels, sorted; of an indicator the numbers of its columns.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : array (columns,)
        Their names, where all are strings.
    n_iter_ : int
        Epochs that were trained.
    plan_ : Plan
        The model, and where every byte goes.
    loss_curve_ : list of float
        Mean loss of each epoch, in nats per row and model.
    model_ : Model
        The model.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from streammach.sklearn.classifier import MACHClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = MACHClassifier(epochs=50).fit(X, y)
    >>> bool(clf.score(X, y) > 0.9)
    True
    """

    memory: str | int = "1GB"
    n_buckets: int | None = None
    n_repetitions: int | None = None
    epochs: int = 10
    batch_size: int | None = None
    learning_rate: float | None = None
    combine: str = "auto"
    device: str = "cpu"
    n_jobs: int | None = None
    class_weight: Any = None
    early_stopping: bool = False
    validation_fraction: float = 0.1
    n_iter_no_change: int = 3
    warm_start: bool = False
    random_state: Any = None
    callbacks: Sequence[object] | None = None
    hold_out_by: str = "auto"
    text: str | Sequence[str] | None = None
    category: str | Sequence[str] | None = None
    number: str | Sequence[str] | None = None
    date: str | Sequence[str] | None = None
    tokenizer: Callable[[str], Iterable[str]] | None = None
    progress: Wanted = None

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> MACHClassifier:
        """Train on rows.

        Parameters
        ----------
        X : array, sparse matrix, DataFrame (n, n_features), or list of str
            The rows: numbers; or text, and tables of which not all columns are numbers. These
            become features as in a conversion, and some are held out to choose what is not given.
        y : array (n,), n lists, or array or sparse matrix (n, labels)
            A label for each row, of any type; or a list of labels for each row; or an indicator, a
            matrix with a column for each label.
        sample_weight : array (n,), optional
            Weight of each row; rows of weight 0 are left out.

        Returns
        -------
        MACHClassifier
            The estimator itself.

        Raises
        ------
        ValueError
            If rows or labels cannot be.
        BudgetError
            If nothing fits the budget.
        UsageError, DeviceError, DivergedError, DiskError
            As for :func:`streammach.training.trainer.train`.
        """
        rows, start = self._checked(X, y, sample_weight), None
        classes = rows.targets.classes
        if self.warm_start and hasattr(self, "_answers_"):
            start = Start(self._answers_.model)
            if classes.dtype.kind != self.classes_.dtype.kind:
                raise ValueError("warm_start=True: labels have another type than those before: y")
            classes = np.unique(np.concatenate([self.classes_, classes]))
        self.classes_: NDArray[Any] = classes
        self._sets_ = rows.targets.form
        self._passes_: Passes | None = None
        given, names = self.get_params(deep=False), self._names()
        run = trained(given, rows.canonical(), names, start, len(classes))
        with run:
            self._answers_: Answers = self._answering(run.model)
        self.plan_ = run.plan
        self.loss_curve_ = [epoch.loss for epoch in run.result.history]
        self.n_iter_ = len(self.loss_curve_)
        return self

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None
    ) -> MACHClassifier:
        """Learn from more rows, in one pass and in their order.

        A class that was never seen gets its hashes: no weight is added, and none of those known
        changes. Calls with rows in pieces of whole batches (256 rows, or ``batch_size``) give the
        same weights, bit for bit, as one call with all of them; the last batch of a call is a
        smaller one otherwise. After :meth:`fit` its weights are gone on from, and new classes need
        ``n_buckets`` and ``n_repetitions``. It computes on the CPU.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame (n, n_features)
            The rows.
        y : array (n,)
            A label for each row.
        classes : array, optional
            Labels that are known before they come, at the first call.
        sample_weight : array (n,), optional
            Weight of each row.

        Returns
        -------
        MACHClassifier
            The estimator itself.

        Raises
        ------
        ValueError
            If rows or labels cannot be.
        BudgetError
            If the model does not fit the budget.
        UsageError
            If a class is new and the model has a bucket for each.
        """
        first = not hasattr(self, "_answers_")
        if is_recipe_table(as_rows(X), None, self._roles):
            raise ValueError("rows of numbers are expected, not text: partial_fit")
        rows = self._checked(X, y, sample_weight, reset=first)
        known = None if first else self._labels_by_id()
        labels, codes = new_labels(known, rows.targets, classes)
        if first:
            passes = Passes.begin(self.get_params(deep=False), rows, labels, self._names())
        else:
            passes = self._passes_ or Passes(self._answers_.model, threads_of(self.n_jobs))
        n_known = passes.stream.model.spec.n_classes
        passes.stream.take_labels(label_names(labels)[n_known:])
        loss = passes.learn(rows, codes)
        self._passes_, self.classes_ = passes, np.unique(labels)
        self._sets_ = ""
        self._answers_ = self._answering(
            passes.stream.model, np.searchsorted(self.classes_, labels)
        )
        self.loss_curve_ = [*([] if first else self.loss_curve_), loss]
        self.n_iter_ = 1 if first else self.n_iter_ + 1
        return self

    def _labels_by_id(self) -> NDArray[Any]:
        if self._sets_:
            raise ValueError(SEVERAL)
        found: NDArray[Any] = self.classes_[self._answers_.places]
        return found

    def predict(self, X: Any, only: Any = None, never: Any = None) -> Any:
        """Return the best label of each row.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame (n, n_features)
            The rows.
        only, never : sequence, optional
            Labels that may be said alone, or may not be said; or a list of them for each row. What
            the model does not know is left out.

        Returns
        -------
        array (n,), n lists, or array or csr_array (n, labels) of 0 and 1
            The labels; of sets those with a probability of a half or more, as `y` was given. An
            empty string stands where no label of a row may be said.

        Raises
        ------
        UsageError
            If the model knows no label that may be said, or there is not one list for each row.
        """
        block, allowed = self._block(X, only, never)
        if not self._sets_:
            return self._labels(self._answers_.topk(block, 1, allowed)[0][:, 0])
        each = self._answers_.probabilities(block, len(self.classes_), allowed)
        parts = [scipy.sparse.csr_array(p >= LIKELY, dtype=np.int64) for _, p in each]
        found = scipy.sparse.vstack(parts, format="csr")
        if self._sets_ == "lists":
            ends = zip(found.indptr[:-1], found.indptr[1:], strict=True)
            return [self.classes_[found.indices[a:b]].tolist() for a, b in ends]
        return found if self._sets_ == "sparse" else found.toarray()

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of rows whose label is right, or all whose labels are.

        Parameters
        ----------
        X, y, sample_weight : as there
            The rows, their labels and weights: those of :meth:`fit`.
        """
        lists = listed(y)
        if lists is None:
            return float(super().score(X, y, sample_weight))
        pairs = zip(lists, self.predict(X), strict=True)
        return float(np.average([set(a) == set(b) for a, b in pairs], weights=sample_weight))

    def predict_topk(
        self, X: Any, k: int = 5, only: Any = None, never: Any = None
    ) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """Return the k best labels of each row and their scores, without an array of all classes.

        Parameters
        ----------
        X, k, only, never : as there
            The rows, how many labels, all if there are fewer, and which: those of :meth:`predict`.

        Returns
        -------
        labels : array (n, k)
            The best first; empty strings where a row has no further one.
        scores : float32 (n, k)
            A logarithm of a probability for ``logsum``, an unbiased probability otherwise.
        """
        block, allowed = self._block(X, only, never)
        where, scores = self._answers_.topk(block, k, allowed)
        return self._labels(where), scores

    def predict_proba(
        self, X: Any, classes: Any = None, only: Any = None, never: Any = None
    ) -> NDArray[np.float64]:
        """Return the probability of each class, or of those that are named.

        Where rows were held out (``early_stopping``, text, tables) it is calibrated on them, as by
        :class:`streammach.model.calibration.Calibration`: of more than 32 classes those after a
        row's 32 best share evenly what is left. Otherwise, and for another `combine` than the
        calibrated ranking, it is what the scores say.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame (n, n_features)
            The rows.
        classes : array (m,), optional
            Labels; all of ``classes_`` otherwise, if n x K numbers of 4 bytes fit the budget.
        only, never : sequence, optional
            As for :meth:`predict`: others have the probability 0, and these theirs among all.

        Returns
        -------
        float64 (n, m)
            A column for each. All classes of a row add up to 1, and those that are named to less
            where others are left out; of sets each label has a probability of its own.

        Raises
        ------
        BudgetError
            If an array of all classes does not fit the budget.
        UsageError
            If there is no such class.
        """
        check_is_fitted(self)
        chosen = None if classes is None else check_classes(classes, self.classes_)
        block, allowed = self._block(X, only, never)
        n_classes = len(self.classes_)
        if chosen is None:
            check_room(block.n_rows, n_classes, self.memory)
        out = np.empty((block.n_rows, n_classes if chosen is None else len(chosen)))
        for some, found in self._answers_.probabilities(block, n_classes, allowed):
            out[some] = found if chosen is None else found[:, chosen]
        return out

    @property
    def model_(self) -> Model:
        """The model."""
        check_is_fitted(self)
        return self._answers_.model

    def _checked(self, X: Any, y: Any, sample_weight: Any, *, reset: bool = True) -> Rows:
        X, roles = as_rows(X), self._roles
        if roles != TableOptions() or is_recipe_table(X, None, roles):
            return self._table(X, y, sample_weight)
        if listed(y) is None:
            X, y = validate_data(
                self, X, exact(y), accept_sparse="csr", multi_output=True, reset=reset
            )
        else:
            X = validate_data(self, X, accept_sparse="csr", reset=reset)
            check_consistent_length(X, y)
        X = summed(X)
        weights = None
        if sample_weight is not None:
            weights = _check_sample_weight(
                sample_weight, X, dtype=np.float64, ensure_non_negative=True
            )
            if not weights.any():
                raise ValueError("all weights of rows are 0: sample_weight")
            X, y, weights = without_weightless(X, y, weights)
        targets = Targets.of(y)
        if self.class_weight is not None:
            if not reset and self.class_weight == "balanced":
                raise ValueError("more classes may come: class_weight='balanced', partial_fit")
            weights = by_class(targets, weights, self.class_weight)
        return Rows(X, targets, weights)

    @property
    def _roles(self) -> TableOptions:
        named = {name: getattr(self, name) for name in ROLES}
        said: dict[str, Any] = {name: several(x) for name, x in named.items() if x}
        return TableOptions(**said, tokenizer=self.tokenizer)

    def _table(self, X: Any, y: Any, sample_weight: Any) -> Rows:
        """Return rows of a table or text, which become features as in a conversion."""
        y = np.asarray(y) if listed(y) is None else y
        if sample_weight is not None:
            X, y, sample_weight = without_weightless(X, y, sample_weight)
        targets, found = Targets.of(y), given(X, y, sample_weight, options=self._roles)
        check_consistent_length(found.rows.matrix, y)
        assert found.recipe is not None, "a table has a recipe"
        columns = [column.name for column in found.recipe.columns]
        self.n_features_in_, self.feature_names_in_ = len(columns), np.array(columns, object)
        weights = None if found.weights is None else found.weights.astype(np.float64)
        if self.class_weight is not None:
            weights = by_class(targets, weights, self.class_weight)
        return Rows(found.rows.matrix, targets, weights, found)

    def _answering(self, model: Model, where: NDArray[np.int64] | None = None) -> Answers:
        model = replace(model, label_kind=kind_of(self.classes_))
        if where is None:
            where = places(model.labels, self.classes_)
        return Answers(
            model, where, combine=self.combine, device=self.device, threads=threads_of(self.n_jobs)
        )  # fmt: skip

    def _block(self, X: Any, only: Any, never: Any) -> tuple[RowBlock, Allowed | None]:
        """Return rows with the model's ids, and which classes may be said of them."""
        check_is_fitted(self)
        if self._answers_.model.recipe is None and not isinstance(X, str | dict):
            X = validate_data(self, X, accept_sparse="csr", reset=False)
        block = self._answers_.rows(X)
        return block, self._answers_.allowed(only, never, self.classes_, block.n_rows)

    def _labels(self, where: NDArray[np.int64]) -> NDArray[Any]:
        """Return the labels at places among the classes, an empty string for -1."""
        found = self.classes_[where]
        return np.where(where < 0, "", found.astype(object)) if (where < 0).any() else found

    def _names(self) -> Names | None:
        names = getattr(self, "feature_names_in_", None)
        return None if names is None else Names.of(names.tolist())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_label = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())
        answers, passes = state.pop("_answers_", None), state.pop("_passes_", None)
        if answers is not None:
            state |= {"_model": answers.model, "_places": answers.places}
        if passes is not None:
            state["_state"] = passes.state
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        if state.get("tokenizer") is not None:
            tokenizer(state["tokenizer"])
        model, learning = state.pop("_model", None), state.pop("_state", None)
        where = state.pop("_places", None)
        super().__setstate__(state)
        if model is None:
            return
        self._passes_ = None
        if learning is not None:
            self._passes_ = Passes(model, threads_of(self.n_jobs))
            for name, array in self._passes_.state.items():
                array[:] = learning[name]
            model = self._passes_.stream.model
        self._answers_ = self._answering(model, where)
