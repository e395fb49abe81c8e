"""Whether this machine has a GPU that can be used, and how much memory it has free.

Nothing is imported until it is asked: CuPy and Numba's CUDA target take seconds.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

from streammach.errors import DeviceError
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
        If there is none: wheels, driver, card or architecture, whichever is missing first.
    """
    if simulated():
        return Card("Numba's simulator", memory_limit().n_bytes)
    missing = [name for name in WHEELS if importlib.util.find_spec(name) is None]
    if missing:
        names = " and ".join(WHEELS[name] for name in missing)
        raise _refused(f"{names} not installed", INSTALL)
    return _present()


def _present() -> Card:
    import cupy
    from numba import cuda

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


def _refused(why: str, hint: str) -> DeviceError:
    return DeviceError(f"no usable GPU: {why}", path="--device cuda", hint=hint)
