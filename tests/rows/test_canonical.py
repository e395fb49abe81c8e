"""Rows on their way into a store, beside plain loops: repeats added up, ids changed, sorted."""

from itertools import pairwise

import numpy as np
import pytest

from streammach.rows.canonical import COUNTED_ROW, DENSE_SHARE, copy_rows, merge_repeats, sort_rows


def rows_of(indptr, features, values):
    return [
        list(zip(features[a:b].tolist(), values[a:b].tolist(), strict=True))
        for a, b in pairwise(indptr)
    ]


def csr(rows, dtype=np.float32):
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    flat = [pair for row in rows for pair in row]
    features = np.array([f for f, _ in flat], np.int32)
    return indptr, features, np.array([v for _, v in flat], dtype)


def plain_merge(rows):
    """Each row as a dictionary in the order of first appearance, and how many of its sums are 0."""
    out, zeros = [], 0
    for row in rows:
        sums = {}
        for feature, value in row:
            sums[feature] = float(np.float32(sums.get(feature, 0)) + np.float32(value))
        out.append([(feature, total) for feature, total in sums.items() if total != 0])
        zeros += len(sums) - len(out[-1])
    return out, zeros


def random_rows(rng, n_rows, d, most, *, whole=True):
    rows = []
    for _ in range(n_rows):
        n = int(rng.integers(0, most))
        ids = rng.integers(0, d, n)
        if rng.random() < 0.3:
            ids = np.unique(ids)
        values = rng.integers(0, 9, len(ids)) if whole else rng.integers(-3, 4, len(ids)) / 2
        rows.append(list(zip(ids.tolist(), values.tolist(), strict=True)))
    return rows


@pytest.mark.parametrize(("d", "most"), [(5, 12), (50, 9), (100_000, 40), (700, 900)])
@pytest.mark.parametrize("whole", [True, False])
def test_repeats_are_added_up_like_in_a_dictionary_and_zeros_left_out(d, most, whole, rng):
    rows = random_rows(rng, 60, d, most, whole=whole)
    indptr, features, values = csr(rows)
    wanted, zeros = plain_merge(rows)
    out, facts = np.empty(len(indptr), np.int64), np.zeros(3, np.int64)
    largest = merge_repeats(indptr, features, values, out, facts)
    found = rows_of(out, features, values)
    assert [[f for f, _ in row] for row in found] == [[f for f, _ in row] for row in wanted]
    sums = [np.array([v for _, v in row], np.float32) for row in wanted]
    np.testing.assert_array_equal(values[: out[-1]], np.concatenate(sums))
    every = np.concatenate(sums)
    assert facts.tolist() == [int(np.any((every < 0) | (every != np.floor(every)))), 0, zeros]
    if whole:
        assert largest == every.max()


def test_sums_that_leave_float32_are_counted():
    indptr, features, values = csr([[(1, 3e38), (1, 3e38)], [(1, -3e38), (2, 1), (1, -3e38)]])
    facts = np.zeros(3, np.int64)
    merge_repeats(indptr, features, values, np.empty(3, np.int64), facts)
    assert facts[1] == 2


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize(
    ("d", "most"), [(3000, 9), (COUNTED_ROW * DENSE_SHARE * 2, 2 * COUNTED_ROW), (64, 40), (3, 3)]
)
def test_rows_are_copied_in_order_and_sorted_by_their_new_ids(d, most, dtype, rng):
    lengths = rng.integers(0, most, 40)
    rows = [
        [(int(f), int(rng.integers(0, 200))) for f in rng.choice(d, min(n, d), replace=False)]
        for n in lengths
    ]
    indptr, features, values = csr(rows, dtype)
    groups = rng.integers(0, 3, len(rows)).astype(np.int8)
    ranks = [rng.permutation(d).astype(np.int32) for _ in range(3)]
    chosen = rng.permutation(len(rows))[:33]
    sizes = np.diff(indptr)[chosen]
    out = np.concatenate([[0], np.cumsum(sizes)])
    new_features = np.full(out[-1] + 1, -1, np.int32)
    new_values = np.zeros(out[-1] + 1, dtype)
    copy_rows(
        chosen, indptr, groups, features, values, np.concatenate(ranks),
        np.arange(3, dtype=np.int64) * d, out, new_features, new_values,
    )  # fmt: skip
    wanted = [[(int(ranks[groups[i]][f]), v) for f, v in rows[i]] for i in chosen]
    assert rows_of(out, new_features, new_values) == wanted
    few = new_features[: out[-1]].copy(), new_values[: out[-1]].copy()
    sort_rows(out, new_features, new_values, d)
    sort_rows(out, *few, 0)
    wanted = [sorted(row) for row in wanted]
    assert rows_of(out, *few) == wanted
    assert rows_of(out, new_features, new_values) == wanted
