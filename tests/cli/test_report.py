"""The command report as it is typed."""

import json
import sys

import pytest

import streammach as sm
from streammach.cli.main import main
from tests.cli.test_commands import run

QUICK = ["--epochs", "1", "--learning-rate", "0.5", "--transform", "binary", "--threads", "1"]
SHAPE = ["--memory", "600MB", "--buckets", "4", "--repetitions", "3", "--counts", "off"]


@pytest.fixture(scope="module")
def job(shared):
    train = shared.store("train.zarr", n_rows=500, n_classes=30)
    shared.store("test.zarr", n_rows=150, n_classes=30, like=train)
    out = str(shared.folder / "run")
    assert main(["train", str(train), "--out", out, *SHAPE, *QUICK]) == 0
    return shared.folder


def test_report_writes_one_file_and_says_its_findings(job, capsys):
    code, out, _ = run(capsys, "report", job / "run")
    assert code == 0
    named = [line.split()[0] for line in out.splitlines() if line[0] != " "]  # not what goes on
    assert named[:3] == ["stages", "epochs", "memory"]
    first = (job / "run/report.html").read_bytes()
    assert run(capsys, "report", job / "run")[0] == 2
    assert run(capsys, "report", job / "run", "--force")[0] == 0
    assert (job / "run/report.html").read_bytes() == first
    options = ["--on", job / "test.zarr", "--rows", 100, "--out", job / "r.html", "--json"]
    document = json.loads(run(capsys, "report", job / "run", *options)[1])
    assert document["rows"]["n_rows"] == 100
    assert set(document["plots"]) > {"reliability", "deciles", "repetitions"}
    assert (job / "r.html").stat().st_size == document["bytes"]


def test_report_writes_a_card_of_the_model(job, capsys):
    card, source = job / "card.md", job / "run"
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
    code, out, err = run(capsys, "report", job / "run", "--out", job / "none.html")
    assert (code, out) == (2, "")
    assert err.strip() == (
        'streammach: error: plots need matplotlib. Run: pip install "streammach[report]"'
    )
    assert not (job / "none.html").exists()


def test_wrong_calls_are_usage_errors(job, capsys):
    cases = [
        (4, ["report", job / "train.zarr"]),
        (2, ["report", job / "run", "--on", job / "nothing"]),
    ]
    for code, arguments in cases:
        found = run(capsys, *arguments)
        assert found[0] == code, (arguments, found)
        assert found[2].count("streammach: error:") == 1
