"""Exported models: NumPy's lines of the page and the product give the same scores."""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import streammach as sm
from streammach.frontends.export.command import export as export_command
from streammach.linear.late import LateLabels
from streammach.linear.weights import LinearWeights
from streammach.model.calibration import Calibration
from streammach.model.model import Model
from streammach.model.shrink import Size, shrink
from streammach.prediction.predictor import Predictor
from streammach.rows.layouts import ends
from tests.builders import block_of, spec_of, training
from tests.doc_blocks import blocks_of
from tests.model.models import counts_of, model_of, near_of

pytestmark = pytest.mark.usefixtures("linear")  # few classes, as users have it

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "model-format.md"
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
FIXED = {"epochs": 2, "learning_rate": 0.5, "transform": "raw"}
N_ROWS = 40


def exported(model, folder, *options, code=0):
    """The file that the command makes of a model."""
    from streammach.cli.main import main

    if not (folder / "model").exists():
        model.save(folder / "model")
    out = folder / ("model.onnx" if "--onnx" in options else "model.npz")
    words = [str(folder / "model"), "--out", str(out), *options]
    assert main(words, export_command) == code
    return out


def lines_of_numpy(folder, patch):
    """What the page defines for the model of a folder, as a reader would run it."""
    names = {}
    with patch.context() as there:
        there.chdir(folder)
        for block in blocks_of(PAGE.read_text()):
            if block.kind == "python" and not block.why_not:
                exec(block.code, names)
    return names


def best_of(scores, k):
    """The k best of a row's scores, as the product ranks them."""
    ids = np.argsort(-np.asarray(scores, np.float32), kind="stable")[:k]
    return ids, scores[ids]


def row_of(block, i):
    own = slice(block.indptr[i], block.indptr[i + 1])
    return block.features[own].astype(np.int64), block.values[own].astype(np.float64)


def check_numpy(model, block, folder, patch, k=5):
    """Compare scores and probabilities of NumPy's lines with those of the product."""
    exported(model, folder)
    page = lines_of_numpy(folder, patch)
    calibrated = page["facts"]["estimator"] == model.calibrated_ranking and not model.listed
    with Predictor(model) as predictor:
        ids, scores = predictor.rank(block, k)
        p = predictor.rank(block, k, probabilities=True)[1] if calibrated else None
    for i in range(block.n_rows):
        every = page["scores"](*row_of(block, i))
        np.testing.assert_allclose(every[ids[i]], scores[i], **CLOSE)
        np.testing.assert_allclose(best_of(every, k)[1], scores[i], **CLOSE)
        if p is not None:
            best, other = page["probabilities"](every)
            found = np.append(best, np.full(k, other))[:k]
            np.testing.assert_allclose(found, p[i], **CLOSE)


# Trained models, and rows with their ids


def train_sparse(rng, k=150, n=1500, **options):
    """A model of rows whose features tell their class, but for some that all share."""
    y = rng.integers(0, k, n)
    x = np.zeros((n, k + 20), np.float32)
    x[np.arange(n), y] = 1
    x[np.arange(n), k + y % 11] = rng.integers(1, 5, n)
    x[np.arange(n), k + rng.integers(11, 20, n)] = 1
    return trained(sp.csr_array(x), y.tolist(), **options)


def trained(x, y, **options):
    model = sm.train(x, y, memory="1GB", **options).model
    with Predictor(model) as predictor:
        return model, predictor.rows.block(x[:N_ROWS])


def hashed_sparse(rng):
    shape = {"n_buckets": 16, "n_repetitions": 6, "counts": "off", **FIXED}
    return train_sparse(rng, model_size="full", **shape)


def hashed_with_counts(rng):
    shape = {"n_buckets": 8, "n_repetitions": 3, "counts": "on", **FIXED}
    found = train_sparse(rng, k=400, n=3000, model_size="full", **shape)
    assert (found[0].estimator, found[0].hashed_weight > 0) == ("blend", True)
    return found


def exact_dense(rng):
    centres, y = rng.normal(size=(40, 12)), rng.integers(0, 40, 1500)
    x = (centres[y] + rng.normal(scale=0.7, size=(1500, 12))).astype(np.float32)
    shape = {"n_buckets": 40, "n_repetitions": 1, **FIXED, "learning_rate": 0.02}
    found = trained(x, y, linear="off", closed_form="on", **shape)
    assert found[0].spec.exact
    assert found[0].dense
    return found


def linear_sparse(rng):
    return train_sparse(rng, k=20, linear="on")


def linear_dense(rng):
    centres, y = rng.normal(size=(10, 6)), rng.integers(0, 10, 900)
    x = (centres[y] + rng.normal(scale=0.7, size=(900, 6))).astype(np.float32)
    return trained(x, y, linear="on")


def lists(rng):
    y = [np.sort(rng.choice(60, rng.integers(1, 4), replace=False)).tolist() for _ in range(2500)]
    x = np.zeros((2500, 80), np.float32)
    for i, own in enumerate(y):
        x[i, own] = 1
        x[i, 60 + rng.integers(0, 20, 3)] = 1
    return trained(sp.csr_array(x), y, linear="off", n_buckets=8, n_repetitions=4, **FIXED)


TRAINED = [hashed_sparse, hashed_with_counts, exact_dense, linear_sparse, linear_dense, lists]


