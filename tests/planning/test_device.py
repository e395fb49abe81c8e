"""Plans for a GPU: its own budget and ledger, waves, shapes that cannot be launched."""

import re

import pytest

from streammach.backends.cuda import kind
from streammach.backends.cuda.device_memory import RESERVED_BYTES
from streammach.backends.kinds import H200, Rates
from streammach.backends.registry import device_text
from streammach.options.documents import encode_json, from_json
from streammach.options.plan import Plan
from streammach.planning import choose, cost
from streammach.planning.choose import plan
from streammach.system.errors import BudgetError, DeviceError, UsageError
from streammach.system.machine import MemoryLimit
from tests.planning.test_choose import facts


@pytest.fixture(autouse=True)
def card(monkeypatch):
    monkeypatch.setattr(kind, "simulated", lambda: False)
    monkeypatch.setattr(kind, "find_card", lambda: kind.Card("Card", 12 * 10**9))
    monkeypatch.setattr(choose, "memory_limit", lambda: MemoryLimit(10**12, "free memory"))
    monkeypatch.setattr(cost, "rates_of", lambda device, card: {"cuda": H200}.get(device))


def on_device(found):
    return {line.name: line.n_bytes for line in found.ledger if line.where == "device"}


def test_the_budget_is_the_gpus(monkeypatch):
    found = plan(facts(), memory="4GB", counts="off")
    assert (found.config.placement.device, found.device_reason) == ("cuda", "Card")
    assert found.limits.device == 4 * 10**9
    assert found.device_projected_bytes <= 4 * 10**9
    assert found.limits.host == 10**12
    lines = on_device(found)
    assert sum(lines.values()) == found.device_projected_bytes
    assert lines["weights"] >= 4 * found.model.n_features * found.model.n_columns
    assert lines["context"] == RESERVED_BYTES


def test_a_budget_above_what_is_free_is_refused():
    with pytest.raises(BudgetError, match=r"12 GB may be used \(free on the GPU\)"):
        plan(facts(), memory="13GB", device="cuda")


AUTO = [  # what a card cannot do, and what is said of it
    ({"n_repetitions": 0}, "there are no hashed models"),
    ({"n_buckets": 4098, "n_repetitions": 2}, "more than a block's 4,096"),
    ({"memory": "500MB"}, "does not fit|no plan fits"),
    ({"memory": "13GB"}, "12 GB may be used"),
]


@pytest.mark.parametrize(("options", "why"), AUTO)
def test_what_a_card_cannot_do_goes_to_the_cpu_where_the_device_is_left_open(options, why):
    wide = facts(n_classes=6000)
    found = plan(wide, **options)
    assert found.config.placement.device == "cpu"
    assert re.search(why, found.device_reason)
    with pytest.raises((BudgetError, DeviceError, UsageError), match=why):
        plan(wide, **options, device="cuda")


@pytest.mark.parametrize("options", [o for o, _ in AUTO if "memory" not in o])
def test_a_card_is_not_looked_at_for_what_no_card_can_do(options, monkeypatch):
    monkeypatch.setattr(kind, "find_card", None)  # which opens a context for good
    assert plan(facts(n_classes=6000), **options).config.placement.device == "cpu"


def test_times_are_those_of_the_rates_of_the_card(monkeypatch):
    def planned(**options):
        return plan(facts(n_rows=400_000), counts="off", threads=2, **options)

    shape = {"n_buckets": 32, "n_repetitions": 64}
    fast, on_cpu = planned(**shape), planned(**shape, device="cpu")
    assert fast.expected.seconds < 0.5 * on_cpu.expected.seconds
    limit = 0.7 * fast.expected.seconds
    monkeypatch.setattr(cost, "rates_of", lambda *_: Rates(*(100 * x for x in H200)))
    slow = planned(**shape)
    assert slow.expected.seconds > 5 * fast.expected.seconds
    assert slow.expected.query_seconds > 5 * fast.expected.query_seconds
    for limits in ({"time": 0.7 * slow.expected.seconds}, {"latency": 1e-3}):
        found = planned(**limits)
        assert found.config.placement.device == "cuda"
        assert found.expected.seconds <= limits.get("time", 1e9)
        assert found.expected.query_seconds <= limits.get("latency", 1)
    with pytest.raises(BudgetError, match="no plan takes"):
        planned(time=limit, device="cuda", **shape)


