"""Counts as a model of their own: counted, weighed and learnt before any hashed model."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import scipy  # its modules load when they are used
from numpy.typing import NDArray

from streammach.counts.label_learning import LabelLearner
from streammach.counts.learning import Evidence, evidence
from streammach.counts.pair_learning import PairLearner
from streammach.counts.table import MARK_BYTES, CountTable, GroupWeights, count_pairs
from streammach.model.findings import LEAST_SECONDS
from streammach.options.figures import HeldOutMetrics, scores_text, words
from streammach.options.types import Count
from streammach.parts.counts import saved
from streammach.parts.counts.count_bytes import LABEL_BYTES, WEIGHT_BYTES, pair_room
from streammach.parts.counts.fitting import Fitted, Fitting
from streammach.parts.counts.group_fit import groupings, in_order, start_weights, usual_weights
from streammach.parts.counts.group_kernels import CandidateFeatures
from streammach.parts.counts.labels import LEARNT, learn_from
from streammach.parts.counts.saved import SavedCounts
from streammach.parts.training_record import Training
from streammach.prediction.metrics import propensities
from streammach.rows.block import RowBlock
from streammach.store.holdout import masked_blocks
from streammach.system.errors import DiskError, Interrupted, MismatchError, ModelError
from streammach.system.threads import work_ahead

TABLE = "counted"
UNFINISHED = TABLE, LEARNT  # the names under which the work is kept
Mask = NDArray[np.bool_]
STAGE = "counts"  # of what is measured
# Stages of the run.
COUNTING, WEIGHING, LEARNING = "counting pairs", "weighing counts", "learning pairs"
WEIGHING_PAIRS = "weighing pairs"
MOST_SHARE = 0.97  # of a stage that is longer than was thought
WHOLE_FIT = 4  # times as long as one on a half takes a fit that is kept
USUAL_PASSES = 1.5  # over the rows that pairs are learnt from, on average
MIN_FIT_ROWS = 50
LESSON_ROWS = 4096  # that are learnt from at once
WATCHED_ROWS = 2048  # held-out rows that say whether to go on
MIN_SLOPE = np.float32(0.01)  # more rows of a pair never make it add less
# Where time is short: rows of a first fit, what a fit may take of the time that is left, how many
# fits are kept for the end, and rows that a fit is measured on for each that it sees.
PROBE_ROWS, FIT_SHARE, SPARE, MEASURED = 500, 0.13, 1.5, 2
LARGEST_SHARE = 2.0  # of the learnt weights in a score
MOST_LESSONS, MOST_PASSES = 1 << 22, 4  # rows that are learnt from, and passes over them
PASS_GAIN = 0.02  # nats of held-out rows for which a pass is worth its time
QUARTERS = 4  # of a pass, after which held-out rows are looked at
SAVE_SECONDS = 60.0  # between two states of the learning that are kept


class StageRows:
    """What is done of a stage, in rows."""

    def __init__(self, training: Training, total: int) -> None:
        self._training, self._done, self._total = training, 0, total

    def add(self, n_rows: int) -> None:
        """Note that rows are done."""
        self._done += n_rows
        self._training.report_progress(self._done, max(self._total, int(self._done / MOST_SHARE)))


class CountLearner:
    """Counts the pairs of a store, fits their weights and learns feature and pair weights."""

    def __init__(self, training: Training) -> None:
        self._training = training
        self._dataset, self._held = training.dataset, training.holdout
        self._mask = training.holdout.mask  # rows that are neither counted nor learnt from
        self._clock, self._options = training.clock, training.options
        self._said = words(training.dataset.listed)
        config = training.plan.config
        self._max_pairs = config.size_of("counts")
        self._threads = config.placement.threads
        rows = self._held.rows.with_known_class
        n_fit = self._options.fit_rows
        self._fitting = Fitting(
            rows, rows.n_rows if n_fit is None else n_fit, threads=self._threads
        )

    def run(self) -> SavedCounts:
        """Return counts with the best weights that there is time for."""
        self._training.begin_stage(COUNTING)
        table = self._count_rows()
        started = usual_weights(table.n_features)
        if self._fitting.n_fit < MIN_FIT_ROWS:
            why = f"counts weighed as usual: {self._fitting.n_fit:,} held-out rows are too few"
            metrics = self._fitting.measure(table, started, self._fitting.rows)
            usual = Fitted.of(started, metrics)
            return SavedCounts(
                table=table, start=started, grouped=usual, learnt=usual, reasons=(why,)
            )
        self._training.begin_stage(WEIGHING)
        self._limit_fits(table, started)
        start, grouped, why = self._choose_grouping(table)
        self._training.log_metrics(STAGE, grouped.metrics)
        spare, learnt, n_rows = SPARE * grouped.seconds, grouped, 0
        if self._clock.remaining_seconds > spare:
            self._training.begin_stage(LEARNING)
            start, n_rows = self._learn_weights(table, grouped.weights(start), spare)
        if n_rows or (self._clock.remaining_seconds > spare and not self._clock.limited):
            self._training.begin_stage(WEIGHING_PAIRS)
            learnt = self._fitting.once(self._training, "pairs", table, start)
            self._training.log_metrics(STAGE, learnt.metrics)
            self._training.report(
                f"counts with feature and pair weights: held-out {self._said.both} "
                f"{learnt.metrics.text}"
            )
        return SavedCounts(
            table=table, start=start, grouped=grouped, learnt=learnt,
            reasons=(f"counts of {table.n_pairs:,} pairs by {why}",),
            fit_rows=self._fitting.n_fit, pair_rows=n_rows,
        )  # fmt: skip

    def _limit_fits(self, table: CountTable, start: GroupWeights) -> None:
        """Fit on as many rows as there is time for, and measure on not many more."""
        fitting, wanted = self._fitting, self._options.fit_rows
        if wanted is None and self._clock.limited:
            n_fit = fitting.n_fit
            fitting.limit(PROBE_ROWS, PROBE_ROWS)
            began = time.monotonic()
            fitting.screen(table, start)
            a_row = (time.monotonic() - began) / fitting.n_fit
            fits = int(FIT_SHARE * max(self._clock.remaining_seconds, 0.0) / a_row)
            wanted = max(min(n_fit, fits), fitting.n_fit)
        if wanted is not None:
            fitting.limit(wanted, MEASURED * wanted)

    def _masked_rows(self, mask: Mask | None) -> Iterator[tuple[RowBlock, Mask]]:
        """Yield the rows of the store without what all of them have, and which are masked."""
        for block, own in masked_blocks(self._dataset, mask):
            yield block.beyond(self._dataset.n_common_features), own

    def _blocks(self, n_rows: int, of: StageRows) -> Iterator[tuple[RowBlock, Mask]]:
        """Yield the first rows of the store, and which are held out; note what share is done."""
        with closing(work_ahead(self._masked_rows(self._mask), "counted", patience=None)) as blocks:
            for block, held in blocks:
                self._training.check_stop()
                some = min(n_rows, block.n_rows)
                yield block.part(0, some), held[:some]
                n_rows -= some
                of.add(some)
                if not n_rows:
                    return

    def _rows_by_label(self, n_rows: int, of: StageRows) -> Iterator[tuple[RowBlock, Mask]]:
        """Yield the same with a row for each label."""
        for block, held in self._blocks(n_rows, of):
            for rows, numbers in block.rows_by_label():
                yield rows, held[numbers]

    def _gain_model(self) -> GroupWeights | None:
        """Return what decides which pairs are kept, where not all fit.

        Group weights, fitted on counts of so many rows that all of their pairs fit.
        """
        facts, room = self._dataset.facts, self._max_pairs
        if room >= pair_room(facts):
            return None
        limited = self._clock.limited or self._options.fit_rows is not None
        if self._fitting.n_fit < MIN_FIT_ROWS or limited:
            return usual_weights(facts.n_features)
        pairs = facts.nnz * max(facts.n_labels, facts.n_rows) // facts.n_rows  # repeats counted
        n_rows = max(1, facts.n_rows * room // pairs)
        some = self._count(None, n_rows)
        self._training.begin_stage(WEIGHING)
        start, grouped, _ = self._choose_grouping(some)
        found = grouped.weights(start)
        self._training.begin_stage(COUNTING)
        return replace(found, slope=np.maximum(found.slope, MIN_SLOPE))

    def _count_rows(self) -> CountTable:
        facts, findings = self._dataset.facts, self._training.findings
        place, identity = findings.folder / TABLE, findings.identity
        if findings.lasting and place.is_dir():
            with suppress(ModelError, MismatchError, DiskError):
                return saved.load(place, identity, facts.n_features, facts.n_classes).table
        began = time.monotonic()
        table = self._count(self._gain_model())
        if time.monotonic() - began >= LEAST_SECONDS:
            start = usual_weights(table.n_features)
            nothing = Fitted.of(start, HeldOutMetrics(0.0, 0.0))
            counted = SavedCounts(table=table, start=start, grouped=nothing, learnt=nothing)
            findings.write(lambda: saved.save(counted, place, identity))
        return table

    def _count(self, gain_model: GroupWeights | None, n_rows: int | None = None) -> CountTable:
        """Count the pairs of the store, or of about its first rows."""
        facts, first = self._dataset.facts, n_rows or self._dataset.n_rows
        mark_bytes = WEIGHT_BYTES * self._max_pairs

        def count_for_model(model: GroupWeights | None) -> CountTable:
            each = 1 if model is None else 2
            marks = MARK_BYTES * (1 + facts.weighted) * facts.nnz
            passes = 2 + each * -(-marks // max(mark_bytes, 1))  # the last: sorts
            done = StageRows(self._training, passes * first)
            return count_pairs(
                lambda: self._rows_by_label(first, done), facts.n_features, facts.n_classes,
                max_pairs=self._max_pairs, mark_bytes=mark_bytes,
                threads=self._threads, gains=model, weighted=facts.weighted,
            )  # fmt: skip

        try:
            table = count_for_model(gain_model)
        except OverflowError:  # six standard errors above the store's estimate, or a false one
            self._training.report("the store holds more pairs than it says")
            gain_model = usual_weights(facts.n_features)
            table = count_for_model(gain_model)
        if self._dataset.label_names is not None:
            table.class_rows[self._dataset.label_counts == 0] = -1
        of = "" if n_rows is None else f" of {n_rows:,} rows, to see which to keep"
        kept = "" if gain_model is None else ", those that add most"
        self._training.report(f"counted {table.n_pairs:,} pairs of a feature and a class{of}{kept}")
        return table

    def _choose_grouping(self, table: CountTable) -> tuple[GroupWeights, Fitted, str]:
        """Return the best way to group features, the weights for it, and the evidence."""
        ways = groupings(self._dataset, table)
        tried: dict[str, HeldOutMetrics] = {}
        for i, (name, group) in enumerate(ways.items()):
            self._training.check_stop()
            self._training.report_progress(i, len(ways) + WHOLE_FIT)
            tried[name] = self._training.findings.once(
                "screened", HeldOutMetrics,
                partial(self._fitting.screen, table, start_weights(group)),
                of=[name, table.n_pairs, self._fitting.n_fit],
            )  # fmt: skip
            self._training.report(f"by {name}: held-out {self._said.both} {tried[name].text}")
        best = max(tried, key=lambda name: tried[name].selection_score)
        figures = scores_text(tried.items())
        self._training.report_progress(len(ways), len(ways) + WHOLE_FIT)
        start = start_weights(ways[best])
        fitted = self._fitting.once(self._training, f"counts-{table.n_pairs}", table, start)
        return start, fitted, f"{best}: held-out {self._said.both} {figures}"

    def _learn_weights(
        self, table: CountTable, alone: GroupWeights, spare: float
    ) -> tuple[GroupWeights, int]:
        """Return the weights with those of features and pairs, and the rows they are learnt from.

        Rows with lists have classifiers of their labels. Where time is short, the learning ends
        when only `spare` seconds and those of the hashed models are left.
        """
        data, fitting, training = self._dataset, self._fitting, self._training
        n_rows = data.n_rows - (0 if self._held.mask is None else int(self._held.mask.sum()))
        if data.listed:
            with LabelLearner(
                table, alone, data.facts, LABEL_BYTES * self._max_pairs,
                gains=1 / propensities(data.label_counts, data.n_rows), threads=self._threads,
            ) as labels:  # fmt: skip
                n_rows = min(self._options.pair_rows or n_rows, n_rows, labels.most)
                self._learnt = StageRows(training, 2 * n_rows)  # they are taken, and learnt from
                n_rows = learn_from(training, labels, self._pair_updates, self._learnt.add, spare)
            return labels.weights(), n_rows
        usual = min(int(USUAL_PASSES * n_rows), MOST_LESSONS)
        self._learnt = StageRows(training, self._options.pair_rows or usual)
        scorer = fitting.open_scorer(table, alone)
        rows, candidates, _ = fitting.candidates(scorer, WATCHED_ROWS)
        found = fitting.features(table, alone, scorer, rows, candidates)
        one = np.zeros(table.n_features, np.int32)  # group: the sums of others are not asked for
        loss = held_out_loss(
            found, found.scores(in_order(alone), fitting.workers),
            lambda weights: evidence(
                table, rows, candidates, each=scorer.each,
                weights=replace(weights, group=one, slope=weights.slope[:1]),
            ),
        )  # fmt: skip
        del found
        with PairLearner(table, alone, threads=self._threads) as learner:
            n_rows = learn_while_it_pays(
                training, learner, self._pair_updates, lambda: loss(learner.weights()), spare
            )
        scorer.close()
        return learner.weights(), n_rows

    def _pair_updates(self) -> Iterator[RowBlock]:
        """Yield the rows of the store that are not held out, some thousands at a time."""

        def take_rows() -> Iterator[RowBlock]:
            for block, held in self._masked_rows(self._mask):
                kept = np.flatnonzero(~held)
                for start in range(0, len(kept), LESSON_ROWS):
                    yield block.take(kept[start : start + LESSON_ROWS])

        with closing(work_ahead(take_rows(), "lessons", patience=None)) as lessons:
            for rows in lessons:
                self._training.check_stop()
                yield rows
                self._learnt.add(rows.n_rows)


def held_out_loss(
    found: CandidateFeatures, scores: NDArray[np.floating],
    evidence_of: Callable[[GroupWeights], Evidence],
) -> Callable[[GroupWeights], float]:  # fmt: skip
    """Return what gives the mean loss of rows, in nats, at the best share of learnt weights.

    `scores` (n, m) are those without them; `evidence_of` gives what is counted of the candidates.
    """
    rows = found._replace(counted=np.zeros(0, np.float32))  # the rest is small
    without = scores.astype(np.float64)

    def loss_of(weights: GroupWeights) -> float:
        said = evidence_of(weights)
        learnt = said.counted[said.starts[1:] - 1].astype(np.float64)  # the sums of a row

        def loss(share: float) -> float:
            z = without + share * learnt
            each = scipy.special.logsumexp(z, axis=1) * rows.targets.sum(axis=1).astype(np.float64)
            each -= (rows.targets * z).sum(axis=1)
            # There are none where training has no label of held-out rows.
            return float(np.average(each, weights=rows.weights)) if rows.weights.any() else 0.0

        best = scipy.optimize.minimize_scalar(
            loss, bounds=(0.0, LARGEST_SHARE), method="bounded", options={"xatol": 0.01}
        )
        return float(best.fun)

    return loss_of


@dataclass(frozen=True, kw_only=True)
class PairUpdateState:
    """How far a learning is."""

    seen: Count  # rows that were learnt from
    loss: float | None  # the loss of held-out rows when it was computed last
    due: Count  # rows from which on it is computed next
    done: bool = False  # whether it is over


def learn_while_it_pays(
    training: Training, learner: PairLearner, lessons: Callable[[], Iterable[RowBlock]],
    loss: Callable[[], float], spare: float,
) -> int:  # fmt: skip
    """Learn from rows, pass after pass, while held-out rows gain by it; return how many it were.

    From the middle of the first pass on their loss is computed after every quarter of a pass. What
    was learnt before an interruption is gone on with. It ends when `spare` seconds are left.
    """
    n_rows, most = training.dataset.n_rows, training.options.pair_rows
    enough, began = MOST_LESSONS if most is None else most, time.monotonic()
    at = training.findings.load(LEARNT, PairUpdateState, learner.state())
    if at is None:
        learner.begin()
        at = PairUpdateState(seen=0, loss=None, due=n_rows // 2)
    last_saved, passed = began, 0  # rows of the passes, with those that were learnt from before
    passes = itertools.chain.from_iterable(lessons() for _ in range(MOST_PASSES))
    try:
        for rows in passes if enough and not at.done else ():
            passed += rows.n_rows
            if passed <= at.seen:
                continue
            learner.learn(rows)
            at = replace(at, seen=passed)
            if at.seen >= enough or training.clock.remaining_seconds < spare:
                break
            if most is None and at.seen >= at.due:
                before, now = at.loss, loss()
                at = replace(at, loss=now, due=at.due + max(n_rows // QUARTERS, 1))
                training.report(f"learnt pairs from {at.seen:,} rows: held-out loss {now:z.3f}")
                if before is not None and before - now < PASS_GAIN / QUARTERS:
                    break
                if time.monotonic() - last_saved >= SAVE_SECONDS:
                    training.findings.save(LEARNT, at, learner.state())
                    last_saved = time.monotonic()
    except Interrupted:
        if at.seen:
            training.findings.save(LEARNT, at, learner.state())
        raise
    if time.monotonic() - began >= LEAST_SECONDS:
        training.findings.save(LEARNT, replace(at, done=True), learner.state())
    return at.seen
