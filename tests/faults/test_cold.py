"""The process that compiles the kernels and those that load them make the same bytes."""

import os
import re
import subprocess
import sys

import pytest

from streammach.machine import parse_size

pytestmark = [pytest.mark.faults, pytest.mark.nightly, pytest.mark.timeout(900)]


def train(store, out, kernels, *options):
    command = [sys.executable, "-m", "streammach", "train", str(store), "--out", str(out), *options]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(kernels)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return (out / "model/model.safetensors").read_bytes(), "compiling" in done.stderr


def test_compiled_and_loaded_kernels_make_the_same_bytes(tiny):
    lines = tiny.lines(3000, 60, namespace=True)
    sparse = tiny.folder / "sparse.zarr"
    dense = tiny.folder / "dense.zarr"
    for store, rows in (
        (sparse, lines),
        (dense, [f"{i % 97} | " + " ".join(f"x{j}:{(i * j) % 11 + 0.5}" for j in range(40))
                 for i in range(1500)]),
    ):  # fmt: skip
        source = tiny.text(f"{store.stem}.vw", rows)
        command = [sys.executable, "-m", "streammach", "convert", str(source), str(store)]
        subprocess.run(command, check=True, capture_output=True)
    kernels = tiny.folder / "kernels"
    shape = ["--buckets", "37", "--repetitions", "6", "--transform", "l2", "--learning-rate", "1"]
    for name, store, options in (
        ("sparse", sparse, shape), ("dense", dense, ["--exact", "--transform", "l2"])
    ):  # fmt: skip
        cold, compiled = train(store, tiny.folder / f"{name}-cold", kernels, *options)
        warm, again = train(store, tiny.folder / f"{name}-warm", kernels, *options)
        assert (compiled, again) == (True, False)
        assert cold == warm


def test_no_command_passes_the_least_budget_that_it_takes_while_it_compiles(tiny):
    """Each with an empty kernel cache, at a budget that a refusal named: its advice is enough."""
    tiny.text("rows.vw", tiny.lines(4000, 200))
    shape = ["--buckets", "32", "--repetitions", "4", "--epochs", "1"]
    found = {}
    for name, command in {
        "convert": ["convert", "rows.vw", "rows.zarr"],
        "train": ["train", "rows.zarr", "--out", "run", *shape],
        "evaluate": ["evaluate", "run", "rows.vw"],
        "predict": ["predict", "run", "rows.vw", "--out", "best.txt"],
    }.items():
        memory = "100MB"
        for i in range(3):
            environment = {**os.environ, "NUMBA_CACHE_DIR": str(tiny.folder / f"cold-{name}-{i}")}
            whole = [sys.executable, "-m", "streammach", *command, "--memory", memory]
            peak, done = measured(whole, tiny.folder, environment)
            if done.returncode == 0:
                break
            assert done.returncode == 6, done.stderr
            memory = re.search(r"[Uu]se --memory (\S+) or more", done.stderr)[1]
        found[name] = (i, memory, peak)
        sys.stdout.write(f"{found}\n")
        assert done.returncode == 0, done.stderr
        assert i == 1, (found, "the first advice is enough")
        assert peak <= parse_size(memory), found


def measured(command, folder, environment):
    """Run a command; return the most resident bytes of it, and of processes of its own."""
    script = (
        "import resource, subprocess, sys; done = subprocess.run(sys.argv[1:]);"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr);"
        "sys.exit(done.returncode)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *command], cwd=folder, env=environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return 1024 * int(done.stderr.splitlines()[-1]), done
