"""What people meet in Python: public names, records that show themselves, callbacks."""

import json
import logging
from html.parser import HTMLParser

import numpy as np
import pytest

import streammach as sm
from streammach.cli.main import main
from streammach.options.reported import FigureTable
from streammach.prediction.predictor import Predictor
from streammach.system.errors import UsageError
from tests.builders import fit, listed_lines

FIXED = {"epochs": 2, "learning_rate": 0.5, "transform": "binary"}


class Watcher:
    def __init__(self):
        self.called = []

    def on_epoch_end(self, state):
        self.called.append((state.epoch, state.listed))


@pytest.fixture(scope="module")
def made(shared):
    """A plan and a run of rows with two labels, and their store."""
    lines = [f"{'ab'[i % 2]} |x f{i % 2} n{shared.rng.integers(5)}" for i in range(300)]
    sm.convert(shared.text("<b>.vw", lines), shared.folder / "<b>.zarr")
    with sm.Dataset.open(shared.folder / "<b>.zarr") as data:
        plan = sm.plan(data, n_buckets=2, n_repetitions=2, threads=1)
        yield data, plan, fit(data, shared.folder / "<i>run", plan, **FIXED)


def test_the_public_names_are_there_and_stay_there():
    import streammach.cli.about  # noqa: F401  (a folder must not hide a name)

    for name in ("add", "evaluate", "plan", "report", "shrink", "verify", "convert"):
        assert name in dir(sm)
        assert callable(getattr(sm, name))


def test_records_are_one_line_a_report_and_tables(made, tiny):
    data, plan, run = made
    with Predictor(run.model) as predictor:
        found = sm.evaluate(predictor, data.path)
        some = next(iter(predictor.stream(data.path, 2)))
    assert sm.evaluate(run.path, data.path).accuracy == found.accuracy
    for record in (data, plan, run, run.model, found, some):
        line = repr(record)
        assert line.startswith(f"{type(record).__name__}(")
        assert "\n" not in line
        assert len(line) < 200 + len(str(tiny.folder))
        assert str(record) != line
        html = record._repr_html_()
        assert html.startswith("<pre>")
        assert "<b>.zarr" not in html
        assert "<i>run" not in html
        HTMLParser().feed(html)
    assert "2 x" in repr(plan) or "exact" in repr(plan)
    assert str(plan).splitlines()[0].startswith("store ")
    assert "accuracy" in str(found)
    assert "accuracy" in repr(run)
    assert "random rows" in repr(run)


def test_a_plan_is_the_json_of_the_command(made, capsys):
    data, plan, _ = made
    said = json.loads(plan.to_json())
    main(["plan", str(data.path), "--buckets", "2", "--repetitions", "2", "--threads", "1",
          "--json"])  # fmt: skip
    assert json.loads(capsys.readouterr().out)["chosen"] == said["chosen"]
    assert said["ledger"]


def test_what_commands_say_is_what_records_say(made, capsys):
    data, _, run = made
    main(["info", str(data.path)])
    words = capsys.readouterr().out.split()
    assert words == str(data).split()
    main(["info", str(run.path)])
    assert capsys.readouterr().out.split() == str(run).split()


def test_the_history_is_a_table(made):
    history = made[2].history
    assert list(history) == ["epoch", "loss", "accuracy", "top_5_accuracy", "rows_per_second",
                             "waited_share", "peak_bytes"]  # fmt: skip
    assert history["epoch"] == [1, 2]
    assert history.n_rows == 2
    assert str(history).splitlines()[0].split() == list(history)
    assert "Table(2 rows: epoch" in repr(history)
    assert FigureTable({"a": []}).n_rows == 0


def test_the_callbacks_that_come_with_it(made, tiny, capsys, caplog):
    data, plan, _ = made
    seen = Watcher()
    with caplog.at_level(logging.INFO, "streammach"):
        fit(data, tiny.folder / "again", plan, callbacks=[
            sm.callbacks.Progress("json"), sm.callbacks.Progress("plain"), seen,
        ], **FIXED)  # fmt: skip
    assert seen.called == [(0, False), (1, False)]
    told = capsys.readouterr().err
    lines = [line for line in told.splitlines() if line.startswith("{")]
    events = [json.loads(line)["event"] for line in lines]
    assert events.count("validation") == 2
    assert events[-1] == "end"
    assert "progress" in events
    assert " epoch    loss  accuracy    top-5  best" in told
    assert any("validation" in record.getMessage() for record in caplog.records)


def test_progress_is_told_to_what_is_called(tiny, capsys):
    calls = []

    def told(stage, done, total):
        calls.append((stage, done, total))

    sm.convert(tiny.text("a.vw", tiny.lines(300, 20)), tiny.folder / "a.zarr", progress=told)
    stages = list(dict.fromkeys(stage for stage, _, _ in calls))
    assert stages == ["read", "sort", "write", "names"]
    calls.clear()
    X, y = np.eye(40, 12, dtype=np.float32)[np.arange(400) % 12], np.arange(400) % 12
    run = sm.train(X, y, epochs=1, learning_rate=0.5, transform="raw", progress=told)
    assert {"held-out rows", "epochs", "writing"} <= {stage for stage, _, _ in calls}
    assert all(0 <= done <= total or not total for _, done, total in calls)
    calls.clear()
    sm.evaluate(run.model, tiny.folder / "a.zarr", progress=told)
    assert ("evaluate", 300, 300) in calls
    assert sm.verify(tiny.folder / "a.zarr", progress=told) == []
    assert {"files", "rows"} <= {stage for stage, _, _ in calls}
    assert capsys.readouterr().err in ("", "compiling kernels; later runs load them\n")
    with pytest.raises(UsageError, match="progress"):
        sm.evaluate(run.model, tiny.folder / "a.zarr", progress="loud")


def test_lists_of_labels_show_precision(tiny, rng):
    sm.convert(tiny.text("a.vw", listed_lines(rng, 300)), tiny.folder / "a.zarr", multilabel="on")
    with sm.Dataset.open(tiny.folder / "a.zarr") as data:
        plan = sm.plan(data, n_buckets=8, n_repetitions=2, threads=1, counts="off")
        run = fit(data, tiny.folder / "run", plan, **FIXED)
        assert "labels" in str(data)
    assert "P@1" in repr(run)
    found = sm.evaluate(run.model, tiny.folder / "a.zarr")
    assert "P@1" in repr(found)
    assert "PSnDCG" in str(found)
    assert "PSnDCG" in found._repr_html_()


def test_a_smaller_model_a_check_and_a_page(tiny):
    store = tiny.store()
    with sm.Dataset.open(store) as data:
        plan = sm.plan(data, n_buckets=8, n_repetitions=2, threads=1, counts="off")
        run = fit(data, tiny.folder / "run", plan, model_size="full", **FIXED)
    small = sm.shrink(run.path, tiny.folder / "small", weights="int4")
    assert small.width == "int4"
    assert "int4" in repr(sm.Model.load(tiny.folder / "small"))
    with pytest.raises(UsageError):
        sm.shrink(run.path, tiny.folder / "small", weights="int4")
    assert sm.verify(store) == []
    made = sm.report(run.path, tiny.folder / "page.html", on=store)
    assert made.path.read_text().startswith("<!DOCTYPE html>")
    assert made.page.plots
