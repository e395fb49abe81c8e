"""Hashed models as they would be with narrower weights, which are made as rows need them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.backends.cpu.forward import Forward, Rows
from streammach.backends.cpu.products import quantizing_logits
from streammach.backends.protocol import Backend
from streammach.hashing import code_type
from streammach.model.coding import CODERS, PIECE_WORDS
from streammach.model.document import Width
from streammach.model.shrink import LEVELS, weights_as
from streammach.options.config import RunConfig
from streammach.options.estimators import EstimatorKind
from streammach.options.model_spec import ModelSpec
from streammach.rows.batch import Batch
from streammach.rows.block import RowBlock
from streammach.rows.dense import product
from streammach.system.simd import LANES

CODING_BYTES = 6  # of a word of a piece that is coded
DENSE_ROWS = 512  # for which weights are narrowed once
WORK = 4  # pieces at once: as they are, as whole numbers, and what is between
PIECE_BYTES = 2 << 20  # of weights of dense rows that are narrowed at once, at most
ROWS = 8  # of weights of sparse rows that a thread narrows at once


class QuantizedForward(Forward):
    """Applies the first repetitions of trained models with weights of another type.

    The trained weights stay as they are, and no copy of all of them is made: a device takes narrow
    ones of dense rows in place of its own, until :meth:`Backend.apply` gives it these again. Those
    of sparse rows are narrowed on the host, only those of features that rows have.
    """

    dense_rows = DENSE_ROWS
    in_training = True

    def __init__(
        self, spec: ModelSpec, weights: dict[str, NDArray[np.float32]], stored: Width, *,
        dense: bool, threads: int, logistic: bool, device: Backend | None = None,
    ) -> None:  # fmt: skip
        bias = np.ascontiguousarray(weights["bias"][: spec.n_columns])
        applied = {**weights, "bias": bias}
        super().__init__(spec, dense=dense, threads=threads, weights=applied, logistic=logistic)
        self._trained, self._stored = weights["weights"][:, : spec.n_columns], stored
        rounded = None if stored == "float32" else _Rounded(weights["weights"], self)
        name = "" if rounded is None else f"{stored}, {spec.n_columns} columns"
        there = device is not None and stored not in LEVELS and device.apply(rounded, name)
        self._device = device if there else None

    @staticmethod
    def footprint(config: RunConfig) -> int:
        """Return the bytes that judging narrow weights takes."""
        shape, threads = config.shape, config.placement.threads
        tables = shape.n_classes * shape.n_repetitions * code_type(shape.n_buckets).itemsize
        tile = threads * LANES * shape.n_columns * 5
        if not config.dense:
            return tables + tile + threads * ROWS * shape.n_columns
        return tables + tile + WORK * PIECE_BYTES + 2 * 4 * DENSE_ROWS * config.weight_rows

    @staticmethod
    def coding(config: RunConfig) -> int:
        """Return the bytes that coding a smaller model for its file takes."""
        coded = 2 * config.weight_rows * config.shape.n_columns if config.dense else 0
        return min(config.placement.threads, CODERS) * CODING_BYTES * PIECE_WORDS + coded

    def outputs(self, rows: RowBlock, *, logarithms: bool) -> NDArray[np.float32]:
        if self._device is not None:
            p = self._device.outputs(rows, logarithms=logarithms)
            return np.ascontiguousarray(p[:, : self.spec.n_columns])
        return super().outputs(rows, logarithms=logarithms)

    def _logits(self, rows: Rows, z: NDArray[np.float32]) -> None:
        if self._stored == "float32":
            super()._logits(rows, z)
        else:
            levels, units = np.float32(LEVELS[self._stored]), np.empty(ROWS, np.float32)
            some, places = self._quantizing_room()
            quantizing_logits(*rows, self.weights, levels, self.bias, some, places, units, z)

    def rank(
        self, rows: RowBlock, kind: EstimatorKind, scores: NDArray[Any], ids: NDArray[Any]
    ) -> None:
        if self._device is None or self._device.spec.shape != self.spec.shape:
            super().rank(rows, kind, scores, ids)
        else:
            self._device.rank(rows, kind, scores, ids)

    def products(self, rows: RowBlock | Batch, z: NDArray[np.float32]) -> NDArray[np.float32]:
        x = self.laid_out(rows)
        step = max(1, PIECE_BYTES // (4 * len(self._trained)))
        for start in range(0, self.spec.n_columns, step):
            some = slice(start, start + step)
            z[:, some] = product(x, self.round_weights(self._trained[:, some]))
        z += self.bias
        return x

    def round_weights(self, weights: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return weights of dense rows as they are when they come back from this type."""
        return weights_as(self._stored, weights)[0]


@dataclass(frozen=True)
class _Rounded:
    """All weights of trained models, the first repetitions rounded when rows are asked for."""

    trained: NDArray[np.float32]
    form: QuantizedForward

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns."""
        return self.trained.shape

    def __len__(self) -> int:
        return len(self.trained)

    def __getitem__(self, rows: slice) -> NDArray[np.float32]:
        found = self.trained[rows].copy()
        first = found[:, : self.form.spec.n_columns]

        def write(a: int, b: int) -> None:
            first[a:b] = self.form.round_weights(first[a:b])

        self.form.run(write, self.form.pieces(len(found)))
        return found
