"""What a plan that does not fit says: its bytes, its largest terms, and what would fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from streammach.errors import BudgetError
from streammach.machine import advised, size_text, time_text
from streammach.planning.ledger import bytes_in
from streammach.planning.limits import Limits
from streammach.planning.options import Asked, Candidate, candidates
from streammach.spec import DataFacts, Option

NOTHING_DONE = "Nothing was allocated"


def refused(
    facts: DataFacts,
    asked: Asked,
    weighed: Sequence[Candidate],
    allowed: Limits,
    speed: float,
) -> BudgetError:
    """Return the error of a plan that does not fit.

    Parameters
    ----------
    facts : DataFacts
        The store.
    asked : Asked
        What was fixed.
    weighed : sequence of Candidate
        What was weighed: B and R as asked for, or all.
    allowed : Limits
        What may be used.
    speed : float
        How many times as fast as the reference machine a thread is.

    Returns
    -------
    BudgetError
        What the smallest plan or the one asked for needs, its largest terms, and what would fit.
    """
    least = min(weighed, key=lambda c: allowed.excess(c.lines))
    shape = facts.shape_of(least.option)
    within_memory = [c.option for c in weighed if c.option.fits]
    if within_memory:
        return _too_slow(facts, asked, within_memory)
    where, n_bytes, source = allowed.broken(least.lines)
    terms = [line for line in least.lines if line.where == where][:3]
    named = ", ".join(f"{line.name} {size_text(line.n_bytes)}" for line in terms)
    what = f"{shape} does not fit: it" if asked.shaped else f"no plan fits: the smallest ({shape})"
    needed = bytes_in(least.lines, where)
    advice = f"use --memory {advised(needed)} or more" if where == allowed.where else "free some"
    return BudgetError(
        f"{what} needs {size_text(needed)}: {named}",
        path=f"{size_text(n_bytes)} ({source})",
        hint=f"{NOTHING_DONE}; {_nearest(facts, asked, allowed, speed)}{advice}.",
    )


def _too_slow(facts: DataFacts, asked: Asked, fitting: Sequence[Option]) -> BudgetError:
    """Return the error of a limit of time that nothing which fits the budget keeps."""
    in_time = [o for o in fitting if asked.seconds is None or o.seconds <= asked.seconds]
    if not in_time:
        fast = min(fitting, key=lambda o: o.seconds)
        what, most, least, name = "no plan takes", asked.seconds, fast.seconds, "--time"
    else:
        fast = min(in_time, key=lambda o: o.query_seconds)
        what, most, least = "no plan answers a query in", asked.query_seconds, fast.query_seconds
        name = "--latency"
    return BudgetError(
        f"{what} {time_text(most or 0.0)} or less: the fastest, {facts.shape_of(fast)}, is "
        f"expected to take {time_text(least)}",
        path=name,
        hint=f"{NOTHING_DONE}; allow more time.",
    )


def _nearest(facts: DataFacts, asked: Asked, allowed: Limits, speed: float) -> str:
    """Return one or two plans that fit where B and R were asked for, if there are any."""
    if not asked.shaped:
        return ""
    free = replace(asked, n_buckets=None, n_repetitions=None, exact=False)
    fitting = [c.option for c in candidates(facts, free, allowed, speed) if c.option.fits]
    if not fitting:
        return ""
    same = [o for o in fitting if o.n_buckets == asked.n_buckets]
    picked = [min(fitting, key=lambda o: o.loss)]
    picked += [max(same, key=lambda o: (o.n_repetitions, o.max_pairs))] if same else []
    texts = {f"{facts.shape_of(o)} ({size_text(o.projected_bytes)})": None for o in picked}
    return f"these fit: {', '.join(texts)}; or "
