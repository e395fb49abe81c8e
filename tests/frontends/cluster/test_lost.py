"""Workers that are killed while they train, and a scheduler: the model has the same bytes."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import streammach as sm
from streammach.system.errors import Interrupted, StreammachError
from streammach.training.run_part import RunPart
from tests.builders import TinyData, model_files
from tests.training.test_parts import rows_alike, trainer

distributed = pytest.importorskip("distributed", reason="needs dask.distributed")

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
OPTIONS = {"epochs": 6}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    tiny = TinyData(tmp_path_factory.mktemp("lost"), np.random.default_rng(1))
    with sm.Dataset.open(rows_alike(tiny, "train.zarr", 8000)) as opened:
        yield opened


@pytest.fixture(scope="module")
def made(data):
    return trainer(data, options=OPTIONS, counts="on")


@pytest.fixture(scope="module")
def joint(made, data, tmp_path_factory):
    return model_files(made.fit(data, tmp_path_factory.mktemp("joint") / "run"))


def train(made, data, client, out, **how):
    return sm.distributed.train(
        data.path, made.plan, client, out=out, options=made.options, checkpoint_minutes=0.002, **how
    )


@contextlib.contextmanager
def separate(n_workers, folder):
    """A scheduler and workers as processes of their own, without nannies: what is lost stays so."""
    file, started = folder / "scheduler.json", []

    def start(*arguments):
        command = [sys.executable, "-m", "distributed.cli.dask_" + arguments[0], *arguments[1:]]
        with open(folder / f"{len(started)}.txt", "w") as said:
            started.append(subprocess.Popen(command, stdout=said, stderr=said))

    try:
        start("scheduler", "--port", "0", "--no-dashboard", "--scheduler-file", str(file))
        for _ in range(n_workers):
            start("worker", "--scheduler-file", str(file), "--nthreads", "1", "--no-nanny",
                  "--no-dashboard", "--memory-limit", "0", "--death-timeout", "20")  # fmt: skip
        until = time.monotonic() + 60
        while not file.exists() and time.monotonic() < until:
            time.sleep(0.05)
        with distributed.Client(scheduler_file=str(file), timeout=30) as client:
            client.wait_for_workers(n_workers, timeout=60)
            yield client, started
    finally:
        for process in started:
            process.kill()
            process.wait()


def when(holds, act):
    """Do something as soon as something holds, in a thread."""

    def watch():
        until = time.monotonic() + 120
        while time.monotonic() < until and not holds():
            time.sleep(0.01)
        act()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def epochs_of(path):
    try:
        return len(RunPart.open(path).checkpoints.ends())
    except StreammachError:
        return -1


def killed_at_random(made, data, joint, folder, seed, turns):
    """Train with a worker killed at a random moment, so many times; it is started again."""
    how, seconds = random.Random(seed), 4.0
    for turn in range(-1, turns):
        with distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", memory_limit=0
        ) as cluster, distributed.Client(cluster) as client:  # fmt: skip
            delay, began = how.uniform(0, seconds), time.monotonic()
            pid = how.choice(sorted(client.run(os.getpid).values()))
            timer = threading.Timer(delay, os.kill, (pid, signal.SIGKILL))
            if turn >= 0:
                timer.start()
            run = train(made, data, client, folder / f"run{turn}")
            if turn < 0:
                seconds = time.monotonic() - began
            else:
                timer.join()
            assert model_files(run) == joint, (seed, turn, delay)
            assert not (folder / f"run{turn}.parts").exists()


def test_workers_that_are_killed_and_come_again(made, data, joint, tmp_path):
    killed_at_random(made, data, joint, tmp_path, seed=1, turns=3)


@pytest.mark.faults
@pytest.mark.timeout(1200)  # 21 trainings, each with a cluster of its own: 30 s where others work
def test_many_workers_that_are_killed_and_come_again(made, data, joint, tmp_path):
    killed_at_random(made, data, joint, tmp_path, seed=2, turns=20)


@pytest.mark.parametrize("number", [1, 2])
def test_a_worker_that_is_lost(number, made, data, joint, tmp_path):
    with separate(2, tmp_path) as (client, started):
        pids, part = client.run(os.getpid), tmp_path / f"run.parts/part-{number}"

        def kill():
            at_work = client.processing()
            here = [a for a, keys in at_work.items() if any(f"part-{number}-" in k for k in keys)]
            os.kill(pids[(here or list(pids))[0]], signal.SIGKILL)

        thread = when(lambda: epochs_of(part) >= 1, kill)
        run = train(made, data, client, tmp_path / "run")
        thread.join()
        assert [process.poll() for process in started].count(-signal.SIGKILL) == 1
        assert len(client.run(os.getpid)) == 1
    assert model_files(run) == joint


def test_a_scheduler_that_is_killed(made, data, joint, tmp_path):
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    with separate(2, tmp_path / "first") as (client, started):
        when(lambda: epochs_of(tmp_path / "run.parts/part-1") >= 1, started[0].kill)
        with pytest.raises(StreammachError, match="scheduler was lost") as found:
            train(made, data, client, tmp_path / "run")
        assert "\n" not in str(found.value)
    assert epochs_of(tmp_path / "run.parts/part-1") >= 1
    with separate(3, tmp_path / "second") as (client, _):
        run = train(made, data, client, tmp_path / "run", resume=True)
    assert model_files(run) == joint


def test_a_training_that_is_interrupted(made, data, joint, tmp_path):
    with separate(2, tmp_path) as (client, _):
        part = tmp_path / "run.parts/part-2"
        decided = part.parent / "part-1/training.json"
        when(decided.exists, lambda: os.kill(os.getpid(), signal.SIGINT))
        with pytest.raises(Interrupted, match="resume"):
            train(made, data, client, tmp_path / "run")
        assert not [*part.parent.glob("*/.lock")]
        run = train(made, data, client, tmp_path / "run", resume=True)
    assert model_files(run) == joint
    assert not part.parent.exists()
