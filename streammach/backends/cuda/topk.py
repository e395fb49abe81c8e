"""Exact top-k of rows whose probabilities lie on the device: buffers and launches."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.backends.cuda import decode
from streammach.backends.cuda.instructions import compiled
from streammach.backends.cuda.launch import ClassSets, decode_bounds, decode_shape
from streammach.backends.cuda.layout import packed_codes
from streammach.backends.cuda.memory import CudaMemory, DeviceArray, Memory, buffer_bytes
from streammach.spec.estimators import MEDIAN, SUM
from streammach.spec.model import ModelShape, ModelSpec

WORK_BYTES = 64 << 20  # of keys and candidates at once
MOST_ROWS = 1024  # scored at once


@lru_cache(maxsize=32)
def _scan(shape: ClassSets, kind: int) -> Any:
    one_row = kind == MEDIAN
    make = decode.median_scan_kernel(shape) if one_row else decode.scan_kernel(shape, kind)
    return compiled(make, decode_bounds(shape, one_row=one_row))


@lru_cache(maxsize=32)
def _select(shape: ClassSets, kind: int) -> Any:
    return compiled(decode.select_kernel(shape, kind), decode_bounds(shape, one_row=kind == MEDIAN))


def _shape(spec: ModelShape, kind: int, sets: tuple[int, int]) -> ClassSets:
    return decode_shape(
        spec.n_buckets, spec.n_repetitions, spec.n_classes, one_row=kind == MEDIAN, words=sets[0],
        threads=sets[1],
    )  # fmt: skip


def _sizes(shape: ClassSets, k: int) -> dict[str, tuple[int, Any]]:
    """Return the elements of the buffers of one row."""
    return {
        "keys": (shape.n_sets, np.int64),
        "candidates": (k * 4 * shape.words, np.int64),
        "scores": (k, np.float32),
        "ids": (k, np.int64),
    }


def _row_bytes(shape: ClassSets, k: int) -> int:
    return sum(int(np.dtype(dtype).itemsize) * n for n, dtype in _sizes(shape, k).values())


def _rows(shape: ClassSets, k: int) -> int:
    """Return how many rows are scored at once."""
    return max(1, min(MOST_ROWS, WORK_BYTES // _row_bytes(shape, k)))


class Decoder:
    """Finds the best classes.

    Parameters
    ----------
    memory : Memory
        The device's.
    spec : ModelSpec
        The model.
    codes : unsigned (K, R)
        Buckets of each class.
    """

    def __init__(self, memory: Memory, spec: ModelSpec, codes: NDArray[Any]) -> None:
        self._memory, self._spec = memory, spec
        self._sets = memory.class_sets
        self._codes = memory.sent(packed_codes(codes, spec.n_buckets))
        self._held: dict[str, DeviceArray] = {}
        self._held_for = (0, 0)

    @staticmethod
    def footprint(spec: ModelShape) -> int:
        """Return the most bytes on the device, for a k whose single row fits."""
        shape = _shape(spec, SUM, CudaMemory.class_sets)
        codes = buffer_bytes(spec.n_repetitions * shape.code_words, np.uint32)
        work = min(WORK_BYTES, MOST_ROWS * _row_bytes(shape, spec.n_classes))
        return codes + work + 4 * buffer_bytes(1, np.int64)

    def best(
        self, p: DeviceArray, kind: int, scores: NDArray[np.float32], ids: NDArray[np.int64]
    ) -> None:
        """Write the best classes of rows and what they were ranked by.

        Parameters
        ----------
        p : DeviceArray
            float32 (n * stride,): probabilities or their logarithms.
        kind : int
            SUM, MINIMUM or MEDIAN.
        scores, ids : float32 (n, k), int64 (n, k)
            Receive the result, best first.
        """
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
        shape = _shape(self._spec, kind, self._sets)
        most = self._room(shape, k)
        for start in range(0, n, most):
            rows = min(most, n - start)
            part = self._memory.view(p, start * shape.stride, rows * shape.stride)
            self._part(shape, kind, part, rows, k)
            yield start, start + rows, self._held["scores"], self._held["ids"]

    def _room(self, shape: ClassSets, k: int) -> int:
        """Make room for rows of k classes; return for how many at once."""
        rows = _rows(shape, k)
        if self._held_for != (shape.n_sets, k):
            self._held = {}
            for name, (count, dtype) in _sizes(shape, k).items():
                self._held[name] = self._memory.empty(rows * count, dtype)
            self._held_for = (shape.n_sets, k)
        return rows

    def _part(self, shape: ClassSets, kind: int, p: DeviceArray, n: int, k: int) -> None:
        held, memory = self._held, self._memory
        sizes = [np.int64(x) for x in (shape.n_classes, shape.code_words, shape.n_sets)]
        memory.launch(
            _scan(shape, kind), (-(-n // shape.rows), shape.n_sets // shape.threads),
            shape.threads, p, self._codes, np.int64(n), *sizes, held["keys"],
        )  # fmt: skip
        memory.launch(
            _select(shape, kind), n, shape.threads, p, self._codes, held["keys"], *sizes,
            np.int64(k), held["candidates"], held["scores"], held["ids"],
        )  # fmt: skip
