"""Lists of labels: every way to cut and rename them, against plain lists."""

import tracemalloc

import numpy as np
import pytest

from streammach.rows.block import RowBlock
from streammach.rows.label_lists import LabelLists

K = 200


@pytest.fixture(params=[False, True], ids=["plain", "weighted"])
def made(request, rng):
    """Lists with ids in any order, some twice, unknown ones and long ones; their weights."""
    rows = [rng.integers(0, K, int(n)).tolist() for n in [*rng.integers(0, 6, 40), 128]]
    rows = [[-1] * int(rng.integers(0, 3)) + row for row in rows]
    starts = np.cumsum([0, *map(len, rows)])
    weights = rng.random(int(starts[-1])).astype(np.float32) if request.param else None
    flat = np.array([c for row in rows for c in row], np.int32)
    return LabelLists(starts, flat, weights), rows


def plain(lists):
    """The lists as lists of (class, weight)."""
    weights = np.ones(lists.n_labels) if lists.weights is None else lists.weights
    pairs = list(zip(lists.classes.tolist(), np.round(weights, 4).tolist(), strict=True))
    return [pairs[a:b] for a, b in zip(lists.starts, lists.starts[1:], strict=False)]


def merged(row, weighted):
    """What a row is after sorting: known ids once, their weights added up."""
    unknown = sorted(pair for pair in row if pair[0] < 0)
    known = {}
    for c, w in row:
        if c >= 0:
            known[c] = known.get(c, 0) + w if weighted else 1.0
    return [c for c, _ in unknown] + sorted(known), known


def test_sorted_lists_rise_and_hold_each_label_once(made):
    lists, _ = made
    found = plain(lists.sort())
    for before, after in zip(plain(lists), found, strict=True):
        ids, known = merged(before, lists.weights is not None)
        assert [c for c, _ in after] == ids
        assert dict(p for p in after if p[0] >= 0) == pytest.approx(known, abs=1e-3)


def test_parts_and_taken_rows_are_those_rows(made):
    lists = made[0].sort()
    whole = plain(lists)
    assert plain(lists.part(5, 20)) == whole[5:20]
    assert plain(lists.take(np.array([7, 0, 40, 7]))) == [whole[i] for i in (7, 0, 40, 7)]
    assert plain(LabelLists.concat([lists.part(0, 9), lists.part(9, 41)])) == whole
    mixed = LabelLists.concat([lists.part(0, 3), LabelLists.single(np.array([4], np.int32))])
    assert plain(mixed) == [*whole[:3], [(4, 1.0)]]


def test_other_ids_are_sorted_anew(made, rng):
    lists, order = made[0].sort(), rng.permutation(K).astype(np.int32)
    found = plain(lists.rename(order))
    for before, after in zip(plain(lists), found, strict=True):
        assert sorted(after) == sorted((int(order[c]) if c >= 0 else -1, w) for c, w in before)
        assert [c for c, _ in after] == sorted(c for c, _ in after)


def test_what_is_known_of_rows(made):
    lists, _ = made
    lists = lists.sort()
    ids = [[c for c, _ in row] for row in plain(lists)]
    assert lists.lengths.tolist() == list(map(len, ids))
    assert lists.first.tolist() == [row[0] if row else -1 for row in ids]
    assert lists.has_known_class.tolist() == [any(c >= 0 for c in row) for row in ids]
    assert lists.rows.tolist() == [i for i, row in enumerate(ids) for _ in row]
    some = np.arange(41 * 3).reshape(41, 3) % K
    assert lists.match(some).tolist() == [
        [c in row for c in some[i].tolist()] for i, row in enumerate(ids)
    ]
    weights = [dict(row) for row in plain(lists)]
    gained = [[row.get(c, 0.0) for c in some[i].tolist()] for i, row in enumerate(weights)]
    np.testing.assert_allclose(lists.gains_of(some), gained, atol=1e-3)
    most = [sum(sorted((w for _, w in row), reverse=True)[:2]) for row in plain(lists)]
    np.testing.assert_allclose(lists.largest_gains(2), most, atol=1e-3)


def test_single_classes_are_lists_of_one():
    lists = LabelLists.single(np.array([3, -1, 5], np.int32))
    assert [[c for c, _ in row] for row in plain(lists)] == [[3], [-1], [5]]
    assert plain(LabelLists.of([[2, 1], []])) == [[(1, 1.0), (2, 1.0)], []]


def test_rows_repeated_for_their_labels_take_what_is_reckoned():
    n, m = 200, 1500  # labels of all copies would be n * m * m
    lists = LabelLists(np.arange(n + 1) * m, np.tile(np.arange(m, dtype=np.int32), n))
    rows = RowBlock(
        indptr=np.arange(n + 1) * 3, features=np.tile(np.arange(3, dtype=np.int32), n),
        values=np.ones(3 * n, np.float32), classes=lists.first, labels=lists,
    )  # fmt: skip
    tracemalloc.start()
    parts = 0
    for part, numbers in rows.rows_by_label():
        assert part.labels is None
        assert part.n_rows == len(numbers)
        parts += part.n_rows
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert parts == n * m
    assert peak < RowBlock.repeated_footprint(rows.nnz, lists.n_labels, 3, m)
