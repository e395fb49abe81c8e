"""The commands report and sweep as they are typed."""

import json
import sys

import numpy as np
import pytest

import streammach as sm
from streammach.cli.main import main
from tests.builders import TinyData
from tests.cli.test_commands import run

QUICK = ["--epochs", "1", "--learning-rate", "0.5", "--transform", "binary", "--threads", "1"]
GRID = ["--memory", "600MB", "--buckets", "4,8", "--repetitions", "3,500000", "--counts", "off"]


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    tiny = TinyData(tmp_path_factory.mktemp("cli"), np.random.default_rng(7))
    train = tiny.store("train.zarr", n_rows=500, n_classes=30)
    tiny.store("test.zarr", n_rows=150, n_classes=30, like=train)
    out = str(tiny.folder / "sw")
    assert main(["sweep", str(train), "--out", out, *GRID, *QUICK]) == 0
    return tiny.folder


def test_sweep_prints_its_table_and_draws_its_page(job, capsys):
    arguments = ["sweep", job / "train.zarr", "--out", job / "sw", *GRID, *QUICK]
    code, out, err = run(capsys, *arguments)
    assert code == 0
    assert "projected" not in err  # nothing was trained again
    lines = out.splitlines()
    assert lines[0].split()[:3] == ["B", "x", "R"]
    found = json.loads((job / "sw/sweep.json").read_text())
    for line, point in zip(lines[1:3], found["points"], strict=True):
        assert line.startswith(f"{point['buckets']} x {point['repetitions']}")
        assert f"{100 * point['held_out']['accuracy']:.2f}" in line
        assert line.endswith("*") == point["frontier"]
    assert sum("left out:" in line and "does not fit" in line for line in lines) == 2
    assert all(len(line) <= 100 for line in lines[:3])
    assert "<svg" in (job / "sw/sweep.html").read_text()
    document = json.loads(run(capsys, *arguments, "--json")[1])
    for printed, point in zip(document["points"], found["points"], strict=True):
        assert printed["held_out"]["accuracy"] == point["held_out"]["accuracy"]
        assert printed | {"held_out": 0} == point | {"held_out": 0}
    assert document["page"].endswith("sweep.html")


def test_report_writes_one_file_and_says_its_findings(job, capsys):
    code, out, _ = run(capsys, "report", job / "sw/4x3")
    assert code == 0
    named = [line.split()[0] for line in out.splitlines() if line[0] != " "]  # not what goes on
    assert named[:4] == ["size", "stages", "epochs", "memory"]
    first = (job / "sw/4x3/report.html").read_bytes()
    assert run(capsys, "report", job / "sw/4x3")[0] == 2
    assert run(capsys, "report", job / "sw/4x3", "--force")[0] == 0
    assert (job / "sw/4x3/report.html").read_bytes() == first
    options = ["--on", job / "test.zarr", "--rows", 100, "--out", job / "r.html", "--json"]
    document = json.loads(run(capsys, "report", job / "sw/4x3", *options)[1])
    assert document["rows"]["n_rows"] == 100
    assert set(document["plots"]) > {"reliability", "deciles", "repetitions"}
    assert (job / "r.html").stat().st_size == document["bytes"]


def test_report_writes_a_card_of_the_model(job, capsys):
    card, source = job / "card.md", job / "sw/4x3"
    options = ["--on", job / "test.zarr", "--card", card]
    assert run(capsys, "report", source, "--out", job / "with.html", *options)[0] == 0
    lines, model = card.read_text().splitlines(), sm.Model.load(source)
    assert lines[:2] == ["---", "library_name: streammach"]
    assert f"{model.spec.n_classes:,} classes" in card.read_text()
    rows = [line for line in lines if line.startswith("| ")]
    found = sm.evaluate(model, job / "test.zarr")
    assert [row.split(" | ")[0] for row in rows[1:]] == [
        f"| held out: {sm.Run.open(source).settings.held_out}",
        f"| {found.n_rows:,} rows of test.zarr",
    ]  # fmt: skip
    assert rows[2].split(" | ")[1:] == [f"{found.accuracy:.3f}", f"{found.top_5_accuracy:.3f} |"]
    assert "Settings were chosen on the held-out rows" in card.read_text()
    assert str(job) not in card.read_text()
    own = job / "own.md"
    own.write_text("mine")
    code, _, err = run(capsys, "report", source, "--out", job / "w2.html", "--card", own, "--force")
    assert code == 2
    assert "it is no card that streammach made, and is not replaced" in err
    assert own.read_text() == "mine"
    assert not (job / "w2.html").exists()


def test_report_needs_matplotlib_and_says_so(job, capsys, monkeypatch):
    for name in [m for m in sys.modules if m.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, out, err = run(capsys, "report", job / "sw/4x3", "--out", job / "none.html")
    assert (code, out) == (2, "")
    assert err.strip() == (
        'streammach: error: plots need matplotlib. Run: pip install "streammach[report]"'
    )
    assert not (job / "none.html").exists()
    arguments = ["sweep", job / "train.zarr", "--out", job / "sw", *GRID, *QUICK]
    code, out, err = run(capsys, *arguments)
    assert code == 0
    assert "B x R" in out
    assert "warning: no page was drawn: plots need matplotlib" in err


def test_wrong_calls_are_usage_errors(job, capsys):
    cases = [
        (4, ["report", job / "train.zarr"]),
        (2, ["report", job / "sw/4x3", "--on", job / "nothing"]),
        (2, ["sweep", job / "train.zarr", "--out", job / "x"]),
        (2, ["sweep", job / "train.zarr", "--out", job / "x", *GRID, "--buckets", "4,many"]),
        (6, ["sweep", job / "train.zarr", "--out", job / "x", "--memory", "100MB"]),
        (4, ["sweep", job / "train.zarr", "--out", job / "sw", *GRID, *QUICK, "--seed", 1]),
    ]
    for code, arguments in cases:
        found = run(capsys, *arguments)
        assert found[0] == code, (arguments, found)
        assert found[2].count("streammach: error:") == 1
        assert not (job / "x").exists()
