"""How tables lie in device memory: rows of weights, and the packed codes that kernels read."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streammach.backends.cuda.launch import CHUNK, code_bits, rounded_up

ALIGNED = 8  # numbers: matrices whose rows start on 32 bytes are multiplied without a detour


def table_rows(n_features: int) -> int:
    """Return the rows of a table: one a feature, the bias, and zeros up to a multiple of eight."""
    # Dense rows have as many columns.
    return rounded_up(n_features + 1, ALIGNED)


def packed_codes(codes: NDArray[np.unsignedinteger], n_buckets: int) -> NDArray[np.uint32]:
    """Return the buckets model by model, four or two to a word: uint32 (R, words).

    Parameters
    ----------
    codes : unsigned (K, R)
        Bucket of each class in each model.
    n_buckets : int
        B.
    """
    n_classes, n_repetitions = codes.shape
    kind = np.dtype(np.uint8 if code_bits(n_buckets) == 8 else np.uint16)
    out = np.zeros((n_repetitions, rounded_up(n_classes, CHUNK)), kind.newbyteorder("<"))
    out[:, :n_classes] = codes.T
    return out.view(np.dtype(np.uint32).newbyteorder("<"))
