"""Training steps on the CPU: residuals, gradients and updates, for sparse rows and for dense ones.

Threads share the rows of a batch, then its features: of sparse rows within one compiled call, in
which they take turns and none waits for the interpreter. A row's residual and a feature's update
are each computed whole by one thread, so the bits do not depend on the number of threads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammach.backends.cpu import kernels, products
from streammach.backends.cpu.forward import Forward
from streammach.backends.cpu.kernels import (
    DONE,
    ROWS,
    TURN_ROWS,
    TURNS,
    OptimizerStep,
    RowLosses,
    RowTargets,
    SparseRows,
)
from streammach.backends.cpu.losses import (
    RankedClasses,
    TargetLists,
    joint_list_residuals,
    joint_residuals,
    list_residuals,
    logistic_residuals,
)
from streammach.backends.protocol import BEST_CLASSES
from streammach.options.estimators import SUM
from streammach.options.model_spec import ModelShape
from streammach.options.optimizers import ADAM_DECAYS
from streammach.options.training import TrainSpec
from streammach.rows.batch import Batch, ByFeature
from streammach.rows.dense import product
from streammach.system.simd import LANES

GRADIENT_COLUMNS = 1024  # columns of a dense gradient held at once, at least one model
DECAYS = np.array(ADAM_DECAYS, np.float32)
NONE = np.zeros((1, 1), np.float32)  # stands for a table that the optimiser does not keep
ALL = slice(None)
Shapes = Mapping[str, tuple[int, ...]]
Pair = tuple[int, int]


class Parameters(NamedTuple):
    """Weights float32 (n, R*B) or the bias (1, R*B), and the optimiser's tables beside them."""

    weights: NDArray[np.float32]
    state: dict[str, NDArray[np.float32]]


