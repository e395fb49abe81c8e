"""The CUDA backend compiled and launched by the real libraries, below a driver that does nothing.

Needs numba-cuda, NVVM and nvJitLink (tox -e cudafake) and a C compiler, and no card.
"""

import json
from collections import Counter

import numpy as np
import pytest

from tests.backends.fake_driver import machine as machines
from tests.backends.fake_driver.commands import MODELS
from tests.builders import TinyData

if why := machines.lacking():
    pytest.skip(why, allow_module_level=True)


MOST_SHARED = 48 << 10  # bytes of a block that need not be asked for
MOST_REGISTERS = 65536  # of a block
WORKS = [
    "steps adagrad", "steps adam", "steps sgd", "predictions 0", "predictions 1", "predictions 2",
    "dense", "lists",
]  # fmt: skip


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    return machines.Machine(tmp_path_factory.mktemp("machine"))


@pytest.fixture(scope="module")
def works(machine):
    """What each work asked for, and its launches: one process does all, since each loads much."""
    found, launches = machine.works(*WORKS), machine.launches()
    assert "count_up" in launches[0].kernel  # whether the card works
    assert len(launches) == sum(len(work["asked"]) for work in found.values())
    after = iter(launches)
    return {name: [(a, next(after)) for a in work["asked"]] for name, work in found.items()}


@pytest.mark.timeout(900)  # the first compiles all kernels
@pytest.mark.parametrize("work", WORKS)
def test_every_launch_is_one_that_a_card_takes(works, work):
    assert works[work]
    for (name, words), launch in works[work]:
        assert launch.kernel == f"streammach_{name}"
        assert launch.n_params == words, name
        x, y, z = launch.block
        assert (y, z) == (1, 1)
        assert 1 <= x <= 1024
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
        sort = ["count_digits", "scatter_digits", "count_items", "place_items"]
        step = [*first, "forward", *sort, "backward", "backward", "sum_losses"]
        assert launches == step * sixteen
        assert calls["to the device"] == copies * sixteen
        assert calls["to the host"] == sixteen
        assert calls["bytes to the host"] == sixteen * 2 * 1024 * 4
        assert calls["wait"] == 0


def test_a_process_after_the_first_compiles_nothing(machine):
    machine.work("steps sgd")
    again = machine.work("steps sgd")
    assert again["asked"]
    assert again["compiled"] == []


LACKING = [  # what, facts of the driver, words of the line
    ("", {"driver": "none"}, "no NVIDIA driver that fits (cudaErrorInsufficientDriver"),
    ("", {"capability": 52}, "Card of the tests has compute capability 5.2"),
    ("", {"free": 1_000_000}, "the memory of Card of the tests is full, 1 MB are free"),
    ("", {"launch": 719}, "the GPU does not launch 'count_up' (CUDA_ERROR_LAUNCH_FAILED)"),
    ("", {"inert": 1}, "a first kernel made 41 + 1 = 41"),
    ("nvvm", {}, "NVVM, libdevice or nvJitLink is missing (DynamicLibNotFoundError"),
    ("libdevice", {}, "NVVM, libdevice or nvJitLink is missing (FileNotFoundError: libdevice"),
    ("nvJitLink", {}, "NVVM, libdevice or nvJitLink is missing (DynamicLibNotFoundError"),
    (
        "NumPy",
        {},
        "does not import (AttributeError: module 'numpy' has no attribute 'column_stack'",
    ),
]


@pytest.mark.parametrize(("part", "facts", "words"), LACKING)
def test_what_is_lacking_is_one_line_and_the_cpu_is_taken(machine, part, facts, words):
    found = machine.work(f"choices {part}", **facts)["found"]
    code, line = found["cuda"]
    assert code == 5
    assert words in line
    assert "\n" not in line
    device, why = found["auto"]
    assert device == "cpu"
    assert words in why


def test_a_machine_that_lacks_nothing_takes_the_card(machine):
    found = machine.work("choices")["found"]
    assert found["cuda"] == found["auto"]
    assert found["auto"] == ["cuda", "Card of the tests, compute capability 9.0"]


@pytest.fixture(scope="module")
def done(machine, tmp_path_factory):
    """How each call of a command, or of its like in Python, ended there."""
    folder = tmp_path_factory.mktemp("models")
    out, _ = machine.run("-m", "tests.backends.fake_driver.commands", str(folder))
    return json.loads(out)


@pytest.mark.faults  # a campaign: 80 calls
@pytest.mark.timeout(1800)  # the first trains and compiles for each kind of model
@pytest.mark.parametrize("kind", MODELS)
def test_what_the_card_cannot_do_goes_to_the_cpu_unless_it_is_asked_for(done, kind):
    able, calls = MODELS[kind][2], {n: v for n, v in done.items() if n.startswith(f"{kind}: ")}
    assert len(calls) >= 7
    for name, (code, where, said) in calls.items():
        call = name.partition(": ")[2]
        place = "cuda" if able else "cpu"
        refused = 0 if able else 5
        if "cuda" in call:
            assert (code, where) == (refused, [] if refused else ["cuda"]), (name, said)
            assert not refused or said.startswith("streammach: "), said
            continue
        assert code == 0, (name, said)
        also = {"cpu"} if call in ("add", "report") else set()  # what the CPU alone does
        assert place in where, (name, where)
        assert set(where) <= {place} | also, (name, where)


def test_the_hosts_memory_with_a_card_is_what_was_projected(machine, tmp_path):
    """What libraries take that compile and launch; a real driver's context is not seen here."""
    data = TinyData(tmp_path, np.random.default_rng(4)).store(n_rows=300)
    shape = ["--buckets", "8", "--repetitions", "4", "--counts", "off", "--threads", "1"]
    given = ["--epochs", "2", "--learning-rate", "0.1", "--transform", "binary", "--json"]
    command = ["-m", "streammach", "train", str(data), "--out", str(tmp_path / "run"), *shape]
    out, said = machine.run(*command, *given, "--device", "cuda", "--progress", "none")
    found = json.loads(out)
    assert found["peak_bytes"] <= found["projected_bytes"]
    assert "of memory, " not in said  # the warning of a peak above it
