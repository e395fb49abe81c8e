"""Counts and hashed models as one ensemble: fitted on held-out rows, kept where they win there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from streammach.counts.learning import GroupWeights, weigh
from streammach.data.holdout import held_rows
from streammach.figures import Reached, words
from streammach.parts.base import PartSession
from streammach.parts.counts.alone import MIN_FIT_ROWS, CountSettings
from streammach.parts.counts.fitting import (
    Fitted,
    Fitting,
    HashedModels,
    fitted_once,
    reached_text,
)
from streammach.parts.counts.saved import Counted
from streammach.prediction.ranking import by_hashes
from streammach.prediction.reached import measure
from streammach.rows.pairs import CountWeights
from streammach.spec.types import Ranker, Transform

BESIDE = "counts beside models"  # the stage of the run


@dataclass(frozen=True)
class Ensemble:
    """What counts brought."""

    # the scores to use, of rows that are not held out; None where hashed models do better alone
    weights: CountWeights | None
    reasons: tuple[str, ...]  # why, in sentences
    # what was measured on held-out rows that the fit did not see, by name
    validation: dict[Ranker, Reached]
    # counts the held-out rows too; returns the scores to use then, in place of `weights`
    whole: Callable[[], CountWeights | None] = lambda: None


def alone(session: PartSession, counted: Counted) -> Ensemble:
    """Return counts as they are without hashed models."""
    best, both = counted.best, words(session.dataset.listed).both
    reasons = (*counted.reasons, *_pair_reason(counted, best, both))
    weights = weigh(counted.table, best.weights)
    return Ensemble(
        weights, reasons, {"blend": best.reached}, lambda: _whole(session, counted, best)
    )


def beside_hashes(
    session: PartSession, counted: Counted, transform: Transform, settings: CountSettings
) -> Ensemble:
    """Fit the weights of counts beside trained hashed models, and say whether they pay."""
    backend, both = session.backend, words(session.dataset.listed).both
    rows = session.held.rows.labelled
    if counted.fit_rows < MIN_FIT_ROWS:
        reason = f"no counts: {rows.n_rows:,} held-out rows are too few to weigh them"
        return Ensemble(None, (reason,), {})
    fitting = Fitting(
        rows, counted.fit_rows, threads=session.plan.config.placement.threads,
        hashed=HashedModels(backend, transform),
    )  # fmt: skip
    session.begin(BESIDE)
    hashed = session.findings.once(
        "hashed", Reached, lambda: measure(rows, by_hashes(backend, "logsum", transform))
    )

    def fitted(name: str, start: GroupWeights) -> Fitted:
        return fitted_once(session, name, fitting, counted.table, start, settings.factors)[0]

    grouped = fitted("beside", counted.grouped)
    best = learnt = grouped
    if counted.learnt is not counted.grouped:
        session.check()
        session.at(1, 2)
        learnt = fitted("beside-pairs", counted.learnt)
        best = max(grouped, learnt, key=lambda fitted: fitted.reached.selection_score)
    session.tell(
        f"beside hashed models: held-out {both} {reached_text(grouped.reached)}, "
        f"with feature and pair weights {reached_text(learnt.reached)}"
    )
    session.measured("hashed models and counts", best.reached)
    better = best.reached.selection_score > hashed.selection_score
    reasons = (
        *counted.reasons,
        f"feature and pair weights {'left out' if best is grouped else 'kept'}: held-out "
        f"{both} {reached_text(learnt.reached)} with, "
        f"{reached_text(grouped.reached)} without",
        f"counts {'kept' if better else 'left out'}: held-out {both} "
        f"{reached_text(best.reached)} with, {reached_text(hashed)} without",
    )
    validation: dict[Ranker, Reached] = {"logsum": hashed, "blend": best.reached}
    if not better:
        return Ensemble(None, reasons, validation)
    weights = weigh(counted.table, best.weights)
    return Ensemble(weights, reasons, validation, lambda: _whole(session, counted, best))


def _pair_reason(counted: Counted, best: Fitted, both: str) -> tuple[str, ...]:
    """Return what feature and pair weights bring, where they were learnt."""
    if counted.learnt is counted.grouped:
        return ()
    grouped, learnt = map(reached_text, counted.reached)
    kept = "kept" if best.weights is counted.learnt else "left out"
    return (f"feature and pair weights {kept}: held-out {both} {learnt} with, {grouped} without",)


def _whole(session: PartSession, counted: Counted, best: Fitted) -> CountWeights:
    """Count the held-out rows, too; return the scores. No pair is learnt or weighed any more."""
    counted.table.forget_places()
    for rows in held_rows(session.dataset, session.held):
        session.check()
        for repeated, _ in rows.repeated():
            counted.table.add(repeated)
    return weigh(counted.table, best.weights)
