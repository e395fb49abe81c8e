"""Every check and every time of the CUDA backend on the present GPU, in one command.

    python -m benchmarks.gpu [--minutes 25] [--only STAGE ...] [--json FILE]
        [--store TRAIN.zarr --test-store TEST.zarr]
    NUMBA_ENABLE_CUDASIM=1 python -m benchmarks.gpu --simulate

Stages come in the order of what they teach; those that --minutes leave no room for are left out.
Each has a process of its own, since after an error of CUDA nothing works in its process any more.
After each a line says what it found, and the figures are written. It ends with rows of ODP's shape
from their text to accuracy on both devices, or with the store that is given. Exit code 1 if a stage
failed or something was found wrong. With --simulate all runs in Numba's simulator, in one process,
on a few rows: no time it gives then means anything.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

if os.environ.get("NUMBA_ENABLE_CUDASIM") == "1":
    from tests import simulator

    simulator.install()  # before the kernels are imported

from benchmarks.gpu.agenda import agenda
from benchmarks.gpu.shapes import IMAGENET, ODP, TINY, TINY_DENSE
from benchmarks.machine_facts import facts, parser, report
from streammach.backends.registry import choose_device

REAL = {
    "sparse": ODP, "dense": IMAGENET, "copy_bytes": 4 << 30, "cached_bytes": 16 << 20,
    "rounds": 200, "product": 8192, "repeats": 5,
    "shapes": 40, "most_classes": 2000, "steps": 6, "queries": 20_000, "distinct": 8,
    "steps_timed": 400, "limit": 12 * 10**9, "most_models": 1024, "made": (),
}  # fmt: skip
SIMULATED = {
    "sparse": TINY, "dense": TINY_DENSE, "copy_bytes": 4096, "cached_bytes": 256, "rounds": 3,
    "product": 4, "repeats": 1,
    "shapes": 4, "most_classes": 60, "steps": 2, "queries": 3, "distinct": 2, "steps_timed": 2,
    "limit": 700_000_000, "most_models": 5,
    "made": ("--rows", "60", "--test-rows", "20", "--classes", "8", "--features", "3000"),
}  # fmt: skip
LIBRARIES = ("numba-cuda", "cupy-cuda12x", "cupy-cuda13x", "cuda-toolkit")
LATE = 3  # times its minutes, after which a stage is given up
MARK = "figures: "


def read_options():
    arguments = parser(__doc__)
    arguments.add_argument("--simulate", action="store_true", help="a few rows, in the simulator")
    arguments.add_argument("--minutes", type=float, default=25, help="for all stages together")
    arguments.add_argument("--only", nargs="*", metavar="STAGE", help="no other stage")
    arguments.add_argument("--store", help="train on this store with both devices")
    arguments.add_argument("--test-store", help="rows to measure both on")
    arguments.add_argument("--run-shape", default="32x25", help="B x R of that training")
    arguments.add_argument("--epochs", type=int, default=2)
    arguments.add_argument("--rate", type=float, default=0.5)
    arguments.add_argument("--batch-size", type=int, default=4096)
    arguments.add_argument("--known", help="run the stage of --only here; a file of figures so far")
    options = arguments.parse_args()
    options.run_shape = tuple(int(n) for n in options.run_shape.split("x"))
    for name, value in (SIMULATED if options.simulate else REAL).items():
        setattr(options, name, value)
    return options


def here(stage, options):
    try:
        return stage.find(options)
    except Exception as error:
        traceback.print_exc()
        return {"failed": f"{type(error).__name__}: {error}"}


def apart(stage, options):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as known:
        json.dump(options.found, known)
        known.flush()
        command = [sys.executable, "-m", "benchmarks.gpu", *sys.argv[1:],
                   "--only", stage.name, "--known", known.name]  # fmt: skip
        try:
            done = subprocess.run(
                command, check=False, stdout=subprocess.PIPE, text=True,
                timeout=60 * LATE * stage.minutes,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return {"failed": f"it took more than {LATE * stage.minutes:g} minutes"}
    lines = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    if not lines:
        return {"failed": f"its process ended with {done.returncode}"}
    return json.loads(lines[-1].removeprefix(MARK))


def main():
    options, began = read_options(), time.monotonic()
    options.found = found = {}
    stages = [one for one in agenda(options) if not options.only or one.name in options.only]
    if options.known:
        found |= json.loads(Path(options.known).read_text())
        print(MARK + json.dumps(here(stages[0], options)))
        return
    found |= {"device": choose_device("cuda")[1], "machine": facts(*LIBRARIES)}
    print(f"{found['device']}; figures in {options.json or 'no file'}")
    wrong = 0
    for stage in stages:
        if (time.monotonic() - began) / 60 + stage.minutes > options.minutes:
            found[stage.name] = {"left_out": "no time"}
            print(f"      {stage.name}: left out, there is no time for it", flush=True)
            continue
        at = time.monotonic()
        one = found[stage.name] = (here if options.simulate else apart)(stage, options)
        right, line = (False, one["failed"]) if "failed" in one else stage.judge(one, options)
        wrong += not right
        one |= {"right": bool(right), "verdict": line, "stage_seconds": time.monotonic() - at}
        print(f"{'right' if right else 'WRONG'} {stage.name}: {line}", flush=True)
        report(found, options.json)
    print(f"\n{wrong} stage(s) failed or found something wrong" if wrong else "\nall is right")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
