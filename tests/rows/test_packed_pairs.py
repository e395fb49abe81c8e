"""Packed pairs: they lie as plain Python lays them, come back, and give the same scores."""

from dataclasses import replace

import numpy as np
import pytest

from streammach.counts.scores import CountScorer
from streammach.rows.layouts import ends
from streammach.rows.packed import PackedCounts
from streammach.rows.pairs import CountWeights
from tests.builders import block_of
from tests.model.models import counts_of
from tests.reference import packed as reference

K = 300_000


def lists_of(lists, n_classes, gains):
    """Counts of these lists of classes."""
    zeros, d = np.zeros(n_classes, np.float32), len(lists)
    return CountWeights(
        starts=ends(np.array([len(one) for one in lists])),
        classes=np.concatenate(lists).astype(np.int32), gains=gains.astype(np.int16),
        wide_of=np.full(d, -1, np.int32), wide=np.zeros((0, n_classes), np.int16),
        penalty=np.ones(d, np.float32), base=zeros, log_values=zeros, hashed=1.0,
    )  # fmt: skip


def far_apart(rng, unit, largest):
    """Lists of few classes among very many, among them the first and the last one."""
    lists = [[0, 1, 65535, 65536, 65537 + 65535], [], [K - 1], [65535], [131070, 131071], []]
    lists += [np.sort(rng.choice(K, 9, replace=False)).tolist() for _ in range(20)]
    n = sum(map(len, lists))
    gains = unit * rng.integers(-largest, largest, n, endpoint=True)
    gains[:4] = unit * np.array([largest, -largest, 0, 128])
    return lists_of(lists, K, gains)


@pytest.mark.parametrize(("unit", "largest"), [(32, 130), (1, 32767)])
def test_pairs_lie_as_they_should_and_come_back(rng, unit, largest):
    counts = far_apart(rng, unit, largest)
    found = PackedCounts.of(counts, unit)
    wanted = []
    for a, b in zip(counts.starts[:-1], counts.starts[1:], strict=True):
        wanted.append(reference.entries(
            counts.classes[a:b].tolist(), counts.gains[a:b].tolist(), unit
        ))  # fmt: skip
    assert np.diff(found.starts).tolist() == [len(one) for one in wanted]
    flat = [entry for one in wanted for entry in one]
    assert list(zip(found.steps.tolist(), found.gains.tolist(), strict=True)) == flat
    sizes = [np.abs(gains).max(initial=0) for gains in np.split(counts.gains, counts.starts[1:-1])]
    assert (unit * found.peaks).tolist() == sizes
    assert found.n_pairs == counts.n_pairs
    again = found.plain()
    for name, array in counts.arrays().items():
        assert again.arrays()[name].tobytes() == array.tobytes(), name
    assert again.hashed == counts.hashed


@pytest.mark.parametrize("n_classes", [7, 65_535, 65_536, 400_000])
def test_packing_saves_what_is_said_at_least(rng, n_classes):
    lists = [np.sort(rng.choice(n_classes, n, replace=False)) for n in (5, 0, 3, 7)]
    counts = lists_of(lists, n_classes, np.arange(15) - 7)
    found = PackedCounts.of(counts, 1)
    saved = PackedCounts.bytes_saved_by(15, 4, n_classes)
    assert counts.n_bytes - found.n_bytes >= saved
    assert counts.n_bytes - found.n_bytes == saved or n_classes > 65_535
    assert PackedCounts.pays(15, 4, n_classes) == (n_classes < 400_000)


@pytest.mark.parametrize(("n_classes", "unit"), [(400_000, 1), (5000, 1), (5000, 32)])
def test_scores_have_the_same_bits(rng, n_classes, unit):
    lists = [np.sort(rng.choice(n_classes, 3, replace=False)) for _ in range(25)]
    counts = lists_of(lists, n_classes, rng.integers(-900, 900, 75))
    if n_classes == 5000:
        counts = counts_of(rng, 25, n_classes, longest=300)
    rows, found = block_of(rng, 40, 25, n_classes), PackedCounts.of(counts, unit)
    scorers = CountScorer(counts, 1), CountScorer(found, 1)
    (ids, scores), (other_ids, others) = (scorer.topk(rows, 7) for scorer in scorers)
    assert ids.tobytes() == other_ids.tobytes()
    assert scores.tobytes() == others.tobytes()
    for scorer in scorers:
        scorer.close()


@pytest.mark.parametrize("classes", [[0, 5, 5], [3, 2, 4], [-1, 2, 3]])
def test_classes_that_are_none_or_do_not_rise_are_refused(rng, classes):
    counts = far_apart(rng, 1, 9)
    wrong = replace(counts, classes=counts.classes.copy())
    wrong.classes[:3] = classes
    with pytest.raises(ValueError, match="the counts are wrong"):
        PackedCounts.of(wrong, 1)
