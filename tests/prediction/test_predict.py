"""Tables of predictions: the same rows in every format, bad rows, interruptions, refusals."""

import gzip
import json
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest

import streammach as sm
from streammach.cli.main import main
from streammach.inputs.source_options import SourceOptions
from streammach.system.errors import DataError, UsageError
from tests.builders import names_in

NAMES = ("a.tsv", "a.csv", "a.jsonl", "a.parquet", "a.tsv.gz", "a.jsonl.gz")


@pytest.fixture(scope="module")
def done(shared):
    lines = shared.lines(300, 20)
    shared.text("a.vw", [f"{line.split()[0]} 1 t{i}|{line.split('|', 1)[1]}"
                       for i, line in enumerate(lines)])  # fmt: skip
    shared.text("b.vw", shared.lines(30, 20))
    return shared.trained()


@pytest.fixture
def job(done, tmp_path, monkeypatch):
    monkeypatch.chdir(shutil.copytree(done, tmp_path / "job"))
    monkeypatch.setattr("streammach.prediction.room.READ_ROWS", 16)
    monkeypatch.setattr("streammach.prediction.order.GIVEN_ROWS", 16)
    return tmp_path / "job"


class Stop:
    """Interrupts, as Ctrl-C does, when so many rows were written."""

    def __init__(self, n):
        self.n = n

    def __call__(self, stage, done, total):
        assert (stage, total) in (("predict", 0), ("predict", 300), ("write", 300))
        if done >= self.n:
            raise KeyboardInterrupt


@pytest.mark.filterwarnings("ignore:the model does not know 1 label, left out. 'unknown'")
def test_only_some_labels_are_written(job):
    (job / "two.txt").write_text("class-1\r\nclass-7\n\nunknown\n", encoding="utf-8-sig")
    with sm.Predictor(sm.Model.load("run"), threads=1) as predictor:
        parts = list(predictor.stream("a.vw", 20))
        every = predictor.labels(np.concatenate([part.ids for part in parts])).tolist()
        for limits, allowed in (
            ({"only": "two.txt"}, {"class-1", "class-7"}),
            ({"never": ["class-1"]}, {f"class-{i}" for i in range(20) if i != 1}),
        ):
            n = min(3, len(allowed))
            wanted = [[label for label in row if label in allowed][:n] for row in every]
            for source, given in (("a.vw", predictor), ("a.zarr", "run")):
                sm.predict(given, source, "a.parquet", k=3, force=True, **limits)
                table = pq.read_table("a.parquet")
                columns = [table[f"label_{i + 1}"].to_pylist() for i in range(n)]
                assert len(table.column_names) == 2 + 2 * n
                assert [list(row) for row in zip(*columns, strict=True)] == wanted
    asked = ["predict", "run", "b.vw", "--out", "c.tsv", "--limit", "2", "--threshold", "0.1"]
    assert main([*asked, "--never", "two.txt"]) == 0
    lines = [line.split("\t") for line in (job / "c.tsv").read_text().splitlines()]
    assert len(lines) == 31
    assert all(
        len(line) == 6 and not {line[2], line[4]} & {"class-1", "class-7"} for line in lines[1:]
    )
    assert main([*asked, "--only", "none.txt", "--force"]) != 0


def test_a_store_and_its_text_give_the_same_table_in_every_format(job):
    for name in NAMES:
        found = [sm.predict("run", source, f"{i}{name}", k=3)
                 for i, source in enumerate(("a.vw", "a.zarr"))]  # fmt: skip
        assert (job / f"0{name}").read_bytes() == (job / f"1{name}").read_bytes()
        assert [(one.n_rows, one.k, one.skipped) for one in found] == [(300, 3, {})] * 2
    rows = [line.split("\t") for line in (job / "0a.tsv").read_text().splitlines()[1:]]
    assert [row[:2] for row in rows] == [[str(i), f"t{i}"] for i in range(300)]
    assert gzip.decompress((job / "0a.tsv.gz").read_bytes()) == (job / "0a.tsv").read_bytes()
    with gzip.open("0a.jsonl.gz", "rt") as file:
        objects = [json.loads(line) for line in file]
    assert [known["labels"] for known in objects] == [row[2::2] for row in rows]
    table = pq.read_table("0a.parquet")
    assert table.column("label_3").to_pylist() == [row[6] for row in rows]
    assert [f"{score:.6g}" for score in table.column("score_1").to_pylist()] == [
        row[3] for row in rows]  # fmt: skip


