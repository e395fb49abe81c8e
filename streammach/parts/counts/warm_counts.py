"""Counts of a training that goes on: pairs add what they added in the model, and learn from a day.

Few rows are new, and perhaps of one source: what they say of counts would spoil the model for all
other sources. So nothing is weighed anew. A pair that the model does not have adds what pairs of as
many rows add in its group of features, and what its feature's pairs add beside that. Then pairs and
features learn from new rows and from old ones, which keep them from leaning to new classes.

Of lists nothing is learnt, since that would be as long as a training. Classifiers of labels take
from pairs that mislead, and none has seen new ones: where counts alone rank, these add as much less
as held-out rows want.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.counts.learning import class_logarithms
from streammach.counts.pair_learning import PairLearner
from streammach.counts.table import CountTable, GroupWeights
from streammach.model.model import Model
from streammach.parts.counts.count_bytes import pair_room
from streammach.parts.counts.count_learner import (
    COUNTING,
    LEARNING,
    MOST_LESSONS,
    STAGE,
    CountLearner,
    StageRows,
)
from streammach.parts.counts.fitting import TILT_ROWS, Fitted
from streammach.parts.counts.group_fit import NAMESPACES, usual_weights
from streammach.parts.counts.saved import SavedCounts
from streammach.prediction.metrics import MOST
from streammach.prediction.ranking import largest_discount
from streammach.prediction.selection_metrics import score_rows
from streammach.rows.arrays import ranges_that_fit
from streammach.rows.block import evenly
from streammach.rows.label_lists import places_of
from streammach.rows.names import Names, namespace_ids
from streammach.rows.pairs import PIECE_PAIRS, CountWeights
from streammach.store.holdout import left_out, masked_rows

OLD_SHARE = 4.0  # old rows that pairs learn from, for each new one
UNIT = np.float32(1 / 1024)  # of gains, in nats
GROUP_PULL, FEATURE_PULL = 20.0, 3.0  # pairs that the mean of all is worth beside own ones
# Of lists. What pairs without classifiers add less, in nats, is one of these; no more, since rows
# that decide have no new labels and would give these up. So many labels of them are looked at.
LESS, MOST_LABELS = (0.0, 0.02, 0.05), 40
RAREST = 0.05  # share of the old rows' labels that may weigh less by their rows than new ones


class WarmCountLearner(CountLearner):
    """Counts the pairs of a store that grew, and weighs them as a model does."""

    def run(self) -> SavedCounts:
        """Return counts with weights of the model that have learnt from new rows and some old."""
        training, data, held, model = (
            self._training,
            self._dataset,
            self._mask,
            self._training.known,
        )
        assert model is not None, "it goes on"
        training.begin_stage(COUNTING)
        mask = np.zeros(data.n_rows, np.bool_) if held is None else held
        fits = self._max_pairs >= pair_room(data.facts)
        self._mask = mask | training.new if fits else mask
        table = self._count(None if fits else usual_weights(data.n_features))
        n_known = training.n_known
        weights = as_before(table, model, data.features, n_known)
        for rows in masked_rows(data, training.new & ~mask) if fits else ():
            training.check_stop()
            for repeated, _ in rows.rows_by_label():
                table.add(repeated)
        table.forget_places()
        n_rows = 0
        if data.listed:
            raise_totals(table, n_known)
            if training.plan.model.unhashed:
                weights = self._with_less(table, weights, n_known)
        else:
            training.begin_stage(LEARNING)
            self._mask = left = left_out(training.new, mask, OLD_SHARE)
            weights, n_rows = self._learnt_more(table, weights, int(np.count_nonzero(~left)))
        fitted = Fitted.of(weights, self._fitting.measure(table, weights, self._fitting.rows))
        training.log_metrics(STAGE, fitted.metrics)
        return SavedCounts(
            table=table, start=weights, grouped=fitted, learnt=fitted,
            reasons=(f"counts of {table.n_pairs:,} pairs, weighed as in the run",),
            fit_rows=self._fitting.n_fit, pair_rows=n_rows,
        )  # fmt: skip

    def _learnt_more(
        self, table: CountTable, weights: GroupWeights, n_rows: int
    ) -> tuple[GroupWeights, int]:
        """Return the weights after a pass over so many rows, and how many there was time for."""
        most, n = self._options.pair_rows, 0
        most = MOST_LESSONS if most is None else most
        self._learnt = StageRows(self._training, min(most, n_rows))
        with PairLearner(table, weights, threads=self._threads) as learner:
            for rows in self._pair_updates() if most else ():
                learner.learn(rows)
                n += rows.n_rows
                if n >= most or self._clock.remaining_seconds <= 0:
                    break
        return learner.weights(), n

    def _with_less(self, table: CountTable, weights: GroupWeights, n_known: int) -> GroupWeights:
        """Let pairs that the model does not have add less, if the rows that decide want that.

        New labels, which none of these rows has, are not looked at.
        """
        rows, theta = self._fitting.rows, weights.theta
        rows = rows.take(evenly(rows.n_rows, min(rows.n_rows, TILT_ROWS)))

        def with_less(less: float) -> GroupWeights:
            return replace(weights, theta=np.where(theta == 0, np.float32(-less), theta))

        def scores(less: float) -> NDArray[np.float64]:
            with closing(self._fitting.open_scorer(table, with_less(less))) as scorer:
                ids, _ = scorer.topk(rows, MOST_LABELS)
            first = np.argsort(ids >= n_known, axis=1, kind="stable")[:, :MOST]
            return score_rows(rows, np.take_along_axis(ids, first, axis=1))

        less, _ = largest_discount(scores, best_alone=True, tilts=LESS)
        self._training.report(f"pairs that the run does not have add {less:g} nats less")
        return with_less(less)


def raise_totals(table: CountTable, n_known: int) -> None:
    """Let no class beyond the known ones weigh less by rows and values than their rarest do.

    What weights make of rarer classes is not known: no row that they were fitted on had one. Those
    that have nothing but a name stay as they are.
    """
    new = n_known + np.flatnonzero(table.class_rows[n_known:] >= 0)
    shares = RAREST * table.class_rows[:n_known].sum()
    for totals in (table.class_values, table.class_rows):
        order = np.argsort(totals[:n_known], kind="stable")
        least = totals[order[np.searchsorted(np.cumsum(table.class_rows[order]), shares)]]
        totals[new] = np.maximum(totals[new], least)


def as_before(table: CountTable, model: Model, features: Names, n_known: int) -> GroupWeights:
    """Return weights of a table of old rows, by which pairs add what they add in a model.

    Groups are the features that take as much from every class. New rows are counted afterwards;
    their pairs then add as much more as those of their group do by their rows. What names of labels
    add is left out.
    """
    assert model.counts is not None, "it has counts"
    known, ids = model.counts.plain(), model.features.ids_of(features)
    if model.names is not None:
        known = known.with_pairs(replace(model.names, gains=-model.names.gains))
    known = known.as_lists()
    group, penalty = _groups(known.penalty, ids, namespace_ids(features, NAMESPACES))
    theta, sums = np.zeros(table.n_pairs, np.float32), np.zeros((5, len(penalty)))
    for some in _shared_pairs(table, known, ids, n_known):
        theta[some.places] = y = UNIT * some.gains
        x, own = some.log_rows, group[some.features]
        powers = (np.ones_like(x), x, y, x * x, x * y)
        sums += [np.bincount(own, each, len(penalty)) for each in powers]
    slope, match = _lines(sums)
    delta = np.zeros(len(ids), np.float32)
    for some in _shared_pairs(table, known, ids, n_known):
        own, of, n = group[some.features], some.features - some.first, some.last - some.first
        more = theta[some.places] - slope[own] * some.log_rows - match[own]
        mean = np.bincount(of, more, n) / (np.bincount(of, minlength=n) + FEATURE_PULL)
        delta[some.first : some.last] = mean
        theta[some.places] = more - mean[of]
    rows = class_logarithms(table)[0][:n_known].astype(np.float64)
    prior = (known.base[:n_known] * rows).sum() / max((rows * rows).sum(), 1e-30)
    return GroupWeights(
        group=group, slope=slope, match=match, penalty=penalty, prior=float(prior), learnt=1.0,
        hashed=known.hashed, theta=theta, delta=delta,
    )  # fmt: skip


def _groups(
    penalty: NDArray[np.float32], ids: NDArray[np.integer[Any]], space: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return the group of each feature, int32 (d,), and the penalty of each group.

    `ids` are the model's, -1 of new features, which come into the largest group of their namespace.
    """
    there = np.flatnonzero(ids >= 0)
    values, own = np.unique(penalty[ids[there]], return_inverse=True)
    n = len(values)
    sizes = np.bincount(space[there] * n + own, minlength=(space.max() + 1) * n).reshape(-1, n)
    usual = np.where(sizes.any(axis=1), sizes.argmax(axis=1), sizes.sum(axis=0).argmax())
    group = usual[space].astype(np.int32)
    group[there] = own
    return group, values


