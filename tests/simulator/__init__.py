"""Numba's CUDA simulator as the card of the CUDA backend, where NUMBA_ENABLE_CUDASIM is 1."""

from dataclasses import replace

from streammach.backends import registry
from streammach.backends.cuda import kind
from streammach.backends.kinds import H200
from streammach.system.errors import DeviceError
from streammach.system.machine import memory_limit

CARD = "Numba's simulator"


def install():
    """Have this process's CUDA backend use the simulator; before a kernel's module is imported."""
    from streammach.backends.cuda import launcher, toolchain
    from tests.simulator import instructions, turns

    for name in instructions.STAND_INS:
        setattr(toolchain, name, getattr(instructions, name))
    launcher.Kernel = instructions.compile_kernel
    turns.install()

    from streammach.backends.cuda import backend  # whose kernels are made of these
    from tests.simulator.memory import SimulatedMemory

    backend.DeviceMemory = SimulatedMemory
    kind.find_card = lambda: kind.Card(CARD, memory_limit().n_bytes)
    kind.CUDA = replace(kind.CUDA, usual=_usual, rates=lambda: H200)
    registry.BACKENDS["cuda"] = kind.CUDA


def dask_setup(worker):
    """Do so in a worker of Dask that loads this module in place of the package's."""
    from streammach.frontends.cluster import worker as of_package

    install()
    of_package.dask_setup(worker)


def _usual():
    """Why the simulator is used where nobody asked for it: it is not, unless a test has a card."""
    if kind.simulated():
        raise DeviceError("CUDA is simulated")
    return kind.find_card().name
