"""The one decorator that compiles kernels.

Numba's own ``cache=True`` stamps only the file of the function that is called: when a function in
another file changes, the old body is served. Here the compiled code lies in a folder named by the
digest of all statements that a kernel can depend on, so an edit of one starts a new folder.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import inspect
import os
import re
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import CodeType
from typing import Any, TypeVar

import numba
from numba import types
from numba.core import caching
from numba.core.compiler_lock import global_compiler_lock
from numba.core.event import Event, Listener, register
from numba.core.registry import CPUDispatcher
from numba.extending import intrinsic as numba_intrinsic
from numpy.typing import NDArray

from streammach.kernel_cache import KernelFiles, cache_folder
from streammach.kernel_passes import KernelCompiler, PieceCache

F = TypeVar("F", bound=Callable[..., Any])
Array = NDArray[Any]  # an array argument of a kernel: its docstring gives shape and type
ARRAY: Any = None  # a kind of argument of an intrinsic: an array of any type
# Names the folders of kept kernels; older Numbas call it with an underscore.
LOCATOR = getattr(caching, "UserProvidedCacheLocator", None) or caching._UserProvidedCacheLocator
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
KERNEL_BYTES = 25_000_000  # more, while the largest kernel is compiled (measured)
COMPILING = "compiling kernels; later runs load them"


if numba.config.DISABLE_JIT:
    from streammach.errors import UsageError  # only where it is raised

    raise UsageError(
        "kernels are not compiled where NUMBA_DISABLE_JIT is set, and do nothing then",
        hint="Run it without: unset NUMBA_DISABLE_JIT.",
    )
_FOLDER = cache_folder(numba.config.CACHE_DIR, numba.__version__)
CACHE_DIR = None if _FOLDER is None else str(_FOLDER)


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
    return Path(CACHE_DIR) / f"work-{hashlib.sha256(repr(kind).encode()).hexdigest()[:16]}"


def kept_kernels() -> tuple[int, int]:
    """Return how many compiled kernels are kept, and their bytes on disk."""
    files = Path(CACHE_DIR or os.devnull).rglob("*")
    sizes = [file.stat().st_size for file in files if file.suffix in (".nbc", ".cubin")]
    return len(sizes), sum(sizes)


# A fork waits for a kernel that a thread compiles: a child could compile and load none otherwise.
os.register_at_fork(
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


def intrinsic(result: Any, *kinds: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Have kernels call what a function makes with LLVM's builder of the values of arguments.

    These have Numba's types `kinds`; of an array it gets a pointer to the first number. Kernels
    call the function without its first argument.
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

            own = (a if kind is ARRAY else kind for kind, a in zip(kinds, given, strict=True))
            return result(*own), generate

        found: Callable[..., Any] = numba_intrinsic(type_call)
        return found

    return of_code


def _keep_by_code(cache: Any, function: Callable[..., Any]) -> None:
    """Keep what is compiled of a function in private files.

    Those of the package have neither the number of a line nor its file's digest in their names: the
    folder stands for all that they depend on. Functions of one name differ in their code.
    """
    if not function.__module__.startswith("streammach."):
        cache._cache_file.__class__ = KernelFiles
        return
    code = function.__code__
    numbers = [x for x in code.co_consts if not isinstance(x, (str, CodeType))]
    digest = hashlib.sha256(repr((code.co_code, code.co_names, numbers)).encode()).hexdigest()[:16]
    place = re.sub("[<>]", "", f"{function.__module__}.{function.__qualname__}")
    name = f"{place}-{digest}.{sys.implementation.cache_tag}"
    cache._cache_file = KernelFiles(cache.cache_path, name, "")


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
        before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, CACHE_DIR or ""
        if CACHE_DIR is not None:  # Numba would make it as the umask says
            name = LOCATOR.get_suitable_cache_subpath(inspect.getfile(function))
            with contextlib.suppress(OSError):  # Numba finds another place, or none
                Path(CACHE_DIR, name).mkdir(mode=0o700, exist_ok=True)
        try:
            compiled: F = numba.njit(
                function,
                cache=CACHE_DIR is not None,
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
        finally:
            numba.config.CACHE_DIR = before
        if CACHE_DIR is not None:
            _keep_by_code(compiled._cache, function)  # type: ignore[attr-defined]
            if inner:
                compiled._cache._impl.__class__ = PieceCache  # type: ignore[attr-defined]
        compiled.__class__ = _Inner if inner else _Kernel  # type: ignore[assignment]
        return compiled

    return compile_lazily
