"""Plans: what fits is chosen, what does not is refused, every byte is named."""

import itertools
import re

import pytest

from streammach.errors import BudgetError, DeviceError, UsageError
from streammach.jit import CODE_BYTES, TRAINING_COMPILER_BYTES
from streammach.machine import (
    MemoryLimit,
    memory_limit,
    parse_size,
    size_text,
    time_range_text,
    time_text,
)
from streammach.parts.counts.count_bytes import pair_room
from streammach.planning import speed
from streammach.planning.candidates import Weighing, candidates
from streammach.planning.choose import TIE, plan
from streammach.planning.constraints import Constraints
from streammach.planning.cost import LEAST_PASSED, SEARCH_SHARE, Cost, rungs, trial
from streammach.spec.byte_lines import Limits
from streammach.spec.documents import from_json, to_json
from streammach.spec.facts import DataFacts
from streammach.spec.plan import Plan

MACHINE = MemoryLimit(16 * 10**9, "test")


@pytest.fixture(autouse=True)
def machine_of_16_gb(monkeypatch):
    """The tests do not depend on the memory of the machine that runs them."""
    monkeypatch.setattr("streammach.planning.choose.memory_limit", lambda: MACHINE)


def facts(**changes):
    values = {
        "path": "store", "digest": "d", "n_rows": 1_000_000, "n_classes": 100_000,
        "n_features": 50_000, "nnz": 30_000_000, "n_pairs": 11_000_000, "max_row_nnz": 90,
        "block_rows": 35_000,
        "max_block_nnz": 1_100_000, "value_bytes": 1, "weighted": False, "names_bytes": 5_000_000,
    }  # fmt: skip
    return DataFacts(**{**values, **changes})


def test_classes_get_buckets_of_their_own_where_that_fits():
    found = plan(facts(n_classes=1000, n_features=128), memory="1GB")
    assert found.model.exact
    assert (found.n_buckets, found.n_repetitions) == (1000, 1)


@pytest.mark.parametrize("counts", ["auto", "off"])
def test_the_plan_is_the_best_of_those_that_fit(counts):
    for memory in ("700MB", "1GB", "2GB"):
        found = plan(facts(), memory=memory, counts=counts)
        assert not found.model.exact
        assert found.projected_bytes <= parse_size(memory)
        weighing = Weighing(
            facts=facts(), constraints=Constraints(parts={"counts": counts}), device="cpu",
            limits=Limits(
                host=parse_size(memory), host_source="test", spare=TRAINING_COMPILER_BYTES
            ), speed=1.0,
        )  # fmt: skip
        all_of_them = [c.option for c in candidates(weighing)]
        fitting = [o for o in all_of_them if o.fits]
        least = min(o.loss for o in fitting)
        good = [o for o in fitting if o.loss <= least + TIE]
        assert found.expected.loss in {o.loss for o in good}
        assert found.expected.seconds == min(option.seconds for option in good)


def test_hashed_models_know_fewer_features_where_all_leave_no_room():
    heads = (40_000, 100_000, 200_000, 600_000)
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


def test_a_first_training_compiles_beside_the_plan_where_any_plan_leaves_room_for_it():
    known, tight = facts(n_features=2_000_000, heads=(40_000, 100_000, 200_000, 600_000)), 0
    for memory in (700_000_000, 800_000_000, 900_000_000):
        roomy = Limits(host=memory, host_source="test", spare=TRAINING_COMPILER_BYTES)
        weighing = Weighing(
            facts=known, constraints=Constraints(), device="cpu", limits=roomy, speed=1.0
        )
        fitting = [
            [c.option for c in candidates(weighing, fewer=fewer) if c.option.fits]
            for fewer in (False, True)
        ]
        if fitting[1]:
            tight += not fitting[0]
            needed = plan(known, memory=memory).projected_bytes + TRAINING_COMPILER_BYTES
            assert needed <= memory
    assert tight


def test_lists_of_more_labels_want_more_columns():
    lists = {"n_labels": 3_000_000, "max_row_labels": 50, "max_block_labels": 100_000}
    shape = {"n_buckets": 64, "n_repetitions": 9, "memory": "12GB"}
    lost = [
        [plan(facts(n_classes=k, **kind), **shape).expected.loss for k in (10_000, 100_000)]
        for kind in ({}, lists)
    ]
    assert lost[0][0] == lost[0][1]
    assert lost[1][0] < lost[1][1] / 2


def test_a_time_limit_is_kept_or_refused():
    free = plan(facts(), memory="2GB").expected.seconds
    hurried = plan(facts(), memory="2GB", time=free * 0.8)
    assert hurried.expected.seconds <= free * 0.8
    with pytest.raises(BudgetError, match=r"no plan takes 3 s or less: the fastest, .*time"):
        plan(facts(), memory="2GB", time="3s")
    with pytest.raises(UsageError, match="is not a time"):
        plan(facts(), memory="2GB", time="soon")


