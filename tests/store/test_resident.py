"""Rows that a device keeps: all of them once, then batches of their numbers."""

import numpy as np
import pytest

from streammach.conversion.convert import convert
from streammach.rows.transforms import transform_block
from streammach.store.dataset import Dataset
from streammach.store.reader import Reader
from streammach.store.row_order import (
    OrderReader,
    RowOrder,
    block_batches,
    label_lengths,
    row_lengths,
)


@pytest.fixture
def data(tiny, monkeypatch):
    """A store of 700 rows of 1 to 8 values in 8 blocks or so."""
    monkeypatch.setattr("streammach.store.row_totals.BLOCK_VALUES", 400)
    lines = [
        f"{i % 9} | " + " ".join(f"x{j}:{1 + (i * j) % 5}" for j in range(1 + i * i % 8))
        for i in range(700)
    ]
    convert(tiny.text("r.vw", lines), tiny.folder / "out")
    with Dataset.open(tiny.folder / "out") as opened:
        assert opened.n_rows > 4 * opened.facts.block_rows
        yield opened


CASES = [  # blocks of a pool, values of a batch, whether rows are held out, rows
    (1, 1000, False, None),
    (2, 90, True, None),
    (3, 1000, True, 333),
    (99, 40, False, 250),
]


@pytest.mark.parametrize(("pool_blocks", "batch_nnz", "holds_out", "rows"), CASES)
@pytest.mark.parametrize("first", [None, 5])
def test_numbers_come_as_the_rows_would(data, pool_blocks, batch_nnz, holds_out, rows, first, rng):
    held = rng.random(700) < 0.3 if holds_out else None
    order = {"seed": 5, "pool_blocks": pool_blocks, "held": held, "rows": rows}
    sizes = {"batch_size": 32, "batch_nnz": batch_nnz}
    reader = Reader(data, transform="raw", by_feature=False, n_features=first, **order, **sizes)
    asked, whole = RowOrder(data.facts, **order), data.rows(0, 700)
    lengths = row_lengths(data, asked.end)
    if first is None:
        numbers = OrderReader(asked, lengths, **sizes)
    else:
        whole = whole.with_values(whole.features < first)
        numbers = OrderReader(asked, np.diff(whole.indptr), whole=lengths, **sizes)
    assert numbers.n_rows == reader.n_rows
    for epoch, start in ((0, 0), (1, 0), (1, 70), (1, reader.n_rows)):
        seen, done = list(numbers.epoch(epoch, start)), 0
        for batch in reader.epoch(epoch, start):
            mine = seen[done]
            assert mine.indptr.tolist() == batch.indptr.tolist()
            assert whole.classes[mine.rows].tolist() == batch.classes.tolist()
            places = [np.arange(*whole.indptr[row : row + 2]) for row in mine.rows]
            assert whole.features[np.concatenate(places)].tolist() == batch.features.tolist()
            done += 1
        assert done == len(seen)


@pytest.fixture
def listed(tiny, monkeypatch):
    """A store of 500 rows with up to five labels each."""
    monkeypatch.setattr("streammach.store.row_totals.BLOCK_VALUES", 400)
    lines = [
        ",".join(str((i * 7 + j) % 30) for j in range(i % 6)) + f" | x{i % 11} x{20 + i % 3}"
        for i in range(500)
    ]
    convert(tiny.text("l.vw", lines), tiny.folder / "lists", multilabel="on")
    with Dataset.open(tiny.folder / "lists") as opened:
        assert opened.n_rows > 2 * opened.facts.block_rows
        yield opened


@pytest.mark.parametrize("batch_labels", [1000, 40])
def test_batches_of_lists_end_where_their_labels_would_pass(listed, batch_labels, rng):
    order = {"seed": 5, "pool_blocks": 2, "held": rng.random(500) < 0.2}
    sizes = {"batch_size": 32, "batch_nnz": 1000, "batch_labels": batch_labels}
    reader = Reader(listed, transform="raw", by_feature=False, **order, **sizes)
    asked, labels = RowOrder(listed.facts, **order), label_lengths(listed, 500)
    whole = listed.rows(0, 500).labels
    assert labels.tolist() == whole.lengths.tolist()
    numbers = OrderReader(asked, row_lengths(listed, 500), labels=labels, **sizes)
    seen = list(numbers.epoch(0))
    for mine, batch in zip(seen, reader.epoch(0), strict=True):
        assert mine.label_starts.tolist() == batch.labels.starts.tolist()
        assert whole.take(mine.rows).classes.tolist() == batch.labels.classes.tolist()
    assert (max(batch.n_rows for batch in seen) < 32) == (batch_labels == 40)


@pytest.mark.parametrize("shared", [True, False])
def test_labels_are_shown_with_their_shares(listed, shared):
    assert label_lengths(listed, 500) is not None
    whole, row = listed.rows(0, 500).labels, 0
    for batch in block_batches(listed, "raw", 0, 500, shared=shared):
        part = whole.part(row, row + batch.n_rows)
        assert batch.labels.starts.tolist() == part.starts.tolist()
        assert batch.labels.classes.tolist() == part.classes.tolist()
        expected = part.shares if shared else np.ones(part.n_labels)
        np.testing.assert_allclose(batch.labels.weights, expected, rtol=1e-6)
        row += batch.n_rows
    assert row == 500


@pytest.mark.parametrize("transform", ["raw", "l2", "log1p"])
def test_all_rows_are_shown_block_by_block(data, transform):
    whole = transform_block(data.rows(0, 700), transform)
    step = data.facts.block_rows
    for start, stop in ((0, 700), (2 * step, 3 * step + 1)):
        row = start
        for batch in block_batches(data, transform, start, stop):
            part = whole.part(row, row + batch.n_rows)
            assert batch.indptr.tolist() == part.indptr.tolist()
            assert batch.features.tolist() == part.features.tolist()
            np.testing.assert_allclose(batch.values, part.values, rtol=1e-6)
            assert batch.classes.tolist() == part.classes.tolist()
            assert (batch.importance == 1).all()
            row += batch.n_rows
        assert row == min(-(-stop // step) * step, 700)
    assert label_lengths(data, 700) is None
    assert row_lengths(data, 700).tolist() == np.diff(whole.indptr).tolist()


def test_the_stated_bytes_cover_orders_and_a_block(data):
    stated = OrderReader.footprint(data.facts, pool_blocks=2)
    facts = data.facts
    raw = 12 * facts.block_rows + (4 + facts.value_bytes) * facts.max_block_nnz
    assert stated["decoded rows"] >= raw + 16 * facts.block_rows + 8 * facts.max_block_nnz
    assert stated["row orders"] >= 4 * facts.n_rows + 2 * 4 * 8 * 2 * facts.block_rows
