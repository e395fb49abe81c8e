"""The memory of a GPU: buffers within a hard limit, copies, launches.

Work is done in the order in which it is asked for, except copies `ahead`: they have a stream of
their own, and run beside kernels. A :class:`DeviceEvent` orders the two.
"""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.backends.cuda.launcher import Launcher, array_words, number_word
from streammach.backends.cuda.shapes import RESIDENT, TF32_CAPABILITY, THREADS, rounded_up
from streammach.system.errors import BudgetError, DeviceError, clean
from streammach.system.machine import size_text

UNIT = 512  # bytes: CuPy's pool hands out multiples of it
RESERVED_BYTES = 600_000_000  # a CUDA context, code and libraries: an estimate, not measured
LIBRARIES = ("cupy", "cupy_backends", "cuda")  # whose errors are those of a GPU
Sizes = dict[str, tuple[int, Any]]  # elements and types of buffers, by name


class DeviceArray:
    """A flat array in device memory, as its two users want it."""

    __slots__ = ("__weakref__", "kernel", "values")

    def __init__(self, values: Any, kernel: Any) -> None:
        self.values = values  # for copies and array operations: CuPy's array
        self.kernel = kernel  # for launches: the words of an argument


class DeviceEvent:
    """A point in the order of work, or of copies ahead: an event of CuPy's on a stream."""

    def __init__(self, event: Any, stream: Any, copies: Any) -> None:
        self._event, self._streams = event, (stream, copies)

    def mark(self, *, ahead: bool = False) -> None:
        """Be the point behind all that was asked for, or behind all copies ahead."""
        self._event.record(self._streams[ahead])

    def before(self, *, ahead: bool = False) -> None:
        """Let what is asked for from now on, or the copies ahead, wait for this point."""
        self._streams[ahead].wait_event(self._event)

    def reach(self) -> None:
        """Return when all before this point is done; at once if it was never marked."""
        self._event.synchronize()


def buffer_bytes(count: int, dtype: Any) -> int:
    """Return the bytes that a buffer of so many elements takes of a device's memory."""
    return rounded_up(max(count, 1) * np.dtype(dtype).itemsize, UNIT)


