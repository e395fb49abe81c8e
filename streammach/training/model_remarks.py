"""What is said of a finished model: what it reaches beside others, and what may be wrong."""

from __future__ import annotations

import numpy as np

from streammach.model.model import Model
from streammach.options.figures import HeldOutMetrics, gain_text, words
from streammach.parts.training_record import Training
from streammach.prediction.metrics import MOST
from streammach.prediction.predictor import Predictor
from streammach.prediction.selection_metrics import measure_ids
from streammach.rows.block import RowBlock
from streammach.rows.canonical import canonicalize
from streammach.rows.columns import ids_of_features
from streammach.system.machine import time_text

LATE = 0.1  # of its time, from which on it is told that a training was late
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


def warnings_of(training: Training, model: Model) -> tuple[str, ...]:
    """Return what is to be said of a model that is worth nothing on held-out rows."""
    rows, own = training.holdout.rows, model.validation.get(model.estimator)
    if own is None or not rows.n_rows:
        return ()
    order = np.argsort(-training.dataset.label_counts, kind="stable")[:MOST]
    usual = measure_ids(rows, np.tile(order, (rows.n_rows, 1))).accuracy
    if not own.accuracy <= usual < 1:
        return ()
    more = "more --time" if training.clock.limited else "more rows or --epochs"
    first = words(training.dataset.listed).first
    return (
        f"held-out {first} {own.accuracy:z.3f} is not above {usual:z.3f}, which the most frequent "
        f"label reaches: {more} may help, or the features do not tell the labels",
    )


def gain_over_usual(training: Training, model: Model) -> tuple[str, ...]:
    """Return what the most frequent label reaches by itself, and the gain of the model.

    Linear classifiers say it themselves.
    """
    own, data = model.validation.get(model.estimator), training.dataset
    n = training.holdout.rows.n_rows
    if own is None or not n or model.linear is not None:
        return ()
    usual = float(data.label_counts.max()) / data.n_rows
    return (gain_text("held-out", words(data.listed).first, own, n, usual),)


def lateness(training: Training) -> tuple[str, ...]:
    """Return what is to be said of a training that took more than its time."""
    clock = training.whole_clock
    if clock.seconds is None or clock.elapsed_seconds <= (1 + LATE) * clock.seconds:
        return ()
    by_time = sorted(training.stages.took.items(), key=lambda item: -item[1])[:3]
    stages = ", ".join(f"{name} {time_text(seconds)}" for name, seconds in by_time)
    return (
        f"it took {time_text(clock.elapsed_seconds)}, {time_text(clock.seconds)} were allowed: "
        f"{stages}; some of each stage is not left out, nor are kernels, which are compiled once",
    )


def explain_names(model: Model) -> tuple[str, ...]:
    """Return why labels that no row has are not said, where their names are given."""
    if model.says is None:
        return ()
    n, beside = np.count_nonzero(model.says < 0), "the model has no counts"
    why = beside if model.counts is None else "held-out rows gain nothing by them"
    return (f"names of labels add nothing, since {why}: labels without rows are not said ({n:,})",)
