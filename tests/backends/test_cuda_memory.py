"""Device memory: limits and copies, with stand-ins for CuPy and Numba where there is no GPU."""

import contextlib
import gc
import sys
import types

import numpy as np
import pytest

from streammach.backends.cuda.memory import UNIT, CudaMemory
from streammach.errors import BudgetError


class _Array(np.ndarray):
    """NumPy's array with CuPy's two copies, which refuse what CuPy refuses."""

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


@pytest.fixture
def cupy(monkeypatch):
    """A module that stands for CuPy."""
    cuda = types.SimpleNamespace(
        Device=lambda number: _Device(),
        MemoryPool=_Pool,
        Stream=_Stream,
        Event=_Event,
        using_allocator=lambda allocator: contextlib.nullcontext(),
        PinnedMemory=bytearray,
        PinnedMemoryPointer=lambda memory, offset: memory,
        memory=types.SimpleNamespace(OutOfMemoryError=_OutOfMemoryError),
        runtime=types.SimpleNamespace(memGetInfo=lambda: (10 * UNIT, 100 * UNIT)),
    )
    module = types.SimpleNamespace(
        cuda=cuda, argsort=np.argsort, cumsum=np.cumsum, matmul=np.matmul,
        empty=lambda *size: np.empty(*size).view(_Array),
    )  # fmt: skip
    numba = types.SimpleNamespace(
        cuda=types.SimpleNamespace(
            external_stream=lambda pointer: ("stream", pointer),
            as_cuda_array=lambda array, sync: ("wrapped", array),
        )
    )
    monkeypatch.setitem(sys.modules, "cupy", module)
    monkeypatch.setitem(sys.modules, "numba", numba)
    return module


def test_copies_go_there_and_back(cupy):
    memory = CudaMemory(100 * UNIT)
    assert (memory.capability, memory.multiprocessors) == ((12, 0), 132)
    host = memory.page_locked(6, np.float32)
    host[:] = range(6)
    with memory.use():
        array = memory.zeros(8, np.float32)
        memory.send(array, host[:4], 2)
        back = np.empty(5, np.float32)
        memory.fetch(back, array, 1)
        assert back.tolist() == [0, 0, 1, 2, 3]
        assert array.kernel[0] == "wrapped"
        part = memory.view(array, 2, 3)
        assert part.values.tolist() == [0, 1, 2]
        again = memory.sent(np.arange(6, dtype=np.int32).reshape(2, 3))
        assert again.values.tolist() == list(range(6))


def test_copies_ahead_have_a_stream_of_their_own_and_moments_join_it(cupy):
    memory = CudaMemory(100 * UNIT)
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
        host = memory.page_locked(2, np.float32)
        memory.send(array, np.ones(2, np.float32), 1, ahead=True)
        memory.fetch_later(host, array)
        memory.wait()
    assert streams == [memory._stream, memory._copies]
    assert streams[0] is not streams[1]
    assert [stream.calls[0][0] for stream in streams] == ["wait", "wait"]
    assert [stream.calls[-1] for stream in streams] == ["synchronize"] * 2
    assert host.tolist() == [0, 1]


def test_launches_get_numbas_arrays_and_the_stream(cupy):
    memory, calls = CudaMemory(100 * UNIT), []

    class Kernel:
        def __getitem__(self, configuration):
            return lambda *arguments: calls.append((configuration, arguments))

    with memory.use():
        array = memory.empty(1, np.int32)
        memory.launch(Kernel(), (3, 2), 64, array, np.int64(5))
    ((configuration, arguments),) = calls
    assert configuration == ((3, 2), 64, ("stream", 77))
    assert arguments == (array.kernel, 5)
    assert memory.grid(1000, 256, 8) == (4, 256)
    assert memory.grid(10**9, 256, 8) == (8 * 132, 256)


def test_array_operations_write_where_they_are_told(cupy):
    memory = CudaMemory(100 * UNIT)
    with memory.use():
        keys = memory.sent(np.array([5, 2, 5, 1], np.int32))
        order, sums = memory.zeros(6, np.int32), memory.zeros(4, np.int32)
        memory.order(keys.values, order)
        memory.running_sum(keys.values, sums.values)
    assert order.values.tolist() == [3, 1, 0, 2, 0, 0]
    assert sums.values.tolist() == [5, 7, 12, 13]


def test_the_limit_is_kept_and_memory_comes_back(cupy):
    memory = CudaMemory(4 * UNIT)
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
    assert memory.taken() == 3 * UNIT
    memory.close()
    assert memory._pool.freed == 1
    assert first.values.size == 1


def test_memory_that_others_took_is_said_with_what_is_left(cupy):
    memory = CudaMemory(10**9)
    with pytest.raises(BudgetError, match="the device's memory is full") as full, memory.use():
        raise _OutOfMemoryError
    assert full.value.exit_code == 6
    assert memory.room() == 13 * UNIT
