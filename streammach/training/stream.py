"""Training on rows as they come: one pass, in their order, with classes that were never seen."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach import hashing
from streammach.backends.cpu.backend import CpuBackend
from streammach.errors import BudgetError, DivergedError, UsageError
from streammach.jit import CODE_BYTES
from streammach.machine import parse_size, size_text
from streammach.model.calibration import Calibration
from streammach.model.model import Model
from streammach.rows.batch import BatchSlot
from streammach.rows.block import RowBlock
from streammach.rows.names import Names, TrainedColumns
from streammach.spec.config import Batching, Placement, RunConfig
from streammach.spec.model_spec import ModelShape, ModelSpec
from streammach.spec.training import TrainSpec

SHAPES = ((256, 8), (128, 8), (64, 6), (32, 6), (16, 6))  # B and R, the largest that fits is taken
HASHED_CLASSES = 1 << 20  # for which hashes are drawn: how many classes will come is not known
ORIGIN = "rows as they came"  # in place of a store's digest
WEIGHTS = ("weights", "bias")


class Stream:
    """A model that goes on learning: its weights, and the optimiser's state beside them.

    Its rate does not fall. Rows are learnt from in batches, in their order; the last batch of a
    call may be a smaller one. So calls with rows in pieces of whole batches give the same bits as
    one call with all of them.
    """

    def __init__(self, model: Model, threads: int) -> None:
        training = model.training
        self._first = model
        self._labels = model.labels.raws(np.arange(len(model.labels)))
        self._backend = CpuBackend(model.spec, dense=model.dense, threads=threads)
        self._backend.prepare(training, 0)
        for name in WEIGHTS:
            self.arrays[name][:] = np.asarray(getattr(model, name))

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Weights and the optimiser's state, by name."""
        return self._backend.arrays()

    @property
    def model(self) -> Model:
        """The model as it is now; its weights are those that go on learning."""
        labels = Names.of(self._labels)
        return replace(
            self._first, spec=self._backend.spec, labels=labels, weights=self.arrays["weights"],
            bias=self.arrays["bias"], majority=0,
        )  # fmt: skip

    def take_labels(self, names: list[bytes]) -> None:
        """Give labels that are new the next ids and with them their hashes; no weight is added."""
        if not names:
            return
        spec = self._backend.spec
        if spec.exact:
            raise UsageError(
                f"{len(names):,} labels are new, and each class has a bucket of its own",
                hint="Begin with partial_fit, or give n_buckets and n_repetitions.",
            )
        self._labels += names
        self._backend.take_classes(replace(spec, n_classes=len(self._labels)))

    def learn(self, rows: RowBlock) -> float:
        """Learn from rows, in their order; return their mean loss, in nats per row and model."""
        training, backend, total = self._first.training, self._backend, 0.0
        size, rate = training.batch_size, training.rate_at(0, 1)  # the end is not known
        ends = rows.indptr[np.minimum(np.arange(0, rows.n_rows + size, size), rows.n_rows)]
        slot = BatchSlot(
            size, int(np.diff(ends).max(initial=1)), backend.spec.n_hashed_features,
            by_feature=not backend.dense,
        )  # fmt: skip
        for start in range(0, rows.n_rows, size):
            slot.clear()
            slot.add(rows, np.arange(start, min(start + size, rows.n_rows)), training.transform)
            total += backend.step(slot.batch(), rate).total
            if not math.isfinite(total):
                what = f"the loss is not finite at rate {rate:.3g}"
                raise DivergedError(what, hint="Use a smaller --learning-rate.")
        return total / max(rows.n_rows * backend.spec.n_repetitions, 1)


def begun(
    labels: list[bytes], features: Names, columns: TrainedColumns, training: TrainSpec, *,
    shape: tuple[int | None, int | None], dense: bool, memory: str | int, libraries_bytes: int = 0,
) -> Model:  # fmt: skip
    """Return a model that has learnt nothing, for rows as they will come, or raise BudgetError."""
    wanted = SHAPES if shape[0] is None or shape[1] is None else ((shape[0], shape[1]),)
    budget, needed = parse_size(memory), 0
    for n_buckets, n_repetitions in wanted:
        sized = ModelShape(
            n_classes=len(labels), n_features=len(features), n_buckets=n_buckets,
            n_repetitions=n_repetitions,
        )  # fmt: skip
        config = RunConfig(
            shape=sized, dense=dense, optimizer=training.optimizer,
            batching=Batching(batch_size=training.batch_size, batch_nnz=0),
            placement=Placement(device="cpu", threads=1),
        )  # fmt: skip
        needed = CODE_BYTES + libraries_bytes + sum(CpuBackend.footprint(config).values())
        if needed <= budget:
            return _empty(sized, labels, features, columns, training, dense=dense)
    raise BudgetError(f"{size_text(needed)} are needed, {size_text(budget)} are allowed: memory")


def _empty(
    shape: ModelShape, labels: list[bytes], features: Names, columns: TrainedColumns,
    training: TrainSpec, *, dense: bool,
) -> Model:  # fmt: skip
    most = max(HASHED_CLASSES, shape.n_buckets + 1)
    a, b = hashing.draw(training.seed, most, shape.n_buckets, shape.n_repetitions)
    return Model(
        spec=ModelSpec(**vars(shape), hash_a=a, hash_b=b), training=training, dense=dense,
        estimator="logsum", calibration=Calibration(), store=ORIGIN, majority=0, validation={},
        labels=Names.of(labels), features=features, columns=columns,
        weights=np.zeros((shape.n_features, shape.n_columns), np.float32),
        bias=np.zeros(shape.n_columns, np.float32),
    )  # fmt: skip
