"""Whether a conversion survives kills, a store's damage is seen, and a broken disk is said.

    python -m benchmarks.faults.run [--kills 200] [--points 600] [--flips 300] [--damages 110]
                                    [--disk 400] [--seed 0] [--folder DIR] [--json FILE]
    python -m benchmarks.faults.run --only points --seed 0 --trial 17   # one trial again
    python -m benchmarks.faults.run --only flips --mutant checksums     # must fail

- kills: SIGKILL at times spread over a conversion, up to four in a row;
- points: SIGKILL before, in the middle of, or after one operation that changes files;
- flips: one bit of any file of a store;
- damages: files cut, emptied, deleted, grown, zeroed, exchanged, of another store, linked, added;
  chunks exchanged;
- disk: ENOSPC or EIO from one operation on, or at one of them.

After kills and disks the same command is given again, undisturbed: every byte of the store and of
the list of skipped rows is that of an undisturbed conversion, `verify --deep` finds nothing, and
nothing lies beside. Damage must be found by `verify --deep`, and no read may return anything else
than what was stored. Exits with 1 unless all trials pass.
"""

import collections
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.faults import disk, flips, kills, mutants
from benchmarks.faults.work import VERDICTS, Failed, Work
from benchmarks.machine_facts import facts, parser, report

KINDS = {
    "kills": (kills.at_any_time, 200), "points": (kills.at_point, 600),
    "flips": (flips.flipped, 300), "damages": (flips.misplaced, 110), "disk": (disk.failing, 400),
}  # fmt: skip
ON_STORES = ("flips", "damages")
MOST_FAILURES = 20  # described in the figures


def main():
    arguments = parser(__doc__)
    for name, (_, number) in KINDS.items():
        arguments.add_argument(f"--{name}", type=int, default=number, metavar="N")
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--only", choices=KINDS, help="one kind")
    arguments.add_argument("--trial", type=int, help="one trial of it")
    arguments.add_argument("--folder", help="on the disk that is meant; a temporary one otherwise")
    arguments.add_argument("--mutant", choices=mutants.MUTANTS, help="take a protection away")
    options = arguments.parse_args()
    if options.trial is not None and not options.only:
        arguments.error("--trial needs --only")
    figures = {"seed": options.seed, "cases": {}, "machine": facts("filelock")}
    if options.mutant:
        mutants.MUTANTS[options.mutant]()
        figures["mutant"] = options.mutant
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        chosen = {name: numbers for name in KINDS if (numbers := _numbers(options, name))}
        # The stores first: what is then changed for small runs is too small for theirs.
        stores = work = None
        if any(name in ON_STORES for name in chosen):
            stores = flips.Stores(_made(folder, "stores"), options.seed)
        if any(name not in ON_STORES for name in chosen):
            work = Work(_made(folder, "work"), options.seed)
            figures["conversion"] = described(work)
            print(json.dumps(figures["conversion"]))
        for name, numbers in chosen.items():
            place = stores if name in ON_STORES else work
            figures["cases"][name] = trials(name, KINDS[name][0], place, numbers, options.seed)
    report(figures, options.json)
    return int(any(case["passed"] < case["trials"] for case in figures["cases"].values()))


def _numbers(options, name):
    """Return the numbers of the trials of a kind that are asked for."""
    if options.only not in (None, name):
        return range(0)
    return range(getattr(options, name)) if options.trial is None else [options.trial]


def trials(name, call, place, numbers, seed):
    """Do trials; return how many passed, what the others came to, and facts added up."""
    began = time.perf_counter()
    verdicts, seen, failures = collections.Counter(), collections.Counter(), []
    for trial in numbers:
        rng = np.random.default_rng([seed, list(KINDS).index(name), trial])
        try:
            verdict = call(place, rng, trial)
            verdicts[verdict.name] += 1
            seen.update(verdict.facts)
        except Failed as failure:
            verdicts[failure.name] += 1
            failures.append({"trial": trial, "verdict": failure.name, "why": failure.why})
            print(f"{name} {trial}: {failure.name}: {failure.why}")
        for folder in ("killed", "disk"):
            shutil.rmtree(place.folder / folder, ignore_errors=True)
    figures = {
        "trials": len(numbers), **{name: verdicts[name] for name in VERDICTS}, **seen,
        "seconds": round(time.perf_counter() - began, 1),
    }  # fmt: skip
    print(name, ", ".join(f"{value} {key}" for key, value in figures.items() if value))
    return figures | ({"failures": failures[:MOST_FAILURES]} if failures else {})


def described(work):
    """What the conversion is that is disturbed."""
    return {
        "runs": work.n_runs, "ranges": work.n_ranges, "seconds": round(work.seconds, 3),
        "operations": len(work.operations),
        "by_name": dict(collections.Counter(work.forced_operations)),
        "store_bytes": sum(map(len, work.files.values())),
    }  # fmt: skip


def _made(folder, name):
    path = Path(folder) / name
    path.mkdir()
    return path


if __name__ == "__main__":
    sys.exit(main())
