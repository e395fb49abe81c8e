"""The classes of a bucket are those that the hash sends there, in their order."""

import numpy as np
import pytest

from streammach import hashing
from streammach.backends.cpu.decode_buckets import STATE, next_classes, turns, walk
from streammach.hashing import P


def listing(turn, bucket, n_buckets, first, last, at_a_time):
    state, some, found = np.empty(STATE, np.int64), np.empty(at_a_time, np.int64), []
    walk(turn, bucket, n_buckets, first, last, state)
    while True:
        n = next_classes(state, some)
        found.extend(some[:n].tolist())
        if n < at_a_time:
            assert next_classes(state, some) == 0
            return found


@pytest.mark.parametrize("n_buckets", [1, 2, 3, 32, 64, 257, 1000, 4096, 9999])
def test_classes_of_every_bucket(n_buckets, rng):
    n_classes = 10_000
    a = (*rng.integers(1, P, 4).tolist(), 1, 2, P - 1, P // 2, P - n_buckets)
    b = rng.integers(0, P, len(a)).tolist()
    codes, each = hashing.codes(a, b, n_classes, n_buckets), turns(a, b, n_buckets)
    buckets = range(n_buckets) if n_buckets < 40 else rng.integers(n_buckets, size=20)
    for r, turn in enumerate(each):
        for bucket in {0, n_buckets - 1, *map(int, buckets)}:
            expected = np.flatnonzero(codes[:, r] == bucket).tolist()
            assert listing(turn, bucket, n_buckets, 0, n_classes, 32) == expected
            first, last = sorted(rng.integers(n_classes, size=2).tolist())
            some = [i for i in expected if first <= i < last]
            assert listing(turn, bucket, n_buckets, first, last, 1) == some


def test_the_last_classes_of_all(rng):
    """Up to the prime there is no class whose bucket is not found."""
    a, b, n_buckets, n = tuple(rng.integers(1, P, 3).tolist()), (0, 5, P - 1), 1 << 20, 3 << 20
    codes = hashing.codes(a, b, n, n_buckets, P - n)
    for r, turn in enumerate(turns(a, b, n_buckets)):
        for bucket in rng.integers(n_buckets, size=5).tolist():
            expected = (P - n + np.flatnonzero(codes[:, r] == bucket)).tolist()
            assert listing(turn, bucket, n_buckets, P - n, P, 7) == expected
