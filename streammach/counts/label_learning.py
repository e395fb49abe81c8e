"""Weights of pairs as linear classifiers, one a label, learnt from counted rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.counts.count_kernels import NOWHERE, CountedPairs, find_pair
from streammach.counts.hard_negatives import PIECES_A_THREAD, HardNegatives, Learner
from streammach.counts.pair_updates import RowLists
from streammach.counts.table import CountTable, GroupWeights
from streammach.linear.descent import ClassRoom, Examples, UnitRows, descend
from streammach.linear.late import fill_examples
from streammach.options.facts import DataFacts
from streammach.rows.arrays import ranges_that_fit
from streammach.rows.block import RowBlock
from streammach.rows.layouts import ends
from streammach.system.jit import Array, Number, kernel
from streammach.system.threads import Workers, pieces_of

COST = 0.3  # of an example, for rows whose features have a square sum of 1; 0.1 is as good
# How far the gradients of a label's examples may differ at the end, and passes over them, at most.
CLOSE, PASSES = np.float32(0.1), 20
CANDIDATES = 120  # classes of a row at most, its own among them: 40 tell labels less well apart
RANGES = 16  # of classes whose examples lie in memory together, about
EXAMPLE_BYTES = 12  # of an example: its row, its dual and its norm
SCRATCH_BYTES = 64_000_000  # of the threads that learn, where more than one does
GAIN_BYTES = 4  # of a class
FEATURE_BYTES = 20  # of a feature in a thread's scratch


class LabelLearner(Learner):
    """Learns one weight a counted pair: for each label a linear classifier.

    A label is told from the rows that do not have it but among whose candidates it is, each row
    left out of the counts: squared hinge with L2, over the features that are counted with the
    label; see :func:`learn_labels`. Rows that have a label cost
    `gains` float64 (K,) times as much as others, so that rare labels are not given up. Rows are
    kept in memory, as many as there is room for: others teach nothing. Each label is learnt alone,
    from its rows in their order: bytes never depend on the number of threads.
    """

    def __init__(
        self, table: CountTable, weights: GroupWeights, facts: DataFacts, n_bytes: int, *,
        gains: NDArray[np.float64], threads: int,
    ) -> None:  # fmt: skip
        self._table, self._weights, self._gains = table, weights, gains.astype(np.float32)
        self._rivals = HardNegatives(table, weights, most=CANDIDATES, threads=threads)
        self._theta = np.zeros(table.n_pairs, np.float32)
        self.most = n = most_rows(facts, n_bytes)  # rows that there is room for, about
        labels = max(facts.n_labels, facts.n_rows)
        n_values, n_labels = (-(-total * n // facts.n_rows) for total in (facts.nnz, labels))
        indptr, starts = (np.zeros(n + 1, np.int64) for _ in range(2))
        self._rows = RowLists(
            indptr, np.empty(n_values, np.int32), np.empty(n, np.float32), starts,
            np.empty(n_labels, np.int32),
        )  # fmt: skip
        self._others = np.empty((n, self._rivals.m), np.int32)
        self.n_rows, self.full = 0, n == 0  # rows that it has, and whether it takes more

    @staticmethod
    def footprint(n_classes: int, n_features: int, n_wide: int, threads: int) -> int:
        """Return the bytes of scratch, without those of the rows, the table and its weights."""
        scratch = FEATURE_BYTES * n_features * _learning(n_features, threads)
        rivals = HardNegatives.footprint(n_classes, n_wide, CANDIDATES, threads)
        return rivals + scratch + GAIN_BYTES * n_classes

    def state(self) -> dict[str, NDArray[np.float32]]:
        """Return the arrays of what was learnt."""
        return {"theta": self._theta}

    def weights(self) -> GroupWeights:
        """Return the weights with what was learnt; they share its memory."""
        delta = np.zeros(self._table.n_features, np.float32)
        return replace(self._weights, learnt=1.0, theta=self._theta, delta=delta)

    def take(self, block: RowBlock) -> None:
        """Take rows to learn from, with their candidates, while there is room."""
        r, at = self._rows, self.n_rows
        first, label = int(r.indptr[at]), int(r.label_starts[at])
        fits = min(
            len(r.weights) - at,
            int(np.searchsorted(block.indptr, len(r.features) - first, "right")) - 1,
            int(np.searchsorted(block.lists.starts, len(r.labels) - label, "right")) - 1,
        )
        self.full = fits < block.n_rows or at + fits == self.most
        block = block.part(0, min(fits, block.n_rows))
        own, rivals, _, sizes = self._rivals.of(block)
        rows, n_values, n_labels = slice(at, at + block.n_rows), block.nnz, len(own.labels)
        r.indptr[at + 1 : rows.stop + 1] = first + own.indptr[1:]
        r.label_starts[at + 1 : rows.stop + 1] = label + own.label_starts[1:]
        r.features[first : first + n_values] = own.features
        r.labels[label : label + n_labels] = own.labels
        r.weights[rows] = own.weights
        place = np.arange(self._rivals.m) + sizes[:, :1]  # behind the row's own classes
        others = np.take_along_axis(rivals, np.minimum(place, self._rivals.m - 1), axis=1)
        self._others[rows] = np.where(place < sizes[:, 1:], others, -1)
        self.n_rows = rows.stop

    def learn(self) -> Iterator[float]:
        """Learn from the rows, and yield again and again what share of the work is done."""
        table, d, rows = self._table, self._table.n_features, self._rows
        self._theta[:] = 0
        counts, others = np.zeros(len(table.class_rows), np.int64), self._others[: self.n_rows]
        fill_examples(rows.label_starts, rows.labels, others, 0, counts, np.empty(0, np.int32))
        total = max(int(counts.sum()), 1)
        unit = self._unit_rows()
        n_threads = _learning(d, self._rivals.workers.n_threads)
        workers, done = Workers(n_threads, "labels"), 0
        try:
            for first, last in ranges_that_fit((ends(counts), total // RANGES)):
                starts = ends(counts[first:last])
                some = starts, self._examples(starts, first), first

                def piece(
                    a: int, b: int, some: tuple[NDArray[np.int64], Examples, int] = some
                ) -> None:
                    learn_labels(
                        *some, a, b, unit, table.pairs, self._gains, CLOSE, PASSES,
                        ClassRoom.of(d), np.empty(d, np.int64), self._theta,
                    )  # fmt: skip

                pieces = pieces_of(last - first, n_threads, starts, a_thread=PIECES_A_THREAD)
                workers.each(piece, pieces)
                done += int(starts[-1])
                yield done / total
        finally:
            workers.close()

    def _unit_rows(self) -> UnitRows:
        """Return the rows, with values of 1 and what an error of each costs."""
        r, n_values = self._rows, max(int(self._rows.indptr[self.n_rows]), 1)
        ones = np.broadcast_to(np.float32(1), len(r.features))
        costs = np.float32(COST * self.n_rows / n_values) * r.weights
        return UnitRows(r.indptr, r.features, ones, costs)

    def _examples(self, starts: NDArray[np.int64], first: int) -> Examples:
        """Return the examples of classes from `first` on, which start there."""
        lists, others = (self._rows.label_starts, self._rows.labels), self._others[: self.n_rows]
        found = Examples.of(np.empty(starts[-1], np.int32))
        if len(found.rows):
            fill_examples(*lists, others, first, starts[:-1].copy(), found.rows)
        return found


def most_rows(facts: DataFacts, n_bytes: int) -> int:
    """Return how many rows of a store are kept in so many bytes, about."""
    n = facts.n_rows
    labels = max(facts.n_labels, n) / n
    examples = (CANDIDATES + labels) / RANGES + 1  # at a time: of a range, and of a large class
    row = 20 + 4 * (CANDIDATES + labels + facts.nnz / n) + EXAMPLE_BYTES * examples
    return int(min(n, n_bytes / row))


def _learning(n_features: int, threads: int) -> int:
    """Return how many threads learn labels at once."""
    return max(1, min(threads, SCRATCH_BYTES // (FEATURE_BYTES * max(n_features, 1))))


@kernel()
def learn_labels(
    starts: Array, examples: Examples, before: int, first: int, last: int, rows: UnitRows,
    pairs: CountedPairs, gains: Array, close: Number, passes: int, room: ClassRoom, places: Array,
    theta: Array,
) -> None:  # fmt: skip
    """Write the weights of classes ``before + first : before + last`` to the places of their pairs.

    They are least in ``|w|^2 / 2 + sum_i g_i cost_i max(0, 1 - y_i sum_f w_f)^2`` over the examples
    i, y = 1 for rows of the class and -1 for others, g the gain of the class and 1, f the features
    of a row that are counted with the class: dual coordinate descent (Hsieh et al., 2008).

    Parameters
    ----------
    starts, examples, before, first, last : int64 (k + 1,), Examples, int, int, int
        Where the examples of each class begin; those of classes from `before` on; which of these.
    rows, pairs, gains : UnitRows, CountedPairs, float32 (K,)
        The rows, all values 1; the table; as above.
    close, passes : float32, int
        How far the gradients of a class's examples may differ at the end; how often they are gone
        over, at most.
    room, places : ClassRoom, int64 (d,)
        Scratch; where the pairs of its features stand in the table.
    theta : float32 (Z,)
        Receives the weights; others are not written.
    """
    for c in range(first, last):
        a, b = starts[c], starts[c + 1]
        some = Examples(examples.rows[a:b], examples.duals[a:b], examples.norms[a:b])
        n = take_features(before + c, some, rows, pairs, room, places)
        if n > 0:
            gain = gains[before + c]
            descend(rows, some, gain, close, passes, 0, room.place, room.weights)
        for j in range(n):
            theta[places[j]] = room.weights[j + 1]
            room.place[room.features[j]] = 0


@kernel(inline=True)
def take_features(
    c: int, examples: Examples, rows: UnitRows, pairs: CountedPairs, room: ClassRoom,
    places: Array,
) -> Any:  # fmt: skip
    """Give numbers to the features that are counted with a class, and norms to its examples."""
    # Returns how many features these are.
    n = 0
    for example in examples.rows:
        if example & 1:
            for p in range(rows.indptr[example >> 1], rows.indptr[(example >> 1) + 1]):
                f = rows.features[p]
                if room.place[f] == 0:
                    z = find_pair(pairs, f, c)
                    if z != NOWHERE and pairs.counts[z] > 0:
                        room.features[n], places[n] = f, z
                        n += 1
                        room.place[f] = n
    room.weights[: n + 1] = 0
    for e in range(examples.rows.shape[0]):
        i, norm = examples.rows[e] >> 1, np.float32(0)
        for p in range(rows.indptr[i], rows.indptr[i + 1]):
            norm += room.place[rows.features[p]] > 0
        examples.duals[e], examples.norms[e] = 0, norm
    return n
