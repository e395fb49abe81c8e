"""Training on rows as they come: one pass, in their order, with names that were never seen."""

from __future__ import annotations

import math
import weakref
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach import hashing
from streammach.backends.cpu.backend import CpuBackend
from streammach.model.calibration import Calibration
from streammach.model.model import Model
from streammach.options.config import Batching, Placement, RunConfig
from streammach.options.model_spec import ModelShape, ModelSpec
from streammach.options.recipe import Recipe
from streammach.options.training import TrainSpec
from streammach.rows.batch import BatchSlot
from streammach.rows.block import RowBlock
from streammach.rows.names import Names, TrainedColumns
from streammach.system.errors import BudgetError, DivergedError, UsageError
from streammach.system.jit import CODE_BYTES
from streammach.system.machine import parse_size, size_text

SHAPES = ((256, 8), (128, 8), (64, 6), (32, 6), (16, 6))  # B and R, the largest that fits is taken
HASHED_CLASSES = 1 << 20  # for which hashes are drawn: how many classes will come is not known
ORIGIN = "rows as they came"  # in place of a store's digest
WEIGHTS = ("weights", "bias")
GROWTH = 20  # times the features of the first batch that a model of text has room for
MOST_FEATURES = 1 << 30
NAME_BYTES = 200  # of a feature's name: in a list, in tables that find it, and in copies of both


class Stream:
    """A model that goes on learning: its weights, and the optimiser's state beside them.

    Its rate does not fall. Rows are learnt from in batches, in their order; the last batch of a
    call may be a smaller one. So calls with rows in pieces of whole batches give the same bits as
    one call with all of them.
    """

    def __init__(self, model: Model, threads: int, room: int | None = None) -> None:
        training, self._first, self.features = model.training, model, model.features
        self._labels = model.labels.raws(np.arange(len(model.labels)))
        # Pages of rows that no feature has yet are never touched, so they take no memory.
        self.room = model.spec.n_features if room is None else room
        spec = replace(model.spec, n_features=self.room)
        self._backend = CpuBackend(spec, dense=model.dense, threads=threads)
        # It and its steps know each other: without this they would wait for the collector.
        weakref.finalize(self, self._backend.close).atexit = False
        self._backend.prepare(training, 0)
        for name in WEIGHTS:
            array = np.asarray(getattr(model, name))
            self.arrays[name][: len(array)] = array
        self._n_rows, counts = model.n_rows, model.label_counts
        self._counts = np.zeros(len(self._labels), np.int64) if counts is None else counts.copy()

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Weights and the optimiser's state, by name."""
        n, arrays = len(self.features), self._backend.arrays().items()
        return {name: array[:n] if array.ndim > 1 else array for name, array in arrays}

    @property
    def n_labels(self) -> int:
        """Number of labels."""
        return len(self._labels)

    @property
    def model(self) -> Model:
        """The model as it is now; its weights are those that go on learning."""
        spec = replace(self._backend.spec, n_features=len(self.features))
        return replace(
            self._first, spec=spec, labels=Names.of(self._labels), features=self.features,
            weights=self.arrays["weights"], bias=self._backend.bias, majority=0,
            n_rows=self._n_rows, label_counts=self._counts if self._first.listed else None,
        )  # fmt: skip

    def take_labels(self, names: list[bytes]) -> None:
        """Give labels that are new the next ids and with them their hashes; no weight is added."""
        if not names:
            return
        spec = self._backend.spec
        if spec.exact:
            what = f"{len(names):,} labels are new, and each class has a bucket of its own"
            hint = "Begin with partial_fit, or give n_buckets and n_repetitions."
            raise UsageError(what, hint=hint)
        self._labels += names
        self._counts = np.append(self._counts, np.zeros(len(names), np.int64))
        self._backend.take_classes(replace(spec, n_classes=len(self._labels)))

    def learn(self, rows: RowBlock) -> float:
        """Learn from rows, in their order; return their mean loss, in nats per row and model."""
        training, backend, total = self._first.training, self._backend, 0.0
        size, rate = training.batch_size, training.rate_at(0, 1)  # the end is not known
        edges = np.minimum(np.arange(0, rows.n_rows + size, size), rows.n_rows)  # of batches
        ends, labels = rows.indptr[edges], rows.lists.starts[edges]
        slot = BatchSlot(
            size, int(np.diff(ends).max(initial=1)), len(self.features),
            by_feature=not backend.dense, shared=training.label_share != "each",
            n_labels=int(np.diff(labels).max(initial=1)) if rows.labels is not None else 0,
        )  # fmt: skip
        for start in range(0, rows.n_rows, size):
            slot.clear()
            slot.add(rows, np.arange(start, min(start + size, rows.n_rows)), training.transform)
            total += backend.step(slot.batch(), rate).total
            if not math.isfinite(total):
                what = f"the loss is not finite at rate {rate:z.3g}"
                raise DivergedError(what, hint="Use a smaller --learning-rate.")
        if rows.labels is not None:
            self._n_rows += rows.n_rows
            self._counts += np.bincount(rows.labels.classes, minlength=len(self._counts))
        return total / max(rows.n_rows * backend.spec.n_repetitions, 1)


