"""Packed pairs: they lie as plain Python lays them, come back, and give the same scores."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from streammach.counts.scores import CountScorer
from streammach.rows import packed_pairs
from streammach.rows.packed_pairs import Lists, PackedCounts
from streammach.rows.pairs import CountWeights, ends
from tests.builders import block_of
from tests.model.models import counts_of
from tests.reference import packed as reference

K = 300_000


def packed(counts, unit=1, times=1):
    """Counts packed, two pieces at a time, and their lists; gains are of so many units."""
    steps = np.diff(counts.classes, prepend=np.int32(0))
    first = counts.starts[:-1][np.diff(counts.starts) > 0]
    steps[first] = counts.classes[first]
    small, n = counts.gains // np.int16(unit * times), len(steps) // 2
    words = ((small << 1) ^ (small >> 15)).view(np.uint16)

    def pieces():
        yield steps[:n], words[:n]
        yield steps[n:], words[n:]

    lists = Lists(pieces=pieces, starts=counts.starts, n_classes=counts.n_classes, times=times)
    return PackedCounts.of(lists, counts, unit), lists


def far_apart(rng, unit, largest):
    """Lists of few classes among very many, among them the first and the last one."""
    lists = [[0, 1, 65535, 65536, 65537 + 65535], [], [K - 1], [65535], [131070, 131071], []]
    lists += [np.sort(rng.choice(K, 9, replace=False)).tolist() for _ in range(20)]
    n = sum(map(len, lists))
    gains = (unit * rng.integers(-largest, largest, n, endpoint=True)).astype(np.int16)
    gains[:4] = unit * np.array([largest, -largest, 0, 128])
    d, zeros = len(lists), np.zeros(K, np.float32)
    return CountWeights(
        starts=ends(np.array([len(one) for one in lists])),
        classes=np.concatenate(lists).astype(np.int32), gains=gains,
        wide_of=np.full(d, -1, np.int32), wide=np.zeros((0, K), np.int16),
        penalty=rng.normal(size=d).astype(np.float32), base=zeros, log_values=zeros, hashed=1.0,
    )  # fmt: skip


@pytest.mark.parametrize(("unit", "largest", "most"), [(32, 130, 127), (1, 32767, 32767)])
def test_pairs_lie_as_they_should_and_come_back(rng, unit, largest, most):
    counts = far_apart(rng, unit, largest)
    found, packing = packed(counts, unit)
    wanted = []
    for a, b in zip(counts.starts[:-1], counts.starts[1:], strict=True):
        wanted.append(reference.entries(
            counts.classes[a:b].tolist(), counts.gains[a:b].tolist(), unit, most
        ))  # fmt: skip
    assert found.gains.dtype == (np.int8 if most == 127 else np.int16)
    assert np.diff(found.starts).tolist() == [len(one) for one in wanted]
    flat = [entry for one in wanted for entry in one]
    assert list(zip(found.steps.tolist(), found.gains.tolist(), strict=True)) == flat
    lists = sum(one.nbytes for one in (found.steps, found.gains, found.starts, found.peaks))
    sizes = [np.abs(gains).max(initial=0) for gains in np.split(counts.gains, counts.starts[1:-1])]
    assert (unit * found.peaks).tolist() == sizes
    assert (packing.n_bytes, found.n_pairs) == (lists, counts.n_pairs)
    again = found.plain()
    for name, array in counts.arrays().items():
        assert again.arrays()[name].tobytes() == array.tobytes(), name
    assert again.hashed == counts.hashed


def lists_of(lists, n_classes, gains):
    """Counts of these lists of classes."""
    zeros, d = np.zeros(n_classes, np.float32), len(lists)
    return CountWeights(
        starts=ends(np.array([len(one) for one in lists])),
        classes=np.concatenate(lists).astype(np.int32), gains=gains.astype(np.int16),
        wide_of=np.full(d, -1, np.int32), wide=np.zeros((0, n_classes), np.int16),
        penalty=np.ones(d, np.float32), base=zeros, log_values=zeros, hashed=1.0,
    )  # fmt: skip


MANY = 9_000_000
SPREAD = {  # lists of classes; the layout that takes least, which some are not expected to have
    "far": (lambda rng: [np.sort(rng.choice(MANY, 5, replace=False)) for _ in range(30)], 4),
    "near": (lambda rng: [np.arange(5000) * 60 for _ in range(3)], 2),
    "near, in many lists": (lambda rng: [np.arange(5) + i for i in range(40)], 2),
    "a little too far": (lambda _: [np.cumsum([65600, 65600, 65600, 1] * 34)], 4),
    "far in a list, near in another": (lambda _: [[*range(0, MANY, 130_000)], range(4000)], 2),
}


@pytest.mark.parametrize("largest", [100, 9000])
@pytest.mark.parametrize("name", SPREAD)
def test_steps_take_four_bytes_where_that_is_less(name, largest, rng):
    lists, size = SPREAD[name][0](rng), SPREAD[name][1]
    n = sum(map(len, lists))
    counts = lists_of(lists, MANY, rng.integers(-largest, largest, n, endpoint=True))
    found, packing = packed(counts)
    sizes = {}
    for longest, most in itertools.product((65535, 2**32 - 1), (127, 32767)):
        each = (2 if longest == 65535 else 4) + (1 if most == 127 else 2)
        sizes[longest, most] = each * sum(
            len(reference.entries(counts.classes[a:b].tolist(), counts.gains[a:b].tolist(), 1,
                                  most, longest))
            for a, b in itertools.pairwise(counts.starts.tolist())
        )  # fmt: skip
    assert found.steps.nbytes + found.gains.nbytes == min(sizes.values())
    if largest == 100:
        assert (found.steps.itemsize, found.gains.itemsize) == (size, 1)
    lists = sum(one.nbytes for one in (found.steps, found.gains, found.starts, found.peaks))
    assert packing.n_bytes == lists
    again = found.plain()
    assert again.classes.tobytes() == counts.classes.tobytes()
    assert again.gains.tobytes() == counts.gains.tobytes()


def assert_same_scores(rows, counts, found):
    scorers = CountScorer(counts, 1), CountScorer(found, 1)
    (ids, scores), (other_ids, others) = (scorer.topk(rows, 7) for scorer in scorers)
    assert ids.tobytes() == other_ids.tobytes()
    assert scores.tobytes() == others.tobytes()
    for scorer in scorers:
        scorer.close()


def test_scores_of_very_many_classes_have_the_same_bits(rng):
    n_classes = 400_000
    lists = [np.sort(rng.choice(n_classes, 3, replace=False)) for _ in range(25)]
    counts = lists_of(lists, n_classes, rng.integers(-900, 900, 75))
    rows, found = block_of(rng, 40, 25, n_classes), packed(counts)[0]
    assert found.steps.dtype == np.uint32
    assert_same_scores(rows, counts, found)


@pytest.mark.parametrize("unit", [1, 32])
def test_scores_have_the_same_bits(rng, unit):
    counts = counts_of(rng, 25, 5000, longest=300)
    rows, found = block_of(rng, 40, 25, 5000), packed(counts, unit)[0]
    assert found.n_bytes < counts.n_bytes
    assert_same_scores(rows, counts, found)


@pytest.mark.parametrize("classes", [[0, 5, 5], [3, 2, 4], [-1, 2, 3], [0, 1, K]])
def test_classes_that_are_none_or_do_not_rise_are_refused(rng, classes):
    counts = far_apart(rng, 1, 9)
    wrong = replace(counts, classes=counts.classes.copy())
    wrong.classes[:3] = classes
    if max(classes) == K:
        wrong.classes[:5] = [0, 1, 2, 3, K]
    with pytest.raises(ValueError, match="the counts are wrong"):
        packed(wrong)


@pytest.mark.parametrize("unit", [1, 32])
def test_pairs_find_room_that_was_too_small_at_first(rng, monkeypatch, unit):
    monkeypatch.setattr(packed_pairs, "MOST_ENTRIES", 1)
    counts = far_apart(rng, unit, 1000)  # gains of many entries
    found, _ = packed(counts, unit)
    monkeypatch.undo()
    wanted, _ = packed(counts, unit)
    assert len(found.steps) > 17 * len(counts.classes) // 16 + 1
    for name, array in vars(wanted).items():
        same = array.tobytes() if isinstance(array, np.ndarray) else array
        other = getattr(found, name)
        assert (other.tobytes() if isinstance(other, np.ndarray) else other) == same, name


@pytest.mark.parametrize("times", [1, 4])
def test_gains_of_several_units_are_those_of_one(rng, times):
    counts = far_apart(rng, 32, 120)
    found = packed(counts, 32 // times, times)[0]
    assert found.unit == 32 // times
    again = found.plain()
    for name, array in counts.arrays().items():
        assert again.arrays()[name].tobytes() == array.tobytes(), name


@pytest.mark.parametrize(("n_wide", "kind"), [(0, np.int16), (32767, np.int16), (32768, np.int32)])
def test_places_among_columns_take_two_bytes_where_they_fit(rng, n_wide, kind):
    counts = counts_of(rng, 25, 20, longest=9)
    wide = np.zeros((n_wide, 20), np.int16)
    wide_of = np.full(25, -1, np.int32)
    wide_of[3 if n_wide else slice(0)] = n_wide - 1
    counts = replace(counts.compact(), wide=wide, wide_of=wide_of)
    found = packed(counts)[0]
    assert found.wide_of.dtype == kind
    assert found.plain().wide_of.tobytes() == wide_of.tobytes()
