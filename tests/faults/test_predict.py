"""Predictions killed in the middle: no half of a table is left, and the next one tidies."""

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
# The command with blocks of few rows, and slow.
SLOW = """
import sys, time
import streammach.prediction.room as memory
import streammach.prediction.order as order
from streammach.prediction.scorer_sum import ScorerSum
from streammach.cli.main import main

memory.READ_ROWS = order.GIVEN_ROWS = 8
rank = ScorerSum.topk

def slow(*given, **named):
    time.sleep(0.02)
    return rank(*given, **named)

ScorerSum.topk = slow
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    tiny = TinyData(tmp_path_factory.mktemp("done"), np.random.default_rng(7))
    tiny.text("a.vw", tiny.lines(800, 20))
    return tiny.trained()


@pytest.fixture
def job(done, tmp_path):
    return shutil.copytree(done, tmp_path / "job")


def command(source, name):
    return [source if one == "a.vw" else one for one in PREDICT] + [name]


def bytes_written(job, name):
    """Bytes that lie beside the table that is made."""
    return sum(path.stat().st_size for path in job.glob(f".{name}.*.scratch/content*"))


@pytest.mark.parametrize("name", ["p.tsv", "p.parquet", "p.csv.gz"])
@pytest.mark.parametrize("source", ["a.vw", "a.zarr"])
def test_a_killed_prediction_leaves_no_table_and_starts_anew(source, name, job):
    finish(*command(source, f"whole-{name}"), cwd=job)
    before = sorted(path.name for path in job.iterdir())
    for kill in (signal.SIGKILL, signal.SIGTERM):
        left = {*job.glob(f".{name}.*.scratch/content")}
        process = start(SLOW, *command(source, name), cwd=job)
        wait_for(lambda old=left: {*job.glob(f".{name}.*.scratch/content")} - old, process)
        process.send_signal(kill)
        _, err = process.communicate(timeout=60)
        assert process.returncode == (130 if kill == signal.SIGTERM else -signal.SIGKILL)
        assert not (job / name).exists()
    assert err == b"streammach: interrupted\n"
    assert sorted(path.name for path in job.iterdir()) == before
    finish(*command(source, name), cwd=job)
    assert (job / name).read_bytes() == (job / f"whole-{name}").read_bytes()
    assert sorted(path.name for path in job.iterdir()) == sorted([*before, name])


def test_what_is_left_after_the_table_has_its_name_goes(job):
    code = """
import os, sys
import streammach.system.files.folders as folders
from streammach.cli.main import main
empty = folders._empty
folders._empty = lambda folder: os._exit(9) if folder.name.startswith(".p.") else empty(folder)
main(sys.argv[1:])
"""
    for name in ("p.tsv", "p.jsonl.gz"):
        process = start(code, *command("a.vw", name), cwd=job)
        process.communicate(timeout=60)
        assert process.returncode == 9
        assert (job / name).exists()
        assert [*job.glob(f".{name}.*.scratch")]
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
        wait_for(lambda: bytes_written(job, "p.tsv") > 1000, process)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr.read() == b"streammach: interrupted\n"
    assert [path.name for path in job.iterdir() if "p.tsv" in path.name] == []
