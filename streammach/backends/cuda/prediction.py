"""Outputs and best classes of rows without labels, by all groups of a model in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.backends.cuda import decode, kernels
from streammach.backends.cuda.dense import DenseBuffer, Products, slot_kind
from streammach.backends.cuda.group import ModelGroup
from streammach.backends.cuda.instructions import compiled
from streammach.backends.cuda.memory import (
    UNIT,
    CudaMemory,
    DeviceArray,
    DeviceMemory,
    Sizes,
    buffer_bytes,
)
from streammach.backends.cuda.shapes import (
    CHUNK,
    ClassSets,
    decode_shape,
    packed_codes,
    rounded_up,
    stride_of,
    table_rows,
    widest,
)
from streammach.backends.cuda.transfers import BufferRoom, TransferBuffer
from streammach.rows.block import RowBlock
from streammach.spec.estimators import MEDIAN, SUM, EstimatorKind
from streammach.spec.model import ModelShape, ModelSpec

QUERY_BYTES = 16 << 20  # of outputs that are computed at once
QUERY_NNZ = 1 << 20
WAVES_BYTES = 256 << 20  # of all groups' outputs on the host, where they are computed in turn
WORK_BYTES = 64 << 20  # of keys and candidates at once
MOST_ROWS = 1024  # scored at once
OUTPUTS = {  # by whether each bucket has a sigmoid, and whether logarithms are wanted
    (False, False): kernels.PROBABILITIES, (False, True): kernels.LOGARITHMS,
    (True, False): kernels.SIGMOIDS, (True, True): kernels.LOG_SIGMOIDS,
}  # fmt: skip


@lru_cache(maxsize=32)
def _kernels(shape: ClassSets, kind: int) -> tuple[Any, Any]:
    """Return scan and selection."""
    made = decode.scan_kernel(shape, kind), decode.select_kernel(shape, kind)
    return compiled(made[0], shape.bounds), compiled(made[1], shape.bounds)


def _class_sets(spec: ModelShape, kind: int, sets: tuple[int, int]) -> ClassSets:
    return decode_shape(
        spec.n_buckets, spec.n_repetitions, spec.n_classes, one_row=kind == MEDIAN, words=sets[0],
        threads=sets[1],
    )  # fmt: skip


def _row_sizes(shape: ClassSets, k: int) -> Sizes:
    """Return the elements of the buffers of one row."""
    return {
        "keys": (shape.n_sets, np.int64),
        "candidates": (k * 4 * shape.words, np.int64),
        "scores": (k, np.float32),
        "ids": (k, np.int64),
    }


def _row_bytes(shape: ClassSets, k: int) -> int:
    return sum(int(np.dtype(dtype).itemsize) * n for n, dtype in _row_sizes(shape, k).values())


class CudaDecoder:
    """Finds the best classes of rows whose probabilities lie on the device.

    The codes unsigned (K, R) are the buckets of each class.
    """

    def __init__(self, memory: DeviceMemory, spec: ModelSpec, codes: NDArray[Any]) -> None:
        self._memory, self._spec = memory, spec
        self._codes = memory.sent(packed_codes(codes, spec.n_buckets))
        self._held: dict[str, DeviceArray] = {}
        self._held_for = (0, 0)

    @staticmethod
    def footprint(spec: ModelShape) -> int:
        """Return the most bytes on the device, for a k whose single row fits."""
        shape = _class_sets(spec, SUM, CudaMemory.class_sets)
        codes = buffer_bytes(spec.n_repetitions * shape.code_words, np.uint32)
        work = min(WORK_BYTES, MOST_ROWS * _row_bytes(shape, spec.n_classes))
        return codes + work + 4 * buffer_bytes(1, np.int64)

    def best(
        self, p: DeviceArray, kind: int, scores: NDArray[np.float32], ids: NDArray[np.int64]
    ) -> None:
        """Write the best classes int64 (n, k) and what they were ranked by float32 (n, k)."""
        n, k = ids.shape
        for start, stop, found_scores, found_ids in self.found(p, kind, n, k):
            self._memory.fetch(scores[start:stop].reshape(-1), found_scores)
            self._memory.fetch(ids[start:stop].reshape(-1), found_ids)

    def found(
        self, p: DeviceArray, kind: int, n: int, k: int
    ) -> Iterator[tuple[int, int, DeviceArray, DeviceArray]]:
        """Yield the best classes of some rows after others; they stay until the next are asked for.

        Parameters
        ----------
        p : DeviceArray
            float32 (n * stride,): probabilities or their logarithms.
        kind : int
            SUM, MINIMUM or MEDIAN.
        n, k : int
            Rows; classes of each.

        Yields
        ------
        start, stop : int
            Which rows.
        scores, ids : DeviceArray
            float32 and int64 (rows * k,): what they were ranked by, and the classes, best first.
        """
        memory = self._memory
        shape = _class_sets(self._spec, kind, memory.class_sets)
        scan, select = _kernels(shape, kind)
        most = self._make_room(shape, k)
        held, sizes = self._held, (shape.n_classes, shape.code_words, shape.n_sets)
        for start in range(0, n, most):
            rows = min(most, n - start)
            part = memory.view(p, start * shape.stride, rows * shape.stride)
            memory.launch(
                scan, (-(-rows // shape.rows), shape.n_sets // shape.threads), shape.threads, part,
                self._codes, rows, *sizes, held["keys"],
            )  # fmt: skip
            memory.launch(
                select, rows, shape.threads, part, self._codes, held["keys"], *sizes, k,
                held["candidates"], held["scores"], held["ids"],
            )  # fmt: skip
            yield start, start + rows, held["scores"], held["ids"]

    def _make_room(self, shape: ClassSets, k: int) -> int:
        """Make room for rows of k classes; return for how many at once."""
        rows = max(1, min(MOST_ROWS, WORK_BYTES // _row_bytes(shape, k)))
        if self._held_for != (shape.n_sets, k):
            self._held = {}  # what is there goes before something else comes
            sizes = _row_sizes(shape, k)
            self._held = self._memory.rooms({name: (rows * n, t) for name, (n, t) in sizes.items()})
            self._held_for = (shape.n_sets, k)
        return rows


def _joint_stride(spec: ModelShape) -> int:
    return rounded_up(spec.n_columns, CHUNK)


def _joint_size(spec: ModelShape) -> int:
    """Return the elements of the buffer that all groups' outputs are sent back through."""
    stride = _joint_stride(spec)
    return stride * max(1, min(4096, QUERY_BYTES // (4 * stride)))


def query_room(spec: ModelShape, models: int, *, dense: bool) -> BufferRoom:
    """Return how many rows and values are predicted at once."""
    width = max(stride_of(spec, models), table_rows(spec.n_features) if dense else 0)
    return BufferRoom(max(1, min(4096, QUERY_BYTES // (4 * width))), QUERY_NNZ)


class CudaPrediction:
    """What predicting needs on the device.

    Groups, so many `waves` of them, are yielded one after another by a function, each on the device
    until the next is asked for; of dense rows `n_more`, D, columns are made here.

    Attributes
    ----------
    decoder : CudaDecoder
        Finds the best classes.
    products : Products or None
        Those of dense rows.
    logistic : bool
        Whether each bucket has a sigmoid of its own.
    """

    def __init__(
        self, memory: DeviceMemory, spec: ModelSpec, codes: NDArray[Any], waves: int,
        groups: Callable[[], Iterator[ModelGroup]], *, dense: bool, n_more: int,
    ) -> None:  # fmt: skip
        self._memory, self._spec, self._groups = memory, spec, groups
        self._dense, self._n_features, models = dense, spec.n_features - n_more, widest(spec, waves)
        self.logistic = False
        self._room = query_room(spec, models, dense=dense)
        n_rows = self._room.n_rows
        self._slot = self._made(self._room)
        self._z = memory.empty(n_rows * stride_of(spec, models), np.float32)
        self.products = Products(memory, spec, n_rows, n_more) if dense else None
        self.decoder = CudaDecoder(memory, spec, codes)
        self._joint = memory.empty(_joint_size(spec), np.float32) if waves > 1 else None

    def _made(self, room: BufferRoom) -> TransferBuffer:
        if self._dense:
            return DenseBuffer(self._memory, room, n_features=self._n_features)
        return TransferBuffer(self._memory, room)

    @staticmethod
    def footprint(
        spec: ModelShape, waves: int, *, dense: bool, whitened: bool, n_more: int
    ) -> dict[str, int]:
        """Return the bytes on the device, by name."""
        models = widest(spec, waves)
        room = query_room(spec, models, dense=dense)
        z = buffer_bytes(room.n_rows * stride_of(spec, models), np.float32)
        lines = {"queries": slot_kind(dense=dense).footprint(room)[1] + z + UNIT}
        if dense:
            lines["queries"] += Products.footprint(
                spec, room.n_rows, whitened=whitened, n_more=n_more
            )
        lines["decode"] = CudaDecoder.footprint(spec)
        if waves > 1:
            lines["outputs of all waves"] = buffer_bytes(_joint_size(spec), np.float32)
        return lines

    @staticmethod
    def host_footprint(spec: ModelShape, waves: int, *, dense: bool) -> dict[str, int]:
        """Return the bytes on the host, by name."""
        room = query_room(spec, widest(spec, waves), dense=dense)
        outputs = 8 * room.n_rows * spec.n_columns
        return {
            "scoring": max(outputs, WAVES_BYTES if waves > 1 else 0),
            "transfers": slot_kind(dense=dense).footprint(room)[0],
        }

    def outputs(self, rows: RowBlock, *, logarithms: bool) -> NDArray[np.float32]:
        """Return bucket probabilities, or their logarithms: float32 (n, R*B)."""
        out = np.empty((rows.n_rows, self._spec.n_columns), np.float32)
        for group in self._groups():
            columns = slice(group.first * self._spec.n_buckets, group.last * self._spec.n_buckets)
            for start, stop in self._parts(rows, group, logarithms=logarithms):
                found = np.empty((stop - start, group.shape.stride), np.float32)
                self._memory.fetch(found.reshape(-1), self._z)
                out[start:stop, columns] = found[:, : columns.stop - columns.start]
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
            self.decoder.best(self._z, kind.branch, scores[start:stop], ids[start:stop])

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
            self._slot = self._made(self._room)
        slot, z = self._slot, self._z
        slot.fill(rows.indptr, rows.features, rows.values.astype(np.float32, copy=False))
        if self.products is not None:
            assert isinstance(slot, DenseBuffer)
            self.products.logits(group, self.products.expanded(slot, rows.n_rows), z)
        group.forward(slot, rows.n_rows, output, z=z, losses=z, dense=self._dense)
        slot.release()

    def _rank_all_groups(
        self, joint: DeviceArray, rows: RowBlock, kind: EstimatorKind, scores: NDArray[Any],
        ids: NDArray[Any],
    ) -> None:  # fmt: skip
        """Join the groups' outputs on the host and send them back: they fit the device in parts."""
        spec, memory = self._spec, self._memory
        stride = _joint_stride(spec)
        step = _joint_size(spec) // stride
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
                self.decoder.best(joint, kind.branch, scores[start:stop], ids[start:stop])
