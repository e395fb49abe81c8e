"""What an estimator is given, checked as scikit-learn expects it, and whole trainings on that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from joblib.parallel import get_active_backend
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_consistent_length, validate_data

from streammach.conversion import memory_labels
from streammach.conversion.memory_labels import find_lists
from streammach.conversion.memory_rows import MemoryRows, collect_rows
from streammach.conversion.request import KnownNames
from streammach.frontends.sklearn.rows import (
    Rows,
    Targets,
    by_class,
    by_name,
    exact,
    indicator,
    sum_duplicates,
)
from streammach.inputs.source_options import SourceOptions, TableOptions, several
from streammach.inputs.tables import memory_objects
from streammach.inputs.tables.memory_objects import NamedMatrix, as_rows, is_frame, is_table
from streammach.inputs.tables.memory_tables import MemorySource
from streammach.model.model import Model
from streammach.options.annotated import check_options
from streammach.options.recipe import Recipe
from streammach.rows.names import Names
from streammach.store.label_facts import LabelFacts
from streammach.system.errors import DataError, UsageError, clean
from streammach.training.run import Run
from streammach.training.trainer import OF_TABLE, train_rows
from streammach.training.warm_start import Start

ROLES = "text", "category", "number", "date"
SAME = (  # parameters that a training has by the same names
    "memory", "n_buckets", "n_repetitions", "epochs", "batch_size", "learning_rate", "device",
    "hold_out_by", "model_size",
)  # fmt: skip
SHAPE = {"n_buckets", "n_repetitions", "exact", "hashed_features"}  # which a start has already
MOST_SEED = 2**31 - 1
Parameters = Mapping[str, Any]


def check_rows(estimator: Any, X: Any, y: Any, sample_weight: Any) -> tuple[MemoryRows, Targets]:
    """Return rows that `fit` is given, as a training takes them, or raise ValueError."""
    X, y, roles = plain(X), _plain_labels(y), _roles(estimator)
    if not _feeds_recipe(X, roles):
        X, y = _validate_with_sklearn(estimator, X, y, reset=True)
    X, y, sample_weight = _drop_weightless(X, y, sample_weight)
    targets = Targets.of(y)
    found = collect_rows(X, np.zeros(len(targets.lists)), sample_weight, options=roles)
    check_consistent_length(found.rows.matrix, y)
    if found.recipe is not None:
        _take_columns(estimator, found.recipe)
    weights = by_name(targets, estimator.class_weight)
    names = by_name(targets, estimator.label_names)
    facts = LabelFacts(weights=weights, names=names, add=False)
    return replace(found, labels=targets.as_labels, label_facts=facts), targets


def arriving(
    estimator: Any, X: Any, y: Any, sample_weight: Any, model: Model | None
) -> tuple[Rows, Recipe | None]:
    """Return rows that `partial_fit` is given, and what reads those of a table.

    The first ones, without a model, decide what kind all are.
    """
    X, y, roles = plain(X), _plain_labels(y), _roles(estimator)
    recipe = None if model is None else model.recipe
    if estimator.class_weight == "balanced" and model is not None:
        raise ValueError("more classes may come: class_weight='balanced', partial_fit")
    of_table = recipe is not None or (model is None and _feeds_recipe(X, roles))
    if not of_table:
        if _feeds_recipe(X, roles):
            raise ValueError("rows of numbers are expected, as before, not of text: X")
        X, y = _validate_with_sklearn(estimator, X, y, reset=model is None)
        X = sum_duplicates(memory_objects.to_matrix(X).matrix if is_frame(X) else X)
    elif not is_table(X):
        raise ValueError("rows of a table or text are expected, as before: X")
    X, y, sample_weight = _drop_weightless(X, y, sample_weight)
    if of_table and recipe is None:
        recipe = recipe_for(X, roles)
        _take_columns(estimator, recipe)
    targets = Targets.of(y)
    check_consistent_length(X, y)
    return Rows(X, targets, by_class(targets, sample_weight, estimator.class_weight)), recipe


def plain(X: Any) -> Any:
    """Return rows in a plain form that scikit-learn knows, or raise ValueError."""
    rows = as_rows(X)
    if isinstance(rows, NamedMatrix):  # AnnData, whose names scikit-learn does not look at
        hint = "Give its matrix, whose columns are told by their places: X.X; or streammach.train."
        raise UsageError("AnnData is no matrix: X", hint=hint)
    return rows


def validate(estimator: Any, *rows: Any, **options: Any) -> Any:
    """Return rows, and labels, that scikit-learn has checked; or raise DataError of one line."""
    if isinstance(rows[0], list):
        hint = "Say what is in their columns, such as category=NAME; or use streammach.train."
        raise DataError("a list of dicts is no matrix: X", hint=hint)
    try:
        finite = "allow-nan" if is_frame(rows[0]) else True  # a training says what it can take
        return validate_data(
            estimator, *rows, accept_sparse="csr", ensure_all_finite=finite, **options
        )
    except ValueError as error:
        raise DataError(clean(" ".join(str(error).split()), 300)) from None


def names_of(estimator: Any) -> Names | None:
    """Return the names of an estimator's columns, if all are strings."""
    names = getattr(estimator, "feature_names_in_", None)
    return None if names is None else Names.of(names.tolist())