def test_a_limit_of_latency_is_kept_or_refused():
    free = plan(facts(), memory="2GB").expected
    quick = plan(facts(), memory="2GB", latency=free.query_seconds * 0.8).expected
    assert quick.query_seconds <= free.query_seconds * 0.8
    assert quick.loss > free.loss
    alone = plan(facts(), memory="2GB", latency="60us").expected
    assert alone.config.shape.unhashed
    assert alone.query_seconds <= 60e-6
    with pytest.raises(BudgetError, match=r"no plan answers a query in 1 us or less: .*latency"):
        plan(facts(), memory="2GB", latency="1us")
    with pytest.raises(BudgetError, match=r"no plan takes 3 s or less: .*time"):
        plan(facts(), memory="2GB", latency="1us", time="3s")


def test_queries_take_longer_with_more_to_look_at():
    shape = {"memory": "4GB", "n_buckets": 64}
    few, many = (
        plan(facts(), n_repetitions=r, **shape, counts="off").expected.query_seconds
        for r in (8, 16)
    )
    counted = plan(facts(), n_repetitions=8, **shape).expected.query_seconds
    assert few < min(many, counted)
    dense = facts(n_features=200, nnz=200_000_000, max_row_nnz=200, n_classes=1000)
    wider = facts(n_features=400, nnz=400_000_000, max_row_nnz=400, n_classes=1000)
    found = [plan(f, memory="4GB").expected.query_seconds for f in (dense, wider)]
    assert found[0] < found[1]


def test_a_faster_machine_shortens_times_and_changes_nothing_else(monkeypatch):
    before = plan(facts(), memory="1GB")
    monkeypatch.setattr("streammach.planning.choose.known_speed", lambda: 4.0)
    after = plan(facts(), memory="1GB")
    assert after.expected.seconds < before.expected.seconds / 2
    assert (after.model, after.ledger) == (before.model, before.ledger)


@pytest.mark.parametrize("counts", ["on", "off"])
def test_more_memory_never_loses_more(counts):
    budgets = [m * 10**8 for m in (9, 10, 13, 17, 25, 60)]
    found = [plan(facts(), memory=m, counts=counts).expected.loss for m in budgets]
    assert all(after <= before + TIE for before, after in itertools.pairwise(found))


def test_options_are_shown():
    found = plan(facts(), memory="2GB")
    assert [o.chosen for o in found.options] == [True] + [False] * (len(found.options) - 1)
    assert found.options[0] == found.expected
    assert found.expected.projected_bytes == found.projected_bytes
    assert any(not o.fits and o.projected_bytes > 2 * 10**9 for o in found.options)
    assert (
        len(
            {
                (o.shape.n_buckets, o.shape.n_repetitions, o.config.size_of("counts"))
                for o in found.options
            }
        )
        > 4
    )


def test_the_expected_time_has_a_spread():
    found = plan(facts(), memory="2GB")
    assert found.expected.seconds_spread > 1
    assert plan(facts(), memory="2GB", time=60).expected.seconds_spread == 1


@pytest.mark.parametrize(("n_rows", "epochs"), [(500, 5), (60_000, 12), (10**7, 5)])
@pytest.mark.parametrize("candidates", [2, 3, 4])
def test_halving_leaves_few_for_long_trials_and_keeps_within_its_share(n_rows, epochs, candidates):
    found = rungs(n_rows, epochs, 6.0, candidates)
    assert found[0].candidates == candidates
    assert found[-1].candidates == 2
    assert all(a.rows <= b.rows for a, b in itertools.pairwise(found))
    passed = sum(rung.candidates * rung.rows * rung.epochs for rung in found)
    rows, passes = trial(n_rows, epochs, 6.0)
    assert passed + 3 * rows * passes <= max(SEARCH_SHARE * epochs * n_rows, 6 * LEAST_PASSED)
    if n_rows > 10**6:
        assert passed + 3 * rows * passes >= 0.5 * SEARCH_SHARE * epochs * n_rows


def test_a_shape_too_large_comes_with_others_that_fit():
    with pytest.raises(BudgetError) as refused:
        plan(facts(), n_buckets=64, n_repetitions=500, memory="1GB")
    assert "64 x 500 does not fit: it needs" in str(refused.value)
    named = re.findall(r"(\d+) x (\d+) \(([^)]*)\)", refused.value.hint)
    assert len(named) >= 1
    for buckets, repetitions, size in named:
        shape = {"n_buckets": int(buckets), "n_repetitions": int(repetitions)}
        found = plan(facts(), **shape, memory="1GB")
        assert size_text(found.projected_bytes) == size


