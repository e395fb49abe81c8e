"""The forward pass on the CPU, and the best classes: weights, threads, and launches of kernels.

Threads share the rows in pieces taken as they become free. Dense rows go through BLAS. Where a
model only predicts, 64 rows are one thread's, and BLAS has no threads of its own: those wait for
one another, which takes many times as long on cores that others use, and the bits of a single row
depend on how many there are. In training BLAS has all threads, on whose number the bits depend.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property, partial
from typing import Any

import numpy as np
import threadpoolctl
from numpy.typing import NDArray

from streammach.backends.cpu import kernels, products
from streammach.backends.cpu.decoder import Decoder
from streammach.backends.cpu.losses import sigmoids
from streammach.backends.protocol import Ranked
from streammach.options.estimators import EstimatorKind
from streammach.options.model_spec import ModelShape, ModelSpec
from streammach.rows.batch import Batch
from streammach.rows.block import RowBlock
from streammach.rows.dense import RowMap, product
from streammach.rows.packed import PackedRows, Table
from streammach.system.forks import ForkSafeLock
from streammach.system.simd import LANES
from streammach.system.threads import Workers, pieces_of

CHUNK_BYTES = 16 << 20  # of outputs that are scored at once
PIECES_A_THREAD = 4  # of rows that are put through: milliseconds each, of unequal lengths
Rows = tuple[NDArray[Any], NDArray[Any], NDArray[Any], int, int]  # as kernels take sparse ones

_blas_lock = ForkSafeLock()
_blas_limits: list[Any] = []  # the limit that is in force, once for each that needs it


@contextmanager
def _one_thread_each(controller: threadpoolctl.ThreadpoolController) -> Iterator[None]:
    """Have a product of matrices be its caller's work alone, until the last caller is done."""
    with _blas_lock:  # threads of BLAS are those of the whole process
        limit = _blas_limits[0] if _blas_limits else controller.limit(limits=1, user_api="blas")
        _blas_limits.append(limit)
    try:
        yield
    finally:
        with _blas_lock:
            _blas_limits.pop()
            if not _blas_limits:
                limit.restore_original_limits()


