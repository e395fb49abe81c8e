"""Features that all rows share: their sums are taken together, and have the bits of other rows'."""

import numpy as np
import pytest

from streammach.backends.cpu import products
from streammach.rows.block import RowBlock
from streammach.rows.packed import PackedRows
from tests.builders import batch_of, block_of, open_backend, spec_of, training
from tests.reference.mach import ReferenceMach


def sharing(rng, n, shared, others, n_classes=7, without=()):
    """Rows that all have the first features and some others; without the first one of them some."""
    rest = block_of(rng, n, others, n_classes, most=min(others, 9))
    rows = [
        [*range(i in without, shared), *(shared + rest.features[a:b])]
        for i, (a, b) in enumerate(zip(rest.indptr[:-1], rest.indptr[1:], strict=True))
    ]
    indptr = np.cumsum([0, *map(len, rows)])
    values = rng.normal(size=indptr[-1]).astype(np.float32)
    features = np.concatenate(rows).astype(np.int32)
    return RowBlock(indptr=indptr, features=features, values=values, classes=rest.classes)


@pytest.mark.parametrize("shared", [7, 8, 21, 40])
@pytest.mark.parametrize("columns", [5, 200, products.TILE_COLUMNS + 9])
@pytest.mark.parametrize("dtype", [np.float32, np.int8])
def test_logits_do_not_depend_on_what_other_rows_have(rng, shared, columns, dtype):
    n = products.TILE_ROWS + 11
    rows = sharing(rng, n, shared, 30, without=(n - 1,))
    table = rng.integers(-90, 90, (shared + 30, columns)).astype(dtype)
    bias = rng.normal(size=columns).astype(np.float32)
    found, alone = np.zeros((2, n, columns), np.float32)
    given = rows.indptr, rows.features, rows.values
    products.logits(*given, 0, n, table, bias, found)  # one row lacks a feature: none is shared
    assert products.first_features(rows.indptr, rows.features, 0, n - 1) >= shared // 8 * 8
    products.logits(*given, 0, n - 1, table, bias, alone)
    products.logits(*given, n - 1, n, table, bias, alone)
    assert found.tobytes() == alone.tobytes()
    if dtype == np.int8:
        packed, room = PackedRows.of([table], table.shape), np.zeros_like(found)
        scratch = packed.data, packed.starts, bias, np.empty((8, columns), np.int8), np.arange(8)
        products.packed_logits(*given, 0, n - 1, *scratch, room)
        products.packed_logits(*given, n - 1, n, *scratch, room)
        assert found.tobytes() == room.tobytes()
    dense = np.zeros((n, len(table)))
    dense[np.repeat(np.arange(n), np.diff(rows.indptr)), rows.features] = rows.values
    assert np.allclose(found, dense @ table + bias, rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("optimizer", ["adagrad", "adam", "sgd"])
@pytest.mark.parametrize("without", [(), (3,)])
@pytest.mark.parametrize("n", [1, 5, 27])
def test_steps_are_those_of_the_reference_with_any_threads(rng, optimizer, without, n):
    shared, others, found = 37, 20, []
    spec = spec_of(40, shared + others, 8, 5)
    how = training(optimizer=optimizer, batch_size=n, epsilon=1e-3)
    blocks = [sharing(rng, n, shared, others, without=without) for _ in range(3)]
    for threads in (1, 3):
        backend = open_backend("cpu", spec, dense=False, threads=threads)
        backend.prepare(how, max(block.nnz for block in blocks))
        reference = ReferenceMach(spec.n_features, backend.codes, 8, optimizer, 1e-3, 0.0)
        for block in blocks:
            loss = backend.step(batch_of(block, spec.n_features), 0.1).total
            arrays = (block.indptr, block.features, block.values, block.classes, block.weights)
            assert loss == pytest.approx(reference.step(*arrays, 0.1), rel=1e-4)
        reference.check(backend.weights, backend.bias, atol=2e-5, rtol=2e-4)
        found.append(backend.weights.tobytes())
        backend.close()
    assert found[0] == found[1]
