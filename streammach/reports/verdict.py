"""A run or a sweep in plain words: how often models are right; how large and fast they are."""

from __future__ import annotations

from collections.abc import Iterator

from streammach.errors import clean
from streammach.figures import TopK
from streammach.machine import size_text, time_text
from streammach.model.model import Model, disk_bytes
from streammach.model.size import size_in_memory
from streammach.prediction.diagnose import Diagnosis, ListDiagnosis
from streammach.prediction.queries import QueryTime
from streammach.reports.drawing import percent
from streammach.training.run import Run
from streammach.training.sweep import Sweep

TRAINED = "the rows held out from training"


def verdict(
    run: Run, model: Model, diagnosis: Diagnosis | ListDiagnosis | None = None,
    query: QueryTime | None = None,
) -> tuple[str, ...]:  # fmt: skip
    """Return what a run came to, in sentences; the first one says the most."""
    first, *more = _right(run, model, diagnosis)
    return (
        first,
        *([" ".join(more)] if more else []),
        f"{_size(run, model)}{_query(query)}.",
        f"Training took {time_text(run.result.seconds)} and {size_text(run.result.peak_bytes)} of "
        f"the {size_text(run.plan.limits.host)} of memory that it was allowed.",
    )


def _right(run: Run, model: Model, diagnosis: Diagnosis | ListDiagnosis | None) -> Iterator[str]:
    """Yield how often answers are right, on labelled rows and on held-out ones."""
    among, best = f", among {model.spec.n_classes:,} classes", run.result.best
    held_out = f"{TRAINED} ({clean(run.settings.held_out, 100)})"
    if model.listed:
        among = f", among {model.spec.n_classes:,}"
    if diagnosis is not None:
        rows = f"{diagnosis.n_rows:,} rows of {clean(diagnosis.path, 100)}"
        yield from _figures(diagnosis, f"{rows}{among}", listed=model.listed)
        yield _guessing(diagnosis)
        if best is not None:
            yield f"Of {held_out} {percent(best.accuracy)}% got a right first answer."
    elif best is not None:
        yield from _figures(best, f"{held_out}{among}", listed=model.listed)
    else:
        yield (
            f"A model of {model.spec.n_classes:,} classes, trained without held-out rows: how "
            "often it is right is told by labelled rows (--on STORE)."
        )


def _figures(found: TopK, rows: str, *, listed: bool) -> Iterator[str]:
    first, five = f"{percent(found.accuracy)}%", f"{percent(found.top_5_accuracy)}%"
    if listed:
        yield f"The first answer is a label of the row for {first} (P@1) of {rows}."
        yield f"Of the first five answers {five} (P@5) are."
    else:
        yield f"The first answer is right for {first} of {rows}."
        yield f"The right class is among the first five answers for {five}."


def _guessing(found: Diagnosis | ListDiagnosis) -> str:
    what = "label" if isinstance(found, ListDiagnosis) else "class"
    return (
        f"Always answering the {what} that is most frequent in training would be right for "
        f"{percent(found.majority)}%."
    )


def _size(run: Run, model: Model) -> str:
    disk, memory = size_text(disk_bytes(run.path)), size_text(size_in_memory(model).n_bytes)
    if disk == memory:
        return f"The model takes {disk}, on disk and in memory"
    return f"The model takes {disk} on disk and {memory} in memory"


def _query(query: QueryTime | None) -> str:
    if query is None:
        return ""
    rows = "one row" if query.n_queries == 1 else f"the median of {query.n_queries:,} rows"
    return f"; a query takes {time_text(query.seconds)} on one thread ({rows})"


def sweep_verdict(sweep: Sweep) -> list[str]:
    """Return what the grid came to, in sentences."""
    found = [(point, reached.accuracy) for point in sweep.points
             if (reached := sweep.compared(point))]  # fmt: skip
    if not found:
        return [f"Models that were trained without held-out rows: {len(sweep.points)}."]
    rows = "the test rows" if sweep.tested else "the held-out rows"
    (best, most), (small, least) = max(found, key=lambda x: x[1]), found[0]
    edge = ", ".join(sweep.shape_of(point) for point, _ in found if point.frontier)
    return [
        f"The most accurate of {len(found)} models, {sweep.shape_of(best)} (buckets x repetitions) "
        f"with {size_text(best.model_bytes)}, answers {percent(most)}% of {rows} rightly; the "
        f"smallest, {sweep.shape_of(small)} with {size_text(small.model_bytes)}, "
        f"{percent(least)}%, among {sweep.n_classes:,} classes.",
        f"On the frontier, where no smaller one is better: {edge}.",
    ]
