"""The formats of predictions: what programs read back, what is ours, what stands in a name."""

import csv
import gzip
import io
import itertools
import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streammach.prediction.explain import LINES, reason_type
from streammach.prediction.output import OUTPUT_FORMATS, AnswerShape
from streammach.prediction.predict import not_predictions, output_of, writing
from streammach.prediction.scorer_sum import Predictions
from streammach.rows.names import Names
from streammach.rows.texts import Texts
from streammach.system.errors import UsageError
from streammach.system.files.destinations import Destination

ODD = ["plain", 'q"uote', "com,ma", "tab\tnew\nline\r", "back\\slash", "\x1b[31m", "\u202eü", "😀"]


def predictions(n_labels, *, tags=None, n=40, k=3, lacking=False):
    """Predictions of random labels; with `lacking` a row has from 0 to k of them."""
    rng = np.random.default_rng(3)
    ids = rng.integers(n_labels, size=(n, k))
    scores = rng.normal(size=(n, k)).astype(np.float32)
    if lacking:
        gone = np.arange(k) >= (np.arange(n) % (k + 1))[:, None]
        ids, scores = np.where(gone, -1, ids), np.where(gone, 0, scores).astype(np.float32)
    rows = np.arange(n) * 2 + 1
    return Predictions(rows, ids, scores, None if tags is None else Texts.of(tags))


def written(name, parts, shape, folder):
    path = folder / f"p.{name}"
    with writing(Destination(path, not_predictions, force=True), output_of(path), shape) as write:
        for part in parts:
            write(OUTPUT_FORMATS[name].rows(part, shape))
    return path


def cut(whole, *stops):
    edges = itertools.pairwise([0, *stops, len(whole.rows)])
    return [
        Predictions(whole.rows[a:b], whole.ids[a:b], whole.scores[a:b],
                    None if whole.tags is None else whole.tags.part(a, b),
                    None if whole.reasons is None else whole.reasons[a:b])
        for a, b in edges
    ]  # fmt: skip


def plain_tsv(whole, labels):
    """The table by a loop over its cells."""
    out = ["\t".join(["row", "tag", *(f"{w}_{i}" for i in (1, 2, 3) for w in ("label", "score"))])]
    for i, row in enumerate(whole.rows):
        cells = [str(row), "" if whole.tags is None else whole.tags.raws()[i].decode()]
        for class_id, score in zip(whole.ids[i], whole.scores[i], strict=True):
            cells += [labels[class_id], f"{score:.6g}"] if class_id >= 0 else ["", ""]
        out.append("\t".join(cells))
    return "\n".join(out) + "\n"


@pytest.mark.parametrize("lacking", [False, True])
@pytest.mark.parametrize("tagged", [False, True])
def test_tab_separated_cells_are_those_of_a_plain_loop(lacking, tagged, tmp_path):
    labels = [f"l{i}" for i in range(9)]
    tags = [f"t{i}".encode() * (i % 2) for i in range(40)] if tagged else None
    whole = predictions(9, tags=tags, lacking=lacking)
    shape = AnswerShape(k=3, labels=Names.of(labels))
    path = written("tsv", cut(whole, 7, 8, 30), shape, tmp_path)
    assert path.read_text() == plain_tsv(whole, labels)


def cells_of(row, labels, whole, i):
    """What a row of the table says, from the predictions."""
    there = whole.ids[i] >= 0
    return [labels[j] for j in whole.ids[i][there]], whole.scores[i][there].tolist(), row


@pytest.mark.parametrize("lacking", [False, True])
def test_other_programs_read_csv_and_json_lines_with_odd_labels(lacking, tmp_path):
    tags = [ODD[i % len(ODD)].encode() for i in range(40)]
    whole = predictions(len(ODD), tags=tags, lacking=lacking)
    shape = AnswerShape(k=3, labels=Names.of(ODD))
    text = written("csv", cut(whole, 11), shape, tmp_path).read_bytes().decode()
    head, *rows = csv.reader(io.StringIO(text, newline=""))
    assert head == ["row", "tag", "label_1", "score_1", "label_2", "score_2", "label_3", "score_3"]
    lines = written("jsonl", cut(whole, 11), shape, tmp_path).read_bytes().decode()
    objects = [json.loads(line) for line in lines.split("\n")[:-1]]
    assert "\x1b" not in lines
    assert "\u202e" not in lines
    for i, (row, known) in enumerate(zip(rows, objects, strict=True)):
        labels, scores, _ = cells_of(row, ODD, whole, i)
        assert row[:2] == [str(whole.rows[i]), tags[i].decode()]
        assert [cell for cell in row[2::2] if cell] == labels
        assert [float(cell) for cell in row[3::2] if cell] == pytest.approx(scores, rel=1e-5)
        assert (known["row"], known["tag"]) == (whole.rows[i], tags[i].decode())
        assert known["labels"] == labels
        assert known["scores"] == pytest.approx(scores, rel=1e-5)