def buffer_shapes(
    spec: ModelShape, *, dense: bool, batch_size: int, whitened: bool, n_more: int, n_labels: int
) -> Shapes:
    """Return the shapes of the float32 buffers, by name; `n_more` of the features are cosines."""
    per_model, d = (batch_size, spec.n_repetitions), spec.n_features
    shapes: dict[str, tuple[int, ...]]
    shapes = {"z": (batch_size, spec.n_columns), "losses": per_model, "norms": per_model}
    if n_labels:
        shapes["rest"] = (n_labels,)
    if dense:
        models = min(spec.n_repetitions, max(1, GRADIENT_COLUMNS // spec.n_buckets))
        shapes |= {"x": (batch_size, d), "gradient": (d, models * spec.n_buckets)}
        if whitened:
            shapes["plain"] = (batch_size, d - n_more)
    return shapes


class Steps(ABC):
    """Trains a model, which has room for the optimiser's tables and the buffers, on batches."""

    def __init__(self, model: Forward, training: TrainSpec) -> None:
        self._model, self._training, self._kind = model, training, training.optimizer_kind
        names = (*self._kind.per_model, *self._kind.per_weight)
        self._table = Parameters(model.weights, {name: model.state[name] for name in names})
        beside = {name: model.state[f"bias_{name}"] for name in names}
        self._bias = Parameters(model.bias.reshape(1, -1), beside)
        self._all = (0, model.spec.n_repetitions)

    def step(self, batch: Batch, rate: float, number: int) -> float:
        """Train on one batch and return the sum of its losses; `number` is the step's, from 1."""
        corrected = self._kind.corrected(rate, self._training.epsilon, number)
        self._rate, self._epsilon = map(np.float32, corrected)
        self._train(batch)
        return float(self._model.buffers["losses"][: batch.n_rows].sum(dtype=np.float64))

    def _train(self, batch: Batch) -> None:
        """Write losses to ``losses``, and update weights and bias."""
        self._forward(batch)
        self._backward(batch)
        gradient = np.empty((1, self._model.spec.n_columns), np.float32)
        kernels.bias_gradient(self._model.buffers["z"], batch.n_rows, gradient[0])
        self._update(self._bias, gradient, (0, 1), self._all)

    @abstractmethod
    def _forward(self, batch: Batch) -> None:
        """Write the residuals of a batch to ``z``, its losses to ``losses``."""

    @abstractmethod
    def _backward(self, batch: Batch) -> None:
        """Update the weights."""

    def _row_pieces(self, n: int) -> list[tuple[int, int]]:
        """Return the pieces that the rows of a batch are turned into residuals in."""
        if self._training.loss == "joint":  # whose best classes are found for so many at once
            return [(i, min(i + LANES, n)) for i in range(0, n, LANES)]
        return self._model.pieces(n)

    def _residuals(self, batch: Batch, first: int, last: int) -> None:
        """Turn the logits of rows ``first:last`` into residuals."""
        model, targets = self._model, self._targets(batch)
        if self._training.loss == "joint":
            self._joint_residuals(batch, targets, slice(first, last))
        elif batch.labels is None:
            kernels.residuals(batch.classes, targets, self._losses(), first, last)
        else:
            turn = logistic_residuals if model.logistic else list_residuals
            turn(_target_lists(batch), targets, self._losses(), first, last)

    def _targets(self, batch: Batch) -> RowTargets:
        model, smoothing = self._model, np.float32(self._training.label_smoothing)
        return RowTargets(model.codes, batch.importance, smoothing, model.spec.n_buckets)

    def _losses(self, rows: slice = ALL) -> RowLosses:
        return RowLosses(*(self._model.buffers[name][rows] for name in ("z", "losses", "norms")))

    def _joint_residuals(self, batch: Batch, targets: RowTargets, rows: slice) -> None:
        model, spec, out = self._model, self._model.spec, self._losses(rows)
        kernels.probabilities(spec.n_buckets, spec.n_repetitions, 0, len(out.z), True, out.z)
        shape = (len(out.z), min(BEST_CLASSES, spec.n_classes))
        best = RankedClasses(np.empty(shape, np.int64), np.empty(shape, np.float32))
        model.decoder.decode(out.z, SUM, best.scores, best.ids)
        targets = targets._replace(importance=batch.importance[rows])
        if batch.labels is None:
            joint_residuals(batch.classes[rows], best, targets, out)
        else:
            lists = _target_lists(batch)
            lists = lists._replace(starts=lists.starts[rows.start : rows.stop + 1])
            joint_list_residuals(lists, best, targets, model.buffers["rest"], out)

    def _update(self, table: Parameters, gradient: NDArray[Any], rows: Pair, models: Pair) -> None:
        """Take the optimiser's step on rows ``first:last`` and the columns of models ``r0:r1``.

        The gradient of those columns, for all rows of the table, is float32 (n, (r1 - r0) * B).
        """
        if self._kind.step is not None:
            self._update_plainly(table, gradient[slice(*rows)], rows, models)
        else:
            kernels.update_table(self._how(table), gradient, *models, *rows)

    def _how(self, table: Parameters) -> OptimizerStep:
        first, second = (table.state.get(name, NONE) for name in ("first", "second"))
        return OptimizerStep(
            self._kind.branch, table.weights, first, second, self._rate, self._epsilon, DECAYS,
            self._model.spec.n_buckets,
        )  # fmt: skip

    def _update_plainly(
        self, table: Parameters, gradient: NDArray[Any], rows: Pair, models: Pair
    ) -> None:
        """Do the same in NumPy, where kernels have no branch, for the gradient of these rows."""

        def part(array: NDArray[Any]) -> NDArray[Any]:
            width = array.shape[1] // self._model.spec.n_repetitions
            return array[slice(*rows), models[0] * width : models[1] * width]

        assert self._kind.step is not None
        state = {name: part(array) for name, array in table.state.items()}
        self._kind.step(part(table.weights), gradient, state, self._rate, self._epsilon)


def _target_lists(batch: Batch) -> TargetLists:
    lists = batch.labels
    assert lists is not None, "rows with lists"
    assert lists.weights is not None, "the shares of the target"
    return TargetLists(lists.starts, lists.classes, lists.weights)


class SparseSteps(Steps):
    """Steps on sparse rows, whose batches come feature by feature too."""

    def _forward(self, batch: Batch) -> None:
        model = self._model

        def piece(first: int, last: int) -> None:
            products.logits(
                batch.indptr, batch.features, batch.values, first, last, model.weights, model.bias,
                model.buffers["z"],
            )  # fmt: skip
            self._residuals(batch, first, last)

        model.run(piece, self._row_pieces(batch.n_rows))

    def _train(self, batch: Batch) -> None:
        if self._kind.step is not None:  # kernels have no branch for it
            super()._train(batch)
            return
        apart = self._training.loss == "joint" or batch.labels is not None
        if apart:
            self._forward(batch)
        self._share(batch, batch.n_rows if apart else 0)

    def _share(self, batch: Batch, n_done: int) -> None:
        """Have all threads do what is left of a step: rows, if none is done, and features."""
        assert batch.by_feature is not None, "sparse rows come feature by feature too"
        turns = np.zeros(TURNS, np.int64)
        turns[[ROWS, DONE]] = n_done
        rows = SparseRows(batch.indptr, batch.features, batch.values, batch.classes)
        shared = (
            rows, self._targets(batch), batch.by_feature, self._how(self._table),
            self._how(self._bias), self._losses(), turns,
        )  # fmt: skip
        n = max(1, min(self._model.threads, batch.n_rows // TURN_ROWS))
        self._model.run(lambda a, b: kernels.share_step(*shared), [(i, i + 1) for i in range(n)])

    def _backward(self, batch: Batch) -> None:
        by_feature, model = batch.by_feature, self._model
        assert by_feature is not None, "sparse rows come feature by feature too"
        model.run(partial(self._piece_plainly, by_feature), model.pieces(len(by_feature.ids)))

    def _piece_plainly(self, by_feature: ByFeature, first: int, last: int) -> None:
        """Update the weights of some features in NumPy."""
        z = self._model.buffers["z"]
        for u in range(first, last):
            some, f = slice(*by_feature.starts[u : u + 2]), int(by_feature.ids[u])
            gradient = product(by_feature.values[None, some], z[by_feature.rows[some]])
            self._update_plainly(self._table, gradient, (f, f + 1), self._all)


class DenseSteps(Steps):
    """Steps on dense rows: a matrix product, the softmax, a matrix product, the optimiser."""

    def _forward(self, batch: Batch) -> None:
        model = self._model
        with model.blas():
            self._x = model.products(batch, model.buffers["z"][: batch.n_rows])
        model.run(partial(self._residuals, batch), self._row_pieces(batch.n_rows))

    def _backward(self, batch: Batch) -> None:
        model, spec, n = self._model, self._model.spec, batch.n_rows
        z, gradient = (model.buffers[name] for name in ("z", "gradient"))
        width = gradient.shape[1] // spec.n_buckets
        for r0 in range(0, spec.n_repetitions, width):
            models = (r0, min(r0 + width, spec.n_repetitions))
            columns = slice(*(r * spec.n_buckets for r in models))
            part = gradient[:, : columns.stop - columns.start]
            with model.blas():
                product(self._x.T, z[:n, columns], out=part)
            model.run(partial(self._update_rows, part, models), model.pieces(len(gradient)))

    def _update_rows(self, gradient: NDArray[Any], models: Pair, first: int, last: int) -> None:
        self._update(self._table, gradient, (first, last), models)
