"""A small conversion in another process compiles what a conversion needs later."""

from types import SimpleNamespace

import numpy as np
import pytest

from streammach.conversion import small_conversion
from streammach.conversion.small_conversion import (
    BYTES,
    compile_before,
    convert_heads,
    rehearsal,
    rehearse,
)
from streammach.inputs.source_options import SourceOptions
from streammach.inputs.sources import open_source
from streammach.rows.arrays import csr_array
from streammach.rows.canonical import copy_rows, sort_rows
from streammach.store.dataset import Dataset


def test_it_calls_what_follows_the_reading_and_remembers_that(tmp_path, monkeypatch):
    marks = []
    monkeypatch.setattr(
        small_conversion, "remember_compiled_work", lambda *kind: marks.append(kind)
    )
    rehearse(str(tmp_path), ("a kind",))
    assert marks == [("rehearsal", "a kind")]
    for kernel in (copy_rows, sort_rows):
        assert any("uint8" in str(signature) for signature in kernel.signatures)


@pytest.mark.parametrize(
    ("memory", "threads", "there", "fits"),
    [(None, None, BYTES, True), ("1GB", None, BYTES, False), (None, 1, BYTES, False),
     (None, 2, BYTES - 1, False)],
)  # fmt: skip
def test_it_takes_no_memory_that_was_named(monkeypatch, memory, threads, there, fits):
    said = []
    monkeypatch.setattr(small_conversion, "compiler", lambda *_, fits: said.append(fits))
    limit = SimpleNamespace(n_bytes=there)
    monkeypatch.setattr(small_conversion, "memory_limit", lambda: limit)
    rehearsal(memory, threads)
    assert said == [fits]


@pytest.mark.parametrize("form", ["vw", "csv", "npz"])
def test_the_heads_of_sources_are_converted_in_memory_and_with_spills(tiny, tmp_path, form):
    path = tiny.text("rows.vw", tiny.lines(300, 20))
    if form == "csv":
        path = tiny.text("rows.csv", ["text,label", *(f"a b{i % 9},l{i % 5}" for i in range(200))])
    elif form == "npz":
        path = tmp_path / "rows.npz"
        x = csr_array(np.eye(40, 30, dtype=np.float32))
        np.savez(path, data=x.data, indices=x.indices, indptr=x.indptr, shape=x.shape,
                 format=b"csr", labels=np.arange(40) % 4)  # fmt: skip
    folder = tmp_path / "made"
    convert_heads(str(folder), (), [path], [SourceOptions()], None, 2)
    stores = [Dataset.open(place) for place in sorted(folder.glob(".*.partial/store"))]
    assert len({store.digest for store in stores}) == 1
    assert len(stores) == 2
    assert stores[0].n_rows in (300, 200, 40)


@pytest.mark.parametrize(
    ("memory", "first"), [("100MB", False), ("400MB", True), ("3GB", False), (None, False)]
)
def test_a_conversion_compiles_first_where_both_might_not_fit(tiny, monkeypatch, memory, first):
    asked = []
    monkeypatch.setattr(small_conversion, "compiler_bytes", lambda *kind: 150_000_000)
    monkeypatch.setattr(small_conversion, "resident_bytes", lambda: 200_000_000)
    monkeypatch.setattr(small_conversion, "compile_first", lambda *of, most: asked.append(most))
    source = open_source(tiny.text("rows.vw", tiny.lines(30, 3)))
    compile_before([source], [SourceOptions()], None, memory, 2)
    assert asked == ([400_000_000] if first else [])
