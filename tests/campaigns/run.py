"""Whether a conversion survives kills, a store's damage is seen, and a broken disk is said.

    python -m tests.campaigns.run [--kills 200] [--points 600] [--flips 300] [--damages 110]
                                  [--disk 400] [--destinations N] [--signals 200] [--streams N]
                                  [--sources 480] [--content 2000] [--forced 300]
                                  [--tables 1000] [--only KIND ...] [--seed 0]
                                  [--folder DIR] [--json FILE]
    python -m tests.campaigns.run --only points --seed 0 --trial 17   # one trial again
    python -m tests.campaigns.run --only flips --mutant checksums     # must fail

- kills: SIGKILL at times spread over a conversion, up to four in a row;
- points: SIGKILL before, in the middle of, or after one operation that changes files;
- flips: one bit of any file of a store;
- damages: files cut, emptied, deleted, grown, zeroed, exchanged, of another store, linked, added;
  chunks exchanged;
- disk: ENOSPC or EIO from one operation on, or at one of them;
- destinations: every command that writes, with everything that can stand where it is to write;
- signals: every command that takes a while, sent SIGINT, SIGTERM or SIGHUP, once or twice, to the
  parent alone or to its group, or SIGKILL to the parent;
- streams: the same commands without a standard stream, or with one whose other end goes, and with
  signals that they were started to ignore;
- sources: files of six formats that are cut, grow, are replaced, written to, touched or removed
  while they are converted, before an interrupted conversion goes on, or before `fit` uses its store
  again;
- content: stores, models, runs and matrices whose documents and arrays were changed at
  random, most with the right checksums, led through several commands with a budget;
- tables: Arrow and Parquet files with changed bytes, converted;
- forced: commands that replace a former result with `--force`, killed as in `points`: it stays
  until the new one is whole, and what was killed ends with the bytes of an undisturbed command.

After kills and disks the same command is given again, undisturbed: every byte of the store and of
the list of skipped rows is that of an undisturbed conversion, `verify --deep` finds nothing, and
nothing lies beside. Damage must be found by `verify --deep`, and no read may return anything else
than what was stored. Nothing that streammach did not make may be gone or changed after a command,
and nothing lies there after a refusal. Of a command that was sent a signal no process runs 2
seconds after its end, nothing is said but a line, no temporary file stays (after a second signal,
which ends it at once, until the next command), and the same command given again makes the bytes of
an undisturbed one. Of a source that changes a store is made of what
it held before or holds now, and says so, or none. Exits with 1 unless all trials pass.
"""

import collections
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.machine_facts import facts, parser, report
from tests.campaigns import (
    changed_tables,
    content,
    conversions,
    damage,
    destinations,
    disturbances,
    forced,
    mutants,
    signals,
    sources,
)
from tests.campaigns.conversions import Conversion
from tests.campaigns.trials import VERDICTS, Failed

# By name: what does a trial, how many there are, and where; a new one goes to the end, or the
# trials of others are no longer those of their numbers.
KINDS = {
    "kills": (conversions.at_any_time, 200, Conversion),
    "points": (conversions.at_point, 600, Conversion),
    "flips": (damage.flipped, 300, damage.Stores),
    "damages": (damage.misplaced, 110, damage.Stores),
    "disk": (conversions.failing, 400, Conversion),
    "destinations": (destinations.written, destinations.N_CASES, destinations.Destinations),
    "signals": (signals.signalled, 200, signals.Signals),
    "streams": (signals.streamed, disturbances.N_STREAMS, signals.Signals),
    "sources": (sources.changed, 480, sources.Sources),
    "content": (content.mutated, 2000, content.Contents),
    "tables": (changed_tables.changed, 1000, changed_tables.Tables),
    "forced": (forced.killed, 300, forced.Forced),
}
MOST_FAILURES = 20  # described in the figures


def main():
    arguments = parser(__doc__)
    for name, (_, number, _) in KINDS.items():
        arguments.add_argument(f"--{name}", type=int, default=number, metavar="N")
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--only", choices=KINDS, nargs="+", help="these kinds")
    arguments.add_argument("--trial", type=int, help="one trial of them")
    arguments.add_argument("--folder", help="on the disk that is meant; a temporary one otherwise")
    arguments.add_argument("--mutant", choices=mutants.MUTANTS, help="take a protection away")
    options = arguments.parse_args()
    if options.trial is not None and not options.only:
        arguments.error("--trial needs --only")
    figures = {"seed": options.seed, "cases": {}, "machine": facts("filelock")}
    if options.mutant:
        mutants.MUTANTS[options.mutant]()
        figures["mutant"] = options.mutant
    # Conversions are the last, for they change sizes for all.
    chosen = sorted(options.only or KINDS, key=lambda name: KINDS[name][2] is Conversion)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        places = {}
        for name in chosen:
            call, _, kind = KINDS[name]
            if kind not in places:
                place = Path(folder, kind.__name__.lower())
                place.mkdir()
                places[kind] = kind(place, options.seed)
                if kind is Conversion:
                    figures["conversion"] = places[kind].facts()
                    print(json.dumps(figures["conversion"]))
            number = getattr(options, name)
            numbers = range(number) if options.trial is None else [options.trial]
            done = trials(name, call, places[kind], numbers, options.seed)
            figures["cases"][name] = done | getattr(places[kind], "summary", dict)()
    report(figures, options.json)
    return int(any(case["passed"] < case["trials"] for case in figures["cases"].values()))


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
        for folder in ("killed", "disk", "trial"):
            shutil.rmtree(place.folder / folder, ignore_errors=True)
    figures = {
        "trials": len(numbers), **{name: verdicts[name] for name in VERDICTS}, **seen,
        "seconds": round(time.perf_counter() - began, 1),
    }  # fmt: skip
    print(name, ", ".join(f"{value} {key}" for key, value in figures.items() if value))
    return figures | ({"failures": failures[:MOST_FAILURES]} if failures else {})


if __name__ == "__main__":
    sys.exit(main())