def test_what_does_not_fit_at_once_is_trained_in_waves():
    shape = {"n_buckets": 32, "n_repetitions": 64, "counts": "off"}
    roomy = plan(facts(n_features=400_000), **shape)
    tight = plan(facts(n_features=400_000), memory="1700MB", **shape)
    assert (roomy.config.placement.waves, tight.model.n_repetitions) == (1, 64)
    assert tight.config.placement.waves > 1
    assert tight.device_projected_bytes <= 1_700_000_000
    assert tight.model == roomy.model
    assert "waves of repetitions" in device_text(tight)


def test_hashed_models_of_few_features_take_less_of_a_card():
    data, shape = facts(n_features=400_000), {"n_buckets": 32, "n_repetitions": 64, "counts": "off"}
    whole, few = (plan(data, hashed_features=n, **shape) for n in (None, 50_000))
    assert whole.config.placement.resident
    assert few.config.placement.resident
    assert on_device(few)["weights"] < on_device(whole)["weights"] / 7
    lines = [{line.name: line.n_bytes for line in p.ledger} for p in (whole, few)]
    assert lines[1]["row orders"] - lines[0]["row orders"] == 4 * data.n_rows  # lengths as cut
    found = plan(facts(n_features=2_000_000, heads=(20_000, 40_000, 80_000, 160_000, 500_000)),
                 memory="1GB", device="cuda", counts="off")  # fmt: skip
    assert found.model.cut
    assert found.device_projected_bytes <= 10**9


def test_what_fits_in_no_number_of_waves_is_refused_with_the_gpus_terms():
    with pytest.raises(BudgetError, match=r"needs .*: .*\(memory\)"):
        plan(
            facts(n_features=400_000), memory="700MB", n_buckets=64, n_repetitions=32,
            device="cuda",
        )  # fmt: skip


def test_shapes_that_cannot_be_launched_are_left_out_or_refused():
    wide = facts(n_classes=6000, n_features=300)
    with pytest.raises(DeviceError, match="more than a block's"):
        plan(wide, exact=True, device="cuda")
    on_cpu = plan(wide, exact=True)
    assert (on_cpu.config.placement.device, on_cpu.n_buckets) == ("cpu", 6000)
    assert "more than a block's" in device_text(on_cpu)
    chosen = plan(wide)
    assert chosen.config.placement.device == "cuda"
    assert chosen.n_buckets <= 4096
    assert not chosen.model.exact


def test_rows_stay_on_the_gpu_where_they_fit_beside_the_weights():
    shape = {"n_buckets": 32, "n_repetitions": 25, "counts": "off"}
    roomy, tight = (plan(facts(), memory=memory, **shape) for memory in ("2GB", "1GB"))
    assert (
        roomy.config.placement.resident,
        tight.config.placement.resident,
        roomy.config.placement.waves,
        tight.config.placement.waves,
    ) == (True, False, 1, 1)
    kept = on_device(roomy)["rows of the store"]
    assert kept == pytest.approx(8 * roomy.facts.nnz + 16 * roomy.facts.n_rows, rel=1e-4)
    assert "rows of the store" not in on_device(tight)
    assert ("rows kept on the GPU" in device_text(roomy), "streamed" in device_text(tight)) == (
        True, True,
    )  # fmt: skip
    assert roomy.projected_bytes < tight.projected_bytes  # no pools of decoded rows
    assert not plan(facts(), device="cpu", memory="2GB").config.placement.resident
    lists = facts(n_labels=3_000_000, max_row_labels=50, max_block_labels=100_000)
    listed = plan(lists, memory="2GB", **shape)
    assert listed.config.placement.resident
    more = on_device(listed)["rows of the store"] - kept
    assert more == pytest.approx(8 * (lists.n_labels + lists.n_rows), rel=1e-3)


def test_bfloat16_weights_take_half_the_room():
    shape = {"n_buckets": 32, "n_repetitions": 64, "counts": "off"}
    wide, narrow = (plan(facts(), weights=name, **shape) for name in ("float32", "bfloat16"))
    assert on_device(wide)["weights"] == 2 * on_device(narrow)["weights"]
    assert [p.config.placement.weights for p in (wide, narrow)] == ["float32", "bfloat16"]
    assert "bfloat16 weights, as asked" in " ".join(narrow.reasons)
    wide, narrow = (
        plan(facts(n_features=400_000), weights=name, memory="1700MB", **shape)
        for name in ("float32", "bfloat16")
    )
    assert wide.config.placement.waves > narrow.config.placement.waves


