"""Each command and its like in Python, with models of each kind, beside a card that does nothing.

python -m tests.backends.fake_driver.commands FOLDER prints as JSON, by its name, how each call
ended, the devices that were opened in it, and its error. A kind of model is a line of MODELS, a
call a line of `calls_with` or `trainings`.
"""

import contextlib
import io
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from streammach.backends.registry import BACKENDS
from tests.builders import TinyData, listed_lines

FEW = ("--epochs", "1", "--learning-rate", "0.1", "--transform", "binary", "--threads", "1")
HASHED = ("--buckets", "8", "--repetitions", "4")
MODELS = {  # rows, options, and whether a card can do it
    "counts alone": ("train", ("--repetitions", "0"), False),
    "many buckets": ("wide", ("--exact", "--counts", "off"), False),
    "hashed": ("train", (*HASHED, "--counts", "off", "--model-size", "full"), True),
    "small": ("train", (*HASHED, "--counts", "off"), True),
    "counts beside": ("train", (*HASHED, "--counts", "on"), True),
    "lists": ("lists", HASHED, True),
    "dense": ("dense", ("--exact",), True),
    "joint": ("train", (*HASHED, "--counts", "off", "--loss", "joint"), True),
}
WIDE = 4200  # classes with a bucket each: more than a block of a card has columns
opened = []


def apart(rank):
    """Rank as a card that does nothing, but no class of a row twice: no card ranks so."""

    def ranked(rows, kind, scores, ids):
        rank(rows, kind, scores, ids)
        ids[:] = np.arange(ids.shape[1])

    return ranked


def watch():
    """Write down on which device a backend is opened."""

    def watched(name, kind):
        def open_it(*given, **how):
            opened.append(name)
            backend = kind.open(*given, **how)
            if name == "cuda":
                backend.rank = apart(backend.rank)
            return backend

        return replace(kind, open=open_it)

    BACKENDS.update({name: watched(name, kind) for name, kind in BACKENDS.items()})


def done(call):
    """Do it; return how it ended, where, and what it said of an error."""
    opened.clear()
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        code = call()
    line = [one for one in said.getvalue().splitlines() if one.startswith("streammach")]
    return code, sorted(set(opened)), line[-1] if line else said.getvalue()[-300:]


def command(*arguments):
    from streammach.cli.main import main

    return done(lambda: main([str(a) for a in arguments]))


def python(call):
    from streammach.system.errors import StreammachError

    def tried():
        try:
            call()
        except StreammachError as error:
            sys.stderr.write(f"streammach: {error.as_command()}\n")
            return error.exit_code
        return 0

    return done(tried)


def stores(folder):
    """Make a store of each kind of rows, and rows of classes that none of them has."""
    from streammach import convert

    rng = np.random.default_rng(4)
    tiny = TinyData(folder, rng)
    tiny.store(n_rows=300)
    wide = [f"class-{i} |w a{i % 7} b{i % 11}" for i in range(WIDE)]
    convert(tiny.text("wide.vw", wide), folder / "wide.zarr")
    listed = tiny.text("lists.vw", listed_lines(rng, 300))
    convert(listed, folder / "lists.zarr", multilabel="on")
    tiny.dense_store("dense.zarr", rng.normal(size=(200, 12)), rng.integers(20, size=200))
    (folder / "new.vw").write_text("new |w a1 b2\nnew |w a1 b3\n" * 5)


def trainings(folder, kind):
    """What makes a model of a kind: commands, Python, with times, and on a card alone."""
    import streammach as sm

    rows, options, able = MODELS[kind]
    store, out = folder / f"{rows}.zarr", iter(folder / f"{kind}-{i}" for i in range(9))
    train = ("train", store, *options, *FEW, "--progress", "none", "--out")
    yield "train", command(*train, next(out))
    if not able:
        yield "train --device cuda", command(*train, next(out), "--device", "cuda")
    if kind != "hashed":
        return
    yield "train --latency", command(*train, next(out), "--latency", "1s")
    yield "train --time", command(*train, next(out), "--time", "1min")
    yield (
        "train --time --device cuda",
        command(*train, next(out), "--time", "1min", "--device", "cuda"),
    )
    text = folder / "train.zarr.vw"
    yield "fit", command("fit", text, *options, *FEW, "--progress", "none", "--out", next(out))
    x, y = np.random.default_rng(5).integers(3, size=(90, 5)), np.arange(90) % 20
    few = {"n_buckets": 8, "n_repetitions": 4, "epochs": 1}
    yield "sm.train", python(lambda: sm.train(x, y, **few))
    estimator = sm.MACHClassifier(**few, device="auto")
    yield "MACHClassifier", python(lambda: estimator.fit(x, y).predict(x))


def calls_with(folder, kind, run):
    import streammach as sm
    from streammach.frontends.serve.models import load_model
    from streammach.frontends.serve.options import ServeOptions
    from streammach.frontends.serve.request_rows import RequestMemory

    rows, _, able = MODELS[kind]
    store, on = folder / f"{rows}.zarr", ("--on", folder / f"{rows}.zarr")
    made = iter(folder / f"{run.name}-{i}" for i in range(9))
    yield "evaluate", command("evaluate", run, store)
    if not able:
        yield "evaluate --device cuda", command("evaluate", run, store, "--device", "cuda")
    yield "predict", command("predict", run, store, "--out", next(made))
    if kind not in ("small", "joint"):
        yield "report", command("report", run, *on)
        weights = {"counts alone": ("--pairs", "50"), "hashed": ("--weights", "int8")}
        weights = weights.get(kind, ("--weights", "float16"))
        yield "shrink", command("shrink", run, *weights, *on, "--out", next(made))
    if kind == "hashed":
        yield "add", command("add", run, folder / "new.vw", *on, "--out", next(made))
    options, memory = ServeOptions(), RequestMemory()
    yield "serve", python(lambda: load_model("one", run, 0, options, memory).close())
    yield "sm.evaluate", python(lambda: sm.evaluate(run, store))
    model = sm.Model.load(run)
    yield "Predictor", python(lambda: sm.Predictor(model).close())
    yield "Predictor on cuda", python(lambda: sm.Predictor(model, device="cuda").close())


def main(folder):
    stores(folder)
    watch()
    found = {}
    for kind, (rows, options, _) in MODELS.items():
        run = folder / f"{kind}-run"
        train = ("train", folder / f"{rows}.zarr", *options, *FEW, "--device", "cpu", "--out", run)
        code, where, line = command(*train, "--progress", "none")
        assert (code, where) == (0, ["cpu"]), (kind, code, where, line)
        for calls in (trainings(folder, kind), calls_with(folder, kind, run)):
            found |= {f"{kind}: {name}": result for name, result in calls}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
