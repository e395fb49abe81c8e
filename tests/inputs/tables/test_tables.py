import csv
import io
import os
import threading

import numpy as np
import pandas
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streammach.conversion.convert import convert
from streammach.conversion.folder import ConversionMemory
from streammach.inputs import text as text_module
from streammach.inputs.source_options import SourceOptions, TableOptions
from streammach.inputs.sources import open_source
from streammach.inputs.tables import arrow_files, batches
from streammach.inputs.tables.cell_kernels import CELLS, PAIRED, SPANNING, UNPAIRED, read_records
from streammach.store.dataset import Dataset
from streammach.system.errors import Interrupted, UsageError
from tests.inputs.tables.builders import (
    FORMATS,
    ROLES,
    converted,
    features,
    rows_of,
    table_of,
    write,
)

ROWS = rows_of(700)
# Older releases of Arrow do not cast to views of strings.
VIEW = pa.string_view() if int(pa.__version__.partition(".")[0]) >= 24 else pa.large_string()


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    """Return the digest of the store of the rows."""
    folder = tmp_path_factory.mktemp("usual")
    return converted(write(ROWS, folder, "jsonl"), folder / "s.zarr", **ROLES)[1]


@pytest.mark.parametrize("form", FORMATS)
def test_the_same_rows_give_the_same_store_in_every_format(form, usual, tmp_path):
    path = write(ROWS, tmp_path, form)
    made, digest = converted(path, tmp_path / "s.zarr", **ROLES)
    assert digest == usual
    assert made.n_rows == len(ROWS)
    assert made.notes == tuple(
        f"{path.name}: {sum(row[name] is None for row in ROWS):,} of 700 rows have no {name}"
        for name in ("body", "brand", "price")
    )


@pytest.mark.parametrize(
    "table",
    [
        lambda: ROWS, lambda: pandas.DataFrame(ROWS),
        lambda: pytest.importorskip("polars").DataFrame(ROWS),
        lambda: table_of(ROWS), lambda: table_of(ROWS).combine_chunks().to_batches()[0],
        lambda: pandas.DataFrame(ROWS)[["price", "body", "kind", "brand", "title", "id"]],
        lambda: pandas.DataFrame(ROWS).astype({"brand": "category", "kind": "category"}),
        lambda: table_of(ROWS).cast(pa.schema([
            ("id", pa.int16()), ("kind", pa.large_string()), ("title", VIEW),
            ("body", pa.binary()), ("brand", pa.dictionary(pa.int8(), pa.string())),
            ("price", pa.float64()),
        ])),
    ],
)  # fmt: skip
def test_tables_in_memory_give_the_same_store(table, usual, tmp_path):
    assert converted(table(), tmp_path / "s.zarr", **ROLES)[1] == usual


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("n_bytes", [1 << 9, 1 << 14])
@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet", "arrows"])
def test_bytes_do_not_depend_on_threads_and_pieces(
    form, threads, n_bytes, usual, tmp_path, monkeypatch
):
    monkeypatch.setattr(text_module, "BLOCK_BYTES", n_bytes)
    monkeypatch.setattr(arrow_files, "PIECE_BYTES", n_bytes)
    monkeypatch.setattr(batches, "PIECE_BYTES", n_bytes)
    monkeypatch.setattr(arrow_files, "LEAST_ROWS", 7)
    path = write(ROWS, tmp_path, form, batch=333)
    assert converted(path, tmp_path / "s.zarr", threads=threads, **ROLES)[1] == usual


def test_several_files_are_one_table(tmp_path):
    first, second = write(ROWS[:300], tmp_path, "csv", "a"), write(ROWS[300:], tmp_path, "csv", "b")
    made, digest = converted([first, second], tmp_path / "s.zarr", **ROLES)
    others = [
        write(ROWS[:300], tmp_path, "parquet", "a"),
        write(ROWS[300:], tmp_path, "jsonl", "b"),
    ]
    assert converted(others, tmp_path / "t.zarr", **ROLES)[1] == digest
    assert made.n_rows == len(ROWS)


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet", "arrow"])
def test_roles_that_are_guessed_are_the_same_in_every_format(form, tmp_path):
    rows = [row | {"label": row["kind"]} for row in ROWS]
    for row in rows:
        del row["kind"]
    made, digest = converted(write(rows, tmp_path, form), tmp_path / "s.zarr")
    assert made.notes[0].partition(": ")[2] == (
        "label label; text title, body; category brand; number price; not used id"
    )
    with Dataset.open(tmp_path / "s.zarr") as store:
        recipe = store.root.recipe
    assert recipe.label == "label"
    assert len(recipe.columns[3].edges) > 5
    _, same = converted(
        write(rows, tmp_path, "jsonl", "other"), tmp_path / "t.zarr", label="label",
        text="title,body", category="brand", number=["price"],
    )  # fmt: skip
    assert digest == same


