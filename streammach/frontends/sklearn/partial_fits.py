"""What `partial_fit` keeps between calls: a model that goes on learning, and names of features."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.conversion.memory_labels import take_rows
from streammach.frontends.sklearn.fit_rows import Parameters, seed_of, threads_of
from streammach.frontends.sklearn.rows import LIBRARY_BYTES, Rows, Targets, label_names
from streammach.inputs.source_options import SourceOptions
from streammach.inputs.tables.memory_tables import MemorySource
from streammach.model.model import Model
from streammach.options.optimizers import OPTIMIZERS, USUAL
from streammach.options.recipe import Recipe
from streammach.options.training import TrainSpec
from streammach.options.types import Transform
from streammach.prediction.in_memory import ModelRows
from streammach.rows.arrays import is_sparse
from streammach.rows.block import RowBlock
from streammach.rows.canonical import canonicalize
from streammach.rows.label_lists import LabelLists
from streammach.rows.names import Names, TrainedColumns
from streammach.rows.transforms import transform_block
from streammach.rows.vocabulary import Vocabulary
from streammach.system.errors import DataError, UsageError
from streammach.system.machine import cores
from streammach.training.stream import WEIGHTS, Stream, begin_model, room_for

MEMORY = "1GB"  # where none is named: a constant, so that results do not depend on the machine
SCALED_ROWS = 10_000  # by which the size of values is told
BATCH = 256  # rows, where no other size is given
DENSE_SHARE = 0.1  # from this density of the first batch on, rows go through matrix products
CONSTANT = {"adam": 0.5, "adagrad": 2.0}  # of the usual rate, which falls to 0 in other trainings
TABLE_TRANSFORM: Transform = "l2"  # of the values of a table's rows
KINDS = {"": "one label", "lists": "a list of labels"}  # of a row, by the form; others are matrices


class PartialFits:
    """A model that learns from call to call."""

    def __init__(self, model: Model, given: Parameters) -> None:
        room, self._vocabulary = None, None
        if model.recipe is not None:
            room = room_for(model, given["memory"] or MEMORY, LIBRARY_BYTES)
            self._vocabulary = Vocabulary(None, model.features)
        self.stream = Stream(model, threads_of(given["n_jobs"]) or cores(), room)
        self._recipe, self._rows = model.recipe, ModelRows(model)

    @classmethod
    def begin(
        cls, given: Parameters, rows: Rows, labels: NDArray[Any], names: Names | None,
        recipe: Recipe | None,
    ) -> PartialFits:  # fmt: skip
        """Begin with the first rows, whose first batch decides what is not given."""
        some = np.arange(min(given["batch_size"] or BATCH, len(rows.targets.lists)))
        x, lists = take_rows(rows.x, some), rows.targets.lists.take(some)
        n = min(len(some), SCALED_ROWS)
        if recipe is not None:
            vocabulary = Vocabulary()
            block = _block(x, recipe, vocabulary)
            names = vocabulary.feature_names()
            if not len(names):
                raise DataError(f"none of the first {block.n_rows:,} rows has a feature: X")
            values = transform_block(block.part(0, n), TABLE_TRANSFORM).values
            columns = TrainedColumns()
        else:
            d, x = int(x.shape[1]), x[:n]
            values = x.data if is_sparse(x) else x[x != 0]
            columns = TrainedColumns(d, None if names is None else np.arange(d, dtype=np.int32))
            names = Names.of(range(d)) if names is None else names
        n_values = max(len(values) / n, 1.0)  # of a row
        dense = recipe is None and n_values / len(names) >= DENSE_SHARE
        model = begin_model(
            label_names(labels), names, columns,
            _training(given, rows.targets.form, values, n_values, dense=dense, recipe=recipe),
            dense=dense, shape=(given["n_buckets"], given["n_repetitions"]),
            memory=given["memory"] or MEMORY, libraries_bytes=LIBRARY_BYTES, recipe=recipe,
            row_labels=lists.n_labels / len(lists),
        )  # fmt: skip
        return cls(model, given)

    @classmethod
    def after_fit(cls, model: Model, given: Parameters) -> PartialFits:
        """Go on from a whole training that left hashed models alone, or raise UsageError."""
        beside = model.recipe or model.counts or model.projection is not None or model.stored
        if beside or model.spec.unhashed or model.training.loss == "joint":
            raise UsageError(
                "a fit of text, a table or several parts is not gone on from: partial_fit",
                hint="Begin with partial_fit, or fit again with warm_start=True.",
            )
        return cls(model, given)

    @classmethod
    def restore(cls, model: Model, given: Parameters, state: Mapping[str, Any]) -> PartialFits:
        """Go on with a state that was saved."""
        made = cls(model, given)
        for name, array in made.state.items():
            array[:] = state[name]
        return made

    def learn(self, rows: Rows, labels: NDArray[Any], ids: LabelLists) -> float:
        """Learn from rows whose labels have these ids among all; return their mean loss."""
        self.stream.take_labels(label_names(labels)[self.stream.n_labels :])
        block = self._table(rows.x) if self._recipe else self._rows.matrix(rows.x)
        weights = None if rows.weights is None else rows.weights.astype(np.float32)
        block = replace(block, importance=weights, classes=ids.first)
        return self.stream.learn(block.with_labels(ids if rows.targets.form else None))

    def _table(self, table: Any) -> RowBlock:
        """Return rows of a table; names that are new become features while there is room."""
        vocabulary, stream = self._vocabulary, self.stream
        assert vocabulary is not None, "a recipe has names"
        assert self._recipe is not None, "rows of a table"
        block, known = _block(table, self._recipe, vocabulary), len(stream.features)
        if vocabulary.n_features > known:
            stream.features = vocabulary.feature_names()
        if len(stream.features) > stream.room:
            what = f"{stream.room:,} features fit the memory, others are left out: memory"
            warnings.warn(what, stacklevel=4)
            stream.features = stream.features.part(0, stream.room)
            self._vocabulary = Vocabulary(None, stream.features, add_features=False)
        return block.with_values((block.features >= 0) & (block.features < stream.room))

    @property
    def state(self) -> dict[str, NDArray[Any]]:
        """What the optimiser keeps, by name: what is written there counts."""
        return {name: a for name, a in self.stream.arrays.items() if name not in WEIGHTS}


def _block(table: Any, recipe: Recipe, vocabulary: Vocabulary) -> RowBlock:
    source = MemorySource(table, SourceOptions(recipe=recipe, multilabel="off"), labelled=False)
    return canonicalize(source.block(vocabulary, label_needed=False))


def _training(
    given: Parameters, form: str, values: NDArray[Any], n_values: float, *, dense: bool,
    recipe: Recipe | None,
) -> TrainSpec:  # fmt: skip
    """Return how rows are learnt from, by values of the first ones and how many a row has."""
    kind = OPTIMIZERS[USUAL[dense]]
    typical = np.sqrt(np.mean(np.square(values, dtype=np.float64))) if len(values) else 1.0
    value = max(float(typical), 1e-6)
    rate = CONSTANT[kind.name] * kind.usual_rate(value, n_values)
    made = TrainSpec(
        epochs=1, batch_size=given["batch_size"] or BATCH, label_smoothing=0.0,
        learning_rate=given["learning_rate"] or rate, optimizer=kind.name,
        transform="raw" if recipe is None else TABLE_TRANSFORM, epsilon=kind.epsilon(value),
        seed=seed_of(given["random_state"]),
    )  # fmt: skip
    return replace(made, loss="logistic", label_share="each") if form else made


def new_labels(
    known: NDArray[Any] | None, form: str, targets: Targets, announced: Any
) -> tuple[NDArray[Any], LabelLists]:
    """Return all labels by id, new ones in the order in which they come, and each row's ids.

    `form` is that of earlier rows, whose labels are `known`.
    """
    own, places = targets.classes, targets.lists.classes
    if known is not None and KINDS.get(form) != KINDS.get(targets.form):
        what, before = (KINDS.get(f, "a row of an indicator") for f in (targets.form, form))
        raise ValueError(f"each row has {what}, those before {before}: y")
    met = own[places[np.sort(np.unique(places, return_index=True)[1])]]
    matrix = targets.form not in KINDS
    if matrix:
        met = own
    if known is None:
        known = met[:0] if announced is None else np.unique(np.asarray(announced))
    if matrix and len(known) not in (0, len(own)):
        raise ValueError(f"an indicator has {len(own):,} columns, {len(known):,} are known: y")
    if len(known) and len(own) and not alike(known.dtype, own.dtype):
        raise ValueError(f"labels have the type {own.dtype}, those before {known.dtype}: y")
    if not len(known) and not len(own):
        raise ValueError("no row has a label: y")
    ids = {label: i for i, label in enumerate(known.tolist())}
    for label in met.tolist():
        ids.setdefault(label, len(ids))
    more, labels = [*ids][len(known) :], known
    if more:
        labels = np.concatenate([known, np.array(more, own.dtype)]) if len(known) else met
    renamed = np.array([ids.get(label, -1) for label in own.tolist()], np.int32)
    return labels, targets.lists.rename(renamed)


def alike(a: np.dtype[Any], b: np.dtype[Any]) -> bool:
    """Return whether labels of both types can stand together: not as floats, if they are whole."""
    kinds = {a.kind, b.kind}
    whole = {"i", "u"} >= kinds and np.result_type(a, b).kind in "iu"
    return len(kinds) == 1 or {"O", "U"} >= kinds or whole
