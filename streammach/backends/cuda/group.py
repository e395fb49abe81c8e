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
from streammach.spec.types import Optimizer, Weights

OPTIMIZERS: dict[Optimizer, int] = {
    "adagrad": kernels.ADAGRAD,
    "adam": kernels.ADAM,
    "sgd": kernels.SGD,
}
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
    shape: ColumnTiles, optimizer: int, weights_are: Weights, capability: tuple[int, int]
) -> tuple[Any, int]:
    """Return the kernel and how many blocks a multiprocessor holds."""
    registers = ADAM_REGISTERS if optimizer == kernels.ADAM else BACKWARD_REGISTERS
    bounds = launch_bounds(shape.threads, registers, capability)
    made = kernels.backward_kernel(shape, optimizer, weights_are=weights_are)
    return compiled(made, bounds), bounds[1]


def _code_words(spec: ModelShape) -> int:
    return -(-spec.n_classes // CHUNK) * CHUNK * code_bits(spec.n_buckets) // 32


@dataclass(frozen=True)
class Rule:
    """The numbers of one optimiser step.

    Attributes
    ----------
    rate, epsilon : float32
        Step size and epsilon, Adam's corrections included.
    key : uint32
        What bfloat16 weights are rounded by; see ``weights.rounding_key``.
    """

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
        self._tables = Tables(memory, spec, models, weights_are)
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

    def keep_state(self, optimizer: Optimizer) -> None:
        """Make room for an optimiser's state."""
        self._tables.keep_state(optimizer)

    def zero(self) -> None:
        """Set weights and state to zero."""
        self._tables.zero()

    @property
    def weights(self) -> DeviceArray:
        """The table, the bias as its last row; see :class:`Tables`."""
        return self._tables["weights"]

    def read(self, host: Host) -> None:
        """Take this group's columns from host arrays; a name that is not there is left out."""
        self._tables.copy(host, self.first, self.last, to_host=False)

    def write(self, host: Host) -> None:
        """Write this group's columns into host arrays."""
        self._tables.copy(host, self.first, self.last, to_host=True)

    def forward(
        self, slot: TransferBuffer, n_rows: int, output: int, smoothing: float, z: DeviceArray,
        losses: DeviceArray, *, dense: bool = False,
    ) -> None:  # fmt: skip
        """Write residuals, probabilities or logarithms of a slot's rows to `z`.

        Parameters
        ----------
        slot : TransferBuffer
            The rows.
        n_rows : int
            How many.
        output : int
            RESIDUALS, PROBABILITIES or LOGARITHMS.
        smoothing : float
            Label smoothing.
        z : DeviceArray
            float32 (n * stride,); holds the logits when dense.
        losses : DeviceArray
            float32 (n * models,): receives the losses, with residuals.
        dense : bool
            Whether `z` holds the logits.
        """
        self._memory.launch(
            _forward(
                self.shape, self._bits, output, dense, self._weights_are, self._memory.capability
            ),
            (n_rows, self.shape.n_tiles), self.shape.threads,
            slot["indptr"], slot["features"], slot["values"], slot["classes"], slot["importance"],
            self.codes, self.weights, np.int64(self.code_words),
            np.int64(self._spec.n_features), np.float32(smoothing), z, losses,
        )  # fmt: skip

    def update(
        self, items: Segments, rows: DeviceArray, values: DeviceArray, source: DeviceArray,
        partial: DeviceArray, rule: Rule, most: int,
    ) -> None:  # fmt: skip
        """Sum gradients from `source` and take the optimiser's step, or put sums aside.

        Parameters
        ----------
        items : Segments
            What is summed.
        rows, values : DeviceArray
            Its entries.
        source : DeviceArray
            float32: rows of `stride` columns that the entries multiply.
        partial : DeviceArray
            float32 (slots * stride,): receives sums of parts.
        rule : Rule
            The step's numbers.
        most : int
            No more items than this.
        """
        memory, tables = self._memory, self._tables
        assert tables.optimizer is not None
        number = OPTIMIZERS[tables.optimizer]
        kernel, blocks = _backward(self.shape, number, self._weights_are, memory.capability)
        blocks = max(1, min(most, memory.blocks(blocks)))
        memory.launch(
            kernel, (blocks, self.shape.n_tiles), self.shape.threads,
            *items.arguments, rows, values, source, rule.rate, rule.epsilon, rule.key,
            np.int64(self.first * self._spec.n_buckets // CHUNK), partial,
            tables.get("first", self._nothing), tables.get("second", self._nothing), self.weights,
        )  # fmt: skip

    def backward(
        self, batch: SegmentBuilder, z: DeviceArray, partial: DeviceArray, rule: Rule, most: int
    ) -> None:
        """Update from the residuals of a batch: its items, then features of several items.

        Parameters
        ----------
        batch : SegmentBuilder
            The batch feature by feature.
        z : DeviceArray
            Residuals: float32 (n * stride,).
        partial : DeviceArray
            Room for partial sums: float32 (slots * stride,).
        rule : Rule
            The step's numbers.
        most : int
            No more items than this.
        """
        self.update(batch.whole, batch.rows, batch.values, z, partial, rule, most)
        self.update(batch.joined, batch.slots, batch.ones, partial, partial, rule, most)