@pytest.mark.parametrize("lacking", [False, True])
def test_explanations_with_odd_names_are_read_back(lacking, tmp_path):
    whole, names = predictions(len(ODD), lacking=lacking), Names.of([*ODD, b"\xff"])
    reasons = np.zeros(whole.ids.shape, reason_type(2))
    reasons["features"] = np.arange(40 * 3 * 4).reshape(40, 3, 4) % 10 - 1
    reasons["contributions"], reasons["lines"][:, :, LINES.index("bias")] = 0.5, -0.25
    whole = replace(whole, reasons=reasons)
    shape = AnswerShape(k=3, labels=Names.of(ODD), features=names)
    shown = [*ODD, "\\xff", None]  # by id, none of -1
    wanted = [[[shown[f] for f in cell if f >= 0] for cell in row]
              for row in reasons["features"].tolist()]  # fmt: skip
    text = written("csv", cut(whole, 11), shape, tmp_path).read_bytes().decode()
    _, *rows = csv.reader(io.StringIO(text, newline=""))
    lines = written("jsonl", cut(whole, 11), shape, tmp_path).read_bytes().decode()
    table = pq.read_table(written("parquet", cut(whole, 11), shape, tmp_path)).to_pydict()
    assert len(written("tsv", [whole], shape, tmp_path).read_text().splitlines()) == 41
    assert "\x1b" not in lines
    for i, line in enumerate(lines.split("\n")[:-1]):
        there = (whole.ids[i] >= 0).tolist()
        found = [[c["feature"] for c in one["contributions"]]
                 for one in json.loads(line)["explanations"]]  # fmt: skip
        assert found == [own for own, here in zip(wanted[i], there, strict=True) if here]
        for j, here in enumerate(there):
            said = " ".join(f"{name}:+0.5" for name in wanted[i][j]) + " (bias):-0.25"
            assert rows[i][4 + 3 * j] == (said.lstrip() if here else "")
            cell = table[f"explanation_{j + 1}"][i]
            assert (cell is not None) == here
            assert not here or [c["feature"] for c in cell["contributions"]] == wanted[i][j]


@pytest.mark.parametrize("labels", [[f"{i * 7 - 20}" for i in range(9)], ODD, [b"\xff\xfe", b"b"]])
def test_parquet_has_columns_of_their_own_types(labels, tmp_path, monkeypatch):
    monkeypatch.setattr("streammach.prediction.output.GROUP_ROWS", 16)
    names = Names.of(labels)
    whole = predictions(len(labels), tags=[b"t" * (i % 3) for i in range(40)], lacking=True)
    shape = AnswerShape(k=3, labels=names, word="probability")
    path = written("parquet", cut(whole, 5, 6, 39), shape, tmp_path)
    (tmp_path / "b").mkdir()
    other = written("parquet", cut(whole), shape, tmp_path / "b")
    assert path.read_bytes() == other.read_bytes()  # however rows came
    table = pq.read_table(path)
    kind = {"integer": pa.int64(), "utf8": pa.string(), "bytes": pa.binary()}[names.kind]
    assert table.schema.field("label_2").type == kind
    assert table.schema.field("probability_2").type == pa.float32()
    assert [pq.ParquetFile(path).metadata.row_group(i).num_rows for i in range(3)] == [16, 16, 8]
    found = table.to_pydict()
    assert found["row"] == whole.rows.tolist()
    assert found["tag"] == ["t" * (i % 3) or None for i in range(40)]
    for i in range(3):
        there = (whole.ids[:, i] >= 0).tolist()
        wanted = [names.label(j) if ok else None
                  for j, ok in zip(whole.ids[:, i].tolist(), there, strict=True)]  # fmt: skip
        assert found[f"label_{i + 1}"] == wanted
        scores = [s if ok else None
                  for s, ok in zip(whole.scores[:, i].tolist(), there, strict=True)]  # fmt: skip
        assert found[f"probability_{i + 1}"] == scores


