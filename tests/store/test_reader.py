"""The reader: every row once an epoch, in an order that follows from seed and epoch alone."""

import threading
from dataclasses import replace

import numpy as np
import pytest

from streammach.conversion.convert import convert
from streammach.store.dataset import Dataset
from streammach.store.reader import Reader
from streammach.store.row_order import ORDER_BYTES
from streammach.store.stored_arrays import ArrayInMemory
from streammach.system.errors import StoreError

SETTINGS = {"seed": 3, "batch_size": 32, "batch_nnz": 300, "pool_blocks": 2, "transform": "raw",
            "by_feature": True}  # fmt: skip


@pytest.fixture
def numbered(tiny, monkeypatch):
    """A store of 1,000 rows in 10 blocks whose labels number the rows of the source."""
    monkeypatch.setattr("streammach.store.row_totals.BLOCK_VALUES", 300)
    lines = [f"{i} | x{i % 50}:{1 + i % 9} y z{i % 7}" for i in range(1000)]
    convert(tiny.text("r.vw", lines), tiny.folder / "out")
    with Dataset.open(tiny.folder / "out") as data:
        assert data.facts.block_rows == 100
        yield data


def rows_of(reader, epoch, start=0):
    labels, sizes, values = [], [], []
    for batch in reader.epoch(epoch, start):
        labels += batch.classes.tolist()
        sizes.append(batch.n_rows)
        values += batch.values.tolist()
    return labels, sizes, values


@pytest.mark.parametrize("pool_blocks", [1, 2, 3, 10, 99])
def test_an_epoch_holds_every_row_once(numbered, pool_blocks):
    reader = Reader(numbered, **{**SETTINGS, "pool_blocks": pool_blocks})
    for epoch in range(3):
        labels, sizes, _ = rows_of(reader, epoch)
        assert sorted(labels) == list(range(1000))
        assert set(sizes[:-1]) == {32}


def test_rows_keep_their_values(numbered):
    reader = Reader(numbered, **SETTINGS)
    whole = numbered.rows(0, 1000)
    lookup = {
        int(y): dict(zip(whole.features[a:b].tolist(), whole.values[a:b].tolist(), strict=True))
        for y, a, b in zip(whole.classes, whole.indptr[:-1], whole.indptr[1:], strict=True)
    }
    for batch in reader.epoch(0):
        for i, y in enumerate(batch.classes.tolist()):
            part = slice(batch.indptr[i], batch.indptr[i + 1])
            found = dict(
                zip(batch.features[part].tolist(), batch.values[part].tolist(), strict=True)
            )
            assert found == lookup[y]
        assert batch.by_feature.values.sum() == batch.values.sum()


def test_the_order_follows_from_seed_and_epoch(numbered):
    orders = [
        rows_of(Reader(numbered, **{**SETTINGS, "seed": seed}), epoch)
        for seed, epoch in ((3, 0), (3, 0), (3, 1), (4, 0))
    ]
    assert orders[0] == orders[1]
    assert orders[0][0] != orders[2][0]
    assert orders[0][0] != orders[3][0]


@pytest.mark.parametrize("pool_blocks", [2, 99])
def test_any_start_goes_on_with_the_same_batches(numbered, pool_blocks):
    settings = {**SETTINGS, "pool_blocks": pool_blocks, "batch_nnz": 80}
    labels, sizes, _values = rows_of(Reader(numbered, **settings), 5)
    ends = np.cumsum(sizes)
    for done in (1, 3, 7, len(sizes) - 1, len(sizes)):
        start = int(ends[done - 1])
        later = rows_of(Reader(numbered, **settings), 5, start)
        assert later[0] == labels[start:]
        assert later[1] == sizes[done:]


def test_batches_end_before_too_many_values(numbered):
    reader = Reader(numbered, **{**SETTINGS, "batch_nnz": 20})
    total = 0
    for batch in reader.epoch(0):
        assert len(batch.features) <= 20
        total += batch.n_rows
    assert total == 1000


def test_held_out_rows_never_come(numbered, rng):
    held = rng.random(1000) < 0.3
    kept = numbered.rows(0, 1000).classes[~held]
    for pool_blocks in (2, 99):
        reader = Reader(numbered, **{**SETTINGS, "pool_blocks": pool_blocks}, held=held)
        assert reader.n_rows == len(kept)
        labels, sizes, _ = rows_of(reader, 1)
        assert sorted(labels) == sorted(kept.tolist())
        start = int(np.cumsum(sizes)[4])
        assert rows_of(reader, 1, start)[0] == labels[start:]


def test_a_sample_is_the_first_rows(numbered):
    reader = Reader(numbered, **SETTINGS, rows=250)
    assert sorted(rows_of(reader, 0)[0]) == sorted(numbered.rows(0, 250).classes.tolist())
    assert reader.n_rows == 250


def test_an_error_of_the_thread_reaches_the_caller(numbered, monkeypatch):
    reader = Reader(numbered, **{**SETTINGS, "pool_blocks": 1})
    read = Dataset.read_into
    calls = []

    def failing(self, *args):
        calls.append(1)
        if len(calls) == 3:
            raise StoreError("planted")
        return read(self, *args)

    monkeypatch.setattr(Dataset, "read_into", failing)
    seen = []
    with pytest.raises(StoreError, match="planted") as caught:
        seen.extend(batch.n_rows for batch in reader.epoch(0))
    assert 0 < sum(seen) < 1000
    assert any("fill" in str(entry) for entry in caught.traceback)