def test_a_conversion_that_was_cut_off_goes_on(usual, tmp_path, monkeypatch):
    for form in ("csv", "jsonl", "parquet"):
        monkeypatch.setattr(text_module, "BLOCK_BYTES", 1 << 13)
        monkeypatch.setattr(arrow_files, "PIECE_BYTES", 1 << 12)
        monkeypatch.setattr(batches, "PIECE_BYTES", 1 << 12)
        path, out = write(ROWS, tmp_path, form), tmp_path / f"{form}.zarr"
        runs = tmp_path / f".{form}.zarr.partial" / "runs"

        def cut(stage, done, total, runs=runs):
            if len(list(runs.glob("run-*"))) == 2:
                raise KeyboardInterrupt

        with monkeypatch.context() as few:
            few.setattr(ConversionMemory, "room", lambda self, *given: 60_000)
            with pytest.raises(Interrupted, match="what was read is kept"):
                convert(path, out, threads=1, progress=cut, **ROLES)
        made, digest = converted(path, out, **ROLES)
        assert made.resumed
        assert digest == usual


def test_a_table_through_a_pipe(usual, tmp_path):
    path, pipe = write(ROWS, tmp_path, "csv.gz"), tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(path.read_bytes()))
    writer.start()
    assert converted(pipe, tmp_path / "s.zarr", **ROLES)[1] == usual
    writer.join()


def test_like_takes_the_recipe_of_the_store(tmp_path):
    train, test = write(ROWS[:500], tmp_path, "csv", "a"), write(ROWS[500:], tmp_path, "jsonl", "b")
    convert(train, tmp_path / "a.zarr", chars="3-4", **ROLES)
    made = convert(test, tmp_path / "b.zarr", like=tmp_path / "a.zarr")
    assert made.unknown_values > 0
    with Dataset.open(tmp_path / "a.zarr") as a, Dataset.open(tmp_path / "b.zarr") as b:
        assert a.root.recipe == b.root.recipe
        assert a.features.same_as(b.features)
    with pytest.raises(UsageError, match="has a recipe"):
        convert(test, tmp_path / "c.zarr", like=tmp_path / "a.zarr", text="title")


def test_text_alone_takes_the_columns_that_look_like_it(tmp_path):
    convert(write(ROWS, tmp_path, "csv"), tmp_path / "s.zarr", label="kind", text="*", ngrams=1)
    with Dataset.open(tmp_path / "s.zarr") as store:
        assert [c.name for c in store.root.recipe.columns] == ["title", "body"]
        assert store.root.recipe.ignored == ("id", "brand", "price")


def test_numbers_alone_stay_values(tmp_path):
    rows = [{"a": i / 2, "b": i % 3, "y": i % 2} for i in range(10)]
    rows += [{"a": "nan", "b": "NaN", "y": 1}] * 3  # missing, as in files of text
    convert(rows, tmp_path / "s.zarr", label="y")
    with Dataset.open(tmp_path / "s.zarr") as store:
        names = [store.features.raw(i) for i in range(store.n_features)]
        assert sorted(names) == [b"a", b"b", b"missing^a", b"missing^b"]
        block = store.rows(0, 13)
        wanted = [i / 2 for i in range(1, 10)] + [1, 2] * 3 + [1] * 6  # 1 where one is missing
        assert sorted(block.values.tolist()) == sorted(wanted)


def test_lists_in_every_format(tmp_path):
    rows = [
        {"y": ["p", "q"] if i % 2 else ["p"], "names": [f"n{i % 3}", "é"],
         "bag": [{"k": "a", "v": i + 0.5}], "v": [i * 0.5, 1.0, -2.0]}
        for i in range(40)
    ]  # fmt: skip
    roles = {"label": "y", "names": ["names", "bag"], "number": ["v"], "multilabel": "on"}
    path = write(rows, tmp_path, "parquet")
    digest = converted(path, tmp_path / "p.zarr", **roles)[1]
    with Dataset.open(tmp_path / "p.zarr") as store:
        assert store.listed
        assert [c.role for c in store.root.recipe.columns] == ["names", "pairs", "vector"]
        assert {b"v^0", b"bag^a", "names^é".encode()} < {
            store.features.raw(i) for i in range(store.n_features)
        }
    for form in ("arrow", "jsonl"):
        assert (
            converted(write(rows, tmp_path, form), tmp_path / f"{form}.zarr", **roles)[1] == digest
        )
    for name, table in (("l", rows), ("d", pandas.DataFrame(rows)), ("a", table_of(rows))):
        assert converted(table, tmp_path / f"{name}.zarr", **roles)[1] == digest


def test_the_format_of_a_table_is_told_by_its_name_or_its_start(tmp_path):
    for form, known in (("csv", "csv"), ("tsv", "tsv"), ("jsonl", "jsonl"), ("parquet", "parquet"),
                        ("arrow", "arrow"), ("arrows", "arrow")):  # fmt: skip
        path = write(ROWS, tmp_path, form)
        assert open_source(path).form == known
        other = path.rename(tmp_path / f"plain-{form}")
        assert open_source(other).form == known
        assert open_source(other, SourceOptions(form=known)).form == known


CELL = st.text('ab,"\n\ré ', max_size=6)


