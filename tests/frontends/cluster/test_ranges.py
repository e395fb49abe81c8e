"""Predictions and evaluations by ranges of rows: bytes and figures are those of one process."""

import itertools
import json
import os
import signal
from dataclasses import asdict, replace

import numpy as np
import pytest

import streammach as sm
from streammach.cli.main import main
from streammach.frontends.cluster.ranges import cuts
from streammach.frontends.cluster.worker import RowsTask, do_range
from streammach.frontends.cluster.workers import VERSION, ClusterWorkers
from streammach.model.document import document_digest
from streammach.system.errors import BudgetError, MismatchError
from tests.builders import TinyData, listed_lines, model_files, names_in
from tests.frontends.cluster.test_train import Told
from tests.training.test_parts import trainer

distributed = pytest.importorskip("distributed", reason="needs dask.distributed")

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
N = 700
SMALL = ["--buckets", "8", "--repetitions", "4", "--epochs", "1", "--progress", "none",
         "--transform", "binary", "--learning-rate", "0.5"]  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A run of rows with one label and one of lists, and other rows of each kind with tags."""
    tiny = TinyData(tmp_path_factory.mktemp("ranges"), np.random.default_rng(7))
    how, read = np.random.default_rng(8), {"one": {}, "lists": {"multilabel": "on"}}
    ways = {
        "one": lambda n: tiny.lines(n, 30, namespace=True),
        "lists": lambda n: listed_lines(how, n),
    }
    for name, lines in ways.items():
        tiny.text(f"{name}.vw", lines(900))
        sm.convert(tiny.folder / f"{name}.vw", tiny.folder / f"{name}.zarr", **read[name])
        train = ["train", str(tiny.folder / f"{name}.zarr"), "--out", str(tiny.folder / name)]
        assert main([*train, *SMALL]) == 0
        given = [
            f"{'new' if i == 5 else line.partition(' ')[0]} 1 tag{i % 90}|"
            f"{line.partition('|')[2]} unheard{i}"
            for i, line in enumerate(lines(N))
        ]
        sm.convert(
            tiny.text(f"{name}-test.vw", given), tiny.folder / f"{name}-test.zarr", **read[name]
        )
    x, labels = how.normal(size=(900, 12)), [f"c{i % 20}" for i in range(900)]
    dense = tiny.dense_store("dense.zarr", x, labels)
    tiny.dense_store("dense-test.zarr", x[:N] + 0.1, labels[:N], like=dense)
    assert main(["train", str(dense), "--out", str(tiny.folder / "dense"), *SMALL]) == 0
    assert sm.Model.load(tiny.folder / "dense").dense
    return tiny.folder


@pytest.fixture(scope="module")
def client():
    with distributed.LocalCluster(
        n_workers=4, threads_per_worker=1, processes=True, dashboard_address=":0", memory_limit=0
    ) as cluster, distributed.Client(cluster) as made:  # fmt: skip
        made.wait_for_workers(4)
        yield made


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Blocks of a few rows, so that a few hundred make many."""
    monkeypatch.setattr("streammach.prediction.room.READ_ROWS", 64)
    monkeypatch.setattr("streammach.frontends.cluster.ranges.LEAST_ROWS", 16)


