"""Every check and every time of the CUDA backend on the present GPU, in one command.

    python -m benchmarks.gpu [--store TRAIN.zarr --test-store TEST.zarr] [--json FILE]
    NUMBA_ENABLE_CUDASIM=1 python -m benchmarks.gpu --simulate

Meant for less than 8 minutes on an H100. A stage that fails is reported and the next one runs; what
was found is written after every stage; stages that would begin after --seconds are left out. Exit
code 1 if a stage failed or something was found wrong. With --simulate it runs in Numba's simulator
on a few rows: no time it gives then means anything.
"""

import sys
import time
import traceback
from dataclasses import replace

from benchmarks.gpu import stages
from benchmarks.gpu.shapes import IMAGENET, ODP, TINY, TINY_DENSE
from benchmarks.machine_facts import facts, parser, report
from streammach.backends.registry import BACKENDS, choose_device

REAL = {
    "sparse": ODP, "dense": IMAGENET, "copy_bytes": 4 << 30, "cached_bytes": 16 << 20,
    "product": 8192, "repeats": 20,
    "shapes": 40, "most_classes": 2000, "steps": 6, "queries": 20_000, "distinct": 8,
    "steps_timed": 400, "limit": 12 * 10**9, "most_models": 1024,
}  # fmt: skip
SIMULATED = {
    "sparse": TINY, "dense": TINY_DENSE, "copy_bytes": 4096, "cached_bytes": 64,
    "product": 4, "repeats": 1,
    "shapes": 4, "most_classes": 60, "steps": 2, "queries": 3, "distinct": 2, "steps_timed": 2,
    "limit": 700_000_000, "most_models": 5,
}  # fmt: skip
LIBRARIES = ("numba-cuda", "cupy-cuda12x", "cupy-cuda13x", "cuda-toolkit")


def largest(shape, limit, most_models, weights="float32"):
    """The same with the most repetitions that a limit of device memory allows."""
    best = replace(shape, n_repetitions=1)
    for step in (256, 64, 16, 4, 1):
        while best.n_repetitions + step <= most_models:
            more = replace(best, n_repetitions=best.n_repetitions + step)
            config = more.config(weights=weights)
            if sum(BACKENDS["cuda"].footprint(config, None)[1].values()) > limit:
                break
            best = more
    return best


def stage_list(options):
    """Names and functions of the stages, in order."""
    sparse, dense = options.sparse, options.dense
    out = {
        "facts": lambda: stages.facts(options),
        "correctness": lambda: stages.correctness(options),
        "kernels": lambda: stages.kernel_times(options),
        "top-k": lambda: stages.top_k(options),
        "epoch": lambda: stages.epoch(options, sparse),
        "resident epoch": lambda: stages.epoch(options, sparse, resident=True),
        "repeat": lambda: stages.repeat(options),
        "bfloat16 rounding": lambda: stages.rounding(options),
        "bfloat16 epoch": lambda: stages.epoch(options, sparse, weights="bfloat16"),
        "bfloat16 repeat": lambda: stages.repeat(options, "bfloat16"),
    }
    if options.store:
        out["whole run"] = lambda: stages.whole_run(options)
    return out | {
        "epoch in two waves": lambda: stages.epoch(options, sparse, waves=2),
        "dense epoch": lambda: stages.epoch(options, dense),
        "largest model": lambda: stages.epoch(
            options, largest(sparse, options.limit, options.most_models), limit=options.limit
        ),
        "bfloat16 largest model": lambda: stages.epoch(
            options, largest(sparse, options.limit, options.most_models, "bfloat16"),
            limit=options.limit, weights="bfloat16",
        ),
    }  # fmt: skip


def wrong(name, found):
    """What a stage's figures say that must not be."""
    if name == "correctness" and found["failures"]:
        return f"{len(found['failures'])} shapes differ from the CPU's"
    if name.endswith("repeat") and not found["same"]:
        return "the same batches gave other bytes"
    if name == "bfloat16 rounding" and (
        found["largest"] >= 1 or abs(found["mean"]) > 4 / found["n"] ** 0.5
    ):
        return "bfloat16 weights are not rounded without bias"
    if "taken_bytes" in found and found["taken_bytes"] > found["projected_bytes"]:
        return "more memory was taken than projected"
    return None


def table(found):
    """The figures as lines of text."""
    for stage, figures in found.items():
        if not isinstance(figures, dict):
            continue
        print(f"\n{stage}")
        for name, value in figures.items():
            if isinstance(value, dict):
                text = "  ".join(f"{k} {shown(v)}" for k, v in value.items())
            else:
                text = shown(value)
            print(f"  {name:<26}{text}")


def shown(value):
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def read_options():
    arguments = parser(__doc__)
    arguments.add_argument("--simulate", action="store_true", help="a few rows, in the simulator")
    arguments.add_argument("--store", help="train on this store with both devices")
    arguments.add_argument("--test-store", help="rows to measure both on")
    arguments.add_argument("--run-shape", default="32x25", help="B x R of that training")
    arguments.add_argument("--epochs", type=int, default=2)
    arguments.add_argument("--rate", type=float, default=0.5)
    arguments.add_argument("--batch-size", type=int, default=4096)
    arguments.add_argument("--seconds", type=float, default=450, help="begin no stage after them")
    options = arguments.parse_args()
    options.run_shape = tuple(int(n) for n in options.run_shape.split("x"))
    for name, value in (SIMULATED if options.simulate else REAL).items():
        setattr(options, name, value)
    return options


def main():
    options, began = read_options(), time.perf_counter()
    device = choose_device("cuda")[1]
    options.found = found = {"device": device, "machine": facts(*LIBRARIES)}
    bad = []
    print(f"{device}; figures in {options.json or 'no file'}")
    for name, stage in stage_list(options).items():
        if time.perf_counter() - began > options.seconds:
            found[name] = {"left_out": "out of time"}
            continue
        at = time.perf_counter()
        try:
            found[name] = stage()
            fault = wrong(name, found[name])
        except Exception as error:
            traceback.print_exc()
            found[name] = {"failed": f"{type(error).__name__}: {error}"}
            fault = str(error)
        found[name]["stage_seconds"] = time.perf_counter() - at
        if fault:
            bad.append(f"{name}: {fault}")
        report(found, options.json)
    table(found)
    print("\n" + ("\n".join(bad) or "nothing wrong was found"))
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
