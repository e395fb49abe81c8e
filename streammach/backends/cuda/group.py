"""Some of a model's repetitions on the device: their columns, optimiser state, and launches."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.backends.cuda import kernels
from streammach.backends.cuda.instructions import compiled
from streammach.backends.cuda.launch import (
    BACKWARD_REGISTERS,
    CHUNK,
    FORWARD_REGISTERS,
    ColumnTiles,
    code_bits,
    launch_bounds,
    launch_shape,
)
from streammach.backends.cuda.layout import packed_codes
from streammach.backends.cuda.memory import DeviceArray, Memory, buffer_bytes
from streammach.backends.cuda.segments import SegmentBuilder, Segments
from streammach.backends.cuda.tables import Host, Tables
from streammach.backends.cuda.transfers import TransferBuffer
from streammach.spec.model import ModelShape, ModelSpec
from streammach.spec.optimizers import OPTIMIZERS
from streammach.spec.types import Optimizer, Weights

ADAM_REGISTERS = 80  # of the backward kernel: two more chunks are on their way


@lru_cache(maxsize=64)
def _forward(
    shape: ColumnTiles, bits: int, output: int, dense: bool, weights_are: Weights,
    capability: tuple[int, int],
) -> Any:  # fmt: skip
    bounds = launch_bounds(shape.threads, FORWARD_REGISTERS, capability)
    made = kernels.forward_kernel(shape, bits, output, dense=dense, weights_are=weights_are)
    return compiled(made, bounds)


@lru_cache(maxsize=64)
def _backward(
    shape: ColumnTiles, optimizer: Optimizer, weights_are: Weights, capability: tuple[int, int]
) -> tuple[Any, int]:
    """Return the kernel and how many blocks a multiprocessor holds."""
    kind = OPTIMIZERS[optimizer]
    registers = ADAM_REGISTERS if kind.per_weight else BACKWARD_REGISTERS
    bounds = launch_bounds(shape.threads, registers, capability)
    made = kernels.backward_kernel(shape, kind.branch, weights_are=weights_are)
    return compiled(made, bounds), bounds[1]


def _code_words(spec: ModelShape) -> int:
    return -(-spec.n_classes // CHUNK) * CHUNK * code_bits(spec.n_buckets) // 32


@dataclass(frozen=True, kw_only=True)
class Rule:
    """The numbers of one training step.

    Attributes
    ----------
    smoothing : float32
        Label smoothing.
    rate, epsilon : float32
        Step size and epsilon, the optimiser's corrections included.
    key : uint32
        What bfloat16 weights are rounded by; see ``weights.rounding_key``.
    """

    smoothing: np.float32
    rate: np.float32
    epsilon: np.float32
    key: np.uint32


class ModelGroup:
    """Models ``first:last`` on the device, in room for the widest group.

    Parameters
    ----------
    memory : Memory
        The device's.
    spec : ModelSpec
        The whole model.
    codes : unsigned (K, R)
        Buckets of each class.
    models : int
        Most models of a group.
    weights_are : str
        Type of the weights.

    Attributes
    ----------
    tables : Tables
        Weights, the bias as the last row, and optimiser state.
    codes : DeviceArray
        uint32 (models * code_words,): packed buckets of the classes, model by model.
    code_words : int
        Words of a model's codes.
    """

    def __init__(
        self,
        memory: Memory,
        spec: ModelSpec,
        codes: NDArray[Any],
        models: int,
        weights_are: Weights,
    ) -> None:
        self._memory, self._spec, self._all_codes = memory, spec, codes
        self._bits, self._weights_are = code_bits(spec.n_buckets), weights_are
        self._nothing = memory.zeros(CHUNK, np.float32)
        self.tables = Tables(memory, spec, models, weights_are)
        self.code_words = _code_words(spec)
        self.codes = memory.empty(models * self.code_words, np.uint32)
        self.take(0, min(models, spec.n_repetitions))

    @staticmethod
    def footprint(
        spec: ModelShape, models: int, optimizer: Optimizer | None, weights_are: Weights
    ) -> dict[str, int]:
        """Return the bytes of such a group on the device, by name."""
        codes = buffer_bytes(models * _code_words(spec), np.uint32)
        return {**Tables.footprint(spec, models, optimizer, weights_are), "group's codes": codes}

    def take(self, first: int, last: int) -> None:
        """Become the models ``first:last``; their columns are to be zeroed or read."""
        self.first, self.last = first, last
        self.n_repetitions = last - first
        self.shape = launch_shape(self._spec.n_buckets, self.n_repetitions)
        codes = packed_codes(self._all_codes[:, first:last], self._spec.n_buckets)
        self._memory.send(self.codes, codes.reshape(-1))
        self._memory.wait()

    def read(self, host: Host) -> None:
        """Take this group's columns from host arrays; a name that is not there is left out."""
        self.tables.copy(host, self.first, self.last, to_host=False)

    def write(self, host: Host) -> None:
        """Write this group's columns into host arrays."""
        self.tables.copy(host, self.first, self.last, to_host=True)

    def forward(
        self,
        slot: TransferBuffer,
        n_rows: int,
        output: int,
        *,
        z: DeviceArray,
        losses: DeviceArray,
        smoothing: np.float32 = kernels.ZERO,
        dense: bool = False,
    ) -> None:
        """Write residuals or outputs of a slot's rows to `z`.

        Parameters
        ----------
        slot : TransferBuffer
            The rows.
        n_rows : int
            How many.
        output : int
            A kind in :mod:`streammach.backends.cuda.kernels`.
        z : DeviceArray
            float32 (n * stride,); holds the logits when dense.
        losses : DeviceArray
            float32 (n * models,): receives the losses, with residuals.
        smoothing : float32
            Label smoothing.
        dense : bool
            Whether `z` holds the logits.
        """
        self._memory.launch(
            _forward(
                self.shape, self._bits, output, dense, self._weights_are, self._memory.capability
            ),
            (n_rows, self.shape.n_tiles), self.shape.threads,
            slot["indptr"], slot["features"], slot["values"], slot["classes"], slot["importance"],
            self.codes, self.tables["weights"], np.int64(self.code_words),
            np.int64(self._spec.n_features), smoothing, z, losses,
        )  # fmt: skip

    def update(
        self,
        items: Segments,
        rule: Rule,
        most: int,
        *,
        rows: DeviceArray,
        values: DeviceArray,
        source: DeviceArray,
        partial: DeviceArray,
    ) -> None:
        """Sum gradients from `source` and take the optimiser's step, or put sums aside.

        Parameters
        ----------
        items : Segments
            What is summed.
        rule : Rule
            The step's numbers.
        most : int
            No more items than this.
        rows, values : DeviceArray
            Its entries.
        source : DeviceArray
            float32: rows of `stride` columns that the entries multiply.
        partial : DeviceArray
            float32 (slots * stride,): receives sums of parts.
        """
        memory, tables = self._memory, self.tables
        assert tables.optimizer is not None
        kernel, blocks = _backward(
            self.shape, tables.optimizer, self._weights_are, memory.capability
        )
        blocks = max(1, min(most, memory.blocks(blocks)))
        memory.launch(
            kernel, (blocks, self.shape.n_tiles), self.shape.threads,
            *items.arguments, rows, values, source, rule.rate, rule.epsilon, rule.key,
            np.int64(self.first * self._spec.n_buckets // CHUNK), partial,
            tables.get("first", self._nothing), tables.get("second", self._nothing),
            tables["weights"],
        )  # fmt: skip

    def backward(
        self, batch: SegmentBuilder, rule: Rule, most: int, *, z: DeviceArray, partial: DeviceArray
    ) -> None:
        """Update from the residuals of a batch: its items, then features of several items.

        Parameters
        ----------
        batch : SegmentBuilder
            The batch feature by feature.
        rule : Rule
            The step's numbers.
        most : int
            No more items than this.
        z : DeviceArray
            Residuals: float32 (n * stride,).
        partial : DeviceArray
            Room for partial sums: float32 (slots * stride,).
        """
        self.update(
            batch.whole, rule, most, rows=batch.rows, values=batch.values, source=z, partial=partial
        )
        self.update(
            batch.joined, rule, most, rows=batch.slots, values=batch.ones, source=partial,
            partial=partial,
        )  # fmt: skip
