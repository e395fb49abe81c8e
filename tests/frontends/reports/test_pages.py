"""Pages: whole HTML, nothing fetched, the numbers of the run's files, the same bytes again."""

import json
import re
import shutil
from dataclasses import replace
from types import SimpleNamespace

import msgspec
import numpy as np

import streammach as sm
from streammach.frontends.reports import html
from streammach.frontends.reports.pages import run_page, verdict
from streammach.frontends.reports.row_plots import (
    classes_plot,
    figures_plot,
    labels_plot,
    reliability_plot,
    tenths_plot,
)
from streammach.frontends.reports.run_plots import epochs_plot, stages_plot
from streammach.model.document import disk_bytes
from streammach.options.figures import EpochFigures
from streammach.parts.training_record import LOG
from streammach.prediction.diagnose import QueryTime, query_time
from streammach.prediction.metrics import RowGroup
from streammach.system.machine import size_text
from streammach.training.run import RunLog, read_log
from tests.frontends.reports.reading import Reader


def test_pages_are_whole_and_fetch_nothing(pages):
    for page in pages[:2]:
        read = Reader(page)
        assert page.startswith("<!DOCTYPE html>")
        assert len(read.ids) == len(set(read.ids))
        assert not re.search(r"http|<script|@import|<img|<link|<iframe|javascript:", page)
        targets = [v for _, name, v in read.attributes if name in ("href", "xlink:href", "src")]
        assert targets
        assert all(target[0] == "#" and target[1:] in read.ids for target in targets)
        used = re.findall(r"url\((.*?)\)", page)
        assert all(target[0] == "#" and target[1:] in read.ids for target in used)
        drawings = [pair for pair in read.attributes if pair[:2] == ("svg", "aria-label")]
        assert len(drawings) == page.count("<svg")
        assert all(len(alt) > 20 for _, _, alt in drawings)


def test_the_same_run_gives_the_same_bytes(run_and_rows, pages):
    run, _ = run_and_rows
    assert run_page(sm.Run.open(run.path), run.model, pages[2]).html == pages[1]
    assert "2026" not in re.sub(r"<svg.*?</svg>|<table.*?</table>", "", pages[1], flags=re.DOTALL)


def test_rows_are_asked_for_where_they_are_missing(pages):
    without, with_rows, _ = (Reader(page) if isinstance(page, str) else page for page in pages)
    assert "--on STORE" in "".join(without.text)
    assert "--on STORE" not in "".join(with_rows.text)
    for name in ("reliability", "deciles", "repetitions"):
        assert name not in without.ids
        assert name in with_rows.ids
    for name in ("epochs", "memory"):
        assert name in without.ids


def test_numbers_are_those_of_the_files(run_and_rows, pages):
    run, _ = run_and_rows
    read = Reader(pages[1])
    result = json.loads((run.path / "result.json").read_text())
    plan = json.loads((run.path / "plan.json").read_text())
    for row, entry in zip(read.table("epoch"), result["history"], strict=True):
        assert row[1] == f"{entry['loss']:.4f}"
        assert row[2] == f"{100 * entry['accuracy']:.2f}"
    terms = {row[0]: row[1:] for row in read.table("term")}
    for line in plan["ledger"]:
        name = line["name"] + (" (disk)" if line["where"] == "disk" else "")
        assert int(terms[name][0].replace(",", "")) == line["n_bytes"]
    assert int(terms["sum"][1].replace(",", "")) == result["peak_bytes"]
    noted = [json.loads(x) for x in (run.path / LOG).read_text().splitlines()]
    held = next(event for event in noted if event["event"] == "memory")
    for name in ("weights", "optimizer", "held-out rows", "names"):
        assert int(terms[name][1].replace(",", "")) == held[name] > 0
    parts = read.table("part")
    assert sum(int(row[1].replace(",", "")) for row in parts) == run.model.n_bytes
    assert parts[0][2] == f"{run.model.hashed_weight:.3f}"


def test_numbers_of_rows_are_those_of_the_diagnosis(pages):
    _, page, found = pages
    read = Reader(page)
    for row, group in zip(read.table("group"), found.recall_by_decile, strict=True):
        assert [row[1], row[2]] == [str(group.n_classes), str(group.n_rows)]
    for row, depth in zip(read.table("first repetitions"), found.depths, strict=True):
        assert row == [str(depth.n_repetitions),
                       *(f"{100 * p:.2f}" for p in depth.accuracy.values())]  # fmt: skip


