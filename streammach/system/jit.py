"""The one decorator that compiles kernels.

Numba's own ``cache=True`` stamps only the file of the function that is called: when a function in
another file changes, the old body is served. Here the file of compiled code is named by the digest
of all that a kernel depends on.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import os
import pickle
import re
import sys
from collections.abc import Callable
from functools import cache, wraps
from inspect import getsource, isfunction
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba import types
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.compiler_lock import global_compiler_lock
from numba.core.event import Event, Listener, register
from numba.core.registry import CPUDispatcher
from numba.core.serialize import dumps
from numba.extending import intrinsic as numba_intrinsic
from numpy.typing import NDArray

from streammach.system import kernel_passes
from streammach.system.kernel_cache import KernelFile, cache_folder
from streammach.system.kernel_identity import digest_of
from streammach.system.kernel_passes import KernelCompiler, rebuild_piece, reduce_piece
from streammach.system.linux import at_fork

F = TypeVar("F", bound=Callable[..., Any])
Array = NDArray[Any]  # an array argument of a kernel: its docstring gives shape and type
ARRAY: Any = None  # a kind of argument of an intrinsic: an array of any type
Number = Any  # a scalar argument of a kernel that is no Python int or bool, float32 for example

# Sums may be reordered and multiplications fused, so that loops vectorise; without "nnan" and "nsz"
# the search for a maximum stays scalar (measured: twice the time). A run that diverges is therefore
# detected outside compiled code, by losses and weights that are not finite.
FASTMATH = {"contract", "reassoc", "nsz", "nnan", "arcp"}
CODE_BYTES = 265_000_000  # measured: 245 MB of Python, libraries and kernels that are loaded
LISTS_CODE_BYTES = 25_000_000  # more: both losses of rows with lists of labels, their metrics
# That a process takes for good in which kernels are compiled, measured: conversions 121 MB,
# predictions 105, evaluations 132; trainings 38 to 191.
COMPILER_BYTES, TRAINING_COMPILER_BYTES = 150_000_000, 200_000_000
KERNEL_BYTES = 36_000_000  # more, while the largest kernel is compiled: 34 MB were measured
COMPILING = "compiling kernels; later runs load them"


if numba.config.DISABLE_JIT:
    from streammach.system.errors import UsageError  # only where it is raised

    raise UsageError(
        "kernels are not compiled where NUMBA_DISABLE_JIT is set, and do nothing then",
        hint="Run it without: unset NUMBA_DISABLE_JIT.",
    )
_FOLDER = cache_folder(numba.config.CACHE_DIR)
CACHE_DIR = None if _FOLDER is None else str(_FOLDER)
# Who makes machine code of kernels.
VERSIONS = numba.__version__, sys.implementation.cache_tag, getsource(kernel_passes)


class _Compilations(Listener):  # type: ignore[misc]  # numba has no types
    """Tells of the first kernel that is compiled rather than loaded, and asks between two kernels.

    While one is compiled Python looks for no cycles: they take a tenth of its time, and there is
    little to find. A kernel that is compiled compiles those that it calls; a lock is held.
    """

    tell: Callable[[str], None] | None = None
    between: Callable[[], None] | None = None  # called where another one is kept already
    _told = False
    _depth, _collects, _kept = 0, False, False

    def announce(self, text: str = COMPILING) -> None:
        """Tell, unless that was told."""
        if self.tell is not None and not self._told:
            self._told = True
            self.tell(text)

    def on_start(self, event: Event) -> None:
        """Look for no cycles from now on; what was compiled before is kept."""
        if self.between is not None and self._kept:
            self.between()
        self.announce()
        if self._depth == 0:
            self._collects = gc.isenabled()
            gc.disable()
        self._depth += 1

    def on_end(self, event: Event) -> None:
        """Look for them as before."""
        self._depth -= 1
        self._kept = self._kept or isinstance(event.data["dispatcher"], _Kernel)
        if self._depth == 0 and self._collects:
            gc.enable()


_compilations = _Compilations()
register("numba:compile", _compilations)
# Tells that kernels will be compiled, in another process.
announce_compilation: Callable[..., None] = _compilations.announce


def on_first_compilation(tell: Callable[[str], None]) -> None:
    """Have `tell` called, once a process, when a kernel is compiled rather than loaded."""
    _compilations.tell = tell


def only_compile(between: Callable[[], None]) -> None:
    """Say that this process only compiles; have a function called before all kernels but one."""
    _compilations.between = between


def only_compiles() -> bool:
    """Return whether this process only compiles."""
    return _compilations.between is not None


def compiler_bytes(*kind: object, n_bytes: int = COMPILER_BYTES) -> int:
    """Return the bytes that compiling takes in work of a kind: 0 if it was done before."""
    mark = _mark(kind)
    return 0 if only_compiles() or (mark is not None and mark.exists()) else n_bytes


def remember_compiled_work(*kind: object) -> None:
    """Remember that the kernels for work of a kind are kept."""
    mark = _mark(kind)
    if mark is not None:
        with contextlib.suppress(OSError):
            mark.touch(mode=0o600)


def _mark(kind: tuple[object, ...]) -> Path | None:
    if CACHE_DIR is None:
        return None
    return Path(CACHE_DIR) / f"work-{digest_of(repr(kind), _package_digest())}"


@cache
def _package_digest() -> str:
    """Return the digest of the package's text: other kernels may be needed by another one."""
    files = sorted(Path(__file__).parents[1].rglob("*.py"))
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()


def kept_kernels() -> tuple[int, int]:
    """Return how many compiled kernels are kept, and their bytes on disk."""
    files = Path(CACHE_DIR or os.devnull).rglob("*")
    sizes = [file.stat().st_size for file in files if file.suffix in (".nbc", ".cubin")]
    return len(sizes), sum(sizes)


