"""CSV, TSV and JSON lines as people have them: quotes, no header, blank lines, a bad byte."""

import csv
import gzip
import json
import os
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streammach.cli.main import main
from streammach.conversion.convert import convert
from streammach.inputs.source_options import Layout, SourceOptions, TableOptions
from streammach.inputs.sources import open_source
from streammach.store.dataset import Dataset
from streammach.system.errors import DataError, UsageError
from tests.inputs.tables.builders import features

ROLES = {"label": "y", "text": "t"}


def library(n=600, at=(5, 70, 71, 300)):
    """TSV of titles and subjects in which some titles begin with a quotation mark."""
    titles = [f'"Title {i}: a life' if i in at else f'title {i} of "some" kind' for i in range(n)]
    return "t\ty\n" + "".join(f"{title}\t<u{i % 7}>\n" for i, title in enumerate(titles))


@pytest.mark.parametrize("quotes", ["auto", "off"])
@pytest.mark.parametrize("block", [1 << 20, 4096])
def test_quotes_that_have_no_pair_take_no_line_of_tsv(quotes, block, tmp_path, monkeypatch):
    monkeypatch.setattr("streammach.inputs.text.BLOCK_BYTES", block)
    (tmp_path / "a.tsv").write_text(library())
    given = {"quotes": quotes, "out": tmp_path / "s.zarr", **ROLES}
    if quotes == "auto":
        with pytest.warns(UserWarning, match=r"a letter: 4, the first in line 7 "):
            made = convert(tmp_path / "a.tsv", **given)
    else:
        made = convert(tmp_path / "a.tsv", **given)
    assert made.n_rows == 600


@pytest.mark.parametrize("form", ["csv", "tsv"])
@pytest.mark.parametrize("block", [1 << 20, 512])
@pytest.mark.filterwarnings("error")
def test_cells_that_span_lines_are_counted(form, block, tmp_path, monkeypatch):
    monkeypatch.setattr("streammach.inputs.text.BLOCK_BYTES", block)
    rows = [[f"k{i % 3}", "first\nsecond" if i % 90 == 40 else f"word{i}"] for i in range(200)]
    with open(tmp_path / f"a.{form}", "w", newline="") as file:
        writer = csv.writer(file, delimiter="," if form == "csv" else "\t", lineterminator="\n")
        writer.writerows([["y", "t"], *rows])
    with pytest.warns(UserWarning, match="span lines: 2, the first in line 42 "):
        made = convert(tmp_path / f"a.{form}", tmp_path / "s.zarr", **ROLES)
    assert made.n_rows == 200
    assert {"t^first second"} <= features(tmp_path / "s.zarr")


def test_quotes_are_letters_of_csv_where_that_was_asked(tmp_path):
    (tmp_path / "a.csv").write_text('y,t\n"a,x\nb","y"\n')
    convert(tmp_path / "a.csv", tmp_path / "s.zarr", quotes="off", **ROLES)
    with Dataset.open(tmp_path / "s.zarr") as store:
        assert sorted(store.labels.raw(i) for i in range(2)) == [b'"a', b'b"']


def test_a_line_of_tsv_that_is_torn_says_what_may_help(tmp_path):
    (tmp_path / "a.tsv").write_text('y\tt\nk\t"one\ttwo\nthree"\n')
    with pytest.raises(DataError, match=r"3 cells, the header names 2 \(quotes on reads"):
        convert(tmp_path / "a.tsv", tmp_path / "s.zarr", **ROLES)
    with pytest.warns(UserWarning, match="span lines: 1, the first in line 2 "):
        convert(tmp_path / "a.tsv", tmp_path / "s.zarr", quotes="on", **ROLES)


@pytest.mark.parametrize("form", ["csv", "tsv", "csv.gz"])
def test_a_table_without_a_header(form, tmp_path):
    text = "".join(f"some words {i}\tk{i % 3}\n" for i in range(50))
    text = text if form == "tsv" else text.replace("\t", ",")
    raw = gzip.compress(text.encode()) if form.endswith("gz") else text.encode()
    path = tmp_path / f"a.{form}"
    path.write_bytes(raw)
    out = tmp_path / "s.zarr"
    made = convert(path, out, header=False, columns="t,y", **ROLES)
    assert made.n_rows == 50
    assert "t^some words" in features(out)
    made = convert(path, tmp_path / "n.zarr", header=False, label="2", text="1")
    assert made.n_rows == 50
    with pytest.raises(DataError, match="2 cells, columns names 3"):
        convert(path, tmp_path / "m.zarr", header=False, columns=["t", "y", "z"], **ROLES)


