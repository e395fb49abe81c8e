"""Tables that are wrong in some way: one line each, with file, row or line, and column."""

import gzip
import json

import numpy as np
import pandas
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streammach.conversion.convert import convert
from streammach.conversion.memory_rows import collect_rows
from streammach.store.dataset import Dataset
from streammach.system.errors import DataError, StreammachError, UsageError
from tests.inputs.tables.builders import write

HEAD = "y,t,b,n\n"
GOOD = "k,some words,brand,1.5\n"
ROLES = {"label": "y", "text": "t", "category": "b", "number": "n"}
LINES = {  # of CSV: what is wrong with the third row, and what is said of it
    "no label": (",w,b,1\n", "column y: there is no label: rows.csv line 4 byte 1"),
    "no number": ("k,w,b,abc\n", "column n: 'abc' is not a number: rows.csv line 4 byte 1"),
    "infinite number": ("k,w,b,-inf\n", "column n: '-inf' is not a finite float32: rows.csv"),
    "number past float32": ("k,w,b,1e39\n", "column n: '1e+39' is not a finite float32: rows.csv"),
    "number with underscores": ("k,w,b,1_000\n", "column n: '1_000' is not a number: rows.csv"),
    "too few cells": ("k,w,b\n", "3 cells, the header names 4: rows.csv line 4 byte 1"),
    "too many cells": ("k,w,b,1,2\n", "5 cells, the header names 4: rows.csv line 4 byte 1"),
    "text not UTF-8": (b"k,w\xff,b,1\n", "column t: 'w\\xff' is not UTF-8: rows.csv line 4"),
    "category not UTF-8": (b"k,w,\xc3\x28,1\n", "column b: '\\xc3(' is not UTF-8: rows.csv line 4"),
    "label not UTF-8": (b"\xe9,w,b,1\n", "column y: '\\xe9' is not UTF-8: rows.csv line 4 byte 1"),
    "long label": ("k" * 5000 + ",w,b,1\n", "' has more than 4,095 bytes: rows.csv line 4 byte 1"),
    "long category": ("k,w," + "b" * 5000 + ",1\n", "' has more than 4,095 bytes: rows.csv line 4"),
    "huge text": ("k," + "w " * (5 << 20) + ",b,1\n", "' has more than 8 MiB: rows.csv line 4"),
}  # fmt: skip


def text(*lines):
    return b"".join(line if isinstance(line, bytes) else line.encode() for line in lines)


def refused(folder, source, **options):
    """Return the one line that is said of a source."""
    with pytest.raises(StreammachError) as error:
        convert(source, folder / "s.zarr", **{**ROLES, **options})
    assert "\n" not in str(error.value)
    assert not (folder / "s.zarr").exists()
    return str(error.value).replace(str(folder) + "/", "")


@pytest.mark.parametrize("name", LINES)
def test_bad_lines_of_csv(name, tmp_path):
    line, said = LINES[name]
    path = tmp_path / "rows.csv"
    path.write_bytes(text(HEAD, GOOD, '"k","a\nb",b,2\n'.replace("\n", " ", 1), line, GOOD))
    assert said in refused(tmp_path, path)
    made = convert(path, tmp_path / "s.zarr", on_bad_row="skip", **ROLES)
    assert (made.n_rows, sum(made.skipped.values())) == (3, 1)
    listed = (tmp_path / "s.zarr.rejects.tsv").read_text().splitlines()
    assert listed[1].split("\t")[1] == "4"
    with Dataset.open(tmp_path / "s.zarr") as store:
        assert sorted(store.origins(0, 3)[0].tolist()) == [0, 1, 3]


