"""Some of a model's repetitions on the device: their columns, optimiser state, and launches.

A table has a row for each feature, one for the bias, and rows of zeros up to a multiple of eight;
on the host the bias has an array of its own. Host arrays are float32 and hold the columns of all
groups: bfloat16 weights are widened there, which loses nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammach.backends.cuda import kernels
from streammach.backends.cuda.chunks import CODINGS
from streammach.backends.cuda.device_memory import DeviceArray, DeviceMemory, Sizes
from streammach.backends.cuda.launcher import Kernel
from streammach.backends.cuda.shapes import (
    ADAM_REGISTERS,
    BACKWARD_REGISTERS,
    CHUNK,
    FORWARD_REGISTERS,
    ColumnTiles,
    code_words,
    launch_bounds,
    launch_shape,
    stride_of,
    table_rows,
)
from streammach.backends.cuda.transfers import TransferBuffer
from streammach.options.model_spec import ModelShape
from streammach.options.optimizers import OPTIMIZERS
from streammach.options.types import Optimizer, Weights
from streammach.system.threads import Workers, in_pieces

PIECE_BYTES = 16 << 20  # of a table that are copied at once
HALF_WORD = np.uint32(16)  # bits of bfloat16
Host = dict[str, Any]  # arrays; weights that only predict may be packed
Part = tuple[slice, NDArray[Any]]  # rows of a piece, and the host array that holds them
Copy = Callable[[NDArray[Any], NDArray[Any]], None]


def widen_into(rows: NDArray[Any], out: NDArray[np.float32]) -> None:
    """Write numbers as float32 (n, m): float32 (n, m), or the bits of bfloat16 uint16 (n, m)."""
    if rows.dtype == np.uint16:
        np.left_shift(rows, HALF_WORD, out=out.view(np.uint32), dtype=np.uint32)
    else:
        out[:] = rows


def round_into(given: NDArray[np.float32], rows: NDArray[Any]) -> None:
    """Write float32 (n, m) as float32 (n, m), or as the bits of the nearest bfloat16 uint16."""
    if rows.dtype != np.uint16:
        rows[:] = given
        return
    bits = given.view(np.uint32)  # to the even one of two; what is not finite is cut
    half = np.uint32(0x7FFF) + (bits >> HALF_WORD & np.uint32(1))
    rows[:] = bits + np.where(np.isfinite(given), half, np.uint32(0)) >> HALF_WORD


@lru_cache(maxsize=64)
def _forward(
    shape: ColumnTiles, residuals: bool, dense: bool, weights_are: Weights,
    capability: tuple[int, int],
) -> Any:  # fmt: skip
    bounds = launch_bounds(shape.threads, FORWARD_REGISTERS, capability)
    made = kernels.forward_kernel(shape, residuals=residuals, dense=dense, weights_are=weights_are)
    return Kernel(made, bounds)


@lru_cache(maxsize=64)
def _backward(
    shape: ColumnTiles, optimizer: Optimizer, weights_are: Weights, capability: tuple[int, int]
) -> tuple[Any, int]:
    kind = OPTIMIZERS[optimizer]
    registers = ADAM_REGISTERS if kind.per_weight else BACKWARD_REGISTERS
    bounds = launch_bounds(shape.threads, registers, capability)
    made = kernels.backward_kernel(shape, kind.branch, weights_are=weights_are)
    return Kernel(made, bounds), bounds[1]


class Rule(NamedTuple):
    """The numbers of one training step."""

    smoothing: np.float32  # of labels
    rate: np.float32  # the optimiser's corrections included, as in epsilon
    epsilon: np.float32
    key: np.uint32  # what bfloat16 weights are rounded by: chunks.rounding_key


class Segments(NamedTuple):
    """Pieces of the gradient's sums, items: each is one feature's entries, or a part of them."""

    begin: DeviceArray  # int32 (m,): the first entry
    end: DeviceArray  # int32 (m,)
    feature: DeviceArray  # int32 (m,): row of the table
    slot: DeviceArray  # int32 (m,): of the partial sum; -1 where the item is all of its feature
    n_items: DeviceArray  # int32 (1,): how many there are


class ModelGroup:
    """Models ``first:last`` on the device, in room for `models`, the most of a group.

    Attributes
    ----------
    tables : dict of str to DeviceArray
        Weights, the bias as the last row, and optimiser state.
    codes : DeviceArray
        uint32 (models * code_words,): packed buckets of the classes, model by model; a view of
        those of all models.
    code_words : int
        Words of a model's codes.
    """

    def __init__(
        self, memory: DeviceMemory, spec: ModelShape, codes: DeviceArray, models: int,
        weights_are: Weights, workers: Workers | None = None, *, best_stays: bool = False,
    ) -> None:  # fmt: skip
        self._memory, self._spec, self._all_codes, self._most = memory, spec, codes, models
        self._weights_are, self._workers, self._best_stays = weights_are, workers, best_stays
        self._best: dict[str, DeviceArray] = {}
        self.optimizer: Optimizer | None = None
        self.code_words = code_words(spec.n_classes, spec.n_buckets)
        coding, stride = CODINGS[weights_are], stride_of(spec, models)
        n_words = table_rows(spec.n_features) * stride // CHUNK * coding.words
        self._weights: Sizes = {"weights": (n_words, coding.word)}
        self.tables = memory.rooms(self._weights, "weights")
        self._piece_rows = max(1, min(spec.n_features + 1, PIECE_BYTES // (4 * stride)))
        self._piece = memory.host_array(4 * stride * self._piece_rows, np.uint8)

    def take(self, first: int, last: int) -> None:
        """Become the models ``first:last``; their columns are to be zeroed or read."""
        self.first, self.last = first, last
        self.n_repetitions = last - first
        self.shape = launch_shape(self._spec.n_buckets, self.n_repetitions)
        at, words = first * self.code_words, self.n_repetitions * self.code_words
        self.codes = self._memory.view(self._all_codes, at, words)

    def keep_state(self, optimizer: Optimizer) -> None:
        """Make room for an optimiser's state."""
        if optimizer == self.optimizer:
            return
        self.tables = {"weights": self.tables["weights"]}  # others go before new ones come
        self._best = {}
        kind, rows = OPTIMIZERS[optimizer], table_rows(self._spec.n_features)
        wide = rows * stride_of(self._spec, self._most)
        sizes: Sizes = dict.fromkeys(kind.per_model, (rows * self._most, np.float32))
        sizes |= dict.fromkeys(kind.per_weight, (wide, np.float32))
        self.tables |= self._memory.rooms(sizes, "optimizer")
        if self._best_stays:
            self._best = self._memory.rooms(self._weights | sizes, "best epoch")
        self.optimizer = optimizer

    def keep_best(self) -> None:
        """Copy all tables to those of the best epoch."""
        for name, table in self.tables.items():
            self._memory.copy(self._best[name], table)

    def exchange(self) -> None:
        """Make the best epoch's tables those that are used, and the other way round."""
        self.tables, self._best = self._best, self.tables

    def start(self, bias: float) -> None:
        """Set weights and state to zero, and the bias to a number."""
        for table in self.tables.values():
            table.values.fill(0)
        if bias:
            row = np.full((1, self.n_repetitions * self._spec.n_buckets), bias, np.float32)
            self._send("weights", self._spec.n_features, [(slice(0, 1), row)], self.shape.stride)

    def copy(self, host: Host, *, to_host: bool) -> None:
        """Copy this group's columns to arrays of the whole model, or from those that are there."""
        for name in self.tables:
            if name not in host:
                continue
            main = host[name]
            bias = host["bias" if name == "weights" else f"bias_{name}"].reshape(1, -1)
            each = main.shape[1] // self._spec.n_repetitions
            columns = slice(self.first * each, self.last * each)
            per_model = self.optimizer and name in OPTIMIZERS[self.optimizer].per_model
            width = self.n_repetitions if per_model else self.shape.stride
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
            flat, rows, words = self._room(name, b - a, width)
            self._memory.fetch(flat, self.tables[name], a * words)
            for places, host in parts:
                self._spread(widen_into, rows[places, :used], host)
        if not to_host:  # what lay there as a part of wider rows
            words = self._room(name, 1, width)[2]
            self.tables[name].values[n_rows * words : table_rows(len(main)) * words].fill(0)

    def _send(self, name: str, first: int, parts: list[Part], width: int) -> None:
        """Write rows of a table from `first` on, `width` columns each, from host arrays."""
        flat, rows, words = self._room(name, parts[-1][0].stop, width)
        for places, host in parts:
            rows[places, host.shape[1] :] = 0
            self._spread(round_into, host, rows[places, : host.shape[1]])
        self._memory.send(self.tables[name], flat, first * words)
        self._memory.wait()

    def _spread(self, copy: Copy, rows: NDArray[Any], out: NDArray[Any]) -> None:
        """Copy rows on the threads."""
        in_pieces(self._workers, len(rows), lambda a, b: copy(rows[a:b], out[a:b]))

    def _room(self, name: str, n: int, width: int) -> tuple[NDArray[Any], NDArray[Any], int]:
        """Return room for so many rows, as words and as numbers, and the words of a row."""
        word = np.dtype(self.tables[name].values.dtype)
        number = np.dtype(np.float32 if word == np.float32 else np.uint16)
        words = width * number.itemsize // word.itemsize
        flat = self._piece[: n * words * word.itemsize].view(word)
        return flat, flat.view(number).reshape(n, width), words

    def forward(
        self, slot: TransferBuffer, n_rows: int, output: int, *, z: DeviceArray,
        losses: DeviceArray, smoothing: np.float32 = kernels.ZERO, dense: bool = False,
    ) -> None:  # fmt: skip
        """Write residuals with losses, or outputs of a kind in `kernels`, of a slot's rows."""
        shape, capability = self.shape, self._memory.capability
        self._memory.launch(
            _forward(shape, output == kernels.RESIDUALS, dense, self._weights_are, capability),
            (n_rows, shape.n_tiles), shape.threads, slot["indptr"], slot["features"],
            slot["values"], slot["classes"], slot["importance"], self.codes,
            self.tables["weights"], self.code_words, self._spec.n_features, smoothing, output, z,
            losses,
        )  # fmt: skip

    def update(
        self, items: Segments, rule: Rule, most: int, rows: DeviceArray, values: DeviceArray,
        source: DeviceArray, partial: DeviceArray,
    ) -> None:  # fmt: skip
        """Sum gradients of at most `most` items and take an optimiser step, or keep the sums."""
        # Arrays are those of :func:`streammach.backends.cuda.kernels.backward_kernel`.
        memory, tables, shape = self._memory, self.tables, self.shape
        assert self.optimizer is not None, "keep_state() comes first"
        kernel, blocks = _backward(shape, self.optimizer, self._weights_are, memory.capability)
        memory.launch(
            kernel, (max(1, min(most, memory.blocks(blocks))), shape.n_tiles), shape.threads,
            *items, rows, values, source, rule.rate, rule.epsilon, rule.key,
            self.first * self._spec.n_buckets // CHUNK, partial, tables.get("first", partial),
            tables.get("second", partial), tables["weights"],
        )  # fmt: skip
