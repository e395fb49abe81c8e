"""A group's columns on the device, weights and optimiser state, and their copies to the host.

A table has a row for each feature, one for the bias, and rows of zeros up to a multiple of eight;
on the host the bias has an array of its own. Host arrays are float32 and hold the columns of all
groups: bfloat16 weights are widened there, which loses nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.backends.cuda.launch import CHUNK, launch_shape
from streammach.backends.cuda.layout import table_rows
from streammach.backends.cuda.memory import DeviceArray, Memory, buffer_bytes
from streammach.backends.cuda.weights import CODINGS, narrow_into, widen_into
from streammach.spec.model import ModelShape, ModelSpec
from streammach.spec.optimizers import OPTIMIZERS
from streammach.spec.types import Optimizer, Weights

PIECE_BYTES = 16 << 20  # of a table that are copied at once
Host = dict[str, Any]  # arrays; weights that only predict may be packed
Part = tuple[slice, NDArray[Any]]  # rows of a piece, and the host array that holds them


def _sizes(
    spec: ModelShape, models: int, optimizer: Optimizer | None, weights_are: Weights
) -> dict[str, tuple[int, Any]]:
    """Return the elements of the tables, by the names of host arrays."""
    rows, stride = table_rows(spec.n_features), launch_shape(spec.n_buckets, models).stride
    coding = CODINGS[weights_are]
    words = rows * stride // CHUNK * coding.words
    sizes: dict[str, tuple[int, Any]] = {"weights": (words, coding.word)}
    if optimizer is not None:
        kind = OPTIMIZERS[optimizer]
        sizes |= dict.fromkeys(kind.per_model, (rows * models, np.float32))
        sizes |= dict.fromkeys(kind.per_weight, (rows * stride, np.float32))
    return sizes


def _piece_rows(spec: ModelShape, models: int) -> int:
    """Return how many rows of a table are copied at once."""
    stride = launch_shape(spec.n_buckets, models).stride
    return max(1, min(spec.n_features + 1, PIECE_BYTES // (4 * stride)))


class Tables:
    """A group's tables, with room for the widest group.

    Parameters
    ----------
    memory : Memory
        The device's.
    spec : ModelSpec
        The whole model.
    models : int
        Most models of a group.
    weights_are : str
        Type of the weights.

    Attributes
    ----------
    optimizer : str or None
        Whose state is kept.
    """

    def __init__(self, memory: Memory, spec: ModelSpec, models: int, weights_are: Weights) -> None:
        self._memory, self._spec, self._most, self._weights_are = memory, spec, models, weights_are
        self._held = {"weights": memory.empty(*_sizes(spec, models, None, weights_are)["weights"])}
        self._piece_rows = _piece_rows(spec, models)
        self._piece = memory.page_locked(self.host_bytes(spec, models), np.uint8)
        self.optimizer: Optimizer | None = None

    @staticmethod
    def footprint(
        spec: ModelShape, models: int, optimizer: Optimizer | None, weights_are: Weights
    ) -> dict[str, int]:
        """Return the bytes of such tables on the device, by name."""
        sizes = _sizes(spec, models, optimizer, weights_are)
        tables = {name: buffer_bytes(*size) for name, size in sizes.items()}
        return {"weights": tables.pop("weights"), "optimizer": sum(tables.values())}

    @staticmethod
    def host_bytes(spec: ModelShape, models: int) -> int:
        """Return the bytes of host memory that copies go through."""
        return 4 * launch_shape(spec.n_buckets, models).stride * _piece_rows(spec, models)

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
        sizes = _sizes(self._spec, self._most, optimizer, self._weights_are)
        for name, size in sizes.items():
            if name != "weights":
                self._held[name] = self._memory.empty(*size)
        self.optimizer = optimizer

    def start(self, bias: float, models: int) -> None:
        """Set weights and state to zero, and the bias of so many models to a number."""
        for table in self._held.values():
            table.values.fill(0)
        if bias:
            width = launch_shape(self._spec.n_buckets, models).stride
            row = np.full((1, models * self._spec.n_buckets), bias, np.float32)
            self._send("weights", self._spec.n_features, [(slice(0, 1), row)], width)

    def copy(self, host: Host, first: int, last: int, *, to_host: bool) -> None:
        """Copy the columns of models ``first:last``; a table that `host` lacks is left out.

        Parameters
        ----------
        host : dict of str to array
            Arrays of the whole model.
        first, last : int
            The models.
        to_host : bool
            Whether they are copied there or from there.
        """
        per_model = () if self.optimizer is None else OPTIMIZERS[self.optimizer].per_model
        stride = launch_shape(self._spec.n_buckets, last - first).stride
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
