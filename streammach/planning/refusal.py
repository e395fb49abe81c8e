"""What a plan that does not fit says: its bytes, its largest terms, and what would fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from streammach.errors import BudgetError
from streammach.jit import TRAINING_COMPILER_BYTES, compiler_bytes
from streammach.machine import advised, size_text, time_text
from streammach.parts.registry import weighed_parts
from streammach.planning.candidates import Candidate, Weighing, candidates
from streammach.planning.constraints import Constraints
from streammach.planning.ledger import kernels
from streammach.spec.ledger import bytes_in
from streammach.spec.plan import Option

NOTHING_DONE = "Nothing was allocated"


def refused(weighing: Weighing, weighed: Sequence[Candidate]) -> BudgetError:
    """Return the error of a plan that does not fit."""
    allowed, constraints = weighing.limits, weighing.constraints
    least = min(weighed, key=lambda c: allowed.overshoot(c.lines))
    shape = least.option.shape
    within_memory = [c.option for c in weighed if c.option.fits]
    if within_memory:
        return _too_slow(constraints, within_memory)
    where, n_bytes, source = allowed.violated(least.lines)
    terms = [line for line in least.lines if line.where == where][:3]
    named = ", ".join(f"{line.name} {size_text(line.n_bytes)}" for line in terms)
    what = (
        f"{shape} does not fit: it"
        if constraints.shaped
        else f"no plan fits: the smallest ({shape})"
    )
    needed = bytes_in(least.lines, where)
    more = compiler_bytes(
        *kernels(weighing.facts, least.option.config), n_bytes=TRAINING_COMPILER_BYTES
    )
    advice = (
        f"use --memory {advised(needed + (where == 'host') * more)} or more"
        if where == allowed.where
        else "free some"
    )
    return BudgetError(
        f"{what} needs {size_text(needed)}: {named}",
        path=f"{size_text(n_bytes)} ({source})",
        hint=f"{NOTHING_DONE}; {_nearest(weighing)}{advice}.",
    )


def _too_slow(constraints: Constraints, fitting: Sequence[Option]) -> BudgetError:
    """Return the error of a limit of time that nothing which fits the budget keeps."""
    limit = constraints.seconds
    in_time = [o for o in fitting if limit is None or o.seconds <= limit]
    if not in_time:
        fast = min(fitting, key=lambda o: o.seconds)
        what, most, least, name = "no plan takes", limit, fast.seconds, "--time"
    else:
        fast = min(in_time, key=lambda o: o.query_seconds)
        what, name = "no plan answers a query in", "--latency"
        most, least = constraints.query_seconds, fast.query_seconds
    return BudgetError(
        f"{what} {time_text(most or 0.0)} or less: the fastest, {fast.shape}, is "
        f"expected to take {time_text(least)}",
        path=name,
        hint=f"{NOTHING_DONE}; allow more time.",
    )


def _nearest(weighing: Weighing) -> str:
    """Return one or two plans that fit where B and R were asked for, if there are any."""
    constraints = weighing.constraints
    if not constraints.shaped:
        return ""
    free = replace(constraints, n_buckets=None, n_repetitions=None, exact=False)
    roomy = replace(weighing.limits, spare=TRAINING_COMPILER_BYTES)
    found = candidates(replace(weighing, constraints=free, limits=roomy))
    fitting = [c.within(constraints.seconds).option for c in found if c.option.fits]
    if not fitting:
        return ""
    same = [o for o in fitting if o.shape.n_buckets == constraints.n_buckets]
    picked = [min(fitting, key=lambda o: o.loss)]
    if same:
        picked.append(max(same, key=lambda o: (
            o.shape.n_repetitions, tuple(part.size for part in weighed_parts(o.config))
        )))  # fmt: skip
    texts = {f"{o.shape} ({size_text(o.projected_bytes)})": None for o in picked}
    return f"these fit: {', '.join(texts)}; or "