# A fork waits for a kernel that a thread compiles: a child could compile and load none otherwise.
at_fork(
    before=global_compiler_lock.acquire,
    after_in_parent=global_compiler_lock.release,
    after_in_child=global_compiler_lock.release,
)


def _with_room(function: Callable[[Any], Any], argument: object) -> Any:
    return function(argument)


# Python has its frames in pieces of 16 KB, and takes a new one from the system for each call across
# the end of a piece: half a million times while a training compiles. A frame of half a megabyte
# comes in a piece of twice its size, in which there is room for those of a compiler.
_with_room.__code__ = _with_room.__code__.replace(co_stacksize=66_000)


class _Kernel(CPUDispatcher):  # type: ignore[misc]  # numba has no types
    """A kernel that is compiled for types, and not once more for each literal in its callers."""

    def compile(self, sig: Any) -> Any:
        """Compile or load it for types of arguments."""
        return _with_room(super().compile, sig)

    def get_call_template(self, args: tuple[Any, ...], kws: dict[str, Any]) -> Any:
        """Return how a kernel calls it, which compiles it."""
        kws = {name: types.unliteral(kind) for name, kind in kws.items()}
        return super().get_call_template(tuple(map(types.unliteral, args)), kws)


class _Inner(_Kernel):
    """A kernel without a wrapper for Python, which Python would crash in."""

    def __call__(self, *arguments: object) -> None:
        raise TypeError(f"{self.__name__} is called by kernels alone")


def intrinsic(
    result: Any, *kinds: Any, maker: Any = numba_intrinsic
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Have kernels call what a function makes with LLVM's builder of the values of arguments.

    These have Numba's types `kinds`; of an array it gets a pointer to the first number. A function
    in place of a type makes it of those of the arguments. Kernels call the function without its
    first argument. `maker` is that of Numba, or of another compiler like it.
    """

    def of_code(code: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(code)
        def type_call(typing: Any, *given: Any) -> Any:
            def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                values = list(args)
                for i, own in enumerate(signature.args):
                    if kinds[i] is ARRAY:
                        values[i] = context.make_array(own)(context, builder, args[i]).data
                made = code(builder, *values)
                return context.get_dummy_value() if made is None else made

            own = [a if kind is ARRAY else kind for kind, a in zip(kinds, given, strict=True)]
            out, *own = (kind(*given) if isfunction(kind) else kind for kind in (result, *own))
            return out(*own), generate

        made: Callable[..., Any] = maker(type_call)
        return made

    return of_code


class _KernelCache(NullCache):  # type: ignore[misc]  # numba has no types
    """What Numba asks for compiled code of a kernel, and gives it to: a file a list of types."""

    def __init__(self, compiled: Any, *, inner: bool) -> None:
        self._kernel, self._inner = compiled, inner

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return what is kept for types of arguments, ready to be called; or None."""
        target_context.refresh()
        data = self._file(sig, target_context).read()
        if data is None:
            return None
        try:
            payload = pickle.loads(data)
        except (EOFError, pickle.UnpicklingError, ImportError, AttributeError):
            return None  # it is damaged, or another version had a type in another module
        if self._inner:
            return rebuild_piece(target_context, payload)
        return CompileResult._rebuild(target_context, *payload)

    def save_overload(self, sig: Any, cres: Any) -> None:
        """Keep what was compiled, but for what names places in this process's memory."""
        file = self._file(sig, cres.target_context)
        try:
            if not cres.library.has_dynamic_globals:
                file.write(dumps(reduce_piece(cres) if self._inner else cres._reduce()))
        finally:
            file.leave()

    def _file(self, sig: Any, target_context: Any) -> KernelFile:
        """Return the file for types of arguments, on this machine and with these libraries."""
        function = self._kernel.py_func
        digest = digest_of(
            self._kernel, repr([_type_text(kind) for kind in sig]),
            target_context.codegen().magic_tuple(), VERSIONS,
        )  # fmt: skip
        place = re.sub("[<>]", "", f"{function.__module__}.{function.__qualname__}")
        return KernelFile(CACHE_DIR, f"{place}-{digest}.nbc")


def _type_text(kind: Any) -> Any:
    """Return what tells a type of arguments from others: of tuples with names these, too."""
    return str(kind), getattr(kind, "fields", ()), [*map(_type_text, getattr(kind, "types", ()))]


def kernel(
    *, fastmath: bool = True, inline: bool = False, allocates: bool = False, inner: bool = False
) -> Callable[[F], F]:
    """Compile a function at its first call, without the GIL, cached between processes.

    What `allocates` arrays counts references, which takes time to compile; what is `inner` is
    called by kernels alone, and LLVM compiles it as a part of these. What is `inline` is compiled
    anew as a part of each of its callers, with their `fastmath`; if it is `inner`, too, types are
    inferred once for all of them: less time where they are long or many.
    """

    def compile_lazily(function: F) -> F:
        compiled: F = numba.njit(
            function,
            nogil=True,
            error_model="numpy",  # a division by zero gives infinity, it raises nothing
            fastmath=FASTMATH if fastmath else False,
            inline="always" if inline and not inner else "never",
            forceinline=inline and inner,
            _nrt=allocates,
            no_cfunc_wrapper=True,  # one more copy to compile, for callers in C
            no_cpython_wrapper=inner,
            pipeline_class=KernelCompiler,
        )
        if CACHE_DIR is not None:
            compiled._cache = _KernelCache(compiled, inner=inner)  # type: ignore[attr-defined]
        compiled.__class__ = _Inner if inner else _Kernel  # type: ignore[assignment]
        return compiled

    return compile_lazily