def chunk_rows(spec: ModelShape) -> int:
    """Return how many rows are scored at a time, so that their outputs stay near 16 MiB."""
    return max(LANES, min(4096, CHUNK_BYTES // (4 * max(spec.n_columns, 1))))


class Forward(Ranked):
    """Applies R softmax models.

    Parameters
    ----------
    spec, dense, threads : ModelSpec, bool, int
        The model; whether rows are expanded and go through matrix products; how many compute.
    weights : dict, optional
        ``weights`` float32 (d', R*B) and ``bias`` float32 (R*B,) of a trained model, used as they
        are, or int8 weights, perhaps packed, and ``scale`` float32 (d',); zeros otherwise. With
        ``projection`` float32 (d + 2, D) rows get D more columns, and the weights have d + D rows.
    logistic : bool
        Whether each bucket of the trained model has a sigmoid of its own.
    """

    # `state` holds the optimiser's tables by their names in a checkpoint, `buffers` room that is
    # kept between calls (``x`` and ``plain`` for dense rows, and what steps need); `basis` is what
    # dense rows are brought to; `dense_rows` of them are multiplied with the weights at a time.
    # `in_training` says that it is part of a training although it is given weights.
    dense_rows = LANES
    in_training = False
    # Made when they are asked for.
    codes: NDArray[Any] = cached_property(lambda self: self.decoder.codes)  # type: ignore[assignment]

    def __init__(
        self, spec: ModelSpec, *, dense: bool, threads: int,
        weights: Mapping[str, Table] | None = None, logistic: bool = False,
    ) -> None:  # fmt: skip
        self.spec, self.dense, self._blas_threads, self.logistic = spec, dense, threads, logistic
        self._predicts = weights is not None and not self.in_training
        self.decoder = Decoder(spec)
        self.weights: Any  # an array, or packed rows, which only predict
        if weights is None:
            self.weights = np.zeros((spec.n_hashed_features, spec.n_columns), np.float32)
            self.bias = np.zeros(spec.n_columns, np.float32)
        else:
            self.weights, self.bias = weights["weights"], np.asarray(weights["bias"])
        scale = None if weights is None else weights.get("scale")
        self._scale = None if scale is None else np.asarray(scale)
        self.state: dict[str, NDArray[Any]] = {}
        self.buffers: dict[str, NDArray[Any]] = {}
        self._number = np.zeros(1, np.int64)  # of the last step
        self.basis: RowMap | None = None
        if weights is not None and "projection" in weights:
            self.basis = RowMap(projection=np.asarray(weights["projection"]))
        self._scratch = threading.local()
        self._workers = Workers(threads, "compute")
        self.threads, self.run = self._workers.n_threads, self._workers.each
        self._blas = threadpoolctl.ThreadpoolController()

    def outputs(self, rows: RowBlock, *, logarithms: bool) -> NDArray[np.float32]:
        z, rows = np.empty((rows.n_rows, self.spec.n_columns), np.float32), self.cut(rows)
        write = partial(self._write, rows, self._scale_values(rows), logarithms, z)
        if not self.dense:
            self.run(write, pieces_of(rows.n_rows, self.threads, a_thread=PIECES_A_THREAD))
        elif self._predicts:
            with _one_thread_each(self._blas):
                self.run(write, self._dense_pieces(rows.n_rows))
        else:
            with self.blas():
                for first, last in self._dense_pieces(rows.n_rows):
                    write(first, last)
        return z

    def _dense_pieces(self, n: int) -> list[tuple[int, int]]:
        """Return n rows in the pieces that are multiplied with the weights."""
        return [(i, min(i + self.dense_rows, n)) for i in range(0, n, self.dense_rows)]

    def _scale_values(self, rows: RowBlock) -> NDArray[Any]:
        """Return values times what stored weights are to be multiplied with."""
        return rows.values if self._scale is None else rows.values * self._scale[rows.features]

    def _write(
        self, rows: RowBlock, values: NDArray[Any], logarithms: bool, z: NDArray[np.float32],
        first: int, last: int,
    ) -> None:  # fmt: skip
        """Write the outputs of rows ``first:last`` with these values."""
        spec = self.spec
        if self.dense:
            self.products(rows.part(first, last), z[first:last])
        else:
            self._logits((rows.indptr, rows.features, values, first, last), z)
        if self.logistic:
            sigmoids(first, last, logarithms, z)
        else:
            kernels.probabilities(spec.n_buckets, spec.n_repetitions, first, last, logarithms, z)

    def _logits(self, rows: Rows, z: NDArray[np.float32]) -> None:
        """Write the logits of sparse rows."""
        if isinstance(self.weights, PackedRows):
            data, starts = self.weights.data, self.weights.starts
            products.packed_logits(*rows, data, starts, self.bias, *self._quantizing_room(), z)
        else:
            products.logits(*rows, self.weights, self.bias, z)

    def _quantizing_room(self) -> tuple[NDArray[np.int8], NDArray[np.int64]]:
        """Return a thread's room for narrow weights, int8 (8, C), and the numbers from 0 on."""
        room: tuple[NDArray[np.int8], NDArray[np.int64]] | None
        room = getattr(self._scratch, "narrow", None)
        if room is None:
            room = np.empty((8, self.spec.n_columns), np.int8), np.arange(8)
            self._scratch.narrow = room
        return room

    def rank(
        self, rows: RowBlock, kind: EstimatorKind, scores: NDArray[Any], ids: NDArray[Any]
    ) -> None:
        chunk = chunk_rows(self.spec)
        for start in range(0, rows.n_rows, chunk):
            some = slice(start, min(start + chunk, rows.n_rows))
            part = rows.part(some.start, some.stop) if rows.n_rows > chunk else rows
            best = scores[some], ids[some]
            if self.decoder.shares_classes(part.n_rows, self.threads):
                p = self.outputs(part, logarithms=kind.logarithms)
                self.decoder.decode_shared(p, kind.branch, *best, self.run, self.threads)
            elif self._predicts:
                self._rank_part(part, kind, *best)
            else:
                p = self.outputs(part, logarithms=kind.logarithms)
                decode = partial(self._decode_part, p, kind.branch, *best)
                self.run(decode, self.decoder.parts(part.n_rows))

    def _rank_part(
        self, rows: RowBlock, kind: EstimatorKind, scores: NDArray[Any], ids: NDArray[Any]
    ) -> None:
        """Have each thread find the best classes of rows as soon as it has their outputs."""
        z, rows = np.empty((rows.n_rows, self.spec.n_columns), np.float32), self.cut(rows)
        values = self._scale_values(rows)

        def piece(first: int, last: int) -> None:
            self._write(rows, values, kind.logarithms, z, first, last)
            self._decode_part(z, kind.branch, scores, ids, first, last)

        if self.dense:
            with _one_thread_each(self._blas):
                self.run(piece, self._dense_pieces(rows.n_rows))
        else:
            self.run(piece, self.decoder.parts(rows.n_rows))

    def _decode_part(
        self, p: NDArray[Any], branch: int, scores: NDArray[Any], ids: NDArray[Any], first: int,
        last: int,
    ) -> None:  # fmt: skip
        some = slice(first, last)
        self.decoder.decode(p[some], branch, scores[some], ids[some])

    def products(self, rows: RowBlock | Batch, z: NDArray[np.float32]) -> NDArray[np.float32]:
        """Write ``bias + X W`` to `z`; return the dense rows X, in the basis if there is one."""
        x = self.laid_out(rows)
        product(x, self.weights, out=z)
        z += self.bias
        return x

    @property
    def projection(self) -> NDArray[np.float32] | None:
        """What gives rows more columns, float32 (d + 2, D), if something does."""
        return None if self.basis is None else self.basis.projection

    def laid_out(self, rows: RowBlock | Batch) -> NDArray[np.float32]:
        """Return dense rows whole, in the basis if there is one: float32 (n, d + D)."""
        n, d, indptr = len(rows.classes), self.spec.n_features, rows.indptr
        values: NDArray[Any] = rows.values
        if len(values) == n * d and values.dtype == np.float32:  # rows have all features
            plain = values.reshape(n, d)
        else:
            plain = self._room("x" if self.basis is None else "plain", n, d)

            def piece(first: int, last: int) -> None:
                some = indptr[first : last + 1]
                kernels.expand(some, rows.features, values, plain[first:last])

            self.run(piece, self.pieces(n))
        if self.basis is None:
            return plain
        x = self._room("x", n, d + self.basis.n_more)
        self.basis.apply(plain, x)
        return x

    def _room(self, name: str, n: int, width: int) -> NDArray[np.float32]:
        """Return room for dense rows, a thread's own where nothing is trained: float32 (n, w)."""
        held = self.buffers.get(name, getattr(self._scratch, name, None))
        if held is None and n <= self.dense_rows:
            held = np.empty((self.dense_rows, width), np.float32)
            setattr(self._scratch, name, held)
        if held is not None and n <= len(held) and held.shape[1] == width:
            return held[:n]
        return np.empty((n, width), np.float32)

    def blas(self) -> AbstractContextManager[object]:
        """Return what makes BLAS use these threads, and no others, while it is held."""
        limits: AbstractContextManager[object]
        limits = self._blas.limit(limits=self._blas_threads, user_api="blas")
        return limits

    def pieces(self, n: int) -> list[tuple[int, int]]:
        """Return n rows or features in pieces for the threads."""
        return pieces_of(n, self.threads)

    def close(self) -> None:
        """Stop the threads."""
        self._workers.close()
