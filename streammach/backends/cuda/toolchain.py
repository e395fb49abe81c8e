"""All that this package asks of numba-cuda: device functions, instructions, and machine code.

numba-cuda is maintained no further; what takes its place has to offer what is called here. Arrays
of four scalars, records and vector types are loaded word by word (``ld.global.f32``), and a signed
index costs a comparison and a selection; the instructions below give one each. In Numba's simulator
those of ``tests/simulator`` stand for them.
"""

from __future__ import annotations

import importlib
import re
import types as python_types
import warnings
from collections.abc import Callable
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from llvmlite import ir
from numba import types

from streammach.system.jit import ARRAY, Number, intrinsic
from streammach.system.kernel_identity import digest_of

F = TypeVar("F", bound=Callable[..., Any])
Argument = tuple[bool, str]  # whether it is an array, and the type of an element or of the number
ENTRY = re.compile(r"\.entry (\S+)\(")
ALL_LANES = 0xFFFFFFFF
GLOBAL = 1  # the address space of device memory
INT32 = ir.IntType(32)

with warnings.catch_warnings():  # of ages of libraries, which a user cannot change
    warnings.simplefilter("ignore")
    cuda: Any = importlib.import_module("numba.cuda")
    maker: Any = importlib.import_module("numba.cuda.extending").intrinsic
    if getattr(cuda, "implementation", None) == "NVIDIA":
        # Loaded by the first kernel; here what is amiss in it is said before any work begins.
        importlib.import_module("numba.cuda.np.arrayobj")


@lru_cache
def toolkit() -> str:
    """Return what is known of what makes machine code: parts of the CUDA toolkit, and their use.

    Their bindings raise anything where NVVM, libdevice or nvJitLink is missing.
    """
    from cuda.bindings import nvjitlink
    from numba.cuda.cuda_paths import get_cuda_paths

    paths, parts = get_cuda_paths(), [f"numba-cuda {version('numba-cuda')}"]
    for name in ("nvvm", "libdevice"):
        if not paths[name].info:
            raise FileNotFoundError(f"{name} is missing")
        file = Path(paths[name].info)
        facts = file.stat()
        parts.append(f"{file} {facts.st_size} {facts.st_mtime_ns}")
    return ", ".join([*parts, f"nvJitLink {nvjitlink.version()}", digest_of(compile_cubin)])


