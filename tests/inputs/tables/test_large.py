"""What rows and batches take is known before they are decoded."""

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from streammach.conversion.convert import convert
from streammach.inputs.source_options import SourceOptions
from streammach.inputs.sources import open_source
from streammach.inputs.tables.batches import PIECE_BYTES, slices
from streammach.inputs.tables.large import RECORDS, messages, row_sizes
from streammach.inputs.text import LARGE_TEXT
from streammach.options.recipe import Column, Recipe
from streammach.rows.vocabulary import Vocabulary
from streammach.system.errors import BudgetError

VIEW = pa.string_view() if hasattr(pa, "string_view") else pa.large_string()
TEXTS = ["a", None, "word " * 1000, ""] * 50


def write(table, path, form, compression):
    options = pa.ipc.IpcWriteOptions(compression=compression)
    make = pa.ipc.new_file if form == "file" else pa.ipc.new_stream
    with pa.OSFile(str(path), "wb") as file, make(file, table.schema, options=options) as out:
        out.write_table(table, max_chunksize=60)


@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
@pytest.mark.parametrize("form", ["file", "stream"])
def test_sizes_of_batches_are_those_that_are_decoded(form, compression, tmp_path):
    table = pa.table({
        "x": TEXTS, "n": np.arange(200), "l": [["b"] * (i % 7) for i in range(200)],
        "d": pa.array(["c" * 500, "e"] * 100).dictionary_encode(),
    })  # fmt: skip
    write(table, tmp_path / "a", form, compression)
    with open(tmp_path / "a", "rb") as file:
        found = [m.decoded for m in messages(file) if m.kind == RECORDS]
    batches = table.to_batches(max_chunksize=60)
    assert len(found) == len(batches) == 4
    for size, batch in zip(found, batches, strict=True):
        least = batch.nbytes - batch["d"].dictionary.nbytes
        assert least <= size <= least + 64 * 20  # what is padded


def test_large_batches_are_refused_before_they_are_decoded(tmp_path, monkeypatch):
    table = pa.table({"x": ["a " * 500_000] * 150, "y": list("abc") * 50})
    pa.feather.write_feather(table, tmp_path / "a.feather", compression="zstd")
    assert (tmp_path / "a.feather").stat().st_size < 1 << 20
    monkeypatch.setattr("streammach.inputs.tables.arrow_files.ArrowSource._batches", None)
    with pytest.raises(BudgetError, match=r"are needed, 600 MB are too little.*Use memory \d"):
        convert(tmp_path / "a.feather", tmp_path / "s.zarr", memory="600MB")


COLUMNS = {
    "string": pa.array(TEXTS), "large": pa.array(TEXTS, pa.large_string()),
    "view": pa.array(TEXTS, VIEW), "dictionary": pa.array(TEXTS).dictionary_encode(),
    "list": pa.array([["b"] * 5000, [], None, ["c"]] * 50),
    "map": pa.array([{"b": 1.0}, {}] * 100, pa.map_(pa.string(), pa.float64())),
    "numbers": pa.array(np.arange(200)), "fixed": pa.array([[1.0, 2.0]] * 200, pa.list_(
        pa.float32(), 2)),
}  # fmt: skip


@pytest.mark.parametrize("name", COLUMNS)
def test_rows_are_cut_by_what_they_take(name, monkeypatch):
    batch = pa.record_batch({name: COLUMNS[name]})
    sizes = row_sizes(batch)
    assert name not in ("string", "large", "view", "dictionary") or sizes.max() == 5000
    monkeypatch.setattr("streammach.inputs.tables.batches.PIECE_BYTES", 6000)
    cut = list(slices(batch))
    assert pa.Table.from_batches([some for some, _ in cut]).equals(pa.Table.from_batches([batch]))
    assert all(size <= 6000 or some.num_rows == 1 for some, size in cut)
    assert sum(size for _, size in cut) == sizes.sum()


@pytest.mark.parametrize("form", ["vw", "csv", "jsonl", "parquet"])
def test_a_large_row_is_a_piece_that_says_so(form, tmp_path):
    words, path = "word and " * (LARGE_TEXT // 8), tmp_path / f"a.{form}"
    small = {"vw": "k | a\n", "csv": "k,a b\n", "jsonl": '{"y":"k","t":"a b"}\n'}
    large = {"vw": f"k | {words}\n", "csv": f"k,{words}\n", "jsonl": f'{{"y":"k","t":"{words}"}}\n'}
    if form == "parquet":
        pq.write_table(pa.table({"y": ["k"] * 3, "t": ["a b", words, "a b"]}), path)
    else:
        head = "y,t\n" if form == "csv" else ""
        path.write_text(head + small[form] + large[form] + small[form])
    recipe = Recipe(columns=(Column(name="t", role="text"),), label="y")
    source = open_source(path, SourceOptions(recipe=None if form == "vw" else recipe))
    found = list(source.pieces())
    reader = source.reader(Vocabulary(), label_needed=True, strict=True)
    assert [piece.large is None for piece in found].count(False) == 1
    for piece in found:
        block = reader.read(piece).block
        if piece.large is not None:
            assert block.nnz <= piece.large.n_values
            assert piece.large.n_bytes > 8 * block.nnz
    assert PIECE_BYTES < LARGE_TEXT
