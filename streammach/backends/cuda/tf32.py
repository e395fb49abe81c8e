"""Matrix products of float32 on the device, whole or in TensorFloat-32.

In TF32 the factors keep 10 bits of their fractions, and the sums are float32. CuPy has one setting
for a process, which the environment may have chosen: each product says what it wants.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from streammach.backends.cuda.memory import Memory
from streammach.errors import DeviceError

LEAST = (8, 0)  # compute capability
DROPPED = 13  # bits of a fraction of 23


def check_tf32(memory: Memory) -> None:
    """Raise DeviceError if the device does not multiply in TF32."""
    if memory.capability < LEAST:
        found, least = (".".join(map(str, c)) for c in (memory.capability, LEAST))
        raise DeviceError(
            f"TF32 needs compute capability {least}, the GPU's is {found}", path="--tf32"
        )


def rounded(x: Any) -> Any:
    """Return float32 numbers with the nearest fractions of 10 bits, the even one of two."""
    bits = x.view(np.uint32)
    half, odd = np.uint32((1 << DROPPED - 1) - 1), (bits >> np.uint32(DROPPED)) & np.uint32(1)
    nearest = (bits + half + odd) & np.uint32(-(1 << DROPPED) & 0xFFFFFFFF)
    return np.where(np.isfinite(x), nearest.view(np.float32), x)


def multiply(memory: Memory, a: Any, b: Any, out: Any, *, tf32: bool) -> None:
    """Write a matrix product to `out`; see :meth:`streammach.backends.cuda.memory.Memory.product`.

    Parameters
    ----------
    memory : Memory
        The device's; a simulated one rounds the factors.
    a, b, out : float32 (n, m), (m, p), (n, p)
        The factors and what receives the product.
    tf32 : bool
        Whether it is one in TF32.
    """
    if memory.xp is np:
        a, b = (rounded(a), rounded(b)) if tf32 else (a, b)
    else:
        from cupy._core import _routines_linalg as cupy_products

        kind = cupy_products.COMPUTE_TYPE_TF32 if tf32 else cupy_products.COMPUTE_TYPE_DEFAULT
        cupy_products.set_compute_type(np.float32, kind)
    memory.product(a, b, out)
