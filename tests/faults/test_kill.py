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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_leaves_with_130(number, data, undisturbed):
    process = start(SLOW, *TRAIN, cwd=data)
    wait_for(lambda: steps_in(data / "run/checkpoints") >= 10, process)
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert b"streammach: interrupted: saved step" in err
    assert b"--resume goes on" in err
    assert b"Traceback" not in err
    finish(*TRAIN, "--resume", cwd=data)
    assert digest(data / "run") == undisturbed


def test_an_interrupted_conversion_leaves_nothing(data, rng):
    lines = TinyData(data, rng).lines(300_000, 50)
    (data / "big.vw").write_text("\n".join(lines))
    process = start(None, "convert", "big.vw", "big.zarr", cwd=data)
    wait_for((data / ".big.zarr.lock").exists, process)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=30)
    if process.returncode == 0:
        pytest.fail("the conversion was faster than the signal")
    assert process.returncode == 130
    assert err == b"streammach: interrupted\n"
    assert not (data / "big.zarr").exists()
    assert [p.name for p in data.iterdir() if p.name.startswith(".big")] == []