def test_speed_is_measured_once_and_kept(tmp_path, monkeypatch):
    times = iter([speed.REFERENCE / 2])
    monkeypatch.setattr(speed, "_path", lambda: tmp_path / "cache" / "speed.json")
    monkeypatch.setattr(speed, "measure", lambda: next(times))
    assert speed.known_speed() == 1.0
    assert speed.speed() == speed.speed() == speed.known_speed() == pytest.approx(2.0)
    (tmp_path / "cache" / "speed.json").write_text("{")
    assert speed.known_speed() == 1.0
    monkeypatch.setattr(speed, "_machine", lambda: "another")
    assert speed.known_speed() == 1.0


def test_speed_is_of_this_machine(monkeypatch):
    monkeypatch.undo()
    assert 1e-12 < speed.measure() < 1e-7


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


def test_the_ledger_adds_up():
    found = plan(facts(), memory="2GB")
    host = {line.name: line.n_bytes for line in found.ledger if line.where == "host"}
    assert found.projected_bytes == sum(host.values())
    assert host["weights"] == (50_000 + 1) * found.model.n_columns * 4
    assert host["optimizer"] == (50_000 + 1) * found.n_repetitions * 4
    assert host["code"] == CODE_BYTES
    needed = ["decoded rows", "batches", "residuals", "tables", "decode tile", "scoring"]
    assert all(host[name] > 0 for name in needed)
    assert found.disk_bytes > found.facts.n_features * found.model.n_columns * 4


def test_what_cannot_fit_is_refused_with_the_largest_terms():
    with pytest.raises(
        BudgetError, match=r"no plan fits: the smallest \(8 x \d+\) needs .*code 265 MB"
    ):
        plan(facts(), memory="300MB")
    with pytest.raises(BudgetError, match=r"^exact does not fit: it needs 20.*weights 20"):
        plan(facts(), exact=True)
    with pytest.raises(BudgetError, match=r"asked, .* may be used"):
        plan(facts(), memory=MACHINE.n_bytes + 10**9)
    with pytest.raises(BudgetError, match="4096 x 4096"):
        plan(facts(), n_buckets=4096, n_repetitions=4096)


def test_little_memory_takes_smaller_pools_first():
    roomy = plan(facts(n_features=2000, value_bytes=4), n_buckets=32, n_repetitions=9)
    tight = plan(facts(n_features=2000, value_bytes=4), memory=roomy.projected_bytes - 40_000_000)
    assert roomy.config.batching.pool_blocks == 8
    assert tight.projected_bytes <= roomy.projected_bytes - 40_000_000


def test_options_decide():
    found = plan(facts(), n_buckets=64, n_repetitions=10, batch_size=77, optimizer="sgd", threads=3)
    assert (found.n_buckets, found.n_repetitions, found.config.batching.batch_size) == (64, 10, 77)
    assert (
        found.config.optimizer,
        found.config.placement.threads,
        found.config.placement.device,
    ) == ("sgd", 3, "cpu")
    assert plan(facts(n_classes=50), n_buckets=64, n_repetitions=10).model.exact
    assert plan(facts(n_classes=50, n_features=9), exact=True).model.exact


def test_dense_rows_take_matrix_products_and_adam():
    dense = plan(facts(n_features=60), memory="4GB")
    assert (dense.config.dense, dense.config.optimizer) == (True, "adam")
    assert dense.config.batching.batch_size == 256
    sparse = plan(facts(), memory="2GB")
    assert (sparse.config.dense, sparse.config.optimizer) == (False, "adagrad")
    assert sparse.config.batching.batch_size == 1024


def test_the_same_seed_gives_the_same_plan():
    assert plan(facts(), memory="1GB", seed=4) == plan(facts(), memory="1GB", seed=4)
    assert plan(facts(), memory="1GB", seed=4).model != plan(facts(), memory="1GB", seed=5).model


def test_a_shape_is_held_against_the_budget():
    shape = {"n_buckets": 32, "n_repetitions": 20}
    needed = plan(facts(), **shape).projected_bytes
    found = plan(facts(), **shape, memory=needed)
    assert (found.n_buckets, found.n_repetitions) == (32, 20)
    assert found.limits.host == needed
    with pytest.raises(BudgetError, match=r"^32 x 20 does not fit: it needs"):
        plan(facts(), **shape, memory="400MB")


