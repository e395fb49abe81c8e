"""Conversions that are killed, at any time or at a marked point, and started again."""

from benchmarks.faults.operations import KilledAt
from benchmarks.faults.work import GOLDEN, Child, Verdict, spread

MOST_KILLS = 4
BEFORE = 40  # operations before the swap of two stores
FORCED = 0.3  # share of trials that replace an older store


def at_any_time(work, rng, trial):
    """Kill at a time of the work, then up to three more times; then let it finish."""
    more = rng.random(int(rng.integers(MOST_KILLS)) if trial % 2 else 0)
    times = [(trial * GOLDEN + 0.01 * rng.random()) % 1, *more]
    folder = work.new_trial("killed", old=bool(rng.random() < FORCED))
    return _killed(work, folder, times, lambda t: (None, t * work.seconds))


def at_point(work, rng, trial):
    """Kill before an operation, or in the middle of a write.

    Half of the trials are at operations that are no writes, a quarter at those that follow when an
    older store is about to be replaced, a quarter in writes; each has its turn.
    """
    old = trial % 4 == 1
    names = work.forced_operations if old else work.operations
    writes = trial % 4 == 3
    first = names.index("exchange") - BEFORE if old else 0
    points = [k for k, name in enumerate(names) if k >= first and writes == (name == "write")]
    number = trial // 2 if trial % 2 == 0 else trial // 4
    more = rng.integers(len(names), size=rng.integers(3) if rng.integers(2) else 0).tolist()
    folder = work.new_trial("killed", old=old)
    moments = [points[spread(number, len(points))], *more]
    return _killed(work, folder, moments, lambda at: (KilledAt(at), None))


def _killed(work, folder, moments, way):
    old = (folder / "out").exists()
    facts = {"kills": 0, "resumed": 0, "late": 0, "old_store": int(old)}
    for number, moment in enumerate(moments):
        operations, seconds = way(moment)
        child = Child(work, folder, force=old, operations=operations)
        end = child.end(seconds)
        if not end.killed:
            work.judge_answer(end)
            facts["late"] += 1  # it was faster
            break
        facts["kills"] += 1
        work.check_between(folder, f"after kill {number + 1} at {moment:.4g}", old=old)
    facts["resumed"] += bool(work.finish(folder, force=old))
    return Verdict(facts=facts)
