"""What a refusal says is needed is the least that is accepted, and is not passed: cold and warm.

Commands over sizes of data, threads, and caches of kernels that are empty or kept. One more
command, or another kind of data, is a line of a table here.
"""

import functools
import itertools
import re

import numpy as np
import pytest

from streammach.system.machine import parse_size
from tests.builders import TinyData, measured

# Where kernels are compiled first, processes one after another may compile them for minutes.
pytestmark = pytest.mark.timeout(1800)

LITTLE = "120MB"  # less than any command takes
NEAR = 0.95  # of what is enough, which is refused
TRAINED = ("--epochs", "1", "--force")
COMMANDS = {
    "train": ("train", "{store}", "--out", "{folder}/again", *TRAINED),
    "shaped": ("train", "{store}", "--out", "{folder}/again", "--buckets", "32",
               "--repetitions", "4", *TRAINED),
    "convert": ("convert", "{rows}", "{folder}/again.zarr", "--force"),
    "plan": ("plan", "{store}"),
    "predict": ("predict", "{run}", "{rows}", "--out", "{folder}/best.tsv", "--force"),
    "predict store": ("predict", "{run}", "{store}", "--out", "{folder}/best.tsv", "--force"),
    "evaluate": ("evaluate", "{run}", "{rows}"),
    "evaluate store": ("evaluate", "{run}", "{store}"),
}  # fmt: skip


def few(folder, tiny):
    return tiny.text("few.vw", tiny.lines(2000, 100))


def many(folder, tiny):
    rows = (f"{line} |y y{i % 20_000}" for i, line in enumerate(tiny.lines(40_000, 3000)))
    return tiny.text("many.vw", list(rows))


def dense(folder, tiny):
    x = np.random.default_rng(0).random((3000, 40))
    rows = (" ".join(f"{j}:{v:.3f}" for j, v in enumerate(row, 1)) for row in x)
    return tiny.text("dense.svm", [f"{i % 97} {row}" for i, row in enumerate(rows)])


def table(folder, tiny):
    rows = (f"a word{i % 50} of many{i % 700},{i % 7},l{i % 80}" for i in range(5000))
    return tiny.text("table.csv", ["said,kind,label", *rows])


SIZES = {one.__name__: one for one in (few, many, dense, table)}
CELLS = list(itertools.product(COMMANDS, SIZES, (2, 1), ("warm", "cold")))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The rows, a store and a run of a size, which are made at the first call, and a folder."""

    @functools.cache
    def made(size):
        folder = tmp_path_factory.mktemp(size)
        rows = SIZES[size](folder, TinyData(folder, np.random.default_rng(0)))
        store, run = folder / "kept.zarr", folder / "run"
        for command in (
            ("convert", rows, store), ("train", store, "--out", run, "--memory", "2GB", *TRAINED)
        ):  # fmt: skip
            _, done = measured(*command)
            assert done.returncode == 0, done.stderr
        return {"rows": rows, "store": store, "run": run, "folder": folder}

    return made


@pytest.mark.parametrize(
    ("command", "size", "threads", "kept"), CELLS, ids=["-".join(map(str, one)) for one in CELLS]
)
def test_a_refusal_names_the_least_that_is_enough(
    data, tmp_path, record_property, command, size, threads, kept
):
    words = [word.format(**data(size)) for word in COMMANDS[command]]
    words += () if command == "plan" else ("--threads", threads)
    _, done = measured(*words, "--memory", LITTLE)
    assert done.returncode == 6, done.stderr
    figure = re.findall(r"use --memory (\S+) or more", done.stderr, re.IGNORECASE)[-1]
    empty = {"NUMBA_CACHE_DIR": str(tmp_path)} if kept == "cold" else {}
    peak, done = measured(*words, "--memory", figure, **empty)
    record_property("figure and peak", f"{figure}, {peak / 1e6:.0f} MB")
    assert done.returncode == 0, (figure, done.stderr)
    assert peak <= parse_size(figure), figure
    less = f"{int(NEAR * parse_size(figure))}"
    _, done = measured(*words, "--memory", less)
    assert done.returncode == 6, (figure, "5% less is enough")
