"""Kernels on a GPU: compiled or taken from where they are kept, loaded and launched.

Numba's own launch takes the host 50 to 77 microseconds, most of them for wrapping arguments that
were the same before (measured with a driver that does nothing). Here an array keeps the words that
a kernel of Numba takes for it, and a launch joins them and calls the driver.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from typing import Any

from numba.core.compiler_lock import global_compiler_lock

from streammach.backends.cuda.toolchain import Argument, compile_cubin, toolkit
from streammach.backends.kinds import INSTALL_CUDA
from streammach.system.errors import DeviceError, clean
from streammach.system.jit import CACHE_DIR, announce_compilation
from streammach.system.kernel_cache import KernelFile
from streammach.system.kernel_identity import digest_of

PREFIX = "streammach_"  # of the names of kernels in machine code
WORD = 8  # bytes of a parameter, the widest
MOST_WORDS = 256  # of the parameters of a kernel
ARRAY, INTEGER = struct.Struct("<7Q"), struct.Struct("<q")


def machine_code(
    function: Callable[..., None], arguments: tuple[Argument, ...], bounds: tuple[int, int],
    capability: tuple[int, int], *, anew: bool = False,
) -> bytes:  # fmt: skip
    """Return a cubin with one kernel, compiled or, unless that is wanted anew, as it was kept."""
    name = entry_name(function)
    digest = digest_of(function, arguments, bounds, capability, toolkit())
    with global_compiler_lock:  # Numba's: whoever comes second finds what the first one made
        file = KernelFile(CACHE_DIR, f"{name}-{digest}.cubin")
        code = None if anew else file.read()
        if code is None:
            announce_compilation()
            try:
                code = compile_cubin(function, name, arguments, bounds, capability)
                file.write(code)
            finally:
                file.leave()
        return code


def entry_name(function: Callable[..., None]) -> str:
    """Return the name of a kernel in its machine code, as profilers show it."""
    return PREFIX + function.__name__


class Kernel:
    """A kernel, compiled for the types of its first launch."""

    __slots__ = ("_library", "bounds", "function", "handle")

    def __init__(self, function: Callable[..., None], bounds: tuple[int, int]) -> None:
        self.function = function
        self.bounds = bounds  # most threads of a block, and wanted blocks of a multiprocessor
        self.handle: Any = None  # the driver's, once it is loaded

    def load(self, arguments: tuple[Argument, ...], capability: tuple[int, int]) -> None:
        """Give the kernel to the driver; DeviceError if it cannot be compiled, or is not taken."""
        wanted = (self.function, arguments, self.bounds, capability)
        try:
            code = machine_code(*wanted)
            try:
                self._load(code)
            except DeviceError:  # what was kept is damaged
                self._load(machine_code(*wanted, anew=True))
        except DeviceError:
            raise
        except Exception as error:
            text = f"{type(error).__name__}: {clean(' '.join(str(error).split()), 200)}"
            what = f"kernel '{self.function.__name__}' cannot be compiled ({text})"
            raise DeviceError(what, path="--device cuda", hint=INSTALL_CUDA) from error

    def _load(self, code: bytes) -> None:
        from cuda.bindings import driver

        library = _check_answer(driver.cuLibraryLoadData(code, [], [], 0, [], [], 0))
        name = entry_name(self.function).encode()
        handle = _check_answer(driver.cuLibraryGetKernel(library, name))
        self._library, self.handle = library, driver.CUfunction(int(handle))


class Launcher:
    """Launches on one stream, given by the driver's handle; one thread at a time."""

    def __init__(self, stream: int) -> None:
        from cuda.bindings import driver

        self._launch, self._stream = driver.cuLaunchKernel, driver.CUstream(stream)
        self._words = (ctypes.c_uint64 * MOST_WORDS)()
        at = ctypes.addressof(self._words)
        # The driver takes the addresses of parameters, and copies as many as the kernel has.
        self._addresses = (ctypes.c_void_p * MOST_WORDS)(*range(at, at + WORD * MOST_WORDS, WORD))
        self._parameters = ctypes.addressof(self._addresses)
        self._bytes = memoryview(self._words).cast("B")

    def __call__(self, kernel: Kernel, grid: Any, threads: int, words: bytes) -> None:
        """Run a loaded kernel behind what the stream was asked for before.

        `words` are its arguments, 7 of an array, one of a number; a grid is blocks, or blocks in x
        and y. The driver refuses it, a DeviceError, if an earlier launch failed.
        """
        x, y = grid if isinstance(grid, tuple) else (grid, 1)
        self._bytes[: len(words)] = words
        (error,) = self._launch(
            kernel.handle, x, y, 1, threads, 1, 1, 0, self._stream, self._parameters, 0
        )
        if error:
            what = f"the GPU does not launch '{kernel.function.__name__}' ({error.name})"
            raise DeviceError(what, path="--device cuda")


def array_words(address: int, count: int, item_bytes: int) -> bytes:
    """Return the words that a kernel of Numba takes for a flat array of so many elements."""
    return ARRAY.pack(0, 0, count, item_bytes, address, count, item_bytes)


def number_word(x: Any) -> bytes:
    """Return the word of an int, as int64, or of a number of NumPy's types."""
    word: bytes = INTEGER.pack(x) if isinstance(x, int) else x.tobytes().ljust(WORD, b"\0")
    return word


def _check_answer(answer: tuple[Any, ...]) -> Any:
    """Return what a call of the driver gave, or raise DeviceError."""
    error, *results = answer
    if error:
        raise DeviceError(f"the GPU's driver refuses a kernel ({error.name})", path="--device cuda")
    return results[0]
