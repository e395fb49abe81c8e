"""Rows that hold very many cells, keys or values: a bounded number is read, the rest told."""

import tracemalloc
import warnings

import numpy as np
import pytest

from streammach.inputs.bad_rows import BadRows
from streammach.inputs.source_options import SourceOptions
from streammach.inputs.sources import open_source
from streammach.inputs.tables.cells import PythonRows
from streammach.rows.vocabulary import Vocabulary
from streammach.system.errors import StreammachError

MANY = 2_000_000  # cells of a row
PEAK = 160 << 20  # bytes, for texts of 2 to 14 MB: a piece and what is made of its rows


def objects(n_rows, n_keys):
    return b"".join(
        b'{"label":"ab","n":1' + b"".join(b',"k%d":1' % j for j in range(i, i + n_keys)) + b"}\n"
        for i in range(0, n_rows * n_keys, n_keys)
    )


WIDE = b",".join(b"c%d" % i for i in range(5000)) + b",label\n"
# A text, and what is said of it; nothing: its good rows are read.
SHAPES = {
    "csv: a row of delimiters": (b"text,label\na,b\n" + b"," * MANY + b"\n", ""),
    "csv: the last row of delimiters": (b"text,label\na,b\n" + b"," * MANY, ""),
    "csv: a header of delimiters": (
        b"," * MANY + b"\n1,2\n", "its first row has 2,000,001 cells, at most 65,536 are read",
    ),
    "csv: no row but of delimiters": (b"text,label\n" + b"," * MANY, "no row could be read"),
    "csv: short rows of wide columns": (WIDE + b"a," * 5000 + b"b\n" + b"a\n" * 20_000, ""),
    "tsv: a row of delimiters": (b"text\tlabel\na\tb\n" + b"\t" * MANY + b"\n", ""),
    "tsv: a header of delimiters": (b"\t" * MANY + b"\n1\t2\n", "its first row has 2,000,001"),
    "jsonl: a list of numbers": (
        b'{"label":"a","n":[' + b"0," * MANY + b"0]}\n", "holds more than 1,048,576 values",
    ),
    "jsonl: a list of lists": (
        b'{"label":"a","n":[' + b"[]," * MANY + b"0]}\n", "holds more than 1,048,576 values",
    ),
    "jsonl: a list of names in a later row": (
        b'{"label":"a","n":["x"]}\n{"label":"a","n":[' + b'"xy",' * 1_100_000 + b'"z"]}\n', "",
    ),
    "jsonl: a row that is a list": (b"[" + b"0," * MANY + b"0]\n", "holds more than 1,048,576"),
    "jsonl: a deep list": (b'{"label":"a","n":' + b"[" * MANY + b"}\n", "is not JSON"),
    "jsonl: keys of one object": (
        b'{"label":"a",' + b",".join(b'"%d":1' % i for i in range(200_000)) + b"}\n",
        "its first objects have 200,001 different keys, 8,192 are read",
    ),
    "jsonl: keys of all objects": (
        objects(200, 100), "its first objects have 20,002 different keys, 8,192 are read",
    ),
    "jsonl: many keys": (objects(120, 20), ""),
    "jsonl: empty objects": (objects(100, 20) + b"{}\n" * 20_000, ""),
}  # fmt: skip


def blocks_of(path, **how):
    """Return the rows of a table by what they hold, and how many were left out."""
    vocabulary, bad, found = Vocabulary(), BadRows(skip=True), []
    source = open_source(path, SourceOptions(form=path.suffix[1:], **how))
    for block in source.blocks(vocabulary, bad):
        tags = [b""] * block.n_rows if block.tags is None else block.tags.raws()
        features, values = block.features.tolist(), block.values.tolist()
        ends = block.indptr.tolist()
        for i in range(block.n_rows):
            a, b = ends[i : i + 2]
            row = dict(zip(features[a:b], values[a:b], strict=True))
            where = block.places[i], block.numbers[i], block.classes[i]
            found.append((*map(int, where), tags[i], row))
    names = vocabulary.feature_names()
    named = dict(enumerate(names.raws(np.arange(len(names)))))
    rows = [(*where, {named[f]: v for f, v in row.items()}) for *where, row in found]
    return rows, dict(bad.reasons), source.remarks()


@pytest.mark.parametrize("name", SHAPES)
def test_hostile_rows_take_bounded_memory(name, tmp_path):
    text, said = SHAPES[name]
    path = tmp_path / f"rows.{name.partition(':')[0]}"
    path.write_bytes(text)
    rows, caught = [], None
    tracemalloc.start()
    try:
        with warnings.catch_warnings(action="ignore"):
            rows, _, _ = blocks_of(path)
    except StreammachError as error:
        caught = error
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < PEAK
    assert bool(rows) == (not said), caught
    if said:
        assert said in str(caught)
        assert caught.exit_code == 3
        assert "\n" not in str(caught)


TABLES = {
    "csv": b"label,a,tag,t\nx,1,one,w v\ny,2\n\nx,,two,\"v\nu\"\n"
    b"y,3,three,z\nz\n,4,four,\nx,5,,w\n",
    "jsonl": b'{"label": ["x"], "tag": "one", "a": 1, "v": [1.5, 2]}\n'
    b'{"label": ["y", "x"], "b": 2}\nno JSON\n\n{"label": ["y"], "tag": "two", "t": "w v"}\n'
    b'{"label": [], "v": [0.5, 1]}\n[1]\n{"label": ["x"], "t": "w", "a": "none"}\n{"a": 3}\n',
}  # fmt: skip


@pytest.mark.parametrize("cells", [1, 4, 9, 30])
@pytest.mark.parametrize("form", TABLES)
def test_rows_that_are_read_in_parts_are_the_same(form, cells, tmp_path, monkeypatch):
    path = tmp_path / f"rows.{form}"
    path.write_bytes(TABLES[form])
    made = []
    for most in (1 << 19, cells):
        monkeypatch.setattr("streammach.inputs.tables.text_tables.MOST_CELLS", most)
        with warnings.catch_warnings(record=True, action="always") as said:
            found = blocks_of(path)
        made.append((found, [str(one.message) for one in said]))
    assert made[0] == made[1]
    assert len(made[0][0][0]) > 2
    assert made[0][0][1]


def test_cells_that_are_looked_for_grow_with_the_keys_that_are_there(tmp_path, monkeypatch):
    monkeypatch.setattr("streammach.inputs.tables.text_tables.MOST_CELLS", 2000)
    seen, values = [], PythonRows.values

    def counted(self, name):
        seen.append(self.n_rows)
        return values(self, name)

    monkeypatch.setattr(PythonRows, "values", counted)
    cells = []
    for n_rows in (50, 100, 200):
        path = tmp_path / "rows.jsonl"
        path.write_bytes(objects(n_rows, 20))
        source = open_source(path, SourceOptions(form="jsonl"))
        assert len(source.recipe.columns) == 20 * n_rows  # n is 1 in all rows and says nothing
        seen.clear()
        assert sum(block.n_rows for block in source.blocks(Vocabulary(), BadRows())) == n_rows
        cells.append(sum(seen))
    assert cells[1] < 2.3 * cells[0]
    assert cells[2] < 2.3 * cells[1]
