"""Classifiers of labels that are learnt last, where rows have lists: what they weigh, and whether.

What a label is told from are the rows for which the whole ranking takes it. What counts alone take
for it, from which pairs are learnt before, is not what comes first in the end.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from streammach.linear.late import BEST, NEGATIVES, LateLabels, examples_of, rank_again
from streammach.linear.learner import LinearLearner, LinearOptions
from streammach.linear.weights import LinearScorer
from streammach.options.training import PROPENSITY
from streammach.parts.counts.count_bytes import late_rows
from streammach.parts.counts.neighbour_fit import WeightFit, judging_rows
from streammach.parts.training_record import Training
from streammach.prediction.metrics import MOST, propensities
from streammach.prediction.ranking import Ranking, is_worse
from streammach.prediction.selection_metrics import measure_ids, score_rows
from streammach.rows.block import RowBlock
from streammach.store.holdout import masked_blocks
from streammach.system.clock import TimeOver
from streammach.system.linux import give_back

LATE = "classifiers of labels"  # the stage of the run
# An error of rows of unit length; 1 and 0.1 are about as good. Smaller weights say nothing.
OPTIONS = LinearOptions(cost=0.5, least=0.1)
WEIGHTS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 12.0)  # of what they say, beside the scores
# Standard errors of the same rows' mean difference: a larger weight is as good as the best one, and
# classifiers as what is without them. What is there was fitted to the rows that judge.
ERRORS = 0.5
STEP = 2048  # rows that are ranked at a time
SOLVING = 2.0  # times as long as to rank the rows it takes at most to learn from them


def late_labels(training: Training, ranking: Ranking) -> tuple[LateLabels, WeightFit] | None:
    """Return the classifiers with the weight that held-out rows want, None without any."""
    rows = None if training.interim else judging_rows(training)
    if rows is None:
        return None
    learn = cache(lambda: _learn_classifiers(training, ranking))

    def fit_late() -> WeightFit:
        training.begin_stage(LATE)
        return _fit(learn(), rows, ranking, training.plan.config.placement.threads)

    try:
        fit = training.findings.once("late", WeightFit, fit_late)
        if not fit.weight:
            return None
        late = learn()
    except TimeOver:
        training.report("no time was left to learn classifiers of labels")
        return None
    return replace(late, weight=fit.weight), fit


def _learn_classifiers(training: Training, ranking: Ranking) -> LateLabels:
    """Return classifiers learnt from rows that are not held out; TimeOver without the time."""
    data, threads = training.dataset, training.plan.config.placement.threads
    taken = [*_take_rows(training, ranking)]
    rows = RowBlock.concat([part for part, _ in taken])
    best = np.concatenate([own for _, own in taken])
    taken.clear()
    examples, most = examples_of(rows.lists, best, data.n_classes)
    scale = (np.bincount(rows.features, minlength=data.n_features) > 0).astype(np.float32)
    # All that PSP@5 asks for, or a root of it: then P@1 and PSP@5 both gain.
    power = -1.0 if training.options.optimise == PROPENSITY else -0.25
    gains = propensities(data.label_counts, data.n_rows) ** power

    def tell(done: int) -> None:
        training.check_stop()
        training.clock.check()
        training.report_progress(1 + done / data.n_classes, 2)

    learner = LinearLearner(rows, scale, OPTIONS, threads)
    found = learner.learn(data.n_classes, examples, most, gains=gains.astype(np.float32), tell=tell)
    return LateLabels(**vars(found), weight=1.0)


def _take_rows(
    training: Training, ranking: Ranking
) -> Iterator[tuple[RowBlock, NDArray[np.int32]]]:
    """Yield rows to learn from, and what they are taken for, while there is room and time."""
    data, began = training.dataset, time.monotonic()
    most, n = late_rows(data.facts, training.plan.config.size_of("counts")), 0
    for block, held in masked_blocks(data, training.holdout.mask):
        give_back()  # else what is kept of many small blocks holds what reading each took
        chosen = np.flatnonzero(~held & (block.weights > 0))
        for start in range(0, len(chosen), STEP):
            training.check_stop()
            some = block.take(chosen[start : min(start + STEP, start + most - n)])
            if not some.n_rows:
                return
            best = ranking(some, NEGATIVES)[0].astype(np.int32)
            n += some.n_rows
            training.report_progress(n / most, 2)
            yield some.beyond(data.n_common_features), best
            if training.clock.remaining_seconds < SOLVING * (time.monotonic() - began):
                return


def _fit(late: LateLabels, rows: RowBlock, ranking: Ranking, threads: int) -> WeightFit:
    top, scorer = ranking(rows, BEST), LinearScorer(late, threads)
    firsts = {
        weight: rank_again(rows, top, scorer, weight)[0][:, :MOST] for weight in (0.0, *WEIGHTS)
    }
    scorer.close()
    judged = {weight: score_rows(rows, ids) for weight, ids in firsts.items()}
    best = max(WEIGHTS, key=lambda weight: float(judged[weight].mean()))
    alike = [best]
    if rows.lists.weights is None:
        alike = [weight for weight in WEIGHTS if not is_worse(judged[weight], judged[best], ERRORS)]
    weight = 0.0 if is_worse(judged[best], judged[0.0], ERRORS) else max(alike)
    return WeightFit(weight, *(measure_ids(rows, firsts[one]) for one in (weight, 0.0)))
