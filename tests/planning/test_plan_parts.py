"""What a plan chooses beside the shape: counts, features, and what short time leaves out."""

import pytest

from streammach.parts.counts.count_bytes import pair_room
from streammach.planning.choose import TIE, plan
from streammach.planning.cost import START, Cost
from streammach.system.errors import BudgetError, UsageError
from streammach.system.machine import parse_size
from tests.planning.test_choose import facts, machine_of_16_gb

__all__ = ["machine_of_16_gb"]


def test_hashed_models_know_fewer_features_where_all_leave_no_room():
    heads = (20_000, 40_000, 100_000, 200_000, 600_000)
    known, unknown = (facts(n_features=2_000_000, heads=h) for h in (heads, ()))
    for memory in ("1GB", "2GB", "3GB"):
        found, whole = plan(known, memory=memory), plan(unknown, memory=memory)
        assert found.model.hashed_features in heads
        assert found.expected.loss < whole.expected.loss - TIE
        assert found.projected_bytes <= parse_size(memory)
        assert any("of 2,000,000 features, the most frequent" in why for why in found.reasons)
    with pytest.raises(BudgetError):
        plan(unknown, memory="700MB", counts="off")
    assert plan(known, memory="700MB", counts="off").model.cut
    assert plan(known, memory="12GB").config == plan(unknown, memory="12GB").config
    fixed = plan(known, memory="3GB", hashed_features=300_000)
    assert fixed.model.hashed_features == 300_000
    assert known.share(200_000) == pytest.approx(0.95)
    shares = [known.share(n) for n in (200_000, 300_000, 600_000, 2_000_000)]
    assert shares == sorted({*shares})


def test_lists_of_more_labels_want_more_columns():
    lists = {"n_labels": 3_000_000, "max_row_labels": 50, "max_block_labels": 100_000}
    shape = {"n_buckets": 64, "n_repetitions": 9, "memory": "12GB"}
    lost = [
        [plan(facts(n_classes=k, **kind), **shape).expected.loss for k in (10_000, 100_000)]
        for kind in ({}, lists)
    ]
    assert lost[0][0] == lost[0][1]
    assert lost[1][0] < lost[1][1] / 2


def test_counts_take_room_where_they_fit():
    found = plan(facts(), memory="2GB")
    lines = {line.name: line.n_bytes for line in found.ledger if line.where == "host"}
    assert 11_000_000 < found.config.size_of("counts") < 12_000_000
    assert lines["count table"] > 8 * found.config.size_of("counts")
    assert lines["count weights"] > 12 * found.config.size_of("counts")
    assert any("room to count 11,5" in reason for reason in found.reasons)
    assert found.config.size_of("counts") >= pair_room(found.facts)


def test_counts_take_part_of_their_room_where_they_do_not_fit():
    room = pair_room(facts())
    for memory, part in (("780MB", 8), ("850MB", 4), ("920MB", 2), ("1200MB", 1)):
        found = plan(facts(), memory=memory)
        assert found.config.size_of("counts") == room // part
        assert found.projected_bytes <= parse_size(memory)
        assert part == 1 or any(f"of {room:,} pairs" in reason for reason in found.reasons)
    none = plan(facts(), memory="615MB")
    assert none.config.size_of("counts") == 0
    assert not any(line.name.startswith("count ") for line in none.ledger)
    assert any("do not fit" in reason for reason in none.reasons)
    with pytest.raises(BudgetError, match=r"no plan fits.*count"):
        plan(facts(), memory="415MB", counts="on")


def test_counts_need_sparse_rows_and_can_be_left_out():
    dense = facts(n_features=100, nnz=30_000_000, n_classes=1000)
    assert plan(dense, memory="2GB").config.size_of("counts") == 0
    with pytest.raises(UsageError, match="rows are dense: counts on"):
        plan(dense, memory="2GB", counts="on")
    assert plan(facts(), memory="2GB", counts="off").config.size_of("counts") == 0
    with pytest.raises(UsageError, match="not one of auto, on, off"):
        plan(facts(), memory="2GB", counts="maybe")


def test_what_gives_way_to_a_limit_of_time_costs_points():
    found = Cost(
        search=10.0, epochs=20.0, finish=5.0, measuring=1.0, parts={"counts": 40.0}, smaller=5.0,
        elastic=36.0, elastic_points=2.0,
    )  # fmt: skip
    least = found.seconds - 36.0
    assert found.seconds == START + 80.0
    assert found.within(None) == found.within(found.seconds) == (found.seconds, 0.0)
    assert found.within(least + 9.0) == (least + 9.0, pytest.approx(1.0))
    assert found.within(least - 1.0) == (least, 2.0)


def test_a_short_time_leaves_the_hashed_models_out():
    free = plan(facts(), memory="2GB")
    short = plan(facts(), memory="2GB", time=free.expected.seconds * 0.1)
    assert not free.model.unhashed
    assert short.model.unhashed
    assert short.config.size_of("counts") == pair_room(facts())
    assert short.expected.seconds <= free.expected.seconds * 0.1
    assert short.expected.loss > free.expected.loss
    asked = plan(facts(), memory="2GB", n_repetitions=0)
    assert asked.model == short.model
    assert asked.projected_bytes < free.projected_bytes
    assert asked.reasons[0] == "no hashed models, as asked"
