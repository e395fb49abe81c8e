"""Hashed models as they would be with narrower weights, made for the rows that need them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.backends.cpu.forward import Forward
from streammach.backends.protocol import Backend
from streammach.hashing import code_type
from streammach.model.coding import PIECE_WORDS
from streammach.model.document import Width
from streammach.model.shrink import narrowed_as
from streammach.prediction.inputs import Room
from streammach.rows.batch import Batch
from streammach.rows.block import RowBlock
from streammach.rows.dense import product
from streammach.simd import LANES
from streammach.spec.config import RunConfig
from streammach.spec.estimators import EstimatorKind
from streammach.spec.model_spec import ModelSpec

CODING_BYTES = 6  # of a word of a piece that is coded
DENSE_ROWS = 512  # for which weights are narrowed once
WORK = 4  # pieces at once: as they are, as whole numbers, and what is between
PIECE_BYTES = 2 << 20  # of float32 weights that are narrowed at once, at most


class Narrowed(Forward):
    """Applies the first repetitions of trained models with weights of another type.

    The trained weights stay as they are, and no copy of all of them is made: a device takes narrow
    ones in place of its own, until :meth:`Backend.apply` gives it these again.
    """

    dense_rows = DENSE_ROWS
    in_training = True

    def __init__(
        self, spec: ModelSpec, weights: dict[str, NDArray[np.float32]], stored: Width, *,
        dense: bool, threads: int, logistic: bool, device: Backend | None = None,
    ) -> None:  # fmt: skip
        bias = np.ascontiguousarray(weights["bias"][: spec.n_columns])
        first = weights["weights"][:, : spec.n_columns]
        applied = {**weights, "weights": first, "bias": bias}
        super().__init__(spec, dense=dense, threads=threads, weights=applied, logistic=logistic)
        self._trained, self._stored = first, stored
        rounded = None if stored == "float32" else _Rounded(weights["weights"], self)
        name = "" if rounded is None else f"{stored}, {spec.n_columns} columns"
        self._device = device if device is not None and device.apply(rounded, name) else None

    @staticmethod
    def footprint(config: RunConfig, longest_row: int = 0) -> int:
        """Return the bytes that judging narrow weights takes."""
        shape = config.shape
        tables = shape.n_classes * shape.n_repetitions * code_type(shape.n_buckets).itemsize
        tile = config.placement.threads * LANES * shape.n_columns * 5
        rows = 2 * 4 * DENSE_ROWS * config.weight_rows if config.dense else 0
        row = 0 if config.dense else 4 * min(longest_row, shape.n_features) * shape.n_columns
        return WORK * max(PIECE_BYTES, row) + tables + tile + rows

    @staticmethod
    def coding(config: RunConfig) -> int:
        """Return the bytes that coding a smaller model for its file takes."""
        coded = 2 * config.weight_rows * config.shape.n_columns if config.dense else 0
        return CODING_BYTES * PIECE_WORDS + coded

    def outputs(self, rows: RowBlock, *, logarithms: bool) -> NDArray[np.float32]:
        """Return bucket probabilities, or their logarithms: float32 (n, R*B)."""
        if self._device is not None:
            p = self._device.outputs(rows, logarithms=logarithms)
            return np.ascontiguousarray(p[:, : self.spec.n_columns])
        if self.dense:
            return super().outputs(rows, logarithms=logarithms)
        z = np.empty((rows.n_rows, self.spec.n_columns), np.float32)
        most = max(1, PIECE_BYTES // (4 * max(self.spec.n_columns, 1)))
        few = Room(rows=rows.n_rows, values=most, sorted_bytes=0, lines=())
        for some in few.ranges(rows.indptr):
            part = rows.part(some.start, some.stop)
            features, own = np.unique(part.features, return_inverse=True)
            self.weights = self._trained[:0]  # goes before others come
            self.weights = self.rounded(self._trained[features])
            own_rows = replace(part, features=own.reshape(-1).astype(np.int32))
            z[some] = super().outputs(own_rows, logarithms=logarithms)
        return z

    def rank(
        self, rows: RowBlock, kind: EstimatorKind, scores: NDArray[Any], ids: NDArray[Any]
    ) -> None:
        """Write the best classes int64 (n, k) of rows, and what they were ranked by float32."""
        if self._device is None or self._device.spec.shape != self.spec.shape:
            super().rank(rows, kind, scores, ids)
        else:
            self._device.rank(rows, kind, scores, ids)

    def products(self, rows: RowBlock | Batch, z: NDArray[np.float32]) -> NDArray[np.float32]:
        """Write ``bias + X W`` to `z`; return the dense rows X."""
        x = self.laid_out(rows)
        step = max(1, PIECE_BYTES // (4 * len(self._trained)))
        for start in range(0, self.spec.n_columns, step):
            some = slice(start, start + step)
            z[:, some] = product(x, self.rounded(self._trained[:, some]))
        z += self.bias
        return x

    def rounded(self, weights: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return weights as they are when they come back from this type."""
        if self._stored == "float32":
            return np.ascontiguousarray(weights)
        found, scale = narrowed_as(self._stored, weights)
        return found if scale is None else found * scale[:, None]


@dataclass(frozen=True)
class _Rounded:
    """All weights of trained models, the first repetitions rounded when rows are asked for."""

    trained: NDArray[np.float32]
    form: Narrowed

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
            first[a:b] = self.form.rounded(first[a:b])

        self.form.run(write, self.form.pieces(len(found)))
        return found
