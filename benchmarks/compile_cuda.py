"""Whether every CUDA kernel compiles to machine code without a stack frame or a spill.

    python -m benchmarks.compile_cuda [7.5 8.0 9.0] [--json FILE] [--beside FILE]

Needs numba-cuda (extra gpu-cuda12 or gpu-cuda13) and no GPU: NVVM makes PTX, and nvJitLink, the
linker of a real run, makes machine code and says what each kernel takes. Without targets: the
oldest that the project's extras know (6.1 where NVVM is of CUDA 12, 7.5 from CUDA 13 on), 8.0 and
9.0. Beside a file of an earlier state, each kernel carries what it took then. Exit code 1 if a
kernel has a stack frame, spilled registers, local memory or float64 arithmetic, or lacks the
16-byte accesses that it is written for (8 bytes of bfloat16 weights).
"""

import json
import re
import sys
import time
from collections import Counter
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.machine_facts import facts, parser, report
from streammach.backends.cuda import decode, dense, kernels, losses, sparse, transfers
from streammach.backends.cuda.chunks import CODINGS
from streammach.backends.cuda.shapes import (
    ADAM_REGISTERS,
    BACKWARD_REGISTERS,
    FORWARD_REGISTERS,
    STRIDING,
    decode_shape,
    launch_bounds,
    launch_shape,
)
from streammach.backends.loss import BEST_CLASSES
from streammach.spec.estimators import MEDIAN, MINIMUM, SUM
from streammach.spec.optimizers import OPTIMIZERS

STEPS = [(32, 25), (512, 20), (33, 7), (32, 200), (4096, 1)]  # B, R
DECODES = [(32, 25), (512, 20), (100, 50), (32, 100), (1024, 16)]
N_CLASSES = 105_033
OUTPUTS = {"residual": kernels.RESIDUALS, "probabilities": kernels.PROBABILITIES,
           "logarithms": kernels.LOGARITHMS}  # fmt: skip
KINDS = {"sum": SUM, "min": MINIMUM, "median": MEDIAN}
STRIDING_KERNELS = {
    "sort keys": sparse.sort_keys, "sort narrow keys": sparse.sort_keys,
    "sum losses": losses.sum_losses, "mark": sparse.mark, "place": sparse.place,
    "gather": transfers.gather, "gather labels": transfers.gather_labels,
    "gather dense": transfers.gather_dense, "expand": dense.expand, "cosines": dense.cosines,
}  # fmt: skip
WIDE_LOAD, WIDE_STORE = r"ld\.global(\.nc)?\.v4", r"st\.global\.v4"
PAIR_LOAD = r"ld\.global(\.nc)?\.v2"  # of bfloat16 weights
FORBIDDEN = {"local memory": r"\.local\b", "float64": r"\.f64\b", "atomics": r"\b(atom|red)\."}


def signatures():
    """Types of each kernel's arguments."""
    from numba import float32, int32, int64, types, uint16, uint32

    every = (float32, int32, uint32, int64, uint16)
    f, i, u, wide, narrow = (types.Array(t, 1, "C") for t in every)
    backward = (i, i, i, i, i, i, f, f, float32, float32, uint32, int64, f, f, f)
    scan = types.void(f, u, int64, int64, int64, int64, wide)
    return {
        "forward": types.void(i, i, f, i, f, u, f, int64, int64, float32, f, f),
        "forward bfloat16": types.void(i, i, f, i, f, u, u, int64, int64, float32, f, f),
        "backward": types.void(*backward, f),
        "backward bfloat16": types.void(*backward, u),
        "sort keys": types.void(i, i, int64, int64, int32, i),
        "sort narrow keys": types.void(i, i, int64, int64, int32, narrow),
        "mark": types.void(i, f, i, i, int64, int64, int64, int64, i, f, i),
        "place": types.void(i, i, int64, int64, int64, *(i,) * 11),
        "gather": types.void(wide, i, int64, wide, i, f, i, f, i, f, i, i, f),
        "gather labels": types.void(wide, i, int64, wide, i, f, i, f),
        "gather dense": types.void(wide, int64, int64, wide, i, f, i, f, f, i, f),
        "expand": types.void(i, i, f, int64, int64, f),
        "cosines": types.void(f, int64, int64, int64, int64, f),
        "joint": types.void(i, f, u, int64, f, wide, float32, f, f),
        "joint lists": types.void(i, i, f, f, u, int64, f, wide, float32, f, f),
        "lists": types.void(i, i, f, f, u, int64, float32, f, f),
        "sum losses": types.void(f, int64, f),
        "scan": scan,
        "select": types.void(f, u, wide, int64, int64, int64, int64, wide, f, wide),
    }


