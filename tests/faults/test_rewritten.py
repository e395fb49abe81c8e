"""Files of a run that are rewritten in place while they are loaded: a line, and never a signal."""

import dataclasses
import itertools
import json
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest

from streammach.model.checkpoint import Checkpoints, RunPosition
from streammach.rows.names import Names
from tests.model.models import counts_of, model_of

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]

SECONDS = 120  # in which each trial has seen enough
ENOUGH = 5  # times that a file was whole, and that it was not
D, K = 3000, 4000
# Loads again and again until enough was seen; what came of each, by name, is printed as JSON.
READER = """
import collections, io, contextlib, json, os, sys
import numpy as np
from pathlib import Path
from streammach.cli.main import main
from streammach.system.errors import StreammachError
from streammach.model.checkpoint import Checkpoints
from streammach.model.size import size_in_file
from streammach.model.model import Model

folder = Path(sys.argv[1])
found = collections.Counter()

def load():
    model = Model.load(folder)
    model.labels.raws(np.arange(len(model.labels)))  # what is loaded holds whatever becomes of it
    model.predict([{"f1": 1.0}])

def checkpoint():
    into = {"weights": np.zeros((3000, 64), np.float32)}
    Checkpoints(folder / "checkpoints", "run").newest(into)
    assert len(np.unique(into["weights"])) == 1, "two checkpoints in one"

def info():
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        code = main(["info", str(folder)])
    found[f"info {code}"] += 1
    assert code in (0, 2, 4, 6, 7), said.getvalue()

def service():
    from streammach.frontends.serve.options import ServeOptions
    from streammach.frontends.serve.models import load_model
    from streammach.frontends.serve.request_rows import RequestMemory
    options = ServeOptions(threads=1)
    load_model("m", Path(sys.argv[2]), 0, options, RequestMemory()).close()
    yield
    while True:
        try:
            load_model("m", folder, 0, options, RequestMemory()).close()
        except StreammachError:
            found["not reloaded"] += 1
        else:
            found["reloaded"] += 1
        yield

of, enough = sys.argv[3], int(sys.argv[4])
serving = service()
next(serving)
ways, needed = {"checkpoint": checkpoint}, ["checkpoint done", "checkpoint refused"]
if of == "model":
    needed = ["load done", "load refused", "reloaded", "not reloaded"]
    ways = {
        "load": load, "held": lambda: size_in_file(folder), "info": info,
        "service": lambda: next(serving),
    }
print("ready", flush=True)
while min(found[name] for name in needed) < enough:
    for name, way in ways.items():
        try:
            way()
            found[name + " done"] += 1
        except StreammachError as error:
            assert "\\n" not in str(error)
            found[name + " refused"] += 1
print(json.dumps(found), flush=True)
os._exit(0)
"""


def made(folder, seed, **changes):
    """Write a model and a checkpoint of a seed; return the files of the folder."""
    folder.mkdir()
    rng, k = np.random.default_rng(seed), seed * K
    names = Names.of(f"label {seed} {i}" for i in range(k))
    model = model_of(
        rng, d=D, k=k, n_buckets=16, n_repetitions=4, labels=names,
        counts=counts_of(rng, D, k) if seed == 2 else None,
    )  # fmt: skip
    if changes:
        weights = rng.integers(-9, 9, model.weights.shape).astype(np.int8)
        model = dataclasses.replace(model, weights=weights, scale=np.ones(D, np.float32), **changes)
    model.save(folder / "model")
    checkpoints = Checkpoints(folder / "checkpoints", "run")
    arrays = {"weights": np.full((D, 64), seed, np.float32)}
    checkpoints.save(RunPosition(step=1, best_step=1), arrays)
    return folder


def rewrite(path, content, how):
    """Write over a file in place: whole, a part, or cut short before; it is never replaced."""
    with open(path, "r+b", buffering=0) as file:
        if how == "emptied":
            file.truncate(0)
        elif how == "cut short":
            file.truncate(len(content) // 2)
        elif how == "one page":
            file.seek(len(content) // 3)
            file.write(content[len(content) // 3 : len(content) // 3 + 4096])
            return
        for start in range(0, len(content), 1 << 16):
            file.write(content[start : start + (1 << 16)])
        file.truncate(len(content))


HOWS = ("written over", "emptied", "cut short", "one page")


TRIALS = [
    ("model/model.safetensors", "float32"), ("model/model.safetensors", "int8"),
    ("model/model.json", "int8"), ("checkpoints/step-1/state.safetensors", "float32"),
    ("checkpoints/step-1/state.json", "float32"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "stored"), TRIALS)
def test_a_file_that_is_rewritten_while_it_is_loaded_is_an_error(name, stored, tmp_path):
    changes = {} if stored == "float32" else {"stored": stored}
    first, second = (made(tmp_path / f"m{i}", i, **changes) for i in (1, 2))
    shutil.copytree(first / "model", tmp_path / "served")
    contents = [(one / name).read_bytes() for one in (first, second)]
    process = subprocess.Popen(
        [sys.executable, "-c", READER, first, tmp_path / "served", name.split("/")[0][:5],
         str(ENOUGH)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == "ready\n", process.communicate()
    until = time.monotonic() + SECONDS
    for n, (how, content) in enumerate(itertools.cycle(itertools.product(HOWS, contents))):
        rewrite(first / name, content, how)
        time.sleep(0.001 * (n % 7))
        if not n % 5:  # it is whole for a while
            rewrite(first / name, contents[0], "written over")
            time.sleep(0.1)
        if process.poll() is not None or time.monotonic() > until:
            break
    process.kill()
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    found = json.loads(out)
    assert min(found.values()) > 0, found
