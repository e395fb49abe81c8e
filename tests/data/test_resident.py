"""Rows that a device keeps: all of them once, then batches of their numbers."""

import numpy as np
import pytest

from streammach.data.convert import convert
from streammach.data.reader import Reader
from streammach.data.resident import OrderReader, block_batches, row_lengths
from streammach.data.row_order import RowOrder
from streammach.data.store.dataset import Dataset
from streammach.rows.transforms import transformed


@pytest.fixture
def data(tiny, monkeypatch):
    """A store of 700 rows of 1 to 8 values in 8 blocks or so."""
    monkeypatch.setattr("streammach.data.conversion.build.BLOCK_VALUES", 400)
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
def test_numbers_come_as_the_rows_would(data, pool_blocks, batch_nnz, holds_out, rows, rng):
    held = rng.random(700) < 0.3 if holds_out else None
    order = {"seed": 5, "pool_blocks": pool_blocks, "held": held, "rows": rows}
    sizes = {"batch_size": 32, "batch_nnz": batch_nnz}
    reader = Reader(data, transform="raw", by_feature=False, **order, **sizes)
    asked = RowOrder(data.facts, **order)
    numbers = OrderReader(asked, row_lengths(data, asked.end), **sizes)
    whole = data.rows(0, 700)
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


@pytest.mark.parametrize("transform", ["raw", "l2", "log1p"])
def test_all_rows_are_shown_block_by_block(data, transform):
    whole = transformed(data.rows(0, 700), transform)
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
    assert row_lengths(data, 700).tolist() == np.diff(whole.indptr).tolist()


def test_the_stated_bytes_cover_orders_and_a_block(data):
    stated = OrderReader.footprint(data.facts, pool_blocks=2)
    facts = data.facts
    raw = 12 * facts.block_rows + (4 + facts.value_bytes) * facts.max_block_nnz
    assert stated["decoded rows"] >= raw + 16 * facts.block_rows + 8 * facts.max_block_nnz
    assert stated["row orders"] >= 4 * facts.n_rows + 2 * 4 * 8 * 2 * facts.block_rows
