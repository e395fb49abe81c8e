"""Training on tables and text in memory: by the recipe of a conversion, answered by every door."""

import numpy as np
import pytest

import streammach as sm
from streammach.system.errors import DataError, UsageError

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

FIXED = {
    "epochs": 3, "learning_rate": 0.5, "transform": "binary", "n_buckets": 8, "n_repetitions": 3,
    "threads": 1, "counts": "off",
}  # fmt: skip


@pytest.fixture
def frame(rng):
    """Rows of twenty kinds, told by words of their titles and by a brand."""
    kinds = rng.integers(0, 20, 900)
    titles = [f"Näme{k} {rng.choice(['the', 'a', 'of'])} Thing-{k}, word{rng.integers(30)}"
              for k in kinds]  # fmt: skip
    return pd.DataFrame({
        "title": titles, "brand": [f"b{k % 7}" for k in kinds],
        "price": np.round(rng.normal(size=900) + kinds, 2), "kind": [f"kind {k}" for k in kinds],
    })  # fmt: skip


def test_a_table_trains_as_its_store_does(frame, tmp_path):
    run = sm.train(frame, "kind", **FIXED)
    sm.convert(frame, tmp_path / "a.zarr", label="kind")
    with sm.Dataset.open(tmp_path / "a.zarr") as data:
        plan = sm.plan(data, n_buckets=8, n_repetitions=3, threads=1, counts="off")
        options = sm.TrainingOptions(epochs=3, learning_rate=0.5, transform="binary")
        stored = sm.Trainer(plan, options).fit(data, tmp_path / "run")
    assert run.model.recipe == stored.model.recipe
    for name in ("weights", "bias"):
        ours, theirs = (np.asarray(getattr(r.model, name)) for r in (run, stored))
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(run.model.features.data, stored.model.features.data)


def test_lists_of_labels_in_a_column(frame):
    several = frame.assign(kind=[[kind, "all"] for kind in frame["kind"]])
    model = sm.train(several[:700], "kind", text="title", **FIXED).model
    assert model.listed
    found = model.predict(several[700:], 2)
    assert all("all" in labels for labels in found.tolist())


def test_weights_come_from_a_column_or_an_array(frame):
    weighted = frame.assign(w=np.where(frame["brand"] == "b0", 0.0, 1.0))
    by_column = sm.train(weighted, "kind", weight="w", text="title", **FIXED).model
    by_array = sm.train(
        weighted.drop(columns="w"), "kind", sample_weight=weighted["w"], text="title", **FIXED
    ).model  # fmt: skip
    np.testing.assert_array_equal(np.asarray(by_column.weights), np.asarray(by_array.weights))
    with pytest.raises(UsageError, match="weight, sample_weight"):
        sm.train(weighted, "kind", weight="w", sample_weight=weighted["w"], **FIXED)


def test_a_column_called_like_labels_is_a_feature_beside_labels_of_their_own(frame):
    named = frame.rename(columns={"brand": "category"})
    model = sm.train(named.drop(columns="kind"), frame["kind"], **FIXED).model
    assert [column.name for column in model.recipe.columns] == ["title", "category", "price"]
    assert model.recipe.ignored == ()


def test_numbers_alone_stay_a_matrix(rng):
    numbers = pd.DataFrame(rng.normal(size=(100, 3)), columns=["a", "b", "c"])
    model = sm.train(numbers, np.arange(100) % 2, epochs=1, learning_rate=0.1).model
    assert model.recipe is None
    assert model.predict(numbers[["a", "b", "c"]]).shape == (100,)


def test_what_cannot_be_is_one_line(frame):
    with pytest.raises(UsageError, match="there is no column 'sort': label"):
        sm.train(frame, "sort", **FIXED)
    with pytest.raises(UsageError, match="strings have no columns"):
        sm.train(frame["title"].tolist(), "kind", **FIXED)
    with pytest.raises(UsageError, match="only a table has columns to name"):
        sm.train(np.ones((3, 2)), "kind", **FIXED)
    with pytest.raises(DataError):
        sm.train(frame.assign(title=""), frame["kind"], text="title", **FIXED)
