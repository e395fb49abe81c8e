"""Small work in another process, like work that is to be done: it compiles what that will call.

Where there is room for both it goes on beside the work. Where the compiler has no room beside the
data, it is over before the work takes memory.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module

from streammach.system.errors import DiskError, StreammachError
from streammach.system.files.folders import make_folder, temporary_folder
from streammach.system.jit import (  # fmt: skip
    CACHE_DIR,
    KERNEL_BYTES,
    announce_compilation,
    compiler_bytes,
    kept_kernels,
    only_compile,
    only_compiles,
    remember_compiled_work,
)
from streammach.system.linux import resident_bytes
from streammach.system.machine import cores
from streammach.system.processes import AGAIN, beside, run

FIRST = (
    "compiling kernels first, in another process: there is no room for that beside the data; "
    "later runs load them"
)


@contextmanager
def compiler(function: str, kind: tuple[object, ...], *said: object, fits: bool) -> Iterator[None]:
    """Have a function compile kernels for a kind of work in a process beside a block.

    It is called with a folder, the kind, and what is `said`, if it `fits`, a core is free and it
    did not end for that kind before: ``remember_compiled_work("rehearsal", *kind)`` says so.
    """
    needed = CACHE_DIR is not None and compiler_bytes("rehearsal", *kind)
    with ExitStack() as stack:
        if fits and needed and cores() > 1:
            with suppress(DiskError):  # without room for it the work compiles for itself
                folder = stack.enter_context(temporary_folder())
                make_folder(folder)
                stack.enter_context(beside(function, str(folder), kind, *said))
        yield


def compile_first(function: str, kind: tuple[object, ...], *said: object, most: int) -> bool:
    """Have a function compile kernels for a kind of work now; return whether they are kept.

    It is called as by :func:`compiler`, in processes that hold `most` bytes: each one ends before
    it holds more, and the next one loads what those before kept.
    """
    if CACHE_DIR is None or only_compiles():
        return False
    announce_compilation(FIRST)
    kept = -1
    with suppress(StreammachError, OSError), temporary_folder() as folder:
        while kept < (n := kept_kernels()[0]):  # another process would get no further
            kept, place = n, folder / str(n)
            make_folder(place)
            ended = run(
                f"{__name__}:compile_here", most, function, str(place), kind, *said,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            if ended != AGAIN:
                remember_compiled_work(*kind)
                return True
    return False


def compile_here(most: int, function: str, folder: str, *said: object) -> None:
    """Do the work of :func:`compile_first`, in a process of its own."""

    def end_where_full() -> None:
        if resident_bytes() + KERNEL_BYTES > most:
            os._exit(AGAIN)

    only_compile(end_where_full)
    module, _, name = function.partition(":")
    getattr(import_module(module), name)(folder, *said)
