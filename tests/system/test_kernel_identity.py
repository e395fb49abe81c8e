"""A kernel is told from others by its code and by all that this names."""

from typing import NamedTuple

import numpy as np
import pytest

from streammach.system.jit import ARRAY, _type_text, intrinsic, kernel
from streammach.system.kernel_identity import digest_of, identity

TEXT = """
def helper(x):
    {first}return x * N
def outer(x):
    {second}return helper(x) + rows.shape[0]
"""


def function_of(first="", second="", **names):
    """A function that calls another one, in a module of its own with some names."""
    space = {"N": 2, "rows": np.arange(3), "__name__": "streammach.a", **names}
    exec(TEXT.format(first=first, second=second), space)
    return space["outer"]


LEAVES = {
    "a docstring": {"second": '"""Add."""\n    '},
    "a docstring of what is called": {"first": '"""Multiply."""\n    '},
    "a comment": {"first": "# Twice.\n\n    "},
    "a name that is not there": {"M": 5},
}
CHANGES = {
    "a statement": {"second": "x = x + 1\n    "},
    "a statement of what is called": {"first": "x = x + 1\n    "},
    "a number": {"N": 3}, "its type": {"N": np.float32(2)}, "a number of an array": {
        "rows": np.array([0, 1, 3])}, "its shape": {"rows": np.arange(4)},
    "a slice, a constant from Python 3.14 on": {"rows": slice(0, 2)},
}  # fmt: skip


@pytest.mark.parametrize("edit", [*LEAVES, *CHANGES])
def test_an_edit_compiles_a_kernel_again_if_it_depends_on_it(edit):
    same = digest_of(function_of()) == digest_of(function_of(**(LEAVES | CHANGES)[edit]))
    assert same == (edit in LEAVES)


def made(number, other):
    def inner(values, n):
        values[n] = number + other(n)

    return inner


def one(x):
    return x + 1


def two(x):
    return x + 2


def test_functions_are_told_apart_by_what_they_hold():
    first = digest_of(made(1, one))
    assert first == digest_of(made(1, one))
    others = [made(2, one), made(1.0, one), made(np.float32(1), one), made(True, one), made(1, two)]
    assert len({digest_of(other) for other in others} | {first}) == 6


def test_what_cannot_be_told_from_others_is_refused():
    with pytest.raises(TypeError, match="holds object"):
        digest_of(made(object(), one))


def test_the_flags_of_a_kernel_tell_it_apart():
    kernels = [kernel()(one), kernel(fastmath=False)(one), kernel(allocates=True)(one)]
    assert len({digest_of(one) for one in kernels}) == 3


def test_an_instruction_is_told_apart_by_what_makes_it():
    def instruction(name):
        def code(builder, array):
            return builder.load(array, name=name)

        return intrinsic(None, ARRAY)(code)

    assert identity(instruction("a")) == identity(instruction("a"))
    assert identity(instruction("a")) != identity(instruction("b"))


def test_a_function_may_call_itself():
    def down(n):
        return down(n - 1) if n else 0

    assert digest_of(down) == digest_of(down)


def test_tuples_of_other_names_are_other_types():
    from numba import typeof

    class Two(NamedTuple):
        first: int
        second: int

    class Other(NamedTuple):
        second: int
        first: int

    Other.__name__ = Other.__qualname__ = "Two"
    assert _type_text(typeof(Two(1, 2))) != _type_text(typeof(Other(1, 2)))
