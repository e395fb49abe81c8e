"""What a store can hold is one limit for who writes it and who reads it."""

import json

import pandas
import pytest

from streammach.conversion.convert import convert
from streammach.options import recipe
from streammach.store import opening, writer
from streammach.store.dataset import Dataset
from streammach.system.errors import DataError, StreammachError

MOST = 20  # columns, in place of 65,536
TABLES = {  # that a list of dicts is made into
    "csv": lambda rows, path: pandas.DataFrame(rows).to_csv(path, index=False),
    "jsonl": lambda rows, path: path.write_text("".join(json.dumps(r) + "\n" for r in rows)),
    "parquet": lambda rows, path: pandas.DataFrame(rows).to_parquet(path),
    "frame": None,
}  # fmt: skip
# What a table has so many of, and how it is converted.
WIDE = {
    "no use": ({f"c{i}": "" for i in range(MOST + 1)}, {"text": "t"}),
    "features": ({f"c{i}": i for i in range(MOST + 1)}, {"number": [f"c{i}" for i in range(21)]}),
    "enough": ({f"c{i}": "" for i in range(MOST)}, {"text": "t"}),
}  # fmt: skip


@pytest.mark.parametrize("form", TABLES)
@pytest.mark.parametrize("name", WIDE)
def test_what_is_written_can_be_read(name, form, tmp_path, monkeypatch):
    monkeypatch.setattr(recipe, "MOST_COLUMNS", MOST)
    more, roles = WIDE[name]
    rows = [{"y": f"k{i % 2}", "t": f"some words {i}", **more} for i in range(6)]
    source, out = tmp_path / f"a.{form}", tmp_path / "s.zarr"
    if TABLES[form] is None:
        source = pandas.DataFrame(rows)
    else:
        TABLES[form](rows, source)
    if name == "enough":
        convert(source, out, label="y", **roles)
        with Dataset.open(out) as store:
            assert len(store.root.recipe.ignored) == MOST
        return
    with pytest.raises(StreammachError, match=f"21 columns of {name}, at most 20 are possible"):
        convert(source, out, label="y", **roles)
    assert not out.exists()


def test_a_separator_that_no_reader_takes_is_refused(tmp_path):
    rows = [{"y": "a", "t": "some words"}]
    with pytest.raises(StreammachError, match="length <= 16"):
        convert(rows, tmp_path / "s.zarr", label="y", text="t", label_separator="x" * 17)


@pytest.mark.parametrize("name", ["MAX_DOCUMENT", "MAX_MANIFEST"])
def test_documents_are_not_larger_than_what_is_read(name, tmp_path, monkeypatch):
    assert getattr(opening, name) == getattr(writer, name)
    (tmp_path / "a.vw").write_text("a | x\nb | y\n")
    monkeypatch.setattr(writer, name, 300)
    with pytest.raises(DataError, match=r"would have .* bytes, at most 300 are read"):
        convert(tmp_path / "a.vw", tmp_path / "s.zarr")
    assert not (tmp_path / "s.zarr").exists()


def test_more_files_than_a_store_lists_are_refused_before_they_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr("streammach.conversion.folder.MAX_DOCUMENT", 1000)
    for i in range(20):
        (tmp_path / f"{i}.vw").write_text("a | x\n")
    with pytest.raises(StreammachError, match="more names and columns than a store can list"):
        convert(sorted(tmp_path.glob("*.vw")), tmp_path / "s.zarr")
    assert not (tmp_path / "s.zarr").exists()
