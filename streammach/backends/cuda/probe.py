"""Whether this machine has a GPU that can be used, and how much memory it has free.

Nothing is imported until it is asked: CuPy and Numba's CUDA target take seconds. A card counts as
usable when it has run a kernel: libraries that do not fit each other, or a part of the toolkit that
is missing, are known here and not after planning.
"""

from __future__ import annotations

import importlib.util
import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from streammach.errors import DeviceError, clean
from streammach.machine import memory_limit

INSTALL = 'Run: pip install "streammach[gpu-cuda12]" (gpu-cuda13 for driver 580 or newer).'
WHEELS = {"cupy": "CuPy", "numba_cuda": "numba-cuda"}
OLDEST = {12: (6, 0), 13: (7, 5)}  # compute capability, by the version of CUDA
RESERVED_BYTES = 600_000_000  # a CUDA context, code and libraries: an estimate, not measured


@dataclass(frozen=True)
class Card:
    """A device that can be used: its name, and the bytes of memory that are free."""

    name: str
    free_bytes: int


def simulated() -> bool:
    """Return whether kernels run in Numba's simulator (NUMBA_ENABLE_CUDASIM=1)."""
    from numba import config  # slow to import

    return bool(config.ENABLE_CUDASIM)


def find_card() -> Card:
    """Return the device that ``--device cuda`` uses.

    Raises
    ------
    DeviceError
        If there is none: wheels, driver, card, architecture or compiler, whichever is missing
        first.
    """
    if simulated():
        return Card("Numba's simulator", memory_limit().n_bytes)
    missing = [name for name in WHEELS if importlib.util.find_spec(name) is None]
    if missing:
        names = " and ".join(WHEELS[name] for name in missing)
        raise _refused(f"{names} not installed", INSTALL)
    cupy, cuda = _libraries()
    try:
        card = _present(cupy, cuda)
        _run_kernel(cupy, cuda)
    except DeviceError:
        raise
    except Exception as error:
        raise _refused(f"a first kernel failed ({_named(error)})", INSTALL) from error
    return card


def _libraries() -> tuple[Any, Any]:
    """Return CuPy and Numba's CUDA target, or raise DeviceError."""
    try:
        import cupy
        from numba import cuda
    except Exception as error:  # anything: what fails is their code, with a library it does not fit
        raise _refused(f"CuPy or numba-cuda does not import ({_named(error)})", INSTALL) from error
    return cupy, cuda


def _present(cupy: Any, cuda: Any) -> Card:
    if getattr(cuda, "implementation", None) != "NVIDIA":
        raise _refused("numba-cuda is installed where Python does not load its .pth file", INSTALL)
    runtime = cupy.cuda.runtime
    try:
        count = runtime.getDeviceCount()
    except runtime.CUDARuntimeError as error:
        raise _refused(f"no NVIDIA driver that fits ({error})", "Install or update it.") from None
    if not count:
        raise _refused("no GPU is visible", "Look at nvidia-smi and CUDA_VISIBLE_DEVICES.")
    facts = runtime.getDeviceProperties(0)
    name, capability = facts["name"].decode(), (facts["major"], facts["minor"])
    toolkit = runtime.runtimeGetVersion() // 1000
    oldest = OLDEST.get(toolkit, max(OLDEST.values()))
    if capability < oldest:
        raise _refused(
            f"{name} has compute capability {capability[0]}.{capability[1]}, CUDA {toolkit} needs "
            f"{oldest[0]}.{oldest[1]}",
            "The extra gpu-cuda12 knows cards from 6.0 on.",
        )
    with cupy.cuda.Device(0):
        free, _ = runtime.memGetInfo()
    return Card(f"{name}, compute capability {capability[0]}.{capability[1]}", int(free))


@lru_cache
def _run_kernel(cupy: Any, cuda: Any) -> None:
    """Compile and launch a kernel of one thread, once in a process.

    Raises
    ------
    DeviceError
        If it did not do its work.
    Exception
        Whatever a compiler, a driver or a library raises.
    """

    def count_up(values: Any) -> None:
        values[0] += 1

    with cupy.cuda.Device(0), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one thread is few, as Numba says
        values = cupy.empty(1, np.int32)
        values.fill(41)
        cuda.jit(count_up)[1, 1](cuda.as_cuda_array(values))
        cuda.synchronize()
        found = np.zeros(1, np.int32)
        values.get(out=found)
    if found[0] != 42:
        raise _refused(f"a first kernel made 41 + 1 = {found[0]}", INSTALL)


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {clean(' '.join(str(error).split()), 120)}"


def _refused(why: str, hint: str) -> DeviceError:
    return DeviceError(f"no usable GPU: {why}", path="--device cuda", hint=hint)
