"""Why a GPU is or is not used, with stand-ins for the libraries that would know."""

import contextlib
import importlib.util
import sys
import tomllib
import types
import warnings
from pathlib import Path

import numpy as np
import pytest

from streammach.backends.cuda import probe
from streammach.backends.registry import BACKENDS, choose_device
from streammach.errors import DeviceError

ROOT = Path(__file__).parents[2]


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


class OnDevice(np.ndarray):
    """An array of CuPy's."""

    def get(self, out):
        out[:] = self


def module(**names):
    """A module with these names."""
    made = types.ModuleType("stand_in")
    vars(made).update(names)
    return made


def launched(kernel):
    """Numba's ``jit``, of kernels that run as they stand, and as it warns about one thread."""

    def run(*arguments):
        warnings.warn("Grid size 1 will likely result in GPU under-utilization", stacklevel=1)
        return kernel(*arguments)

    return {(1, 1): run}


@pytest.fixture
def machine(monkeypatch):
    """Make a machine whose libraries say what a test gives."""

    def make(*, installed=("cupy", "numba_cuda"), implementation="NVIDIA", jit=launched, **facts):
        cuda = types.SimpleNamespace(
            runtime=runtime(**facts), Device=lambda number: contextlib.nullcontext()
        )
        target = module(
            implementation=implementation, jit=jit, as_cuda_array=np.asarray,
            synchronize=lambda: None,
        )  # fmt: skip
        numba = module(cuda=target)
        cupy = module(cuda=cuda, empty=lambda *size: np.zeros(*size).view(OnDevice))
        monkeypatch.setitem(sys.modules, "cupy", cupy)
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
    assert BACKENDS["cuda"].memory() == 70 << 30
    assert BACKENDS["cpu"].memory() == 0


def compiler_missing(kernel):
    raise RuntimeError("libnvvm.so: cannot open shared object file\n(a second line)")


def runs_nothing(kernel):
    return {(1, 1): lambda *arguments: None}


@pytest.mark.parametrize(
    ("jit", "why"),
    [
        (compiler_missing, r"a first kernel failed \(RuntimeError: libnvvm\.so: cannot open"),
        (runs_nothing, r"a first kernel made 41 \+ 1 = 41"),
    ],
)
def test_a_card_that_runs_no_kernel_is_not_usable(machine, jit, why):
    machine(jit=jit)
    with pytest.raises(DeviceError, match=why) as refused:
        choose_device("cuda")
    assert "\n" not in str(refused.value)
    assert choose_device("auto") == ("cpu", refused.value.message)


def test_libraries_that_do_not_import_are_named(machine, monkeypatch, tmp_path):
    """As numba-cuda 0.30.4 beside NumPy 2.5."""
    machine()
    (tmp_path / "cuda.py").write_text("import numpy\nnumpy.row_stack_of_an_older_numpy\n")
    monkeypatch.setitem(sys.modules, "numba", module(__name__="numba", __path__=[str(tmp_path)]))
    monkeypatch.delitem(sys.modules, "numba.cuda", raising=False)
    with pytest.raises(DeviceError, match=r"does not import \(.*row_stack") as refused:
        choose_device("cuda")
    assert refused.value.exit_code == 5
    assert choose_device("auto") == ("cpu", refused.value.message)


def test_packages_for_a_gpu_take_a_numpy_that_they_import_with():
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for extra in ("gpu-cuda12", "gpu-cuda13"):
        wanted = packages["optional-dependencies"][extra]
        assert any(name.startswith("numba-cuda") and name.endswith("<0.31") for name in wanted)
        assert "numpy<2.5" in wanted


def test_the_simulator_is_used_only_when_asked_for(monkeypatch):
    monkeypatch.setattr(probe, "simulated", lambda: True)
    assert choose_device("auto") == ("cpu", "CUDA is simulated")
    assert choose_device("cuda") == ("cuda", "Numba's simulator")
