"""The process that compiles the kernels and those that load them make the same bytes."""

import os
import subprocess
import sys

import pytest

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
