"""Whether odd shapes of data keep every command within its budget.

    python -m tests.campaigns.shapes [--large] [--only NAME ...] [--memory 600MB] [--folder DIR]
                                     [--json FILE]

Rows without values, a value in a hundred rows, rows of hundreds of thousands of values, classes by
the million, names of a kilobyte, dense rows of 50,000 columns: each is converted, trained on,
evaluated, predicted, shrunk and reported, every command as a user starts it, with a budget. With
--large, three hundred small rows and one of millions of features, a cell of eight megabytes, one
that is too large to be read, or many large cells that take next to nothing in their file: in each
container, and converted alone. Where a command refuses its budget, it is given the one that its
refusal names, once (twice with --large): to be refused again is a failure. The kernel says how much
memory the process took at most (ru_maxrss); a command that took more than its budget, or more than
it projected, has failed. Exits with 1 if one did.
"""

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

from benchmarks.machine_facts import facts, parser, report
from streammach.system.machine import parse_size
from tests.campaigns.trials import ROOT

COMMANDS = ("convert", "train", "evaluate", "predict", "shrink", "report")
TRAIN = ("--buckets", "16", "--repetitions", "4", "--epochs", "1")
NEEDED = re.compile(r"--memory (\d+(?:\.\d+)?[kMGT]?B)")
DOES_NOT_FIT = 6
WARM = (
    "few rows", "dense, few rows", "HDF5, CSR", "HDF5, dense", "AnnData", "npz",
    "labels of 200 bytes", "importances", "classes chosen by the plan",
)  # fmt: skip
FILES = (sys.executable, "-m", "tests.campaigns.shape_files")


def main():
    arguments = parser(__doc__)
    # What makes files is large, and the kernel counts the parent's memory at the start of a child.
    known = json.loads(subprocess.run(FILES, capture_output=True, check=True, cwd=ROOT).stdout)
    arguments.add_argument("--large", action="store_true", help="one huge row or cell in each")
    arguments.add_argument("--only", nargs="+", choices=known, help="these shapes")
    arguments.add_argument("--memory", help="the budget that is tried first (600MB; large: 450MB)")
    arguments.add_argument("--folder", help="where the files go; a temporary folder otherwise")
    options = arguments.parse_args()
    memory = options.memory or ("450MB" if options.large else "600MB")
    chosen = options.only or [n for n, more in known.items() if more["large"] == options.large]
    # Kernels are compiled first, by other processes, whose memory is not meant.
    for name in () if options.large else WARM:
        shape(name, known[name], options.folder, "3GB")
    trials = [one for name in chosen for one in shape(name, known[name], options.folder, memory)]
    figures = {"trials": trials, "ratios": ratios(trials), "machine": facts("psutil")}
    for command, found in figures["ratios"].items():
        print(f"{command:<10}{found}")
    failed = [t for t in trials if t["failed"]]
    print(f"{len(trials)} trials, {len(failed)} failed")
    report(figures, options.json)
    return int(bool(failed))


def shape(name, more, place, memory):
    with tempfile.TemporaryDirectory(dir=place) as folder:
        made = subprocess.run([*FILES, name, folder], capture_output=True, check=True, cwd=ROOT)
        return done(name, more, json.loads(made.stdout), folder, memory)


def done(name, more, source, folder, memory):
    rows = ["--on", "a.zarr"]
    given = {
        "convert": [*source, "a.zarr", *more.get("convert", ())],
        "train": ["a.zarr", "--out", "run", *more.get("train", TRAIN)],
        "evaluate": ["run", "a.zarr"],
        "predict": ["run", source[0], "--out", "out.tsv", *more.get("predict", ())],
        "shrink": ["run", "--out", "small", *rows],
        "report": ["run", *rows],
    }
    found = []
    for command in ("convert",) if more["large"] else COMMANDS:
        trial = {"shape": name, "command": command}
        trial |= tried([command, *given[command]], folder, memory, most=1 + 2 * more["large"])
        print(json.dumps(trial), flush=True)
        found.append(trial)
        if trial["code"] and command in ("convert", "train"):
            break
    return found


def tried(command, folder, memory, *, most):
    """Start a command with a budget, and with the one it names where that is too little."""
    began = time.perf_counter()
    refused, over = 0, False
    while True:
        code, said, peak = started([*command, "--memory", memory, "--json"], folder)
        budget = parse_size(memory)
        over |= peak > budget
        better = NEEDED.search(json.dumps(said)) if code == DOES_NOT_FIT else None
        if not better or refused == most:
            break
        refused, memory = refused + 1, better[1]
    projected = said.get("projected_bytes")
    failed = bool(code) or over or (projected is not None and peak > projected)
    return {
        "code": code, "refused": refused, "budget": budget, "projected": projected, "peak": peak,
        "stated": said.get("peak_bytes"), "of_budget": round(peak / budget, 3),
        "of_projected": round(peak / projected, 3) if projected else None,
        "seconds": round(time.perf_counter() - began, 1), "failed": failed,
        **({"said": said} if code else {}),
    }  # fmt: skip


def started(command, folder):
    """Run a command; return its exit code, its JSON object, and the most bytes that it held."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "streammach", *command, "--progress", "none"],
            cwd=folder, stdout=out, stderr=err, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        text = out.read().decode()
        try:
            said = json.loads(text)
        except ValueError:
            said = {"stdout": text[-300:], "stderr": err.read().decode()[-600:]}
    return process.returncode, said, used.ru_maxrss * 1024


def ratios(trials):
    """Return by command: trials, and measured of projected bytes, least, median and most."""
    found = {}
    for command in COMMANDS:
        mine = [t for t in trials if t["command"] == command]
        values = [t["of_projected"] or t["of_budget"] for t in mine if not t["code"]]
        if values:
            found[command] = {
                "trials": len(mine), "failed": sum(t["failed"] for t in mine),
                "min": min(values), "median": statistics.median(values), "max": max(values),
            }  # fmt: skip
    return found


if __name__ == "__main__":
    sys.exit(main())