def test_a_consumer_that_stops_early_leaves_no_thread(numbered):
    before = threading.active_count()
    reader = Reader(numbered, **SETTINGS)
    batches = reader.epoch(0)
    next(batches)
    batches.close()
    assert threading.active_count() == before
    assert sorted(rows_of(reader, 0)[0]) == list(range(1000))


def test_damage_is_met_while_reading(numbered):
    victim = numbered.path / "X/data/c/0"
    content = bytearray(victim.read_bytes())
    content[40] ^= 1
    victim.write_bytes(content)
    with pytest.raises(StoreError, match="damaged: its digest is wrong"):
        rows_of(Reader(numbered, **SETTINGS), 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streammach.store.stored_arrays.SMALL_BYTES", 0)
        with pytest.raises(StoreError, match="checksum"):
            rows_of(Reader(numbered, **SETTINGS), 0)


@pytest.mark.parametrize("transform", ["raw", "binary", "log1p", "l2"])
@pytest.mark.parametrize("pool_blocks", [1, 8])
def test_threads_change_nothing(numbered, pool_blocks, transform):
    settings = {**SETTINGS, "pool_blocks": pool_blocks, "transform": transform, "batch_nnz": 70}
    alone, shared = (Reader(numbered, **settings, threads=n, batch_threads=n) for n in (1, 3))
    for batch, other in zip(alone.epoch(1, 40), shared.epoch(1, 40), strict=True):
        for name in ("indptr", "features", "values", "classes", "importance"):
            assert getattr(batch, name).tobytes() == getattr(other, name).tobytes(), name
    assert not [t.name for t in threading.enumerate() if t.name.startswith(("blocks", "batches"))]


def test_what_a_thread_meets_is_raised_by_the_epoch(numbered):
    reader = Reader(numbered, **{**SETTINGS, "pool_blocks": 8}, threads=3, batch_threads=3)
    path = next((numbered.path / "X" / "indices").rglob("c/0"))
    data = bytearray(path.read_bytes())
    data[len(data) // 4] ^= 255
    path.write_bytes(data)
    with pytest.raises(StoreError, match="damaged"):
        rows_of(reader, 0)
    assert not [t.name for t in threading.enumerate() if t.name.startswith(("blocks", "batches"))]


@pytest.mark.parametrize("pool_blocks", [1, 8])
def test_rows_with_all_features_are_read_without_ids(pool_blocks, tiny, rng, monkeypatch):
    monkeypatch.setattr("streammach.store.row_totals.BLOCK_VALUES", 300)
    x = rng.normal(size=(200, 7))
    lines = [
        f"{i} | " + " ".join(f"x{j}:{value:.6g}" for j, value in enumerate(row))
        for i, row in enumerate(x)
    ]
    convert(tiny.text("r.vw", lines), tiny.folder / "out")
    with Dataset.open(tiny.folder / "out") as data:
        assert data.facts.whole
        settings = {**SETTINGS, "pool_blocks": pool_blocks, "by_feature": False}
        known, bare = (Reader(data, **settings, ids=ids, threads=3) for ids in (True, False))
        for batch, other in zip(known.epoch(1, 40), bare.epoch(1, 40), strict=True):
            assert len(other.features) == 0
            for name in ("indptr", "values", "classes", "importance"):
                assert getattr(batch, name).tobytes() == getattr(other, name).tobytes(), name
        names = ("batch_size", "batch_nnz", "pool_blocks", "by_feature")
        sizes = {n: settings[n] for n in names}
        less, more = (Reader.footprint(data.facts, **sizes, ids=ids) for ids in (False, True))
        assert all(less[line] < more[line] for line in ("batches", "decoded rows"))


def test_ids_are_checked_although_the_rows_were_read_without(numbered):
    start, stop = 100, 200
    indptr = numbered.pointers(start, stop)
    rows = numbered.rows(0, stop).part(start, stop)
    numbered.read_into(start, indptr, replace(rows, features=rows.features[:0]))
    wrong = np.full(numbered.nnz, numbered.n_features, np.int32)
    numbered._arrays = {**numbered._arrays, "X/indices": ArrayInMemory(wrong, len(wrong))}
    with pytest.raises(StoreError, match="ids of features of rows 100 to 200 are wrong"):
        numbered.read_into(start, indptr, rows)


@pytest.mark.parametrize("pool_blocks", [2, 99])
def test_the_stated_bytes_cover_those_allocated(numbered, pool_blocks):
    settings = {**SETTINGS, "pool_blocks": pool_blocks}
    reader = Reader(numbered, **settings)
    names = ("batch_size", "batch_nnz", "pool_blocks", "by_feature")
    stated = Reader.footprint(numbered.facts, **{n: settings[n] for n in names})
    pools = sum(a.nbytes for pool in reader._pools for a in pool._arrays.values())
    slots = sum(a.nbytes for s in reader._slots for a in (*s._rows.values(), *s._features.values()))
    assert stated["batches"] == slots
    assert pools <= stated["decoded rows"] <= pools + ORDER_BYTES * 1000
