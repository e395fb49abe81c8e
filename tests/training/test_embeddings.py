"""Lists of numbers beside text: what hashed models and counts make of them."""

import numpy as np
import pytest

import streammach as sm
from tests.builders import fit

N, WIDTH = 600, 24
FIXED = {"epochs": 3, "learning_rate": 0.5, "transform": "raw"}


@pytest.fixture(scope="module")
def rows():
    """Rows whose words tell half of their class, and whose lists of numbers tell the other half."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(5, WIDTH))
    found = []
    for i in range(N):
        a, b = int(rng.integers(4)), int(rng.integers(5))
        noise = " ".join(f"n{k}" for k in rng.integers(0, 60, 4))
        vector = (7 + centers[b] + rng.normal(size=WIDTH) * 0.5).tolist()
        vector = None if i % 50 == 7 else vector
        found.append({"text": f"w{a} {noise}", "v": vector, "y": f"{a}{b}"})
    return found


@pytest.fixture(scope="module")
def stores(rows, tmp_path_factory):
    """Stores of the same rows with and without their lists."""
    folder = tmp_path_factory.mktemp("stores")
    sm.convert(rows, folder / "both.zarr", label="y", text="text", number="v")
    sm.convert(rows, folder / "text.zarr", label="y", text="text")
    with (
        sm.Dataset.open(folder / "both.zarr") as both,
        sm.Dataset.open(folder / "text.zarr") as one,
    ):
        yield both, one


def test_lists_come_first_and_are_as_long_as_words(stores):
    both, text = stores
    assert both.n_common_features == both.facts.shared == WIDTH
    assert text.n_common_features == 0
    assert all(both.features.raw(i).startswith(b"v^") for i in range(WIDTH))
    assert abs(both.facts.n_pairs - text.facts.n_pairs) < 0.05 * text.facts.n_pairs
    block = both.rows(0, N)
    values = block.values[block.features < WIDTH].reshape(N, WIDTH)
    lengths = np.sqrt((values**2).sum(axis=1))
    assert np.count_nonzero(lengths == 0) == N // 50  # those without one
    assert np.mean(lengths[lengths > 0]) == pytest.approx(3, rel=0.1)
    assert abs(values[lengths > 0].mean()) < 0.1


def test_values_tell_what_words_do_not(stores, tmp_path):
    both, text = (
        fit(data, tmp_path / str(i), sm.plan(data, n_buckets=8, n_repetitions=4), **FIXED)
        for i, data in enumerate(stores)
    )
    assert both.result.best.accuracy > text.result.best.accuracy + 0.3


def test_a_table_is_predicted_as_its_store_is(rows, tmp_path):
    run = sm.train(rows[:500], "y", text="text", number="v", n_buckets=8, n_repetitions=4, **FIXED)
    labels = run.model.predict([{"text": r["text"], "v": r["v"]} for r in rows[500:]])
    wanted = [r["y"] for r in rows[500:]]
    reached = sm.evaluate(run.model, rows[500:]).accuracy
    assert np.mean(labels == np.array(wanted)) == pytest.approx(reached)
    assert reached > 0.5


def test_counts_are_those_of_rows_without_lists(stores, tmp_path):
    found = []
    for i, data in enumerate(stores):
        run = fit(data, tmp_path / str(i), sm.plan(data, n_repetitions=0))
        with sm.Predictor(run.model) as predictor:
            found.append((run.model.n_pairs, *predictor.rank(data.rows(0, 99), 3)))
    (n_pairs, ids, scores), (pairs_of_text, ids_of_text, scores_of_text) = found
    assert n_pairs == pairs_of_text
    assert (ids == ids_of_text).all()
    assert np.allclose(scores, scores_of_text, atol=1e-3)
