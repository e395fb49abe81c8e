"""How much labels of similar training rows weigh beside counts, where rows have lists of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache

import msgspec
import numpy as np
from numpy.typing import NDArray

from streammach.counts.neighbour_search import NeighbourSearch
from streammach.options.figures import HeldOutMetrics
from streammach.options.types import Amount
from streammach.parts.counts.count_bytes import near_room
from streammach.parts.training_record import Training
from streammach.prediction.metrics import MOST
from streammach.prediction.ranking import Ranking, is_worse
from streammach.prediction.selection_metrics import measure_ids, score_rows
from streammach.rows.block import RowBlock, evenly
from streammach.rows.neighbours import Neighbours, gather_rows
from streammach.store.holdout import masked_blocks

WEIGHTS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)
LEAST, JUDGES = 50, 10_000  # held-out rows that decide
CANDIDATES = 64  # classes of each
ERRORS = 2.0  # of the mean gain of the same rows, below which there are no neighbours

Each = Callable[[int, Callable[[int, int], None]], None]


class WeightFit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A weight that held-out rows chose, 0 where nothing is gained; what they reach."""

    weight: Amount
    with_it: HeldOutMetrics
    without: HeldOutMetrics


def judging_rows(training: Training) -> RowBlock | None:
    """Return held-out rows with lists of labels that decide, None if there are too few."""
    rows = training.holdout.rows.with_known_class
    if not training.dataset.listed or rows.n_rows < LEAST:
        return None
    return rows.take(evenly(rows.n_rows, min(rows.n_rows, JUDGES)))


def neighbours(
    training: Training, ranking: Ranking, each: Each
) -> tuple[Neighbours, NDArray[np.float32], WeightFit] | None:
    """Return the training rows with the weight that held-out rows want, None if that is 0.

    Then the norms of all rows float32 (n,), which take the place of those without the held-out
    rows at the end. `each` calls work with ranges of rows, on all threads. A training that goes on
    has the weight of its run.
    """
    known = training.known
    before = None if known is None or known.near is None else known.near.weight
    rows = None if known is not None and before is None else judging_rows(training)
    if rows is None:
        return None
    gather = cache(lambda: _gather_rows(training))

    def fit_neighbours() -> WeightFit:
        weights = WEIGHTS if before is None else (0.0, before)
        return _fit(training, gather()[0], rows, ranking, weights, each)

    fit = training.findings.once("neighbours", WeightFit, fit_neighbours)
    weight = fit.weight if before is None else before
    if not weight:
        return None
    near, norms = gather()
    return replace(near, weight=weight), norms, fit


def _gather_rows(training: Training) -> tuple[Neighbours, NDArray[np.float32]]:
    data, mask = training.dataset, training.holdout.mask

    def blocks() -> Iterator[tuple[RowBlock, NDArray[np.bool_]]]:
        for block, held in masked_blocks(data, mask):
            training.check_stop()
            yield block.beyond(data.n_common_features), held

    n_bytes = near_room(training.plan.config.size_of("counts"))
    return gather_rows(blocks, data.n_features, n_bytes)


def _fit(
    training: Training, found: Neighbours, rows: RowBlock, ranking: Ranking,
    weights: tuple[float, ...], each: Each,
) -> WeightFit:  # fmt: skip
    search = NeighbourSearch(replace(found, weight=1.0), training.dataset.n_classes)
    ids, scores = ranking(rows, CANDIDATES)
    gained = np.empty(ids.shape, np.float32)
    for start in range(0, rows.n_rows, search.most_rows):
        some = slice(start, min(start + search.most_rows, rows.n_rows))
        part = rows.part(some.start, some.stop)
        lists, gains = search.gains(part.indptr, part.features, each)
        at = lists.places(np.repeat(np.arange(part.n_rows), ids.shape[1]), ids[some].reshape(-1))
        theirs = np.where(at >= 0, np.append(gains, np.float32(0))[at], 0)
        gained[some] = theirs.reshape(part.n_rows, -1)
    first = {}
    for weight in weights:
        order = np.argsort(-(scores + weight * gained), axis=1, kind="stable")[:, :MOST]
        first[weight] = np.take_along_axis(ids, order, axis=1)
    judged = {weight: score_rows(rows, found) for weight, found in first.items()}
    best = max(judged, key=lambda weight: float(judged[weight].mean()))
    pays = is_worse(judged[0.0], judged[best], ERRORS)
    figures = (measure_ids(rows, first[weight]) for weight in (best, 0.0))
    return WeightFit(best if pays else 0.0, *figures)
