"""The packed table of codes that kernels read."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streammach.backends.cuda.launch import CHUNK, code_bits, rounded_up


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
