"""Batches: transforms, gathering, transposing."""

from dataclasses import replace

import numpy as np
import pytest

from streammach.rows.batch import BatchSlot
from streammach.rows.block import RowBlock
from streammach.rows.canonical import canonicalize
from streammach.rows.transforms import transform_block
from tests.builders import block_of, dense_block


def dense(block, d):
    x = np.zeros((block.n_rows, d))
    for i in range(block.n_rows):
        part = slice(block.indptr[i], block.indptr[i + 1])
        np.add.at(x[i], block.features[part], block.values[part])
    return x


@pytest.mark.parametrize("value_type", [np.uint8, np.float32])
def test_transforms_follow_their_formulas(value_type, rng):
    block = block_of(rng, 40, 30, 5)
    block = replace(block, values=block.values.astype(value_type))
    x = dense(block, 30)
    length = np.sqrt((x**2).sum(axis=1, keepdims=True))
    expected = {
        "raw": x,
        "binary": (x != 0).astype(float),
        "log1p": np.log1p(x),
        "l2": x / np.where(length > 0, length, 1),
    }
    for name, wanted in expected.items():
        np.testing.assert_allclose(dense(transform_block(block, name), 30), wanted, rtol=1e-6)


def test_log1p_of_negative_values_keeps_their_sign():
    block = dense_block(np.array([[-3.0, 3.0]]))
    np.testing.assert_allclose(transform_block(block, "log1p").values, [-np.log(4), np.log(4)])


@pytest.mark.parametrize("n_features", [1, 5, 2048, 5000, 5_000_000])
def test_by_feature_is_the_stable_transpose(n_features, rng):
    block = block_of(rng, 60, n_features, 9)
    slot = BatchSlot(60, block.nnz, n_features, by_feature=True)
    chosen = rng.permutation(60)
    slot.add(block, chosen, "raw")
    batch = slot.batch()
    order = np.argsort(batch.features, kind="stable")
    rows = np.repeat(np.arange(60), np.diff(batch.indptr))
    found = batch.by_feature
    assert found.ids.tolist() == np.unique(batch.features).tolist()
    assert found.rows.tolist() == rows[order].tolist()
    assert found.values.tolist() == batch.values[order].tolist()
    counts = np.unique(batch.features, return_counts=True)[1]
    assert np.diff(found.starts).tolist() == counts.tolist()


@pytest.mark.parametrize("transform", ["raw", "l2"])
@pytest.mark.parametrize("first", [1, 7, 30])
def test_rows_are_cut_behind_their_transform(transform, first, rng):
    block = block_of(rng, 50, 30, 9)
    slot, whole = (
        BatchSlot(50, block.nnz, first, by_feature=True),
        transform_block(block, transform),
    )
    if first == 30:  # nothing is cut
        slot = BatchSlot(50, block.nnz, first, by_feature=True, cut=False)
    for _ in range(2):  # a slot is filled again
        slot.clear()
        slot.add(block, np.arange(50), transform)
        batch, wanted = slot.batch(), whole.with_values(whole.features < first)
        for name in ("indptr", "features"):
            assert getattr(batch, name).tolist() == getattr(wanted, name).tolist()
        np.testing.assert_allclose(batch.values, wanted.values, rtol=1e-6)
        assert len(batch.by_feature.values) == len(batch.values)
        assert batch.by_feature.ids.max(initial=0) < first


def test_a_slot_takes_rows_until_it_is_full(rng):
    block = block_of(rng, 50, 30, 9)
    slot = BatchSlot(20, 40, 30, by_feature=False)
    taken = slot.add(block, np.arange(50), "raw")
    lengths = np.diff(block.indptr)
    assert taken == min(20, int(np.searchsorted(np.cumsum(lengths), 40, "right")))
    assert slot.add(block, np.arange(taken, 50), "raw") == 0
    assert slot.batch().classes.tolist() == block.classes[:taken].tolist()
    slot.clear()
    assert slot.add(block, np.array([3]), "raw") == 1


def test_the_stated_bytes_are_those_allocated():
    for how in ({"by_feature": False}, {"by_feature": True}, {"by_feature": False, "ids": False}):
        slot = BatchSlot(30, 100, 50, **how)
        held = [*slot._rows.values(), *slot._features.values()]
        assert BatchSlot.footprint(30, 100, **how) == sum(a.nbytes for a in held)


def test_finished_rows_are_sorted_with_equal_features_added_up(rng):
    lengths = [0, 3, 70, 1]
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    features = rng.integers(0, 40, indptr[-1]).astype(np.int32)
    values = rng.integers(1, 9, indptr[-1]).astype(np.float32)
    classes = np.array([0, 1, 2, 1], np.int32)
    block = RowBlock(indptr=indptr, features=features, values=values, classes=classes)
    ranks = rng.permutation(40).astype(np.int32)
    ranks[[3, 7]] = -1
    done = canonicalize(block, ranks, np.array([5, -1, 6], np.int32))
    assert done.classes.tolist() == [5, -1, 6, -1]
    for i in range(4):
        wanted = {}
        for p in range(indptr[i], indptr[i + 1]):
            if ranks[features[p]] >= 0:
                wanted[ranks[features[p]]] = wanted.get(ranks[features[p]], 0) + values[p]
        part = slice(done.indptr[i], done.indptr[i + 1])
        assert done.features[part].tolist() == sorted(wanted)
        assert done.values[part].tolist() == [wanted[f] for f in sorted(wanted)]
    assert block.features.tolist() == features.tolist()