def _plain_labels(y: Any) -> Any:
    if y is not None:  # of which scikit-learn says what it expects
        memory_labels.check_labels(y)
    return indicator(y)


def _feeds_recipe(X: Any, roles: TableOptions) -> bool:
    return roles != TableOptions() or memory_objects.is_recipe_table(X, None, roles)


def _roles(estimator: Any) -> TableOptions:
    check_options(type(estimator).__init__.__annotations__, estimator.get_params(deep=False))
    named = {name: getattr(estimator, name) for name in ROLES}
    said: dict[str, Any] = {name: several(x) for name, x in named.items() if x}
    more = {name: x for name, x in (estimator.options or {}).items() if name in OF_TABLE}
    return TableOptions(**said, **more, tokenizer=estimator.tokenizer)


def _take_columns(estimator: Any, recipe: Recipe) -> None:
    columns = [column.name for column in recipe.columns]
    estimator.n_features_in_, estimator.feature_names_in_ = len(columns), np.array(columns, object)


def _drop_weightless(X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
    """Return rows, labels and weights without rows of weight 0."""
    y = memory_labels.labels_to_array(y) if find_lists(y) is None and not hasattr(y, "tocsr") else y
    if sample_weight is not None:
        sample_weight = _check_sample_weight(
            sample_weight, X, dtype=np.float64, ensure_non_negative=True
        )
    return memory_labels.drop_weightless(X, y, sample_weight)[:3]


def _validate_with_sklearn(estimator: Any, X: Any, y: Any, *, reset: bool) -> tuple[Any, Any]:
    """Return rows of numbers and labels that scikit-learn has seen; a frame stays one."""
    if find_lists(y) is None:
        own, y = validate(estimator, X, exact(y), multi_output=True, reset=reset)
    else:
        own = validate(estimator, X, reset=reset)
        check_consistent_length(own, y)
    return X if is_frame(X) else own, y


def recipe_for(table: Any, roles: TableOptions) -> Recipe:
    """Return how a table becomes features, by its first rows, or raise UsageError or DataError."""
    how = SourceOptions(table=roles, multilabel="off")
    return MemorySource(table, how, labelled=False).recipe


def train_estimator(given: Parameters, data: MemoryRows, model: Model | None) -> Run:
    """Train on rows as :func:`streammach.training.trainer.train` does; labels of a model stay."""
    more = {name: value for name, value in (given["options"] or {}).items() if name not in OF_TABLE}
    if twice := sorted(more.keys() & given.keys()):
        raise UsageError(f"it is a parameter of its own: {twice[0]}: options")
    said = {name: given[name] for name in SAME} | more
    said |= {"seed": seed_of(given["random_state"]), "threads": threads_of(given["n_jobs"]) or None}
    start = None
    if model is not None:
        known = KnownNames(model.labels, model.features, model.store, grows=True)
        data = replace(data, known=known)
        # Without hashed weights as they came, such as by counts alone, all is learnt anew.
        if not model.spec.unhashed and model.projection is None:
            start = Start(model, model.spec.n_classes)
    if start is not None:  # whose weights are for values as they were transformed
        said = {name: value for name, value in said.items() if name not in SHAPE}
        said |= {"transform": start.model.training.transform} | more
    return train_rows(
        data, said, "MACHClassifier", callbacks=given["callbacks"], progress=given["progress"],
        start=start, known=given,
    )  # fmt: skip


def parameters_of(estimator: Any) -> Parameters:
    """Return the parameters of an estimator; numbers of NumPy, as of a grid, as Python's."""
    given = estimator.get_params(deep=False).items()
    return {name: x.item() if isinstance(x, np.generic) else x for name, x in given}


def seed_of(random_state: Any) -> int:
    """Return the seed of a `random_state`: 0 for None, drawn from a RandomState."""
    if random_state is None or isinstance(random_state, int | np.integer):
        return int(random_state or 0)
    return int(check_random_state(random_state).randint(MOST_SEED))


def threads_of(n_jobs: int | None) -> int:
    """Return how many threads compute, 0 for all cores: None is that, but 1 in joblib's workers."""
    if n_jobs is None:
        return 1 if getattr(get_active_backend()[0], "nesting_level", 0) else 0
    return int(effective_n_jobs(n_jobs))
