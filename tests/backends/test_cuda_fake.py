"""The CUDA backend compiled and launched by the real libraries, below a driver that does nothing.

Needs numba-cuda, NVVM and nvJitLink (tox -e cudafake) and a C compiler, and no card.
"""

from collections import Counter

import pytest

from tests.backends.fake_driver import machine as machines

if why := machines.lacking():
    pytest.skip(why, allow_module_level=True)

MOST_SHARED = 48 << 10  # bytes of a block that need not be asked for
MOST_REGISTERS = 65536  # of a block


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    return machines.Machine(tmp_path_factory.mktemp("machine"))


@pytest.mark.parametrize("work", ["steps", "predictions", "dense", "lists"])
def test_every_launch_is_one_that_a_card_takes(machine, work):
    asked = machine.work(work)["asked"]
    launches = [launch for launch in machine.launches() if "count_up" not in launch.kernel]
    assert len(launches) == len(asked)
    for launch, (name, words) in zip(launches, asked, strict=True):
        assert name in launch.kernel
        assert launch.n_params == words, name
        x, y, z = launch.block
        assert (y, z) == (1, 1)
        assert 32 <= x <= 1024
        assert x * launch.registers <= MOST_REGISTERS
        assert launch.static_shared + launch.dynamic_shared <= MOST_SHARED
        assert 1 <= launch.grid[0] < 1 << 31
        assert launch.grid[2] == 1
        assert 1 <= launch.grid[1] < 1 << 16


def test_launches_and_copies_of_a_step_are_few(machine):
    found = machine.work("counts")["found"]
    sixteen = 16
    for rows, first, copies in (("sent", [], 6), ("kept", ["gather"], 2)):
        launches, calls = found[rows]["launches"], Counter(found[rows]["calls"])
        step = [*first, "forward", "mark", "place", "backward", "backward"]
        assert launches == step * sixteen
        assert calls["to the device"] == copies * sixteen
        assert calls["to the host"] == sixteen
        assert calls["argsort"] == sixteen
        assert calls["cumsum"] == 3 * sixteen
        assert calls["wait"] == 0
