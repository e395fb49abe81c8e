"""Outputs and best classes of rows without labels, by all groups of a model in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.backends.cuda import kernels
from streammach.backends.cuda.decode import CudaDecoder
from streammach.backends.cuda.dense_rows import DenseBuffer, Products
from streammach.backends.cuda.device_memory import DeviceArray, DeviceMemory
from streammach.backends.cuda.group import ModelGroup
from streammach.backends.cuda.shapes import CHUNK, rounded_up, stride_of, table_rows, widest
from streammach.backends.cuda.transfers import BufferRoom, TransferBuffer
from streammach.options.estimators import EstimatorKind
from streammach.options.model_spec import ModelShape
from streammach.rows.block import RowBlock

QUERY_BYTES = 16 << 20  # of outputs that are computed at once
QUERY_NNZ = 1 << 20
WAVES_BYTES = 256 << 20  # of all groups' outputs on the host, where they are computed in turn
OUTPUTS = {  # by whether each bucket has a sigmoid, and whether logarithms are wanted
    (False, False): kernels.PROBABILITIES, (False, True): kernels.LOGARITHMS,
    (True, False): kernels.SIGMOIDS, (True, True): kernels.LOG_SIGMOIDS,
}  # fmt: skip


def _rows_of(width: int) -> int:
    return max(1, min(4096, QUERY_BYTES // (4 * width)))


def query_rows(spec: ModelShape, waves: int, *, dense: bool) -> int:
    """Return how many rows are predicted at once."""
    width = stride_of(spec, widest(spec, waves))
    return _rows_of(max(width, table_rows(spec.n_features) if dense else 0))


def scoring_bytes(spec: ModelShape, waves: int, *, dense: bool) -> int:
    """Return the bytes of outputs on the host."""
    outputs = 8 * query_rows(spec, waves, dense=dense) * spec.n_columns
    return max(outputs, WAVES_BYTES if waves > 1 else 0)


class CudaPrediction:
    """What predicting needs on the device.

    Groups, so many `waves` of them, are yielded one after another by a function, each on the device
    until the next is asked for; dense rows have `products`, and `n_more`, D, columns made there.
    """

    def __init__(
        self, memory: DeviceMemory, spec: ModelShape, decoder: CudaDecoder, waves: int,
        groups: Callable[[], Iterator[ModelGroup]], products: Products | None, n_more: int,
    ) -> None:  # fmt: skip
        self._memory, self._spec, self._groups, self._products = memory, spec, groups, products
        self._decoder, self._n_features = decoder, spec.n_features - n_more
        self.logistic = False  # whether each bucket has a sigmoid of its own
        n_rows = query_rows(spec, waves, dense=products is not None)
        self._room = BufferRoom(n_rows, QUERY_NNZ)
        self._slot = self._new_slot()
        self._z = memory.empty(n_rows * stride_of(spec, widest(spec, waves)), np.float32, "queries")
        # Through which all groups' outputs are sent back, in rows of a stride.
        self._stride, self._joint = rounded_up(spec.n_columns, CHUNK), None
        if waves > 1:
            size = self._stride * _rows_of(self._stride)
            self._joint = memory.empty(size, np.float32, "outputs of all waves")

    def _new_slot(self) -> TransferBuffer:
        if self._products is None:
            return TransferBuffer(self._memory, self._room, line="queries")
        return DenseBuffer(self._memory, self._room, line="queries", n_features=self._n_features)

    def outputs(self, rows: RowBlock, *, logarithms: bool) -> NDArray[np.float32]:
        """Return bucket probabilities, or their logarithms: float32 (n, R*B)."""
        out = np.empty((rows.n_rows, self._spec.n_columns), np.float32)
        for group in self._groups():
            columns = slice(group.first * self._spec.n_buckets, group.last * self._spec.n_buckets)
            for start, stop in self._parts(rows, group, logarithms=logarithms):
                z = np.empty((stop - start, group.shape.stride), np.float32)
                self._memory.fetch(z.reshape(-1), self._z)
                out[start:stop, columns] = z[:, : columns.stop - columns.start]
        return out

    def rank(
        self, rows: RowBlock, kind: EstimatorKind, scores: NDArray[Any], ids: NDArray[Any]
    ) -> None:
        """Write the best classes int64 (n, k) of rows, and what they were ranked by float32."""
        if self._joint is not None:
            self._rank_all_groups(self._joint, rows, kind, scores, ids)
            return
        group = next(self._groups())
        for start, stop in self._parts(rows, group, logarithms=kind.logarithms):
            self._decoder.best(self._z, kind.branch, scores[start:stop], ids[start:stop])

    def _parts(
        self, rows: RowBlock, group: ModelGroup, *, logarithms: bool
    ) -> Iterator[tuple[int, int]]:
        """Yield which rows have outputs in `z` now: as many as there is room for, at least one."""
        start, most = 0, self._room
        while start < rows.n_rows:
            room = rows.indptr[start] + most.nnz
            stop = int(np.searchsorted(rows.indptr, room, side="right")) - 1
            stop = max(start + 1, min(stop, start + most.n_rows, rows.n_rows))
            self._run(group, rows.part(start, stop), OUTPUTS[self.logistic, logarithms])
            yield start, stop
            start = stop

    def _run(self, group: ModelGroup, rows: RowBlock, output: int) -> None:
        if rows.nnz > self._room.nnz:  # one row longer than any seen so far
            self._room = self._room._replace(nnz=rows.nnz)
            self._slot = self._new_slot()
        slot, z = self._slot, self._z
        slot.fill(rows.indptr, rows.features, rows.values.astype(np.float32, copy=False))
        if isinstance(slot, DenseBuffer):
            assert self._products is not None
            self._products.logits(group, self._products.expand_rows(slot, rows.n_rows), z)
        dense = self._products is not None
        group.forward(slot, rows.n_rows, output, z=z, losses=z, dense=dense)
        slot.release()

    def _rank_all_groups(
        self, joint: DeviceArray, rows: RowBlock, kind: EstimatorKind, scores: NDArray[Any],
        ids: NDArray[Any],
    ) -> None:  # fmt: skip
        """Join the groups' outputs on the host and send them back: they fit the device in parts."""
        spec, memory, stride = self._spec, self._memory, self._stride
        step = _rows_of(stride)
        most = max(1, WAVES_BYTES // (4 * spec.n_columns))
        for a in range(0, rows.n_rows, most):
            b = min(a + most, rows.n_rows)
            p = self.outputs(rows.part(a, b), logarithms=kind.logarithms)
            for start in range(a, b, step):
                stop = min(start + step, b)
                padded = np.zeros((stop - start, stride), np.float32)
                padded[:, : spec.n_columns] = p[start - a : stop - a]
                memory.send(joint, padded.reshape(-1))
                memory.wait()
                self._decoder.best(joint, kind.branch, scores[start:stop], ids[start:stop])
