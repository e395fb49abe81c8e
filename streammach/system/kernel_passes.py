"""How Numba compiles kernels: what kernels alone call is optimised as a part of its callers.

Numba optimises a function, makes machine code of it, and does both again in each of its callers,
which link all that they call. Nothing runs the machine code of a kernel that only kernels call.
"""

from __future__ import annotations

from typing import Any

from llvmlite.binding import parse_bitcode
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CR_FIELDS, CompilerBase, CompileResult, DefaultPassBuilder
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.typed_passes import NativeLowering, NopythonRewrites
from numba.core.untyped_passes import InlineClosureLikes

NOT_NEEDED = InlineClosureLikes, NopythonRewrites  # closures; expressions of whole arrays


class KernelPiece(JITCodeLibrary):  # type: ignore[misc]  # numba has no types
    """What callers of an inner kernel link: not optimised, without machine code."""

    # A Numba that has other names for these optimises it and makes machine code, as it does by
    # default: time is lost, and nothing else.

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    @classmethod
    def of_bitcode(cls, codegen: Any, name: str, bitcode: bytes) -> Any:
        """Return a piece that was kept."""
        piece = cls(codegen, name)
        piece._final_module = parse_bitcode(bitcode)
        piece._finalized = True
        return piece


def reduce_piece(compiled: Any) -> Any:
    """Return what is kept of an inner kernel: a piece, and its types."""
    compiled.fndesc.typemap = compiled.fndesc.calltypes = None  # which nobody reads any more
    return compiled.library.serialize_using_bitcode(), compiled.fndesc, compiled.signature


def rebuild_piece(target_context: Any, payload: Any) -> Any:
    """Return the inner kernel that was kept."""
    (name, _, bitcode), fndesc, signature = payload
    facts = dict.fromkeys(CR_FIELDS) | {
        "target_context": target_context, "typing_context": target_context.typing_context,
        "library": KernelPiece.of_bitcode(target_context.codegen(), name, bitcode),
        "entry_point": _key(), "fndesc": fndesc, "signature": signature, "objectmode": False,
    }  # fmt: skip
    return CompileResult(**facts)


def _key() -> Any:
    """Return what callers look a piece up by: a function in C, whichever it is."""
    return [].append


@register_pass(mutates_CFG=True, analysis_only=False)
class KernelLowering(NativeLowering):  # type: ignore[misc]
    """Numba's own, which makes a piece of what kernels alone call."""

    _name = "kernel_lowering"

    def run_pass(self, state: Any) -> Any:
        """Make LLVM's code of a kernel."""
        if not state.flags.no_cpython_wrapper:
            return super().run_pass(state)
        piece = KernelPiece(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library, state.flags.no_compile = piece, True
        changed = super().run_pass(state)
        piece.finalize()
        key = _key()
        state["cr"] = state["cr"]._replace(cfunc=key)
        state.targetctx.insert_user_function(key, state["cr"].fndesc, [piece])
        return changed


class KernelCompiler(CompilerBase):  # type: ignore[misc]
    """Numba's passes but for those that no kernel needs."""

    def define_pipelines(self) -> list[PassManager]:
        """Return one list of passes."""
        passes = PassManager("kernel")
        for kind, what in DefaultPassBuilder.define_nopython_pipeline(self.state).passes:
            if kind not in NOT_NEEDED:
                passes.add_pass(KernelLowering if kind is NativeLowering else kind, what)
        passes.finalize()
        return [passes]
