"""The sketch of distinct pairs: near the truth, and the same for any order and cut."""

import numpy as np
import pytest

from streammach.rows.distinct import PairSketch
from tests.builders import block_of


def sketch(blocks):
    found = PairSketch()
    for block in blocks:
        found.add(block)
    return found.estimate()


def exact(block):
    classes = np.repeat(block.classes.astype(np.int64), np.diff(block.indptr))
    return len(np.unique(classes << 32 | block.features))


@pytest.mark.parametrize("n_rows", [1, 10, 1000, 60_000])
def test_it_is_near_the_truth(rng, n_rows):
    block = block_of(rng, n_rows, 3000, 500)
    assert sketch([block]) == pytest.approx(exact(block), rel=0.04, abs=1)


def test_repeated_pairs_count_once_and_cuts_do_not_matter(rng):
    block = block_of(rng, 500, 300, 50)
    parts = [block.part(300, 500), block.part(0, 300), block.part(100, 400)]
    assert sketch(parts) == sketch([block])


def test_without_rows_there_are_no_pairs():
    assert PairSketch().estimate() == 0
