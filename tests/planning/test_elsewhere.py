"""Plans for rows and machines that are not here: nothing is measured, and nothing is trained."""

import contextlib
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest

import streammach as sm
from streammach.backends.cuda.kind import CARDS, CUDA
from streammach.cli.main import main
from streammach.options.documents import from_json, to_json
from streammach.options.plan import Plan
from streammach.planning import choose
from streammach.planning.choose import plan
from streammach.system.errors import BudgetError, MismatchError, UsageError
from tests.doc_blocks import blocks_of, commands_of
from tests.planning.test_choose import facts

PAGE = Path(__file__).parent.parent.parent / "docs" / "planner.md"
ODP = {"rows": 1_084_404, "classes": 105_033, "features": 422_713, "values": 55}
IMAGENET = {"rows": 12_777_062, "classes": 21_841, "features": 6_144, "values": 6_144}
TEXT = ",".join(f"{name}={number}" for name, number in ODP.items())


@pytest.fixture(autouse=True)
def other_machine(monkeypatch):
    """The speed of this machine changes no plan for another one, nor does its terminal."""
    monkeypatch.setattr(choose, "known_speed", lambda: 1e9)
    monkeypatch.setenv("COLUMNS", "100")


def lines_of(*words):
    """What a plan prints, line by line."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert main(["plan", *words]) == 0
    return printed.getvalue().splitlines()


def rows_of_the_page():
    """Commands of the page for the shapes of the paper, and what it shows of each."""
    blocks = [b for b in blocks_of(PAGE.read_text()) if b.kind == "console"]
    return [one for block in blocks for one in commands_of(block.code) if "--shape" in one[0]]


@pytest.mark.parametrize("number", range(3))
def test_the_page_shows_what_the_command_prints(number):
    command, shown = rows_of_the_page()[number]
    printed = iter(lines_of(*command.split()[2:]))
    for line in shown.splitlines():
        assert line == "..." or line in printed, line


def test_the_page_has_both_shapes_of_the_paper():
    commands = [command for command, _ in rows_of_the_page()]
    assert len(commands) == 3
    assert all("12GB" in command for command in commands)
    assert {re.search(r"rows=(\d+)", command)[1] for command in commands} == {
        str(ODP["rows"]), str(IMAGENET["rows"]),
    }  # fmt: skip


def test_the_command_and_python_plan_alike():
    found = sm.plan(sm.Shape(**ODP), memory="12GB", card="h200")
    words = ["--shape", TEXT, "--memory", "12GB", "--card", "h200", "--device", "cuda"]
    document = json.loads("".join(lines_of(*words, "--json")))
    assert json.loads(found.to_json()) == document
    assert document["elsewhere"]
    assert document["allowed_bytes"] is None
    assert document["device"]["allowed_bytes"] == 12 * 10**9
    assert found.device_projected_bytes <= 12 * 10**9
    assert {line.where for line in found.ledger} == {"host", "device", "disk"}
    assert "not measured" in found.reasons[0]
    assert from_json(to_json(found), Plan) == found


def test_a_machine_has_what_is_said_of_it(monkeypatch):
    monkeypatch.setattr(choose, "memory_limit", lambda: choose.MemoryLimit(10**9, "test"))
    shape = sm.Shape(**ODP)
    usual = plan(shape)
    assert (usual.config.placement.device, usual.limits.host) == ("cpu", 12 * 10**9)
    assert usual.config.placement.threads == 8
    assert plan(shape, threads=2).expected.seconds > 2 * usual.expected.seconds
    assert plan(shape, memory="100GB").limits.host == 10**11
    assert plan(shape, card="24GB").limits.device == 24 * 10**9
    with pytest.raises(BudgetError, match=r"141 GB may be used \(free on the GPU\)"):
        plan(shape, card="h200", memory="200GB")
    with pytest.raises(BudgetError, match="no plan fits"):
        plan(shape, memory="300MB")


@pytest.mark.parametrize("name", CARDS)
def test_every_known_card_takes_times_that_its_figures_say(name):
    gigabytes, bandwidth, _, tf32 = CARDS[name]
    kind, best = CUDA.of(name), CUDA.of("h200").rates()
    assert kind.memory() == gigabytes * 10**9
    assert kind.tf32() == (tf32 > 0)
    assert kind.rates().byte == pytest.approx(best.byte * 4800 / bandwidth)
    assert kind.rates().product >= best.product
    assert kind.rates().copied == best.copied


LIKE = {"8GB": "RTX 4060", "12GB": "RTX 3060", "13GB": "T4", "24GB": "L4", "80GB": "A100"}


@pytest.mark.parametrize(("size", "like"), LIKE.items())
def test_a_card_without_a_name_is_as_fast_as_the_slowest_of_its_size(size, like):
    kind = CUDA.of(size)
    assert kind.probe() == f"a card of {size[:-2]} GB, as fast as the {like}"
    assert kind.rates() == CUDA.of(like).rates()
    assert kind.memory() == int(size[:-2]) * 10**9


def test_a_slower_card_takes_longer():
    fixed = {"memory": "12GB", "counts": "off", "n_buckets": 32, "n_repetitions": 25}
    h200, t4 = (plan(sm.Shape(**ODP), card=card, **fixed).expected for card in ("h200", "t4"))
    assert t4.seconds > 1.5 * h200.seconds
    assert t4.query_seconds > 3 * h200.query_seconds


def test_where_no_class_has_to_share_a_bucket_a_sentence_says_so():
    dense = sm.Shape(**IMAGENET)
    exact = plan(dense, memory="12GB")
    assert exact.model.exact
    assert exact.config.part("closed_form") is not None
    assert sum("MACH, whose classes share some, is not advised" in r for r in exact.reasons) == 1
    card = plan(dense, card="12GB")
    assert not card.model.exact
    assert sum(r.startswith("MACH is not advised: a bucket for every") for r in card.reasons) == 1
    assert not any("not advised" in r for r in plan(sm.Shape(**ODP), memory="12GB").reasons)
    fixed = plan(dense, card="12GB", n_buckets=512, n_repetitions=20)
    assert not any("not advised" in r for r in fixed.reasons)


def test_facts_of_a_shape_are_near_those_of_rows(tiny):
    lines = tiny.lines(2000, 50)
    tiny.text("rows.vw", lines)
    sm.convert(tiny.folder / "rows.vw", tiny.folder / "rows.zarr")
    with sm.Dataset.open(tiny.folder / "rows.zarr") as data:
        real = data.facts
    mean = real.nnz / real.n_rows
    shape = sm.Shape(
        rows=real.n_rows, classes=real.n_classes, features=real.n_features, values=mean
    )
    found = shape.facts
    assert (found.n_rows, found.nnz, found.block_rows) == (real.n_rows, real.nnz, real.block_rows)
    assert real.n_pairs / 3 < found.n_pairs < 3 * real.n_pairs
    assert found.max_row_nnz >= real.max_row_nnz
    assert found.names_bytes >= real.names_bytes
    assert not found.listed


def test_rows_with_lists_of_labels_and_dense_rows():
    lists = sm.Shape(**ODP, labels=4).facts
    assert lists.listed
    assert lists.n_labels == 4 * ODP["rows"]
    assert lists.n_pairs > sm.Shape(**ODP).facts.n_pairs
    dense = sm.Shape.of_text(f"{TEXT[: TEXT.rindex('=')]}=dense".replace("422713", "300")).facts
    assert dense.whole
    assert plan(sm.Shape(rows=10**5, classes=50_000, features=300, values=300)).config.dense


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "'' is no shape"), ("rows=3", "'rows=3' is no shape"),
        (f"{TEXT},more=1", "is no shape"), (TEXT.replace("55", "many"), "is no shape"),
        (TEXT.replace("1084404", "1.5"), "'1.5' is no whole number: rows"),
        (TEXT.replace("55", '"5"'), "'5' is no number: values"),
        (TEXT.replace("1084404", "-4"), "rows are not from 2 to 1,000,000,000,000"),
        (TEXT.replace("105033", "1"), "classes are not from 2 to 1,084,404"),
        (TEXT.replace("105033", "2000000"), "classes are not from 2 to 1,084,404"),
        (TEXT.replace("55", "500000"), "values are not from 0.01 to 422,713"),
        (f"{TEXT},labels=0.5", "labels are not from 1 to 105,033"),
        ("rows=10,classes=4,features=200,values=5", "features are not from 1 to 50"),
    ],
)  # fmt: skip
def test_a_bad_shape_is_one_line(text, words, capsys):
    assert main(["plan", "--shape", text, "--memory", "12GB"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("streammach: error: ")
    assert words in line
    assert ": --shape. Write rows=N," in line


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "name a store or the sizes of rows"), (("x.zarr", "--shape", TEXT), "name a store"),
        (("--shape", TEXT, "--card", "foo"), "'foo' is no known card: --card. Name its memory"),
        (("--shape", TEXT, "--card", "1TB"), "'1TB' is no known card"),
        (("--shape", TEXT, "--card", "0GB"), "is not a size"),
        (("--shape", TEXT, "--card", "t4", "--device", "cpu"), "the plan is for the CPU: --card"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_one_line(words, text, capsys):
    assert main(["plan", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert text in line


def test_a_store_is_planned_for_another_card_and_not_trained_by_it(tiny):
    store = tiny.store("train.zarr", n_rows=500, n_classes=30)
    there = plan(store, card="12GB", n_buckets=8, n_repetitions=4)
    assert there.elsewhere
    assert there.config.placement.device == "cuda"
    with pytest.raises(MismatchError, match="another store, machine"):
        sm.Trainer(there).fit(store, tiny.folder / "run")
    rows, labels = np.eye(60), [str(i % 30) for i in range(60)]
    with pytest.raises(MismatchError, match="another store, machine"):
        sm.train(rows, labels, card="12GB", n_buckets=8, n_repetitions=4)
    assert not (tiny.folder / "run").exists()
    here = plan(store, n_buckets=8, n_repetitions=4)
    assert not here.elsewhere
    assert b'"card"' not in to_json(here)


def test_a_plan_of_known_facts_is_one_for_here():
    assert not plan(facts(), memory="2GB").elsewhere
    with pytest.raises(UsageError, match="no known card"):
        plan(facts(), card="none")
