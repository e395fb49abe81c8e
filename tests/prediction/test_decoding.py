"""How best classes are found can be said, is told, and makes no difference."""

import json

import numpy as np
import pytest

from streammach.backends.registry import BACKENDS
from streammach.cli.main import main
from streammach.errors import UsageError
from streammach.model.model import Model
from streammach.prediction.predictor import Predictor
from streammach.simd import PERMUTES
from tests.builders import TinyData

WAYS = ["auto", *(["perm"] if PERMUTES else []), "tile", "buckets", "one"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run of hashed models, one of a bucket for every class, one of counts alone, and rows."""
    tiny = TinyData(tmp_path_factory.mktemp("decoding"), np.random.default_rng(5))
    tiny.text("a.vw", tiny.lines(300, 40))
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(tiny.folder)
        assert main(["convert", "a.vw", "a.zarr"]) == 0
        for name, *shape in (
            ("run", "--buckets", "8", "--repetitions", "4", "--memory", "1GB", "--epochs", "1"),
            ("exact", "--exact", "--epochs", "1"),
            ("counts", "--repetitions", "0", "--memory", "1GB"),
        ):
            options = [*shape, "--learning-rate", "0.5", "--progress", "none"]
            assert main(["train", "a.zarr", "--out", name, *options]) == 0
    return tiny.folder


@pytest.fixture
def here(folder, monkeypatch):
    monkeypatch.chdir(folder)
    return folder


def test_every_way_predicts_the_same(here, tmp_path, capsys):
    tables = set()
    for way in WAYS:
        out = tmp_path / f"{way}.tsv"
        assert main(["predict", "run", "a.vw", "--decode", way, "--out", str(out)]) == 0
        tables.add(out.read_bytes())
    assert len(tables) == 1
    figures = set()
    capsys.readouterr()
    for way in WAYS:
        given = ["--estimator", "logsum", "--decode", way, "--json"]
        assert main(["evaluate", "run", "a.zarr", *given]) == 0
        found = json.loads(capsys.readouterr().out)
        figures.add((found["accuracy"], found["log_loss"]))
    assert len(figures) == 1


def test_the_way_is_told(here, capsys):
    usual = "perm" if PERMUTES else "tile"
    for name, way in (("run", usual), ("exact", "one"), ("counts", "")):
        with Predictor(Model.load(name), device="cpu") as predictor:
            assert predictor.decoding == way
        assert main(["info", name, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["decoding"] == way
        assert main(["info", name]) == 0
        assert (f"decoding  {way} on" in capsys.readouterr().out) == (name == "run")
    for way in WAYS[1:]:
        with Predictor(Model.load("run"), decode=way) as predictor:
            assert predictor.decoding == way


def test_a_way_that_cannot_be_taken_is_refused(here, monkeypatch):
    with pytest.raises(UsageError, match="'fast' is not one of auto, perm, tile, buckets, one"):
        Predictor(Model.load("run"), decode="fast")
    with pytest.raises(UsageError, match="at most 256 buckets"):
        Predictor(Model.load("exact"), decode="perm")
    with pytest.raises(UsageError, match="no hashed models"):
        Predictor(Model.load("counts"), decode="tile")
    monkeypatch.setattr("streammach.backends.cpu.decoder.PERMUTES", False)
    with pytest.raises(UsageError, match="AVX-512 VBMI"):
        Predictor(Model.load("run"), decode="perm")


def test_another_device_has_one_way(here, monkeypatch):
    """A way of the CPU is no reason to open a GPU; asked for both, it is refused."""
    kind = BACKENDS["cpu"]
    monkeypatch.setitem(BACKENDS, "cuda", kind.__class__(**{**vars(kind), "decode_by": None}))
    with pytest.raises(UsageError, match="one way alone"):
        Predictor(Model.load("run"), device="cuda", decode="tile")
    with Predictor(Model.load("run"), decode="tile") as predictor:
        assert predictor.decoding == "tile"
