"""Conversions on a disk that is full or broken from one operation on, or for one operation."""

import errno

from benchmarks.faults.operations import SHORT, Failing, able
from benchmarks.faults.work import Child, Failed, Verdict, spread
from streammach.errors import DiskError

WAYS = [
    (number, sticky, old)
    for number in (errno.ENOSPC, errno.EIO, SHORT)
    for sticky in (True, False)
    for old in (False, True)
]


def failing(work, rng, trial):
    """Let one operation fail, or all from one on; then the same command with a sound disk."""
    number, sticky, old = WAYS[trial % len(WAYS)]
    names = work.forced_operations if old else work.operations
    n_able = sum(name in able(number) for name in names)
    at = spread(trial // len(WAYS), n_able)
    short = number == errno.ENOSPC and bool(rng.integers(2))
    operations = Failing(at, number, sticky=sticky, short=short)
    folder = work.new_trial("disk", old=old)
    end = Child(work, folder, force=old, operations=operations).end()
    answer = work.judge_answer(end)
    fault = errno.errorcode.get(number, "short write") + (" from" if sticky else " at")
    what = f"{fault} {at} of {n_able}"
    facts = {"refused": 0, "unharmed": 0, "resumed": 0, "old_store": int(old)}
    if answer["code"] == DiskError.exit_code and answer["raised"] == "DiskError":
        facts["refused"] = 1
    elif answer["code"]:
        raise Failed(
            "crashed", f"{what}: {answer['raised']}, code {answer['code']}: {answer['err']}"
        )
    else:  # half a write, or what was not needed: a lock's removal, a swap (two renames do it)
        facts["unharmed"] = 1
        work.check(folder, f"{what}: it said that all was well")
    work.check_between(folder, what, old=old)
    if answer["code"] or old:
        facts["resumed"] += bool(work.finish(folder, force=old))
    return Verdict(facts=facts)
