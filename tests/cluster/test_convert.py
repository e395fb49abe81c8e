"""A store that the workers of a cluster convert has the bytes of one that one process made."""

import contextlib
import os
import signal
import threading
import time

import numpy as np
import pytest

import streammach as sm
from streammach.cli.main import main
from streammach.errors import BudgetError, DataError, Interrupted, UsageError
from tests.builders import TinyData
from tests.data.test_conversion import mixed_lines
from tests.data.test_spread import files_in

distributed = pytest.importorskip("distributed", reason="needs dask.distributed")

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def client():
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", memory_limit=0
    ) as cluster, distributed.Client(cluster) as made:  # fmt: skip
        yield made


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    tiny = TinyData(tmp_path_factory.mktemp("sources"), np.random.default_rng(1))
    lines = mixed_lines(tiny, 4000)
    return [tiny.text(f"{k}.vw.gz", lines[k::6], zipped=True) for k in range(6)]


@pytest.fixture(scope="module")
def joint(sources, tmp_path_factory):
    out = tmp_path_factory.mktemp("joint") / "out"
    sm.convert(sources, out)
    return files_in(out)


def test_a_store_of_two_workers(sources, joint, client, tmp_path):
    done = sm.distributed.convert(sources, tmp_path / "out", client, memory="9GB")
    assert files_in(tmp_path / "out") == joint
    assert done.n_rows == 4000
    assert not done.resumed
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_the_command_on_a_cluster(sources, joint, client, tmp_path, capsys):
    out = tmp_path / "out"
    convert = ["convert", *map(str, sources), str(out), "--dask", client.scheduler.address]
    assert main([*convert, "--progress", "none"]) == 0
    assert "4,000 rows" in capsys.readouterr().out
    assert files_in(out) == joint


def test_the_command_with_processes_of_this_machine(sources, joint, tmp_path, capsys):
    convert = ["convert", *map(str, sources), str(tmp_path / "out"), "--processes", "2"]
    assert main([*convert, "--progress", "none", "--json"]) == 0
    assert files_in(tmp_path / "out") == joint


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--processes", "2", "--dask", "tcp://127.0.0.1:9"], "only one of these can be"),
        (["--processes", "0"], "0 processes cannot work"),
        (["--dask", "tcp://127.0.0.1:9"], "no Dask scheduler answers"),
    ],
)
def test_what_the_command_refuses(options, message, sources, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("streammach.cluster.workers.CONNECT_SECONDS", 1.0)
    assert main(["convert", str(sources[0]), str(tmp_path / "out"), *options]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_what_a_cluster_cannot_do_is_refused(sources, client, tmp_path):
    with pytest.raises(UsageError, match="cannot read a pipe"):
        sm.distributed.convert(["-"], tmp_path / "out", client)
    with pytest.raises(UsageError, match="a folder that they share"):
        sm.distributed.convert(sources, "s3://bucket/out", client)
    with pytest.raises(BudgetError, match="by 3 processes"):
        sm.distributed.convert(sources, tmp_path / "out", client, memory="150MB")
    assert list(tmp_path.iterdir()) == []


def test_the_first_bad_row_is_that_of_one_process(sources, client, tmp_path):
    for k in (1, 2):
        (tmp_path / f"bad{k}.vw").write_text(f"c1 |w x\nc1 |w x:bad{k}\n")
    some = [sources[0], tmp_path / "bad1.vw", sources[1], tmp_path / "bad2.vw"]
    with pytest.raises(DataError) as one:
        sm.convert(some, tmp_path / "out")
    with pytest.raises(DataError) as two:
        sm.distributed.convert(some, tmp_path / "out", client)
    assert "bad1" in str(one.value)
    assert str(two.value) == str(one.value)
    assert sorted(path.name for path in tmp_path.glob("[!.]*")) == ["bad1.vw", "bad2.vw"]


@contextlib.contextmanager
def meanwhile(act, place):
    """Do something as soon as there is a file like that."""
    over = threading.Event()

    def watch():
        folder, pattern = place
        while not over.is_set() and not any(folder.glob(pattern)):
            time.sleep(0.002)
        if not over.is_set():
            act()

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_a_worker_that_is_killed(sources, joint, client, tmp_path):
    def kill():
        pids.append(sorted(client.run(os.getpid).values())[0])
        os.kill(pids[0], signal.SIGKILL)

    pids = []
    with meanwhile(kill, (tmp_path, ".out.partial/runs/*/.lock")):
        sm.distributed.convert(sources, tmp_path / "out", client)
    assert files_in(tmp_path / "out") == joint
    assert len(pids) == 1
    client.wait_for_workers(2, timeout=60)
    assert pids[0] not in client.run(os.getpid).values()


def test_a_conversion_that_is_interrupted(sources, joint, client, tmp_path):
    out = tmp_path / "out"
    with meanwhile(
        lambda: os.kill(os.getpid(), signal.SIGINT), (tmp_path, ".out.partial/runs/*/run-*")
    ), pytest.raises(Interrupted, match="Give the same command again"):  # fmt: skip
        sm.distributed.convert(sources, out, client)
    assert not out.exists()
    assert not [*tmp_path.glob(".out.partial/runs/*/.lock")]
    done = sm.distributed.convert(sources, out, client)
    assert done.resumed
    assert files_in(out) == joint
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
