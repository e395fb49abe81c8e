"""What commands say while they work, and where it cannot be written."""

import json
import os
import subprocess
import sys

import pytest

import streammach as sm
from streammach.cli.main import main
from tests.cli.conftest import BUDGET
from tests.cli.test_commands import one_line, run


def test_json_of_progress_is_all_there_is_on_standard_error(job, capsys):
    options = [*BUDGET, "--epochs", 1, "--learning-rate", 1, "--transform", "raw"]
    _, out, err = run(capsys, "train", job / "train.zarr", "--out", job / "rj", *options,
                      "--progress", "json", "--json")  # fmt: skip
    lines = [json.loads(line) for line in err.splitlines() if line.startswith("{")]
    assert {line["event"] for line in lines} >= {"progress", "validation", "end"}
    ended = [line["stage"] for line in lines if line.get("moment") == "end"]
    assert ended[-1] == "writing"
    stages = json.loads(out)["stages"]
    assert set(ended) - {"plan"} == stages.keys()
    assert sum(stages.values()) <= json.loads(out)["seconds"]
    lines = (job / "rj/log.jsonl").read_text().splitlines()
    passed = [json.loads(line)["stage"] for line in lines if '"event":"stage"' in line]
    assert set(passed) == stages.keys()


def test_progress_in_a_pipe_is_plain_lines(job, capsys, monkeypatch):
    monkeypatch.setattr("streammach.system.progress.PLAIN_SECONDS", 0.0)
    monkeypatch.setattr("streammach.system.progress.SHORT_SECONDS", 0.0)
    monkeypatch.setattr("streammach.system.stages.TICK_SECONDS", 1e-3)
    options = [*BUDGET, "--epochs", 1, "--learning-rate", 1, "--transform", "raw"]
    _, _, err = run(capsys, "train", job / "train.zarr", "--out", job / "r", *options)
    lines = [line for line in err.splitlines() if "epoch 1/1" in line]
    assert lines
    assert all("rows/s" in line and "\x1b" not in line and len(line) <= 100 for line in lines)
    assert any(" left" in line for line in lines)
    passed = [line.split("  ")[0].split("Z ")[1] for line in err.splitlines() if " took " in line]
    assert passed == sorted(set(passed), key=passed.index)  # each once
    assert {"counting pairs", "epochs", "ranking", "writing"} <= set(passed)
    options = [*options[:-2], "--transform", "l2", "--progress", "none"]
    _, _, err = run(capsys, "train", job / "train.zarr", "--out", job / "r2", *options)
    assert "epoch 1/1" not in err


def test_the_first_compilation_is_said(train_text, tiny):
    command = [sys.executable, "-m", "streammach", "convert", str(train_text)]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tiny.folder / "kernels")}
    said = []
    for out in ("a.zarr", "b.zarr"):
        done = subprocess.run(
            [*command, str(tiny.folder / out)],
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        said.append("compiling kernels" in done.stderr)
    assert said == [True, False]


def test_explore_says_how_far_it_is(job, capsys):
    files = [job / "test.vw", job / "train.vw.gz"]
    told = []
    sm.explore(files, progress=lambda *given: told.append(given))
    assert told == [("explore", 0, 0), ("explore", 1, 2), ("explore", 2, 2)]
    _, _, err = run(capsys, "explore", *files, "--progress", "json")
    assert json.loads(err.splitlines()[-1])["stage"] == "explore"


def test_values_are_told_once(job, capsys):
    _, out, _ = run(capsys, "evaluate", job / "run", job / "test.zarr", "--by", "w")
    rows = [line.split("rows")[1] for line in out.splitlines() if "+-" in line]
    assert len(rows) == len({*rows}) > 3


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_named(job, monkeypatch, capsys):
    monkeypatch.chdir(job)
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "streammach", "predict", "run", "test.vw"],
                              check=False, stdout=full, stderr=subprocess.PIPE,
                              text=True)  # fmt: skip
    found = [(done.returncode, done.stderr)]
    for words in (["info", "run"], ["info", "run", "--json"]):
        with open("/dev/full", "w") as full, monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", full)
            code = main(words)
        found.append((code, capsys.readouterr().err))
    for code, said in found:
        assert code == 7
        assert "No space left on device: standard output" in said


def test_an_output_that_is_closed_ends_no_command(job, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", None)
    rows = job / "test.vw"
    assert run(capsys, "predict", job / "run", rows, "--out", job / "closed.tsv")[0] == 0
    assert (job / "closed.tsv").exists()


def test_kernels_that_are_not_compiled_are_refused(job):
    done = subprocess.run(
        [sys.executable, "-m", "streammach", "predict", job / "run", job / "test.vw"], text=True,
        check=False, capture_output=True, env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
    )  # fmt: skip
    assert done.returncode == 2
    assert "unset NUMBA_DISABLE_JIT" in one_line(done.stderr)
