"""Machine code of kernels: compiled by Numba and NVVM, linked by nvJitLink, kept between processes.

A kernel is compiled without a word to the driver, for the argument types of its first launch. Its
code is kept in the folder of this state of the sources (:mod:`streammach.kernel_cache`), under what
else decides it: the kernel with the sizes that it was made for, types, bounds, compute capability,
and the parts of the toolkit.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import types as python_types
import warnings
from collections.abc import Callable
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from streammach.files.writing import write_atomic
from streammach.jit import CACHE_DIR, announce_compilation

INSTALL = 'Run: pip install "streammach[gpu-cuda12]" (gpu-cuda13 for driver 580 or newer).'
ENTRY = re.compile(r"\.entry (\S+)\(")
NUMBERS = (int, float, np.generic)
PREFIX = "streammach_"  # of the names of kernels in machine code
Argument = tuple[bool, str]  # whether it is an array, and the type of an element or of the number


@lru_cache
def toolkit() -> str:
    """Return what is known of the parts of the CUDA toolkit that make machine code.

    Raises
    ------
    Exception
        Whatever their bindings raise where NVVM, libdevice or nvJitLink is missing.
    """
    from cuda.bindings import nvjitlink
    from numba.cuda.cuda_paths import get_cuda_paths

    paths, found = get_cuda_paths(), [f"numba-cuda {version('numba-cuda')}"]
    for name in ("nvvm", "libdevice"):
        if not paths[name].info:
            raise FileNotFoundError(f"{name} is missing")
        file = Path(paths[name].info)
        facts = file.stat()
        found.append(f"{file} {facts.st_size} {facts.st_mtime_ns}")
    return ", ".join([*found, f"nvJitLink {nvjitlink.version()}"])


def machine_code(
    function: Callable[..., None],
    arguments: tuple[Argument, ...],
    bounds: tuple[int, int],
    capability: tuple[int, int],
    *,
    anew: bool = False,
) -> bytes:
    """Return a kernel's machine code, compiled or as it was kept.

    Parameters
    ----------
    function : callable
        The kernel.
    arguments : tuple of (bool, str)
        Of each argument whether it is a flat array, and its type, ``float32`` for example.
    bounds : tuple of int
        Most threads of a block; blocks that a multiprocessor should have.
    capability : tuple of int
        Compute capability.
    anew : bool
        Whether what was kept cannot be used.

    Returns
    -------
    bytes
        A cubin with one kernel, called as :func:`entry_name` says.
    """
    wanted = (identity(function), arguments, bounds, capability, toolkit())
    digest = hashlib.sha256(repr(wanted).encode()).hexdigest()[:24]
    file = Path(CACHE_DIR or ".") / f"{entry_name(function)}-{digest}.cubin"
    if CACHE_DIR is not None and not anew:
        with contextlib.suppress(OSError):
            return file.read_bytes()
    announce_compilation()
    code = _compiled(function, arguments, bounds, capability)
    if CACHE_DIR is not None:
        with contextlib.suppress(Exception):  # a full disk for example: it is compiled again
            write_atomic(file, code)
    return code


def entry_name(function: Callable[..., None]) -> str:
    """Return the name of a kernel in its machine code, as profilers show it."""
    return PREFIX + function.__name__


def identity(value: Any) -> Any:
    """Return what tells a function from others made by the same source: text of plain values.

    Parameters
    ----------
    value : object
        A function, a device function, or a number, text or tuple that a function holds.

    Raises
    ------
    TypeError
        If a function holds something whose text might not tell it from others.
    """
    function = getattr(value, "py_func", value)
    if isinstance(function, python_types.FunctionType):
        code = function.__code__
        held = [identity(cell.cell_contents) for cell in function.__closure__ or ()]
        named = {name: function.__globals__.get(name) for name in code.co_names}
        numbers = {n: identity(x) for n, x in named.items() if isinstance(x, NUMBERS)}
        constants = [c for c in code.co_consts if not isinstance(c, python_types.CodeType)]
        names = (function.__module__, function.__qualname__, *code.co_names)
        return ("function", names, code.co_code.hex(), repr(constants), held, numbers)
    if isinstance(value, tuple):
        return tuple(map(identity, value))
    if value is None or isinstance(value, (*NUMBERS, str)):
        return (type(value).__name__, repr(value))
    raise TypeError(f"a kernel holds {type(value).__name__}: it cannot be told from others")


def _compiled(
    function: Callable[..., None],
    arguments: tuple[Argument, ...],
    bounds: tuple[int, int],
    capability: tuple[int, int],
) -> bytes:
    from cuda.core import Linker, LinkerOptions, ObjectCode
    from numba import types

    from streammach.backends.cuda.target import cuda

    kinds = [
        types.Array(getattr(types, name), 1, "C") if is_array else getattr(types, name)
        for is_array, name in arguments
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ptx, _ = cuda.compile(
            function, types.void(*kinds), device=False, abi="numba", cc=capability,
            launch_bounds=bounds,
        )  # fmt: skip
        (entry,) = ENTRY.findall(ptx)
        ptx = ptx.replace(entry, entry_name(function))
        options = LinkerOptions(arch=f"sm_{capability[0]}{capability[1]}")
        linker = Linker(ObjectCode.from_ptx(ptx.encode()), options=options)
        code: bytes = linker.link("cubin").code
    return code