def test_commands_read_tables_without_a_header(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("".join(f"some words {i},k{i % 3}\n" for i in range(50)))
    run = str(tmp_path / "run")
    asked = ["--no-header", "--columns", "t,y"]
    fit = ["fit", str(path), *asked, "--label", "y", "--text", "t", "--epochs", "1", "--buckets",
           "4", "--repetitions", "2", "--learning-rate", "0.5", "--transform", "binary",
           "--counts", "off"]  # fmt: skip
    assert main([*fit, "--out", run, "--memory", "1GB"]) == 0
    assert main(["evaluate", run, str(path), *asked]) == 0
    assert main(["predict", run, str(path), *asked, "--out", str(tmp_path / "p.tsv")]) == 0
    assert len((tmp_path / "p.tsv").read_text().splitlines()) > 50
    assert main(["explore", str(path), *asked]) == 0


def test_layouts_that_cannot_be(tmp_path):
    (tmp_path / "a.csv").write_text("y,t\nk,a\n")
    (tmp_path / "a.vw").write_text("1 | a\n")
    for given, said in (
        ({"columns": "a,b"}, "the header names the columns"),
        ({"quotes": "perhaps"}, "'perhaps' is not one of auto, on, off"),
    ):
        with pytest.raises(UsageError, match=said):
            convert(tmp_path / "a.csv", tmp_path / "s.zarr", **ROLES, **given)
    with pytest.raises(UsageError, match="only CSV and TSV have a header and quotes"):
        open_source(tmp_path / "a.vw", SourceOptions(layout=Layout(quotes="off")))


@pytest.mark.parametrize("option", [
    {"format": "csv"}, {"quotes": "off"}, {"header": False}, {"header": False, "columns": "y,t"},
    {"x_path": "X"}, {"y_path": "y"}, {"first_label": True},
])  # fmt: skip
@pytest.mark.parametrize("kind", ["dicts", "Arrow"])
def test_options_of_files_are_refused_for_rows_in_memory(option, kind, tmp_path):
    rows = [{"y": "k", "t": "a"}, {"y": "m", "t": "b"}]
    with pytest.raises(UsageError, match="only files have"):
        convert(
            rows if kind == "dicts" else pa.Table.from_pylist(rows), tmp_path / "s.zarr", **ROLES,
            **option,
        )  # fmt: skip
    assert not any(tmp_path.iterdir())


ROWS = {
    "vw": b"a | x y\nb | y z\n", "svmlight": b"1 1:1 2:1\n2 2:1\n", "csv": b"y,t\nk,a b\nm,c\n",
    "tsv": b"y\tt\nk\ta b\nm\tc\n", "jsonl": b'{"y":"k","t":"a b"}\n{"y":"m","t":"c"}\n',
}  # fmt: skip
BEFORE = {
    "blank lines": b"\n" * 400_000, "blank lines of Windows": b"\r\n" * 100_000,
    "spaces": b"   \n" * 30_000, "blank lines past a block": b"\n" * 1_200_000,
}  # fmt: skip
COMMENTS = {"comments": b"# nothing\n" * 8000, "a long comment": b"# " + b"n " * 70_000 + b"\n"}
WRAPPED = {
    "plain": lambda text: text, "gzip": lambda text: gzip.compress(text, 1),
    "an empty member": lambda text: gzip.compress(b"") + gzip.compress(text, 1),
    "two members": lambda text: gzip.compress(text[:3]) + gzip.compress(text[3:], 1),
}  # fmt: skip


CASES = [(form, "plain", before) for form in ROWS for before in BEFORE]
CASES += [(form, wrapped, "blank lines") for form in ROWS for wrapped in WRAPPED]
CASES += [("svmlight", wrapped, before) for wrapped in WRAPPED for before in COMMENTS]
CASES = [one for one in CASES if one[2] != "spaces" or one[0] in ("vw", "svmlight")]


@pytest.mark.parametrize(("form", "wrapped", "before"), CASES)
def test_a_format_is_told_wherever_its_first_line_is(form, wrapped, before, tmp_path):
    path = tmp_path / "rows"
    path.write_bytes(WRAPPED[wrapped]({**BEFORE, **COMMENTS}[before] + ROWS[form]))
    source = open_source(path, SourceOptions(table=TableOptions()))
    assert source.form == form
    made = convert(path, tmp_path / "s.zarr")
    assert (made.n_rows, made.n_classes) == (2, 2)


def test_a_long_list_of_labels_is_told_from_csv(tmp_path):
    labels = ",".join(str(i) for i in range(30_000))
    (tmp_path / "a").write_text(f"{labels} 1:1 2:1\n3 2:1\n")
    assert open_source(tmp_path / "a").form == "svmlight"
    (tmp_path / "x").write_text(f"2 3 30000\n{labels} 1:1 2:1\n3 2:1\n")
    assert open_source(tmp_path / "x").form == "xmc"


def test_nothing_but_blank_lines(tmp_path):
    for form, text in (
        ("a", b"\n" * 300_000),
        ("a.csv", b"\n" * 300_000),
        ("b", b"# c\n" * 30_000),
    ):
        (tmp_path / form).write_bytes(text)
        with pytest.raises(DataError, match="it holds no rows"):
            convert(tmp_path / form, tmp_path / "s.zarr")


def test_a_pipe_that_begins_with_blank_lines(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    text = b"\n" * 300_000 + ROWS["csv"]
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(text,))
    writer.start()
    assert convert(tmp_path / "pipe", tmp_path / "s.zarr").n_rows == 2
    writer.join()


def with_bad_cell(form, at, folder):
    """Write 1,010 rows of text, names and numbers; one has a text that is not UTF-8."""
    texts = [f"some words {i % 7}".encode() for i in range(1010)]
    texts[at] = b"caf\xe9 noir"
    path = folder / f"a.{form.removesuffix('.column')}"
    if form == "parquet":
        raw = pa.array(texts, pa.binary())
        column = pa.Array.from_buffers(pa.string(), 1010, raw.buffers())
        pq.write_table(pa.table({"y": ["k", "m"] * 505, "t": column, "n": [*range(1010)]}), path)
    elif form == "jsonl":
        lines = [b'{"y":"%s","t":"%s","n":%d}\n' % (b"km"[i % 2 :][:1], t, i)
                 for i, t in enumerate(texts)]  # fmt: skip
        path.write_bytes(b"".join(lines))
    else:
        comma = b"\t" if form == "tsv" else b","
        rows = [[b"y", b"t", b"n"]]
        rows += [[b"km"[i % 2 :][:1], t, b"%d" % i] for i, t in enumerate(texts)]
        path.write_bytes(b"".join(comma.join(row) + b"\n" for row in rows))
    return path


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl", "parquet"])
@pytest.mark.parametrize("at", [0, 999, 1000])
def test_a_bad_cell_is_met_wherever_it_is(form, at, tmp_path):
    path = with_bad_cell(form, at, tmp_path)
    source = open_source(path)
    assert {c.name: c.role for c in source.recipe.columns} == {"t": "text", "n": "number"}
    with pytest.raises(DataError, match="is not UTF-8") as error:
        convert(path, tmp_path / "s.zarr")
    assert "iconv -f LATIN1 -t UTF-8" in str(error.value)
    made = convert(path, tmp_path / "s.zarr", on_bad_row="skip")
    assert (made.n_rows, sum(made.skipped.values())) == (1009, 1)


@pytest.mark.parametrize("at", [0, 1000])
def test_a_list_among_texts_is_met_wherever_it_is(at, tmp_path):
    rows = [{"y": "km"[i % 2], "t": f"some words {i % 7}"} for i in range(1010)]
    rows[at]["t"] = ["a", "b"]
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    with pytest.raises(DataError, match=r"column t: .* is no text"):
        convert(tmp_path / "a.jsonl", tmp_path / "s.zarr")


@pytest.mark.parametrize(
    ("head", "tool"),
    [(b"BZh91AY&SY", "bzip2 -dc"), (b"\xfd7zXZ\0", "xz -dc"), (b"\x28\xb5\x2f\xfd", "zstd -dc")],
)
@pytest.mark.parametrize("form", [None, "vw", "csv", "jsonl"])
def test_what_is_packed_in_another_way_says_how_to_read_it(head, tool, form, tmp_path):
    (tmp_path / "a.x").write_bytes(head + bytes(range(200)))
    with pytest.raises(DataError, match=f"packed, and not with gzip.*{tool} FILE"):
        convert(tmp_path / "a.x", tmp_path / "s.zarr", format=form)


def test_an_index_of_pandas_is_a_column_where_it_is_named(tmp_path):
    import pandas

    frame = pandas.DataFrame({"y": ["k", "m"] * 50, "t": ["a b c", "c d e"] * 50})
    frame.index = [f"index {i}" for i in range(100)]
    frame.to_parquet(tmp_path / "a.parquet")
    made = convert(tmp_path / "a.parquet", tmp_path / "s.zarr")
    assert "not used __index_level_0__" in " ".join(made.notes)
    assert not any("index" in name for name in features(tmp_path / "s.zarr"))
    convert(tmp_path / "a.parquet", tmp_path / "n.zarr", label="y", text="__index_level_0__")
    assert "__index_level_0__^index" in features(tmp_path / "n.zarr")
    frame.reset_index(drop=True).to_parquet(tmp_path / "b.parquet")
    convert(tmp_path / "b.parquet", tmp_path / "t.zarr", like=tmp_path / "s.zarr")
