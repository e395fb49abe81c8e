"""The CPU backend: what is held, and its bytes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach import hashing
from streammach.backends.cpu.decoder import Decoder
from streammach.backends.cpu.forward import Forward, chunk_rows
from streammach.backends.cpu.kernels import TOGETHER
from streammach.backends.cpu.steps import DenseSteps, Shapes, SparseSteps, Steps, buffer_shapes
from streammach.backends.protocol import Backend, Loss
from streammach.options.config import RunConfig
from streammach.options.model_spec import ModelSpec
from streammach.options.training import TrainSpec
from streammach.rows.batch import Batch, RowIdBatch
from streammach.rows.dense import RowMap
from streammach.system.simd import LANES


class CpuBackend(Forward, Backend):
    """Trains and applies R softmax models with Numba kernels and BLAS; made as :class:`Forward`."""

    _trains: Steps | None = None

    @staticmethod
    def footprint(config: RunConfig) -> dict[str, int]:
        """Return the bytes of every buffer of such a backend, by name."""
        shape, columns, d = config.wide, config.shape.n_columns, config.shape.n_features
        code_bytes = hashing.code_type(shape.n_buckets).itemsize
        threads, predicts = config.placement.threads, config.optimizer is None
        lines = {
            "weights": 4 * (config.weight_rows + 1) * columns,
            "tables": shape.n_classes * shape.n_repetitions * code_bytes,
            "decode tile": threads * LANES * columns * 5,
            "scoring": chunk_rows(shape) * columns * 4,
        }
        dense_rows = LANES * (threads if predicts else 1) if config.dense else 0
        lines["scoring"] += 4 * dense_rows * shape.n_features
        if config.optimizer is not None:
            lines["optimizer"] = config.optimizer_kind.n_bytes(shape)
            buffers = buffer_shapes(
                shape, dense=config.dense, batch_size=config.batching.batch_size,
                whitened=config.has_feature_map, n_more=config.more_columns,
                n_labels=config.batching.batch_labels,
            )  # fmt: skip
            lines["residuals"] = sum(4 * math.prod(size) for size in buffers.values())
            if not config.dense:
                lines["gradients"] = threads * 4 * (TOGETHER + 1) * columns
        if config.has_feature_map:
            lines["basis"] = 4 * (d * (d + 1) + (d + 2) * config.more_columns)
            lines["scoring"] += 4 * max(dense_rows, LANES) * shape.n_features
        elif predicts and config.more_columns:
            lines["scoring"] += 4 * dense_rows * d
        return lines

    def prepare(
        self, training: TrainSpec, batch_nnz: int, basis: RowMap | None = None,
        batch_labels: int = 0,
    ) -> None:  # fmt: skip
        self.basis, self.logistic = basis, training.logistic
        if self._trains is not None:
            self._trains = None  # its tables go before new ones come
            self.run(lambda a, b: self.weights[a:b].fill(0), self.pieces(len(self.weights)))
        self.bias[:] = training.start_bias
        n_more = 0 if basis is None else basis.n_more
        wide = self.spec.shape.wide(n_more)
        if len(self.weights) != wide.n_features:
            self.weights = np.zeros((0, 0), np.float32)  # goes before another one comes
            self.state.clear()
            self.weights = np.zeros((wide.n_features, wide.n_columns), np.float32)
        if _fitted(self.state, training.optimizer_kind.shapes(wide)):
            for array in self.state.values():
                array[:] = 0
        shapes = buffer_shapes(
            wide, dense=self.dense, batch_size=training.batch_size, whitened=basis is not None,
            n_more=n_more, n_labels=batch_labels,
        )  # fmt: skip
        _fitted(self.buffers, shapes)
        self._number[0] = 0
        self._trains = (DenseSteps if self.dense else SparseSteps)(self, training)

    def take_classes(self, spec: ModelSpec) -> None:
        """Take on a model of the same hashes and more classes: no weight changes."""
        assert (spec.hash_a, spec.hash_b) == (self.spec.hash_a, self.spec.hash_b), "its hashes"
        self.spec = spec
        self.decoder = Decoder(spec)
        self.codes = self.decoder.codes

    def unwhiten_weights(self) -> None:
        if self.basis is not None and self.basis.rotation is not None:
            with self.blas():
                self.basis.unwhiten_weights(self.weights, self.bias)
            self.basis = self.basis.plain

    def step(self, batch: Batch | RowIdBatch, rate: float) -> Loss:
        assert self._trains is not None, "prepare() comes first"
        assert isinstance(batch, Batch), "no rows are kept"
        self._number[0] += 1
        return Loss(self._trains.step(batch, rate, int(self._number[0])), batch.n_rows)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return weights and optimiser state, as they are held: what is written there counts."""
        projection = {} if self.projection is None else {"projection": self.projection}
        fixed = {"weights": self.weights, "bias": self.bias, "steps": self._number}
        return {**fixed, **self.state, **projection}

    def close(self) -> None:
        """Stop the threads, and give back what only training needs."""
        self._trains = None
        super().close()


def _fitted(held: dict[str, NDArray[Any]], shapes: Shapes) -> bool:
    """Make room of these shapes, and no other; return whether it is what was held before."""
    if {name: array.shape for name, array in held.items()} == shapes:
        return True
    held.clear()
    held.update((name, np.zeros(shape, np.float32)) for name, shape in shapes.items())
    return False
