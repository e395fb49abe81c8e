"""Counts of (feature, class) pairs beside hashed models of sparse rows, as an optional part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from streammach.counts import footprint as bytes_of
from streammach.counts.footprint import MAX_CLASSES, pair_room
from streammach.counts.pair_learning import scan_pays
from streammach.counts.scores import CountScorer
from streammach.counts.tile import MAX_CLASSES as TILED_CLASSES
from streammach.parts.base import (
    AccuracyDrop,
    Choice,
    Decision,
    Draft,
    Fit,
    Part,
    Session,
    Work,
)
from streammach.parts.counts.ensemble import CountFitter, CountSettings, Ensemble
from streammach.parts.counts.switch import SWITCH
from streammach.parts.counts.watch import MOST_LESSONS
from streammach.prediction.ranking import by_counts
from streammach.spec.config import PartPlan, RunConfig
from streammach.spec.facts import DataFacts
from streammach.spec.training import TrainSpec

# Seconds of one thread of the machine of docs/planner.md.
COUNT = 300e-9  # a value of a row that is counted
FIT_ROW, FIT_POSTING = 300e-6, 2e-9  # a held-out row, and a posting of one, in a fit of weights
# Of pairs that are learnt: a value, one whose candidates are found by short lists, a class and a
# posting where all are summed.
LEARN_VALUE, LISTED_VALUE = 1.5e-6, 0.8e-6
SCANNED_CLASS, POSTING = 1.0e-9, 0.75e-9
FIT = 1.0  # weights of counts for one way to group, whatever the threads
FITS = 3.0  # two whole ones, with pair weights and without, and three ways to group on a half
PASSES = 1.5  # over the rows that pairs are learnt from, on average
# Of a query: a class beside counts, and a repetition of it: where rows are taken together, and
# where they are not, as if no class could be left out.
QUERY_TILE, QUERY_ALONE = (4.4e-9, 0.11e-9), (3.2e-9, 0.75e-9)
MIN_PAIRS = 100_000  # fewer are not worth their pass, where not all fit
FITTED = Fit(  # what hashing loses beside counts
    columns=0.75, power=0.78, repetitions=8.09, buckets=10.84, error=0.77
)
SHARES = {  # a half of the pairs and so on
    2: AccuracyDrop(1.0, 0.5), 4: AccuracyDrop(1.6, 0.8), 8: AccuracyDrop(2.5, 1.2),
}  # fmt: skip
LOST = AccuracyDrop(3.7, 4.0)  # by sparse rows without counts: 8.5, 1.5 and 1.1 were measured


class CountsDecision(Decision):
    """Counts that held-out rows want, or not."""

    def __init__(self, session: Session, spec: TrainSpec, found: Ensemble) -> None:
        super().__init__(reasons=found.reasons, figures=dict(found.validation))
        self._found, self._scorer, self._final = found, None, found.weights
        if found.weights is not None:
            self.counts = found.weights
            threads = session.plan.config.placement.threads
            self._scorer = CountScorer(found.weights, threads)
            self.ranking = by_counts(session.backend, self._scorer, spec.transform)

    def learn_held_out(self) -> None:
        """Count the held-out rows, too."""
        self._final = self._found.whole()

    def finalize(self, draft: Draft) -> None:
        """Put the counts into the model."""
        if self._final is not None:
            draft.ranker, draft.counts = "blend", self._final.compact()

    def close(self) -> None:
        """Give back the threads."""
        if self._scorer is not None:
            self._scorer.close()


class Counts(Part):
    """A table of (feature, class) counts.

    Parameters
    ----------
    settings : CountSettings, optional
        How its weights are fitted.
    """

    name = "counts"
    switch = SWITCH
    weighed = True

    def __init__(self, settings: CountSettings | None = None) -> None:
        self.settings = settings or CountSettings()

    def possible(self, facts: DataFacts, config: RunConfig) -> str | None:
        """Return why pairs cannot be counted."""
        if facts.n_classes >= MAX_CLASSES:
            return "there are too many classes"
        return "rows are dense" if config.dense else None

    def choices(self, facts: DataFacts, config: RunConfig, *, sure: bool) -> Iterator[Choice]:
        """Yield room for all pairs, for a half, a quarter, an eighth, and none."""
        room = pair_room(facts)
        pairs = "pairs of a feature and a class"
        yield self._choice(room, AccuracyDrop(), f"room to count {room:,} {pairs}")
        for share, loss in SHARES.items():
            if room // share >= MIN_PAIRS:
                why = f"room to count {room // share:,} of {room:,} {pairs}"
                yield self._choice(room // share, loss, why)
        if not sure:
            yield Choice(plan=None, loss=LOST, why=f"no counts: {room:,} {pairs} do not fit")

    def _choice(self, n_pairs: int, loss: AccuracyDrop, why: str) -> Choice:
        return Choice(plan=PartPlan(name=self.name, size=n_pairs), loss=loss, why=why, fit=FITTED)

    def without(self, why: str | None) -> Choice:
        """Return the choice to plan without counts."""
        return Choice(plan=None, why=f"no counts: {why}" if why else "no counts, as asked")

    def footprint(self, facts: DataFacts, config: RunConfig) -> dict[str, int]:
        """Return the bytes of counting, fitting and learning."""
        return bytes_of.footprint(
            facts, n_columns=config.shape.n_columns, max_pairs=config.size_of(self.name),
            held_out_rows=config.batching.held_out_rows, threads=config.placement.threads,
        )  # fmt: skip

    def model_bytes(self, config: RunConfig) -> int:
        """Return the bytes of the pairs on disk."""
        return bytes_of.MODEL_BYTES * config.size_of(self.name)

    def work(self, facts: DataFacts, config: RunConfig) -> Work:
        """Return the time of counting, fitting and learning, and of a row's scores."""
        postings, classes = facts.row_postings, config.shape.n_classes
        learnt = facts.nnz * (LEARN_VALUE + LISTED_VALUE)
        if scan_pays(postings):
            learnt = facts.nnz * LEARN_VALUE
            learnt += facts.n_rows * (classes * SCANNED_CLASS + postings * POSTING)
        passes = min(PASSES, MOST_LESSONS / max(facts.n_rows, 1))
        fitted = FITS * config.batching.held_out_rows
        each, summed = QUERY_TILE if classes <= TILED_CLASSES else QUERY_ALONE
        return Work(
            finish=facts.nnz * COUNT + passes * learnt
            + fitted * (FIT_ROW + postings * FIT_POSTING),
            fixed=FITS * FIT,
            scoring=classes * each + classes * config.shape.n_repetitions * summed,
        )  # fmt: skip

    def sampled(self, part: PartPlan, whole: DataFacts, sample: DataFacts) -> PartPlan:
        """Return room for the same share of the pairs."""
        room = pair_room(sample)
        return replace(part, size=int(part.size / max(pair_room(whole), 1) * room))

    def text(self, part: PartPlan) -> str:
        """Return how many pairs there is room for."""
        n = part.size
        return f"{n / 1e6:.3g}M pairs" if n >= 1e6 else f"{n / 1e3:.3g}k pairs"

    def choose(self, session: Session, spec: TrainSpec) -> Decision:
        """Count, fit and learn; say whether it pays on held-out rows."""
        return CountsDecision(
            session, spec, CountFitter(session, spec.transform, self.settings).run()
        )


PART = Counts()
