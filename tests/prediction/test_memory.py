"""The memory of predictions: cut to fit, refused with advice that holds, the same answers."""

import itertools
import json
import re
import shutil
import warnings
from dataclasses import replace

import numpy as np
import pytest

from streammach.cli.console import peak_of
from streammach.cli.main import main
from streammach.model.model import Model
from streammach.model.size import size_in_file, size_in_memory
from streammach.prediction.evaluate import evaluate
from streammach.prediction.inputs import Room
from streammach.prediction.predictor import Predictor
from streammach.prediction.room import Input, room_before, room_for
from streammach.rows.block import RowBlock
from streammach.rows.label_lists import LabelLists
from streammach.rows.name_table import new_table, table_bytes
from streammach.system.errors import BudgetError
from streammach.system.machine import (
    MemoryBudget,
    MemoryLimit,
    advise_memory,
    budget,
    parse_size,
    training_budget,
)

GB = 10**9
TASKS = ("evaluate", "predict", "report")


@pytest.fixture(scope="module")
def done(shared):
    shared.text("a.vw", shared.lines(400, 20))
    shared.text("new.vw", [f"new{line}" for line in shared.lines(40, 4)])
    return shared.trained()


@pytest.fixture
def job(done, tmp_path, monkeypatch):
    monkeypatch.chdir(shutil.copytree(done, tmp_path / "job"))
    return tmp_path / "job"


def of(n_bytes, *, named=True, limit=64 * GB):
    return MemoryBudget(n_bytes, "--memory", named, limit)


def rooms(held, task, n_bytes, k=5, longest=100):
    given = Input(is_store=True, longest=longest)
    return room_for(held, task, given, k, device="cpu", threads=2, budget=of(n_bytes))


