"""SHA-256 of what the commands make of small data: the proof that a change changed no byte.

    python -m tests.digests BEFORE.json            # before a change of structure
    python -m tests.digests AFTER.json BEFORE.json # after it: exits with 1 where something differs

Stores, models and predictions of the demo, of text with counts, of dense rows with a closed form,
of whitened ones with the joint loss, and of each optimiser. Bytes depend on the machine's BLAS and
on the number of threads, so that both files are made on one machine.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

TRAIN = ("--epochs", "3", "--threads", "2", "--progress", "none")
HASHED = ("--buckets", "8", "--repetitions", "4")


def lines(rng, n=3000, n_classes=40):
    """Yield rows of VW text in three namespaces."""
    for i in range(n):
        y = int(rng.integers(n_classes))
        own = " ".join(f"c{y}_{j}:{rng.integers(1, 9) / 4}" for j in rng.integers(0, 6, 4))
        noise = " ".join(f"n{j}" for j in rng.integers(0, 500, 5))
        weight = f" {rng.integers(1, 4)}" if i % 5 == 0 else ""
        yield f"class{y}{weight} 'row{i}|own {own} |noise {noise}"


def make_data(folder):
    """Write a text, a dense and a sparse-ish matrix with their labels."""
    rng = np.random.default_rng(5)
    (folder / "text.vw").write_text("\n".join(lines(rng)) + "\n")
    y = rng.integers(60, size=4000)
    mixed = rng.standard_normal((24, 24)).astype(np.float32)
    x = (rng.standard_normal((60, 24))[y] + rng.standard_normal((4000, 24))) @ mixed
    np.save(folder / "dense.npy", x.astype(np.float32))
    np.save(folder / "labels.npy", y)


def commands():
    """Yield the commands, each with the names of what it makes."""
    yield ("convert", "text.vw", "text.zarr"), ["text.zarr"]
    yield ("convert", "dense.npy", "dense.zarr", "--labels", "labels.npy"), ["dense.zarr"]
    runs = {
        "counts": ("text.zarr", *HASHED, "--counts", "on", "--model-size", "full"),
        "small": ("text.zarr", *HASHED, "--counts", "on"),
        "planned": ("text.zarr",),
        "namespaces": ("text.zarr", *HASHED, "--hold-out-by", "noise", "--counts", "off"),
        "sgd": ("text.zarr", *HASHED, "--optimizer", "sgd", "--counts", "off"),
        "adam": ("text.zarr", *HASHED, "--optimizer", "adam", "--counts", "off"),
        "closed": ("dense.zarr", "--exact"),
        "whitened": ("dense.zarr", *HASHED),
        "adagrad": ("dense.zarr", *HASHED, "--optimizer", "adagrad"),
    }
    for name, (store, *options) in runs.items():
        budget = () if "--exact" in options else ("--memory", "1GB")
        yield ("train", store, "--out", name, *TRAIN, *budget, *options), [f"{name}/model"]
        yield ("predict", name, store, "--out", f"{name}.tsv", "--threads", "2"), [f"{name}.tsv"]
    yield ("shrink", "counts", "--out", "int8", "--weights", "int8"), ["int8"]
    yield ("predict", "int8", "text.zarr", "--out", "int8.tsv"), ["int8.tsv"]
    yield ("demo", "--folder", "demo"), ["demo/run/model"]


def digest(folder, made):
    """Return the SHA-256 of a file, or of all files of a folder, by name."""
    path = folder / made
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
    }


def digests():
    """Run all commands in a new folder; return the digests by file."""
    found = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_data(folder)
        for arguments, made in commands():
            done = subprocess.run(
                [sys.executable, "-m", "streammach", *arguments], cwd=folder, capture_output=True,
                text=True, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"}, check=False,
            )  # fmt: skip
            if done.returncode:
                sys.exit(f"{' '.join(arguments)}: {done.stderr}")
            for path in made:
                found |= digest(folder, path)
    return found


def main():
    found = digests()
    Path(sys.argv[1]).write_text(json.dumps(found, indent=1) + "\n")
    if len(sys.argv) > 2:
        before = json.loads(Path(sys.argv[2]).read_text())
        names = sorted(before.keys() | found.keys())
        other = [name for name in names if before.get(name) != found.get(name)]
        sys.stdout.write(f"{len(names) - len(other)} of {len(names)} files have the same bytes\n")
        sys.stdout.write("".join(f"differs: {name}\n" for name in other))
        sys.exit(bool(other))


if __name__ == "__main__":
    main()
