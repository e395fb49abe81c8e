"""How long weights of features and pairs are learnt: while held-out rows gain by it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
import scipy.optimize
import scipy.special
from numpy.typing import NDArray

from streammach.counts.learning import GroupWeights, evidence
from streammach.counts.pair_learning import PairLearner
from streammach.counts.table import CountTable
from streammach.errors import Interrupted
from streammach.model.findings import LEAST_SECONDS, Findings
from streammach.parts.counts.group_fit import CandidateFeatures, in_order
from streammach.rows.block import RowBlock
from streammach.spec.types import Count

LARGEST_SHARE = 2.0  # of the learnt weights in a score
MOST_LESSONS, MOST_PASSES = 1 << 22, 4  # rows that are learnt from, and passes over them
PASS_GAIN = 0.02  # nats of held-out rows for which a pass is worth its time
LEARNT, SAVE_SECONDS = "learnt", 60.0  # the name of what is kept; the time between
QUARTERS = 4  # of a pass, after which held-out rows are asked


class HeldOutLoss:
    """The loss of held-out rows over candidates, at the best weight of what was learnt.

    `candidates` is int32 (n, m).
    """

    def __init__(
        self, table: CountTable, weights: GroupWeights, found: CandidateFeatures, *, rows: RowBlock,
        candidates: NDArray[np.int32], each: Callable[[int, Callable[[int, int], None]], None],
    ) -> None:  # fmt: skip
        self._table, self._rows, self._candidates, self._each = table, rows, candidates, each
        self._scores = found.scores(in_order(weights)).astype(np.float64)
        self._found = replace(found, counted=np.zeros(0, np.float32))  # the rest is small

    def of(self, weights: GroupWeights) -> float:
        """Return the mean loss in nats a row."""
        learnt = evidence(
            self._table, self._rows, self._candidates, weights=weights, each=self._each
        )[:, :, -1].astype(np.float64)

        def loss(share: float) -> float:
            z = self._scores + share * learnt
            own = self._found.own(z)
            each = self._found.of_labels(scipy.special.logsumexp(z, axis=1)) - own
            return float(np.average(each, weights=self._found.weights))

        found = scipy.optimize.minimize_scalar(
            loss, bounds=(0.0, LARGEST_SHARE), method="bounded", options={"xatol": 0.01}
        )
        return float(found.fun)


def learn_while_it_pays(
    learn: Callable[[RowBlock], None], loss: Callable[[], float],
    lessons: Callable[[], Iterable[RowBlock]], *, n_rows: int, most_rows: int | None = None,
    over: Callable[[], bool] = lambda: False, tell: Callable[[str], None],
    kept: KeptLessons | None = None,
) -> int:  # fmt: skip
    """Learn from rows, pass after pass, while held-out rows gain by it; return how many it were.

    From the middle of the first pass on they are asked after every quarter of a pass.
    """
    at = Lessons(seen=0, found=None, asked=n_rows // 2) if kept is None else kept.load(n_rows)
    enough = MOST_LESSONS if most_rows is None else most_rows
    passes = itertools.chain.from_iterable(lessons() for _ in range(MOST_PASSES))
    skipped = 0  # rows that were learnt from before
    try:
        for rows in passes if enough and not at.done else ():
            if skipped < at.seen:
                skipped += rows.n_rows
                continue
            learn(rows)
            skipped += rows.n_rows
            at = replace(at, seen=skipped)
            if at.seen >= enough or over():
                break
            if most_rows is None and at.seen >= at.asked:
                before, found = at.found, loss()
                at = replace(at, found=found, asked=at.asked + max(n_rows // QUARTERS, 1))
                tell(f"learnt pairs from {at.seen:,} rows: held-out loss {found:.3f}")
                if before is not None and before - found < PASS_GAIN / QUARTERS:
                    break
                if kept is not None:
                    kept.save(at)
    except Interrupted:
        if kept is not None and at.seen:
            kept.save(at, now=True)
        raise
    if kept is not None:
        kept.save(replace(at, done=True), now=kept.long)
    return at.seen


@dataclass(frozen=True, kw_only=True)
class Lessons:
    """How far a learning is."""

    seen: Count  # rows that were learnt from
    found: float | None  # the loss of held-out rows when they were asked last
    asked: Count  # rows from which on they are asked next
    done: bool = False  # whether it is over


class KeptLessons:
    """What a learning has so far, kept for a training that goes on."""

    def __init__(self, kept: Findings, learner: PairLearner) -> None:
        self._kept, self._learner = kept, learner
        self._began = self._saved = time.monotonic()

    @property
    def long(self) -> bool:
        """Whether it took long enough to be kept."""
        return time.monotonic() - self._began >= LEAST_SECONDS

    def load(self, n_rows: int) -> Lessons:
        """Return how far the learning is that was interrupted, if one was, and take its state."""
        found = self._kept.load(LEARNT, Lessons, self._learner.state())
        if found is not None:
            return found
        self._learner.begin()
        return Lessons(seen=0, found=None, asked=n_rows // 2)

    def save(self, at: Lessons, *, now: bool = False) -> None:
        """Keep the state, if it is time or must be."""
        if now or time.monotonic() - self._saved >= SAVE_SECONDS:
            self._kept.save(LEARNT, at, self._learner.state())
            self._saved = time.monotonic()
