"""The training step and the forward pass of one group, for sparse rows and for dense ones."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from streammach.backends.cuda import kernels
from streammach.backends.cuda.dense_transfers import DenseBuffer
from streammach.backends.cuda.group import ModelGroup, Rule
from streammach.backends.cuda.joint import JointLoss
from streammach.backends.cuda.launch import launch_shape
from streammach.backends.cuda.layout import table_rows
from streammach.backends.cuda.lists import ListLoss
from streammach.backends.cuda.memory import DeviceArray, Memory, buffer_bytes
from streammach.backends.cuda.products import Products, RowTables
from streammach.backends.cuda.resident import Resident
from streammach.backends.cuda.segments import SEGMENT, SegmentBuilder, Segments, most_slots
from streammach.backends.cuda.transfers import N_SLOTS, TransferBuffer, TransferBuffers
from streammach.rows.batch import Batch, RowIdBatch
from streammach.rows.block import RowBlock
from streammach.spec.model import ModelShape, ModelSpec
from streammach.threads import Workers

QUERY_BYTES = 16 << 20  # of outputs that are computed at once
QUERY_NNZ = 1 << 20
OUTPUTS = {
    (False, False): kernels.PROBABILITIES, (False, True): kernels.LOGARITHMS,
    (True, False): kernels.SIGMOIDS, (True, True): kernels.LOG_SIGMOIDS,
}  # fmt: skip
OverOutputs = JointLoss | ListLoss  # losses that begin with the outputs of all models


def buffer_kind(*, dense: bool) -> type[TransferBuffer]:
    """Return what rows go to the device by."""
    return DenseBuffer if dense else TransferBuffer


def slots_bytes(
    n_rows: int, nnz: int, *, dense: bool, resident: bool, n_labels: int
) -> tuple[int, int]:
    """Return the bytes of a training's slots on the host and on the device."""
    kind = buffer_kind(dense=dense)
    host = kind.host_footprint(n_rows, nnz, resident=resident, n_labels=n_labels)
    on_device = kind.footprint(n_rows, nnz, resident=resident, n_labels=n_labels)
    return N_SLOTS * host, N_SLOTS * on_device


def _stride(spec: ModelShape, models: int) -> int:
    return launch_shape(spec.n_buckets, models).stride


class Steps(ABC):
    """Trains a group on batches; nothing waits for the device.

    Parameters
    ----------
    memory : Memory
        The device's.
    spec : ModelSpec
        The model.
    models : int
        Most models of a group.
    n_rows, nnz : int
        Most rows and values of a batch.
    resident : Resident, optional
        Where batches are gathered from.
    n_more : int
        D, how many of the model's features are columns that dense rows get here.
    n_labels : int
        Most labels of a batch, where rows have lists of them.
    workers : Workers, optional
        Threads that help on the host with dense rows.
    tf32 : bool
        Whether dense rows are multiplied in TF32.
    """

    def __init__(
        self, memory: Memory, spec: ModelSpec, models: int, n_rows: int, nnz: int,
        resident: Resident | None, *, n_more: int = 0, n_labels: int = 0,
        workers: Workers | None = None, tf32: bool = False,
    ) -> None:  # fmt: skip
        self._memory = memory
        sizes = self._sizes(spec, models, n_rows, nnz)
        self._held = {name: memory.empty(*size) for name, size in sizes.items()}

    @staticmethod
    def _sizes(spec: ModelShape, models: int, n_rows: int, nnz: int) -> dict[str, tuple[int, Any]]:
        """Return the elements of the buffers by name."""
        z = (n_rows * _stride(spec, models), np.float32)
        return {"z": z, "losses": (n_rows * models, np.float32)}

    @staticmethod
    @abstractmethod
    def footprint(
        spec: ModelShape, models: int, n_rows: int, nnz: int, *, resident: bool, whitened: bool,
        n_more: int = 0, n_labels: int = 0,
    ) -> dict[str, int]:  # fmt: skip
        """Return the bytes on the device, by name."""

    def use(self, tables: RowTables | None) -> None:
        """Bring dense rows to a basis from now on, or leave rows as they are."""
        assert tables is None, "sparse rows have no other basis"

    @abstractmethod
    def step(
        self, group: ModelGroup, batch: Batch | RowIdBatch, rule: Rule, over: OverOutputs | None
    ) -> DeviceArray:
        """Ask for a step on one batch; return where the losses of its rows and models will be."""

    def _residuals(
        self, group: ModelGroup, slot: TransferBuffer, n_rows: int, rule: Rule,
        over: OverOutputs | None, *, dense: bool,
    ) -> None:  # fmt: skip
        """Write residuals to `z` and losses to `losses` of what is held."""
        room: dict[str, Any] = {name: self._held[name] for name in ("z", "losses")}
        room["smoothing"] = rule.smoothing
        output = kernels.RESIDUALS if over is None else over.begins_with
        group.forward(slot, n_rows, output, dense=dense, **room)
        if over is not None:
            over.residuals(group, slot, n_rows, **room)