def test_integers_stay_numbers_in_json_and_no_number_is_null(tmp_path):
    whole = predictions(5, n=4)
    whole.scores[1, 2] = -np.inf
    shape = AnswerShape(k=3, labels=Names.of(list(range(5))), word="probability")
    lines = written("jsonl", [whole], shape, tmp_path).read_text().splitlines()
    objects = [json.loads(line) for line in lines]
    assert [known["labels"] for known in objects] == whole.ids.tolist()
    assert objects[1]["probabilities"][2] is None
    assert objects[0]["tag"] is None
    assert "-inf" in written("tsv", [whole], shape, tmp_path).read_text()


def test_rows_of_no_label_and_no_rows_are_written(tmp_path):
    whole = predictions(3, n=4, lacking=True)
    none = Predictions(whole.rows, np.full_like(whole.ids, -1), whole.scores * 0)
    shape = AnswerShape(k=3, labels=Names.of(["a", "b", "c"]))
    assert written("tsv", [none], shape, tmp_path).read_text().splitlines()[1] == "1" + "\t" * 7
    assert json.loads(written("jsonl", [none], shape, tmp_path).read_text().splitlines()[0])[
        "labels"] == []  # fmt: skip
    for name in OUTPUT_FORMATS:
        path = written(name, [], shape, tmp_path)
        assert not_predictions(path) is None or name == "jsonl"  # which is empty then


@pytest.mark.parametrize("word", ["score", "probability"])
@pytest.mark.parametrize("name", OUTPUT_FORMATS)
def test_a_file_of_ours_is_told_from_others(name, word, tmp_path):
    shape = AnswerShape(k=1, labels=Names.of(['a"b', "c"]), word=word)
    whole = predictions(2, n=3, k=1, tags=[b'a"\\', b"", b"c"])
    path = written(name, [whole], shape, tmp_path)
    assert not_predictions(path) is None
    if OUTPUT_FORMATS[name].text:
        data = path.read_bytes()
        path.write_bytes(gzip.compress(data))
        assert not_predictions(path) is None
        path.write_bytes(data[1:])
    else:
        pq.write_table(pq.read_table(path).replace_schema_metadata(None), path)
    assert "that streammach made" in not_predictions(path)


@pytest.mark.parametrize(
    "data",
    [b"", b"PAR1", b"PAR1 and more", b"\x1f\x8b", b"\x1f\x8b\x08\x00junk", b"row,tag,label_12,x\n",
     b'{"row":1,"tag":"a","text":["b"]}\n', b'{"row":"1","tag":null,"labels":[]}\n'],
)  # fmt: skip
def test_what_somebody_else_made_is_not_ours(data, tmp_path):
    (tmp_path / "x").write_bytes(data)
    assert not_predictions(tmp_path / "x") == "it is no table of predictions that streammach made"


def test_the_name_of_a_file_tells_its_format(tmp_path):
    for name, form, packed in (
        ("a.tsv", "tsv", False), ("a.TSV.gz", "tsv", True), ("a.csv", "csv", False),
        ("a.b.ndjson.gz", "jsonl", True), ("a.jsonl", "jsonl", False), ("a", "tsv", False),
        ("a.pq", "parquet", False), ("a.txt.gz", "tsv", True),
    ):  # fmt: skip
        found = output_of(tmp_path / name)
        assert (found.format.name, found.packed) == (form, packed)
    assert output_of(tmp_path / "a.csv", "jsonl").format.name == "jsonl"
    assert output_of(None).format.name == "tsv"
    for path, name, what in (
        (None, "parquet", "is written to a file"), (tmp_path / "a.parquet.gz", None, "no .gz"),
        (tmp_path / "a", "xml", "is not one of tsv, csv, jsonl, parquet"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=what):
            output_of(path, name)


def test_without_arrow_parquet_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"streammach\[tables\]"):
        output_of(tmp_path / "a.parquet")