def test_rows_are_explained_right_ones_and_wrong_ones(pages, lists, list_page):
    for page, found in ((pages[1], pages[2]), (list_page.html, lists[1])):
        assert [one.right for one in found.examples] == [True] * 3 + [False] * 3
        assert [len(one.why) for one in found.examples[:3]] == [1] * 3
        shown = [float(x) for x in re.findall(r"in all ([-+.e\d]+)<", page)]
        every = [why for one in found.examples for why in one.why]
        for why, score in zip(every, shown, strict=True):
            parts = [x.contribution for x in why.contributions]
            assert 0 < len(parts) <= 16
            assert abs(sum(parts) + sum(why.lines.values()) - why.score) < 1e-4
            assert abs(score - why.score) <= 0.005 * abs(why.score)
        for one in found.examples[3:]:
            if len(one.why) == 1:  # its label was never seen
                continue
            assert one.why[0].label != one.why[1].label
            assert one.why[0].score >= one.why[1].score - 1e-4


def test_classes_are_those_of_the_diagnosis_and_can_be_sorted(pages, lists, list_page):
    for page, found in ((pages[1], pages[2]), (list_page.html, lists[1])):
        rows, each = Reader(page).table("label"), found.by_class
        table = found.classes
        whole = {str(line[0]): line for line in zip(*table.values(), strict=True)}
        assert len(rows) >= min(50, np.count_nonzero(table["rows"]))
        own = [whole[row[0]] for row in rows]
        for row, (_, n, said, _, recall, f1, *_) in zip(rows, own, strict=True):
            assert row[1:3] == [f"{n:,}", f"{said:,}"]
            assert [row[4], row[5]] == [f"{100 * x:.1f}" for x in (recall, f1)]
        places = np.array([[int(place) for place in re.findall(r"--\d:(\d+);", style)]
                           for style in re.findall(r'<tr style="(.*?)"', page)])  # fmt: skip
        for order, key in ((places[:, 0], 5), (places[:, 1], 4), (places[:, 4], 1)):
            assert sorted(order.tolist()) == [*range(len(rows))]
            shown = [own[i][key] for i in np.argsort(order)]
            assert shown == sorted(shown, reverse=key == 1)
        worst = sorted(x for x, n in zip(table["f1"], table["rows"], strict=True) if n)[:50]
        assert sorted(line[5] for line in own)[: len(worst)] == worst
        pairs = [[str(c.label), str(c.predicted), f"{c.n_rows:,}"] for c in found.confusions]
        assert len(pairs) <= 20
        assert pairs == [row[:3] for row in Reader(page).table("true")] if pairs else True
        plot = classes_plot(found)
        there = each.rows[each.ids]
        assert plot.rows[0][:2] == ("1", f"{np.count_nonzero(there == 1):,}")
        one = each.figures(each.ids[there == 1])["recall"].mean()
        assert plot.rows[0][2] == f"{100 * one:.1f}"
    assert lists[1].confusions


def test_the_first_words_are_how_often_it_is_right(run_and_rows, pages):
    run, test = run_and_rows
    found = pages[2]
    with sm.Dataset.open(test) as data:
        labels = run.model.labels.ids_of(data.labels)[data.rows(0, 400).classes]
    guessed = float((labels == run.model.majority).mean())
    said = verdict(run, run.model, found, QueryTime(seconds=0.0004, n_queries=200))
    assert said[0].startswith(f"The first answer is right for {100 * found.accuracy:.1f}% of 400 ")
    assert said[0].endswith(f", among {run.model.spec.n_classes} classes.")
    assert f"first five answers for {100 * found.top_5_accuracy:.1f}%." in said[1]
    assert f"most frequent in training would be right for {100 * guessed:.1f}%." in said[1]
    assert 0 < guessed < 1
    assert f"Of the rows held out from training ({run.settings.held_out}) " in said[1]
    assert f"{size_text(disk_bytes(run.path))}" in said[2]
    assert said[2].endswith("; a query takes 400 us on one thread (the median of 200 rows).")
    assert f"of the {size_text(run.plan.limits.host)} of memory" in said[3]
    alone = verdict(run, run.model)
    assert alone[0].startswith(
        f"The first answer is right for {100 * run.result.best.accuracy:.1f}% "
    )
    assert len(alone) == 4
    nothing = {"validation": {}, "history": (), "best_epoch": 0}
    blind = replace(run, result=msgspec.structs.replace(run.result, **nothing))
    assert "how often it is right is told by labelled rows" in verdict(blind, run.model)[0]