class SparseSteps(Steps):
    """Steps on sparse rows."""

    def __init__(
        self, memory: Memory, spec: ModelSpec, models: int, n_rows: int, nnz: int,
        resident: Resident | None, *, n_more: int = 0, n_labels: int = 0,
        workers: Workers | None = None, tf32: bool = False,
    ) -> None:  # fmt: skip
        del n_more, workers, tf32  # of dense rows
        super().__init__(memory, spec, models, n_rows, nnz, resident)
        self._slots = TransferBuffers(
            lambda: TransferBuffer(memory, n_rows, nnz, resident, n_labels)
        )
        self._sorter = SegmentBuilder(memory, n_rows, nnz, spec.n_features)

    @staticmethod
    def _sizes(spec: ModelShape, models: int, n_rows: int, nnz: int) -> dict[str, tuple[int, Any]]:
        slots = most_slots(n_rows + nnz, SEGMENT)
        partial = (slots * _stride(spec, models), np.float32)
        return Steps._sizes(spec, models, n_rows, nnz) | {"partial": partial}

    @staticmethod
    def footprint(
        spec: ModelShape, models: int, n_rows: int, nnz: int, *, resident: bool, whitened: bool,
        n_more: int = 0, n_labels: int = 0,
    ) -> dict[str, int]:  # fmt: skip
        """Return the bytes on the device, by name."""
        sizes = SparseSteps._sizes(spec, models, n_rows, nnz)
        return {
            "residuals": sum(buffer_bytes(*size) for size in sizes.values()),
            "batch": slots_bytes(n_rows, nnz, dense=False, resident=resident, n_labels=n_labels)[1],
            "batch by features": SegmentBuilder.footprint(n_rows, nnz),
            "sorting": SegmentBuilder.working_bytes(n_rows, nnz),
        }

    def step(
        self, group: ModelGroup, batch: Batch | RowIdBatch, rule: Rule, over: OverOutputs | None
    ) -> DeviceArray:
        """Ask for a step on one batch; return where the losses of its rows and models will be."""
        held, n, nnz = self._held, batch.n_rows, int(batch.indptr[-1])
        slot = self._slots.next()
        entries = slot.load(batch)
        self._residuals(group, slot, n, rule, over, dense=False)
        self._sorter.sort(slot, n, nnz, entries)
        slot.release()
        group.backward(self._sorter, rule, n + nnz, z=held["z"], partial=held["partial"])
        return held["losses"]