@pytest.mark.parametrize(
    ("n_rows", "rows"), [(1_000_000, 1024), (1_100_000, 2048), (2_200_000, 4096), (9_000_000, 4096)]
)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_batches_of_sparse_rows_grow_with_the_steps_of_an_epoch(n_rows, rows, device):
    found = plan(facts(n_rows=n_rows), memory="4GB", counts="off", device=device)
    assert (found.config.placement.device, found.config.dense) == (device, False)
    assert found.config.batching.batch_size == rows


@pytest.mark.parametrize(
    ("n_rows", "rows"), [(40_000, 256), (270_000, 512), (1_000_000, 1024), (12_000_000, 4096)]
)
def test_batches_of_dense_rows_grow_with_the_steps_of_an_epoch(n_rows, rows):
    few = {"n_features": 6144, "nnz": 1900 * n_rows, "max_row_nnz": 6144}
    data = facts(n_rows=n_rows, block_rows=500, n_classes=20_000, **few)
    shape = {"n_buckets": 512, "n_repetitions": 20}
    found = plan(data, memory="12GB", **shape)
    assert (found.config.dense, found.config.batching.batch_size) == (True, rows)
    assert f"{rows:,} rows a batch: a step moves 2.27 GB of tables" in " ".join(found.reasons)
    on_cpu = plan(data, device="cpu", memory="12GB", **shape)
    assert on_cpu.config.batching.batch_size == 256
    assert "a step moves" not in " ".join(on_cpu.reasons)


def test_dense_rows_get_smaller_batches_before_they_get_waves():
    data = facts(n_rows=12_000_000, n_features=6144, nnz=1900 * 12_000_000, max_row_nnz=6144)
    shape = {"n_buckets": 512, "n_repetitions": 20}
    tight, tighter = (plan(data, memory=memory, **shape) for memory in ("2GB", "1500MB"))
    assert (tight.config.batching.batch_size, tight.config.placement.waves) == (1024, 1)
    assert tighter.config.placement.waves > 1


def test_tf32_is_a_part_of_the_plan():
    dense = facts(n_features=100)
    shape = {"n_buckets": 32, "n_repetitions": 8, "batch_size": 256}
    plain, fast = (plan(dense, tf32=tf32, **shape) for tf32 in (False, True))
    assert (plain.config.placement.tf32, fast.config.placement.tf32) == (False, True)
    assert "products in TF32, as asked" in " ".join(fast.reasons)
    assert plain.config.decisive != fast.config.decisive
    assert plain.config.decisive == plan(dense, device="cpu", **shape).config.decisive
    assert [b'"tf32":true' in encode_json(one) for one in (fast, plain)] == [True, False]
    assert from_json(encode_json(fast), Plan) == fast


def test_products_are_in_tf32_where_rows_are_dense_and_the_card_has_it(monkeypatch):
    shape = {"n_buckets": 32, "n_repetitions": 8}
    chosen = plan(facts(n_features=100), **shape)
    assert chosen.config.placement.tf32
    assert "products in TF32, which cost no accuracy where" in " ".join(chosen.reasons)
    sparse, on_cpu = (
        plan(facts(n_features=n), **shape, **where)
        for n, where in ((50_000, {}), (100, {"device": "cpu"}))
    )
    monkeypatch.setattr(kind, "find_card", lambda: kind.Card("Old", 12 * 10**9, tf32=False))
    for other in (sparse, on_cpu, plan(facts(n_features=100), **shape)):
        assert not other.config.placement.tf32


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"device": "cpu"}, r"TF32 is for a GPU, the device is the CPU \(asked for\): tf32"),
        ({"n_features": 50_000}, "rows are sparse, which are not multiplied as matrices: tf32"),
    ],
)
def test_tf32_is_refused_where_it_cannot_be(options, line):
    rows = facts(n_features=options.pop("n_features", 100))
    with pytest.raises(UsageError, match=line):
        plan(rows, tf32=True, **options)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"device": "cpu"}, r"for a GPU, the device is the CPU \(asked for\): weights bfloat16"),
        ({"rows": "dense"}, "rows are dense: weights bfloat16"),
        ({"weights": "float16"}, "'float16' is not one of float32, bfloat16: weights"),
    ],
)
def test_bfloat16_weights_are_refused_where_they_cannot_be(options, line):
    rows = facts(n_features=100) if options.pop("rows", None) else facts()
    with pytest.raises(UsageError, match=line):
        plan(rows, **{"weights": "bfloat16", **options})
