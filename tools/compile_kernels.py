"""Compiles the kernels for processors of other machines; nothing of it can run here.

python -m tools.compile_kernels [TRIPLE=CPU ...]

Types of arguments are those for which this machine has kernels: run the tests first, with the same
NUMBA_CACHE_DIR. Each target is a triple of LLVM and a processor.
"""

from __future__ import annotations

import gc
import importlib
import os
import pickle
import pkgutil
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
from numba.core.caching import NullCache
from numba.core.codegen import JITCodeLibrary

import streammach
from streammach.system import jit, simd

TARGETS = ("aarch64-unknown-linux-gnu=generic", "arm64-apple-macosx11.0.0=apple-m1")
# How a file of machine code for 64 bits of ARM begins: ELF and its machine, Mach-O and its one.
STARTS = {
    "linux": (b"\x7fELF\2\1", 18, b"\xb7\0"),
    "apple": (b"\xcf\xfa\xed\xfe", 4, b"\x0c\0\0\1"),
}


def keep_as_linked() -> None:
    """Have kernels link Numba's runtime as it was: to make machine code of it here changes it."""
    usual = JITCodeLibrary._finalize_specific

    def finalize(library: Any) -> None:
        library._finalized = True
        library._shared_module = library._get_module_for_linking().clone()
        usual(library)

    JITCodeLibrary._finalize_specific = finalize


def all_kernels() -> list[Any]:
    """Return the kernels of all modules that can be imported here."""
    for module in pkgutil.walk_packages(streammach.__path__, "streammach."):
        if not module.name.endswith("__main__"):
            with suppress(ImportError):  # its library is not there
                importlib.import_module(module.name)
    found = [one for one in gc.get_objects() if isinstance(one, jit._Kernel)]
    return sorted(found, key=_place)


def _place(one: Any) -> str:
    return f"{one.py_func.__module__}.{one.py_func.__qualname__}"


def kept_types(kernels: list[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield each kernel with each of the types of arguments for which it is kept here."""
    places = defaultdict(list)
    for one in kernels:
        places[re.sub("[<>]", "", _place(one))].append(one)
    for file in sorted(Path(jit.CACHE_DIR or os.devnull).glob("*.nbc")):
        for one in places.get(file.name.rpartition("-")[0], ()):
            with suppress(ImportError, AttributeError):  # of a former version
                kept = pickle.loads(file.read_bytes())
                types = next(x.args for x in kept if hasattr(x, "return_type"))
                if one._cache._file(types, one.targetctx)._path == str(file):
                    yield one, types


def generic_module(one: Any, types: Any) -> tuple[str, bytes]:
    """Return a kernel with all that it calls, before it is optimised: its name, LLVM's bitcode."""
    piece = one.overloads.get(types)
    if piece is None:
        one.compile(types)
        piece = one.overloads[types]
    module = piece.library._final_module
    return piece.fndesc.llvm_func_name, module.as_bitcode()


def machine_code(name: str, bitcode: bytes, machine: Any) -> tuple[bytes, list[str]]:
    """Return the machine code for a target, and the names that it needs of other libraries."""
    module = llvm.parse_bitcode(bitcode)
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = options.slp_vectorization = True
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    module.verify()
    assert not module.get_function(name).is_declaration
    needed = [x.name for x in module.functions if x.is_declaration]
    return machine.emit_object(module), [x for x in needed if not x.startswith("llvm.")]


def in_child(work: Callable[[], list[str]]) -> str:
    """Return what a function says in a forked process, which LLVM may end; or how that ended."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = " ".join(work())
        except BaseException as error:
            said = f"error: {type(error).__name__}: {error}"
        os.write(writer, said.encode()[:4000])
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as file:
        said = file.read().decode()
    status = os.waitpid(child, 0)[1]
    return f"error: LLVM ended with {status}" if status else said


def compile_for(target: str, modules: list[tuple[str, bytes]]) -> tuple[list[str], set[str]]:
    """Compile kernels for a target; return lines of those that fail, and the names they need."""
    triple, _, cpu = target.partition("=")
    machine = llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, opt=3)
    start, at, wanted = STARTS["apple" if "apple" in triple else "linux"]

    def work(name: str, bitcode: bytes) -> list[str]:
        code, needed = machine_code(name, bitcode, machine)
        assert (code[: len(start)], code[at : at + len(wanted)]) == (start, wanted), code[:24]
        return needed

    failed, needed = [], set[str]()
    for name, bitcode in modules:
        said = in_child(lambda name=name, bitcode=bitcode: work(name, bitcode))  # type: ignore[misc]
        if said.startswith("error"):
            failed.append(f"{name}: {said}")
        else:
            needed.update(said.split())
    return failed, needed


def main(targets: list[str]) -> int:
    """Compile all kernels for all targets; return how many failed, at most 1 a target."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    keep_as_linked()
    kernels = all_kernels()
    wanted = list(kept_types(kernels))
    simd.EXPANDS = False  # an instruction that this machine may have
    for one in kernels:  # nothing of it is kept, nor made machine code of for this machine
        one._cache = NullCache()
        one.targetoptions["no_cpython_wrapper"] = True
    modules = [generic_module(one, types) for one, types in wanted]
    inlined = [one for one in kernels if one.targetoptions["inline"] == "always"]
    missed = [_place(one) for one in kernels if not one.overloads and one not in inlined]
    print(f"{len(kernels)} kernels, {len(inlined)} of them within their callers")
    print(*(f"not compiled here yet: {place}" for place in missed), sep="\n", flush=True)
    total = 0
    for target in targets:
        failed, needed = compile_for(target, modules)
        n_good = len(modules) - len(failed)
        print(f"{target}: {n_good} of {len(modules)} compile, and need", *sorted(needed))
        print(*failed, sep="\n", end="\n" if failed else "", flush=True)
        total += bool(failed)
    return total


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or list(TARGETS)))
