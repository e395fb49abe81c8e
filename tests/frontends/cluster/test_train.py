"""A run that the workers of a cluster train has the bytes of one that was trained at once."""

import gc
import importlib.util
import os
import time
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

import streammach as sm
from streammach.cli.main import main
from streammach.frontends.cluster.worker import hold_process
from streammach.frontends.cluster.workers import (
    CPU,
    QUIET,
    SEEN,
    USABLE,
    VERSION,
    ClusterWorkers,
    RunningTasks,
    devices_of,
    started_here,
)
from streammach.system.errors import BudgetError, MismatchError, UsageError
from streammach.training.run_part import PartNumber
from tests.builders import TinyData, model_files
from tests.training.test_parts import rows_alike, trainer

distributed = pytest.importorskip("distributed", reason="needs dask.distributed")
dask = pytest.importorskip("dask")

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    tiny = TinyData(tmp_path_factory.mktemp("cluster"), np.random.default_rng(1))
    return rows_alike(tiny, "train.zarr")


@pytest.fixture(scope="module")
def data(store):
    with sm.Dataset.open(store) as opened:
        yield opened


@pytest.fixture(scope="module")
def client():
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", memory_limit=0
    ) as cluster, distributed.Client(cluster) as made:  # fmt: skip
        yield made


@pytest.mark.parametrize("counts", ["off", "on"])
def test_a_run_of_two_workers(counts, data, client, tmp_path):
    made = trainer(data, counts=counts, options={"epochs": 3})
    joint = made.fit(data, tmp_path / "joint")
    told = []
    run = sm.distributed.train(
        data.path, made.plan, client, out=tmp_path / "run", options=made.options, tell=told.append
    )
    assert model_files(run) == model_files(joint)
    assert run.settings.training == joint.settings.training
    assert sorted(path.name for path in tmp_path.iterdir()) == ["joint", "run"]
    for k in (1, 2):
        lines = [line for line in told if line.startswith(f"part {k}/2")]
        assert lines[0].startswith(f"part {k}/2: repetitions {'1 to 2' if k == 1 else '3 to 5'}")
        assert f"part {k}/2: epoch 3 of 3" in lines
        assert "done by tcp://" in lines[-1]


def refuses(n_bytes):
    raise BudgetError(f"{n_bytes} bytes are too many", hint="Take fewer.")


def test_an_error_of_a_worker_comes_as_it_was(client):
    tasks = RunningTasks(client)
    tasks.give(3, "a task", refuses, 7, able=None)
    while not (ended := tasks.wait_for_task()):
        pass
    ((number, error),) = ended
    assert (number, type(error), str(error)) == (
        3,
        BudgetError,
        "7 bytes are too many. Take fewer.",
    )
    assert error.exit_code == 6


def slow(folder):
    """What a worker does that does not notice at once that it is given up."""
    with hold_process("it is"):
        (folder / "begun").touch()
        time.sleep(1.0)
        (folder / "ended").touch()


def test_work_that_is_given_up_has_ended(client, tmp_path):
    tasks = RunningTasks(client)
    tasks.give(0, "slow", slow, tmp_path, able=None)
    while not (tmp_path / "begun").exists():
        assert not tasks.wait_for_task()
    tasks.leave()
    assert (tmp_path / "ended").exists()
    assert tasks.wait_for_task() == []


def test_work_that_has_ended_is_forgotten(client):
    tasks = RunningTasks(client)

    def held():
        return [key for keys in client.has_what().values() for key in keys if "soon-gone" in key]

    with kept_by_the_collector():
        tasks.give(0, "soon gone", time.sleep, 1.2, able=None)
        while not (ended := tasks.wait_for_task()):
            pass
        assert ended == [(0, None)]
        until = time.monotonic() + 30
        while held() and time.monotonic() < until:
            time.sleep(0.01)
        assert not held()  # what a worker holds is computed again where it is lost


