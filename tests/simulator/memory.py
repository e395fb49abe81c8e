"""The memory of a simulated device: NumPy's arrays, and all is done when it is asked for."""

import contextlib

import numpy as np

from streammach.backends.cuda.device_memory import DeviceArray, DeviceMemory

TF32_DROPPED = 13  # bits of a fraction of 23


def round_to_tf32(x):
    """Float32 numbers as TF32 has them: the nearest of 10 bits, the even one of two."""
    bits = x.view(np.uint32)
    half, odd = np.uint32((1 << TF32_DROPPED - 1) - 1), bits >> np.uint32(TF32_DROPPED)
    nearest = (bits + half + (odd & np.uint32(1))) & np.uint32(-(1 << TF32_DROPPED) & 0xFFFFFFFF)
    return np.where(np.isfinite(x), nearest.view(np.float32), x)


class SimulatedEvent:
    """A point in the order of work, all of which is done."""

    def mark(self, *, ahead=False):
        pass

    def before(self, *, ahead=False):
        pass

    def reach(self):
        pass


class SimulatedMemory(DeviceMemory):
    """Has the limit of a card's memory; the arrays of kernels are Numba's, others are NumPy's."""

    class_sets = (2, 32)
    most_threads, most_blocks = 32, 2  # simulated ones cost
    xp = np
    capability = (9, 0)
    multiprocessors = 1

    def open_card(self):
        pass

    def wrap(self, values):
        from numba.cuda.simulator.cudadrv.devicearray import FakeCUDAArray

        return DeviceArray(values, FakeCUDAArray(values))

    def launch(self, kernel, grid, threads, *arguments):
        plain = [a.kernel if isinstance(a, DeviceArray) else a for a in arguments]
        kernel[grid, threads, 0](*plain)

    def product(self, a, b, out, *, tf32=False):
        np.matmul(*((round_to_tf32(a), round_to_tf32(b)) if tf32 else (a, b)), out=out)

    def event(self):
        return SimulatedEvent()

    def send(self, target, source, at=0, *, ahead=False):
        target.values[at : at + len(source)] = source

    def fetch(self, target, source, at=0):
        target[:] = source.values[at : at + len(target)]

    def fetch_later(self, target, source):
        target[:] = source.values[: len(target)]

    def copy(self, target, source):
        target.values[:] = source.values

    def host_array(self, count, dtype):
        return np.empty(max(count, 1), dtype)

    def wait(self):
        pass

    def room(self):
        return self.limit

    def most_bytes(self):
        return self.peak

    def trim(self):
        pass

    @contextlib.contextmanager
    def use(self):
        yield
