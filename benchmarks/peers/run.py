"""How accurate, fast and large streammach and its peers are on the same rows.

    python -m benchmarks.peers.run TRAIN.zarr TEST.zarr [--systems a,b] [--json FILE]

Every system runs in a process of its own, one after another, with the same number of threads; its
module in benchmarks/peers/systems says which settings, and the figures go into one JSON file, where
older ones of the same data and system are replaced. What fails or runs out of time is written down
in its own words. Rows with lists of labels go to the systems that take them. Accuracy counts rows
whose label training never saw as wrong.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from benchmarks import machine_facts
from benchmarks.peers.systems import SYSTEMS
from streammach.store.dataset import Dataset


def run_one(name, arguments, lists):
    """Return the figures of a system, or why there are none."""
    system = SYSTEMS[name]
    row = {
        "system": system.name, "settings": system.settings, "package": system.package,
        "version": machine_facts.installed(system.package), "threads": arguments.threads,
    }  # fmt: skip
    if system.why_not:
        return row | {"failed": system.why_not}
    if lists and not system.lists:
        return row | {"failed": "not run: it takes one label a row"}
    command = [
        sys.executable, "-m", "benchmarks.peers.one", name, arguments.train, arguments.test,
        "--threads", str(arguments.threads), "--max-test", str(arguments.max_test),
    ]  # fmt: skip
    began = time.monotonic()
    try:
        done = run_within(command, 60 * arguments.minutes)
    except subprocess.TimeoutExpired:
        return row | {"failed": f"stopped after {arguments.minutes:g} minutes"}
    if done.returncode:
        said = why(done.stderr, done.returncode)
        return row | {"failed": said, "seconds": time.monotonic() - began}
    return row | json.loads(done.stdout.splitlines()[-1])


def run_within(command, seconds):
    """Run a command and what it starts; end all of it when the time is over."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0
    ) as process:
        try:
            out, err = process.communicate(timeout=seconds)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def why(text, code):
    """Return the last line that says what went wrong."""
    if code < 0:
        return f"ended by signal {-code} ({signal.Signals(-code).name})"
    lines = text.strip().splitlines() or [f"exit code {code}"]
    return next((line for line in reversed(lines) if "Error" in line), lines[-1])[:300]


def main():
    parser = machine_facts.parser(__doc__)
    parser.add_argument("train")
    parser.add_argument("test")
    parser.add_argument("--systems", default=",".join(sorted(SYSTEMS)))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--max-test", type=int, default=10**9, help="first rows of the test")
    parser.add_argument("--name", help="of the data; the store's otherwise")
    arguments = parser.parse_args()
    data = arguments.name or Path(arguments.train).stem
    path = Path(arguments.json) if arguments.json else None
    results = json.loads(path.read_text()) if path is not None and path.exists() else {}
    with Dataset.open(arguments.train) as stored:
        lists = stored.listed
    for name in arguments.systems.split(","):
        row = run_one(name, arguments, lists)
        results.setdefault(data, {})[name] = row
        print(data, json.dumps(row), flush=True)
        if path is not None:
            results["machine"] = machine_facts.facts()
            machine_facts.report(results, path)


if __name__ == "__main__":
    main()
