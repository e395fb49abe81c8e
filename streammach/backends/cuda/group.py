"""Some of a model's repetitions on the device: their columns, optimiser state, and launches.

A table has a row for each feature, one for the bias, and rows of zeros up to a multiple of eight;
on the host the bias has an array of its own. Host arrays are float32 and hold the columns of all
groups: bfloat16 weights are widened there, which loses nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from streammach.backends.cuda import kernels
from streammach.backends.cuda.chunks import CODINGS
from streammach.backends.cuda.instructions import compiled
from streammach.backends.cuda.memory import DeviceArray, DeviceMemory, Sizes, buffer_bytes
from streammach.backends.cuda.shapes import (
    ADAM_REGISTERS,
    BACKWARD_REGISTERS,
    CHUNK,
    FORWARD_REGISTERS,
    ColumnTiles,
    code_words,
    launch_bounds,
    launch_shape,
    packed_codes,
    stride_of,
    table_rows,
)
from streammach.backends.cuda.transfers import BufferRoom, TransferBuffer
from streammach.jit import Array, kernel
from streammach.rows.batch import Batch, RowIdBatch
from streammach.spec.model import ModelShape, ModelSpec
from streammach.spec.optimizers import OPTIMIZERS
from streammach.spec.types import Optimizer, Weights

PIECE_BYTES = 16 << 20  # of a table that are copied at once
Host = dict[str, Any]  # arrays; weights that only predict may be packed
Part = tuple[slice, NDArray[Any]]  # rows of a piece, and the host array that holds them


def widen_into(rows: NDArray[Any], out: NDArray[np.float32]) -> None:
    """Write numbers as float32 (n, m): float32 (n, m), or the bits of bfloat16 uint16 (n, m)."""
    if rows.dtype == np.uint16:
        widen_rows(rows, out.view(np.uint32))
    else:
        out[:] = rows


def narrow_into(given: NDArray[np.float32], rows: NDArray[Any]) -> None:
    """Write float32 (n, m) as float32 (n, m), or as the bits of the nearest bfloat16 uint16."""
    if rows.dtype == np.uint16:
        narrow_rows(given.view(np.uint32), rows)
    else:
        rows[:] = given


@kernel()
def widen_rows(rows: Array, out: Array) -> None:
    """Write bfloat16 bits uint16 (n, m) as float32 bits uint32 (n, m)."""
    for i in range(rows.shape[0]):
        for j in range(rows.shape[1]):
            out[i, j] = np.uint32(rows[i, j]) << np.uint32(16)


@kernel()
def narrow_rows(given: Array, rows: Array) -> None:
    """Write float32 bits uint32 (n, m) as the nearest bfloat16, the even one of two: uint16."""
    for i in range(rows.shape[0]):
        for j in range(rows.shape[1]):
            bits = np.uint64(given[i, j])
            up = np.uint64(0x7FFF) + ((bits >> np.uint64(16)) & np.uint64(1))
            if bits & np.uint64(0x7F800000) == np.uint64(0x7F800000):
                up = np.uint64(0)
            rows[i, j] = np.uint16((bits + up) >> np.uint64(16))


def _table_sizes(
    spec: ModelShape, models: int, optimizer: Optimizer | None, weights_are: Weights
) -> Sizes:
    """Return the elements of the tables, by the names of host arrays."""
    rows, stride = table_rows(spec.n_features), stride_of(spec, models)
    coding = CODINGS[weights_are]
    sizes: Sizes = {"weights": (rows * stride // CHUNK * coding.words, coding.word)}
    if optimizer is not None:
        kind = OPTIMIZERS[optimizer]
        sizes |= dict.fromkeys(kind.per_model, (rows * models, np.float32))
        sizes |= dict.fromkeys(kind.per_weight, (rows * stride, np.float32))
    return sizes


class Tables:
    """A group's tables, with room for `models`, the most of a group, and an optimiser's state."""

    def __init__(
        self, memory: DeviceMemory, spec: ModelSpec, models: int, weights_are: Weights
    ) -> None:
        self._memory, self._spec, self._most, self._weights_are = memory, spec, models, weights_are
        self._held = memory.rooms(_table_sizes(spec, models, None, weights_are))
        self._piece = memory.page_locked(self.host_bytes(spec, models), np.uint8)
        self._piece_rows = len(self._piece) // (4 * stride_of(spec, models))
        self.optimizer: Optimizer | None = None

    @staticmethod
    def footprint(
        spec: ModelShape, models: int, optimizer: Optimizer | None, weights_are: Weights
    ) -> dict[str, int]:
        """Return the bytes of such tables on the device, by name."""
        sizes = _table_sizes(spec, models, optimizer, weights_are)
        tables = {name: buffer_bytes(*size) for name, size in sizes.items()}
        return {"weights": tables.pop("weights"), "optimizer": sum(tables.values())}

    @staticmethod
    def host_bytes(spec: ModelShape, models: int) -> int:
        """Return the bytes of host memory that copies go through."""
        row = 4 * stride_of(spec, models)
        return row * max(1, min(spec.n_features + 1, PIECE_BYTES // row))

    def __getitem__(self, name: str) -> DeviceArray:
        return self._held[name]

    def get(self, name: str, other: DeviceArray) -> DeviceArray:
        """Return a table, or another array where there is none of this name."""
        return self._held.get(name, other)

    def keep_state(self, optimizer: Optimizer) -> None:
        """Make room for an optimiser's state."""
        if optimizer == self.optimizer:
            return
        self._held = {"weights": self._held["weights"]}
        sizes = _table_sizes(self._spec, self._most, optimizer, self._weights_are)
        del sizes["weights"]
        self._held |= self._memory.rooms(sizes)
        self.optimizer = optimizer

    def start(self, bias: float, models: int) -> None:
        """Set weights and state to zero, and the bias of so many models to a number."""
        for table in self._held.values():
            table.values.fill(0)
        if bias:
            width = stride_of(self._spec, models)
            row = np.full((1, models * self._spec.n_buckets), bias, np.float32)
            self._send("weights", self._spec.n_features, [(slice(0, 1), row)], width)

    def copy(self, host: Host, first: int, last: int, *, to_host: bool) -> None:
        """Copy models ``first:last`` of the whole model's arrays; a table they lack is left out."""
        per_model = () if self.optimizer is None else OPTIMIZERS[self.optimizer].per_model
        stride = stride_of(self._spec, last - first)
        for name in self._held:
            if name not in host:
                continue
            main = host[name]
            bias = host["bias" if name == "weights" else f"bias_{name}"].reshape(1, -1)
            each = main.shape[1] // self._spec.n_repetitions
            columns = slice(first * each, last * each)
            width = last - first if name in per_model else stride
            self._copy(name, main, bias, columns, width, to_host=to_host)

    def _copy(
        self, name: str, main: Any, bias: NDArray[Any], columns: slice, width: int, *,
        to_host: bool,
    ) -> None:  # fmt: skip
        """Copy columns of a table whose rows have `width` here, in pieces of whole rows."""
        n_rows, used = len(main) + 1, columns.stop - columns.start
        for a in range(0, n_rows, self._piece_rows):
            b = min(a + self._piece_rows, n_rows)
            some = main[a : min(b, len(main))][:, columns]
            parts = [(slice(0, len(some)), some)]
            if b == n_rows:
                parts.append((slice(len(some), b - a), bias[:, columns]))
            if not to_host:
                self._send(name, a, parts, width)
                continue
            flat, rows, words = self._rows(name, b - a, width)
            self._memory.fetch(flat, self._held[name], a * words)
            for places, host in parts:
                widen_into(rows[places, :used], host)
        if not to_host:  # what lay there as a part of wider rows
            words = self._rows(name, 1, width)[2]
            self._held[name].values[n_rows * words : table_rows(len(main)) * words].fill(0)

    def _send(self, name: str, first: int, parts: list[Part], width: int) -> None:
        """Write rows of a table from `first` on, `width` columns each, from host arrays."""
        flat, rows, words = self._rows(name, parts[-1][0].stop, width)
        for places, host in parts:
            rows[places, host.shape[1] :] = 0
            narrow_into(host, rows[places, : host.shape[1]])
        self._memory.send(self._held[name], flat, first * words)
        self._memory.wait()

    def _rows(self, name: str, n: int, width: int) -> tuple[NDArray[Any], NDArray[Any], int]:
        """Return room for so many rows, as words and as numbers, and the words of a row."""
        word = np.dtype(self._held[name].values.dtype)
        number = np.dtype(np.float32 if word == np.float32 else np.uint16)
        words = width * number.itemsize // word.itemsize
        flat = self._piece[: n * words * word.itemsize].view(word)
        return flat, flat.view(number).reshape(n, width), words


