"""Models as ONNX graphs: onnxruntime ranks as the product does. Skipped without both libraries."""

import numpy as np
import pytest

from streammach.linear.kernel_map import KernelWeights
from streammach.prediction.predictor import Predictor
from tests.builders import block_of
from tests.frontends.export.test_export import CLOSE, TRAINED, exported, random_models

pytestmark = pytest.mark.usefixtures("linear")
onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")


def check_onnx(model, block, folder, k=5):
    """Compare what onnxruntime ranks with the product."""
    out = exported(model, folder, "--onnx")
    onnx.checker.check_model(onnx.load(out), full_check=True)
    session = runtime.InferenceSession(out, providers=["CPUExecutionProvider"])
    lengths = np.diff(block.indptr)
    rows = np.repeat(np.arange(block.n_rows), lengths)
    if model.dense:
        x = np.zeros((block.n_rows, model.spec.n_features), np.float32)
        x[rows, block.features] = block.values
        given = {"values": x}
    else:
        places = np.arange(len(rows)) - block.indptr[rows]
        features = np.full((block.n_rows, lengths.max()), -1)
        values = np.ones(features.shape, np.float32)  # what is filled up counts nothing
        features[rows, places], values[rows, places] = block.features, block.values
        given = {"features": features, "values": values}
    ids, scores, labels = session.run(None, given | {"k": np.array([k])})
    with Predictor(model) as predictor:
        right, wanted = predictor.rank(block, k)
        names = predictor.labels(ids)
    np.testing.assert_allclose(scores, wanted, **CLOSE)
    apart = np.abs(np.diff(wanted, axis=1)).min(axis=1) > 1e-4  # ids of ties may differ
    assert apart.any() or model.estimator == "min"
    np.testing.assert_array_equal(ids[apart], right[apart])
    assert labels.tolist() == [[str(name) for name in row] for row in names]


@pytest.mark.parametrize("made", TRAINED, ids=lambda made: made.__name__)
def test_onnx_and_the_product_agree(made, rng, tmp_path):
    model, block = made(rng)
    if isinstance(model.linear, KernelWeights) or model.near or model.late:
        exported(model, tmp_path, "--onnx", code=2)
    else:
        check_onnx(model, block, tmp_path)


REFUSED = ("near", "late")


def test_every_kind_but_two_is_a_graph(rng, tmp_path, capfd):
    for name, model in random_models(rng):
        (tmp_path / name).mkdir()
        if name not in REFUSED:
            check_onnx(model, block_of(rng, 15, 12, 30, values="any"), tmp_path / name)
            continue
        out = exported(model, tmp_path / name, "--onnx", code=2)
        told = capfd.readouterr().err.splitlines()[-1]
        assert told.startswith("streammach: error: the model has ")
        assert "which ONNX cannot hold: --onnx. Leave --onnx out" in told
        assert not out.exists()
