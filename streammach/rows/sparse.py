"""Sparse matrices of SciPy, which is loaded only where one is met or made."""

from __future__ import annotations

import sys
from typing import Any


def is_sparse(rows: Any) -> bool:
    """Return whether `rows` is a sparse matrix or array of SciPy."""
    loaded = sys.modules.get("scipy.sparse")  # without it there is none
    return loaded is not None and bool(loaded.issparse(rows))


def csr_array(*given: Any, **options: Any) -> Any:
    """Return what :class:`scipy.sparse.csr_array` makes of its arguments."""
    import scipy.sparse

    return scipy.sparse.csr_array(*given, **options)