def test_pictures_stand_before_tables(pages):
    page = pages[1]
    assert page.index('class="verdict"') < page.index("<svg")
    assert page.rindex("</svg>") < page.index('class="facts"')
    assert page.rindex("</svg>") < page.index("weight in a score")


def test_names_cannot_write_into_the_page(run_and_rows, tmp_path):
    run, _ = run_and_rows
    folder = tmp_path / "<i>&'\x1b\""
    shutil.copytree(run.path, folder)
    page = run_page(run := sm.Run.open(folder), run.model).html
    assert "<i>" not in page
    assert "\x1b" not in page
    assert "&lt;i&gt;&amp;" in page
    Reader(page)
    assert html.text("a\x00b\udcff<") == "a\ufffdb\ufffd&lt;"


def entries(n, **more):
    return [EpochFigures(**entry) for entry in raw_entries(n, **more)]


def raw_entries(n, **more):
    return [
        {"epoch": i + 1, "loss": 2.0 / (i + 1), "rows_per_second": 100.0 * (i + 1),
         "waited_share": 0.01, "peak_bytes": 10**8, **more}
        for i in range(n)
    ]  # fmt: skip


def test_what_is_one_point_alone_is_not_compared():
    sizes = {"same": np.full(5, 2), "two": np.array([1, 2, 2, 2, 2])}
    plots = {}
    for name, rows in sizes.items():
        figures = {"rows": rows, "recall": np.ones(5)}
        each = SimpleNamespace(ids=np.arange(5), rows=rows, figures=lambda _, found=figures: found)
        plots[name] = classes_plot(SimpleNamespace(by_class=each, sets=None))
    assert plots["same"] is None
    assert plots["two"].rows[0][:2] == ("1", "1")
    assert epochs_plot(entries(1, accuracy=0.5), 1).finding.endswith("held-out accuracy 50.0%")
    assert epochs_plot(entries(2, accuracy=0.5), 1).finding.endswith("50.0% after the first")


def test_a_run_without_held_out_rows_has_its_plot():
    plot = epochs_plot(entries(3), 3)
    assert plot.finding == "Epoch 3 of 3 was kept"
    assert [row[0] for row in plot.rows] == ["1", "2", "3 (kept)"]
    assert plot.rows[0][2] == "-"
    assert "accuracy" not in plot.svg


REACHED = {"accuracy": 0.5, "top_5_accuracy": 0.75}


def test_a_log_is_read_over_its_sessions(tmp_path):
    lines = [
        {"t": 0.0, "event": "start"}, {"t": 5.0, "event": "measured", **REACHED},
        {"t": 0.0, "event": "start"}, {"t": 2.0, "event": "measured", **REACHED},
        {"t": 2.5, "event": "measured", **REACHED, "accuracy": "much"},
        {"t": 2.5, "event": "memory", "weights": 7, "names": "x"},
    ]  # fmt: skip
    text = "\n".join(json.dumps(line) for line in lines) + '\n[1]\n{"t": "x"}\n{"t": 3.0, "ev'
    (tmp_path / LOG).write_text(text + "\n" + "[" * 100_000)
    log = read_log(tmp_path)
    assert [one.t for one in log.stages] == [5.0, 7.0]
    assert log.held == {"weights": 7}
    assert read_log(tmp_path / "none") == RunLog()


