"""Predictions and evaluations by ranges of rows: bytes and figures are those of one process."""

import os
import signal
import threading
from dataclasses import replace

import numpy as np
import pytest

import streammach as sm
from streammach.cluster import range_task
from streammach.cluster.sites import cuts
from streammach.errors import BudgetError, Interrupted, MismatchError, UsageError
from tests.builders import TinyData, listed_lines

distributed = pytest.importorskip("distributed", reason="needs dask.distributed")

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
N = 700
SMALL = ["--buckets", "8", "--repetitions", "4", "--epochs", "1", "--progress", "none",
         "--transform", "binary", "--learning-rate", "0.5"]  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A run of rows with one label and one of lists, and other rows of each kind with tags."""
    from streammach.cli.main import main

    tiny = TinyData(tmp_path_factory.mktemp("ranges"), np.random.default_rng(7))
    how, read = np.random.default_rng(8), {"one": {}, "lists": {"multilabel": "on"}}
    ways = {
        "one": lambda n: tiny.lines(n, 30, namespace=True),
        "lists": lambda n: listed_lines(how, n),
    }
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("streammach.training.trainer.precompile", lambda *given, **named: None)
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
    return tiny.folder


@pytest.fixture(scope="module")
def client():
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, memory_limit=0
    ) as cluster, distributed.Client(cluster) as made:  # fmt: skip
        yield made


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Blocks of a few rows, so that a few hundred make many."""
    monkeypatch.setattr("streammach.prediction.memory.READ_ROWS", 64)
    monkeypatch.setattr("streammach.prediction.sorted_files.GIVEN_ROWS", 64)
    monkeypatch.setattr("streammach.cluster.tables.LEAST_ROWS", 16)


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    ("name", "run", "asked"),
    [
        ("a.tsv", "one", {}),
        ("a.csv", "one", {"probabilities": True, "k": 2}),
        ("a.jsonl", "lists", {"threshold": 0.2}),
        ("a.parquet", "lists", {"k": 3, "threshold": 0.2}),
        ("a.tsv.gz", "lists", {}),
        ("a.parquet", "one", {}),
    ],
)
def test_a_table_has_the_bytes_of_one_process(name, run, asked, place, client, tmp_path):
    rows = place / f"{run}-test.zarr"
    whole = sm.predict(place / run, rows, tmp_path / name, threads=1, **asked)
    assert whole.unknown_values >= N
    for n in (1, 2, 3, None):
        told = []
        out = tmp_path / f"{n}{name}"
        found = sm.distributed.predict(
            place / run, rows, client, out=out, ranges=n, tell=told.append, **asked
        )
        assert out.read_bytes() == (tmp_path / name).read_bytes(), n
        known = {"out": str(out), "seconds": found.seconds}
        assert replace(whole, **known) == found
        counted = [int(line.split(": ")[1].split(" of ")[0]) for line in told]
        assert sum(counted) == (8 if n is None else n)
    if name == "a.tsv":
        cells = [line.split("\t")[:2] for line in (tmp_path / name).read_text().splitlines()[1:]]
        assert cells == [[str(i), f"tag{i % 90}"] for i in range(N)]
    assert not [found for found in names_in(tmp_path) if found.startswith(".")]


@pytest.mark.parametrize(
    ("run", "asked"),
    [
        ("one", {"by": "g", "estimators": True}),
        ("one", {"estimator": "mean"}),
        ("lists", {"threshold": 0.3, "propensity": (0.5, 1.4)}),
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
        assert replace(found, seconds=whole.seconds) == whole, n