def test_a_plan_survives_json():
    found = plan(facts(), memory="1GB")
    assert from_json(to_json(found), Plan) == found


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_buckets": 4}, "given together"),
        ({"memory": "1GB", "exact": True}, "exact=True excludes"),
        ({"memory": "much"}, "is not a size"),
        ({"memory": "0GB"}, "is not a size"),
        ({"n_buckets": 1, "n_repetitions": 4}, "n_buckets"),
        ({"batch_size": 0}, "batch_size"),
        ({"threads": 0}, "threads"),
        ({"optimizer": "adamw"}, "optimizer"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(UsageError, match=message):
        plan(facts(), **options)


def test_a_device_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(DeviceError, match="no usable GPU"):
        plan(facts(), device="cuda")


@pytest.mark.parametrize("n", [1, 2, 15, 16, 100, 4000])
def test_small_data_get_small_batches(n):
    small = facts(n_rows=n, n_classes=3, n_features=40, nnz=3 * n, block_rows=n,
                  max_block_nnz=3 * n, max_row_nnz=4)  # fmt: skip
    found = plan(small, memory="500MB")
    assert 16 <= found.config.batching.batch_size <= 256
    assert found.config.batching.batch_nnz >= small.max_row_nnz
    assert plan(small, memory="500MB", batch_size=4000).config.batching.batch_size == n


@pytest.mark.parametrize(
    ("text", "n"),
    [("12GB", 12 * 10**9), ("12 GiB", 12 << 30), ("500mb", 5 * 10**8), ("1.5k", 1500), (77, 77)],
)
def test_sizes_are_read(text, n):
    assert parse_size(text) == n


@pytest.mark.parametrize("text", ["12", "999999", " 1.5 "])
def test_a_small_number_has_to_have_a_unit(text):
    with pytest.raises(UsageError, match=f"Name the unit: {text.strip()}GB"):
        parse_size(text)
    assert parse_size("2000000") == 2_000_000


def test_sizes_and_times_are_printed():
    assert [size_text(n) for n in (0, 999, 1000, 1.344e9, 2.5e11)] == [
        "0 bytes", "999 bytes", "1 kB", "1.34 GB", "250 GB",
    ]  # fmt: skip
    assert [time_range_text(s, 2 * s) for s in (4, 42, 80, 4000)] == [
        "4 to 8 s", "42 to 84 s", "1.3 to 2.7 min", "1.1 to 2.2 h",
    ]  # fmt: skip
    assert [time_text(s) for s in (38e-6, 0.0042, 0.42, 58, 250, 7500)] == [
        "38 us", "4.2 ms",
        "0.42 s", "58 s", "4 min 10 s", "2 h 05 min",
    ]  # fmt: skip


@pytest.mark.parametrize("version", [1, 2])
def test_the_limit_of_a_control_group_counts(version, tmp_path, monkeypatch):
    cgroup = "0::/job/inner\n" if version == 2 else "5:cpu,memory:/job/inner\n1:name=x:/\n"
    folder = tmp_path if version == 2 else tmp_path / "memory"
    (folder / "job/inner").mkdir(parents=True)
    name = "memory.max" if version == 2 else "memory.limit_in_bytes"
    (folder / "job/inner" / name).write_text("max\n" if version == 2 else str(2**63 - 4096))
    (folder / "job" / name).write_text("123456789\n")
    from streammach import machine

    real = machine.Path.read_text
    monkeypatch.setattr(
        machine.Path, "read_text",
        lambda self, *a: cgroup if str(self) == "/proc/self/cgroup" else real(self, *a),
    )  # fmt: skip
    found = memory_limit(tmp_path)
    assert (found.n_bytes, found.source) == (123456789, "cgroup")


def test_every_plan_of_a_grid_keeps_its_budget():
    for rows, features, classes, memory in itertools.product(
        (10_000, 5_000_000), (1_000, 400_000), (500, 2_000_000), (500, 1500, 6000)
    ):
        data = facts(n_rows=rows, n_features=features, n_classes=classes, nnz=rows * 20,
                     block_rows=50_000, max_block_nnz=1_100_000)  # fmt: skip
        try:
            found = plan(data, memory=f"{memory}MB")
        except BudgetError:
            continue
        assert found.projected_bytes <= memory * 10**6


def test_what_gives_way_to_a_limit_of_time_costs_points():
    found = Cost(
        search=10.0, epochs=20.0, finish=5.0, parts={"counts": 40.0}, smaller=5.0, elastic=36.0,
        elastic_points=2.0,
    )  # fmt: skip
    least = found.seconds - 36.0
    assert found.hashed == 35.0
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


def test_the_advice_of_a_refusal_leaves_room_for_a_compiler(monkeypatch, tmp_path):
    monkeypatch.setattr("streammach.jit.CACHE_DIR", str(tmp_path))  # nothing is kept
    shape = {"n_buckets": 16, "n_repetitions": 4, "counts": "off"}
    with pytest.raises(BudgetError, match="does not fit") as refused:
        plan(facts(), **shape, memory="200MB")
    advice = re.search(r"use --memory (\S+) or", refused.value.hint)[1]
    found = plan(facts(), **shape, memory=advice)
    assert found.projected_bytes + TRAINING_COMPILER_BYTES <= parse_size(advice)
