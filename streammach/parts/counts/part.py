"""Counts of (feature, class) pairs beside hashed models of sparse rows, as an optional part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from streammach.counts.label_learning import most_rows
from streammach.counts.learning import class_logarithms, weigh
from streammach.counts.scores import CountScorer
from streammach.counts.table import GroupWeights
from streammach.linear.weights import LinearScorer
from streammach.model.shrink import PAIR_BYTES
from streammach.options.config import PartPlan, RunConfig
from streammach.options.facts import DataFacts
from streammach.options.figures import HeldOutMetrics, scores_text, words
from streammach.options.training import TrainSpec
from streammach.options.types import Ranker, Transform
from streammach.parts.base import Part
from streammach.parts.counts import count_bytes as bytes_of
from streammach.parts.counts import count_learner, saved
from streammach.parts.counts.count_bytes import MAX_CLASSES, pair_room
from streammach.parts.counts.fitting import (
    Fitted,
    Fitting,
    HashedModels,
    fit_label_prior,
    uses_learnt,
)
from streammach.parts.counts.late_fit import LATE, late_labels
from streammach.parts.counts.name_fit import weigh_names
from streammach.parts.counts.neighbour_fit import WeightFit, neighbours
from streammach.parts.counts.saved import SavedCounts
from streammach.parts.counts.warm_counts import WarmCountLearner
from streammach.parts.expected import AccuracyDrop, Choice, Fit, PartBytes, PartTime
from streammach.parts.switches import SWITCHES
from streammach.parts.training_record import Decision, FirstFit, Training
from streammach.prediction.ranking import ClassScorer, Ranking, by_classifiers, by_counts, by_hashes
from streammach.prediction.selection_metrics import measure_ranking
from streammach.rows.pairs import CountWeights, NamePairs
from streammach.store.holdout import masked_rows

NAME, BESIDE = "counts", "counts beside models"  # the stage of the run
# Seconds of one thread of the machine of docs/planner.md.
COUNT = 110e-9  # a value of a row that is counted
FIT_ROW, FIT_POSTING = 360e-6, 2e-9  # a held-out row, and a posting of one, in a fit of weights
# Of a row that pairs are learnt from: a value, a class and a posting; a row with labels, its value.
LEARN_VALUE, LEARN_CLASS, LEARN_POSTING = 1.6e-6, 0.1e-9, 0.5e-9
LABEL_ROW, LABEL_VALUE = 240e-6, 6.2e-6
LATE_VALUE = 5e-6  # a value of a row that classifiers are learnt from at the end
FIT = 0.3  # weights of counts for one way to group, whatever the threads
FITS = 3.0  # two whole ones, with pair weights and without, and three ways to group on a half
FITS_FIRST, FITS_BESIDE = (0.9, 0.7), 1.4  # the same by stage
ELASTIC = 0.9  # of the fits, where time is short: they see fewer rows
# Of a query: a class beside counts, a repetition of it, and a pair of the row's features.
QUERY_CLASS, QUERY_REPETITION, QUERY_POSTING = 0.5e-9, 0.03e-9, 0.65e-9
MIN_PAIRS = 100_000  # fewer are not worth their pass, where not all fit
FITTED = Fit(  # what hashing loses beside counts
    columns=0.75, power=0.78, repetitions=8.09, buckets=10.84, error=0.77
)
FITTED_LISTS = Fit(columns=0.0089, power=0.95, repetitions=6.07, buckets=12.3, error=0.17)
SHARES = {  # all pairs, a half of them and so on
    1: AccuracyDrop(), 2: AccuracyDrop(1.0, 0.5), 4: AccuracyDrop(1.6, 0.8),
    8: AccuracyDrop(2.5, 1.2),
}  # fmt: skip
# By counts without hashed models: 1.0, 1.4 and 8.5 were measured on test rows; of lists of labels
# 0.6, 1.5, 2.4 and 2.6, and 1.9 more than `SHARES` with a half of the pairs (titles, abstracts).
ALONE, ALONE_LISTS = AccuracyDrop(3.0, 3.0), AccuracyDrop(1.8, 1.0)
CUT_LISTS = AccuracyDrop(1.9, 1.9)
LEARNT_BYTES = 8  # of a pair that is learnt, or a feature: its weight and a sum of squares
COPIES = 3  # of what a feature has, while a model becomes smaller
LEARNT_POINTS = 2.6  # that feature and pair weights bring, with their fits: a mean of five sets
LOST = AccuracyDrop(3.7, 4.0)  # by sparse rows without counts: 8.5, 1.5 and 1.1 were measured


class CountsDecision(Decision):
    """Counts with the weights that held-out rows want, alone or beside hashed models."""

    counts: CountWeights

    def __init__(
        self, training: Training, counted: SavedCounts, best: GroupWeights,
        reasons: tuple[str, ...], figures: dict[Ranker, HeldOutMetrics],
        transform: Transform | None = None,
    ) -> None:  # fmt: skip
        super().__init__(reasons=(*counted.reasons, *reasons), figures=figures)
        self._training, self._table, self._weights = training, counted.table, best
        self._transform, self._norms = transform, np.zeros(0, np.float32)
        self._late: LinearScorer | None = None
        self.ranking: Ranking = self._rank_by(weigh(self._table, best))
        near = neighbours(training, self.ranking, self._scorer.each)
        if near is not None:
            rows, self._norms, fit = near
            self._scorer.close()
            self.ranking = self._rank_by(replace(self.counts, near=rows))
            self._note(fit, f"labels of similar training rows weigh {rows.weight:g}")
            training.log_metrics("neighbours", fit.with_it)
        prior = fit_label_prior(training, self.ranking, class_logarithms(self._table)[0])
        if prior is not None:
            self._weights = replace(best, prior=best.prior + prior.weight)
            self._scorer.close()
            weighed = weigh(self._table, self._weights)
            self.ranking = self._rank_by(replace(weighed, near=self.counts.near))
            self._note(prior, f"labels weigh {prior.weight:g} ln n more, by their n rows")
        self._add_names()
        late = late_labels(training, self.ranking)
        if late is not None:
            self.late, fit = late
            self._late = LinearScorer(self.late, training.plan.config.placement.threads)
            self.ranking = by_classifiers(self.ranking, self.late, self._late)
            self._note(fit, f"classifiers of labels, learnt last, weigh {fit.weight:g}")
            training.log_metrics(LATE, fit.with_it)

    def _note(self, fit: WeightFit, what: str) -> None:
        """Note what held-out rows reach with something beside counts, and without."""
        both = words(self._training.dataset.listed).both
        self.figures["blend"] = fit.with_it
        self.reasons += (
            f"{what}: held-out {both} {fit.with_it.text} with, {fit.without.text} without",
        )

    def _add_names(self) -> None:
        """Let names of labels weigh what held-out rows want."""
        without = self.counts

        def rank_with(pairs: NamePairs | None) -> ClassScorer:
            self._scorer.close()
            named = weigh(self._table, self._weights, names=pairs)
            return self._rank_by(replace(named, near=without.near))

        unseen = self._table.class_rows <= 0
        found = weigh_names(self._training, self.ranking, rank_with, unseen)
        if found is not None:
            self.names, fit = found
            times = "" if fit.unseen == 1 else f", {fit.unseen:g} times as much without rows"
            self._note(fit, f"names of labels weigh {fit.weight:g}{times}")
            self._training.log_metrics("names of labels", fit.with_it)
        if found is not None or self.counts is not without:
            self.ranking = rank_with(self.names)

    def _rank_by(self, counts: CountWeights) -> ClassScorer:
        training, self.counts = self._training, counts
        self._scorer = CountScorer(counts, training.plan.config.placement.threads)
        if self._transform is None:
            return by_counts(None, self._scorer)
        return by_counts(training.backend, self._scorer, self._transform)

    def learn_held_out(self) -> None:
        """Count the held-out rows, too; no pair is learnt or weighed any more."""
        training, near = self._training, self.counts.near
        self._table.forget_places()
        for rows in masked_rows(training.dataset, training.holdout.mask):
            training.check_stop()
            for repeated, _ in rows.rows_by_label():
                self._table.add(repeated)
        if near is not None:
            near = replace(near, norms=self._norms)
        counts = weigh(self._table, self._weights, names=self.names)
        self.counts = replace(counts, near=near)

    def close(self) -> None:
        self._scorer.close()
        if self._late is not None:
            self._late.close()


def _decide_by_counts(training: Training, counted: SavedCounts) -> Decision:
    """Return counts with weights of their own."""
    reasons, best = tuple[str, ...](), counted.weights(counted.best)
    if counted.learns:
        used = counted.best is counted.learnt
        reasons = (_of_pairs(training, counted.grouped, counted.learnt, used=used),)
    figures: dict[Ranker, HeldOutMetrics] = {"blend": counted.best.metrics}
    return CountsDecision(training, counted, best, reasons, figures)


def _of_pairs(training: Training, grouped: Fitted, learnt: Fitted, *, used: bool) -> str:
    return (
        f"feature and pair weights {'kept' if used else 'left out'}: "
        f"held-out {words(training.dataset.listed).both} {learnt.metrics.text} with, "
        f"{grouped.metrics.text} without"
    )


def _beside_hashes(training: Training, counted: SavedCounts, transform: Transform) -> Decision:
    """Fit the weights of counts beside trained hashed models, and say whether they pay."""
    backend, both = training.backend, words(training.dataset.listed).both
    rows = training.holdout.rows.with_known_class
    if counted.fit_rows < count_learner.MIN_FIT_ROWS:
        reason = f"no counts: {rows.n_rows:,} held-out rows are too few to weigh them"
        return Decision(reasons=(reason,))
    fitting = Fitting(
        rows, counted.fit_rows, threads=training.plan.config.placement.threads,
        hashed=HashedModels(backend, transform),
    )  # fmt: skip
    training.begin_stage(BESIDE)
    hashed = training.findings.once(
        "hashed",
        HeldOutMetrics,
        lambda: measure_ranking(rows, by_hashes(backend, "logsum", transform)),
    )
    start = counted.weights(counted.grouped)
    grouped = learnt = best = fitting.once(training, "beside", counted.table, start)
    used = False
    if counted.learns:
        training.check_stop()
        training.report_progress(1, 2)
        with_pairs = counted.weights(counted.learnt)
        learnt = fitting.once(training, "beside-pairs", counted.table, with_pairs)
        used = uses_learnt(grouped, learnt, fitting.n_fit, listed=training.dataset.listed)
        if used:
            best, start = learnt, with_pairs
    training.report(
        f"beside hashed models: held-out {both} {grouped.metrics.text}, "
        f"with feature and pair weights {learnt.metrics.text}"
    )
    training.log_metrics("hashed models and counts", best.metrics)
    pairs = _of_pairs(training, grouped, learnt, used=used)
    figures: dict[Ranker, HeldOutMetrics] = {"logsum": hashed, "blend": best.metrics}
    found, reached = None, best.metrics
    # Names add to counts, so that these are judged with them.
    if best.score > hashed.selection_score or training.dataset.label_names is not None:
        found = CountsDecision(training, counted, best.weights(start), (pairs,), figures, transform)
        reached = found.figures["blend"]
    better = found is not None and reached.selection_score >= hashed.selection_score
    why = (
        f"counts {'kept' if better else 'left out'}: held-out {both} "
        f"{reached.text} with, {hashed.text} without"
    )
    if found is None or not better:
        if found is not None:
            found.close()
        return Decision(reasons=(*counted.reasons, pairs, why), figures=figures)
    found.reasons += (why,)
    return found


def _as_in_run(training: Training, counted: SavedCounts, transform: Transform) -> Decision:
    """Let counts and hashed models weigh as in the run that the training goes on from."""
    assert training.known is not None, "it goes on"
    rows, hashed = training.holdout.rows, by_hashes(training.backend, "logsum", transform)
    training.begin_stage(BESIDE)
    weights = counted.weights(counted.learnt)
    found = CountsDecision(training, counted, weights, (), {}, transform)
    assert found.ranking is not None, "it ranks"
    figures: dict[Ranker, HeldOutMetrics] = {
        "logsum": measure_ranking(rows, hashed), "blend": measure_ranking(rows, found.ranking)
    }  # fmt: skip
    training.log_metrics("hashed models and counts", figures["blend"])
    reason = (
        f"hashed models weigh {weights.hashed:z.3g} beside counts, as in the run: held-out "
        f"{words(training.dataset.listed).both} {scores_text(figures.items())}"
    )
    found.figures, found.reasons = figures, (*found.reasons, reason)
    return found


def find_obstacle(facts: DataFacts, config: RunConfig) -> str | None:
    """Return why nothing is counted, in words; None if it may be."""
    if facts.n_classes >= MAX_CLASSES:
        return "there are too many classes"
    return "rows are dense" if config.dense else None


def list_choices(facts: DataFacts, config: RunConfig, *, sure: bool) -> Iterator[Choice]:
    """Yield room for all pairs, for a half, a quarter, an eighth, and none."""
    room, pairs = pair_room(facts), "pairs of a feature and a class"
    fit, alone = (FITTED_LISTS, ALONE_LISTS) if facts.listed else (FITTED, ALONE)
    for share, loss in SHARES.items():
        size = room // share
        if share == 1 or size >= MIN_PAIRS:
            of = "" if share == 1 else f" of {room:,}"
            cut = CUT_LISTS if facts.listed and share > 1 else AccuracyDrop()
            yield Choice(
                plan=PartPlan(name=NAME, size=size), loss=loss, fit=fit, alone=alone + cut,
                why=f"room to count {size:,}{of} {pairs}",
            )  # fmt: skip
    if not sure:
        yield Choice(plan=None, loss=LOST, why=f"no counts: {room:,} {pairs} do not fit")


def project_bytes(facts: DataFacts, config: RunConfig) -> PartBytes:
    """Return the bytes of counting and of counts.

    On disk are counts, and their model, until hashed models are trained; without these, counts and
    what is learnt of them until the model is written. What becomes smaller are the pairs of a
    model, beside those of a smaller one.
    """
    n_pairs, d = config.size_of(NAME), facts.n_features
    near, late = bytes_of.neighbour_bytes(facts, n_pairs, 0), bytes_of.late(facts, n_pairs)
    pairs = (bytes_of.MODEL_BYTES + PAIR_BYTES) * n_pairs
    model = bytes_of.MODEL_BYTES * n_pairs
    kept = saved.disk_bytes(n_pairs, d, facts.n_classes) + near + late  # in the model, too
    kept += LEARNT_BYTES * (n_pairs + d) if config.shape.unhashed else model + facts.names_bytes
    shrinking = 2 * (near + late) + pairs + COPIES * CountWeights.footprint(features=d)
    return PartBytes(
        memory=bytes_of.footprint(facts, config), judging=bytes_of.judging_bytes(facts, config),
        shrinking=shrinking if n_pairs else 0, model=model, saved=kept,
    )  # fmt: skip


def project_time(facts: DataFacts, config: RunConfig) -> PartTime:
    """Return the time of counting, fitting and learning, and of a row's scores."""
    counting, learning, last = facts.nnz * COUNT, _learning(facts, config), _last(facts, config)
    fits, learnt = _fits(facts, config, FITS), learning + last
    first, second = ((_fits(facts, config, n), FIT * n) for n in FITS_FIRST)
    beside = (_fits(facts, config, FITS_BESIDE), FIT * FITS_BESIDE)
    return PartTime(
        finish=counting + learnt + fits, fixed=FITS * FIT,
        elastic=learnt + ELASTIC * fits, elastic_fixed=ELASTIC * FITS * FIT,
        elastic_points=LEARNT_POINTS, scoring=_scoring(facts, config),
        stages_before={
            count_learner.COUNTING: (counting, 0.0), count_learner.WEIGHING: first,
            count_learner.LEARNING: (learning, 0.0), count_learner.WEIGHING_PAIRS: second,
        },
        stages_after=({} if config.shape.unhashed else {BESIDE: beside})
        | ({LATE: (last, 0.0)} if facts.listed else {}),
    )  # fmt: skip


