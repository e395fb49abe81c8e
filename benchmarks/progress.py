"""How honest progress is: silence, and the time left that was said when half of a run was done.

``python -m benchmarks.progress STORE... [--settings small|default] [--json FILE]``: each store is
trained on with each of some settings, with ``--progress json``, and every line is timed as it
comes. Said and true time left are compared twice: when half of the time was over, and when half of
the work was, by the processor time of the command and its children. The second does not change with
what other processes do meanwhile: what was said is compared as a multiple of the time until then,
and 1 would be right.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

SETTINGS = {
    "default": [[]],
    "small": [
        [], ["--counts", "off"], ["--buckets", "32", "--repetitions", "4"],
        ["--buckets", "64", "--repetitions", "2", "--epochs", "10"],
        ["--learning-rate", "0.5", "--transform", "binary"], ["--model-size", "full"],
        ["--repetitions", "0"],
    ],
}  # fmt: skip
REFUSED = (2, 6)  # settings that do not go with a store, or do not fit


@dataclass(frozen=True)
class Line:
    """A line of progress: when it came, processor time until then, what it said."""

    at: float
    processor: float
    stage: str
    left: float | None


def processor_of(process: psutil.Process) -> float:
    """Return the processor time of a process and its children, those that are gone included."""
    try:
        own = process.cpu_times()
        found = own.user + own.system + own.children_user + own.children_system
        for child in process.children(recursive=True):
            times = child.cpu_times()
            found += times.user + times.system
    except psutil.Error:
        return 0.0
    return found


def watched(command: list[str]) -> tuple[list[Line], float] | None:
    """Run a command; return its lines of progress and its seconds, None where it is refused."""
    began = time.monotonic()
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    ) as run:
        lines, process, most = [], psutil.Process(run.pid), 0.0
        for text in run.stderr:
            most = max(most, processor_of(process))
            if not text.startswith("{"):
                continue
            said = json.loads(text)
            if said["event"] == "progress" and "stage" in said:
                now = time.monotonic() - began
                lines.append(Line(now, most, said["stage"], said["left_seconds"]))
    if run.returncode in REFUSED:
        return None
    if run.returncode:
        raise SystemExit(f"{' '.join(command)} failed with {run.returncode}")
    return lines, time.monotonic() - began


def judged(lines: list[Line], seconds: float) -> dict[str, object]:
    """Return the longest silence, and what was said at half of the time and of the work."""
    times = [0.0, *(line.at for line in lines), seconds]
    silences = [b - a for a, b in itertools.pairwise(times)]
    said = [line for line in lines if line.left is not None]
    half = min(said, key=lambda line: abs(line.at - seconds / 2))
    work = min(said, key=lambda line: abs(line.processor - lines[-1].processor / 2))
    true = seconds - half.at
    return {
        "seconds": seconds, "silence": max(silences), "stage_at_half": half.stage,
        "left_said": half.left, "left_true": true, "error": abs(half.left - true) / true,
        "stage_at_half_work": work.stage, "left_said_by_work": work.left / work.at,
    }  # fmt: skip


def main() -> None:
    """Train, and print what progress said beside what was."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stores", nargs="+", type=Path)
    parser.add_argument("--settings", choices=sorted(SETTINGS), default="default")
    parser.add_argument("--memory", default="1GB")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found = []
    for store, options in itertools.product(given.stores, SETTINGS[given.settings]):
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "streammach", "train", str(store), "--out",
                       f"{folder}/run", "--memory", given.memory, "--progress", "json",
                       *options]  # fmt: skip
            done = watched(command)
        if done is None:
            continue
        lines, seconds = done
        one = {"store": store.name, "options": options, **judged(lines, seconds)}
        found.append({**one, "lines": [asdict(line) for line in lines]})
        print(json.dumps(one), flush=True)
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