class DeviceMemory:
    """The memory of a GPU: one CuPy pool with a hard limit, a stream, and one for copies ahead."""

    class_sets = (16, 256)  # fours of classes of a set, threads of a block, of the scan of classes
    most_threads, most_blocks = 1024, 1 << 16  # of kernels that do with any number
    xp: Any  # CuPy
    capability: tuple[int, int]  # compute capability
    multiprocessors: int

    def __init__(self, limit: int) -> None:
        self.limit = limit  # the most bytes of all buffers together
        self.held = self.peak = 0  # bytes of buffers now, and the most there ever were
        self.open_card()

    def open_card(self) -> None:
        """Make the pool and the streams."""
        import cupy

        self.xp = cupy
        with self._failures():
            self._device = cupy.cuda.Device(0)
            self._pool = cupy.cuda.MemoryPool()
            with self._device:
                self._pool.set_limit(size=self.limit)
                self._stream = cupy.cuda.Stream(non_blocking=True)
                self._copies = cupy.cuda.Stream(non_blocking=True)
            self._launcher = Launcher(self._stream.ptr)
            digits = self._device.compute_capability  # "90", "120"
            self.multiprocessors = self._device.attributes["MultiProcessorCount"]
        self.capability = (int(digits[:-1]), int(digits[-1]))

    def empty(self, count: int, dtype: Any, line: str = "") -> DeviceArray:
        """Return a buffer of at least one element, in a ledger's line, or raise BudgetError."""
        n_bytes = buffer_bytes(count, dtype)
        if self.held + n_bytes > self.limit:
            raise self.too_small(n_bytes)
        array = self.wrap(self.xp.empty(max(count, 1), dtype))
        self.held += n_bytes
        self.peak = max(self.peak, self.held)
        weakref.finalize(array, self._count_freed, n_bytes).atexit = False
        return array

    def rooms(self, sizes: Sizes, line: str = "") -> dict[str, DeviceArray]:
        """Return buffers by name."""
        return {name: self.empty(*size, line) for name, size in sizes.items()}

    def zeros(self, count: int, dtype: Any) -> DeviceArray:
        """Return a buffer of zeros."""
        array = self.empty(count, dtype, "")
        array.values.fill(0)
        return array

    def numbers(self, count: int, line: str = "") -> DeviceArray:
        """Return a buffer of int32 numbers from 0 on."""
        array = self.empty(count, np.int32, line)
        array.values[:] = self.xp.arange(len(array.values), dtype=np.int32)
        return array

    def reserve(self, n_bytes: int, line: str) -> None:
        """Say what is taken later, or for a moment: only a ledger counts it."""

    def view(self, array: DeviceArray, at: int, count: int) -> DeviceArray:
        """Return elements of a buffer as one of their own, which keeps no memory."""
        return self.wrap(array.values[at : at + count])

    def wrap(self, values: Any) -> DeviceArray:
        """Return an array of the device for both of its users."""
        words = array_words(values.data.ptr, values.size, values.dtype.itemsize)
        return DeviceArray(values, words)

    def send_copy(self, source: NDArray[Any]) -> DeviceArray:
        """Return a new buffer with the elements of a host array."""
        flat = np.ascontiguousarray(source).reshape(-1)
        array = self.empty(len(flat), flat.dtype)
        self.send(array, flat)
        self.wait()
        return array

    def too_small(self, wanted: int) -> BudgetError:
        """Return the error of a buffer that does not fit."""
        room = self.room()
        return BudgetError(
            f"the device's memory is full: {size_text(self.held)} of {size_text(self.limit)} held, "
            f"{size_text(wanted)} more wanted",
            path="--device cuda",
            hint=f"Use --memory {room // 10**6}MB or less, or a smaller --batch-size; the last "
            "checkpoint is kept.",
        )

    def blocks(self, resident: int) -> int:
        """Return how many blocks fill the device with so many on each multiprocessor."""
        return min(resident * self.multiprocessors, self.most_blocks)

    def stride(self, kernel: Any, n: int, *arguments: Any) -> None:
        """Launch a kernel whose threads stride over `n` elements."""
        threads = min(THREADS, self.most_threads)
        blocks = max(1, min(-(-n // threads), self.blocks(RESIDENT)))
        self.launch(kernel, blocks, threads, *arguments)

    def launch(self, kernel: Any, grid: Any, threads: int, *arguments: Any) -> None:
        """Run a kernel behind what was asked for before; an int is an int64 to it."""
        if kernel.handle is None:
            kernel.load(tuple(map(kind_of, arguments)), self.capability)
        words = [a.kernel if isinstance(a, DeviceArray) else number_word(a) for a in arguments]
        self._launcher(kernel, grid, threads, b"".join(words))

    def product(self, a: Any, b: Any, out: Any, *, tf32: bool = False) -> None:
        """Write the matrix product of float32 (n, m) and (m, p), perhaps in TF32, to (n, p)."""
        from cupy._core import _routines_linalg as cupy_products

        # In TF32 factors keep 10 bits of their fractions, and the sums are float32. CuPy has one
        # setting for a process, which the environment may have chosen.
        kind = cupy_products.COMPUTE_TYPE_TF32 if tf32 else cupy_products.COMPUTE_TYPE_DEFAULT
        cupy_products.set_compute_type(np.float32, kind)
        self.xp.matmul(a, b, out=out)

    def check_tf32(self) -> None:
        """Raise DeviceError if the device does not multiply in TF32."""
        if self.capability < TF32_CAPABILITY:
            own, least = (".".join(map(str, c)) for c in (self.capability, TF32_CAPABILITY))
            what = f"TF32 needs compute capability {least}, the GPU's is {own}"
            raise DeviceError(what, path="--tf32")

    def event(self) -> Any:
        """Return a point in the order of work that is not marked yet, a :class:`DeviceEvent`."""
        with self._device:
            event = self.xp.cuda.Event(block=False, disable_timing=True)
        return DeviceEvent(event, self._stream, self._copies)

    def send(
        self, target: DeviceArray, source: NDArray[Any], at: int = 0, *, ahead: bool = False
    ) -> None:
        """Copy a flat host array, which stays as it is meanwhile, to elements from `at` on."""
        stream = self._copies if ahead else self._stream
        target.values[at : at + len(source)].set(source, stream=stream)

    def fetch(self, target: NDArray[Any], source: DeviceArray, at: int = 0) -> None:
        """Copy elements from `at` on into a flat host array; they are there on return."""
        source.values[at : at + len(target)].get(stream=self._stream, out=target)
        self.wait()

    def fetch_later(self, target: NDArray[Any], source: DeviceArray) -> None:
        """Ask for a buffer's first elements: they come before an event marked behind is reached."""
        # The target is flat and page-locked.
        source.values[: len(target)].get(stream=self._stream, out=target, blocking=False)

    def copy(self, target: DeviceArray, source: DeviceArray) -> None:
        """Copy a buffer to another one of its size, behind what was asked for."""
        n_bytes = source.values.nbytes
        target.values.data.copy_from_device_async(source.values.data, n_bytes, self._stream)

    def host_array(self, count: int, dtype: Any) -> NDArray[Any]:
        """Return a page-locked host array: its own allocation, of exactly its size."""
        n_bytes = max(count, 1) * np.dtype(dtype).itemsize
        with self._device:  # CuPy's pool of such memory would round up to a power of two
            memory = self.xp.cuda.PinnedMemory(n_bytes)
        return np.frombuffer(self.xp.cuda.PinnedMemoryPointer(memory, 0), dtype, max(count, 1))

    def wait(self) -> None:
        """Return when everything that was asked for is done."""
        with self._failures():
            self._copies.synchronize()
            self._stream.synchronize()

    def room(self) -> int:
        """Return the bytes that buffers may take now, those that are there included."""
        with self._device:
            free, _ = self.xp.cuda.runtime.memGetInfo()
        return min(self.limit, int(free) + int(self._pool.total_bytes()))

    def most_bytes(self) -> int:
        """Return the most bytes that were taken at once: the pool keeps what it once took."""
        return max(self.peak, int(self._pool.total_bytes()))

    def trim(self) -> None:
        """Give back what no buffer needs any more."""
        self.wait()
        with self._device:
            self._pool.free_all_blocks()

    @contextlib.contextmanager
    def use(self) -> Iterator[None]:
        """Make device, pool and stream this thread's; raise BudgetError or DeviceError."""
        allocator = self.xp.cuda.using_allocator(self._pool.malloc)
        with self._failures(), self._device, allocator, self._stream:
            yield

    @contextlib.contextmanager
    def _failures(self) -> Iterator[None]:
        """Turn errors of the GPU's libraries into one line."""
        try:
            yield
        except MemoryError as error:  # the room for a sort has no class of CuPy's, arrays of
            if type(error).__module__.startswith("numpy"):  # NumPy have their own
                raise
            raise self.too_small(getattr(error, "_size", 0)) from None
        except Exception as error:
            if type(error).__module__.partition(".")[0] not in LIBRARIES:
                raise
            text = f"{type(error).__name__}: {clean(' '.join(str(error).split()), 200)}"
            what = f"the GPU failed ({text})"
            hint = "The last checkpoint is kept; --resume goes on from it."
            raise DeviceError(what, path="--device cuda", hint=hint) from error

    def _count_freed(self, n_bytes: int) -> None:
        self.held -= n_bytes


class DeviceLedger(DeviceMemory):
    """Adds up what buffers would take, by line, and page-locked memory; it allocates nothing."""

    xp = np

    def __init__(self) -> None:
        super().__init__(sys.maxsize)
        self.lines: dict[str, int] = {}
        self.page_locked_bytes = 0

    def open_card(self) -> None:
        """Do nothing: no card is needed."""

    def empty(self, count: int, dtype: Any, line: str = "") -> DeviceArray:
        """Return a buffer without elements."""
        self.reserve(buffer_bytes(count, dtype), line)
        return self.wrap(np.empty(0, dtype))

    def reserve(self, n_bytes: int, line: str) -> None:
        self.lines[line] = self.lines.get(line, 0) + n_bytes

    def wrap(self, values: Any) -> DeviceArray:
        return DeviceArray(values, None)

    def event(self) -> Any:
        """Return nothing: nothing is done here that it could order."""

    def host_array(self, count: int, dtype: Any) -> NDArray[Any]:
        """Return an array without elements."""
        self.page_locked_bytes += max(count, 1) * np.dtype(dtype).itemsize
        return np.empty(0, dtype)


def kind_of(argument: Any) -> tuple[bool, str]:
    """Return what a kernel is compiled for: whether it is an array, and a number's type."""
    if isinstance(argument, DeviceArray):
        return True, argument.values.dtype.name
    return False, "int64" if isinstance(argument, int) else argument.dtype.name
