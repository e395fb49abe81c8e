"""What happens to the values of rows before a model sees them.

A transform changes float32 values in place, row by row. A new one is a kernel here and its line in
:data:`TRANSFORMS`; its name also goes into :data:`streammach.options.types.Transform`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import log1p, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.options.types import Transform
from streammach.rows.block import RowBlock
from streammach.system.jit import Array, kernel

Apply = Callable[[NDArray[np.int64], NDArray[np.float32]], Any]


def leave_values(indptr: NDArray[np.int64], values: NDArray[np.float32]) -> None:
    """Leave the values as they are."""


@kernel()
def ones(indptr: Array, values: Array) -> None:
    """Make each value 1: `indptr` int64 (n + 1,) of the rows, `values` float32."""
    for p in range(indptr[0], indptr[indptr.shape[0] - 1]):
        values[p] = np.float32(1)


@kernel()
def signed_logarithms(indptr: Array, values: Array) -> None:
    """Make each value sign(x) ln(1 + abs x): `indptr` int64 (n + 1,), `values` float32."""
    for p in range(indptr[0], indptr[indptr.shape[0] - 1]):
        x = values[p]
        values[p] = np.float32(log1p(x)) if x >= 0 else -np.float32(log1p(-x))


@kernel()
def unit_rows(indptr: Array, values: Array) -> None:
    """Scale rows, `indptr` int64 (n + 1,) and `values` float32, to length 1; zeros stay."""
    for i in range(indptr.shape[0] - 1):
        total = 0.0
        for p in range(indptr[i], indptr[i + 1]):
            total += np.float64(values[p]) * np.float64(values[p])
        scale = np.float32(1 / sqrt(total)) if total > 0 else np.float32(1)
        first = np.uint64(indptr[i])  # positions without a sign: the loop is vectorised
        for j in range(np.uint64(indptr[i + 1]) - first):
            values[first + j] *= scale


TRANSFORMS: dict[Transform, Apply] = {
    "raw": leave_values,
    "binary": ones,
    "log1p": signed_logarithms,
    "l2": unit_rows,
}


def transform_block(block: RowBlock, transform: Transform) -> RowBlock:
    """Return the same rows with float32 values after the transform."""
    values = block.values.astype(np.float32)
    TRANSFORMS[transform](block.indptr, values)
    return replace(block, values=values)