@lru_cache(maxsize=64)
def _forward(
    shape: ColumnTiles, output: int, dense: bool, weights_are: Weights, capability: tuple[int, int]
) -> Any:
    bounds = launch_bounds(shape.threads, FORWARD_REGISTERS, capability)
    made = kernels.forward_kernel(shape, output, dense=dense, weights_are=weights_are)
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


@dataclass(frozen=True, kw_only=True)
class Rule:
    """The numbers of one training step."""

    smoothing: np.float32  # of labels
    rate: np.float32  # the optimiser's corrections included, as in epsilon
    epsilon: np.float32
    key: np.uint32  # what bfloat16 weights are rounded by: chunks.rounding_key


@dataclass(frozen=True, kw_only=True)
class Segments:
    """Pieces of the gradient's sums, items: each is one feature's entries, or a part of them."""

    begin: DeviceArray  # int32 (m,): the first entry
    end: DeviceArray  # int32 (m,)
    feature: DeviceArray  # int32 (m,): row of the table
    slot: DeviceArray  # int32 (m,): of the partial sum; -1 where the item is all of its feature
    count: DeviceArray  # int32 (1,): how many there are

    @property
    def arguments(self) -> tuple[DeviceArray, ...]:
        """The arrays in the order in which the backward kernel takes them."""
        return self.begin, self.end, self.feature, self.slot, self.count


