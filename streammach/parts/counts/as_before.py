"""Weights of counts beside the hashed models of a run that a training goes on from.

Few rows are new to these hashed models, and perhaps of one source: what they say of counts beside
hashed models would spoil the model for all other sources. So both weigh as much as in the run.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.counts.learning import GroupWeights, weigh
from streammach.counts.table import CountTable
from streammach.model.model import Model
from streammach.rows.names import Names
from streammach.rows.pairs import CountWeights

MOST_PAIRS = 1 << 20  # that are compared


def as_before(
    table: CountTable, alone: GroupWeights, model: Model, features: Names
) -> GroupWeights:
    """Return weights that were fitted alone, scaled so that pairs add as much as in a model.

    Hashed models weigh as in the model. Gains of the table are written anew.
    """
    assert model.counts is not None, "it has counts"
    known, ids = model.counts.plain().listed(), model.features.ids_of(features)
    new = weigh(table, alone)
    some = np.flatnonzero(ids >= 0)
    some = some[:: 1 + int(np.diff(new.starts)[some].sum()) // MOST_PAIRS]
    mine, own = _pairs(new, some)
    theirs, others = _pairs(known, ids[some])
    _, i, j = np.intersect1d(mine, theirs, assume_unique=True, return_indices=True)
    before, now = (
        float(np.square(gains, dtype=np.float64).sum())
        for gains in (known.gains[others[j]], new.gains[own[i]])
    )
    by = np.float32(np.sqrt(before / now) if before and now else 1.0)
    return replace(
        alone, slope=by * alone.slope, match=by * alone.match, penalty=by * alone.penalty,
        prior=float(by) * alone.prior, learnt=float(by) * alone.learnt, hashed=model.counts.hashed,
    )  # fmt: skip


def _pairs(
    table: CountWeights, features: NDArray[np.integer[Any]]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return a number for each pair of some features, and its place: int64 (n,) each."""
    first, lengths = table.starts[features], np.diff(table.starts)[features]
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    places = np.repeat(first, lengths) + within
    number = np.repeat(np.arange(len(features)), lengths) << 32
    return number + table.classes[places], places