def describe(part: PartPlan) -> str:
    """Return its room in a word or two, for a table of plans."""
    n = part.size
    return f"{n / 1e6:z.3g}M pairs" if n >= 1e6 else f"{n / 1e3:z.3g}k pairs"


def fit_first(training: Training, folder: Path, identity: str) -> FirstFit:
    """Count, fit and learn, or read what was saved of that."""
    shape, listed = training.plan.config.shape, training.dataset.listed
    goes_on = training.known is not None and training.known.counts is not None
    if folder.is_dir():
        counted = saved.load(folder, identity, shape.n_features, shape.n_classes)
    else:
        counted = (WarmCountLearner if goes_on else count_learner.CountLearner)(training).run()

    def decide_beside(training: Training, spec: TrainSpec) -> Decision:
        return (_as_in_run if goes_on else _beside_hashes)(training, counted, spec.transform)

    # Fits beside hashed models: two, of more candidates; classifiers take about as long.
    seconds = dict.fromkeys((BESIDE, LATE) if listed else (BESIDE,), 3 * counted.grouped.seconds)
    return FirstFit(
        name=NAME, decide_alone=partial(_decide_by_counts, counted=counted),
        decide_beside=decide_beside, save=partial(saved.save, counted),
        unfinished=count_learner.UNFINISHED, seconds=seconds if counted.grouped.seconds else {},
        options={"fit_rows": counted.fit_rows, "pair_rows": counted.pair_rows},
    )  # fmt: skip