def test_a_predictor_and_a_model_write_what_the_folder_does(job):
    sm.predict("run", "a.vw", "a.tsv")
    model = sm.Model.load("run")
    sm.predict(model, "a.vw", "b.tsv", threads=1)
    with sm.Predictor(model) as predictor:
        found = sm.predict(predictor, "a.vw", "c.tsv", options=SourceOptions(form="vw"))
    assert found.estimator == model.estimator
    assert (job / "a.tsv").read_bytes() == (job / "b.tsv").read_bytes()
    assert (job / "a.tsv").read_bytes() == (job / "c.tsv").read_bytes()


def test_probabilities_stand_in_place_of_scores(job):
    sm.predict("run", "a.vw", "a.csv", k=2, probabilities=True)
    head, *rows = (line.split(",") for line in (job / "a.csv").read_text().splitlines())
    assert head == ["row", "tag", "label_1", "probability_1", "label_2", "probability_2"]
    block = sm.Model.load("run")
    with sm.Predictor(block) as predictor:
        part = next(iter(predictor.stream("a.vw", 2, probabilities=True)))
    assert [float(row[3]) for row in rows[:16]] == pytest.approx(part.scores[:, 0].tolist(), 1e-4)
    assert all(0 <= float(row[3]) <= 1 for row in rows)


def test_explanations_are_the_same_in_every_format(job, monkeypatch):
    asked = {"k": 2, "explain": 2, "probabilities": True}
    for name in NAMES:
        sm.predict("run", "a.vw", f"0{name}", threads=1, **asked)
    monkeypatch.setattr("streammach.prediction.room.SORTED", 5000)  # rows are put aside
    monkeypatch.setattr("streammach.prediction.room.LEAST_SORTED", 5000)
    for name in NAMES:
        sm.predict("run", "a.zarr", f"1{name}", **asked)
        assert (job / f"0{name}").read_bytes() == (job / f"1{name}").read_bytes()
    with sm.Predictor(sm.Model.load("run"), threads=1) as predictor:
        found = [part for part in predictor.stream("a.vw", 2) if part.reasons is None]
        scores = np.concatenate([part.scores for part in found])
    table = pq.read_table("0a.parquet").to_pylist()
    head, *rows = [line.split("\t") for line in (job / "0a.tsv").read_text().splitlines()]
    assert head[2:5] == ["label_1", "probability_1", "explanation_1"]
    for i, line in enumerate((job / "0a.jsonl").read_text().splitlines()):
        for j, why in enumerate(json.loads(line)["explanations"]):
            added = {one["feature"]: one["contribution"] for one in why["contributions"]}
            total = sum(added.values()) + sum(why["lines"].values())
            assert total == pytest.approx(scores[i, j], abs=1e-4)
            assert total == pytest.approx(why["score"], abs=1e-4)
            named = list(added.items())[:1]
            assert rows[i][4 + 3 * j].startswith("".join(f"{f}:{x:+.4g}" for f, x in named))
            cell = table[i][f"explanation_{j + 1}"]
            assert {c["feature"]: c["contribution"] for c in cell["contributions"]} == (
                pytest.approx(added, rel=1e-6)
            )
            assert cell["lines"] == pytest.approx(why["lines"], rel=1e-6)


@pytest.mark.parametrize("source", ["a.vw", "a.zarr"])
@pytest.mark.parametrize("name", ["a.tsv", "a.jsonl.gz", "a.parquet"])
def test_an_interrupted_table_leaves_nothing_and_is_made_anew(source, name, job):
    sm.predict("run", source, f"whole-{name}", k=3)
    before = names_in(job)
    for rows in (16, 200):
        with pytest.raises(KeyboardInterrupt):
            sm.predict("run", source, name, k=3, progress=Stop(rows))
        assert names_in(job) == before
    assert sm.predict("run", source, name, k=3, threads=1).n_rows == 300
    assert (job / name).read_bytes() == (job / f"whole-{name}").read_bytes()
    assert names_in(job) == sorted([*before, name])


def test_rows_of_a_store_that_do_not_fit_the_memory_are_put_aside_beside_the_table(
    job, monkeypatch
):
    sm.predict("run", "a.zarr", "whole.tsv")
    monkeypatch.setattr("streammach.prediction.room.SORTED", 5000)
    monkeypatch.setattr("streammach.prediction.room.LEAST_SORTED", 5000)
    before, seen = names_in(job), []

    def look(stage, done, total):
        if stage == "predict" and done:
            (folder,) = job.glob(".a.tsv.*.scratch/content/0")
            seen.append(folder.stat().st_size)

    sm.predict("run", "a.zarr", "a.tsv", progress=look)
    assert seen[-1] > seen[0]
    assert (job / "a.tsv").read_bytes() == (job / "whole.tsv").read_bytes()
    assert names_in(job) == sorted([*before, "a.tsv"])


