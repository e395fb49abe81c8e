"""What a store in object storage costs: rates beside a folder, equal models, faults survived.

``python -m benchmarks.remote STORE [--turns 3] [--trials 50] [--json FILE]``: the store is copied
into a local S3 server (``pip install "moto[s3,server]" "streammach[cloud]"``). All its rows are
read, and a small model is trained on it, from the folder, from the server with an empty cache, and
with a full one, in turns; the files of the models are compared. Then faults are injected at random
requests, each into a reading of all rows with an empty cache. The server is a Python program on the
same cores: rates from it say what the way through the cache costs, not what a network gives.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

from benchmarks.machine_facts import facts
from benchmarks.object_server import FAULTS, Proxy, environment, served, uploaded
from streammach.cli.places import in_environment
from streammach.data.store.dataset import Dataset
from streammach.errors import DiskError, StoreError
from streammach.files.objects import TRIES

SMALL = ["--buckets", "32", "--repetitions", "4", "--epochs", "2", "--threads", "1"]
SMALL += ["--learning-rate", "0.5", "--transform", "l2", "--counts", "off", "--model-size", "full"]
WAYS = ("folder", "cold", "cached")


def read(place, cache=None):
    """Read all rows block by block; return their digest, and the seconds."""
    began, digest = time.monotonic(), hashlib.sha256()
    with Dataset.open(place, cache=cache) as data:
        step = data.facts.block_rows
        for start in range(0, data.n_rows, step):
            rows = data.rows(start, min(start + step, data.n_rows))
            for array in (rows.indptr, rows.features, rows.values, rows.classes):
                digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest(), time.monotonic() - began


def trained(place, run, cache):
    """Train a small model; return the digest of its files, and the seconds of the training."""
    command = [sys.executable, "-m", "streammach", "train", str(place), "--out", str(run)]
    done = subprocess.run(
        [*command, *SMALL, "--cache", str(cache), "--progress", "none", "--json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    digest = hashlib.sha256()
    for file in sorted((run / "model").iterdir()):
        digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest(), json.loads(done.stdout)["seconds"]


def rates(path, url, folder, turns):
    """Return rows a second of reading and of trainings by the way, and whether all is the same.

    Those of a training are the rows of its two epochs over all its seconds, fetching included.
    """
    with Dataset.open(path) as data:
        n_rows = data.n_rows
    read_seconds, fit_seconds = {way: [] for way in WAYS}, {way: [] for way in WAYS}
    contents, models = set(), set()
    for turn in range(turns):
        for work, seconds, seen in (
            (read, read_seconds, contents),
            (lambda place, cache, t=turn: trained(place, folder / f"run-{t}", cache),
             fit_seconds, models),
        ):  # fmt: skip
            cache = folder / "cache"
            shutil.rmtree(cache, ignore_errors=True)
            for way in WAYS:
                found, spent = work(path if way == "folder" else url, cache)
                seen.add(found)
                seconds[way].append(spent)
                shutil.rmtree(folder / f"run-{turn}", ignore_errors=True)
    best_read = {way: n_rows / min(s) for way, s in read_seconds.items()}
    best_fit = {way: 2 * n_rows / min(s) for way, s in fit_seconds.items()}
    return {
        "rows": n_rows, "same_rows": len(contents) == 1, "same_model_files": len(models) == 1,
        "read_rows_a_second": best_read, "training_rows_a_second": best_fit,
        "read_ratio": {way: best_read[way] / best_read["folder"] for way in WAYS},
        "training_ratio": {way: best_fit[way] / best_fit["folder"] for way in WAYS},
    }  # fmt: skip


def spoils(kind, first, n):
    """Return the fault of so many requests from one on."""
    return lambda number, method, path: kind if first <= number < first + n else None


def outcome(load, url, cache):
    """Return what a store holds, or the line of its refusal."""
    try:
        return load(url, cache), ""
    except (DiskError, StoreError) as error:
        return None, str(error)


def fault_trials(proxy, load, url, expected, folder, trials, rng):
    """Inject a fault into each of some readings; return how many ended how, by the kind.

    A fault lasts for one request, for two, or for more than there are tries; a slow answer is one.
    """
    proxy.reset()
    load(url, folder / "first")
    places, met = len(proxy.requests), Counter()
    for trial in range(trials):
        kind = FAULTS[trial % len(FAULTS)]
        lasts = 1 if kind == "slow" else [1, 2, TRIES * 4][trial // len(FAULTS) % 3]
        proxy.reset(spoils(kind, int(rng.integers(places)), lasts))
        found, line = outcome(load, url, folder / str(trial))
        ended = "survived" if found == expected else "wrong"
        if line:
            ended = "refused" if url in line and "\n" not in line else "badly refused"
        met[ended, kind if proxy.injected else "none"] += 1
        shutil.rmtree(folder / str(trial), ignore_errors=True)
    return met


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store", type=Path)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place, served() as endpoint:
        folder = Path(place)
        url = uploaded(args.store, endpoint, "bench/train.zarr")
        with in_environment(environment(endpoint)):
            found = rates(args.store, url, folder, args.turns)
        with (
            Proxy(endpoint, slow=8.0) as proxy,
            in_environment({**environment(proxy.endpoint), "STREAMMACH_TIMEOUT": "4"}),
        ):
            met = fault_trials(
                proxy, lambda at, cache: read(at, cache)[0], url, read(args.store)[0], folder,
                args.trials, np.random.default_rng(0),
            )  # fmt: skip
    found["faults"] = {f"{ended}, {kind}": n for (ended, kind), n in sorted(met.items())}
    ended = Counter[str]()
    for (how, _), n in met.items():
        ended[how] += n
    found["ended"] = dict(ended)
    text = json.dumps({"store": args.store.name, **found, **facts("obstore", "moto")}, indent=1)
    print(text)
    if args.json is not None:
        args.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