def _learning(facts: DataFacts, config: RunConfig) -> float:
    if facts.listed:
        n_rows = most_rows(facts, bytes_of.LABEL_BYTES * config.size_of(NAME))
        return n_rows * (LABEL_ROW + facts.nnz / facts.n_rows * LABEL_VALUE)
    row = config.shape.n_classes * LEARN_CLASS + facts.row_postings * LEARN_POSTING
    learnt = facts.nnz * LEARN_VALUE + facts.n_rows * row
    return (
        min(count_learner.USUAL_PASSES, count_learner.MOST_LESSONS / max(facts.n_rows, 1)) * learnt
    )


def _scoring(facts: DataFacts, config: RunConfig) -> float:
    each = QUERY_CLASS + config.shape.n_repetitions * QUERY_REPETITION
    return config.shape.n_classes * each + facts.row_postings * QUERY_POSTING


def _last(facts: DataFacts, config: RunConfig) -> float:
    """Return the seconds of ranking rows with lists, and of learning what tells labels apart."""
    if not facts.listed:
        return 0.0
    n_rows = bytes_of.late_rows(facts, config.size_of(NAME))
    return n_rows * (_scoring(facts, config) + LATE_VALUE * facts.nnz / facts.n_rows)


def _fits(facts: DataFacts, config: RunConfig, times: float) -> float:
    """Return the seconds of so many fits on all held-out rows."""
    fitted = times * config.batching.held_out_rows
    return fitted * (FIT_ROW + facts.row_postings * FIT_POSTING)


PART = Part(
    name=NAME, switch=SWITCHES["counts"], weighed=True, absence="no counts",
    find_obstacle=find_obstacle, list_choices=list_choices, project_bytes=project_bytes,
    project_time=project_time, describe=describe, fit_first=fit_first,
)  # fmt: skip
