"""Sweeps: what fits is trained once, what does not is listed, the frontier is marked."""

import json

import numpy as np
import pytest

import streammach as sm
from streammach.errors import BudgetError, Interrupted, MismatchError, UsageError
from streammach.planning.constraints import Constraints
from streammach.spec.training import TrainingOptions
from streammach.training.events import LOG, RunLog, read_log
from streammach.training.sweep import SWEEP, frontier, open_sweep, sweep
from tests.builders import Stop

QUICK = TrainingOptions(epochs=1, learning_rate=0.5, transform="binary")
GRID = {
    "memory": "600MB", "buckets": (4, 8), "repetitions": (2, 3), "training": QUICK,
    "constraints": Constraints(parts={"counts": "off"}),
}  # fmt: skip


@pytest.fixture
def stores(tiny):
    train = tiny.store("train.zarr", n_rows=500, n_classes=30)
    return train, tiny.store("test.zarr", n_rows=150, n_classes=30, like=train)


def watched(trained, *stop):
    """Callbacks that note which points are trained, and may ask for the end."""

    def callbacks(plan):
        trained.append((plan.n_buckets, plan.n_repetitions))
        return [*stop]

    return callbacks


def test_every_point_is_trained_once(stores, tiny):
    train, test = stores
    trained, told = [], []
    out = tiny.folder / "sw"
    found = sweep(train, out, **GRID, test=test, callbacks=watched(trained), told=told.append)
    assert trained == [(4, 2), (4, 3), (8, 2), (8, 3)]
    assert sorted(told, key=lambda p: p.model_bytes) == sorted(
        told, key=lambda p: p.buckets * p.repetitions
    )
    assert found == open_sweep(out)
    sizes = [point.model_bytes for point in found.points]
    assert sizes == sorted(sizes)
    for point in found.points:
        run = sm.Run.open(out / point.run)
        assert (run.plan.n_buckets, run.plan.n_repetitions) == (point.buckets, point.repetitions)
        assert point.held_out.accuracy == run.result.validation[point.estimator].accuracy
        assert (point.model_bytes, point.peak_bytes) == (run.model.n_bytes, run.result.peak_bytes)
        assert point.test.accuracy == sm.evaluate(run.model, test).accuracy
    marks = frontier([(p.model_bytes, p.test.accuracy) for p in found.points])
    assert [p.frontier for p in found.points] == marks
    told.clear()
    assert sweep(train, out, **GRID, test=test, callbacks=watched(trained)) == found
    assert (len(trained), told) == (4, [])


def test_an_interrupted_sweep_goes_on(stores, tiny, monkeypatch):
    train, _ = stores
    whole = sweep(train, tiny.folder / "whole", **GRID)
    trained, out = [], tiny.folder / "sw"
    stop = Stop(monkeypatch, on_progress=lambda state: len(trained) == 2)
    with pytest.raises(Interrupted, match=r"saved step.*The same command goes on") as caught:
        sweep(train, out, **GRID, callbacks=watched(trained, stop))
    assert "resume" not in str(caught.value)
    assert [(p.buckets, p.repetitions) for p in open_sweep(out).points] == trained[:1]
    monkeypatch.undo()
    again = []
    found = sweep(train, out, **GRID, callbacks=watched(again))
    assert again == [(4, 3), (8, 2), (8, 3)]
    reached = [[(p.run, p.held_out, p.frontier) for p in s.points] for s in (found, whole)]
    assert reached[0] == reached[1]
    for point in found.points:
        files = [
            (tiny.folder / name / point.run / "model/model.safetensors").read_bytes()
            for name in ("sw", "whole")
        ]
        assert files[0] == files[1]


