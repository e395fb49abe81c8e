"""Bucket probabilities of hashed models: of rows in memory, and of files in their order."""

import json
import os

import numpy as np
import pytest

import streammach as sm
from streammach.cli.main import main
from streammach.model.model import Model
from streammach.prediction import order
from streammach.prediction.predictor import Predictor
from streammach.rows.transforms import transform_block
from streammach.system.errors import UsageError
from tests.model.models import counts_of, model_of


def softmax_of(model, block):
    """What the weights say of rows: float64 (n, R, B)."""
    x = np.zeros((block.n_rows, model.spec.n_features))
    done = transform_block(block, model.training.transform)
    x[np.repeat(np.arange(block.n_rows), np.diff(block.indptr)), block.features] = done.values
    z = (x @ np.asarray(model.weights) + model.bias).reshape(
        block.n_rows, model.spec.n_repetitions, model.spec.n_buckets
    )
    p = np.exp(z - z.max(axis=2, keepdims=True))
    return p / p.sum(axis=2, keepdims=True)


def test_a_model_gives_the_probability_of_each_bucket(trained):
    data, model = trained
    block = data.rows(0, 50)
    found = model.buckets(block)
    assert found.dtype == np.float32
    assert found.shape == (50, model.spec.n_repetitions, model.spec.n_buckets)
    np.testing.assert_allclose(found, softmax_of(model, block), atol=1e-5)
    codes = model.spec.codes()
    own = np.log(found)[:, np.arange(model.spec.n_repetitions), codes].mean(axis=2)
    with Predictor(model, estimator="logsum") as predictor:
        ids, scores = predictor.rank(block, 3)
    np.testing.assert_allclose(np.take_along_axis(own, ids, axis=1), scores, atol=1e-5)


def test_rows_are_those_that_predict_takes(trained):
    _, model = trained
    names = [name if isinstance(name, str) else str(name) for name in model.features[:4]]
    rows = np.eye(4, dtype=np.float32)
    alone = [model.buckets(rows[i : i + 1], columns=names) for i in range(4)]
    np.testing.assert_array_equal(model.buckets(rows, columns=names), np.concatenate(alone))


@pytest.mark.parametrize("listed", [False, True], ids=["memory", "files"])
def test_a_file_has_the_buckets_of_rows_in_their_order(trained, tmp_path, monkeypatch, listed):
    data, model = trained
    model.save(tmp_path / "model")
    if listed:  # each range of rows is put aside in files
        monkeypatch.setattr(order.Order, "row_bytes", lambda *_: 1 << 20)
    done = sm.predict(
        tmp_path / "model", data.path, tmp_path / "best.tsv", k=2, buckets=tmp_path / "p.npy"
    )
    found = np.load(tmp_path / "p.npy", mmap_mode="r")
    assert (done.n_rows, found.dtype) == (len(found), np.dtype("<f4"))
    numbers, _ = data.origins(0, data.n_rows)
    every = model.buckets(data.rows(0, data.n_rows))
    np.testing.assert_allclose(found, every[np.argsort(numbers)], atol=1e-6)
    plain = sm.predict(tmp_path / "model", data.path, tmp_path / "plain.tsv", k=2)
    assert plain.n_rows == done.n_rows
    assert (tmp_path / "plain.tsv").read_bytes() == (tmp_path / "best.tsv").read_bytes()


def test_rows_of_text_that_cannot_be_read_have_no_buckets(trained, tmp_path, capsys):
    _, model = trained
    model.save(tmp_path / "model")
    name = model.features.values(np.arange(1))[0]
    space, _, word = str(name).partition("^")
    lines = [f"|{space} {word}:{i}" for i in range(1, 8)]
    lines[3] = f"|{space} {word}:nan"
    (tmp_path / "new.vw").write_text("\n".join(lines) + "\n")
    command = ["predict", str(tmp_path / "model"), str(tmp_path / "new.vw"), "--json"]
    command += ["--out", str(tmp_path / "best.tsv"), "--on-bad-row", "skip"]
    command += ["--buckets", str(tmp_path / "p.npy"), "--memory", "1GB"]
    assert main(command) == 0
    printed = json.loads(capsys.readouterr().out)
    found = np.load(tmp_path / "p.npy")
    assert len(found) == printed["n_rows"] == 6
    np.testing.assert_allclose(found.sum(axis=2), 1, atol=1e-5)


def test_what_cannot_be_is_refused_in_one_line(trained, tmp_path, rng, capsys):
    data, model = trained
    counts = model_of(rng, n_repetitions=0, counts=counts_of(rng))
    with pytest.raises(UsageError, match="no hashed models"):
        counts.buckets(np.ones((1, 12), np.float32), columns=[f"f{i}" for i in range(12)])
    counts.save(tmp_path / "counts")
    model.save(tmp_path / "model")
    (tmp_path / "there.npy").write_bytes(b"mine")
    os.mkfifo(tmp_path / "pipe")
    refused = {
        "p.npy": ("counts", "no hashed models"),
        "there.npy": ("model", "it exists already, and is not replaced"),
        "pipe": ("model", "it exists already, and is not replaced"),
        "best.tsv": ("model", "it is read as well"),
    }
    for name, (folder, said) in refused.items():
        command = ["predict", str(tmp_path / folder), str(data.path), "--force"]
        command += ["--out", str(tmp_path / "best.tsv"), "--buckets", str(tmp_path / name)]
        assert main(command) == 2
        assert said in capsys.readouterr().err
        assert not (tmp_path / "best.tsv").exists()
    assert main([*command, "--devices", "cpu,cpu"]) == 2
    assert "a cluster writes no bucket probabilities: --buckets" in capsys.readouterr().err
    assert (tmp_path / "there.npy").read_bytes() == b"mine"


def test_what_many_buckets_take_is_planned(trained, tmp_path):
    data, model = trained
    model.save(tmp_path / "model")
    Model.load(tmp_path / "model")
    with_buckets, without = (
        sm.predict(tmp_path / "model", data.path, tmp_path / f"{i}.tsv", buckets=buckets)
        for i, buckets in enumerate([tmp_path / "p.npy", None])
    )
    assert with_buckets.projected_bytes > without.projected_bytes
