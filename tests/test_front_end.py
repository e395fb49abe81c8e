"""What Numba is made to remember is what it would find out again."""

import operator
import subprocess
import sys

import numpy as np
import pytest
from numba.core import types
from numba.core.compiler import Flags
from numba.core.registry import cpu_target
from numba.core.targetconfig import ConfigStack

from streammach.front_end import KEEPS
from streammach.jit import kernel


@kernel()
def halves(x):
    for i in range(len(x)):
        x[i] = x[i] / 2


def flags(**options):
    made = Flags()
    for name, value in options.items():
        setattr(made, name, value)
    return made


def test_options_are_equal_by_what_they_say():
    assert flags() == flags(enable_ssa=True)  # its default
    assert hash(flags()) == hash(flags(nrt=True))
    assert flags(nrt=True) != flags()
    assert flags(nrt=True).values() == {**flags().values(), "nrt": True}


def test_a_choice_is_remembered_for_types_and_options():
    halves(np.ones(2))  # Numba knows its functions now
    context = cpu_target.typing_context
    function = context.resolve_value_type(operator.add)
    given = (types.int64, types.float32)
    first = function.get_call_type(context, given, {})
    key = function.get_impl_key(first)
    function._impl_keys.clear()  # which another choice may have written
    assert function.get_call_type(context, given, {}) is first
    assert function.get_impl_key(first) is key
    kept = len(vars(function)[KEEPS])
    with ConfigStack().enter(flags(fastmath=True)):
        assert function.get_call_type(context, given, {}) == first
    assert len(vars(function)[KEEPS]) == kept + 1


def test_linear_algebra_is_imported_by_those_who_use_it():
    pytest.importorskip("scipy")
    code = (
        "import sys, numba, numpy as np\n"
        "from tests.test_front_end import halves\n"
        "halves(np.ones(2))\n"
        "assert 'scipy.linalg' not in sys.modules\n"
        "assert numba.njit(lambda a, b: np.dot(a, b))(np.ones(3), np.ones(3)) == 3.0\n"
        "assert 'scipy.linalg' in sys.modules"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)
