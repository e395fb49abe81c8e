"""Runs, what their models do on labelled rows, and their pages."""

import numpy as np
import pytest

import streammach as sm
from streammach.data.convert import convert
from streammach.prediction.diagnose import diagnose
from streammach.reports.pages import run_page
from streammach.spec.training import TrainingOptions
from tests.builders import TinyData, fit, listed_lines


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """A run with counts, and a test store with labels that training did not see."""
    tiny = TinyData(tmp_path_factory.mktemp("report"), np.random.default_rng(5))
    train = tiny.store("train.zarr", n_rows=2500, n_classes=120)
    test = tiny.store("test.zarr", n_rows=400, n_classes=130, like=train)
    with sm.Dataset.open(train) as data:
        plan = sm.plan(data, n_buckets=4, n_repetitions=6)
        options = {"epochs": 2, "learning_rate": 0.2, "transform": "binary"}
        options["model_size"] = "full"
        run = sm.Trainer(plan, TrainingOptions(**options)).fit(data, tiny.folder / "run")
    return run, test


@pytest.fixture(scope="session")
def pages(made):
    run, test = made
    found = diagnose(run.model, test)
    return run_page(run, run.model).html, run_page(run, run.model, found).html, found


@pytest.fixture(scope="session")
def lists(tmp_path_factory):
    """A run on rows with lists of labels, and what its model does on rows of another store."""
    rng = np.random.default_rng(9)
    tiny = TinyData(tmp_path_factory.mktemp("lists"), rng)
    train, test = tiny.folder / "train.zarr", tiny.folder / "test.zarr"
    convert(tiny.text("a.vw", listed_lines(rng, 1200, 60)), train, multilabel="on")
    convert(tiny.text("b.vw", listed_lines(rng, 200, 64)), test, like=train)
    with sm.Dataset.open(train) as data:
        plan = sm.plan(data, n_buckets=8, n_repetitions=4, threads=1, counts="on")
        run = fit(data, tiny.folder / "run", plan, epochs=2, learning_rate=0.5,
                  transform="binary", model_size="full")  # fmt: skip
    return run, diagnose(run.model, test)


@pytest.fixture(scope="session")
def list_page(lists):
    return run_page(lists[0], lists[0].model, lists[1])
