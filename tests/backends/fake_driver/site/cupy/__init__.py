"""NumPy arrays in CuPy's place, beside a driver without a card: what a device would do is counted.

Only small copies and fills are done, so that what is measured is the host's work alone. What the
backend does not use is not here.
"""

import collections
import contextlib
import ctypes
import os
import types

import numpy as np

SMALL = 1 << 12  # bytes of a copy that is done

calls = collections.Counter()


def _asked(function, *arguments):
    """Call a function of the driver; CuPy has an exception of its own."""
    if os.environ.get("FAKE_CUDA_DRIVER") == "none":
        raise CUDARuntimeError("cudaErrorInsufficientDriver: there is no driver")
    error = getattr(ctypes.CDLL("libcuda.so.1"), function)(*arguments)
    if error:
        raise CUDARuntimeError(f"cudaError {error} of {function}")


class CUDARuntimeError(RuntimeError):
    pass


class OutOfMemoryError(MemoryError):
    pass


class _Pointer:
    def __init__(self, ptr):
        self.ptr = ptr

    def copy_from_device_async(self, source, n_bytes, stream=None):
        calls["copy"] += 1
        if n_bytes <= SMALL:
            ctypes.memmove(self.ptr, source.ptr, n_bytes)


class ndarray(np.ndarray):
    """An array in host memory with the methods of one on a device."""

    @property
    def data(self):
        return _Pointer(self.ctypes.data)

    @property
    def __cuda_array_interface__(self):
        return {
            "shape": self.shape, "strides": None if self.flags.c_contiguous else self.strides,
            "data": (self.ctypes.data, False), "typestr": self.dtype.str, "stream": 1, "version": 3,
        }  # fmt: skip

    def _host(self):
        return self.view(np.ndarray)

    def set(self, source, stream=None):
        assert type(source) is np.ndarray
        assert (source.shape, source.dtype) == (self.shape, self.dtype)
        calls["to the device"] += 1
        calls["bytes to the device"] += self.nbytes
        if self.nbytes <= SMALL:
            self._host()[...] = source

    def get(self, stream=None, order="C", out=None, blocking=True):
        assert out.flags.c_contiguous
        assert (out.shape, out.dtype) == (self.shape, self.dtype)
        calls["to the host"] += 1
        calls["bytes to the host"] += self.nbytes
        if blocking or self.nbytes <= SMALL:  # what a step does not wait for is not done
            out[...] = self._host()
        return out

    def fill(self, value):
        calls["fill"] += 1
        if self.nbytes <= SMALL:
            self._host()[...] = value

    def __setitem__(self, place, value):
        calls["assign"] += 1

    def __lt__(self, other):
        calls["compare"] += 1
        return self

    def astype(self, dtype, copy=True):
        calls["astype"] += 1
        return empty(self.shape, dtype)


def empty(shape, dtype=np.float64):
    return np.zeros(shape, dtype).view(ndarray)


def arange(n, dtype=None):
    return np.arange(n, dtype=dtype).view(ndarray)


def where(condition, a, b):
    calls["where"] += 1
    return b


def matmul(a, b, out=None):
    assert a.shape[1] == b.shape[0]
    calls["matmul"] += 1
    return out


def _device_count():
    count = ctypes.c_int()
    _asked("cuInit", 0)
    _asked("cuDeviceGetCount", ctypes.byref(count))
    return count.value


def _attribute(which):
    value = ctypes.c_int()
    _asked("cuDeviceGetAttribute", ctypes.byref(value), which, 0)
    return value.value


def _memory():
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    _asked("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    return free.value, total.value


class _Device(contextlib.AbstractContextManager):
    def __init__(self, number=0):
        self.attributes = {
            "MultiProcessorCount": _attribute(16), "L2CacheSize": 50 << 20, "ClockRate": 1_980_000,
        }  # fmt: skip
        self.compute_capability = f"{_attribute(75)}{_attribute(76)}"

    def __exit__(self, *error):
        return None

    def synchronize(self):
        calls["wait"] += 1


class _Stream(contextlib.AbstractContextManager):
    def __init__(self, non_blocking=False):
        self.ptr = 0x5550

    def __exit__(self, *error):
        return None

    def synchronize(self):
        calls["wait"] += 1

    def wait_event(self, event):
        calls["wait for an event"] += 1


class _Event:
    def __init__(self, block=False, disable_timing=False):
        pass

    def record(self, stream):
        calls["event"] += 1

    def synchronize(self):
        calls["event reached"] += 1


class _Pool:
    def __init__(self):
        self.limit = 0

    def set_limit(self, size):
        self.limit = size

    def malloc(self, size):
        raise NotImplementedError

    def total_bytes(self):
        return 0

    def free_all_blocks(self):
        calls["free"] += 1


cuda = types.SimpleNamespace(
    Device=_Device,
    MemoryPool=_Pool,
    Stream=_Stream,
    Event=_Event,
    PinnedMemory=bytearray,
    PinnedMemoryPointer=lambda memory, offset: memory,
    using_allocator=lambda allocator: contextlib.nullcontext(),
    memory=types.SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
    runtime=types.SimpleNamespace(
        CUDARuntimeError=CUDARuntimeError,
        getDeviceCount=_device_count,
        getDeviceProperties=lambda number: {
            "name": b"Card of the tests", "major": _attribute(75), "minor": _attribute(76),
        },
        runtimeGetVersion=lambda: 12090,
        memGetInfo=_memory,
    ),
)  # fmt: skip