def test_lines_are_counted_through_cells_in_quotes(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(HEAD + 'k,"two\nlines",b,1\n\nk,w,b,x\n' + GOOD)
    assert "column n: 'x' is not a number: rows.csv line 5 byte 1" in refused(tmp_path, path)


OBJECTS = {  # of JSON lines
    "no JSON": ("{'y': 1}", "'{'y': 1}' is not JSON: rows.jsonl line 2 byte 1"),
    "cut off": ('{"y": "k", "t": "a', "is not JSON: rows.jsonl line 2 byte 1"),
    "no object": ("[1, 2]", "'[1, 2]' is no JSON object: rows.jsonl line 2 byte 1"),
    "NaN": ('{"y": "k", "n": NaN}', "is not JSON: rows.jsonl line 2 byte 1"),
    "half a character": ('{"y": "k", "t": "\\ud800"}', "rows.jsonl line 2 byte 1"),
    "deep": ('{"y":' + "[" * 5000, "is not JSON: rows.jsonl line 2 byte 1"),
    "list as text": ('{"y": "k", "t": ["a"]}', "column t: '['a']' is no text: rows.jsonl line 2"),
    "object as category": ('{"y": "k", "b": {"c": 1}}', "column b: '{'c': 1}' is no text: rows"),
    "list as number": ('{"y": "k", "n": [1]}', "column n: '[1]' is not a number: rows.jsonl line"),
    "several labels": ('{"y": ["k", "l"]}', "column y: several labels"),
    "nested label": ('{"y": [["k"]]}', "column y: '['k']' is no text: rows.jsonl line 2 byte 1"),
}  # fmt: skip


@pytest.mark.parametrize("name", OBJECTS)
def test_bad_lines_of_json(name, tmp_path):
    line, said = OBJECTS[name]
    good = json.dumps({"y": "k", "t": "w", "b": "b", "n": 1})
    path = tmp_path / "rows.jsonl"
    path.write_text(f"{good}\n{line}\n{good}\n")
    assert said in refused(tmp_path, path, multilabel="off")


TABLES = {  # of Arrow and Parquet: columns, and what is said
    "null label": ({"y": ["k", None], "t": ["a", "b"]}, "row 1 (counted from 0): column y: there"),
    "text as number": ({"y": ["k"], "n": ["x"]}, "column n: 'x' is not a number: rows"),
    "date as number": (
        {"y": ["k"], "n": [pandas.Timestamp("2020-01-01")]}, "column n: '2020-01-01' is"
    ),
    "infinite": ({"y": ["k", "k"], "n": [1.0, np.inf]}, "row 1 (counted from 0): column n: 'inf'"),
    "nested list": ({"y": ["k"], "t": [[["a"]]]}, "column t: '[['a']]' is no text: rows"),
    "struct": ({"y": ["k"], "b": [{"c": 1}]}, "column b: '{'c': 1}' is no text: rows"),
    "bytes not UTF-8": ({"y": ["k", "k"], "t": [b"a", b"\xff"]}, "row 1 (counted from 0): column"),
}  # fmt: skip


@pytest.mark.parametrize("form", ["parquet", "arrow"])
@pytest.mark.parametrize("name", TABLES)
def test_bad_columns(name, form, tmp_path):
    columns, said = TABLES[name]
    table = pa.table(columns)
    path = tmp_path / f"rows.{form}"
    if form == "parquet":
        pq.write_table(table, path)
    else:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as out:
            out.write_table(table)
    role = next(role for role, name in ROLES.items() if name in columns and name != "y")
    roles = {"text": (), "category": (), "number": ()} | {role: ROLES[role]}
    line = refused(tmp_path, path, **roles)
    assert said in line
    assert f"rows.{form}" in line


def test_text_in_parquet_that_only_claims_to_be_utf8(tmp_path):
    raw = pa.array([b"fine", b"\xc3\x28"], pa.binary())
    claimed = pa.Array.from_buffers(pa.string(), 2, raw.buffers())
    pq.write_table(pa.table({"y": ["k", "k"], "t": claimed}), tmp_path / "rows.parquet")
    said = refused(tmp_path, tmp_path / "rows.parquet", category=(), number=())
    assert "row 1 (counted from 0): column t: '\\xc3(' is not UTF-8: rows.parquet" in said


def test_vectors_of_other_lengths(tmp_path):
    rows = [{"y": "k", "v": [1.0, 2.0]}, {"y": "k", "v": [1.0]}, {"y": "k", "v": "x"}]
    for form in ("jsonl", "parquet"):
        some = rows if form == "jsonl" else rows[:2]
        with pytest.raises(DataError, match="column v: 1 numbers, not 2"):
            convert(write(some, tmp_path, form), tmp_path / "s.zarr", label="y", number="v")


FILES = {  # that cannot be read at all
    "rows.csv": [
        (b"", "it holds no rows: rows.csv"),
        (b"y,t,b,n\n", "it holds no rows: rows.csv"),
        (b"y,t,t,n\nk,a,b,1\n", "two columns are called 't': rows.csv line 1"),
        (b"y,t\xff,b,n\nk,a,b,1\n", "its header is not UTF-8: rows.csv line 1"),
        (b'y,t,b,n\nk,"a,b,1\nk,a,b,1\n', "a cell in quotes is not closed, in row 0"),
        ("y,t,b,n\nk,a,b,1\n".encode("utf-16"), "it is UTF-16: rows.csv. Write it as UTF-8."),
        (
            gzip.compress(HEAD.encode() + GOOD.encode() * 9, mtime=0)[:-9],
            "the gzip stream ends before its",
        ),
        (b"a,t,b,n\nk,a,b,1\n", "there is no column 'y': label: rows.csv. Its columns are a, t"),
        (b"t, y\na, 1\n", "there is no column 'b': category: rows.csv. Its columns are t, ' y'."),
    ],
    "rows.jsonl": [(b"\n\n", "it holds no rows: rows.jsonl"), (b"[]\n", "is no JSON object")],
    "rows.parquet": [
        (b"PAR1" + bytes(100), "it cannot be read as parquet ("),
        (b"no table", "the format cannot be guessed"),
    ],
    "rows.arrow": [(b"ARROW1\0\0" + bytes(60), "it cannot be read as arrow (")],
}


@pytest.mark.parametrize(
    ("name", "content", "said"), [(name, *one) for name, every in FILES.items() for one in every]
)
def test_files_that_are_no_tables(name, content, said, tmp_path):
    (tmp_path / name).write_bytes(content)
    assert said in refused(tmp_path, tmp_path / name)
    if said.startswith("it holds"):  # whether roles are named or guessed
        with pytest.raises(DataError, match=r"it holds no rows|no row could be read"):
            convert(tmp_path / name, tmp_path / "s.zarr", label="y")


def test_parquet_with_damaged_pages(tmp_path):
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"y": ["k"] * 999, "t": [f"word{i}" for i in range(999)]}), path)
    raw = bytearray(path.read_bytes())
    raw[2000:2600] = bytes(600)
    path.write_bytes(raw)
    assert "it cannot be read as parquet (" in refused(tmp_path, path, category=(), number=())


