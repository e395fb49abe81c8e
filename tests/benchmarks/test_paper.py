"""The paper's tables: what its shortcuts rest on, and that a second call goes on with the first."""

import json
from argparse import Namespace
from dataclasses import replace

import numpy as np
import pytest

import streammach as sm
from benchmarks.paper import distinguish, grid, tables
from benchmarks.paper.run import Results, request, work
from benchmarks.paper.sample import sampled
from streammach import hashing
from streammach.data.store.dataset import Dataset
from streammach.errors import BudgetError, UsageError
from streammach.spec.training import TrainingOptions
from tests.builders import changed


def trained(store, plan, folder):
    options = TrainingOptions(epochs=1, learning_rate=0.5, transform="raw")
    return sm.Trainer(plan, options).fit(store, folder).model


@pytest.mark.parametrize("dense", [False, True])
def test_the_first_repetitions_are_a_model_of_their_own(tiny, dense):
    store = tiny.store()
    optimizer = "adam" if dense else "adagrad"
    plan = sm.plan(
        store,
        n_buckets=8,
        n_repetitions=5,
        counts="off",
        optimizer=optimizer,
        threads=1,
        loss="independent",
        whitening="off",
    )
    whole = trained(store, changed(plan, dense=dense), tiny.folder / "whole")
    spec = plan.model
    first = replace(
        spec, n_repetitions=2, hash_a=spec.hash_a[:2], hash_b=spec.hash_b[:2]
    )  # fmt: skip
    alone = trained(
        store,
        replace(plan, model=first, config=replace(plan.config, shape=first.shape, dense=dense)),
        tiny.folder / "alone",
    )
    columns = slice(0, first.n_columns)
    assert np.abs(alone.weights).max() > 0
    if dense:  # matrix products of another width may add up in another order
        np.testing.assert_allclose(whole.weights[:, columns], alone.weights, atol=1e-5)
    else:
        assert np.array(whole.weights[:, columns]).tobytes() == alone.weights.tobytes()
        assert np.array(whole.bias[columns]).tobytes() == alone.bias.tobytes()


def test_pairs_that_share_codes_are_counted_exactly():
    a, b = distinguish.plain_draw(3, 6)
    table = hashing.codes(a, b, 400, 4)
    wanted = [hashing.count_collisions(np.ascontiguousarray(table[:, :r])) for r in range(1, 7)]
    assert distinguish.shared_pairs(table) == wanted
    assert wanted[0] > wanted[3] > 0


def test_counts_stay_near_what_is_expected():
    found = distinguish.counted(300, 16, draws=30)
    first = found["rows"][0]
    assert 0.9 < first["pairs"] / first["expected"] < 1.1
    by_r = {row["repetitions"]: row for row in found["rows"]}
    last = by_r[found["theorem_repetitions"]]
    assert last["draws_with_pairs"] == 0
    assert last["bound"] <= distinguish.DELTA


def test_a_sample_holds_the_first_rows(tiny):
    train, test = tiny.store(), tiny.store("test.zarr", n_rows=90, n_classes=33)
    out = sampled(train, test, tiny.folder / "sample", 100, 50)
    with Dataset.open(train) as data, Dataset.open(out[0]) as part:
        rows, kept = data.rows(0, 100), part.rows(0, part.n_rows)
        assert part.n_rows == 100
        assert part.n_classes == len(np.unique(rows.classes))
        assert sorted(kept.values) == sorted(rows.values)
        numbers = np.array([part.labels.label(i) for i in range(part.n_classes)])
        assert sorted(numbers[kept.classes]) == sorted(rows.classes)
    with Dataset.open(test) as other, Dataset.open(out[1]) as tested, Dataset.open(train) as data:
        ids = data.labels.ids_of(other.labels)[other.rows(0, 50).classes]
        unseen = ~np.isin(ids, rows.classes)
        with Dataset.open(out[0]) as part:
            found = part.labels.ids_of(tested.labels)[tested.rows(0, 50).classes]
    assert (found < 0).sum() == unseen.sum()
    assert sampled(train, test, tiny.folder / "sample", 600, 50) == (train, test)


@pytest.fixture
def few_draws(monkeypatch):
    """What the hashes cannot tell apart is counted over two draws of them."""
    real = distinguish.counted
    monkeypatch.setattr(distinguish, "counted", lambda k, b: real(k, b, draws=2))


def options(tiny, **changes):
    values = {
        "train": tiny.folder / "train.zarr", "test": tiny.folder / "test.zarr",
        "out": tiny.folder / "out", "grid": "4x3,8x2", "rows": 300, "max_test": 60, "epochs": 1,
        "memory": "1GB", "threads": 1, "minutes": 10.0, "line_minutes": 1.0, "name": "tiny",
        "peers_python": "false",
    }  # fmt: skip
    return Namespace(**{**values, **changes})


def test_a_second_call_goes_on_with_the_first(tiny, few_draws, capsys):
    tiny.store(), tiny.store("test.zarr", n_rows=80)
    given = options(tiny)
    results = Results(given.out / "results.json", request(given))
    assert not work(options(tiny, minutes=0.0), results)
    assert work(given, results)
    found = json.loads((given.out / "results.json").read_text())
    steps = found["steps"]
    assert [p["repetitions"] for p in steps["grid/4x3"]["points"]] == [1, 2, 3]
    assert steps["grid/4x3"]["points"][-1]["mean"]["p_at_5"] > 5 / 30
    assert steps["line/exact"]["p_at_1"] > 0.5
    assert steps["line/vw_oaa"]["failed"] == "exit code 1"
    assert not list((given.out / "runs").iterdir())
    capsys.readouterr()
    assert work(given, Results(given.out / "results.json", request(given)))
    assert "grid/" not in capsys.readouterr().out
    other = options(tiny, grid="4x2")
    with pytest.raises(UsageError, match="other stores or options"):
        Results(given.out / "results.json", request(other))
    names = dict.fromkeys(("accuracy", "estimators", "distinguish"), "x.svg")
    text = tables.section(found, names)
    assert "the first 300 of 600" in text
    assert "left out: exit code 1" in text


def test_what_does_not_fit_is_refused(tiny):
    tiny.store()
    with pytest.raises(BudgetError, match="8 x 2 needs"):
        grid.train(
            tiny.folder / "train.zarr", tiny.folder / "run", options(tiny, memory="1MB"),
            n_buckets=8, n_repetitions=2,
        )  # fmt: skip
    with pytest.raises(UsageError, match="grid"):
        grid.parse("8x25,32")


def test_the_same_figures_give_the_same_files(tiny, few_draws):
    pytest.importorskip("matplotlib")
    from benchmarks.paper import figure

    tiny.store(), tiny.store("test.zarr", n_rows=80)
    given = options(tiny, rows=None)
    results = Results(given.out / "results.json", request(given))
    assert work(given, results)
    files = []
    for name in ("one", "two"):
        names = figure.draw(results.found, tiny.folder / name)
        files.append([(tiny.folder / name / file).read_bytes() for file in names.values()])
    assert files[0] == files[1]
    assert all(b"<svg" in file for file in files[0])
