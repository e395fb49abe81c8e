"""Evidence of pilots: scores, their errors, and what becomes of expectations."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.planner import RESULTS
from benchmarks.planner.fit import known
from streammach.planning.candidates import Candidate
from streammach.planning.cost import Cost
from streammach.planning.evidence import KNOWN, expectation, extrapolated, score, weighed_again
from streammach.spec.model_spec import ModelShape
from streammach.spec.plan import Option, Pilot
from tests.builders import config_of

NO_TIME = Cost(
    search=0.0, epochs=0.0, finish=0.0, parts={}, smaller=0.0, elastic=0.0, elastic_points=0.0
)


def option(buckets, loss, error=1.0, repetitions=8):
    found = Option(
        config=config_of(shape_of(buckets, repetitions)), projected_bytes=1, model_bytes=1,
        loss=loss, loss_error=error, seconds=1.0, query_seconds=1.0, fits=True,
    )  # fmt: skip
    return Candidate(found, (), (), NO_TIME)


def shape_of(buckets, repetitions):
    return ModelShape(n_classes=1000, n_features=9, n_buckets=buckets, n_repetitions=repetitions)


def pilot(buckets, p_at_1, *, rows=1000, top_5_accuracy=None, held_out=10**9, repetitions=8):
    five = p_at_1 if top_5_accuracy is None else top_5_accuracy
    return Pilot(
        shape=shape_of(buckets, repetitions), parts=(), rows=rows, held_out=held_out,
        accuracy=p_at_1, top_5_accuracy=five, seconds=1.0,
    )  # fmt: skip


def test_the_error_of_a_score_is_that_of_its_rows(rng):
    p, q, n = 0.3, 0.6, 400
    first = rng.random((20_000, n)) < p
    five = first | (rng.random((20_000, n)) < (q - p) / (1 - p))
    drawn = 50 * (first.mean(axis=1) + five.mean(axis=1))
    found = score(pilot(8, p, top_5_accuracy=q, held_out=n))
    assert found.points == pytest.approx(45.0)
    assert found.error == pytest.approx(np.std(drawn), rel=0.02)


def test_scores_go_on_as_they_went_and_at_most_as_far_again():
    runs = [pilot(8, 0.2, rows=1000), pilot(8, 0.3, rows=4000)]
    assert extrapolated(runs, 8000).points == pytest.approx(35.0)
    assert extrapolated(runs, 10**9).points == pytest.approx(40.0)
    assert extrapolated(runs, 4000).points == pytest.approx(30.0)
    assert extrapolated(runs[:1], 10**9).points == pytest.approx(20.0)
    few = [pilot(8, 0.2, rows=1000, held_out=100), pilot(8, 0.3, rows=4000, held_out=100)]
    last, before = score(few[1]).error, score(few[0]).error
    assert extrapolated(few, 16_000).error == pytest.approx(math.hypot(2 * last, before))


def test_sure_evidence_decides_and_unsure_evidence_changes_little():
    weighed = [option(8, 0.0), option(16, 1.0), option(32, 2.0)]
    pilots = [pilot(8, 0.40), pilot(16, 0.45)]
    sure = [c.option for c in weighed_again(weighed, pilots, 1000)]
    assert sure[0].loss - sure[1].loss == pytest.approx(5.0, abs=0.1)
    assert min(o.loss for o in sure) >= 0
    assert sure[0].loss_error <= 0.1
    assert sure[2] == weighed[2].option
    unsure = [pilot(8, 0.40, held_out=4), pilot(16, 0.45, held_out=4)]
    kept = [c.option for c in weighed_again(weighed, unsure, 1000)]
    assert kept[0].loss == pytest.approx(0.0, abs=0.2)
    assert kept[1].loss == pytest.approx(1.0, abs=0.2)


def plan_with(pilots, chosen, n_rows=4000, listed=False):
    """As much of a plan as an expectation asks for."""
    batching = SimpleNamespace(held_out_rows=100)
    return SimpleNamespace(
        expected=chosen, pilots=pilots, config=SimpleNamespace(batching=batching),
        facts=SimpleNamespace(n_rows=n_rows, listed=listed),
    )  # fmt: skip


def test_a_pilot_of_the_plan_says_what_it_should_reach():
    runs = (pilot(8, 0.2, rows=1000, held_out=100), pilot(8, 0.3, rows=4000, held_out=100))
    chosen = option(8, 0.0).option
    found = expectation(plan_with((*runs, pilot(16, 0.9)), chosen, n_rows=16_100))
    assert found.source == "pilot"
    assert found.rows == 4000
    assert found.points == pytest.approx(40.0)
    assert found.error == pytest.approx(extrapolated(runs, 16_000).error)
    sure = expectation(plan_with((pilot(8, 0.999, rows=10), pilot(8, 1.0, rows=20)), chosen))
    assert (sure.points, sure.error) == (100.0, 0.1)


def test_without_one_it_is_what_other_data_reached_with_the_error_of_that():
    chosen = option(8, 0.0).option
    for listed in (False, True):
        found = expectation(plan_with((pilot(16, 0.9),), chosen, listed=listed))
        points, error, sets = KNOWN[listed]
        assert (found.source, found.points, found.error) == ("other data", points, error)
        measured = json.loads((RESULTS / "planner_grid.json").read_text())
        assert known(measured, listed=listed) == (points, error, sets)


def test_what_was_found_holds_for_all_repetitions():
    weighed = [option(8, 1.0), option(8, 1.5, repetitions=6), option(16, 1.0)]
    found = [
        c.option for c in weighed_again(weighed, [pilot(8, 0.2), pilot(16, 0.3)], 1000)
    ]  # fmt: skip
    assert found[1].loss - found[0].loss == pytest.approx(0.5)
    assert found[0].loss - found[2].loss == pytest.approx(10.0, abs=0.2)


def test_without_pilots_nothing_changes():
    weighed = [option(8, 1.0), option(16, 0.0, error=0.0)]
    assert weighed_again(weighed, [], 1000) == weighed
