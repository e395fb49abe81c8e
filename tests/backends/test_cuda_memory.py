"""Device memory: limits and copies, with stand-ins for CuPy and Numba where there is no GPU."""

import contextlib
import ctypes
import gc
import struct
import sys
import types

import numpy as np
import pytest

from streammach.backends.cuda import launcher
from streammach.backends.cuda.device_memory import UNIT, DeviceMemory
from streammach.system.errors import BudgetError, DeviceError


class _Array(np.ndarray):
    """NumPy's array with CuPy's two copies, which refuse what CuPy refuses, and its address."""

    @property
    def data(self):
        return types.SimpleNamespace(ptr=self.ctypes.data)

    def set(self, source, stream=None):
        assert stream is not None
        assert type(source) is np.ndarray
        assert (source.shape, source.dtype) == (self.shape, self.dtype)
        self[...] = source

    def get(self, stream=None, out=None, blocking=True):
        assert stream is not None
        assert out.flags.c_contiguous
        assert (out.shape, out.dtype) == (self.shape, self.dtype)
        out[...] = self


class _OutOfMemoryError(MemoryError):
    """CuPy's."""


class _Pool:
    def __init__(self):
        self.limit = self.freed = 0

    def set_limit(self, size):
        self.limit = size

    def malloc(self, size):
        raise NotImplementedError

    def total_bytes(self):
        return 3 * UNIT

    def free_all_blocks(self):
        self.freed += 1


class _Device(contextlib.nullcontext):
    compute_capability = "120"
    attributes = {"MultiProcessorCount": 132}  # noqa: RUF012


class _Stream(contextlib.nullcontext):
    ptr = 77

    def __init__(self, non_blocking):
        super().__init__()
        assert non_blocking
        self.calls = []

    def synchronize(self):
        self.calls.append("synchronize")

    def wait_event(self, event):
        self.calls.append(("wait", event))


class _Event:
    def __init__(self, block, disable_timing):
        assert (block, disable_timing) == (False, True)
        self.calls = []

    def record(self, stream):
        self.calls.append(("record", stream))

    def synchronize(self):
        self.calls.append("synchronize")


class _CUDARuntimeError(RuntimeError):
    """CuPy's."""


_CUDARuntimeError.__module__ = "cupy_backends.cuda.api.runtime"


class _Driver(types.ModuleType):
    """The driver's functions that a launch needs, and what they were given."""

    CUstream = CUfunction = int

    def __init__(self):
        super().__init__("cuda.bindings.driver")
        self.launches, self.codes, self.error = [], [], 0

    def cuLibraryLoadData(self, code, *options):
        self.codes.append(code)
        return (
            types.SimpleNamespace(name="CUDA_ERROR_INVALID_IMAGE") if code == b"damaged" else 0,
            5,
        )

    def cuLibraryGetKernel(self, library, name):
        return (0, 99) if (library, name) == (5, b"streammach_some_kernel") else (1, 0)

    def cuLaunchKernel(self, kernel, *how):
        *shape, stream, parameters, _ = how
        words = (ctypes.c_void_p * 9).from_address(parameters)
        self.launches.append((
            kernel, shape, stream, [ctypes.c_uint64.from_address(w).value for w in words],
        ))  # fmt: skip
        return (self.error,)


@pytest.fixture
def driver(monkeypatch):
    """A module that stands for the driver."""
    module = _Driver()
    monkeypatch.setitem(sys.modules, "cuda", types.ModuleType("cuda"))
    monkeypatch.setitem(
        sys.modules, "cuda.bindings", types.SimpleNamespace(driver=module, __name__="cuda.bindings")
    )
    return module


