"""Processes killed in the middle: what they leave goes on to the same bytes."""

import hashlib
import os
import signal
import subprocess
import sys
import time

import pytest

import streammach as sm
from tests.builders import TinyData

pytestmark = pytest.mark.faults

TRAIN = [
    "train", "train.zarr", "--out", "run", "--buckets", "8", "--repetitions", "6", "--epochs", "3",
    "--learning-rate", "0.5", "--transform", "binary", "--progress", "none",
]  # fmt: skip
# The command with checkpoints after every batch and slow batches, so that it can be hit.
SLOW = """
import sys, time
import streammach.training.epochs as epochs
from streammach.cli.main import main

step = epochs.train_epoch

def slow(*given, **named):
    for one in step(*given, **named):
        time.sleep(0.01)
        yield one

epochs.train_epoch = slow
sys.exit(main([*sys.argv[1:], "--checkpoint-minutes", "0"]))
"""


def start(code, *arguments, cwd):
    command = [sys.executable, *(["-c", code] if code else ["-m", "streammach"]), *arguments]
    return subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def finish(*arguments, cwd):
    process = start(None, *arguments, cwd=cwd)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out


def digest(run):
    files = [run / "model" / name for name in ("model.json", "model.safetensors")]
    return [hashlib.sha256(f.read_bytes()).hexdigest() for f in files]


def wait_for(condition, process):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if condition():
            return
        time.sleep(0.005)
    pytest.fail(f"nothing to hit: {process.communicate()}")


@pytest.fixture
def data(tmp_path, rng):
    TinyData(tmp_path, rng).store(n_rows=1500, n_classes=30)
    return tmp_path


@pytest.fixture
def undisturbed(data):
    finish(*TRAIN, cwd=data)
    wanted = digest(data / "run")
    os.rename(data / "run", data / "whole")
    return wanted


def steps_in(folder):
    names = [p.name for p in folder.glob("step-*")]
    return max((int(name.split("-")[1]) for name in names), default=0)


def test_training_killed_in_epoch_2_resumes_to_the_same_bytes(data, undisturbed):
    in_epoch_2 = 1425 // 23 + 20  # batches of 23 rows
    for extra in (0, 7, 25):
        process = start(SLOW, *TRAIN, *(["--resume"] if extra else []), cwd=data)
        wanted = in_epoch_2 + extra
        wait_for(lambda n=wanted: steps_in(data / "run/checkpoints") >= n, process)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert not (data / "run/result.json").exists()
        if (data / "run/model").exists():  # what was counted before the epochs
            sm.Model.load(data / "run/model")
    finish(*TRAIN, "--resume", cwd=data)
    assert digest(data / "run") == undisturbed
    assert sorted(p.name for p in (data / "run").iterdir()) == [
        "log.jsonl", "model", "plan.json", "result.json", "streammach.json", "training.json",
    ]  # fmt: skip