def compile_cubin(
    function: Callable[..., None], name: str, arguments: tuple[Argument, ...],
    bounds: tuple[int, int], capability: tuple[int, int],
) -> bytes:  # fmt: skip
    """Return machine code with one kernel of a name, for types of its arguments and a card."""
    from cuda.core import Linker, LinkerOptions, ObjectCode

    kinds = [
        types.Array(getattr(types, kind), 1, "C") if is_array else getattr(types, kind)
        for is_array, kind in arguments
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ptx, _ = cuda.compile(
            function, types.void(*kinds), device=False, abi="numba", cc=capability,
            launch_bounds=bounds,
        )  # fmt: skip
        (entry,) = ENTRY.findall(ptx)
        options = LinkerOptions(arch=f"sm_{capability[0]}{capability[1]}")
        linker = Linker(ObjectCode.from_ptx(ptx.replace(entry, name).encode()), options=options)
        code: bytes = linker.link("cubin").code
    return code


def device(function: F) -> F:
    """Make a function that kernels take in as if its body stood there."""
    # Any other device function asks the driver for the present GPU when it is typed.
    made: F = cuda.jit(device=True, inline="always")(function)
    return made


def as_device_function(function: F, **names: Any) -> F:
    """Make a device function of a body that the CPU compiles too, with some names replaced."""
    plain = getattr(function, "py_func", function)  # none where Numba is told not to compile
    copied = python_types.FunctionType(
        plain.__code__, {**plain.__globals__, **names}, plain.__name__, plain.__defaults__
    )
    return device(copied)  # type: ignore[return-value]


def element(array: Any, *others: Any) -> Any:
    """Return the type of an array's elements."""
    return array.dtype


@intrinsic(element, ARRAY, types.intp, maker=maker)
def get(builder: Any, data: Any, i: Any) -> Any:
    """Return ``a[i]``, 0 <= i."""
    return builder.load(builder.gep(data, [i]))


@intrinsic(types.void, ARRAY, types.intp, element, maker=maker)
def put(builder: Any, data: Any, i: Any, x: Any) -> None:
    """Write ``a[i] = x``, 0 <= i."""
    builder.store(x, builder.gep(data, [i]))


def _words_at(builder: Any, data: Any, i: Any, n_words: int) -> Any:
    """Return the address of some words in device memory, as one vector."""
    word = data.type.pointee
    address = builder.addrspacecast(builder.gep(data, [i]), ir.PointerType(word, GLOBAL))
    return builder.bitcast(address, ir.PointerType(ir.VectorType(word, n_words), GLOBAL))


def _words_of(n_words: int) -> Callable[..., Any]:
    return lambda array, *others: types.UniTuple(array.dtype, n_words)


def wide_get(n_words: int, *, constant: bool) -> Any:
    """Return a function of an array and a multiple of `n_words`: the words there."""

    @intrinsic(_words_of(n_words), ARRAY, types.intp, maker=maker)
    def load(builder: Any, data: Any, i: Any) -> Any:
        vector = builder.load(_words_at(builder, data, i, n_words), align=4 * n_words)
        if constant:  # no one writes it during the kernel: the read-only path
            vector.set_metadata("invariant.load", builder.module.add_metadata([]))
        out = ir.Constant(ir.ArrayType(data.type.pointee, n_words), ir.Undefined)
        for lane in range(n_words):
            out = builder.insert_value(out, builder.extract_element(vector, INT32(lane)), lane)
        return out

    return load


def wide_put(n_words: int) -> Any:
    """Return a function that writes so many words at a multiple of `n_words`."""

    @intrinsic(types.void, ARRAY, types.intp, _words_of(n_words), maker=maker)
    def store(builder: Any, data: Any, i: Any, words: Any) -> None:
        vector = ir.Constant(ir.VectorType(data.type.pointee, n_words), ir.Undefined)
        for lane in range(n_words):
            word = builder.extract_value(words, lane)
            vector = builder.insert_element(vector, word, INT32(lane))
        builder.store(vector, _words_at(builder, data, i, n_words), align=4 * n_words)

    return store


get4, get4_constant = wide_get(4, constant=False), wide_get(4, constant=True)
get2, get2_constant = wide_get(2, constant=False), wide_get(2, constant=True)
put4, put2 = wide_put(4), wide_put(2)


@intrinsic(types.uint32, types.float32, maker=maker)
def bits_of(builder: Any, x: Any) -> Any:
    """Return the bits of a float32."""
    return builder.bitcast(x, INT32)


@intrinsic(types.float32, types.uint32, maker=maker)
def float_of(builder: Any, bits: Any) -> Any:
    """Return the float32 of 32 bits."""
    return builder.bitcast(bits, ir.FloatType())


@device
def product(a: Number, b: Number) -> Any:
    """Return the lower 32 bits of a product."""
    return np.uint32(a * b)


@device
def warp_sum(x: Number) -> Any:
    """Return the sum over the warp, in the same order in every thread."""
    for distance in (16, 8, 4, 2, 1):
        x += cuda.shfl_xor_sync(ALL_LANES, x, distance)
    return x


@device
def warp_max(x: Number) -> Any:
    """Return the largest value of the warp."""
    for distance in (16, 8, 4, 2, 1):
        x = max(x, cuda.shfl_xor_sync(ALL_LANES, x, distance))
    return x


@device
def exchanged4(v: Any, distance: Number) -> Any:
    """Return the four numbers of the lane whose number differs by one bit, `distance`."""
    return (
        cuda.shfl_xor_sync(ALL_LANES, v[0], distance),
        cuda.shfl_xor_sync(ALL_LANES, v[1], distance),
        cuda.shfl_xor_sync(ALL_LANES, v[2], distance),
        cuda.shfl_xor_sync(ALL_LANES, v[3], distance),
    )


@device
def from_lane(x: Number, lane: Number) -> Any:
    """Return the number that a lane of the warp brings."""
    return cuda.shfl_sync(ALL_LANES, x, lane)


@device
def peers(x: Number, bits: Number) -> Any:
    """Return the lanes of the warp whose x, of so many bits, is the caller's: an int64 mask."""
    mask = np.int64(ALL_LANES)
    for bit in range(bits):
        mine = x >> bit & 1
        others = np.int64(cuda.ballot_sync(ALL_LANES, mine != 0))
        mask &= others if mine else ~others
    return mask


@device
def popc(mask: Number) -> Any:
    """Return how many lanes a mask has."""
    return np.int64(cuda.popc(mask))


@device
def first_lane(mask: Number) -> Any:
    """Return the first lane of a mask that has some."""
    return np.int32(cuda.ffs(mask)) - np.int32(1)
