"""The scikit-learn estimator: a face of the one trainer and the one predictor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from streammach.data.given import kind_of, listed
from streammach.data.tokenizers import tokenizer
from streammach.model.model import Model
from streammach.prediction.allowed import Allowed
from streammach.prediction.set_metrics import LIKELY
from streammach.progress import Wanted
from streammach.rows.block import RowBlock
from streammach.sklearn.answers import Answers, check_classes, check_room
from streammach.sklearn.arrivals import arriving, checked, names_of, plain, validated
from streammach.sklearn.fits import parameters_of, threads_of, trained
from streammach.sklearn.passes import Passes, alike, new_labels
from streammach.sklearn.rows import in_form, indicator, places
from streammach.training.onward import Start


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
        Which rows are held out: ``auto``, whole documents where a column looks like their
        names, else random ones, apart from equal ones; ``random``; or the namespace, a column of
        a table, whose values are the documents.
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
            The rows: numbers; or text, and tables where not all columns are numbers. These
            become features as in a conversion, and some are held out to choose what is not given.
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
        BudgetError
            If nothing fits the budget.
        UsageError, DeviceError, DivergedError, DiskError
            As for :func:`streammach.training.trainer.train`.
        """
        rows, start = checked(self, X, y, sample_weight), None
        classes = rows.targets.classes
        if self.warm_start and hasattr(self, "_answers_"):
            start = Start(self._answers_.model)
            if not alike(classes.dtype, self.classes_.dtype):
                raise ValueError("warm_start=True: labels have another type than those before: y")
            classes = np.unique(np.concatenate([self.classes_, classes]))
        self.classes_: NDArray[Any] = classes
        self._sets_ = rows.targets.form
        self._passes_: Passes | None = None
        given = parameters_of(self)
        run = trained(given, rows.canonical(), names_of(self), start, len(classes))
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
        smaller one otherwise. The first call decides how tables become features; new words are
        added while they fit the memory. After a :meth:`fit` of numbers its weights are gone on
        from, and new classes need ``n_buckets`` and ``n_repetitions``. It computes on the CPU.

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
            If a class is new and the model has a bucket for each, or after a fit of a table.
        """
        model, known, form = None, None, ""
        if hasattr(self, "_answers_"):
            model, form = self._answers_.model, self._sets_
            known = self.classes_[self._answers_.places]
        rows, recipe = arriving(self, X, y, sample_weight, model)
        labels, ids = new_labels(known, form, rows.targets, classes)
        given, losses = parameters_of(self), [] if model is None else self.loss_curve_
        if model is None:
            passes = Passes.begin(given, rows, labels, names_of(self), recipe)
        else:
            passes = self._passes_ or Passes.after_fit(model, given)
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
            If the model knows no label that may be said, or there is not one list for each row.
        """
        block, allowed = self._block(X, only, never)
        if not self._sets_:
            return self._labels(self._answers_.topk(block, 1, allowed)[0][:, 0])
        each = self._answers_.probabilities(block, len(self.classes_), allowed)
        parts = [scipy.sparse.csr_array(p >= LIKELY, dtype=np.int64) for _, p in each]
        return in_form(self._sets_, scipy.sparse.vstack(parts, format="csr"), self.classes_)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of rows whose label is right, or all whose labels are.

        Parameters
        ----------
        X, y, sample_weight : as there
            The rows, their labels and weights: those of :meth:`fit`.
        """
        lists = listed(y := indicator(y))
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
        X = plain(X)
        if self._answers_.model.recipe is None:
            X = validated(self, X, reset=False)
        block = self._answers_.rows(X)
        return block, self._answers_.allowed(only, never, self.classes_, block.n_rows)

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
            self._passes_ = Passes.restored(model, parameters_of(self), learning)
            model = self._passes_.stream.model
        self._answers_ = self._answering(model, where)