def test_accuracy_over_time_is_that_of_the_log(tmp_path):
    speed = {"epoch": 1, "rows_per_second": 5.0, "waited_share": 0.1}
    lines = [
        {"t": 0, "event": "start", "plan": "plan.json"},
        {"t": 4, "event": "measured", "stage": "counts", "accuracy": 0.39, "top_5_accuracy": 0.5},
        {"t": 9, "event": "start", "plan": "plan.json"},
        {"t": 10, "event": "validation", **speed, "accuracy": 0.2, "top_5_accuracy": 0.3},
        {"t": 12, "event": "validation", **speed, "accuracy": None, "top_5_accuracy": None},
        {
            "t": 20,
            "event": "measured",
            "stage": "finished model",
            "accuracy": 0.4,
            "top_5_accuracy": 0.5,
        },
        {"t": 21, "event": "measured", "stage": "counts", "accuracy": 7, "top_5_accuracy": 0.5},
    ]
    (tmp_path / LOG).write_text("\n".join(map(json.dumps, lines)))
    found = read_log(tmp_path).stages
    assert [(one.t, one.stage, one.accuracy) for one in found] == [
        (4, "counts", 0.39), (14, "hashed models", 0.2), (24, "finished model", 0.4),
    ]  # fmt: skip
    plot = stages_plot(found)
    assert plot.finding == (
        "After 4 s of 24 s, counts had a held-out accuracy of 39.0%; finished model: 40.0%"
    )
    assert plot.rows[1] == ("14", "hashed models", "20.00", "30.00")
    assert stages_plot(found[:1]) is None


def test_a_page_of_lists_has_its_plots_and_words(lists, list_page):
    (_, found), page = lists, list_page
    names = [plot.name for plot in page.plots]
    assert names[:6] == ["figures", "labels", "tenths", "classes", "reliability", "repetitions"]
    assert all(plot.rows and plot.finding for plot in page.plots)
    read = Reader(page.html)
    assert len(read.ids) == len(set(read.ids))
    text = "".join(read.text)
    assert "accuracy" not in page.html
    assert "top-5" not in page.html
    assert f"is a label of the row for {100 * found.accuracy:.1f}% (P@1) of 200 rows" in text
    assert f"Of the first five answers {100 * found.top_5_accuracy:.1f}% (P@5) are." in text
    assert "label that is most frequent in training would be right for " in text
    assert f"{found.n_unseen:,} of these labels were never seen" in text
    assert f"{found.by_labels[0].n_rows} rows have no label" in text
    for row, k in zip(read.table("k"), (1, 3, 5), strict=True):
        assert row[0] == str(k)
        shown = [found.sets.by_name()[f"{kind}@{k}"] for kind in ("P", "N", "R", "PSP", "PSN")]
        assert row[2:] == [f"{100 * x:.2f}" for x in shown]
    assert [row[1] for row in read.table("labels of a row")] == [
        str(group.n_rows) for group in found.by_labels
    ]
    assert [row[1] for row in read.table("training rows")] == [
        str(tenth.n_labels) for tenth in reversed(found.tenths)
    ]


def test_a_page_of_lists_asks_for_rows(lists):
    text = "".join(Reader(run_page(lists[0], lists[0].model).html).text)
    assert "Precision, recall by label frequency" in text
    assert "accuracy" not in text


def test_plots_of_lists_without_what_they_show(lists):
    found = lists[1]
    nothing = replace(found.tenths[0], n_labels=0, recall=float("nan"))
    assert tenths_plot(replace(found, tenths=(nothing,) * 10)) is None
    few = tenths_plot(replace(found, tenths=(nothing, found.tenths[0])))
    assert "the most frequent group" in few.finding
    assert labels_plot(replace(found, by_labels=found.by_labels[:1])) is None
    one = labels_plot(replace(found, by_labels=found.by_labels[:2]))
    assert one.finding.startswith("Of rows with 1 label ")
    assert ";" not in one.finding
    many = RowGroup(least=51, most=None, n_rows=30, figures=found.by_labels[1].figures)
    assert "; with 51+ labels " in labels_plot(
        replace(found, by_labels=(*found.by_labels, many))
    ).finding  # fmt: skip
    assert reliability_plot(replace(found, likely=None)).finding.startswith(
        "No label has a probability of 50% or more"
    )
    assert "best ranking would have" in figures_plot(found).finding


def test_a_query_is_timed_row_by_row(run_and_rows, lists):
    run, test = run_and_rows
    few = query_time(run.model, test, queries=3)
    assert few.n_queries == 3
    assert 0 < few.seconds < 60
    assert query_time(run.model, test, queries=1000).n_queries == 400
    assert lists[1].majority > 0