def room_for(model: Model, memory: str | int, libraries_bytes: int) -> int:
    """Return for how many features a model that a recipe feeds has room in a budget."""
    shape, training = model.spec.shape, model.training
    one, two = (
        _needed_bytes(replace(shape, n_features=n), training, dense=model.dense) for n in (1, 2)
    )
    left = parse_size(memory) - libraries_bytes - one
    return max(len(model.features), min(left // (two - one + NAME_BYTES), MOST_FEATURES))


def begin_model(
    labels: list[bytes], features: Names, columns: TrainedColumns, training: TrainSpec, *,
    shape: tuple[int | None, int | None], dense: bool, memory: str | int, libraries_bytes: int = 0,
    row_labels: float = 0.0, recipe: Recipe | None = None,
) -> Model:  # fmt: skip
    """Return a model that has learnt nothing, for rows as they will come, or raise BudgetError.

    Rows with lists have `row_labels` labels on average. A model with a recipe has room for more
    features than the first ones.
    """
    wanted = SHAPES if shape[0] is None or shape[1] is None else ((shape[0], shape[1]),)
    budget, needed, d = parse_size(memory), 0, len(features)
    for n_buckets, n_repetitions in wanted:
        sized = ModelShape(
            n_classes=len(labels), n_features=d if recipe is None else GROWTH * d,
            n_buckets=n_buckets, n_repetitions=n_repetitions,
        )  # fmt: skip
        needed = libraries_bytes + _needed_bytes(sized, training, dense=dense)
        if needed <= budget:
            if training.logistic:
                training = replace(training, bucket_share=min(row_labels / n_buckets, 1.0))
            model = _empty(sized, labels, features, columns, training, dense=dense)
            return replace(model, recipe=recipe)
    raise BudgetError(f"{size_text(needed)} are needed, {size_text(budget)} are allowed: memory")


def _needed_bytes(shape: ModelShape, training: TrainSpec, *, dense: bool) -> int:
    config = RunConfig(
        shape=shape, dense=dense, optimizer=training.optimizer,
        batching=Batching(batch_size=training.batch_size, batch_nnz=0),
        placement=Placement(device="cpu", threads=1),
    )  # fmt: skip
    return CODE_BYTES + sum(CpuBackend.footprint(config).values())


def _empty(
    shape: ModelShape, labels: list[bytes], features: Names, columns: TrainedColumns,
    training: TrainSpec, *, dense: bool,
) -> Model:  # fmt: skip
    shape = replace(shape, n_features=len(features))
    most = max(HASHED_CLASSES, shape.n_buckets + 1)
    a, b = hashing.draw(training.seed, most, shape.n_buckets, shape.n_repetitions)
    return Model(
        spec=ModelSpec(**vars(shape), hash_a=a, hash_b=b), training=training, dense=dense,
        estimator="logsum", calibration=Calibration(), store=ORIGIN, majority=0, validation={},
        labels=Names.of(labels), features=features, columns=columns,
        weights=np.zeros((shape.n_features, shape.n_columns), np.float32),
        bias=np.full(shape.n_columns, training.start_bias, np.float32),
    )  # fmt: skip