def test_sums_of_labels_are_counted_and_more_where_rows_have_lists(job):
    held = size_in_file("run")
    for task in ("evaluate", "report", "predict"):
        plain, lists = (
            {line.name: line.n_bytes for line in rooms(one, task, GB).lines}
            for one in (held, replace(held, listed=True))
        )
        lists.pop("classifiers")  # which score the best labels again
        sums = [lines.pop("sums of labels", 0) // held.spec.n_classes for lines in (plain, lists)]
        assert plain == lists
        assert sums == ([0, 0] if task == "predict" else [8, 96])
        assert ("first repetitions" in plain) == (task == "report")


@pytest.mark.parametrize("task", TASKS)
def test_less_is_held_at_a_time_until_nothing_fits(job, task):
    held = size_in_file("run")
    with pytest.raises(BudgetError) as error:
        rooms(held, task, 10**6)
    least = parse_size(re.search(r"--memory (\S+) or more", error.value.hint)[1])
    sizes = [rooms(held, task, n) for n in np.linspace(least, 2 * GB, 40).astype(int).tolist()]
    budgets = np.linspace(least, 2 * GB, 40)
    assert all(room.projected_bytes <= n for room, n in zip(sizes, budgets, strict=True))
    assert sizes[0].rows < sizes[-1].rows
    pairs = itertools.pairwise(sizes)
    assert all(a.rows <= b.rows and a.values <= b.values for a, b in pairs)


def test_rows_of_many_classes_or_values_are_cut_smaller(job):
    held = size_in_file("run")
    assert rooms(held, "predict", GB, k=100_000).rows < rooms(held, "predict", GB).rows
    long = rooms(held, "predict", GB, longest=6_000_000)
    assert long.projected_bytes > rooms(held, "predict", GB).projected_bytes


def test_a_budget_that_nobody_named_gives_way(job):
    held, given = size_in_file("run"), Input(is_store=True)
    means = {"device": "cpu", "threads": 1}
    room = room_for(held, "rows", given, 5, budget=of(1, named=False), **means)
    assert room.rows >= 64  # so few bytes more that a row takes as long as one of many
    with pytest.raises(BudgetError) as error:
        room_for(held, "rows", given, 5, budget=of(1), **means)
    least = parse_size(re.search(r"--memory (\S+) or more", error.value.hint)[1])
    assert room.projected_bytes < 1.15 * least
    with pytest.raises(BudgetError):
        room_for(held, "rows", given, 5, budget=of(1, named=False, limit=2), **means)


def test_labels_of_a_file_take_no_memory_where_they_do_not_matter(job):
    held = size_in_file("run")
    (n_labels, label_bytes), _ = held.names
    found = [Input.of("a.vw", held, labels=labels).names for labels in (True, False)]
    assert found[0] - found[1] == 2 * (label_bytes + table_bytes(n_labels, label_bytes))
    lines = {
        task: {
            line.name: line.n_bytes for line in room_before("run", task, "a.vw", 5, memory=GB).lines
        }
        for task in ("predict", "evaluate")
    }
    assert [lines[task]["names"] for task in ("evaluate", "predict")] == found


def test_the_default_is_two_gigabytes_or_what_there_is(monkeypatch):
    monkeypatch.setattr(
        "streammach.system.machine.memory_limit", lambda: MemoryLimit(9 * GB, "free")
    )
    assert (budget(None).n_bytes, budget(None).named) == (2 * GB, False)
    assert (budget("3GB").n_bytes, budget("3GB").named) == (3 * GB, True)
    monkeypatch.setattr("streammach.system.machine.memory_limit", lambda: MemoryLimit(GB, "cgroup"))
    assert (budget(None).n_bytes, budget(None).source) == (GB, "cgroup")
    with pytest.raises(BudgetError):
        budget("2GB")


@pytest.mark.parametrize(
    ("free", "taken"),
    [(200, 12), (24, 12), (23.9, 8), (16, 8), (15, 6), (7, 3), (4, 2), (3, 2), (1.5, 1.5)],
)
def test_a_training_has_half_of_what_is_free(free, taken):
    limit = MemoryLimit(int(free * GB), "free memory")
    found = training_budget(None, limit)
    assert (found.n_bytes, found.named) == (int(taken * GB), False)
    assert training_budget("1GB", limit).n_bytes == GB
    with pytest.raises(BudgetError):
        training_budget(int(free * GB) + 1, limit)


@pytest.mark.parametrize("n_bytes", [1, 10**7, 10**7 + 1, 999_999_999, 10**10 + 1, 5 * 10**10 + 1])
def test_advice_is_never_less_than_what_is_needed(n_bytes):
    assert n_bytes <= parse_size(advise_memory(n_bytes)) <= n_bytes + 10**8


def test_rows_are_cut_by_number_and_by_values():
    indptr = np.array([0, 5, 5, 5, 9, 30, 31, 32])
    room = Room(rows=3, values=6, sorted_bytes=1, lines=())
    found = [(r.start, r.stop) for r in room.ranges(indptr)]
    assert found == [(0, 3), (3, 4), (4, 5), (5, 7)]


def test_labels_of_lists_count_as_values_where_rows_are_cut():
    lists = LabelLists.of([[1], [1, 2, 3, 4, 5, 6, 7], [2], [3, 4], []])
    rows = RowBlock(
        indptr=np.arange(6), features=np.zeros(5, np.int32), values=np.ones(5, np.float32),
        classes=lists.first, labels=lists,
    )  # fmt: skip
    room = Room(rows=3, values=6, sorted_bytes=1, lines=())
    assert [part.n_rows for part in room.cut(rows)] == [1, 1, 3]


def test_answers_do_not_depend_on_the_memory(job, monkeypatch):
    model = Model.load("run")
    with Predictor(model) as predictor:
        wanted = [list(p.ids.tolist()) for p in predictor.stream("a.zarr", 3)]
        figures = evaluate(predictor, "a.zarr")
        rows, values = predictor.room("predict", "a.zarr", 3).rows, 1 << 20
    assert (rows, values) == (1 << 14, 1 << 20)
    monkeypatch.setattr("streammach.prediction.room.READ_ROWS", 7)
    monkeypatch.setattr("streammach.prediction.room.READ_VALUES", 40)
    for source in ("a.zarr", "a.vw"):
        with Predictor(model) as predictor:
            found = [row for p in predictor.stream(source, 3) for row in p.ids.tolist()]
            assert found == [row for part in wanted for row in part]
            again = evaluate(predictor, source)
    assert (again.accuracy, again.n_rows) == (figures.accuracy, figures.n_rows)
    assert again.log_loss == pytest.approx(figures.log_loss)


def test_what_a_model_takes_is_known_before_it_is_loaded(job):
    for weights in ("int8", "int4", "float16"):
        out = "small" if weights == "int8" else weights
        assert main(["shrink", "run", "--out", out, "--weights", weights]) == 0
    for path in ("run", "small", "int4", "float16"):
        before, after = size_in_file(path), size_in_memory(Model.load(path))
        assert before.n_bytes == after.n_bytes > 0
        assert (before.names, before.spec, before.store) == (after.names, after.spec, after.store)
    assert size_in_file("small").loading > 0


def test_a_table_of_names_takes_what_is_said():
    table = new_table(1 << 13, 5000)
    assert sum(array.nbytes for array in table) <= table_bytes(4000, 5000)


@pytest.mark.parametrize(
    "command",
    [
        ["evaluate", "run", "a.zarr"],
        ["predict", "run", "a.vw", "--out", "out.tsv"],
        ["shrink", "run", "--out", "small", "--on", "a.zarr"],
        ["add", "run", "new.vw", "--out", "more"],
        ["add", "run", "new.vw", "--out", "more", "--on", "a.zarr"],
        ["report", "run", "--on", "a.zarr"],
        ["convert", "a.vw", "b.zarr"],
        ["train", "a.zarr", "--out", "run2", "--epochs", "1"],
    ],
    ids=lambda command: command[0],
)
def test_a_refused_budget_says_one_that_is_not_refused(job, capsys, command):
    before = sorted(path.name for path in job.iterdir())
    code = main([*command, "--memory", "90MB", "--json", "--progress", "none"])
    error = json.loads(capsys.readouterr().out)["error"]
    assert (code, error["kind"]) == (6, "does-not-fit")
    assert sorted(path.name for path in job.iterdir()) == before
    enough = re.search(r"--memory (\S+) or more", error["hint"])[1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the tests themselves take memory
        code = main([*command, "--memory", enough, "--json", "--progress", "none"])
    found = json.loads(capsys.readouterr().out)
    assert code == 0
    assert 0 < found["projected_bytes"] <= parse_size(enough)
    assert found["peak_bytes"] > 0


def test_a_peak_above_the_projection_is_said_with_both(monkeypatch):
    monkeypatch.setattr("streammach.cli.console.peak_bytes", lambda: 3 * 10**8)
    with pytest.warns(UserWarning, match="it took 300 MB of memory, 200 MB were projected"):
        assert peak_of(2 * 10**8) == 3 * 10**8
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        peak_of(3 * 10**8)


def test_a_prediction_is_refused_before_the_model_is_loaded(job, monkeypatch):
    monkeypatch.setattr(Model, "load", None)
    with pytest.raises(BudgetError):
        room_before("run", "predict", "a.zarr", 5, memory=10**6)