class DenseSteps(Steps):
    """Steps on dense rows: a matrix product, the softmax, a matrix product, the optimiser."""

    def __init__(
        self, memory: Memory, spec: ModelSpec, models: int, n_rows: int, nnz: int,
        resident: Resident | None, *, n_more: int = 0, n_labels: int = 0,
        workers: Workers | None = None, tf32: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(memory, spec, models, n_rows, nnz, resident)
        self._slots = TransferBuffers(
            lambda: DenseBuffer(
                memory, n_rows, nnz, resident, n_labels, n_features=spec.n_features - n_more,
                workers=workers,
            )
        )  # fmt: skip
        self._rows = spec.n_features + 1
        self._products = Products(memory, spec, n_rows, n_more, tf32=tf32)
        numbers = np.arange(self._rows + 1, dtype=np.int32)
        self._numbers = memory.sent(numbers[:-1])
        self._items = Segments(
            begin=self._numbers, end=memory.sent(numbers[1:]), feature=self._numbers,
            slot=memory.sent(np.full(self._rows, -1, np.int32)),
            count=memory.sent(np.array([self._rows], np.int32)),
        )  # fmt: skip
        self._ones = memory.sent(np.ones(self._rows, np.float32))

    @staticmethod
    def _sizes(spec: ModelShape, models: int, n_rows: int, nnz: int) -> dict[str, tuple[int, Any]]:
        gradient = (table_rows(spec.n_features) * _stride(spec, models), np.float32)
        return Steps._sizes(spec, models, n_rows, nnz) | {"gradient": gradient}

    @staticmethod
    def footprint(
        spec: ModelShape, models: int, n_rows: int, nnz: int, *, resident: bool, whitened: bool,
        n_more: int = 0, n_labels: int = 0,
    ) -> dict[str, int]:  # fmt: skip
        """Return the bytes on the device, by name."""
        sizes = DenseSteps._sizes(spec, models, n_rows, nnz)
        row_numbers = 4 * buffer_bytes(spec.n_features + 1, np.int32) + buffer_bytes(1, np.int32)
        return {
            "gradient": buffer_bytes(*sizes.pop("gradient")) + row_numbers,
            "residuals": sum(buffer_bytes(*size) for size in sizes.values()),
            "batch": slots_bytes(n_rows, nnz, dense=True, resident=resident, n_labels=n_labels)[1]
            + Products.footprint(spec, n_rows, whitened=whitened, n_more=n_more),
        }

    def use(self, tables: RowTables | None) -> None:
        """Bring rows to a basis from now on, or leave them plain."""
        self._products.use(tables)

    def step(
        self, group: ModelGroup, batch: Batch | RowIdBatch, rule: Rule, over: OverOutputs | None
    ) -> DeviceArray:
        """Ask for a step on one batch; return where the losses of its rows and models will be."""
        held, n = self._held, batch.n_rows
        slot = self._slots.next()
        slot.load(batch)
        x = self._products.expanded(slot, n)
        z = self._products.logits(group, x, held["z"])
        self._residuals(group, slot, n, rule, over, dense=True)
        slot.release()
        self._products.gradient(x, z, held["gradient"])
        group.update(
            self._items, rule, self._rows, rows=self._numbers, values=self._ones,
            source=held["gradient"], partial=held["gradient"],
        )  # fmt: skip
        return held["losses"]


def query_rows(spec: ModelShape, models: int, *, dense: bool) -> int:
    """Return how many rows are predicted at once."""
    width = max(_stride(spec, models), table_rows(spec.n_features) if dense else 0)
    return max(1, min(4096, QUERY_BYTES // (4 * width)))


class Queries:
    """The forward pass of rows without labels.

    Parameters
    ----------
    memory : Memory
        The device's.
    spec : ModelSpec
        The model.
    models : int
        Most models of a group.
    dense : bool
        Whether rows go through matrix products.
    n_more : int
        D, how many of the model's features are columns that rows get here.
    """

    def __init__(
        self, memory: Memory, spec: ModelSpec, models: int, *, dense: bool, n_more: int = 0
    ) -> None:
        self._memory, self._n_features = memory, spec.n_features - n_more
        self._dense = dense
        self.most_rows = query_rows(spec, models, dense=dense)
        self._slot = self._made(QUERY_NNZ)
        self.z = memory.empty(self.most_rows * _stride(spec, models), np.float32)
        self._products = Products(memory, spec, self.most_rows, n_more) if dense else None

    def _made(self, nnz: int) -> TransferBuffer:
        """Return room for so many values."""
        if not self._dense:
            return TransferBuffer(self._memory, self.most_rows, nnz)
        return DenseBuffer(self._memory, self.most_rows, nnz, n_features=self._n_features)

    def use(self, tables: RowTables | None) -> None:
        """Bring dense rows to a basis from now on, or leave them plain."""
        if self._products is not None:
            self._products.use(tables)

    @staticmethod
    def footprint(
        spec: ModelShape, models: int, *, dense: bool, whitened: bool, n_more: int = 0
    ) -> int:
        """Return the bytes on the device."""
        n_rows = query_rows(spec, models, dense=dense)
        z = buffer_bytes(n_rows * _stride(spec, models), np.float32)
        x = Products.footprint(spec, n_rows, whitened=whitened, n_more=n_more) if dense else 0
        return buffer_kind(dense=dense).footprint(n_rows, QUERY_NNZ) + z + x

    def parts(self, rows: RowBlock) -> list[tuple[int, int]]:
        """Return which rows go through the device together: at least one at a time."""
        parts, start = [], 0
        while start < rows.n_rows:
            room = rows.indptr[start] + self._slot.nnz
            stop = int(np.searchsorted(rows.indptr, room, side="right")) - 1
            stop = max(start + 1, min(stop, start + self.most_rows, rows.n_rows))
            parts.append((start, stop))
            start = stop
        return parts

    def run(
        self, group: ModelGroup, rows: RowBlock, *, logarithms: bool, logistic: bool
    ) -> DeviceArray:
        """Return the probabilities of a part of rows, or their logarithms.

        Parameters
        ----------
        group : ModelGroup
            The models.
        rows : RowBlock
            No more than :meth:`parts` says.
        logarithms : bool
            Whether logarithms are wanted.
        logistic : bool
            Whether each bucket has a sigmoid of its own.

        Returns
        -------
        DeviceArray
            float32 (n * stride,), until the next call.
        """
        if rows.nnz > self._slot.nnz:  # one row longer than any seen so far
            self._slot = self._made(rows.nnz)
        values = rows.values.astype(np.float32, copy=False)
        self._slot.fill(rows.indptr, rows.features, values)
        if self._products is not None:
            assert isinstance(self._slot, DenseBuffer)
            x = self._products.expanded(self._slot, rows.n_rows)
            self._products.logits(group, x, self.z)
        output = OUTPUTS[logistic, logarithms]
        group.forward(
            self._slot, rows.n_rows, output, z=self.z, losses=self.z,
            dense=self._products is not None,
        )  # fmt: skip
        self._slot.release()
        return self.z