def step_kernels(n_buckets, n_repetitions, weights_are, capability):
    """The kernels of a step of sparse rows."""
    shape, of = launch_shape(n_buckets, n_repetitions), f"({n_buckets}, {n_repetitions})"
    narrow = "" if weights_are == "float32" else f" {weights_are}"
    bounds = launch_bounds(shape.threads, FORWARD_REGISTERS, capability)
    for name, output in OUTPUTS.items():
        made = kernels.forward_kernel(shape, output, weights_are=weights_are)
        yield f"forward {name}{narrow} {of}", f"forward{narrow}", made, bounds, True
    for name, kind in OPTIMIZERS.items():
        registers = ADAM_REGISTERS if kind.per_weight else BACKWARD_REGISTERS
        bounds = launch_bounds(shape.threads, registers, capability)
        made = kernels.backward_kernel(shape, kind.branch, weights_are=weights_are)
        yield f"backward {name}{narrow} {of}", f"backward{narrow}", made, bounds, True


def list_kernels(n_buckets, n_repetitions):
    """The kernels of losses of rows with lists of labels."""
    shape, of = launch_shape(n_buckets, n_repetitions), f"({n_buckets}, {n_repetitions})"
    made = losses.joint_list_kernel(shape, BEST_CLASSES)
    yield f"joint lists {of}", "joint lists", made, losses.BOUNDS, False
    for name, logistic in (("softmax", False), ("sigmoid", True)):
        made = losses.list_kernel(shape, logistic=logistic)
        yield f"{name} lists {of}", "lists", made, losses.BOUNDS, False


def every_kernel(capability):
    """Yield (name, signature's name, function, launch bounds, whether accesses are wide)."""
    for name, kernel in STRIDING_KERNELS.items():
        yield name, name, kernel, STRIDING, False
    for n_buckets, n_repetitions in STEPS:
        for weights_are in CODINGS:
            yield from step_kernels(n_buckets, n_repetitions, weights_are, capability)
        shape = launch_shape(n_buckets, n_repetitions)
        bounds = launch_bounds(shape.threads, FORWARD_REGISTERS, capability)
        made = kernels.forward_kernel(shape, kernels.RESIDUALS, dense=True)
        yield f"forward dense ({n_buckets}, {n_repetitions})", "forward", made, bounds, True
        made = losses.joint_kernel(shape, BEST_CLASSES)
        yield f"joint ({n_buckets}, {n_repetitions})", "joint", made, losses.BOUNDS, False
        yield from list_kernels(n_buckets, n_repetitions)
    for n_buckets, n_repetitions in DECODES:
        for name, kind in KINDS.items():
            one_row = kind == decode.MEDIAN
            shape = decode_shape(n_buckets, n_repetitions, N_CLASSES, one_row=one_row)
            label = f"{name} ({n_buckets}, {n_repetitions})"
            yield f"scan {label}", "scan", decode.scan_kernel(shape, kind), shape.bounds, False
            yield (
                f"select {label}",
                "select",
                decode.select_kernel(shape, kind),
                shape.bounds,
                False,
            )


