"""What tells a compiled kernel from others: its code, and all that this names, as a digest.

A function is told by its name, its bytecode without docstrings and lines, and what it names:
numbers, arrays, other kernels and what these name in turn. So an edit of a message or docstring
compiles nothing, and an edit of a kernel compiles it and those that call it.
"""

from __future__ import annotations

import dis
import functools
import hashlib
import re
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

PACKAGE = "streammach"
PLAIN = (type(None), bool, int, float, str, bytes, slice, np.generic, np.dtype, re.Pattern)
COMPILERS = ("numba", "llvmlite")  # whose types and values have a text that tells them apart
_under_way: list[FunctionType] = []  # functions that call themselves end here


def digest_of(*values: object) -> str:
    """Return 24 hexadecimal digits that tell values from others, or raise TypeError."""
    return hashlib.sha256(repr([identity(value) for value in values]).encode()).hexdigest()[:24]


def identity(value: Any) -> Any:
    """Return what tells a value from others: numbers and texts, alone or in tuples."""
    kind = type(value)
    if hasattr(value, "py_func"):  # a compiled function
        return "kernel", function_digest(value.py_func), identity(value.targetoptions)
    if hasattr(value, "_defn"):  # an instruction
        return "instruction", function_digest(value._defn)
    if hasattr(value, "__wrapped__"):  # a function that remembers its results
        return identity(value.__wrapped__)
    if isinstance(value, PLAIN):
        return kind.__name__, repr(value)
    if isinstance(value, (tuple, list)):
        return kind.__name__, *map(identity, value)
    if isinstance(value, (set, frozenset)):
        return "set", *sorted(map(repr, map(identity, value)))
    if isinstance(value, dict):
        return "dict", *sorted((repr(identity(name)), identity(x)) for name, x in value.items())
    if isinstance(value, np.ndarray):
        return "array", str(value.dtype), value.shape, value.tobytes()
    if isinstance(value, ModuleType):
        return "module", value.__name__
    if isinstance(value, FunctionType) and _is_own(value):
        return "function", function_digest(value)
    if isinstance(value, (type, np.ufunc)) or callable(value):
        name = getattr(value, "__qualname__", getattr(value, "__name__", ""))
        if name:
            return "name", getattr(value, "__module__", ""), name, getattr(value, "_fields", ())
    if kind.__module__.partition(".")[0] in COMPILERS:
        return kind.__name__, repr(value)
    raise TypeError(f"a kernel holds {kind.__name__}: it cannot be told from others")


@functools.cache
def function_digest(function: FunctionType) -> str:
    """Return the digest of a function and of all that it names."""
    if function in _under_way:
        return function.__qualname__
    _under_way.append(function)
    try:
        code, space = function.__code__, function.__globals__
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
        codes = list(_codes_of(code))
        loaded = [x for one in codes for x in one.co_consts[not _loads_first(one) :]]
        constants = [x for x in loaded if not isinstance(x, CodeType)]
        names = dict.fromkeys(name for one in codes for name in one.co_names)
        named = {name: space[name] for name in names if name in space}
        for module in [x for x in named.values() if isinstance(x, ModuleType) and _is_own(x)]:
            there = vars(module)
            named |= {f"{module.__name__}.{n}": there[n] for n in names if n in there}
        return digest_of(
            function.__module__, function.__qualname__,  # by which compiled code names it
            [(one.co_code, one.co_varnames[: one.co_argcount]) for one in codes], constants,
            list(names), cells, function.__defaults__, named,
        )  # fmt: skip
    finally:
        _under_way.pop()


def _codes_of(code: CodeType) -> Iterator[CodeType]:
    """Yield a function's code, and that of the functions within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes_of(constant)


def _loads_first(code: CodeType) -> bool:
    """Return whether code loads the first of its constants: a docstring is never loaded."""
    pairs = zip(code.co_code[::2], code.co_code[1::2], strict=True)
    return any(place == 0 and operation in dis.hasconst for operation, place in pairs)


def _is_own(value: FunctionType | ModuleType) -> bool:
    """Return whether the text of a function or module is not fixed by the version of a library."""
    if isinstance(value, ModuleType):
        return value.__name__.partition(".")[0] == PACKAGE
    return value.__module__.partition(".")[0] not in ("numpy", *COMPILERS)