def test_only_a_table_of_ours_is_replaced(job):
    sm.predict("run", "a.vw", "a.tsv")
    with pytest.raises(UsageError, match="exists already"):
        sm.predict("run", "a.vw", "a.tsv")
    before = (job / "a.tsv").read_bytes()
    sm.predict("run", "a.vw", "a.tsv", out_format="jsonl", force=True)  # of any format
    assert (job / "a.tsv").read_bytes() != before
    (job / "a.tsv").write_text("row,tag\n")
    with pytest.raises(UsageError, match="no table of predictions"):
        sm.predict("run", "a.vw", "a.tsv", force=True)


def bad_text(job):
    """Rows; the second and the tenth cannot be read."""
    lines = (job / "a.vw").read_text().splitlines()
    lines[1] = lines[9] = "no bar"
    (job / "bad.vw").write_text("\n".join(lines) + "\n")


def test_bad_rows_are_skipped_listed_and_keep_their_numbers(job, capsys):
    bad_text(job)
    before = names_in(job)
    with pytest.raises(DataError, match="on_bad_row"):
        sm.predict("run", "bad.vw", "a.tsv")
    assert names_in(job) == before
    found = sm.predict("run", "bad.vw", "a.tsv", on_bad_row="skip")
    assert (found.n_rows, sum(found.skipped.values())) == (298, 2)
    rows = [line.split("\t")[:2] for line in (job / "a.tsv").read_text().splitlines()[1:]]
    assert rows == [[str(i), f"t{i}"] for i in range(300) if i not in (1, 9)]
    listed = (job / found.rejects).read_text().splitlines()
    assert [line.split("\t")[:2] for line in listed[1:]] == [["bad.vw", "2"], ["bad.vw", "10"]]
    with pytest.raises(DataError, match="max_bad"):
        sm.predict("run", "bad.vw", "b.tsv", on_bad_row="skip", max_bad=1)
    options = ["--on-bad-row", "skip", "--force", "--rejects", "left.tsv", "--json"]
    assert main(["predict", "run", "bad.vw", "--out", "a.tsv", *options]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["rejects"], sum(document["skipped"].values())) == ("left.tsv", 2)
    assert (job / "left.tsv").read_text().splitlines() == listed
    sm.predict("run", "a.vw", "a.tsv", on_bad_row="skip", force=True)
    assert not (job / "a.tsv.rejects.tsv").exists()  # there are none any more
    for options in (["--rejects", "x"], ["--max-bad", "1"]):
        assert main(["predict", "run", "a.vw", "--out", "c.tsv", *options]) == 2


def test_memory_of_arrow_is_counted_where_it_writes(job, capsys):
    sizes = {}
    for name in ("a.tsv", "a.parquet"):
        assert main(["predict", "run", "a.zarr", "--out", name, "--json"]) == 0
        sizes[name] = json.loads(capsys.readouterr().out)["projected_bytes"]
    assert sizes["a.parquet"] - sizes["a.tsv"] == 160_000_000


def test_evaluation_skips_bad_rows_too(job, capsys):
    bad_text(job)
    with pytest.raises(DataError, match="on_bad_row"):
        sm.evaluate("run", "bad.vw")
    found = sm.evaluate("run", "bad.vw", on_bad_row="skip", rejects="left.tsv")
    assert (found.n_rows, sum(found.skipped.values())) == (298, 2)
    assert len((job / "left.tsv").read_text().splitlines()) == 3
    with pytest.raises(UsageError, match="exists already"):
        sm.evaluate("run", "bad.vw", on_bad_row="skip", rejects="left.tsv")
    options = ["--on-bad-row", "skip", "--rejects", "left.tsv", "--force", "--json"]
    assert main(["evaluate", "run", "bad.vw", *options]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["skipped"] == found.skipped
    assert document["accuracy"] == found.accuracy
    both = ["--on-bad-row", "skip", "--rejects", "b.csv", "--by-class", "b.csv"]
    assert main(["evaluate", "run", "bad.vw", *both]) == 2
    assert "accuracy" not in capsys.readouterr().err
    assert not (job / "b.csv").exists()