def compiled_for(function, signature, bounds, capability):
    """Facts of a kernel's machine code, and what is wrong with its PTX."""
    from cuda.core import Linker, LinkerOptions, ObjectCode

    from streammach.backends.cuda.launcher import cuda

    began = time.perf_counter()
    ptx, _ = cuda.compile(
        function, signature, device=False, abi="numba", cc=capability, launch_bounds=bounds
    )
    options = LinkerOptions(arch=f"sm_{capability[0]}{capability[1]}", ptxas_options=["-v"])
    linker = Linker(ObjectCode.from_ptx(ptx.encode(), name="kernel"), options=options)
    linker.link("cubin")
    log = linker.get_info_log()
    registers = number(r"Used (\d+) registers", log)
    assert registers, log
    return ptx, {
        "registers": registers, "stack": number(r"(\d+) bytes stack frame", log),
        "spill_stores": number(r"(\d+) bytes spill stores", log),
        "spill_loads": number(r"(\d+) bytes spill loads", log),
        "shared": sum(int(n) for n in re.findall(r"\.shared .*\[(\d+)\];", ptx)),
        "wide_loads": len(re.findall(WIDE_LOAD, ptx)),
        "wide_stores": len(re.findall(WIDE_STORE, ptx)), "bounds": list(bounds),
        "seconds": round(time.perf_counter() - began, 2),
    }  # fmt: skip


def number(pattern, log):
    found = re.search(pattern, log)
    return int(found[1]) if found else 0


def faults(ptx, found, *, wide, pairs):
    """What a kernel must not have, by name."""
    out = [name for name in ("stack", "spill_stores", "spill_loads") if found[name]]
    out += [name for name, pattern in FORBIDDEN.items() if re.search(pattern, ptx)]
    if wide and not (found["wide_loads"] and found["wide_stores"]):
        out.append("no 16-byte accesses")
    if pairs and not re.search(PAIR_LOAD, ptx):
        out.append("no 8-byte accesses")
    return out


def default_targets():
    """The oldest that NVVM knows, and two present ones."""
    try:
        major = int(version("cuda-toolkit").partition(".")[0])
    except PackageNotFoundError:
        major = 13
    return ["6.1" if major < 13 else "7.5", "8.0", "9.0"]


def earlier(path):
    """What kernels took in an earlier state, by name and target; nothing without a file."""
    kernels = json.loads(Path(path).read_text())["kernels"] if path else []
    names = ("registers", "stack", "spill_stores", "spill_loads")
    return {(k["kernel"], k["target"]): {name: k[name] for name in names} for k in kernels}


def main():
    arguments = parser(__doc__)
    arguments.add_argument("targets", nargs="*", help="compute capabilities: 7.5 for example")
    arguments.add_argument("--only", default="", help="kernels whose name holds this")
    arguments.add_argument("--beside", metavar="FILE", help="figures of an earlier state")
    options = arguments.parse_args()
    machine = facts("numba-cuda", "cuda-core", "cuda-toolkit")
    before = earlier(options.beside)
    targets = options.targets or default_targets()
    types, results, bad = signatures(), [], Counter()
    print(f"{'kernel':<42}{'sm':>5}{'registers':>11}{'stack':>7}{'spill':>7}{'shared':>8}  wide")
    for target in targets:
        capability = tuple(int(part) for part in target.split("."))
        for name, kind, function, bounds, wide in every_kernel(capability):
            if options.only not in name:
                continue
            ptx, found = compiled_for(function, types[kind], bounds, capability)
            wrong = faults(ptx, found, wide=wide, pairs="bfloat16" in name)
            bad.update(wrong)
            found |= {"faults": wrong, "before": before.get((name, target))}
            results.append({"kernel": name, "target": target, **found})
            print(
                f"{name:<42}{target:>5}{found['registers']:>11}{found['stack']:>7}"
                f"{found['spill_stores'] + found['spill_loads']:>7}{found['shared']:>8}"
                f"  {found['wide_loads']}/{found['wide_stores']}  {', '.join(wrong)}",
                flush=True,
            )
    print(f"{len(results)} kernels for {', '.join(targets)}: {dict(bad) or 'no faults'}")
    report({"machine": machine, "kernels": results, "faults": dict(bad)}, options.json)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
