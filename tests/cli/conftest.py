"""The whole job, done once for all tests of commands."""

import shutil

import numpy as np
import pytest

from streammach.cli.main import main
from tests.builders import TinyData

BUDGET = ["--buckets", "8", "--repetitions", "6"]
FIXED = ["--learning-rate", "0.5", "--transform", "binary"]  # nothing is searched


@pytest.fixture
def train_text(tiny):
    return tiny.text("train.vw.gz", tiny.lines(700, 30, namespace=True), zipped=True)


@pytest.fixture(scope="session")
def done(tmp_path_factory):
    """The whole job, done once: train.zarr, test.zarr and a run."""
    tiny = TinyData(tmp_path_factory.mktemp("done"), np.random.default_rng(7))
    tiny.text("train.vw.gz", tiny.lines(700, 30, namespace=True), zipped=True)
    tiny.text("test.vw", tiny.lines(200, 35, namespace=True))
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(tiny.folder)
        assert main(["convert", "train.vw.gz", "train.zarr"]) == 0
        assert main(["convert", "test.vw", "test.zarr", "--like", "train.zarr"]) == 0
        assert main(["train", "train.zarr", "--out", "run", *BUDGET, *FIXED, "--epochs", "4"]) == 0
    return tiny.folder


@pytest.fixture
def job(done, tmp_path):
    return shutil.copytree(done, tmp_path / "job")
