"""The scikit-learn estimator: over the one trainer and the one predictor."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from streammach.conversion.memory_labels import find_lists, kind_of
from streammach.frontends.sklearn import fit_rows
from streammach.frontends.sklearn.answers import Answers, check_classes, check_room
from streammach.frontends.sklearn.partial_fits import PartialFits, alike, new_labels
from streammach.frontends.sklearn.rows import in_form, indicator, places
from streammach.inputs.label_names import NamesOfLabels
from streammach.inputs.source_options import TableOptions
from streammach.inputs.tables.memory_objects import is_frame
from streammach.inputs.tokenizers import tokenizer
from streammach.model.model import Model
from streammach.options.option_fields import add_parameters
from streammach.options.training import TrainingOptions
from streammach.planning.constraints import Constraints
from streammach.prediction.allowed import Allowed
from streammach.prediction.metrics import LIKELY
from streammach.rows.block import RowBlock
from streammach.store.label_facts import ClassWeights
from streammach.system.progress import Wanted


@add_parameters(Constraints, TrainingOptions, TableOptions)
@dataclass(eq=False, repr=False)
class MACHClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # without types
    """Classifier for very many classes, in a budget: :func:`streammach.training.trainer.train`.

    A fit is a training by that function: the same rows and options give the same model. On
    sparse rows it does not depend on the number of threads.

    What `memory` allows is taken beside the rows and 110 MB of scikit-learn, by each of several
    fits at a time; :meth:`partial_fit` has 1 GB where none is named.

    Parameters
    ----------
    combine : str, default="auto"
        How repetitions join (``logsum``, ``mean``, ``median``, ``min``).
    n_jobs : int, default=None
        Threads that compute: all cores for None and -1; 1 for None in a search that has several
        fits at a time.
    class_weight : dict, path or "balanced", default=None
        What the rows of each class count for.
    label_names : dict, path or "labels", default=None
        What labels are called (:func:`streammach.training.trainer.train`); those that no row has
        are left out.
    warm_start : bool, default=False
        Whether :meth:`fit` starts from the present hashed weights, where there are any.
    random_state : int or RandomState, default=None
        Decides hashes and the order of rows, the `seed` of a training; None is 0.
    callbacks : list, default=None
        As for :class:`streammach.training.trainer.Trainer`.
    progress : bool, str or callable, default=None
        Whether a fit tells how it goes, as there; for None on a terminal and in a notebook.
    options : dict, default=None
        Other options of :func:`streammach.training.trainer.train` by their names, such as
        ``{"time": "10m", "counts": "off", "held_out_rows": 500}``.

    Attributes
    ----------
    classes_ : array (K,)
        The labels, sorted; of an indicator the numbers of its columns.
    n_features_in_, feature_names_in_ : int, array (columns,)
        Number of columns, and their names, where all are strings.
    n_iter_ : int
        Epochs that were trained, 0 where the model has no hashed ones.
    loss_curve_ : list of float
        Mean loss of each epoch, in nats per row and model.
    plan_, model_ : Plan, Model
        Where every byte goes, and the model.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from streammach.frontends.sklearn.classifier import MACHClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = MACHClassifier().fit(X, y)
    >>> bool(clf.score(X, y) > 0.9)
    True
    """

    memory: str | int | None = None
    n_buckets: int | None = None
    n_repetitions: int | None = None
    epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    model_size: str = "auto"
    combine: str = "auto"
    device: str = "auto"
    n_jobs: int | None = None
    class_weight: ClassWeights | None = None
    label_names: NamesOfLabels | None = None
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
    options: Mapping[str, Any] | None = None

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> MACHClassifier:
        """Train on rows.

        Parameters
        ----------
        X : array, sparse matrix, DataFrame (n, n_features), or list of str
            The rows: numbers; or text, and tables where not all columns are numbers.
        y : array (n,), n lists, or array or sparse matrix (n, labels)
            A label for each row, of any type; or a list of labels for each row; or an indicator, a
            matrix with a column for each label: lists of 0 and 1 that are equally long are one.
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
        BudgetError, UsageError, DeviceError, DivergedError, DiskError
            As for :func:`streammach.training.trainer.train`.
        """
        (data, targets), model = fit_rows.check_rows(self, X, y, sample_weight), None
        classes = targets.classes
        if self.warm_start and hasattr(self, "_answers_"):
            model = self._answers_.model
            if not alike(classes.dtype, self.classes_.dtype):
                raise ValueError("warm_start=True: labels have another type than those before: y")
            classes = np.unique(np.concatenate([self.classes_, classes]))
        with fit_rows.train_estimator(fit_rows.parameters_of(self), data, model) as run:
            model = run.model
        self.classes_: NDArray[Any] = classes
        self._sets_ = targets.form
        self._passes_: PartialFits | None = None
        self._answers_: Answers = self._answering(model)
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
        same weights, bit for bit, as one call. The first call decides how tables become features;
        new words are added while they fit the memory. It computes on the CPU. A :meth:`fit` is gone
        on from where it left float32 weights of numbers alone (``model_size="full"``, no parts).

        Parameters
        ----------
        X, y : as there
            Rows and labels as :meth:`fit` takes them, of one form in all calls.
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
            If rows or labels cannot be, or are of another kind than before.
        BudgetError
            If the model does not fit the budget.
        UsageError
            If a class is new and the model has a bucket for each, or after another fit.
        """
        model, known, form = None, None, ""
        if hasattr(self, "_answers_") and self._answers_.model.linear is not None:
            what = "linear classifiers are not gone on from, it begins anew: partial_fit after fit"
            warnings.warn(what, stacklevel=2)
        elif hasattr(self, "_answers_"):
            model, form = self._answers_.model, self._sets_
            known = self.classes_[self._answers_.places]
        rows, recipe = fit_rows.arriving(self, X, y, sample_weight, model)
        labels, ids = new_labels(known, form, rows.targets, classes)
        given, losses = fit_rows.parameters_of(self), [] if model is None else self.loss_curve_
        if model is None:
            passes = PartialFits.begin(given, rows, labels, fit_rows.names_of(self), recipe)
        else:
            passes = self._passes_ or PartialFits.after_fit(model, given)
        self.loss_curve_ = [*losses, passes.learn(rows, labels, ids)]
        self._passes_, self._sets_ = passes, rows.targets.form
        self.classes_, where = np.unique(labels, return_inverse=True)
        self._answers_ = self._answering(passes.stream.model, where)
        self.n_iter_ = len(self.loss_curve_)
        return self

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
            If the model knows no label that may be said, or lists are not one for each row.
        """
        block, allowed = self._block(X, only, never)
        if not self._sets_:
            return self._labels(self._answers_.topk(block, 1, allowed)[0][:, 0])
        each = self._answers_.probabilities(block, len(self.classes_), allowed)
        return in_form(self._sets_, (p >= LIKELY for _, p in each), self.classes_)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of rows whose label is right, or all whose labels are.

        Parameters
        ----------
        X, y, sample_weight : as there
            The rows, their labels and weights: those of :meth:`fit`.
        """
        lists = find_lists(y := indicator(y))
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
            Rows, how many labels, all if there are fewer, and which: those of :meth:`predict`.

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

        Where rows were held out it is calibrated on them
        (:class:`streammach.model.calibration.Calibration`): of more than 32 classes those after a
        row's 32 best share evenly what is left. Otherwise, and for another `combine` than the
        calibrated ranking, it is what the scores say.

        Parameters
        ----------
        X : as there
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

    def decision_function(self, X: Any) -> NDArray[np.float32]:
        """Return how much each class is the label: exactly of all classes.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame (n, n_features)
            The rows.

        Returns
        -------
        float32 (n, K), or (n,) of two classes
            The scores of :meth:`predict_topk`; of two classes the log odds of the second, of sets
            those of each label. Its size is bounded as that of :meth:`predict_proba`.
        """
        block, n_classes = self._block(X, None, None)[0], len(self.classes_)
        check_room(block.n_rows, n_classes, self.memory)
        found = np.concatenate([*self._answers_.decisions(block, n_classes)])
        return found if self._sets_ or found.shape[1] > 1 else found[:, 0]

    @property
    def model_(self) -> Model:
        """The model."""
        check_is_fitted(self)
        return self._answers_.model

    def _answering(self, model: Model, where: NDArray[np.int64] | None = None) -> Answers:
        model = replace(model, label_kind=kind_of(self.classes_))
        if where is None:
            where = places(model.labels, self.classes_)
        threads = fit_rows.threads_of(self.n_jobs)
        return Answers(model, where, combine=self.combine, device=self.device, threads=threads)

    def _block(self, X: Any, only: Any, never: Any) -> tuple[RowBlock, Allowed | None]:
        """Return rows with the model's ids, and which classes may be said of them."""
        check_is_fitted(self)
        X = fit_rows.plain(X)
        if self._answers_.model.recipe is None:
            own = fit_rows.validate(self, X, reset=False)
            X = X if is_frame(X) else own
        block = self._answers_.rows(X)
        return block, self._answers_.limit_labels(only, never, self.classes_, block.n_rows)

    def _labels(self, where: NDArray[np.int64]) -> NDArray[Any]:
        """Return the labels at places among the classes, an empty string for -1."""
        found = self.classes_[where]
        return np.where(where < 0, "", found.astype(object)) if (where < 0).any() else found

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
            self._passes_ = PartialFits.restore(model, fit_rows.parameters_of(self), learning)
            model = self._passes_.stream.model
        self._answers_ = self._answering(model, where)