def test_what_does_not_fit_is_listed_and_not_trained(stores, tiny):
    train, _ = stores
    trained = []
    options = {**GRID, "memory": "600MB", "buckets": (4,), "repetitions": (2, 500000)}
    found = sweep(train, tiny.folder / "sw", **options, callbacks=watched(trained))
    assert trained == [(4, 2)]
    assert [(r.buckets, r.repetitions) for r in found.refused] == [(4, 500000)]
    assert found.refused[0].reason.startswith("4 x 500000 does not fit: it needs ")
    with pytest.raises(BudgetError, match=r"nothing of the grid fits; 4 x 2 does not fit"):
        sweep(train, tiny.folder / "no", **{**GRID, "memory": "100MB"})
    assert not (tiny.folder / "no").exists()


def test_another_grid_adds_points_and_other_options_are_refused(stores, tiny):
    train, test = stores
    out, trained = tiny.folder / "sw", []
    small = {**GRID, "buckets": (4,), "repetitions": (2,)}
    sweep(train, out, **small)
    wider = {**GRID, "buckets": (4, 64), "repetitions": (2,)}
    found = sweep(train, out, **wider, test=test, callbacks=watched(trained))
    assert trained == [(30, 1)]  # 64 buckets are more than classes: the exact model
    assert len(found.points) == 2
    assert found.tested
    before = (out / SWEEP).read_bytes()
    for change in ({"memory": "700MB"}, {"training": TrainingOptions(epochs=2)}):
        with pytest.raises(MismatchError, match="another store, budget or options"):
            sweep(train, out, **{**small, **change})
    assert (out / SWEEP).read_bytes() == before
    with pytest.raises(UsageError, match="grid is empty"):
        sweep(train, out, **{**small, "buckets": ()})


def test_a_damaged_file_is_refused(stores, tiny):
    out = tiny.folder / "sw"
    out.mkdir()
    (out / "streammach.json").write_text('{"streammach": "sweep"}')
    (out / SWEEP).write_text('{"store": 3}')
    with pytest.raises(MismatchError, match="not the file of a sweep"):
        sweep(stores[0], out, **GRID)


@pytest.mark.parametrize(
    ("points", "marks"),
    [
        ([], []),
        ([(10, 0.5)], [True]),
        ([(10, 0.5), (20, 0.6), (30, 0.55)], [True, True, False]),
        ([(10, 0.5), (10, 0.6)], [False, True]),
        ([(10, 0.5), (20, 0.5)], [True, False]),
        ([(10, 0.5), (10, 0.5)], [True, True]),
        ([(30, 0.7), (20, 0.6), (40, 0.6)], [True, True, False]),
    ],
)
def test_the_frontier_by_hand(points, marks):
    assert frontier(points) == marks


def test_the_frontier_by_its_definition(rng):
    sizes, scores = rng.integers(1, 9, 40), rng.random(40).round(1)
    points = list(zip(sizes.tolist(), scores.tolist(), strict=True))
    order = np.array(points)
    for (size, p_at_1), mark in zip(points, frontier(points), strict=True):
        better = (order[:, 0] <= size) & (order[:, 1] >= p_at_1)
        strictly = (order[:, 0] < size) | (order[:, 1] > p_at_1)
        assert mark == (not (better & strictly).any())


REACHED = {"accuracy": 0.5, "top_5_accuracy": 0.75}


def test_a_log_is_read_over_its_sessions(tmp_path):
    lines = [
        {"t": 0.0, "event": "start"}, {"t": 5.0, "event": "measured", **REACHED},
        {"t": 0.0, "event": "start"}, {"t": 2.0, "event": "measured", **REACHED},
        {"t": 2.5, "event": "measured", **REACHED, "accuracy": "much"},
        {"t": 2.5, "event": "memory", "weights": 7, "names": "x"},
    ]  # fmt: skip
    text = "\n".join(json.dumps(line) for line in lines) + '\n[1]\n{"t": "x"}\n{"t": 3.0, "ev'
    (tmp_path / LOG).write_text(text + "\n" + "[" * 100_000)
    log = read_log(tmp_path)
    assert [one.t for one in log.stages] == [5.0, 7.0]
    assert log.held == {"weights": 7}
    assert read_log(tmp_path / "none") == RunLog()
