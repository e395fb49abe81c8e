"""Numba's front end, quicker: what it finds out again and again is remembered.

Two thirds of the time to compile are spent in Python. A third of that is the choice of functions
for types, 7,000 times in a conversion, of which 900 differ, and comparing options meanwhile; a
tenth says after each of 20 passes which variables are alive, which the last one alone reads.
What is compiled stays the same to the byte.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from numba.core.cpu import CPUContext
from numba.core.postproc import PostProcessor, VariableLifetime
from numba.core.targetconfig import ConfigStack, TargetConfig
from numba.core.transforms import canonicalize_cfg
from numba.core.types.functions import BaseFunction

KEEPS = "_streammach_types"  # where a function keeps its signatures by the types of arguments


def quicken() -> None:
    """Have Numba remember, in this process; a second call does nothing."""
    if hasattr(BaseFunction, KEEPS):
        return
    chosen, loaded = BaseFunction.get_call_type, CPUContext.load_additional_registries
    for owner, name, value in (
        (BaseFunction, KEEPS, None),
        (BaseFunction, "get_call_type", _remembers(chosen)),
        (TargetConfig, "values", _values),
        (TargetConfig, "__eq__", _equal),
        (TargetConfig, "__hash__", _hash),
        (CPUContext, "load_additional_registries", _spares(loaded)),
        (PostProcessor, "run", _puts_off(PostProcessor.run)),
    ):
        setattr(owner, name, value)


def _values(self: Any) -> dict[str, Any]:
    """Return all options by their names: Numba asks a property for each."""
    defaults = {name: option.default for name, option in self.options.items()}
    return {**defaults, **self._values}


def _equal(self: Any, other: object) -> Any:
    if not isinstance(other, TargetConfig):
        return NotImplemented
    return self._values == other._values or _values(self) == _values(other)


def _hash(self: Any) -> int:
    return hash(type(self))  # Numba sorts and hashes the names, which are the same for a type


def _remembers(choose: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that chooses an implementation once for the same types and options."""

    def get_call_type(self: Any, context: Any, args: Any, kws: Any) -> Any:
        if kws:
            return choose(self, context, args, kws)
        signatures = vars(self).setdefault(KEEPS, {})
        options = ConfigStack.top_or_none()
        key = context, tuple(args), options and options.copy()
        if key not in signatures:
            signature = choose(self, context, args, kws)
            signatures[key] = signature, self.get_impl_key(signature)
        signature, self._impl_keys[signature.args] = signatures[key]
        return signature

    return get_call_type


def _spares(load: Callable[[Any], None]) -> Callable[[Any], None]:
    """Return a method that loads Numba's functions without all of SciPy's linear algebra."""

    def load_additional_registries(self: Any) -> None:
        if "numba.np.arraymath" not in sys.modules:
            from numba.np import linalg

            ask, linalg.ensure_blas = linalg.ensure_blas, lambda: None
            try:
                from numba.np import arraymath  # asks, and would import it

                arraymath._HAVE_BLAS = find_spec("scipy") is not None
            finally:
                linalg.ensure_blas = ask
        load(self)

    return load_additional_registries


def _puts_off(run: Callable[..., None]) -> Callable[..., None]:
    """Return a method that says where variables are alive only where that is read."""

    def run_once(self: Any, emit_dels: bool = False, extend_lifetimes: bool = False) -> None:
        code = self.func_ir
        if emit_dels or code.is_generator:
            run(self, emit_dels, extend_lifetimes)
            return
        code.blocks = canonicalize_cfg(code.blocks)
        code.variable_lifetime, code.generator_info = VariableLifetime(code.blocks), None

    return run_once
