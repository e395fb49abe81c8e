"""Hashes: universal, told apart, counted exactly."""

import itertools

import numpy as np
import pytest

from streammach import hashing


def test_codes_follow_the_formula():
    a, b = hashing.draw(3, 500, 16, 4)
    codes = hashing.codes(a, b, 500, 16)
    for y, r in itertools.product((0, 1, 77, 499), range(4)):
        assert codes[y, r] == ((a[r] * y + b[r]) % (2**31 - 1)) % 16


@pytest.mark.parametrize(
    ("n_buckets", "dtype"), [(2, np.uint8), (256, np.uint8), (257, np.uint16), (65537, np.uint32)]
)
def test_codes_take_the_smallest_type(n_buckets, dtype):
    a, b = hashing.draw(0, 200_000, n_buckets, 2)
    assert hashing.codes(a, b, 200_000, n_buckets).dtype == dtype


def test_enough_buckets_need_no_hash():
    assert hashing.draw(0, 40, 40, 3) == ((), ())
    assert hashing.codes((), (), 40, 40)[:, 0].tolist() == list(range(40))


def test_codes_of_some_classes_are_those_of_all():
    a, b = hashing.draw(3, 900, 32, 4)
    some = hashing.codes(a, b, 100, 32, first=700)
    assert (some == hashing.codes(a, b, 900, 32)[700:800]).all()


def test_the_same_seed_gives_the_same_hashes_and_another_one_others():
    assert hashing.draw(5, 1000, 8, 9) == hashing.draw(5, 1000, 8, 9)
    assert hashing.draw(5, 1000, 8, 9) != hashing.draw(6, 1000, 8, 9)


def test_low_bits_trap_all_codes_of_the_paper_size_differ():
    """K = 105,033, B = 32, R = 25: with a*y & 31 only 32 distinct codes would exist."""
    a, b = hashing.draw(0, 105_033, 32, 25)
    codes = hashing.codes(a, b, 105_033, 32)
    assert len(np.unique(codes, axis=0)) == 105_033
    assert hashing.count_collisions(codes) == 0
    y = np.arange(105_033, dtype=np.int64)
    trapped = np.stack([(y * (x | 1)) & 31 for x in a], axis=1).astype(np.uint8)
    assert len(np.unique(trapped, axis=0)) == 32


def test_collisions_are_counted_exactly(rng):
    table = rng.integers(0, 3, (300, 4)).astype(np.uint8)
    pairs = sum(
        bool((table[i] == table[j]).all()) for i, j in itertools.combinations(range(300), 2)
    )
    assert pairs > 0
    assert hashing.count_collisions(table) == pairs


def test_buckets_are_filled_evenly():
    a, b = hashing.draw(1, 64_000, 32, 3)
    codes = hashing.codes(a, b, 64_000, 32)
    for r in range(3):
        counts = np.bincount(codes[:, r], minlength=32)
        assert counts.min() > 1_700
        assert counts.max() < 2_300


def test_two_classes_meet_as_seldom_as_they_should():
    """2-universal: over random hashes two given classes share a bucket with chance about 1/B."""
    met = 0
    for seed in range(200):
        a, b = hashing.draw(seed, 10_000, 16, 10)
        met += sum(
            ((x * 17 + y) % hashing.P) % 16 == ((x * 9_000 + y) % hashing.P) % 16
            for x, y in zip(a, b, strict=True)
        )
    assert 80 < met < 170  # expected 125, standard deviation 11


@pytest.mark.parametrize(("n_buckets", "delta"), [(2, 0.1), (32, 1e-3), (1000, 1e-6)])
def test_repetitions_for_delta_hold_the_bound(n_buckets, delta):
    needed = hashing.repetitions_for(105_033, n_buckets, delta)
    assert hashing.collision_chance(105_033, n_buckets, needed) <= delta
    assert hashing.collision_chance(105_033, n_buckets, needed - 1) > delta


def test_impossible_shapes_are_refused():
    with pytest.raises(ValueError, match="0 buckets"):
        hashing.draw(0, 10, 0, 1)