@pytest.mark.parametrize(
    ("name", "run", "asked"),
    [
        ("a.tsv", "one", {}),
        ("a.csv", "one", {"probabilities": True, "k": 2, "never": ["class-1", "class-2"]}),
        ("a.jsonl", "lists", {"threshold": 0.2}),
        ("a.parquet", "lists", {"k": 3, "threshold": 0.2}),
        ("a.tsv.gz", "lists", {}),
        ("a.parquet", "one", {}),
        ("a.csv", "dense", {}),
        ("a.jsonl", "one", {"k": 2, "explain": 3}),
    ],
)
def test_a_table_has_the_bytes_of_one_process(name, run, asked, place, client, tmp_path):
    rows = place / f"{run}-test.zarr"
    whole = sm.predict(place / run, rows, tmp_path / name, threads=1, **asked)
    assert whole.unknown_values >= N or run == "dense"
    for n in (1, 2, 3, None) if name == "a.tsv" else (3, None):
        told = []
        out = tmp_path / f"{n}{name}"
        found = sm.distributed.predict(
            place / run, rows, client, out=out, ranges=n, tell=told.append, **asked
        )
        assert out.read_bytes() == (tmp_path / name).read_bytes(), n
        known = {name: getattr(found, name) for name in ("out", "seconds", "projected_bytes")}
        assert replace(whole, **known) == found
        counted = [int(line.split(": ")[1].split(" of ")[0]) for line in told]
        blocks = -(-N // 64) if run == "dense" else 16
        assert sum(counted) == (blocks if n is None else n)
    if name == "a.tsv":
        cells = [line.split("\t")[:2] for line in (tmp_path / name).read_text().splitlines()[1:]]
        assert cells == [[str(i), f"tag{i % 90}"] for i in range(N)]
    assert not [found for found in names_in(tmp_path) if found.startswith(".")]


@pytest.mark.parametrize(
    ("run", "asked"),
    [
        ("one", {"by": "g", "estimators": True, "by_class": True, "confusions": 9, "at": (2, 40)}),
        ("one", {"estimator": "mean"}),
        ("lists", {"threshold": 0.3, "propensity": (0.5, 1.4), "by_class": True, "at": (9,)}),
    ],
)
def test_an_evaluation_has_the_figures_of_one_process(run, asked, place, client):
    rows = place / f"{run}-test.zarr"
    asked, estimator = dict(asked), asked.get("estimator")
    asked.pop("estimator", None)
    with sm.Predictor(sm.Model.load(place / run), estimator=estimator) as predictor:
        whole = sm.evaluate(predictor, rows, **asked)
    assert whole.n_unseen > 0
    for n in (1, 2, 3, None):
        found = sm.distributed.evaluate(
            place / run, rows, client, ranges=n, estimator=estimator, **asked
        )
        both = (asdict(replace(one, seconds=0.0, by_class=None)) for one in (found, whole))
        assert len({repr(one) for one in both}) == 1, n
        assert found.by_class is None or [*found.by_class.csv()] == [*whole.by_class.csv()]


def test_ranges_hold_all_rows_once():
    for n_rows in (1, 16, 17, 640, 700):
        for n in (1, 2, 7, 100):
            found = cuts(n_rows, n, 16)
            assert found[0][0] == 0
            assert found[-1][1] == n_rows
            assert all(a[1] == b[0] for a, b in itertools.pairwise(found))
            assert all(start < stop and start % 16 == 0 for start, stop in found)
            assert len(found) == min(n, -(-n_rows // 16))


def printed(command, capsys):
    assert main([*command, "--progress", "none", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    return {key: found[key] for key in found.keys() - {"seconds", "peak_bytes", "projected_bytes"}}


def test_the_commands_on_a_cluster_and_with_processes(place, client, tmp_path, capsys):
    run, rows = str(place / "one"), str(place / "one-test.zarr")
    there = ["--dask", client.scheduler.address]
    predict = ["predict", run, rows, "-k", "3", "--out"]
    whole = printed([*predict, str(tmp_path / "whole.csv")], capsys)
    for name, where in (("there.csv", there), ("here.csv", ["--devices", "cpu,cpu"])):
        found = printed([*predict, str(tmp_path / name), *where], capsys)
        assert found == {**whole, "out": str(tmp_path / name)}
        assert (tmp_path / name).read_bytes() == (tmp_path / "whole.csv").read_bytes()
    evaluate = ["evaluate", run, rows, "--by", "g", "--estimators"]
    assert printed([*evaluate, *there], capsys) == printed(evaluate, capsys)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["one", "a.vw", "--out", "a.tsv"], "ranks the rows of a store alone"),
        (["one", "none.zarr", "--out", "a.tsv"], "there is no such store"),
        (["one", "-", "--out", "a.tsv"], "there is no such store"),
        (["none", "one-test.zarr", "--out", "a.tsv"], "there is no trained model"),
        (["one", "one-test.zarr"], "a cluster writes to a file: --out"),
        (["one", "one-test.zarr", "--out", "/dev/null"], "a cluster writes to a file: --out"),
        (["one", "one-test.zarr", "--out", "a.vw", "--force"], "no table of predictions"),
        (["one", "one-test.zarr", "--out", "a.tsv", "--only", "a.vw"], "may be said: only, never"),
        (["one", "one-test.zarr", "--out", "a.tsv", "--format", "vw"], "no bad ones: --format"),
        (["one", "one-test.zarr", "--out", "a.tsv", "--quotes", "off"], "no bad ones: --quotes"),
        (["one", "one-test.zarr", "--out", "a.tsv", "--no-header"], "no bad ones: --no-header"),
        (["one", "one-test.zarr", "--out", "a.tsv", "--threads", "1"], "of their own: --threads"),
        (["one", "one-test.zarr", "--out", "a.tsv", "--devices", "cpu"], "only one of these"),
        (["one", "one-test.zarr", "--out", "a.tsv", "--memory", "1MB"], "this model needs"),
    ],
)
def test_what_a_prediction_refuses(options, message, place, client, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("one", "one-test.zarr"):
        (tmp_path / name).symlink_to(place / name)
    (tmp_path / "a.vw").write_text("c |x a\n")
    before = names_in(tmp_path)
    assert main(["predict", *options, "--dask", client.scheduler.address]) != 0
    said = capsys.readouterr().err
    *warnings, last = said.splitlines()
    assert message in last
    assert all(line.startswith("streammach: warning: ") for line in warnings)
    assert names_in(tmp_path) == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--by", "nothing"], "no feature of the model is in the namespace nothing"),
        (["--estimator", "blend"], "no counts to blend"),
        (["--on-bad-row", "skip"], "which has no bad ones: --on-bad-row"),
    ],
)
def test_what_an_evaluation_refuses(options, message, place, client, capsys):
    rows = [str(place / "one"), str(place / "one-test.zarr")]
    address = client.scheduler.address
    assert main(["evaluate", *rows, *options, "--dask", address, "--progress", "none"]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


def test_workers_whose_memory_is_too_small(place, client, tmp_path, monkeypatch):
    few = lambda client: ClusterWorkers(Told((VERSION, 10_000_000)))  # noqa: E731
    monkeypatch.setattr("streammach.frontends.cluster.ranges.ClusterWorkers", few)
    rows = place / "one-test.zarr"
    with pytest.raises(BudgetError, match=r"a range of rows takes .*, and a worker may take"):
        sm.distributed.predict(place / "one", rows, client, out=tmp_path / "a.tsv")
    with pytest.raises(BudgetError, match="a range of rows takes"):
        sm.distributed.evaluate(place / "one", rows, client)
    assert names_in(tmp_path) == []


class Stop:
    """Interrupts, as Ctrl-C does, when so many rows are there."""

    def __init__(self, stage, n):
        self.at = stage, n

    def __call__(self, stage, done, total):
        if stage == self.at[0] and done >= self.at[1]:
            raise KeyboardInterrupt


@pytest.mark.parametrize("stage", ["predict", "write"])
def test_an_interrupted_table_leaves_nothing(stage, place, client, tmp_path):
    run, rows, out = place / "one", place / "one-test.zarr", tmp_path / "a.parquet"
    sm.predict(run, rows, tmp_path / "whole", out_format="parquet", threads=1)
    with pytest.raises(KeyboardInterrupt):
        sm.distributed.predict(run, rows, client, out=out, ranges=6, progress=Stop(stage, 200))
    assert names_in(tmp_path) == ["whole"]
    sm.distributed.predict(run, rows, client, out=out)
    assert out.read_bytes() == (tmp_path / "whole").read_bytes()


def test_a_worker_has_to_see_the_same_model_and_store(place, client, tmp_path):
    from streammach.prediction.room import room_before
    from streammach.prediction.scorer_sum import PredictionRequest

    run, rows = place / "one/model", place / "one-test.zarr"
    room = room_before(run, "predict", rows, 5, memory=None, device="cpu", threads=1)
    with sm.Dataset.open(rows) as data:
        known = {"document": document_digest(run), "digest": data.digest}
    for wrong in known:
        task = RowsTask(
            run=str(run), store=str(rows), room=room,
            wanted=PredictionRequest(k=5, threshold=None, probabilities=False),
            **{**known, wrong: "0" * 64},
        )  # fmt: skip
        with pytest.raises(MismatchError, match="another one lies here"):
            client.submit(do_range, task, 0, N, pure=False).result()
    assert names_in(tmp_path) == []


def test_a_run_of_four_workers(place, client, tmp_path):
    with sm.Dataset.open(place / "one.zarr") as data:
        made = trainer(data, counts="on", n_repetitions=6)
        joint = made.fit(data, tmp_path / "joint")
        told = []
        run = sm.distributed.train(
            data.path,
            made.plan,
            client,
            out=tmp_path / "run",
            options=made.options,
            tell=told.append,
        )
    assert model_files(run) == model_files(joint)
    assert sum("done by" in line for line in told) == 4


class Kill:
    """Kills a worker that is at work, as soon as some rows are there."""

    def __init__(self, client):
        self.client, self.pids, self.killed = client, client.run(os.getpid), 0

    def __call__(self, stage, done, total):
        at_work = [a for a, keys in self.client.processing().items() if keys and a in self.pids]
        if done and not self.killed and at_work:
            os.kill(self.pids[at_work[0]], signal.SIGKILL)
            self.killed += 1


def test_four_workers_of_which_one_is_killed(place, client, tmp_path):
    run, rows = place / "one", place / "one-test.zarr"
    sm.predict(run, rows, tmp_path / "whole.tsv", threads=1)
    kill = Kill(client)
    sm.distributed.predict(run, rows, client, out=tmp_path / "a.tsv", ranges=40, progress=kill)
    assert kill.killed == 1
    assert (tmp_path / "a.tsv").read_bytes() == (tmp_path / "whole.tsv").read_bytes()
    client.wait_for_workers(4)
    for _ in range(20):  # until one was still at work when the first rows were there
        kill = Kill(client)
        found = sm.distributed.evaluate(run, rows, client, ranges=11, progress=kill)
        if kill.killed:
            break
    assert kill.killed == 1
    assert asdict(found) == {**asdict(sm.evaluate(run, rows)), "seconds": found.seconds}