@pytest.mark.parametrize("made", TRAINED, ids=lambda made: made.__name__)
def test_numpy_and_the_product_agree(made, rng, tmp_path, monkeypatch):
    model, block = made(rng)
    check_numpy(model, block, tmp_path, monkeypatch)


# Models of random arrays: what trainings of a test do not choose


def random_linear(rng, d=12, k=30, *, valued=False):
    lengths = rng.integers(0, 6, d)
    scale, bias, empty = (rng.uniform(0.5, 2, n).astype(np.float32) for n in (d, k, k))
    return LinearWeights(
        starts=ends(lengths), valued=valued, scale=scale, bias=bias, empty=empty,
        classes=np.concatenate([np.sort(rng.choice(k, n, replace=False)) for n in lengths])
        .astype(np.int32), weights=rng.normal(size=lengths.sum()).astype(np.float32),
    )  # fmt: skip


def of_lists(model):
    """The model as one of rows with lists of labels, each bucket with a sigmoid."""
    own = replace(model.training, loss="logistic", label_share="each", bucket_share=1.0)
    counts = np.arange(1, model.spec.n_classes + 1)
    return replace(model, training=own, label_counts=counts, n_rows=100)


def random_models(rng):
    """Models by what is special of them."""
    lined = Calibration(1.5, -3.0, stated=(0.0, 0.25, 1.0), right=(0.0, 0.5, 1.0))
    for name in ("mean", "min", "median", "logsum"):
        yield name, model_of(rng, estimator=name)
        yield f"{name} of lists", of_lists(model_of(rng, estimator=name, n_repetitions=4))
    for name in ("raw", "log1p", "l2"):
        yield name, model_of(rng, training=training(transform=name), calibration=lined)
    spec = spec_of(30, 12, 8, 3)
    yield "cut", model_of(rng, spec=replace(spec, hashed_features=7),
                          weights=rng.normal(size=(7, 24)).astype(np.float32))  # fmt: skip
    yield "counts", model_of(rng, counts=counts_of(rng), calibration=lined)
    yield "40 classes", model_of(rng, k=40, calibration=lined)
    alone = counts_of(rng, n_wide=0)
    yield "counts alone", model_of(rng, n_repetitions=0, counts=alone)
    yield "near", model_of(rng, counts=replace(counts_of(rng), near=near_of(rng)))
    late = LateLabels(**vars(random_linear(rng, k=40)), weight=0.7)
    yield "late", of_lists(model_of(rng, k=40, counts=counts_of(rng, k=40), late=late))
    unhashed = {"n_repetitions": 0, "estimator": "blend"}
    for valued in (False, True):
        linear = random_linear(rng, valued=valued)
        yield f"linear {valued}", model_of(rng, linear=linear, **unhashed)
    more = {"projection": rng.normal(size=(14, 5)).astype(np.float32), "dense": True}
    yield "cosines", model_of(rng, weights=rng.normal(size=(17, 24)).astype(np.float32), **more)


def test_every_kind_of_model_agrees(rng, tmp_path, monkeypatch):
    for name, model in random_models(rng):
        (tmp_path / name).mkdir()
        values = {"values": "counts" if "log1p" in name else "any"}
        block = block_of(rng, 15, 12, 30, **values)
        check_numpy(model, block, tmp_path / name, monkeypatch)


@pytest.mark.parametrize("weights", ["float16", "int8", "int4"])
def test_narrow_weights_are_decoded(rng, tmp_path, monkeypatch, weights):
    model, block = model_of(rng, counts=counts_of(rng)), block_of(rng, 15, 12, 30)
    small = shrink(model, Size(weights, 2, model.n_pairs))
    small.save(tmp_path / "model")
    small = Model.load(tmp_path / "model")  # whose weights are packed
    check_numpy(small, block, tmp_path, monkeypatch)
    with np.load(tmp_path / "model.npz") as found:
        assert found["weights"].dtype == np.float32
        assert "scale" not in found


def test_the_page_names_every_array(rng, tmp_path):
    page = PAGE.read_text()
    named = set(re.findall(r"`(\w+)`", page[page.index("## The arrays") :]))
    for name, model in random_models(rng):
        (tmp_path / name).mkdir()
        with np.load(exported(model, tmp_path / name)) as found:
            own = {array for array in found if not array.startswith("late_")}
            assert own <= named, name
            assert json.loads(str(found["document"]))["format"] == 1


def test_a_graph_needs_its_library(rng, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "onnx", None)
    out = exported(model_of(rng), tmp_path, "--onnx", code=2)
    assert "onnx is not installed: --onnx. Install it with: pip" in capsys.readouterr().err
    assert not out.exists()


def test_only_what_was_exported_is_replaced(rng, tmp_path, capsys):
    model = model_of(rng)
    out = exported(model, tmp_path)
    first = out.read_bytes()
    exported(model, tmp_path, code=2)
    assert "it exists already" in capsys.readouterr().err
    out.write_bytes(b"")
    exported(model, tmp_path, "--force", code=2)
    assert "it is no model that streammach exported" in capsys.readouterr().err
    assert out.read_bytes() == b""
    out.write_bytes(first)
    exported(model, tmp_path, "--force", "--json")
    printed = json.loads(capsys.readouterr().out)
    assert out.read_bytes() == first
    assert printed["bytes"] == len(first)
    assert printed["projected_bytes"] > 0
    exported(model, tmp_path, "--force", "--memory", "1MB", code=6)