@settings(deadline=None, derandomize=True)
@given(
    st.lists(st.lists(CELL, min_size=3, max_size=3), max_size=6), st.booleans(),
    st.sampled_from([CELLS, PAIRED]),
)  # fmt: skip
def test_records_are_those_of_pythons_csv(rows, crlf, quotes):
    rows = [[cell.replace("\r", "r") for cell in row] for row in rows]
    if quotes == PAIRED:  # a cell spans lines where it holds no delimiter
        rows = [[c.replace(",", "") if "\n" in c else c for c in row] for row in rows]
    file = io.StringIO(newline="")
    csv.writer(file, lineterminator="\r\n" if crlf else "\n").writerows(rows)
    raw = file.getvalue().encode()
    text = np.frombuffer(raw + b"\n" * 40, np.uint8).copy()
    none, n, odd = np.zeros(0, np.int64), len(rows), np.zeros(4, np.int64)
    how = text, 0, len(raw), ord(","), quotes, 0, True
    no_cells = none.reshape(0, 0), none.reshape(0, 0)
    assert read_records(*how, *no_cells, none, none, odd) == (len(raw), n)
    assert text[: len(raw)].tobytes() == raw
    starts, stops = np.zeros((2, 3, n + 1), np.int64)
    found, lines = np.zeros((2, n), np.int64)
    read_records(*how, starts, stops, found, lines, odd)
    assert odd[SPANNING] == (sum("\n" in cell for row in rows for cell in row) if n else 0)
    assert not odd[UNPAIRED]
    assert [
        [text[starts[c, i] : stops[c, i]].tobytes().decode() for c in range(3)] for i in range(n)
    ] == rows
    assert found.tolist() == [3] * n


def test_columns_of_tables_belong_to_tables(tmp_path):
    path = tmp_path / "a.vw"
    path.write_text("1 | a b\n2 | c\n")
    with pytest.raises(UsageError, match="only a table has columns"):
        convert(path, tmp_path / "s.zarr", label="kind")
    with pytest.raises(UsageError, match="do not make one store"):
        convert([path, write(ROWS, tmp_path, "csv")], tmp_path / "s.zarr")
    assert SourceOptions().table == TableOptions()


def test_semicolons_between_cells(usual, tmp_path):
    path = write(ROWS, tmp_path, "csv")
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    with open(tmp_path / "s.csv", "w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter=";").writerows(rows)
    assert converted(tmp_path / "s.csv", tmp_path / "s.zarr", **ROLES)[1] == usual


def test_a_table_of_many_columns(tmp_path):
    names = [f"a column with a longer name {i}" for i in range(3000)]
    table = pa.table({"y": [0, 1], **{name: [i, i + 1] for i, name in enumerate(names)}})
    pa.parquet.write_table(table, tmp_path / "t.parquet")
    convert(tmp_path / "t.parquet", tmp_path / "s.zarr", label="y")
    with Dataset.open(tmp_path / "s.zarr") as store:
        assert store.n_features == 3000
        assert [c.name for c in store.root.recipe.columns] == names
    wide = [{"y": 0, **{"x" * 990 + str(i): 1 for i in range(1200)}}]
    with pytest.raises(UsageError, match="more than a recipe holds"):
        convert(wide, tmp_path / "t.zarr", label="y")


def test_large_tables_are_counted_once(usual, tmp_path, monkeypatch):
    path = write(ROWS, tmp_path, "csv")
    monkeypatch.setattr("streammach.conversion.convert.LARGE_BYTES", 1)
    made, digest = converted(path, tmp_path / "s.zarr", **ROLES)
    assert digest == usual
    assert made.notes[0].endswith(
        f"{sum(row['body'] is None for row in ROWS)} of 700 rows have no body"
    )


def test_labels_that_look_like_json_stay_labels(tmp_path):
    rows = [{"y": y, "t": "a"} for y in ("[x", "{1}", "[deleted]", "p")]
    convert(write(rows, tmp_path, "csv"), tmp_path / "s.zarr", label="y", text="t")
    with Dataset.open(tmp_path / "s.zarr") as store:
        assert {store.labels.raw(i) for i in range(4)} == {b"[x", b"{1}", b"[deleted]", b"p"}


def test_lists_that_arrow_alone_has(tmp_path):
    pytest.importorskip("pyarrow", minversion="20")  # older ones write no null in lists of one size
    table = pa.table({
        "y": pa.array([1, 2, 1], pa.uint8()), "n": pa.nulls(3),
        "v": pa.array([[1.0, 2.0], None, [0.5, 1.0]], pa.list_(pa.float32(), 2)),
        "m": pa.array([[("a", 1.0)], [], None], pa.map_(pa.string(), pa.float64())),
        "f": pa.array([[b"ab", b"cd"]] * 3, pa.list_(pa.binary(2), 2)),
    })  # fmt: skip
    roles = {"label": "y", "number": "v", "category": "n", "names": ["m", "f"]}
    pa.parquet.write_table(table, tmp_path / "t.parquet")
    assert convert(table, tmp_path / "s.zarr", **roles).n_rows == 3
    assert features(tmp_path / "s.zarr") == {"v^0", "v^1", "m^a", "f^ab", "f^cd"}
    assert convert(tmp_path / "t.parquet", tmp_path / "t.zarr", **roles).n_rows == 3
