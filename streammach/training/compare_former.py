"""What the model that a training goes on from reaches on the same held-out rows."""

from __future__ import annotations

import numpy as np

from streammach.model.model import Model
from streammach.options.figures import HeldOutMetrics, words
from streammach.parts.training_record import Training
from streammach.prediction.metrics import MOST
from streammach.prediction.predictor import Predictor
from streammach.prediction.selection_metrics import measure_ids
from streammach.rows.block import RowBlock
from streammach.rows.canonical import canonicalize
from streammach.rows.columns import ids_of_features

PIECE_ROWS = 1024  # that are ranked at a time


def compare_with_former(training: Training, model: Model) -> tuple[str, ...]:
    """Return what the former model and this one reach on held-out rows, by whether labels are new.

    Rows of new labels are held out only by a store of their own; the former model has none of them
    right.
    """
    former, rows = training.known, training.holdout.rows
    if former is None or not rows.n_rows:
        return ()
    lists = rows.lists
    is_new = np.zeros(rows.n_rows, np.bool_)
    is_new[lists.rows[lists.classes >= training.n_known]] = True
    old, new = (rows.take(np.flatnonzero(some)) for some in (~is_new, is_new))
    first, own = words(training.dataset.listed).first, model.validation.get(model.estimator)
    said = []
    for known, some in (("known", old), ("new", new)):
        if not some.n_rows:
            continue
        # A model that has learnt from its held-out rows was measured before.
        now = own if training.holdout.mask is not None else _measure(model, training, some)
        if now is not None:
            before = _measure(former, training, some).accuracy
            said.append(f"{before:z.3f} before, {now.accuracy:z.3f} now on rows of {known} labels")
    return (f"held-out {first} " + "; ".join(said),) if said else ()


def _measure(model: Model, training: Training, rows: RowBlock) -> HeldOutMetrics:
    data, found = training.dataset, []
    ids = ids_of_features(model.features, model.columns, data.features, data.columns)
    classes = data.labels.ids_of(model.labels)
    with Predictor(model, device="cpu", threads=training.plan.config.placement.threads) as ranks:
        for start in range(0, rows.n_rows, PIECE_ROWS):
            block = canonicalize(rows.part(start, min(start + PIECE_ROWS, rows.n_rows)), ids)
            found.append(classes[ranks.scorers.topk(block, MOST).ids])
    return measure_ids(rows, np.concatenate(found))
