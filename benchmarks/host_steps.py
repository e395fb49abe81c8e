"""Microseconds that the host needs to ask for one training step on a GPU.

    python -m benchmarks.host_steps [--beside CHECKOUT] [--turns 3] [--json FILE]

Needs numba-cuda (extra gpu-cuda12 or gpu-cuda13), a C compiler and no card: below the real
libraries there is the driver of the tests, whose kernels do nothing, and NumPy stands for CuPy, so
that CuPy's own share is not in the figures. The shape is ODP's, 32 x 25, 4,096 rows of 60 values.
`--beside` measures another checkout in turn with this one. The first step is that of a process in
which nothing was compiled (`cold`), and of the next process.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.machine_facts import facts, parser, report

ROOT = Path(__file__).parents[1]
STEPS, BATCHES = 240, 3


def measured(kept):
    """Microseconds of steps in this process."""
    from benchmarks.gpu.checks import shown
    from benchmarks.gpu.shapes import ODP, Rows
    from benchmarks.gpu.timing import opened

    shape = replace(ODP, n_features=20_000)
    backend = opened(shape, keep=BATCHES if kept else 0)
    batches = shown(backend, Rows(shape).batches(BATCHES))
    began = time.perf_counter()
    backend.step(batches[0], 0.1)
    first, took = time.perf_counter() - began, []
    for i in range(STEPS + BATCHES):
        began = time.perf_counter()
        backend.step(batches[i % BATCHES], 0.1)
        took.append(1e6 * (time.perf_counter() - began))
    took = sorted(took[BATCHES:])
    return {
        "first_s": first, "least_us": took[0], "median_us": statistics.median(took),
        "mean_us": statistics.fmean(took),
    }  # fmt: skip


def child(machine, checkout, kept, cache):
    """The same of another process, by the code of a checkout."""
    environment = machine.environment(log="")
    paths = [str(checkout), environment["PYTHONPATH"]]
    environment |= {
        "PYTHONPATH": os.pathsep.join(paths), "NUMBA_CACHE_DIR": str(cache),
        "HOST_STEPS": "kept" if kept else "sent", "OPENBLAS_NUM_THREADS": "1",
    }  # fmt: skip
    command = [sys.executable, "-W", "ignore", str(Path(__file__).resolve())]
    done = subprocess.run(
        command, env=environment, cwd=checkout, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def main():
    from tests.backends.fake_driver import machine as machines

    arguments = parser(__doc__)
    arguments.add_argument("--beside", type=Path, help="another checkout")
    arguments.add_argument("--turns", type=int, default=3)
    options = arguments.parse_args()
    if why := machines.lacking():
        sys.exit(why)
    checkouts = {"this": ROOT}
    if options.beside:
        checkouts = {"beside": options.beside.resolve(), **checkouts}
    results = []
    with tempfile.TemporaryDirectory() as folder:
        machine = machines.Machine(Path(folder))
        for turn in range(options.turns):
            for name, checkout in checkouts.items():
                for kept in (False, True):
                    found = child(machine, checkout, kept, Path(folder) / f"kernels-{name}")
                    rows = "kept" if kept else "sent"
                    results.append({"checkout": name, "rows": rows, "turn": turn, **found})
                    numbers = "".join(f"{key} {value:9.2f}  " for key, value in found.items())
                    print(f"{name:<7} rows {rows}  turn {turn}  {numbers}", flush=True)
    libraries = ("numba-cuda", "cuda-core", "cuda-bindings")
    report({"machine": facts(*libraries), "steps": results}, options.json)


if __name__ == "__main__":
    if kind := os.environ.get("HOST_STEPS"):
        json.dump(measured(kind == "kept"), sys.stdout)
    else:
        main()