def test_parquet_that_says_that_it_holds_more_than_the_memory(tmp_path):
    path = tmp_path / "rows.parquet"
    table = pa.table({"y": ["k"] * 250, "t": ["a " * 500_000] * 250})
    pq.write_table(table, path, compression="zstd", use_dictionary=False)
    assert path.stat().st_size < 1 << 20
    said = refused(tmp_path, path, category=(), number=(), memory="600MB")
    assert "are needed, 600 MB are too little: memory. Use memory" in said


def test_a_dictionary_of_large_cells_is_decoded_in_small_batches(tmp_path):
    from streammach.inputs.source_options import SourceOptions
    from streammach.inputs.tables.arrow_files import BATCH_BYTES, ParquetSource

    path = tmp_path / "rows.parquet"
    cell = "word " * 200_000
    table = pa.table({"y": ["k"] * 500, "t": pa.array([0] * 500).cast("int32")})
    table = table.set_column(1, "t", pa.DictionaryArray.from_arrays(table["t"].combine_chunks(),
                                                                    [cell]))  # fmt: skip
    pq.write_table(table, path, compression="zstd")
    assert path.stat().st_size < 10_000
    source = ParquetSource(path, "parquet", SourceOptions())
    largest = max(batch.nbytes for batch, _ in source.batches(["y", "t"]))
    assert largest <= 2 * BATCH_BYTES


OFFSETS = (2**31 - 1, -5, 100_000)  # that lie beyond the bytes of a text, or before them


def damaged_texts(offset):
    """Return 200 texts of which one is said to begin elsewhere, with their damaged buffers."""
    texts = pa.array([f"word{i} number{i % 7}" for i in range(200)])
    _, offsets, data = texts.buffers()
    changed = np.frombuffer(offsets, np.int32)[:201].copy()
    changed[50] = offset
    return pa.Array.from_buffers(pa.string(), 200, [None, pa.py_buffer(changed), data])


ARROW_DOORS = {  # by which a table comes in
    "file": lambda table, folder: write_ipc(pa.ipc.new_file, table, folder / "a.arrow"),
    "stream": lambda table, folder: write_ipc(pa.ipc.new_stream, table, folder / "a.arrow"),
    "table": lambda table, _: table,
    "batch": lambda table, _: table.to_batches()[0],
    "list of chunks": lambda table, _: pa.concat_tables([table, table]),
}  # fmt: skip


def write_ipc(make, table, path):
    with pa.OSFile(str(path), "wb") as file, make(file, table.schema) as out:
        out.write_table(table)
    return path


