"""Numba's CUDA target: it is imported here, and everywhere else from here.

numba-cuda 0.30 names a function that NumPy 2.5 dropped, at its import alone, and a module of it
that is loaded later does: it is lent to them. What numba-cuda and NumPy say of each other's age at
that moment is nothing that a user could change.
"""

from __future__ import annotations

import contextlib
import importlib
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

LENT = "row_stack"  # another name of vstack


@contextlib.contextmanager
def _lent() -> Iterator[None]:
    """Give NumPy back, for a while, the name that it dropped."""
    if hasattr(np, LENT):
        yield
        return
    setattr(np, LENT, np.vstack)
    try:
        yield
    finally:
        delattr(np, LENT)


def _imported() -> tuple[Any, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with _lent():
            from numba import cuda
            from numba.cuda.extending import intrinsic

            if getattr(cuda, "implementation", None) == "NVIDIA":
                importlib.import_module("numba.cuda.np.arrayobj")
    return cuda, intrinsic


cuda, intrinsic = _imported()
