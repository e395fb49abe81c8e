"""Some of a model's repetitions on the device: their columns, optimiser state, and launches."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import lru_cache
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.backends.cuda import kernels
from streammach.backends.cuda.instructions import compiled
from streammach.backends.cuda.items import Items, Sorter
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
from streammach.backends.cuda.slot import Slot
from streammach.spec import ModelSpec, Optimizer

OPTIMIZERS: dict[Optimizer, int] = {
    "adagrad": kernels.ADAGRAD,
    "adam": kernels.ADAM,
    "sgd": kernels.SGD,
}
ADAM_REGISTERS = 80  # of the backward kernel: two more chunks are on their way
PIECE_BYTES = 16 << 20  # of a table that are copied at once
Host = dict[str, NDArray[Any]]


def models_step(n_buckets: int) -> int:
    """Return how many models it takes until one begins where a chunk of columns begins."""
    return CHUNK // gcd(n_buckets, CHUNK)


def group_edges(spec: ModelSpec, n_groups: int) -> list[tuple[int, int]]:
    """Return the models of each group, ``first:last``: as even as can be, none empty.

    Groups begin where a chunk of columns begins, so that a model's bits do not depend on them.

    Parameters
    ----------
    spec : ModelSpec
        The model.
    n_groups : int
        How many are wanted; fewer where there are not enough models.
    """
    step = models_step(spec.n_buckets)
    units = -(-spec.n_repetitions // step)
    n_groups = min(n_groups, units)
    edges = [min(units * g // n_groups * step, spec.n_repetitions) for g in range(n_groups + 1)]
    return list(itertools.pairwise(edges))


def widest(spec: ModelSpec, n_groups: int) -> int:
    """Return the most models of a group."""
    return max(last - first for first, last in group_edges(spec, n_groups))


@lru_cache(maxsize=64)
def _forward(
    shape: ColumnTiles, bits: int, output: int, dense: bool, capability: tuple[int, int]
) -> Any:
    bounds = launch_bounds(shape.threads, FORWARD_REGISTERS, capability)
    return compiled(kernels.forward_kernel(shape, bits, output, dense=dense), bounds)


@lru_cache(maxsize=64)
def _backward(shape: ColumnTiles, optimizer: int, capability: tuple[int, int]) -> tuple[Any, int]:
    """Return the kernel and how many blocks a multiprocessor holds."""
    registers = ADAM_REGISTERS if optimizer == kernels.ADAM else BACKWARD_REGISTERS
    bounds = launch_bounds(shape.threads, registers, capability)
    return compiled(kernels.backward_kernel(shape, optimizer), bounds), bounds[1]


def table_sizes(
    spec: ModelSpec, models: int, optimizer: Optimizer | None
) -> dict[str, tuple[int, Any]]:
    """Return the elements of a group's table and optimiser state, by the names of host arrays.

    Parameters
    ----------
    spec : ModelSpec
        The model.
    models : int
        How many of its models.
    optimizer : str or None
        The optimiser, if any.
    """
    rows, stride = spec.n_features + 1, launch_shape(spec.n_buckets, models).stride
    sizes: dict[str, tuple[int, Any]] = {"weights": (rows * stride, np.float32)}
    if optimizer == "adagrad":
        sizes["first"] = (rows * models, np.float32)
    elif optimizer == "adam":
        sizes["first"] = sizes["second"] = (rows * stride, np.float32)
    return sizes


def footprint(spec: ModelSpec, models: int, optimizer: Optimizer | None) -> dict[str, int]:
    """Return the bytes of a group on the device, by name.

    Parameters
    ----------
    spec : ModelSpec
        The model.
    models : int
        How many of its models.
    optimizer : str or None
        The optimiser, if any.
    """
    tables = {n: buffer_bytes(*size) for n, size in table_sizes(spec, models, optimizer).items()}
    words = -(-spec.n_classes // CHUNK) * CHUNK * code_bits(spec.n_buckets) // 32
    return {
        "weights": tables.pop("weights"),
        "optimizer": sum(tables.values()),
        "group's codes": buffer_bytes(models * words, np.uint32),
    }


@dataclass(frozen=True)
class Rule:
    """The numbers of one optimiser step: step size and epsilon, Adam's corrections included."""

    rate: np.float32
    epsilon: np.float32


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
    """

    def __init__(self, memory: Memory, spec: ModelSpec, codes: NDArray[Any], models: int) -> None:
        self._memory, self._spec, self._codes = memory, spec, codes
        self._bits = code_bits(spec.n_buckets)
        self._most = models
        self._nothing = memory.zeros(CHUNK, np.float32)
        self._tables = {"weights": memory.empty(*table_sizes(spec, models, None)["weights"])}
        words = -(-spec.n_classes // CHUNK) * CHUNK * self._bits // 32
        self.code_words, self._packed = words, memory.empty(models * words, np.uint32)
        rows = spec.n_features + 1
        widest = launch_shape(spec.n_buckets, models).stride
        self._piece_rows = max(1, min(rows, PIECE_BYTES // (4 * widest)))
        self._piece = memory.page_locked(self._piece_rows * widest, np.float32)
        self.optimizer: Optimizer | None = None
        self.take(0, min(models, spec.n_repetitions))

    @staticmethod
    def host_bytes(spec: ModelSpec, models: int) -> int:
        """Return the bytes of host memory that copies go through."""
        stride = launch_shape(spec.n_buckets, models).stride
        return 4 * stride * max(1, min(spec.n_features + 1, PIECE_BYTES // (4 * stride)))

    def take(self, first: int, last: int) -> None:
        """Become the models ``first:last``; their columns are to be zeroed or read."""
        self.first, self.last = first, last
        self.n_models = last - first
        self.shape = launch_shape(self._spec.n_buckets, self.n_models)
        codes = packed_codes(self._codes[:, first:last], self._spec.n_buckets)
        self._memory.send(self._packed, codes.reshape(-1))
        self._memory.wait()

    def keep_state(self, optimizer: Optimizer) -> None:
        """Make room for an optimiser's state."""
        if optimizer == self.optimizer:
            return
        wanted = table_sizes(self._spec, self._most, optimizer)
        self._tables = {"weights": self._tables["weights"]}
        for name, size in wanted.items():
            if name != "weights":
                self._tables[name] = self._memory.empty(*size)
        self.optimizer = optimizer

    def zero(self) -> None:
        """Set weights and state to zero."""
        for table in self._tables.values():
            table.values.fill(0)

    @property
    def weights(self) -> DeviceArray:
        """The table: float32 ((d + 1) * stride,), the bias as its last row."""
        return self._tables["weights"]

    def read(self, host: Host) -> None:
        """Take this group's columns from host arrays; a name that is not there is left out."""
        for name, table in self._tables.items():
            if name in host:
                self._copy(table, name, host, to_host=False)

    def write(self, host: Host) -> None:
        """Write this group's columns into host arrays."""
        for name, table in self._tables.items():
            if name in host:
                self._copy(table, name, host, to_host=True)

    def _copy(self, table: DeviceArray, name: str, host: Host, *, to_host: bool) -> None:
        """Copy a table in pieces of whole rows; on the host the bias has an array of its own."""
        main = host[name]
        last = host["bias" if name == "weights" else f"bias_{name}"].reshape(-1)
        per_model = main.shape[1] // self._spec.n_repetitions
        columns = slice(self.first * per_model, self.last * per_model)
        used = columns.stop - columns.start
        by_model = name == "first" and self.optimizer == "adagrad"
        width = used if by_model else self.shape.stride
        n_features = self._spec.n_features
        for a in range(0, n_features + 1, self._piece_rows):
            b = min(a + self._piece_rows, n_features + 1)
            n = min(b, n_features) - a
            flat = self._piece[: (b - a) * width]
            rows = flat.reshape(b - a, width)
            if to_host:
                self._memory.fetch(flat, table, a * width)
                main[a : a + n, columns] = rows[:n, :used]
                if b > n_features:
                    last[columns] = rows[-1, :used]
            else:
                rows[:, used:] = 0
                rows[:n, :used] = main[a : a + n, columns]
                if b > n_features:
                    rows[-1, :used] = last[columns]
                self._memory.send(table, flat, a * width)
                self._memory.wait()

    def forward(
        self, slot: Slot, n_rows: int, output: int, smoothing: float, z: DeviceArray,
        losses: DeviceArray, *, dense: bool = False,
    ) -> None:  # fmt: skip
        """Write residuals, probabilities or logarithms of a slot's rows to `z`.

        Parameters
        ----------
        slot : Slot
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
            _forward(self.shape, self._bits, output, dense, self._memory.capability),
            (n_rows, self.shape.n_tiles), self.shape.threads,
            slot["indptr"], slot["features"], slot["values"], slot["labels"], slot["importance"],
            self._packed, self.weights, np.int64(self.code_words),
            np.int64(self._spec.n_features), np.float32(smoothing), z, losses,
        )  # fmt: skip

    def update(
        self, items: Items, rows: DeviceArray, values: DeviceArray, source: DeviceArray,
        partial: DeviceArray, rule: Rule, most: int,
    ) -> None:  # fmt: skip
        """Sum gradients from `source` and take the optimiser's step, or put sums aside.

        Parameters
        ----------
        items : Items
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
        assert self.optimizer is not None
        memory = self._memory
        kernel, blocks = _backward(self.shape, OPTIMIZERS[self.optimizer], memory.capability)
        blocks = max(1, min(most, memory.blocks(blocks)))
        memory.launch(
            kernel, (blocks, self.shape.n_tiles), self.shape.threads,
            *items.arguments, rows, values, source, rule.rate, rule.epsilon, partial,
            self._tables.get("first", self._nothing), self._tables.get("second", self._nothing),
            self.weights,
        )  # fmt: skip

    def backward(
        self, batch: Sorter, z: DeviceArray, partial: DeviceArray, rule: Rule, most: int
    ) -> None:
        """Update from the residuals of a batch: its items, then features of several items.

        Parameters
        ----------
        batch : Sorter
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