@pytest.mark.parametrize("door", ARROW_DOORS)
@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("kind", ["text", "words of a dictionary", "items of a list"])
def test_places_outside_of_a_buffer(kind, offset, door, tmp_path):
    texts = damaged_texts(offset)
    if kind == "words of a dictionary":
        texts = pa.DictionaryArray.from_arrays(pa.array(range(200), pa.int32()), texts)
    elif kind == "items of a list":
        texts = pa.ListArray.from_arrays(pa.array(range(201), pa.int32()), texts)
    table = pa.table({"y": ["k", "l"] * 100, "t": texts})
    source = ARROW_DOORS[door](table, tmp_path)
    roles = {"names": "t"} if kind == "items of a list" else {"text": "t"}
    with pytest.raises(DataError, match="the column 't' is damaged"):
        convert(source, tmp_path / "s.zarr", label="y", **roles)
    assert not (tmp_path / "s.zarr").exists()


def test_codes_without_a_word(tmp_path):
    codes = pa.array([0, 1, 7, 0], pa.int32())
    coded = pa.DictionaryArray.from_arrays(codes, pa.array(["a", "b"]), safe=False)
    table = pa.table({"y": ["k", "l"] * 2, "t": coded})
    for door in ARROW_DOORS.values():
        with pytest.raises(DataError, match=r"the column 't' is damaged.*out of bounds"):
            convert(door(table, tmp_path), tmp_path / "s.zarr", label="y", text="t")


def test_an_array_of_damaged_texts_as_rows_or_labels():
    rows = [f"some words {i}" for i in range(200)]
    for texts, labels in ((damaged_texts(-5), ["k", "l"] * 100), (rows, damaged_texts(-5))):
        with pytest.raises(DataError, match="is damaged"):
            collect_rows(texts, labels)


def test_bad_frames(tmp_path):
    mixed = pandas.DataFrame({"y": ["k", "k"], "t": ["a", ["b"]]})
    with pytest.raises(DataError, match="the column 't' holds values of several types"):
        convert(mixed, tmp_path / "s.zarr", label="y", text="t")
    twice = pandas.DataFrame([["k", "a", "b"]], columns=["y", "t", "t"])
    with pytest.raises(DataError, match="two columns are called 't'"):
        convert(twice, tmp_path / "s.zarr", label="y", text="t")
    with pytest.raises(UsageError, match="not all rows are dictionaries"):
        convert([{"y": 1, "t": "a"}, 5], tmp_path / "s.zarr", label="y", text="t")
    with pytest.raises(DataError, match="it holds no rows"):
        convert(pandas.DataFrame({"y": [], "t": []}), tmp_path / "s.zarr", label="y")


USAGE = {
    "unknown column": ({"text": "x"}, "there is no column 'x': text: rows.csv. Its columns are y"),
    "two roles": ({"category": "t"}, "the column 't' has two roles: category, text: rows.csv"),
    "unknown label": ({"label": "z"}, "there is no column 'z': label"),
    "chars": ({"chars": "5-3"}, "'5-3' is no range such as 3-5, of 1 to 16: chars"),
    "nothing to learn": ({"ngrams": 0}, "neither words nor characters of a text are features"),
    "labels of a matrix": ({"labels": "y.npy"}, "the labels of a table are a column, label: label"),
    "first label": ({"first_label": True}, "are a column, label: first_label"),
}


@pytest.mark.parametrize("name", USAGE)
def test_options_that_do_not_fit(name, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(HEAD + GOOD)
    given, said = USAGE[name]
    assert said in refused(tmp_path, path, **given)


def test_a_label_that_cannot_be_guessed(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("a,b,c\nx y z,u,1\n")
    with pytest.raises(UsageError, match="which column holds the labels cannot be guessed"):
        convert(path, tmp_path / "s.zarr")


def test_without_pyarrow(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    path = tmp_path / "rows.parquet"
    path.write_bytes(b"PAR1" + bytes(50))
    said = refused(tmp_path, path)
    assert "are read with pyarrow" in said
    assert "pip install 'streammach[tables]'" in said
    path = tmp_path / "rows.csv"
    path.write_text(HEAD + GOOD * 3)
    assert convert(path, tmp_path / "s.zarr", **ROLES).n_rows == 3


@pytest.mark.parametrize(
    "role", ["text", "category", "number", "date", "names", "label", "weight", "tag"]
)
def test_a_key_without_a_name_is_no_column(role, tmp_path):
    source = tmp_path / "rows.jsonl"
    source.write_text('{"": "some words", "label": "a"}\n' * 3)
    with pytest.raises(UsageError, match="Its columns are '', label"):
        convert(source, tmp_path / "a.zarr", **{"label": "label", role: ""})
