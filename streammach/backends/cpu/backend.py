"""The CPU backend: buffers, threads and launches.

Threads share the rows of a batch, then its features, in pieces taken as they become free. A row's
residual and a feature's update are each computed whole by one thread, so the bits do not depend on
the number of threads. Dense rows go through BLAS, whose bits are the same for the same number of
threads.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import threadpoolctl
from numpy.typing import NDArray

from streammach import hashing
from streammach.backends.cpu import kernels
from streammach.backends.cpu.decode import decode_one, decode_tile
from streammach.backends.cpu.joint import joint_residuals
from streammach.backends.estimators import KINDS, SUM, estimates
from streammach.backends.loss import BEST_CLASSES, NOTHING, Loss
from streammach.backends.optimizers import ADAM_DECAYS, corrected, state_shapes
from streammach.rows.batch import Batch, RowIdBatch
from streammach.rows.block import RowBlock
from streammach.rows.dense import Basis, product
from streammach.simd import LANES
from streammach.spec.config import RunConfig
from streammach.spec.model import ModelShape, ModelSpec
from streammach.spec.training import TrainSpec
from streammach.spec.types import Estimator, Optimizer
from streammach.threads import Workers

OPTIMIZERS: dict[Optimizer, int] = {
    "adagrad": kernels.ADAGRAD,
    "adam": kernels.ADAM,
    "sgd": kernels.SGD,
}
PIECES_PER_THREAD = 8  # enough that no thread waits long for the last one
GRADIENT_COLUMNS = 1024  # columns of a dense gradient held at once, at least one model
FEATURE_COST = 6  # updating a row of the table, in units of adding up one row of residuals
CHUNK_BYTES = 16 << 20  # of outputs that are scored at once
DECODE_ROWS = 4  # fewer rows than this are scored class by class


def chunk_rows(spec: ModelShape) -> int:
    """Return how many rows are scored at a time, so that their outputs stay near 16 MiB."""
    return max(LANES, min(4096, CHUNK_BYTES // (4 * spec.n_columns)))


def _pieces(n: int, parts: int) -> list[tuple[int, int]]:
    edges = np.linspace(0, n, min(parts, n) + 1).astype(int).tolist() if n else [0]
    return list(itertools.pairwise(edges))


class _Rule(NamedTuple):
    """The numbers of one optimiser step: which one, step size, epsilon, Adam's decays."""

    optimizer: int
    rate: np.float32
    epsilon: np.float32
    decays: NDArray[np.float32]


