"""Plans: what fits is chosen, what does not is refused, every byte is named."""

import itertools
import re

import pytest

from streammach.cli.plan_text import plan_lines
from streammach.options.byte_lines import Limits
from streammach.options.documents import from_json, to_json
from streammach.options.facts import DataFacts
from streammach.options.plan import Plan
from streammach.planning import speed
from streammach.planning.candidates import Weighing, candidates
from streammach.planning.choose import TIE, plan
from streammach.planning.constraints import Constraints
from streammach.planning.cost import LEAST_PASSED, SEARCH_SHARE, rungs, trial
from streammach.system.errors import BudgetError, DeviceError, UsageError
from streammach.system.jit import CODE_BYTES, TRAINING_COMPILER_BYTES
from streammach.system.machine import MemoryLimit, parse_size, size_text

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


def test_a_first_training_compiles_beside_the_plan_where_any_plan_leaves_room_for_it():
    known, tight = facts(n_features=2_000_000, heads=(20_000, 40_000, 100_000, 200_000, 600_000)), 0
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
    assert "fewer --repetitions take less for weights; or use --memory" in refused.value.hint
    named = re.findall(r"(\d+) x (\d+) \(([^)]*)\)", refused.value.hint)
    assert len(named) >= 1
    for buckets, repetitions, size in named:
        shape = {"n_buckets": int(buckets), "n_repetitions": int(repetitions)}
        found = plan(facts(), **shape, memory="1GB")
        assert size_text(found.projected_bytes) == size


def test_speed_is_measured_and_kept_and_that_of_a_busy_machine_replaced(tmp_path, monkeypatch):
    times = iter(speed.REFERENCE / n for n in (2, 1, 2.1, 3))
    monkeypatch.setattr(speed, "_path", lambda: tmp_path / "cache" / "speed.json")
    monkeypatch.setattr(speed, "measure", lambda: next(times))
    assert speed.known_speed() == 1.0
    assert speed.speed() == speed.speed() == speed.known_speed() == pytest.approx(2.0)
    for found in (2.0, 2.0, 3.0):  # of those that are slower or hardly faster none is kept
        assert speed.speed(again=True) == speed.speed() == pytest.approx(found)
    (tmp_path / "cache" / "speed.json").write_text("{")
    assert speed.known_speed() == 1.0
    monkeypatch.setattr(speed, "_machine", lambda: "another")
    assert speed.known_speed() == 1.0


def test_speed_is_of_this_machine(monkeypatch):
    monkeypatch.undo()
    assert 1e-12 < speed.measure() < 1e-7


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
    with pytest.raises(BudgetError, match=r"^exact does not fit: it needs 20.*weights 20.* less"):
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


def test_a_plan_says_why_its_other_lines_do_not_fit():
    found = plan(facts(), memory="1GB")
    lines = [line for line in plan_lines(found) if re.match(r" +(\d+|exact|none) ", line)]
    why = [line for line in lines if "too large" in line or "no room to compile beside" in line]
    refused = [option for option in found.options if not option.fits]
    assert len(why) == len(refused) > 0
    for line, option in zip(why, refused, strict=True):
        over = option.projected_bytes - found.limits.host
        assert f"{size_text(over)} too large" in line if over > 0 else "compile" in line


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


@pytest.mark.parametrize("kept", [True, False])
def test_the_advice_of_a_refusal_has_a_compiler_only_where_no_kernels_are_kept(monkeypatch, kept):
    monkeypatch.setattr("streammach.planning.choose.CACHE_DIR", "folder" if kept else None)
    shape = {"n_buckets": 16, "n_repetitions": 4, "counts": "off"}
    with pytest.raises(BudgetError, match="does not fit") as refused:
        plan(facts(), **shape, memory="200MB")
    advice = parse_size(re.search(r"use --memory (\S+) or", refused.value.hint)[1])
    needed = plan(facts(), **shape, memory=advice).projected_bytes
    needed += 0 if kept else TRAINING_COMPILER_BYTES
    assert 0 <= advice - needed < 0.05 * advice
