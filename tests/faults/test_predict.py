"""Predictions killed in the middle, or out of disk: what they leave goes on to the same bytes."""

import json
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

from tests.builders import TinyData
from tests.faults.test_kill import finish, start, wait_for

pytestmark = pytest.mark.faults

PREDICT = ["predict", "run", "a.vw", "-k", "3", "--progress", "none", "--out"]
# The command with blocks of few rows, what is done made durable after each, and slow.
SLOW = """
import sys, time
import streammach.prediction.memory as memory
import streammach.prediction.order as order
import streammach.prediction.output.kept as kept
import streammach.prediction.predictor as predictor
from streammach.cli.main import main

memory.READ_ROWS = order.GIVEN_ROWS = 8
order.SAVED_SECONDS = kept.SAVED_SECONDS = 0
rank = predictor.Predictor.topk_ids

def slow(*given, **named):
    time.sleep(0.02)
    return rank(*given, **named)

predictor.Predictor.topk_ids = slow
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """Rows and a run."""
    tiny = TinyData(tmp_path_factory.mktemp("done"), np.random.default_rng(7))
    tiny.text("a.vw", tiny.lines(800, 20))
    return tiny.trained()


@pytest.fixture
def job(done, tmp_path):
    return shutil.copytree(done, tmp_path / "job")


def command(source, name):
    return [source if one == "a.vw" else one for one in PREDICT] + [name]


def rows_written(work):
    try:
        return json.loads((work / "state.json").read_bytes())["rows"]
    except FileNotFoundError:
        return 0


def rows_aside(work):
    try:
        return json.loads((work / "order/saved.json").read_bytes())["rows"]
    except FileNotFoundError:
        return 0


@pytest.mark.parametrize("name", ["p.tsv", "p.parquet", "p.csv.gz"])
@pytest.mark.parametrize("source", ["a.vw", "a.zarr"])
def test_a_killed_prediction_goes_on_to_the_same_bytes(source, name, job):
    finish(*command(source, f"whole-{name}"), cwd=job)
    before = sorted(path.name for path in job.iterdir())
    work, count = job / f".{name}.partial", rows_written if source == "a.vw" else rows_aside
    reached = 0
    for kill in (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM):
        process = start(SLOW, *command(source, name), *(["--resume"] if reached else []), cwd=job)
        wait_for(lambda n=reached: count(work) > n + 40, process)
        process.send_signal(kill)
        _, err = process.communicate(timeout=60)
        assert process.returncode == (130 if kill == signal.SIGTERM else -signal.SIGKILL)
        assert count(work) > reached
        reached = count(work)
        assert not (job / name).exists()
    assert b"interrupted: what was predicted is kept. The same command with --resume goes on" in err
    finish(*command(source, name), "--resume", cwd=job)
    assert (job / name).read_bytes() == (job / f"whole-{name}").read_bytes()
    assert sorted(path.name for path in job.iterdir()) == sorted([*before, name])


def test_what_is_left_after_the_table_has_its_name_goes(job):
    code = """
import os, sys
import streammach.prediction.output.kept as kept
from streammach.cli.main import main
kept.KeptWork.remove = lambda self: os._exit(9)
main(sys.argv[1:])
"""
    for name in ("p.tsv", "p.jsonl.gz"):
        process = start(code, *command("a.vw", name), cwd=job)
        process.communicate(timeout=60)
        assert process.returncode == 9
        assert (job / name).exists()
        assert (job / f".{name}.partial").exists()
        again = start(None, *command("a.vw", name), cwd=job)
        _, err = again.communicate(timeout=60)
        assert (again.returncode, b"exists already" in err) == (2, True)
        assert [path.name for path in job.iterdir() if path.name.startswith(f".{name}")] == []


def test_an_interrupted_pipe_leaves_nothing(job):
    arguments = [sys.executable, "-c", SLOW, *command("-", "p.tsv")]
    with subprocess.Popen(
        arguments, cwd=job, stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdin.write((job / "a.vw").read_bytes()[:20_000])
        process.stdin.flush()
        wait_for(lambda: rows_written(job / ".p.tsv.partial") > 20, process)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr.read() == b"streammach: interrupted\n"
    assert [path.name for path in job.iterdir() if "p.tsv" in path.name] == []