@pytest.fixture
def cupy(monkeypatch, driver):
    """A module that stands for CuPy."""
    cuda = types.SimpleNamespace(
        Device=lambda number: _Device(),
        MemoryPool=_Pool,
        Stream=_Stream,
        Event=_Event,
        using_allocator=lambda allocator: contextlib.nullcontext(),
        PinnedMemory=bytearray,
        PinnedMemoryPointer=lambda memory, offset: memory,
        runtime=types.SimpleNamespace(memGetInfo=lambda: (10 * UNIT, 100 * UNIT)),
    )
    module = types.SimpleNamespace(
        cuda=cuda, argsort=np.argsort, cumsum=np.cumsum, matmul=np.matmul,
        empty=lambda *size: np.empty(*size).view(_Array),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module


def test_copies_go_there_and_back(cupy):
    memory = DeviceMemory(100 * UNIT)
    assert (memory.capability, memory.multiprocessors) == ((12, 0), 132)
    host = memory.host_array(6, np.float32)
    host[:] = range(6)
    with memory.use():
        array = memory.zeros(8, np.float32)
        memory.send(array, host[:4], 2)
        back = np.empty(5, np.float32)
        memory.fetch(back, array, 1)
        assert back.tolist() == [0, 0, 1, 2, 3]
        words = struct.unpack("<7Q", array.kernel)
        assert words == (0, 0, 8, 4, array.values.ctypes.data, 8, 4)
        part = memory.view(array, 2, 3)
        assert part.values.tolist() == [0, 1, 2]
        again = memory.send_copy(np.arange(6, dtype=np.int32).reshape(2, 3))
        assert again.values.tolist() == list(range(6))


def test_copies_ahead_have_a_stream_of_their_own_and_moments_join_it(cupy):
    memory = DeviceMemory(100 * UNIT)
    streams = []
    with memory.use():
        array = memory.zeros(4, np.float32)
        for ahead in (False, True):
            moment = memory.event()
            moment.mark(ahead=ahead)
            moment.before(ahead=not ahead)
            moment.reach()
            ((_, stream), last) = moment._event.calls
            assert last == "synchronize"
            streams.append(stream)
        host = memory.host_array(2, np.float32)
        memory.send(array, np.ones(2, np.float32), 1, ahead=True)
        memory.fetch_later(host, array)
        memory.wait()
    assert streams == [memory._stream, memory._copies]
    assert streams[0] is not streams[1]
    assert [stream.calls[0][0] for stream in streams] == ["wait", "wait"]
    assert [stream.calls[-1] for stream in streams] == ["synchronize"] * 2
    assert host.tolist() == [0, 1]


def some_kernel(values, n):
    """Never compiled here."""


def test_launches_give_the_driver_words_and_the_stream(cupy, driver, monkeypatch):
    asked = []
    monkeypatch.setattr(
        launcher, "machine_code", lambda *wanted, **how: asked.append((wanted, how)) or b"code"
    )
    memory, kernel = DeviceMemory(100 * UNIT), launcher.Kernel(some_kernel, (64, 4))
    with memory.use():
        array = memory.empty(3, np.int32)
        memory.launch(kernel, (3, 2), 64, array, np.int64(-5), np.float32(2))
        memory.launch(kernel, 7, 32, array, np.int64(6), np.float32(1))
    kinds = ((True, "int32"), (False, "int64"), (False, "float32"))
    assert asked == [((some_kernel, kinds, (64, 4), (12, 0)), {})]  # compiled once
    first, second = driver.launches
    assert first[:3] == (99, [3, 2, 1, 64, 1, 1, 0], 77)
    assert second[:3] == (99, [7, 1, 1, 32, 1, 1, 0], 77)
    assert first[3][:7] == list(struct.unpack("<7Q", array.kernel))
    assert first[3][7:] == [2**64 - 5, int(np.float32(2).view(np.uint32))]
    assert second[3][7:] == [6, int(np.float32(1).view(np.uint32))]
    for n in (1000, 10**9):  # blocks of 256 threads, no more than the device has at once
        memory.stride(kernel, n, array, 6, np.float32(1))
    grids = [shape[:4] for _, shape, *_ in driver.launches[2:]]
    assert grids == [[4, 1, 1, 256], [8 * 132, 1, 1, 256]]
    assert [words[7:] for *_, words in driver.launches[2:]] == [second[3][7:]] * 2


def test_damaged_code_is_compiled_again(cupy, driver, monkeypatch):
    def code(*wanted, anew=False):
        return b"code" if anew else b"damaged"

    monkeypatch.setattr(launcher, "machine_code", code)
    memory, kernel = DeviceMemory(100 * UNIT), launcher.Kernel(some_kernel, (64, 4))
    memory.launch(kernel, 1, 64, np.int64(1))
    assert driver.codes == [b"damaged", b"code"]
    assert len(driver.launches) == 1


def test_a_kernel_that_is_not_compiled_or_launched_is_one_line(cupy, driver, monkeypatch):
    def missing(*wanted, **how):
        raise OSError("libnvvm.so: cannot open\n(a second line)")

    memory, kernel = DeviceMemory(100 * UNIT), launcher.Kernel(some_kernel, (64, 4))
    monkeypatch.setattr(launcher, "machine_code", missing)
    with pytest.raises(DeviceError, match=r"'some_kernel' cannot be compiled \(OSError: libnvvm"):
        memory.launch(kernel, 1, 64, np.int64(1))
    monkeypatch.setattr(launcher, "machine_code", lambda *wanted, **how: b"code")
    driver.error = types.SimpleNamespace(name="CUDA_ERROR_LAUNCH_FAILED")
    with pytest.raises(DeviceError, match=r"'some_kernel' \(CUDA_ERROR_LAUNCH_FAILED\)") as refused:
        memory.launch(kernel, 1, 64, np.int64(1))
    assert "\n" not in str(refused.value)


def test_the_limit_is_kept_and_memory_comes_back(cupy):
    memory = DeviceMemory(4 * UNIT)
    assert memory._pool.limit == 4 * UNIT
    with memory.use():
        first = memory.empty(1, np.float32)
        second = memory.empty(2 * UNIT, np.uint8)
        with pytest.raises(BudgetError, match=r"2\.05 kB held.*memory 0MB|full.*held"):
            memory.empty(UNIT + 1, np.uint8)
        del second
        gc.collect()
        memory.empty(UNIT + 1, np.uint8)
    assert (memory.held, memory.peak) == (UNIT, 3 * UNIT)
    assert memory.most_bytes() == 3 * UNIT
    memory.trim()
    assert memory._pool.freed == 1
    assert first.values.size == 1


@pytest.mark.parametrize("error", [_OutOfMemoryError, MemoryError])
def test_memory_that_others_took_is_said_with_what_is_left(cupy, error):
    memory = DeviceMemory(10**9)
    with pytest.raises(BudgetError, match="the device's memory is full") as full, memory.use():
        raise error
    assert full.value.exit_code == 6
    assert memory.room() == 13 * UNIT


def test_errors_of_a_gpus_libraries_are_one_line_and_others_stay_what_they_are(cupy):
    memory = DeviceMemory(10**9)
    fell = _CUDARuntimeError("it fell\noff the bus")
    with (
        pytest.raises(DeviceError, match=r"failed \(_CUDARuntimeError: it fell") as failed,
        memory.use(),
    ):
        raise fell
    assert failed.value.exit_code == 5
    assert "\n" not in str(failed.value)
    with pytest.raises(RuntimeError, match="ours"), memory.use():
        raise RuntimeError("ours")
    with pytest.raises(MemoryError), memory.use():  # the host's
        np.empty(1 << 60, np.uint8)
