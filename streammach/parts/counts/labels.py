"""Learns the classifiers of labels from the rows of a store, as far as time and memory go."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from streammach.counts.label_learning import LabelLearner
from streammach.model.findings import LEAST_SECONDS
from streammach.options.types import Count
from streammach.parts.training_record import Training
from streammach.rows.block import RowBlock

LEARNT = "learnt"  # the name under which what was learnt is kept
SOLVING = 2.0  # times as long as to take the rows it takes at most to learn from them


def learn_from(
    training: Training, learner: LabelLearner, lessons: Callable[[], Iterable[RowBlock]],
    add: Callable[[int], None], spare: float,
) -> int:  # fmt: skip
    """Take rows and learn from them; return how many they are.

    `add` is told of rows that are learnt from. Where time is short fewer rows are taken: `spare`
    seconds are left in the end; what is not learnt by then is of no use. What was learnt before an
    interruption is read.
    """
    most, began = training.options.pair_rows, time.monotonic()
    enough = learner.most if most is None else most
    n_rows: int | None = training.findings.load(LEARNT, Count, learner.state())
    if n_rows is not None:
        return n_rows
    for rows in lessons() if enough else ():
        learner.take(rows)
        later = SOLVING * (time.monotonic() - began) + spare
        if learner.full or learner.n_rows >= enough or training.clock.remaining_seconds < later:
            break
    done = 0
    for share in learner.learn():
        training.check_stop()
        if training.clock.remaining_seconds < spare and share < 1:
            training.report("no time was left to learn labels")
            return 0
        add(int(share * learner.n_rows) - done)
        done = int(share * learner.n_rows)
    training.report(f"learnt labels from {learner.n_rows:,} rows")
    if time.monotonic() - began >= LEAST_SECONDS:
        training.findings.save(LEARNT, learner.n_rows, learner.state())
    return learner.n_rows
