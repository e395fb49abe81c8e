"""How much names of labels weigh beside counts, and whether they do: held-out rows say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import scipy  # its modules load when they are used
from numpy.typing import NDArray

from streammach.counts.count_kernels import STEP
from streammach.counts.name_words import CountedFeatures, pair_names, to_gains
from streammach.counts.scores import best_once
from streammach.options.types import Amount
from streammach.parts.counts.count_bytes import name_room
from streammach.parts.counts.neighbour_fit import JUDGES, LEAST, WeightFit
from streammach.parts.training_record import Training
from streammach.prediction.metrics import MOST
from streammach.prediction.ranking import Ranking, Top, is_worse
from streammach.prediction.selection_metrics import measure_ids, score_rows
from streammach.rows.block import RowBlock, evenly
from streammach.rows.pairs import MOST_GAIN, NamePairs

NAMES = "names of labels"  # the stage of the run
WEIGHTS = (0.0, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0)  # of names
TIMES = (1.0, 1.5, 2.0, 3.0)  # as much those of labels weigh that no row has
FEW_JUDGES = 1000  # rows that decide where time is short
WORD = 20e-6  # seconds of one thread for a feature, or a name, whose words are looked at
CANDIDATES = 64  # classes of a row, by scores with names and without
ADDED_UP = 1 << 21  # scores of rows and classes that are added up at once
ERRORS = 0.5  # of the same rows' mean difference: a weight that is worse by less is as good
FREE = 0.002  # of the score, for labels without rows: new rows have more of them than held-out ones


class NameFit(WeightFit, frozen=True, forbid_unknown_fields=True):
    """The weight of names, and how many times as much those of labels weigh that no row has."""

    unseen: Amount = 1.0


def weigh_names(
    training: Training, ranking: Ranking, rank_with: Callable[[NamePairs], Ranking],
    unseen: NDArray[np.bool_],
) -> tuple[NamePairs, NameFit] | None:  # fmt: skip
    """Return the pairs of names with the weight that held-out rows want, None without any.

    `ranking` is without names, `rank_with` returns that with such pairs. `unseen` are labels that
    no counted row has, bool (K,): nothing else tells of them.
    """
    data, rows = training.dataset, training.holdout.rows.with_known_class
    if data.label_names is None or training.interim:
        return None
    if rows.n_rows < LEAST:
        training.report(f"names of labels left out: {rows.n_rows:,} held-out rows are too few")
        return None
    if training.clock.remaining_seconds < WORD * (data.n_features + len(data.label_names.texts)):
        training.report("no time was left for names of labels")
        return None
    most = FEW_JUDGES if training.clock.limited else JUDGES
    rows = rows.take(evenly(rows.n_rows, min(rows.n_rows, most)))
    n_pairs = training.plan.config.size_of("counts")
    features = CountedFeatures(data.features, data.feature_counts, data.n_rows, data.root.recipe)
    names, room = data.label_names, name_room(data.facts, n_pairs)
    find = cache(lambda: pair_names(features, names, data.n_classes, room))

    def fit_weight() -> NameFit:
        training.begin_stage(NAMES)
        tried = [_times(find(), 1.0, times, unseen) for times in (TIMES[0], TIMES[-1])]
        tops = [ranking(rows, CANDIDATES), *(rank_with(one)(rows, CANDIDATES) for one in tried)]
        return _fit(rows, tops, find(), unseen)

    fit = training.findings.once("names", NameFit, fit_weight)
    if not fit.weight:
        training.report(f"names of labels left out: held-out {fit.without.text} without")
        return None
    return _times(find(), fit.weight, fit.unseen, unseen), fit


def _times(pairs: NamePairs, weight: float, times: float, unseen: NDArray[np.bool_]) -> NamePairs:
    """Return pairs with a weight, those of labels that no row has so many times as much."""
    weights = weight * float(STEP) * np.where(unseen[pairs.classes], times, 1.0)
    words = to_gains(weight * times * float(STEP) * pairs.words)
    return replace(pairs, gains=to_gains(weights * pairs.gains), words=words)


def _fit(
    rows: RowBlock, tops: Sequence[Top], pairs: NamePairs, unseen: NDArray[np.bool_]
) -> NameFit:
    """Return the largest weights that are as good as the best ones, by the first classes of rows.

    `tops` are these without names, then with the first and the last of :data:`TIMES` as often what
    names add, `pairs`. Labels of few rows gain most by a name, and few of the rows that
    decide have them.
    """
    ids = np.concatenate([top[0] for top in tops], axis=1)
    own, new = _add_up_names(rows, pairs, ids, len(unseen)), unseen[ids]
    had = np.repeat((0.0, TIMES[0], TIMES[-1]), [top[0].shape[1] for top in tops])
    in_top = np.minimum(np.where(new, had, had > 0) * own, MOST_GAIN * STEP)
    without = np.concatenate([top[1] for top in tops], axis=1) - in_top

    def first(weight: float, times: float) -> NDArray[np.int64]:
        sums = without + weight * np.where(new, times, 1.0) * own
        return best_once(ids, sums.astype(np.float32))[0][:, :MOST]

    def largest(tried: dict[float, NDArray[np.int64]], free: float = 0.0) -> float:
        each = {weight: score_rows(rows, ids) for weight, ids in tried.items()}
        best = max(each.values(), key=lambda one: float(one.mean()))
        return max(w for w, one in each.items() if not is_worse(one + free, best, ERRORS))

    weight = largest({weight: first(weight, 1.0) for weight in WEIGHTS})
    times = largest({times: first(weight, times) for times in TIMES}, FREE) if weight else 1.0
    with_it, without_it = (measure_ids(rows, first(*w)) for w in ((weight, times), (0.0, 1.0)))
    return NameFit(weight=weight, with_it=with_it, without=without_it, unseen=times)


def _add_up_names(
    rows: RowBlock, pairs: NamePairs, ids: NDArray[np.int64], n_classes: int
) -> NDArray[np.float32]:
    """Return what names add to the scores of classes of rows with a weight of 1, in nats: (n, m).

    A row's words may stand in names of most classes: few rows are added up at once.
    """
    d = int(max(rows.features.max(initial=0), pairs.features.max(initial=0))) + 1
    held = np.ones(len(rows.features), np.float32), rows.features, rows.indptr
    every = pairs.gains.astype(np.float32) * STEP, (pairs.features, pairs.classes)
    table = scipy.sparse.csr_matrix(every, shape=(d, n_classes))
    matrix = scipy.sparse.csr_matrix(held, shape=(rows.n_rows, d))
    out, step = np.empty(ids.shape, np.float32), max(ADDED_UP // n_classes, 1)
    for first in range(0, rows.n_rows, step):
        some = ids[first : first + step]
        sums = (matrix[first : first + step] @ table).toarray()
        out[first : first + step] = np.take_along_axis(sums, some, axis=1)
    return out
