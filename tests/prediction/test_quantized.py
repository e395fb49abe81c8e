"""Hashed models with narrower weights that are made as rows need them."""

import dataclasses
import tracemalloc

import numpy as np
import pytest

import streammach as sm
from streammach.backends.cpu.forward import Forward
from streammach.model.shrink import Size, shrink
from streammach.options.config import RunConfig
from streammach.prediction import quantized as narrowed
from streammach.prediction.quantized import QuantizedForward
from streammach.rows.block import RowBlock
from tests.builders import block_of
from tests.model.models import model_of
from tests.reference import rounding

D, K, B, R = 50, 40, 8, 5


@pytest.mark.parametrize("piece", [1, 3000, 1 << 20])
@pytest.mark.parametrize(("r", "loss"), [(2, "independent"), (R, "independent"), (2, "logistic")])
@pytest.mark.parametrize(
    ("dense", "stored"),
    [
        (False, "float32"),
        (False, "int8"),
        (False, "int4"),
        (True, "float32"),
        (True, "float16"),
        (True, "float10"),
    ],
)
def test_they_rank_as_a_smaller_model_does(rng, monkeypatch, *, dense, stored, r, loss, piece):
    monkeypatch.setattr(narrowed, "PIECE_BYTES", piece)
    model = dataclasses.replace(model_of(rng, D, K, B, R), dense=dense)
    model = dataclasses.replace(model, training=dataclasses.replace(model.training, loss=loss))
    small = shrink(model, Size(stored, r, 0))
    rows = block_of(rng, 60, D, K)
    arrays = {"weights": model.weights, "bias": model.bias}
    before = model.weights.copy()
    judged = QuantizedForward(
        small.spec, arrays, stored, dense=dense, threads=2, logistic=model.training.logistic
    )  # fmt: skip
    with sm.Predictor(small, threads=2) as predictor:
        for name in ("logsum", "mean"):
            ids, scores = judged.topk(rows, 7, name)
            expected = predictor.rank(dataclasses.replace(rows, values=rows.values.copy()), 7, name)
            np.testing.assert_allclose(scores, expected[1], rtol=1e-4, atol=1e-5)
            assert (ids == expected[0]).mean() > 0.98
    judged.close()
    assert np.array_equal(model.weights, before)


@pytest.mark.parametrize(("stored", "levels"), [("int8", 127), ("int4", 7)])
def test_rows_are_added_up_as_by_the_model_that_is_written(rng, stored, levels):
    weights = rng.normal(size=(D, B * R)).astype(np.float32)
    weights[3], weights[4] = 0, 3e38
    weights[5, :2] = 1e-45
    model = model_of(rng, D, K, B, R, weights=weights)
    rows, spec = block_of(rng, 60, D, K), model.spec.first(2)
    arrays = {"weights": model.weights, "bias": model.bias}
    numbers, units = rounding.whole_numbers(weights[:, : 2 * B], levels)
    small = {"weights": numbers, "bias": model.bias[: 2 * B], "scale": units}
    judged = QuantizedForward(spec, arrays, stored, dense=False, threads=2, logistic=False)
    written = Forward(spec, dense=False, threads=1, weights=small)
    got, expected = (one.outputs(rows, logarithms=True) for one in (judged, written))
    assert got.tobytes() == expected.tobytes()
    judged.close()
    written.close()


def test_narrowing_takes_what_is_reckoned(rng):
    d, k, longest = 1_200, 3_000, 1_100
    arrays = {
        "weights": rng.normal(size=(d, k)).astype(np.float32),
        "bias": np.zeros(k, np.float32),
    }
    model = model_of(rng, d, k, k, 1)
    rows = RowBlock(
        indptr=np.array([0, longest]), features=np.arange(longest, dtype=np.int32),
        values=np.ones(longest, np.float32), classes=np.zeros(1, np.int32),
    )  # fmt: skip
    config = RunConfig.predicting(model.spec.shape, device="cpu", dense=False, threads=1, n_more=0)
    judged = QuantizedForward(model.spec, arrays, "int8", dense=False, threads=1, logistic=False)
    tracemalloc.start()
    judged.outputs(rows, logarithms=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    judged.close()
    assert peak < QuantizedForward.footprint(config)