@contextmanager
def kept_by_the_collector():
    """Let nothing go that is part of a cycle."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


SMALL = [
    *("--buckets", "7", "--repetitions", "5", "--counts", "off", "--threads", "2"),
    *("--epochs", "2", "--learning-rate", "0.5", "--transform", "binary", "--progress", "none"),
]


def test_the_command_on_a_cluster(data, client, tmp_path, capsys):
    joint = trainer(data).fit(data, tmp_path / "joint")
    train = ["train", str(data.path), "--out", str(tmp_path / "run"), *SMALL]
    assert main([*train, "--dask", client.scheduler.address]) == 0
    assert "held-out accuracy" in capsys.readouterr().out
    assert model_files(sm.Run.open(tmp_path / "run")) == model_files(joint)
    assert not (tmp_path / "run.parts").exists()


def test_the_command_with_processes_of_this_machine(data, tmp_path, capsys):
    view = ["--class-weight", "balanced"]
    train = ["train", str(data.path), *SMALL, *view, "--out"]
    assert main([*train, str(tmp_path / "joint")]) == 0
    assert main([*train, str(tmp_path / "run"), "--devices", "cpu,cpu"]) == 0
    runs = [sm.Run.open(tmp_path / name) for name in ("joint", "run")]
    assert model_files(runs[0]) == model_files(runs[1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--devices", "cpu,cuda:0"], "'cuda:0' is no device of a list such as cpu,cpu or 0,1"),
        (["--devices", "cpu,0"], "on CPUs or on GPUs, not on both"),
        (["--devices", "0,1,00"], "a GPU is there twice"),
        (["--devices", "cpu", "--device", "cuda"], "--device cuda and --devices cpu differ"),
        (["--devices", "cpu,tpu"], "'tpu' is no device of a list such as cpu,cpu"),
        (["--devices", "cpu", "--part", "1/2"], "only one of these can be"),
        (["--devices", "cpu", "--time", "1min"], "depends on a machine's speed"),
        (["--dask", "tcp://127.0.0.1:9"], "no Dask scheduler answers"),
        (["--dask", "nonsense://x"], "no Dask scheduler answers"),
    ],
)
def test_what_the_command_refuses(options, message, data, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("streammach.frontends.cluster.workers.CONNECT_SECONDS", 1.0)
    assert main(["train", str(data.path), "--out", str(tmp_path / "run"), *SMALL, *options]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_without_dask_the_extra_is_named(data, tmp_path, capsys, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *rest: None if name == "distributed" else found(name),
    )
    options = [*SMALL, "--devices", "cpu,cpu"]
    assert main(["train", str(data.path), "--out", str(tmp_path / "run"), *options]) == 2
    said = capsys.readouterr().err
    assert 'not installed. pip install "streammach[dask]"' in said
    assert said.count("\n") == 1
    with pytest.raises(UsageError, match="not installed"):
        sm.distributed.train(data.path, trainer(data).plan, None, out=tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("n", [4, 5])
def test_more_parts_than_workers(n, data, client, tmp_path):
    made = trainer(data)
    joint = made.fit(data, tmp_path / "joint")
    run = sm.distributed.train(
        data.path, made.plan, client, out=tmp_path / "run", options=made.options, parts=n
    )
    assert model_files(run) == model_files(joint)


def test_what_is_there_already(data, client, tmp_path):
    made, out = trainer(data), tmp_path / "run"

    def trained(**how):
        how = {"options": made.options, **how}
        return sm.distributed.train(data.path, made.plan, client, out=out, **how)

    with pytest.raises(UsageError, match="5 repetitions is not trained in 6 parts"):
        trained(parts=6)
    assert list(tmp_path.iterdir()) == []
    joint = made.fit(data, tmp_path / "joint")
    folder = tmp_path / "run.parts"
    folder.mkdir()
    (folder / "mine").write_text("mine")
    with pytest.raises(UsageError, match="holds other files"):
        trained(resume=True)
    (folder / "streammach.json").write_text('{"parts": 3, "streammach": "distributed training"}')
    with pytest.raises(UsageError, match="it holds parts of a run already"):
        trained()
    with pytest.raises(MismatchError, match="begun in 3 parts, not in 2"):
        trained(resume=True, parts=2)
    run = trained(resume=True)
    assert model_files(run) == model_files(joint)
    assert [path.name for path in folder.iterdir()] == ["mine"]
    with pytest.raises(UsageError, match="it holds a run already"):
        trained()
    assert trained(resume=True).result == run.result
    with pytest.raises(MismatchError, match="another store, plan or options"):
        trained(resume=True, options=replace(made.options, epochs=3))


def test_what_a_part_raises(data, client, tmp_path):
    made = trainer(data)
    place = tmp_path / "run.parts/part-2"

    def tell(line):
        if line.startswith("part 1/2: rep"):
            place.mkdir()
            (place / "mine").touch()

    with pytest.raises(UsageError, match="holds other files") as found:
        sm.distributed.train(
            data.path, made.plan, client, out=tmp_path / "run", options=made.options, tell=tell
        )
    assert "\n" not in str(found.value)
    assert [path.name for path in place.iterdir()] == ["mine"]


class Told:
    """A cluster whose workers say what they may take."""

    def __init__(self, *answers):
        self.answers = {f"tcp://{i}": answer for i, answer in enumerate(answers)}

    def wait_for_workers(self, n, timeout):
        pass

    def run(self, function, on_error):
        return self.answers


def test_parts_fit_the_memory_of_workers(data):
    plan = trainer(data, n_repetitions=8).plan
    whole, part = plan.projected_bytes, PartNumber(4, 4).plan(plan).projected_bytes
    small = (VERSION, int(part / USABLE) + 1)
    large = (VERSION, int(whole / USABLE) + 1)
    assert ClusterWorkers(Told((VERSION, None), (VERSION, None))).parts(plan) == 2
    assert ClusterWorkers(Told(small, large)).parts(plan) == 4
    assert ClusterWorkers(Told(*[large] * 20)).parts(plan) == 8
    assert ClusterWorkers(Told(small, large)).able(whole) == ["tcp://1"]
    assert ClusterWorkers(Told(small, large)).able(part) is None
    with pytest.raises(BudgetError, match="a worker may take"):
        ClusterWorkers(Told(small)).able(whole)
    assert len(ClusterWorkers(Told(OSError("gone"), large))) == 1
    with pytest.raises(UsageError, match="no worker"):
        ClusterWorkers(Told(OSError("gone")))
    with pytest.raises(UsageError, match=r"cannot run streammach \(ModuleNotFoundError: no"):
        ClusterWorkers(Told(ModuleNotFoundError("no module")))
    with pytest.raises(UsageError, match=r"has streammach 0\.0\.1, not"):
        ClusterWorkers(Told(("0.0.1", None)))


def test_processes_of_this_machine_have_a_gpu_each_and_watch_little(monkeypatch):
    monkeypatch.delenv(SEEN, raising=False)
    watched = {"distributed.worker.profile.enabled": True}
    with dask.config.set(watched):
        with started_here(devices_of("2, 0"), threads=2) as client:
            assert sorted(client.run(os.getenv, SEEN).values()) == ["0", "2"]
            quiet = {name: [value] * 2 for name, value in QUIET.items()}
            assert {name: [*client.run(dask.config.get, name).values()] for name in QUIET} == quiet
        assert dask.config.get("distributed.worker.profile.enabled")
    monkeypatch.setenv(SEEN, "7,GPU-5a")
    assert devices_of("1,0") == ("GPU-5a", "7")
    assert devices_of("cpu,cpu") == (CPU, CPU)
    with pytest.raises(UsageError, match="names 2 GPUs, no number 2"):
        devices_of("2")
