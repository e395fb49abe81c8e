"""Predictions compile first, with the first rows, where the compiler has no room beside them."""

import pytest

import streammach as sm
from streammach.inputs.source_options import GUESSED
from streammach.prediction import room
from streammach.prediction.diagnose import rank_first_rows
from streammach.prediction.room import FIRST_ROWS, room_before
from streammach.prediction.scorer_sum import ScorerSum
from streammach.system.errors import BudgetError
from streammach.system.machine import parse_size
from tests.builders import fit

MORE = 150_000_000


@pytest.fixture(scope="module")
def run(shared):
    """A run, and its store and text."""
    store = shared.store(n_rows=300, n_classes=12)
    plan = sm.plan(store, n_buckets=8, n_repetitions=3)
    fit(store, shared.folder / "run", plan, epochs=1, learning_rate=0.5, transform="binary")
    return shared.folder / "run", store, shared.folder / "train.zarr.vw"


@pytest.mark.parametrize("measured", [True, False])
@pytest.mark.parametrize("some", [True, False])
def test_the_first_rows_of_stores_and_files_are_ranked(run, monkeypatch, measured, some):
    ranked, topk = [], ScorerSum.topk

    def record(self, rows, *arguments, **options):
        ranked.append((rows.n_rows, options.get("allowed") is not None))
        return topk(self, rows, *arguments, **options)

    monkeypatch.setattr(ScorerSum, "topk", record)
    for path in run[1:]:
        ranked.clear()
        rank_first_rows("", (), run[0], measured, path, GUESSED, 2, some)
        assert {one for one in ranked if one[0] == 64} == {(64, some and not measured)}


@pytest.mark.parametrize("task", ["predict", "evaluate"])
def test_a_budget_without_room_for_a_compiler_is_enough(run, monkeypatch, task):
    asked, kept = [], [False]

    def first(function, kind, *said, most):
        asked.append((function, most))
        kept[0] = function == FIRST_ROWS
        return True

    monkeypatch.setattr(room, "compiler_bytes", lambda *kind: 0 if kept[0] else MORE)
    monkeypatch.setattr(room, "compile_first", first)
    monkeypatch.setattr(room, "CACHE_DIR", "folder")
    with pytest.raises(BudgetError) as refused:
        room_before(run[0], task, run[1], 5, memory="100MB")
    advice = refused.value.hint.split("--memory ")[1].split()[0]
    assert not asked
    assert room_before(run[0], task, run[1], 5, memory=advice).projected_bytes <= parse_size(advice)
    assert asked == [(FIRST_ROWS, parse_size(advice))]
    kept[0] = False
    roomy = room_before(run[0], task, run[1], 5, memory="2GB")
    assert len(asked) == 1  # it compiles for itself
    assert MORE < roomy.projected_bytes <= 2 * 10**9
    monkeypatch.setattr(room, "CACHE_DIR", None)
    with pytest.raises(BudgetError, match="needs"):
        room_before(run[0], task, run[1], 5, memory=advice)
