"""The labels that the benchmark of suspects flips."""

import numpy as np

from benchmarks.suspects import first, flip
from streammach.store.dataset import Dataset


def test_a_share_of_the_labels_is_wrong_and_nothing_else_changes(tiny):
    store, out = tiny.store(n_rows=400, n_classes=20), tiny.folder / "flipped"
    wrong = flip(store, out, 10, share=0.1)
    with Dataset.open(store) as data, Dataset.open(out) as other:
        own, new = data.rows(0, data.n_rows), other.rows(0, other.n_rows)
        chosen = own.classes < 10
        numbers, _ = other.origins(0, other.n_rows)
        differs = own.classes[chosen] != new.classes
        assert np.array_equal(np.sort(numbers[differs]), np.sort(wrong))
        assert (len(wrong), new.classes.max()) == (round(0.1 * chosen.sum()), 9)
        assert np.array_equal(own.take(np.flatnonzero(chosen)).features, new.features)


def test_the_first_of_a_list_are_as_many_as_are_wrong():
    assert first(np.array([5, 1, 7, 2]), np.array([1, 2, 9])) == round(1 / 3, 4)
