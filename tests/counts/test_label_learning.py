"""Classifiers of labels, held to Newton's method and to scikit-learn."""

import itertools
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from streammach.counts import label_learning
from streammach.counts import pair_updates as lessons
from streammach.counts.label_learning import LabelLearner
from streammach.model.findings import Findings
from streammach.parts.counts import labels
from streammach.parts.counts.labels import learn_from
from tests.counts.test_counts import K, as_pairs, group_weights
from tests.counts.test_pair_learning import of_some_classes, table_of_lists, with_lists
from tests.reference import counts as reference
from tests.reference import labels as plain

M = 5  # candidates
ENOUGH = 1 << 20  # bytes
GAINS = np.linspace(1, 5, K)


@pytest.fixture
def exact(monkeypatch):
    """Labels are learnt to the end."""
    monkeypatch.setattr(label_learning, "CANDIDATES", M)
    monkeypatch.setattr(label_learning, "CLOSE", np.float32(1e-6))
    monkeypatch.setattr(label_learning, "PASSES", 3000)


@pytest.fixture
def block(rng):
    return with_lists(rng, of_some_classes(rng))


def facts_of(block):
    return SimpleNamespace(n_rows=block.n_rows, nnz=block.nnz, n_labels=block.lists.n_labels)


def learnt(block, weights, *, n_bytes=ENOUGH, threads=1, piece=40, facts=None):
    """Return a table, and a learner that learnt from its rows, some at a time."""
    table = table_of_lists(block)
    learner = LabelLearner(
        table, weights, facts or facts_of(block), n_bytes, gains=GAINS, threads=threads
    )
    with learner:
        for start in range(0, block.n_rows, piece):
            if not learner.full:
                learner.take(block.part(start, min(start + piece, block.n_rows)))
        shares = list(learner.learn())
    assert shares[-1] == 1
    assert shares == sorted(shares)
    return table, learner


@pytest.mark.parametrize("weighted", [False, True])
def test_a_label_is_told_from_the_rows_that_are_taken_for_its(rng, exact, block, weighted):
    weights = group_weights(rng)
    table, learner = learnt(block, weights)
    scores = reference.ReferenceScores(block, K, weights)
    if weighted:  # what rows count scales what they cost
        learner._rows.weights[:] = rng.random(block.n_rows) + 0.5
        list(learner.learn())
        block = replace(block, importance=learner._rows.weights)
    cost = label_learning.COST * block.n_rows / block.nnz
    wanted = plain.learn(block, scores, M, lessons.FAR, cost, GAINS)
    found = learner.weights()
    assert found.learnt == 1
    assert not found.delta.any()
    for z, pair in enumerate(as_pairs(table)):
        assert found.theta[z] == pytest.approx(wanted[pair], abs=1e-4)
    assert max(wanted.values()) > 0.05


def test_a_label_has_the_weights_of_scikit_learn(rng, exact, block):
    svm = pytest.importorskip("sklearn.svm")
    weights = group_weights(rng)
    table, learner = learnt(block, weights)
    own, others = plain.examples_of(
        block, reference.ReferenceScores(block, K, weights), M, lessons.FAR
    )
    c = max(others, key=lambda c: len(others[c]))
    pairs = {f: z for z, (f, of) in enumerate(as_pairs(table)) if of == c}
    some = own[c] + others[c]
    x = np.array([[f in block.features[block.indptr[i] : block.indptr[i + 1]] for f in pairs]
                  for i in some], float)  # fmt: skip
    cost = label_learning.COST * block.n_rows / block.nnz
    model = svm.LinearSVC(loss="squared_hinge", dual=True, fit_intercept=False, C=cost, tol=1e-9,
                          max_iter=100_000, class_weight={True: GAINS[c]})  # fmt: skip
    model.fit(x, np.arange(len(some)) < len(own[c]))
    assert learner.weights().theta[list(pairs.values())] == pytest.approx(model.coef_[0], abs=1e-4)


@pytest.mark.parametrize("ranges", [1, 5, 100])
@pytest.mark.parametrize("threads", [1, 3])
def test_the_same_bytes_are_learnt_by_any_threads_and_pieces(
    rng, monkeypatch, block, threads, ranges
):  # fmt: skip
    weights = group_weights(rng)
    wanted = learnt(block, weights)[1].weights().theta
    monkeypatch.setattr(label_learning, "RANGES", ranges)
    found = learnt(block, weights, threads=threads, piece=threads * 7)[1].weights().theta
    assert found.tobytes() == wanted.tobytes()
    assert found.any()


@pytest.mark.parametrize("labels_too", [False, True])
def test_rows_for_which_there_is_no_room_teach_nothing(rng, block, labels_too):
    weights, n_bytes = group_weights(rng), 20_000
    facts = facts_of(block)
    if labels_too:  # rows that come first have more labels and values than all have in the mean
        facts.n_labels //= 2
        facts.nnz //= 2
    table, learner = learnt(block, weights, n_bytes=n_bytes, facts=facts)
    n, arrays = learner.n_rows, (*learner._rows, learner._others)
    assert sum(array.nbytes for array in arrays) <= n_bytes
    assert learner.full
    assert 0 < n <= learner.most < block.n_rows
    other = LabelLearner(table, weights, facts_of(block), ENOUGH, gains=GAINS, threads=1)
    with other:
        other.take(block.part(0, n))
        list(other.learn())
    assert other.weights().theta.tobytes() == learner.weights().theta.tobytes()


class Learner:
    """What learns from pieces of ten rows."""

    most = 100

    def __init__(self):
        self.n_rows, self.full, self.theta = 0, False, np.zeros(3, np.float32)

    def take(self, rows):
        self.n_rows += rows
        self.full = self.n_rows == self.most

    def learn(self):
        self.theta[:] = self.n_rows
        yield from (0.5, 1.0)

    def state(self):
        return {"theta": self.theta}


@pytest.mark.parametrize(
    ("pair_rows", "left", "n_rows"),
    [(None, [9.0] * 20, 100), (0, [], 0), (35, [9.0] * 20, 40), (None, [9.0, 9.0, 1.0], 30)],
)
def test_rows_are_taken_while_there_is_time_and_read_later(
    tmp_path, monkeypatch, pair_rows, left, n_rows
):  # fmt: skip
    monkeypatch.setattr(labels, "LEAST_SECONDS", 0.0)
    clock, added = itertools.chain(left, itertools.repeat(9.0)), []
    training = SimpleNamespace(
        options=SimpleNamespace(pair_rows=pair_rows), report=lambda text: None,
        check_stop=lambda: None,
        findings=Findings(Path(tmp_path), "one", lasting=True),
        clock=type("C", (), {"remaining_seconds": property(lambda self: next(clock))})(),
    )  # fmt: skip
    learner = Learner()
    assert learn_from(training, learner, lambda: [10] * 20, added.append, 2.0) == n_rows
    assert sum(added) == n_rows
    again = Learner()
    assert learn_from(training, again, lambda: [], added.append, 2.0) == n_rows
    assert (again.theta == n_rows).all()
    assert sum(added) == n_rows
