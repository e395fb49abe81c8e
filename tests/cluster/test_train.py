"""A run that the workers of a cluster train has the bytes of one that was trained at once."""

import importlib.util

import numpy as np
import pytest

import streammach as sm
from streammach.cli.main import main
from streammach.errors import UsageError
from tests.builders import TinyData
from tests.training.test_parts import files_of, rows_alike, trainer

distributed = pytest.importorskip("distributed", reason="needs dask.distributed")

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
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, memory_limit=0
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
    assert files_of(run) == files_of(joint)
    assert run.settings.training == joint.settings.training
    assert sorted(path.name for path in tmp_path.iterdir()) == ["joint", "run"]
    for k in (1, 2):
        lines = [line for line in told if line.startswith(f"part {k}/2")]
        assert lines[0].startswith(f"part {k}/2: repetitions {'1 to 2' if k == 1 else '3 to 5'}")
        assert f"part {k}/2: epoch 3 of 3" in lines
        assert "done by tcp://" in lines[-1]


SMALL = [
    *("--buckets", "7", "--repetitions", "5", "--counts", "off", "--threads", "2"),
    *("--epochs", "2", "--learning-rate", "0.5", "--transform", "binary", "--progress", "none"),
]


def test_the_command_on_a_cluster(data, client, tmp_path, capsys):
    joint = trainer(data).fit(data, tmp_path / "joint")
    train = ["train", str(data.path), "--out", str(tmp_path / "run"), *SMALL]
    assert main([*train, "--dask", client.scheduler.address]) == 0
    assert "held-out accuracy" in capsys.readouterr().out
    assert files_of(sm.Run.open(tmp_path / "run")) == files_of(joint)
    assert not (tmp_path / "run.parts").exists()


def test_the_command_with_processes_of_this_machine(data, tmp_path, capsys):
    view = ["--class-weight", "balanced"]
    train = ["train", str(data.path), *SMALL, *view, "--out"]
    assert main([*train, str(tmp_path / "joint")]) == 0
    assert main([*train, str(tmp_path / "run"), "--devices", "cpu,cpu"]) == 0
    runs = [sm.Run.open(tmp_path / name) for name in ("joint", "run")]
    assert files_of(runs[0]) == files_of(runs[1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--devices", "cpu,cuda:0"], "trainings on a GPU are not trained in parts yet"),
        (["--devices", "cpu,tpu"], "'tpu' is no device of a list such as cpu,cpu"),
        (["--devices", "cpu", "--part", "1/2"], "only one of these can be"),
        (["--devices", "cpu", "--time", "1min"], "depends on a machine's speed"),
        (["--dask", "tcp://127.0.0.1:9"], "no Dask scheduler answers"),
        (["--dask", "nonsense://x"], "no Dask scheduler answers"),
    ],
)
def test_what_the_command_refuses(options, message, data, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("streammach.cluster.workers.CONNECT_SECONDS", 1.0)
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
