"""Why a GPU is or is not used, with stand-ins for the libraries that would know."""

import contextlib
import importlib.util
import sys
import types

import pytest

from streammach.backends.cuda import kind
from streammach.backends.registry import BACKENDS, choose_device
from streammach.system.errors import BudgetError, DeviceError


class _RuntimeError(RuntimeError):
    """What CuPy raises where there is no driver."""


def runtime(count=1, capability=(9, 0), free=70 << 30):
    def devices():
        if count is None:
            raise _RuntimeError("cudaErrorInsufficientDriver")
        return count

    facts = {"name": b"Card", "major": capability[0], "minor": capability[1]}
    return types.SimpleNamespace(
        CUDARuntimeError=_RuntimeError,
        getDeviceCount=devices,
        getDeviceProperties=lambda number: facts,
        memGetInfo=lambda: (free, 80 << 30),
    )


def module(**names):
    made = types.ModuleType("stand_in")
    vars(made).update(names)
    return made


@pytest.fixture
def machine(monkeypatch):
    """Make a machine whose libraries say what a test gives, and whose card runs kernels."""

    def make(*, installed=("cupy", "numba_cuda"), implementation="NVIDIA", **facts):
        cuda = types.SimpleNamespace(
            runtime=runtime(**facts), Device=lambda number: contextlib.nullcontext()
        )
        target = module(cuda=module(implementation=implementation))
        monkeypatch.setitem(sys.modules, "cupy", module(cuda=cuda))
        monkeypatch.setitem(sys.modules, "streammach.backends.cuda.toolchain", target)
        monkeypatch.setattr(kind, "simulated", lambda: False)
        monkeypatch.setattr(kind, "_check_toolkit", lambda: None)
        monkeypatch.setattr(kind, "_run_kernel", lambda: None)
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
        ({"capability": (7, 0)}, r"Card has compute capability 7\.0, 7\.5 is needed"),
        ({"free": 1_000_000}, r"the memory of Card is full, 1 MB are free"),
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
    machine(capability=(7, 5))
    assert choose_device("auto") == ("cuda", "Card, compute capability 7.5")
    assert choose_device("cpu") == ("cpu", "asked for")
    assert BACKENDS["cuda"].memory() == 70 << 30
    assert BACKENDS["cpu"].memory() == 0


def fails(error):
    """A function that raises an error."""

    def raising():
        raise error

    return raising


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (
            RuntimeError("the driver\nis odd"),
            r"a first kernel failed \(RuntimeError: the driver is",
        ),
        (BudgetError("the device's memory is full"), "no usable GPU: the device's memory is full"),
        (DeviceError("no usable GPU: a first kernel made 41 + 1 = 41"), r"made 41 \+ 1 = 41"),
    ],
)
def test_a_card_that_runs_no_kernel_is_not_usable(machine, monkeypatch, error, why):
    machine()
    monkeypatch.setattr(kind, "_run_kernel", fails(error))
    with pytest.raises(DeviceError, match=why) as refused:
        choose_device("cuda")
    assert "\n" not in str(refused.value)
    assert choose_device("auto") == ("cpu", refused.value.message)


def test_libraries_that_do_not_import_are_named(machine, monkeypatch, tmp_path):
    machine()
    (tmp_path / "cupy.py").write_text("raise ImportError('built for another NumPy')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "cupy")
    with pytest.raises(DeviceError, match=r"does not import \(ImportError: built for") as refused:
        choose_device("cuda")
    assert refused.value.exit_code == 5
    assert choose_device("auto") == ("cpu", refused.value.message)


def test_a_simulated_card_is_none(monkeypatch):
    monkeypatch.setattr(kind, "simulated", lambda: True)
    assert choose_device("auto") == ("cpu", "CUDA is simulated")
    with pytest.raises(DeviceError, match=r"CUDA is simulated.*without NUMBA_ENABLE_CUDASIM"):
        choose_device("cuda")
