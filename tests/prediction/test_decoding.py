"""How best classes are found is told."""

import json

import pytest

from streammach.cli.main import main
from streammach.model.model import Model
from streammach.prediction.predictor import Predictor


@pytest.fixture(scope="module")
def folder(shared):
    """A run of hashed models, one of a bucket for every class, one of counts alone, and rows."""
    shared.text("a.vw", shared.lines(300, 40))
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(shared.folder)
        assert main(["convert", "a.vw", "a.zarr"]) == 0
        for name, *shape in (
            ("run", "--buckets", "8", "--repetitions", "4", "--memory", "1GB", "--epochs", "1"),
            ("exact", "--exact", "--epochs", "1"),
            ("counts", "--repetitions", "0", "--memory", "1GB"),
        ):
            options = [*shape, "--learning-rate", "0.5", "--transform", "binary"]
            options += ["--progress", "none"]
            assert main(["train", "a.zarr", "--out", name, *options]) == 0
    return shared.folder


@pytest.fixture
def here(folder, monkeypatch):
    monkeypatch.chdir(folder)
    return folder


def test_the_way_is_told(here, capsys):
    for name, way in (("run", "tile"), ("exact", "one"), ("counts", "")):
        with Predictor(Model.load(name), device="cpu") as predictor:
            assert predictor.decoding == way
        assert main(["info", name, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["decoding"] == way
