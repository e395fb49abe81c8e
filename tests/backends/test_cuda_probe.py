"""Why a GPU is or is not used, with stand-ins for the libraries that would know."""

import importlib.util
import sys
import types

import pytest

from streammach.backends.base import choose_device, device_limit
from streammach.backends.cuda import probe
from streammach.errors import DeviceError


class _RuntimeError(RuntimeError):
    """What CuPy raises where there is no driver."""


def runtime(count=1, capability=(9, 0), toolkit=12090, free=70 << 30):
    """CuPy's runtime module, of a machine with these facts."""

    def devices():
        if count is None:
            raise _RuntimeError("cudaErrorInsufficientDriver")
        return count

    facts = {"name": b"Card", "major": capability[0], "minor": capability[1]}
    return types.SimpleNamespace(
        CUDARuntimeError=_RuntimeError,
        getDeviceCount=devices,
        getDeviceProperties=lambda number: facts,
        runtimeGetVersion=lambda: toolkit,
        memGetInfo=lambda: (free, 80 << 30),
    )


@pytest.fixture
def machine(monkeypatch):
    """Make a machine whose libraries say what a test gives."""

    def make(*, installed=("cupy", "numba_cuda"), implementation="NVIDIA", **facts):
        import contextlib

        cuda = types.SimpleNamespace(
            runtime=runtime(**facts), Device=lambda number: contextlib.nullcontext()
        )
        numba = types.SimpleNamespace(cuda=types.SimpleNamespace(implementation=implementation))
        monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(cuda=cuda))
        monkeypatch.setitem(sys.modules, "numba", numba)
        monkeypatch.setattr(probe, "simulated", lambda: False)
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda name: name if name in installed else None
        )

    return make


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"installed": ()}, r"CuPy and numba-cuda not installed.*pip install .streammach\[gpu"),
        ({"installed": ("cupy",)}, r"numba-cuda not installed"),
        ({"implementation": None}, r"does not load its \.pth file"),
        ({"count": None}, r"no NVIDIA driver that fits \(cudaErrorInsufficientDriver\)"),
        ({"count": 0}, "no GPU is visible"),
        ({"capability": (5, 2)}, r"Card has compute capability 5\.2, CUDA 12 needs 6\.0"),
        ({"capability": (6, 1), "toolkit": 13000}, r"capability 6\.1, CUDA 13 needs 7\.5"),
    ],
)
def test_what_is_missing_is_said_with_exit_code_5(machine, facts, why):
    machine(**facts)
    with pytest.raises(DeviceError, match=why) as refused:
        choose_device("cuda")
    assert refused.value.exit_code == 5
    device, reason = choose_device("auto")
    assert device == "cpu"
    assert reason == refused.value.message


def test_a_card_that_can_be_used_is_taken_and_named(machine):
    machine(capability=(6, 1))
    assert choose_device("auto") == ("cuda", "Card, compute capability 6.1")
    assert choose_device("cpu") == ("cpu", "asked for")
    assert device_limit("cuda") == 70 << 30
    assert device_limit("cpu") == 0


def test_the_simulator_is_used_only_when_asked_for(monkeypatch):
    monkeypatch.setattr(probe, "simulated", lambda: True)
    assert choose_device("auto") == ("cpu", "CUDA is simulated")
    assert choose_device("cuda") == ("cuda", "Numba's simulator")