class CpuBackend:
    """Trains and applies R softmax models with Numba kernels and BLAS.

    Parameters
    ----------
    spec : ModelSpec
        The model.
    dense : bool
        Whether rows are expanded and go through matrix products.
    threads : int
        Threads that compute.
    weights : dict, optional
        ``weights`` float32 (d, R*B) and ``bias`` float32 (R*B,) of a trained model, used as they
        are, or int8 weights and ``scale`` float32 (d,); zeros otherwise.
    """

    def __init__(
        self,
        spec: ModelSpec,
        *,
        dense: bool,
        threads: int,
        weights: dict[str, NDArray[Any]] | None = None,
    ) -> None:
        self.spec = spec
        self.dense = dense
        self.threads = threads
        self.n_waves = 1
        self.wants_by_feature = not dense
        self.codes = hashing.codes(spec.hash_a, spec.hash_b, spec.n_classes, spec.n_buckets)
        self._flat_codes = self.codes.reshape(-1)
        columns = spec.n_columns
        if weights is None:
            self._weights = np.zeros((spec.n_features, columns), np.float32)
            self._bias = np.zeros(columns, np.float32)
        else:
            self._weights, self._bias = weights["weights"], weights["bias"]
        self._scale = None if weights is None else weights.get("scale")
        self._steps = np.zeros(1, np.int64)
        self._training: TrainSpec | None = None
        self._basis: Basis | None = None
        self._buffers: dict[str, NDArray[Any]] = {}
        self._state: dict[str, NDArray[Any]] = {}
        self._scratch = threading.local()
        self._workers = Workers(threads, "compute")
        self._blas = threadpoolctl.ThreadpoolController()

    @staticmethod
    def footprint(config: RunConfig) -> dict[str, int]:
        """Return the bytes of every buffer of such a backend, by name."""
        shape, batch_size = config.shape, config.batching.batch_size
        columns = shape.n_columns
        code_bytes = hashing.code_type(shape.n_buckets).itemsize
        lines = {
            "weights": 4 * (shape.n_features + 1) * columns,
            "tables": shape.n_classes * shape.n_repetitions * code_bytes,
            "decode tile": config.placement.threads * LANES * columns * 5,
            "scoring": chunk_rows(shape) * columns * 4
            + (LANES * shape.n_features * 4 if config.dense else 0),
        }
        if config.optimizer is not None:
            state = state_shapes(shape, config.optimizer).values()
            lines["optimizer"] = sum(4 * int(np.prod(size)) for size in state)
            arrays = _buffer_shapes(
                shape, dense=config.dense, batch_size=batch_size, whitened=config.basis
            )
            lines["residuals"] = sum(4 * int(np.prod(size)) for size in arrays.values())
        if config.basis:
            lines["basis"] = 4 * shape.n_features * (shape.n_features + 1)
            lines["scoring"] += 4 * LANES * shape.n_features
        return lines

    def prepare(self, training: TrainSpec, batch_nnz: int, basis: Basis | None = None) -> None:
        """Make ready to train from zero weights; buffers of an earlier call are used again."""
        before, self._training, self._basis = self._training, training, basis
        if before is not None:
            self._weights[:] = 0
            self._bias[:] = 0
        shapes = state_shapes(self.spec, training.optimizer)
        if {name: a.shape for name, a in self._state.items()} == shapes:
            for array in self._state.values():
                array[:] = 0
        else:
            self._state.clear()
            self._state = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
        self._steps[0] = 0
        wanted = _buffer_shapes(
            self.spec, dense=self.dense, batch_size=training.batch_size,
            whitened=basis is not None,
        )  # fmt: skip
        if {name: a.shape for name, a in self._buffers.items()} != wanted:
            self._buffers.clear()
            self._buffers = {name: np.empty(shape, np.float32) for name, shape in wanted.items()}

    def unwhiten_weights(self) -> None:
        """Turn weights for rows in another basis into those for plain rows, if there is one."""
        if self._basis is not None:
            with self._blas.limit(limits=self.threads, user_api="blas"):
                self._basis.unwhiten_weights(self._weights, self._bias)
            self._basis = None

    @property
    def row_cache(self) -> None:
        """Nothing: rows are streamed."""
        return

    def select_wave(self, wave: int, done: int = 0) -> None:
        """Do nothing: all models are here."""

    def step(self, batch: Batch | RowIdBatch, rate: float) -> Loss:
        """Train on one batch; return its loss."""
        assert self._training is not None, "prepare() comes first"
        assert isinstance(batch, Batch), "no rows are kept"
        self._steps[0] += 1
        if self.dense:
            self._dense_forward(batch)
            self._dense_backward(batch, rate)
        else:
            self._sparse_forward(batch)
            self._sparse_backward(batch, rate)
        total = float(self._buffers["losses"][: batch.n_rows].sum(dtype=np.float64))
        return Loss(total, batch.n_rows)

    def drain_losses(self) -> Loss:
        """Return nothing: every step returned its loss."""
        return NOTHING

    def outputs(self, rows: RowBlock, *, logarithms: bool) -> NDArray[np.float32]:
        """Return bucket probabilities, or their logarithms: float32 (n, R*B)."""
        z = np.empty((rows.n_rows, self.spec.n_columns), np.float32)
        values = rows.values
        if self._scale is not None:
            values = values * self._scale[rows.features]

        def piece(first: int, last: int) -> None:
            if self.dense:
                self._products(rows.part(first, last), z[first:last])
            else:
                kernels.logits(
                    rows.indptr, rows.features, values, first, last,
                    self._weights, self._bias, z,
                )  # fmt: skip
            kernels.probabilities(
                self.spec.n_buckets, self.spec.n_repetitions, first, last, logarithms, z
            )

        if self.dense:
            with self._blas.limit(limits=self.threads, user_api="blas"):
                for first in range(0, rows.n_rows, LANES):
                    piece(first, min(first + LANES, rows.n_rows))
        else:
            self._run(piece, _pieces(rows.n_rows, self.threads * PIECES_PER_THREAD))
        return z

    def topk(
        self, rows: RowBlock, k: int, estimator: Estimator
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the k best classes of each row and their scores, best first.

        Parameters
        ----------
        rows : RowBlock
            n rows with transformed float32 values.
        k : int
            How many; all K classes if there are fewer.
        estimator : str
            ``mean``: unbiased, ``p_i = B / (B - 1) (mean_r P_r[h_r(i)] - 1 / B)`` (Huang et al.,
            equation 2); ``min`` and ``median`` over r; ``logsum``: ``mean_r ln P_r[h_r(i)]``.

        Returns
        -------
        ids : int64 (n, min(k, K))
            Class ids, best first.
        scores : float32 (n, min(k, K))
            What the estimator gives for them.
        """
        k = min(k, self.spec.n_classes)
        ids, scores = np.empty((rows.n_rows, k), np.int64), np.empty((rows.n_rows, k), np.float32)
        chunk = chunk_rows(self.spec)
        for start in range(0, rows.n_rows, chunk):
            stop = min(start + chunk, rows.n_rows)
            p = self.outputs(rows.part(start, stop), logarithms=estimator == "logsum")
            self._decode_all(p, KINDS[estimator], scores[start:stop], ids[start:stop])
        return ids, estimates(scores, self.spec, estimator)

    def _decode_all(
        self, p: NDArray[np.float32], kind: int, scores: NDArray[np.float32], ids: NDArray[np.int64]
    ) -> None:
        """Find the best classes of any number of rows, up to 64 to a thread at a time."""
        step = LANES if len(p) > DECODE_ROWS * self.threads else 1
        edges = [(i, min(i + step, len(p))) for i in range(0, len(p), step)]
        self._run(lambda a, b: self.decode(p[a:b], kind, scores[a:b], ids[a:b]), edges)

    def decode(
        self, p: NDArray[np.float32], kind: int, scores: NDArray[np.float32], ids: NDArray[np.int64]
    ) -> None:
        """Find the best classes from the probabilities of at most 64 rows: float32 (n, R*B)."""
        spec = self.spec
        sizes = (spec.n_classes, spec.n_repetitions, spec.n_buckets)
        if len(p) < DECODE_ROWS or spec.exact:
            decode_one(p, self._flat_codes, *sizes, kind, scores, ids)
            return
        scratch = self._scratch
        if not hasattr(scratch, "table"):
            scratch.by_column = np.zeros(spec.n_columns * LANES, np.float32)
            scratch.table = np.zeros(spec.n_columns * LANES, np.uint8)
        decode_tile(
            p, self._flat_codes, *sizes, kind, scratch.by_column, scratch.table, scores, ids
        )

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return weights and optimiser state, as they are held: what is written there counts."""
        return {"weights": self._weights, "bias": self._bias, "steps": self._steps, **self._state}

    def restore(self) -> None:
        """Do nothing: what is written into the arrays counts at once."""

    def device_bytes(self) -> tuple[int, int]:
        """Return zeros: there is no memory but the host's."""
        return 0, 0

    def close(self) -> None:
        """Stop the threads."""
        self._workers.close()

    def _run(self, work: Callable[[int, int], None], pieces: list[tuple[int, int]]) -> None:
        """Do all pieces of work, on the threads if there are several of both."""
        if self.threads == 1 or len(pieces) == 1:
            for a, b in pieces:
                work(a, b)
            return
        self._workers.each(work, pieces)

    def _sparse_forward(self, batch: Batch) -> None:
        def piece(first: int, last: int) -> None:
            kernels.logits(
                batch.indptr, batch.features, batch.values, first, last,
                self._weights, self._bias, self._buffers["z"],
            )  # fmt: skip
            self._residuals(batch, first, last)

        self._run(piece, self._row_pieces(batch.n_rows))

    def _row_pieces(self, n: int) -> list[tuple[int, int]]:
        """Return the pieces that the rows of a batch are turned into residuals in."""
        assert self._training is not None
        if self._training.loss == "joint":  # whose best classes are found for so many at once
            return [(i, min(i + LANES, n)) for i in range(0, n, LANES)]
        return _pieces(n, self.threads * PIECES_PER_THREAD)

    def _residuals(self, batch: Batch, first: int, last: int) -> None:
        assert self._training is not None
        buffers, spec = self._buffers, self.spec
        smoothing = np.float32(self._training.label_smoothing)
        if self._training.loss == "joint":
            self._joint_residuals(batch, smoothing, first, last)
            return
        kernels.residuals(
            self.codes, batch.classes, batch.importance, smoothing,
            first, last, spec.n_buckets, spec.n_repetitions,
            buffers["z"], buffers["losses"], buffers["norms"],
        )  # fmt: skip

    def _joint_residuals(self, batch: Batch, smoothing: np.float32, first: int, last: int) -> None:
        spec, rows = self.spec, slice(first, last)
        z, losses, norms = (self._buffers[name][rows] for name in ("z", "losses", "norms"))
        kernels.probabilities(spec.n_buckets, spec.n_repetitions, 0, last - first, True, z)
        shape = (last - first, min(BEST_CLASSES, spec.n_classes))
        ids, scores = np.empty(shape, np.int64), np.empty(shape, np.float32)
        self.decode(z, SUM, scores, ids)
        joint_residuals(
            self.codes, batch.classes[rows], batch.importance[rows], ids, scores, smoothing,
            spec.n_buckets, z, losses, norms,
        )  # fmt: skip

    def _sparse_backward(self, batch: Batch, rate: float) -> None:
        by_feature, spec, buffers = batch.by_feature, self.spec, self._buffers
        assert by_feature is not None, "sparse rows come feature by feature too"
        rule = self._rule(rate)

        def piece(first: int, last: int) -> None:
            kernels.backward(
                rule.optimizer, by_feature.ids, by_feature.starts, by_feature.rows,
                by_feature.values, first, last, buffers["z"], buffers["norms"], self._weights,
                self._held_state("first"), self._held_state("second"), rule.rate, rule.epsilon,
                rule.decays, spec.n_buckets, spec.n_repetitions,
            )  # fmt: skip

        n = len(by_feature.ids)
        cost = by_feature.starts + FEATURE_COST * np.arange(n + 1)
        parts = self.threads * PIECES_PER_THREAD
        edges = np.searchsorted(cost, np.linspace(0, cost[-1], parts + 1)[1:-1]).tolist()
        pieces = [(a, b) for a, b in zip([0, *edges], [*edges, n], strict=True) if a < b]
        self._run(piece, pieces)
        self._bias_step(batch.n_rows, rate)

    def _bias_step(self, n_rows: int, rate: float) -> None:
        """Update the bias as a feature that every row holds with value 1."""
        spec = self.spec
        gradient = np.empty((1, spec.n_columns), np.float32)
        kernels.bias_gradient(self._buffers["z"], n_rows, gradient[0])
        rule = self._rule(rate)
        kernels.update_table(
            rule.optimizer, gradient, self._bias.reshape(1, -1), self._held_state("bias_first"),
            self._held_state("bias_second"), 0, 1, rule.rate, rule.epsilon, rule.decays,
            spec.n_buckets, 0, spec.n_repetitions,
        )  # fmt: skip

    def _rule(self, rate: float) -> _Rule:
        """Return the numbers of the optimiser's next step."""
        assert self._training is not None
        rate, epsilon = corrected(self._training, rate, int(self._steps[0]))
        decays = np.array(ADAM_DECAYS, np.float32)
        number = OPTIMIZERS[self._training.optimizer]
        return _Rule(number, np.float32(rate), np.float32(epsilon), decays)

    def _held_state(self, name: str) -> NDArray[np.float32]:
        """Return a table of the optimiser's state, or one that stands for it if it keeps none."""
        return self._state.get(name, _NONE)

    def _products(self, rows: RowBlock | Batch, z: NDArray[np.float32]) -> NDArray[np.float32]:
        """Write ``bias + X W`` to `z`; return the dense rows X, in the basis if there is one."""
        x = self._room("x", len(rows.classes))
        if self._basis is None:
            kernels.expand(rows.indptr, rows.features, rows.values, x)
        else:
            plain = self._room("plain", len(x))
            kernels.expand(rows.indptr, rows.features, rows.values, plain)
            self._basis.apply(plain, x)
        product(x, self._weights, out=z)
        z += self._bias
        return x

    def _room(self, name: str, n: int) -> NDArray[np.float32]:
        """Return room for dense rows: float32 (n, d)."""
        held = self._buffers.get(name)
        if held is not None and n <= len(held):
            return held[:n]
        return np.empty((n, self.spec.n_features), np.float32)

    def _dense_forward(self, batch: Batch) -> None:
        with self._blas.limit(limits=self.threads, user_api="blas"):
            self._products(batch, self._buffers["z"][: batch.n_rows])
        self._run(lambda a, b: self._residuals(batch, a, b), self._row_pieces(batch.n_rows))

    def _dense_backward(self, batch: Batch, rate: float) -> None:
        spec, n = self.spec, batch.n_rows
        x, z, gradient = (self._buffers[name] for name in ("x", "z", "gradient"))
        rule = self._rule(rate)
        width = gradient.shape[1] // spec.n_buckets
        for r0 in range(0, spec.n_repetitions, width):
            r1 = min(r0 + width, spec.n_repetitions)
            columns = slice(r0 * spec.n_buckets, r1 * spec.n_buckets)
            part = gradient[:, : (r1 - r0) * spec.n_buckets]
            with self._blas.limit(limits=self.threads, user_api="blas"):
                product(x[:n].T, z[:n, columns], out=part)

            def piece(
                first: int, last: int, part: NDArray[np.float32] = part, r0: int = r0, r1: int = r1
            ) -> None:
                kernels.update_table(
                    rule.optimizer, part, self._weights, self._held_state("first"),
                    self._held_state("second"), first, last, rule.rate, rule.epsilon, rule.decays,
                    spec.n_buckets, r0, r1,
                )  # fmt: skip

            self._run(piece, _pieces(spec.n_features, self.threads * PIECES_PER_THREAD))
        self._bias_step(n, rate)


_NONE = np.zeros((1, 1), np.float32)  # stands for a state that the optimiser does not keep


def _buffer_shapes(
    spec: ModelShape, *, dense: bool, batch_size: int, whitened: bool
) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "z": (batch_size, spec.n_columns),
        "losses": (batch_size, spec.n_repetitions),
        "norms": (batch_size, spec.n_repetitions),
    }
    if dense:
        models = min(spec.n_repetitions, max(1, GRADIENT_COLUMNS // spec.n_buckets))
        shapes["x"] = (batch_size, spec.n_features)
        if whitened:
            shapes["plain"] = shapes["x"]
        shapes["gradient"] = (spec.n_features, models * spec.n_buckets)
    return shapes
