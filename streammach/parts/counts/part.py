"""Counts of (feature, class) pairs beside hashed models of sparse rows, as an optional part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from streammach.counts import footprint as bytes_of
from streammach.counts.footprint import MAX_CLASSES, pair_room
from streammach.counts.pair_learning import scan_pays
from streammach.counts.scores import CountScorer
from streammach.model.shrink import PAIR_BYTES
from streammach.parts.base import Ahead, Decision, Draft, Part, PartSession
from streammach.parts.counts import saved
from streammach.parts.counts.alone import (
    COUNTING,
    LEARNING,
    UNFINISHED,
    USUAL_PASSES,
    WEIGHING,
    WEIGHING_PAIRS,
    CountLearner,
    CountSettings,
)
from streammach.parts.counts.ensemble import BESIDE, Ensemble, alone, beside_hashes
from streammach.parts.counts.saved import Counted
from streammach.parts.counts.watch import MOST_LESSONS
from streammach.parts.expected import AccuracyDrop, Choice, Fit, PartTime
from streammach.parts.switches import SWITCHES
from streammach.prediction.ranking import by_counts
from streammach.rows.pairs import CountWeights
from streammach.spec.config import PartPlan, RunConfig
from streammach.spec.estimators import BLEND
from streammach.spec.facts import DataFacts
from streammach.spec.training import TrainSpec
from streammach.spec.types import Transform

# Seconds of one thread of the machine of docs/planner.md.
COUNT = 110e-9  # a value of a row that is counted
FIT_ROW, FIT_POSTING = 360e-6, 2e-9  # a held-out row, and a posting of one, in a fit of weights
# Of pairs that are learnt: a value, one whose candidates are found by short lists, a class and a
# posting where all are summed.
LEARN_VALUE, LISTED_VALUE = 1.6e-6, 2.3e-6
SCANNED_CLASS, POSTING = 1.0e-9, 0.75e-9
FIT = 1.0  # weights of counts for one way to group, whatever the threads
FITS = 3.0  # two whole ones, with pair weights and without, and three ways to group on a half
FITS_AHEAD, FITS_BESIDE = (0.9, 0.7), 1.4  # the same by stage
ELASTIC = 0.9  # of the fits, where time is short: they see fewer rows
# Of a query: a class beside counts, a repetition of it, and a pair of the row's features.
QUERY_CLASS, QUERY_REPETITION, QUERY_POSTING = 0.5e-9, 0.03e-9, 0.65e-9
MIN_PAIRS = 100_000  # fewer are not worth their pass, where not all fit
FITTED = Fit(  # what hashing loses beside counts
    columns=0.75, power=0.78, repetitions=8.09, buckets=10.84, error=0.77
)
FITTED_LISTS = Fit(columns=1.11, power=0.51, repetitions=1.96, buckets=10.84, error=0.27)
SHARES = {  # a half of the pairs and so on
    2: AccuracyDrop(1.0, 0.5), 4: AccuracyDrop(1.6, 0.8), 8: AccuracyDrop(2.5, 1.2),
}  # fmt: skip
# By counts without hashed models: 1.0, 1.4 and 8.5 were measured on test rows.
ALONE = AccuracyDrop(3.0, 3.0)
LEARNT_BYTES = 8  # of a pair that is learnt, or a feature: its weight and a sum of squares
COPIES = 3  # of what a feature has, while a model becomes smaller
LEARNT_POINTS = 2.0  # that feature and pair weights bring
LOST = AccuracyDrop(3.7, 4.0)  # by sparse rows without counts: 8.5, 1.5 and 1.1 were measured


class CountsDecision(Decision):
    """Counts that held-out rows want, or not; alone, or beside models with a transform."""

    def __init__(
        self, session: PartSession, found: Ensemble, transform: Transform | None = None
    ) -> None:
        super().__init__(reasons=found.reasons, figures=dict(found.validation))
        self._found, self._scorer, self._final = found, None, found.weights
        if found.weights is not None:
            self.counts = found.weights
            scorer = CountScorer(found.weights, session.plan.config.placement.threads)
            self._scorer, self.ranking = scorer, scorer.topk
            if transform is not None:
                self.ranking = by_counts(session.backend, scorer, transform)

    def learn_held_out(self) -> None:
        """Count the held-out rows, too."""
        self._final = self._found.whole()

    def finalize(self, draft: Draft) -> None:
        """Put the counts into the model."""
        if self._final is not None:
            draft.ranker, draft.counts = BLEND, self._final.compact()

    def close(self) -> None:
        """Give back the threads."""
        if self._scorer is not None:
            self._scorer.close()


@dataclass(frozen=True)
class CountsAhead:
    """Counts with weights of their own."""

    counted: Counted

    @property
    def beside_seconds(self) -> float:
        """Seconds that fits beside hashed models should take: two, of more candidates."""
        return 3 * self.counted.fit_seconds

    @property
    def unfinished(self) -> tuple[str, ...]:
        """Names under which arrays are kept until it is written."""
        return UNFINISHED

    @property
    def measured(self) -> dict[str, float]:
        """Seconds of stages to come, by what those before them took."""
        return {BESIDE: self.beside_seconds} if self.counted.fit_seconds else {}

    @property
    def named(self) -> dict[str, int]:
        """The fields of TrainingOptions that do the same without a limit of time."""
        return {"fit_rows": self.counted.fit_rows, "pair_rows": self.counted.pair_rows}

    def save(self, folder: Path, identity: str) -> None:
        """Write it into a folder, which appears whole, or raise DiskError."""
        saved.save(self.counted, folder, identity)

    def decision(self, session: PartSession) -> Decision:
        """Return it as what ranks classes, without hashed models."""
        return CountsDecision(session, alone(session, self.counted))


class Counts(Part):
    """A table of (feature, class) counts."""

    name = "counts"
    switch = SWITCHES["counts"]
    weighed = True
    ranks_alone = True

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
        yield self._choice(facts, room, AccuracyDrop(), f"room to count {room:,} {pairs}")
        for share, loss in SHARES.items():
            if room // share >= MIN_PAIRS:
                why = f"room to count {room // share:,} of {room:,} {pairs}"
                yield self._choice(facts, room // share, loss, why)
        if not sure:
            yield Choice(plan=None, loss=LOST, why=f"no counts: {room:,} {pairs} do not fit")

    def _choice(self, facts: DataFacts, n_pairs: int, loss: AccuracyDrop, why: str) -> Choice:
        plan, fit = PartPlan(name=self.name, size=n_pairs), FITTED_LISTS if facts.listed else FITTED
        return Choice(plan=plan, loss=loss, why=why, fit=fit, alone=ALONE)

    def without(self, why: str | None) -> Choice:
        """Return the choice to plan without counts."""
        return Choice(plan=None, why=f"no counts: {why}" if why else "no counts, as asked")

    def footprint(self, facts: DataFacts, config: RunConfig) -> dict[str, int]:
        """Return the bytes of counting, fitting and learning."""
        return bytes_of.footprint(
            facts, n_repetitions=config.shape.n_repetitions, max_pairs=config.size_of(self.name),
            held_out_rows=config.batching.held_out_rows, threads=config.placement.threads,
        )  # fmt: skip

    def judged_bytes(self, facts: DataFacts, config: RunConfig) -> int:
        """Return the bytes of counts and of those of a form."""
        return bytes_of.judged(
            facts, n_repetitions=config.shape.n_repetitions, max_pairs=config.size_of(self.name),
            threads=config.placement.threads,
        )  # fmt: skip

    def smaller_bytes(self, facts: DataFacts, config: RunConfig) -> int:
        """Return the bytes of the pairs of a model, and of those of a smaller one."""
        n_pairs, n_features = config.size_of(self.name), facts.n_features
        held = (bytes_of.MODEL_BYTES + PAIR_BYTES) * n_pairs
        return held + COPIES * CountWeights.footprint(features=n_features) if n_pairs else 0

    def model_bytes(self, config: RunConfig) -> int:
        """Return the bytes of the pairs on disk."""
        return bytes_of.MODEL_BYTES * config.size_of(self.name)

    def kept_bytes(self, facts: DataFacts, config: RunConfig) -> int:
        """Return the bytes of counts, and of their model, until hashed models are trained.

        Without these, of counts and of what is learnt of them, until the model is written.
        """
        n_pairs = config.size_of(self.name)
        kept = saved.disk_bytes(n_pairs, facts.n_features, facts.n_classes)
        if config.shape.unhashed:
            return kept + LEARNT_BYTES * (n_pairs + facts.n_features)
        return kept + self.model_bytes(config) + facts.names_bytes

    def work(self, facts: DataFacts, config: RunConfig) -> PartTime:
        """Return the time of counting, fitting and learning, and of a row's scores."""
        classes, learnt = config.shape.n_classes, _learning(facts, config)
        fits = _fits(facts, config, FITS)
        each = QUERY_CLASS + config.shape.n_repetitions * QUERY_REPETITION
        return PartTime(
            finish=facts.nnz * COUNT + learnt + fits, fixed=FITS * FIT,
            elastic=learnt + ELASTIC * fits, elastic_fixed=ELASTIC * FITS * FIT,
            elastic_points=LEARNT_POINTS,
            scoring=classes * each + facts.row_postings * QUERY_POSTING,
        )  # fmt: skip

    def stages_ahead(self, facts: DataFacts, config: RunConfig, scale: float) -> dict[str, float]:
        """Return the seconds of counting, weighing, learning and weighing again."""
        first, second = (FIT * n + _fits(facts, config, n) * scale for n in FITS_AHEAD)
        return {
            COUNTING: facts.nnz * COUNT * scale, WEIGHING: first,
            LEARNING: _learning(facts, config) * scale, WEIGHING_PAIRS: second,
        }  # fmt: skip

    def stages(self, facts: DataFacts, config: RunConfig, scale: float) -> dict[str, float]:
        """Return the seconds of the fits beside hashed models, if there are any."""
        if config.shape.unhashed:
            return {}
        return {BESIDE: FIT * FITS_BESIDE + _fits(facts, config, FITS_BESIDE) * scale}

    def sampled(self, part: PartPlan, whole: DataFacts, sample: DataFacts) -> PartPlan:
        """Return room for the same share of the pairs."""
        room = pair_room(sample)
        return replace(part, size=int(part.size / max(pair_room(whole), 1) * room))

    def text(self, part: PartPlan) -> str:
        """Return how many pairs there is room for."""
        n = part.size
        return f"{n / 1e6:.3g}M pairs" if n >= 1e6 else f"{n / 1e3:.3g}k pairs"

    def work_ahead(self, session: PartSession) -> Ahead:
        """Count, fit and learn."""
        return CountsAhead(CountLearner(session, self.settings).run())

    def reopened(self, session: PartSession, folder: Path, identity: str) -> Ahead | None:
        """Return the counts that were saved, or None."""
        shape = session.plan.config.shape
        found = saved.load(folder, identity, shape.n_features, shape.n_classes)
        return None if found is None else CountsAhead(found)

    def choose(self, session: PartSession, spec: TrainSpec) -> Decision:
        """Fit the counts beside hashed models; say whether they pay on held-out rows."""
        ahead = session.ahead[self.name]
        assert isinstance(ahead, CountsAhead)
        found = beside_hashes(session, ahead.counted, spec.transform, self.settings)
        return CountsDecision(session, found, spec.transform)


def _learning(facts: DataFacts, config: RunConfig) -> float:
    """Return the seconds in which pairs are learnt."""
    postings = facts.row_postings
    learnt = facts.nnz * (LEARN_VALUE + LISTED_VALUE)
    if scan_pays(postings):
        learnt = facts.nnz * LEARN_VALUE
        learnt += facts.n_rows * (config.shape.n_classes * SCANNED_CLASS + postings * POSTING)
    return min(USUAL_PASSES, MOST_LESSONS / max(facts.n_rows, 1)) * learnt


def _fits(facts: DataFacts, config: RunConfig, times: float) -> float:
    """Return the seconds of so many fits on all held-out rows."""
    fitted = times * config.batching.held_out_rows
    return fitted * (FIT_ROW + facts.row_postings * FIT_POSTING)


PART = Counts()
