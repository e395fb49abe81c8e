"""Launches of kernels on a GPU: machine code is loaded once, arguments are copied as words.

Numba's own launch takes the host 50 to 77 microseconds, most of them for wrapping arguments that
were the same before (measured with a driver that does nothing). Here an array keeps the words that
a kernel of Numba takes for it, and a launch joins them and calls the driver.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from typing import Any

from streammach.backends.cuda.machine_code import INSTALL, Argument, entry_name, machine_code
from streammach.errors import DeviceError, clean

WORD = 8  # bytes of a parameter, the widest
MOST_WORDS = 256  # of the parameters of a kernel
ARRAY = struct.Struct("<7Q")


class Kernel:
    """A kernel, compiled for the types of its first launch.

    Parameters
    ----------
    function : callable
        The kernel.
    bounds : tuple of int
        Most threads of a block; blocks that a multiprocessor should have.

    Attributes
    ----------
    handle : object
        The driver's, once it is loaded.
    """

    __slots__ = ("_library", "bounds", "function", "handle")

    def __init__(self, function: Callable[..., None], bounds: tuple[int, int]) -> None:
        self.function, self.bounds = function, bounds
        self.handle: Any = None

    def load(self, arguments: tuple[Argument, ...], capability: tuple[int, int]) -> None:
        """Compile the kernel, or take what was kept, and give it to the driver.

        Parameters
        ----------
        arguments : tuple of (bool, str)
            Of each argument whether it is an array, and its type.
        capability : tuple of int
            Of the device.

        Raises
        ------
        DeviceError
            If it cannot be compiled, or the driver does not take it.
        """
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
            raise DeviceError(
                f"kernel '{self.function.__name__}' cannot be compiled ({text})",
                path="--device cuda", hint=INSTALL,
            ) from error  # fmt: skip

    def _load(self, code: bytes) -> None:
        from cuda.bindings import driver

        library = _done(driver.cuLibraryLoadData(code, [], [], 0, [], [], 0))
        name = entry_name(self.function).encode()
        handle = _done(driver.cuLibraryGetKernel(library, name))
        self._library, self.handle = library, driver.CUfunction(int(handle))


class Launcher:
    """Launches on one stream; one thread at a time.

    Parameters
    ----------
    stream : int
        The driver's handle of it.
    """

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

        Parameters
        ----------
        kernel : Kernel
            The kernel.
        grid : int or tuple of int
            Blocks, or blocks in x and y.
        threads : int
            Threads of a block.
        words : bytes
            Its arguments: 7 words of an array, one of a number.

        Raises
        ------
        DeviceError
            If the driver refuses, or an earlier launch failed.
        """
        x, y = grid if isinstance(grid, tuple) else (grid, 1)
        self._bytes[: len(words)] = words
        (error,) = self._launch(
            kernel.handle, x, y, 1, threads, 1, 1, 0, self._stream, self._parameters, 0
        )
        if error:
            raise DeviceError(
                f"the GPU does not launch '{kernel.function.__name__}' ({error.name})",
                path="--device cuda",
            )


def array_words(address: int, count: int, item_bytes: int) -> bytes:
    """Return the words that a kernel of Numba takes for a flat array of so many elements."""
    return ARRAY.pack(0, 0, count, item_bytes, address, count, item_bytes)


def number_word(x: Any) -> bytes:
    """Return the word of a number of NumPy's types."""
    word: bytes = x.tobytes().ljust(WORD, b"\0")
    return word


def _done(answer: tuple[Any, ...]) -> Any:
    """Return what a call of the driver gave, or raise DeviceError."""
    error, *found = answer
    if error:
        raise DeviceError(f"the GPU's driver refuses a kernel ({error.name})", path="--device cuda")
    return found[0]
