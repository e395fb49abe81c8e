"""What kernels alone call is optimised as a part of its callers, compiled just now or kept."""

import os
import subprocess
import sys

import pytest

from streammach.system import jit
from streammach.system.jit import kernel
from streammach.system.kernel_passes import KernelPiece

KERNELS = """
from streammach.system.jit import kernel


@kernel(fastmath=False, inner=True, inline={inline})
def scaled(x, n):
    return x * n


@kernel(fastmath=False, inner=True)
def total(numbers, n):
    found = 0.0
    for x in numbers:
        found += scaled(x, n)
    return found


@kernel(fastmath=False)
def first(numbers):
    return total(numbers, 3.0) + scaled(numbers[0], 0.5)


@kernel(fastmath=False)
def second(numbers):
    return total(numbers, 0.1) - scaled(numbers[-1], 7.0)
"""
CALL = """
import sys
import numpy as np
import inlined, kernels
numbers = np.random.default_rng(0).random(99)
for module in (inlined, kernels):
    for name in sys.argv[1:]:
        print(module.__name__, name, getattr(module, name)(numbers).hex())
    for name in ("scaled", "total", "first", "second"):
        print(module.__name__, "loaded", name, sum(getattr(module, name).stats.cache_hits.values()))
"""


@pytest.fixture
def unkept(monkeypatch):
    """Let kernels that are made here be compiled, though an earlier run kept them."""
    monkeypatch.setattr(jit, "CACHE_DIR", None)


@pytest.mark.usefixtures("unkept")
@pytest.mark.parametrize("inner", [False, True])
def test_what_kernels_alone_call_has_no_machine_code(inner):
    @kernel(inner=inner)
    def doubled(x):
        return 2 * x

    @kernel()
    def more(x):
        return doubled(x) + 1

    assert more(3) == 7
    (compiled,) = doubled.overloads.values()
    (caller,) = more.overloads.values()
    assert isinstance(compiled.library, KernelPiece) == inner
    assert not isinstance(caller.library, KernelPiece)
    engine = compiled.library.codegen._engine
    assert engine.is_symbol_defined(compiled.fndesc.llvm_func_name) != inner


def test_pieces_that_another_process_kept_give_the_same(tmp_path):
    (tmp_path / "kernels.py").write_text(KERNELS.format(inline=False))
    (tmp_path / "inlined.py").write_text(KERNELS.format(inline=True))

    def said(cache, *names):
        paths = os.pathsep.join([str(tmp_path), *sys.path])
        env = {**os.environ, "PYTHONPATH": paths, "NUMBA_CACHE_DIR": str(tmp_path / cache)}
        done = subprocess.run(
            [sys.executable, "-c", CALL, *names], env=env, check=True, capture_output=True
        )
        return dict(line.rsplit(" ", 1) for line in done.stdout.decode().splitlines())

    alone, both = said("one", "second"), said("two", "first", "second")
    said("three", "first")
    after = said("three", "second")  # its pieces are kept, and it is not
    again = said("three", "second")
    for module in ("kernels", "inlined"):
        loaded = [after[f"{module} loaded {name}"] for name in ("total", "second")]
        assert loaded == ["1", "0"]
        answers = [found[f"{module} second"] for found in (alone, both, after, again)]
        assert len(set(answers)) == 1
