"""Corpora for subject indexing, as other programs have them."""

import gzip

import numpy as np
import pytest

import streammach as sm
from streammach.data.source_options import Layout, SourceOptions, TableOptions
from streammach.data.sources import open_source
from streammach.errors import StreammachError
from tests.data.test_lists import lists_by_name

TEXTS = ['the "quoted title of a book', "maps, and seas", "salt\tno", "nothing"]
URIS = [["http://e.org/a", "http://e.org/b"], ["http://e.org/b"], [], []]
LINES = [
    f'{TEXTS[0]}\t<{URIS[0][0]}>  <{URIS[0][1]}>', f"{TEXTS[1]}\t<{URIS[1][0]}>", "nothing\t",
]  # fmt: skip


@pytest.mark.parametrize("name", ["a.tsv", "a.tsv.gz", "a.txt"])
def test_a_corpus_of_annif_is_told_by_its_first_line(name, tmp_path):
    text = ("\n".join(LINES) + "\n").encode()
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    done = sm.convert(tmp_path / name, tmp_path / "a.zarr")
    assert done.notes == (f"{name}: label subjects; text text",)
    rows = lists_by_name(tmp_path / "a.zarr")
    found = [sorted(labels) for labels, *_ in (rows[i] for i in range(3))]
    assert found == [["<http://e.org/a>", "<http://e.org/b>"], ["<http://e.org/b>"], []]
    with sm.Dataset.open(tmp_path / "a.zarr") as data:
        assert data.listed
        assert b"text^quoted" in data.features.raws(np.arange(len(data.features)))
    again = tmp_path / "b.zarr"
    sm.convert(tmp_path / name, again, like=tmp_path / "a.zarr")
    assert lists_by_name(again) == rows


@pytest.mark.parametrize(
    "options",
    [
        SourceOptions(layout=Layout(header=False)),
        SourceOptions(table=TableOptions(label="2", text=("1",))),
        SourceOptions(table=TableOptions(text=("x",))),
    ],
)
def test_what_a_user_says_of_a_table_holds(options, tmp_path):
    (tmp_path / "a.tsv").write_text("x y\t<http://e.org/a>\nz w\t<http://e.org/b>\n")
    try:
        recipe = open_source(tmp_path / "a.tsv", options).recipe
    except StreammachError:
        return
    assert recipe.label != "subjects"