@dataclass(frozen=True)
class _Shared:
    """Pairs of old rows of the features ``first:last`` that a model has, too: arrays (n,)."""

    first: int
    last: int
    features: NDArray[np.int64]
    places: NDArray[np.int64]  # in the table
    log_rows: NDArray[np.float32]
    gains: NDArray[np.int16]  # what they add in the model


def _shared_pairs(
    table: CountTable, known: CountWeights, ids: NDArray[np.integer[Any]], n_known: int
) -> Iterator[_Shared]:
    """Yield pairs of the first classes that a model has, too; its ids of features, or -1."""
    for first, last in ranges_that_fit((table.starts, PIECE_PAIRS)):
        some = first + np.flatnonzero(ids[first:last] >= 0)
        mine, own = _pairs(table, some)
        theirs, others = _pairs(known, ids[some])
        if len(theirs):
            at = np.minimum(np.searchsorted(theirs, mine), len(theirs) - 1)
            there = (table.counts[own] > 0) & (table.classes[own] < n_known)
            same = np.flatnonzero((theirs[at] == mine) & there)
            places = own[same]
            yield _Shared(
                first=first, last=last, features=some[mine[same] >> 32], places=places,
                log_rows=np.log(np.maximum(table.counts[places], 1), dtype=np.float32),
                gains=known.gains[others[at[same]]],
            )  # fmt: skip


def _pairs(
    table: CountTable | CountWeights, features: NDArray[np.integer[Any]]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return a number for each pair of some features, which rises, and its place: int64 (n,)."""
    ends, places = places_of(table.starts, features)
    numbers = np.repeat(np.arange(len(features)), np.diff(ends)) << 32
    return numbers + table.classes[places], places


def _lines(sums: NDArray[np.float64]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return slope and height of the line of each group through what its pairs add, by ln n.

    `sums` float64 (5, G) are those of 1, x, y, x x and x y. Each is pulled towards that of all.
    """
    total = sums.sum(axis=1) / max(sums[0].sum(), 1.0)
    n, x, y, xx, xy = sums + GROUP_PULL * total[:, None]
    slope = np.maximum((n * xy - x * y) / np.maximum(n * xx - x * x, 1e-9), 0)
    return slope.astype(np.float32), ((y - slope * x) / np.maximum(n, 1e-9)).astype(np.float32)
