"""How long weights of features and pairs are learnt: while held-out rows gain by it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
import scipy.optimize
import scipy.special
from numpy.typing import NDArray

from streammach.counts.learning import GroupWeights, evidence
from streammach.counts.table import CountTable
from streammach.parts.counts.group_fit import CandidateFeatures, in_order
from streammach.rows.block import RowBlock

LARGEST_SHARE = 2.0  # of the learnt weights in a score
MOST_LESSONS, MOST_PASSES = 1 << 22, 4  # rows that are learnt from, and passes over them
PASS_GAIN = 0.02  # nats of held-out rows for which a pass is worth its time
QUARTERS = 4  # of a pass, after which held-out rows are asked


class HeldOutLoss:
    """The loss of held-out rows over candidates, at the best weight of what was learnt.

    Parameters
    ----------
    table : CountTable
        The counts.
    weights : GroupWeights
        The weights by group of counts alone.
    found : CandidateFeatures
        The rows' candidates by these.
    rows : RowBlock
        The rows of `found`.
    candidates : int32 (n, m)
        The candidates, -1 where there are no more.
    each : callable
        Calls a function with ranges of rows, on all threads.
    """

    def __init__(
        self,
        table: CountTable,
        weights: GroupWeights,
        found: CandidateFeatures,
        *,
        rows: RowBlock,
        candidates: NDArray[np.int32],
        each: Callable[[int, Callable[[int, int], None]], None],
    ) -> None:
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
            return float((self._found.of_labels(scipy.special.logsumexp(z, axis=1)) - own).mean())

        found = scipy.optimize.minimize_scalar(
            loss, bounds=(0.0, LARGEST_SHARE), method="bounded", options={"xatol": 0.01}
        )
        return float(found.fun)


def learn_while_it_pays(
    learn: Callable[[RowBlock], None],
    loss: Callable[[], float],
    lessons: Callable[[], Iterable[RowBlock]],
    *,
    n_rows: int,
    most_rows: int | None = None,
    over: Callable[[], bool] = lambda: False,
    tell: Callable[[str], None],
) -> int:
    """Learn from rows, pass after pass, while held-out rows gain by it; return how many it were.

    From the middle of the first pass on they are asked after every quarter of a pass.

    Parameters
    ----------
    learn : callable
        Learns from rows.
    loss : callable
        Returns the loss of held-out rows, in nats a row.
    lessons : callable
        Returns the rows; called anew for each pass.
    n_rows : int
        How many there are, about.
    most_rows : int, optional
        Learn from so many, whatever held-out rows say.
    over : callable
        Whether the time is over.
    tell : callable
        Told how it goes.
    """
    seen, found, asked = 0, np.inf, n_rows // 2
    enough = MOST_LESSONS if most_rows is None else most_rows
    passes = itertools.chain.from_iterable(lessons() for _ in range(MOST_PASSES))
    for rows in passes if enough else ():
        learn(rows)
        seen += rows.n_rows
        if seen >= enough or over():
            break
        if most_rows is None and seen >= asked:
            before, found, asked = found, loss(), asked + max(n_rows // QUARTERS, 1)
            tell(f"learnt pairs from {seen:,} rows: held-out loss {found:.3f}")
            if before - found < PASS_GAIN / QUARTERS:
                break
    return seen
