"""Small work in a process beside the work that it is like: it compiles what that will call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from streammach.errors import DiskError
from streammach.files.folders import temporary_folder
from streammach.jit import CACHE_DIR, compiler_bytes
from streammach.machine import cores
from streammach.processes import beside


@contextmanager
def compiler(function: str, kind: tuple[object, ...], *said: object, fits: bool) -> Iterator[None]:
    """Have a function compile kernels for a kind of work in a process beside a block.

    It is called with a folder, the kind, and what is `said`, if it `fits`, a core is free and it
    did not end for that kind before: ``keep_compiled("rehearsal", *kind)`` remembers that.
    """
    needed = CACHE_DIR is not None and compiler_bytes("rehearsal", *kind)
    with ExitStack() as stack:
        if fits and needed and cores() > 1:
            with suppress(DiskError):  # without room for it the work compiles for itself
                folder = stack.enter_context(temporary_folder())
                stack.enter_context(beside(function, str(folder), kind, *said))
        yield