class ModelGroup:
    """Models ``first:last`` on the device, in room for `models`, the most of a group.

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
        self, memory: DeviceMemory, spec: ModelSpec, codes: NDArray[Any], models: int,
        weights_are: Weights,
    ) -> None:  # fmt: skip
        self._memory, self._spec, self._all_codes = memory, spec, codes
        self._weights_are = weights_are
        self._nothing = memory.zeros(CHUNK, np.float32)
        self.tables = Tables(memory, spec, models, weights_are)
        self.code_words = code_words(spec.n_classes, spec.n_buckets)
        self.codes = memory.empty(models * self.code_words, np.uint32)
        self.take(0, min(models, spec.n_repetitions))

    @staticmethod
    def footprint(
        spec: ModelShape, models: int, optimizer: Optimizer | None, weights_are: Weights
    ) -> dict[str, int]:
        """Return the bytes of such a group on the device, by name."""
        codes = buffer_bytes(models * code_words(spec.n_classes, spec.n_buckets), np.uint32)
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
        self, slot: TransferBuffer, n_rows: int, output: int, *, z: DeviceArray,
        losses: DeviceArray, smoothing: np.float32 = kernels.ZERO, dense: bool = False,
    ) -> None:  # fmt: skip
        """Write residuals, or outputs of a kind in `kernels`, of a slot's rows.

        Parameters
        ----------
        slot, n_rows, output : TransferBuffer, int, int
            The rows, how many, and what is wanted of them.
        z : DeviceArray
            float32 (n * stride,); holds the logits when dense.
        losses : DeviceArray
            float32 (n * models,): receives the losses, with residuals.
        smoothing, dense : float32, bool
            Label smoothing; whether `z` holds the logits.
        """
        shape, capability = self.shape, self._memory.capability
        self._memory.launch(
            _forward(shape, output, dense, self._weights_are, capability),
            (n_rows, shape.n_tiles), shape.threads, slot["indptr"], slot["features"],
            slot["values"], slot["classes"], slot["importance"], self.codes,
            self.tables["weights"], self.code_words, self._spec.n_features, smoothing, z, losses,
        )  # fmt: skip

    def update(
        self, items: Segments, rule: Rule, most: int, rows: DeviceArray, values: DeviceArray,
        source: DeviceArray, partial: DeviceArray,
    ) -> None:  # fmt: skip
        """Sum gradients and take the optimiser's step, or put sums aside.

        Parameters
        ----------
        items, rule, most : Segments, Rule, int
            What is summed; the step's numbers; no more items than this.
        rows, values, source : DeviceArray
            Its entries, and float32 rows of `stride` columns that they multiply.
        partial : DeviceArray
            float32 (slots * stride,): receives sums of parts.
        """
        memory, tables, shape = self._memory, self.tables, self.shape
        assert tables.optimizer is not None
        kernel, blocks = _backward(shape, tables.optimizer, self._weights_are, memory.capability)
        blocks = max(1, min(most, memory.blocks(blocks)))
        memory.launch(
            kernel, (blocks, shape.n_tiles), shape.threads, *items.arguments, rows, values, source,
            rule.rate, rule.epsilon, rule.key, self.first * self._spec.n_buckets // CHUNK, partial,
            tables.get("first", self._nothing), tables.get("second", self._nothing),
            tables["weights"],
        )  # fmt: skip


class OverOutputs(Protocol):
    """A loss that begins with the outputs of all models."""

    begins_with: int

    def residuals(
        self, group: ModelGroup, slot: TransferBuffer, n_rows: int, *, smoothing: np.float32,
        z: DeviceArray, losses: DeviceArray,
    ) -> None:  # fmt: skip
        """Turn a slot's outputs, `z` float32 (n * stride,), into residuals, and write losses."""
        ...


class CudaSteps(ABC):
    """Trains a group on batches; nothing waits for the device."""

    def __init__(self, memory: DeviceMemory, sizes: Sizes) -> None:
        self._held = memory.rooms(sizes)

    @staticmethod
    def sizes(spec: ModelShape, models: int, room: BufferRoom) -> Sizes:
        """Return the elements of the buffers by name."""
        z = (room.n_rows * stride_of(spec, models), np.float32)
        return {"z": z, "losses": (room.n_rows * models, np.float32)}

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
