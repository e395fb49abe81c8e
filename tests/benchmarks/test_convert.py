"""The parts of the conversion benchmark that could measure something else than they say."""

import gzip

import numpy as np

from benchmarks import convert as bench
from streammach.conversion.convert import convert
from streammach.store.dataset import Dataset


def test_the_svmlight_text_holds_the_same_rows(tiny):
    store = tiny.store(n_rows=200, n_classes=9)
    text = tiny.folder / "a.svm"
    bench.write_svmlight(store, text)
    convert(text, tiny.folder / "again.zarr")
    with Dataset.open(store) as a, Dataset.open(tiny.folder / "again.zarr") as b:
        assert (a.n_rows, a.nnz, a.n_features) == (b.n_rows, b.nnz, b.n_features)
        assert np.array_equal(np.sort(a.label_counts), np.sort(b.label_counts))
        assert np.array_equal(np.sort(a.feature_counts), np.sort(b.feature_counts))
        assert np.array_equal(np.sort(a.array("X/data")), np.sort(b.array("X/data")))


def test_all_chunks_are_decoded(tiny, monkeypatch):
    for module in ("stored_arrays", "opening", "writer"):
        monkeypatch.setattr(f"streammach.store.{module}.CHUNK", 64)
        monkeypatch.setattr(f"streammach.store.{module}.SHARD_CHUNKS", 4)
    monkeypatch.setattr("streammach.store.stored_arrays.INDEX_BYTES", 16 * 4 + 4)
    for name, value in (("CHUNK", 64), ("SHARD_CHUNKS", 4), ("INDEX_BYTES", 68)):
        monkeypatch.setattr(bench, name, value)
    store = tiny.store(n_rows=300, n_classes=9)
    with Dataset.open(store) as data:
        assert data.root.block_rows >= data.n_rows  # one block
        wanted = sum(-(-n // 64) for n in (data.n_rows + 1, data.nnz, data.nnz, data.n_rows))
    chunks = bench.chunks_of(store)
    assert len(chunks) == wanted
    bench.decode(chunks)
    found = bench.of_store(store, 1)
    assert found["rows"] == 300
    assert found["reader_share_of_decode"] > 0
    assert found["blocks_share_of_decode"] > 0


def test_first_rows_are_unpacked(tmp_path):
    (tmp_path / "a.vw.gz").write_bytes(gzip.compress(b"1 | a\n2 | b\n3 | c\n"))
    bench.first_rows(tmp_path / "a.vw.gz", 2, tmp_path / "a.vw")
    assert (tmp_path / "a.vw").read_bytes() == b"1 | a\n2 | b\n"
