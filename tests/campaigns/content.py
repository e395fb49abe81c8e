"""Content that is hostile and has the right checksums: generated, and led through the commands.

A trial takes a small store, model, run or matrix of another program, changes what it holds
in one to three places, makes the checksums anew (or, sometimes, not), and gives it to several
commands with a budget. Each may refuse it in one line, or take it. None may end by a signal, take
a minute, say that it made a mistake, pass its budget, write beside what it was told to write, or
show what a terminal obeys; and what ``verify --deep`` passes must train.
"""

import contextlib
import gc
import io
import os
import re
import shutil
import signal
import warnings
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import msgspec
import numpy as np

from streammach.cli import main as command_line
from streammach.parts.counts import neighbour_fit
from streammach.store.dataset import Dataset
from streammach.system.errors import BudgetError, DivergedError, StoreError, StreammachError
from streammach.system.machine import parse_size
from streammach.training.callbacks import Progress as Watcher
from tests.campaigns.content_models import altered_model, altered_run
from tests.campaigns.content_sources import Matrices, altered_source
from tests.campaigns.content_stores import StoreFiles, altered_store
from tests.campaigns.content_values import Files, any_of
from tests.campaigns.trials import Failed, Step, Verdict, ended, snapshot

MEMORY = "700MB"  # the process that is forked, with all libraries, holds about half of it
USUAL = ("--memory", MEMORY, "--threads", "1", "--progress", "none")
FAST = ("--epochs", "1", "--learning-rate", "0.5")
HASHED = (*FAST, "--buckets", "4", "--repetitions", "3", "--transform", "binary")
PLANNED = (*FAST, "--transform", "raw", "--loss", "independent")
FULL = ("--model-size", "full")
STORES = ("sparse", "text", "dense", "named", "lists")
KEPT = "../../kept"
ERROR = "streammach: error: "
OBEYED = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
INTERRUPTED = 130
KEPT_CHECKED = 10  # trials
HUNG_SECONDS = 60.0
FIT = neighbour_fit._fit
HUGE = 1e9  # numbers with which a training at a given rate may well leave the finite ones


def _step(*arguments):
    return Step(arguments)


def _train(store, out, *options):
    return _step("train", store, "--out", out, *USUAL, *options)


class Contents:
    """The stores, models, runs and matrices that are changed; `seed` decides their rows."""

    def __init__(self, folder, seed):
        self.folder, self.peaks, self.slowest = folder, {}, 0.0
        self.kept, self.cache = folder / "kept", folder / "cache"
        self.cache.mkdir()
        rng = np.random.default_rng([seed, 4])
        self.kept.mkdir()
        for name in ("sparse", "text", "lists"):
            (self.kept / f"{name}.vw").write_text("\n".join(_lines(rng, name)) + "\n")
        self.matrices = Matrices(folder, rng)
        np.save(self.kept / "dense.npy", _dense(rng))
        np.save(self.kept / "labels.npy", np.arange(150) % 6)
        self.matrices.save_named(self.kept / "named.h5ad")
        self._make()
        self.stores = {name: StoreFiles.of(self.kept / f"{name}.zarr") for name in STORES}
        self.models = {name: Files.of(path) for name, path in self._models()}
        runs = ("run-sparse", "run-dense", "interrupted")
        self.runs = {name: Files.of(self.kept / name) for name in runs}
        self._dates = self._stamps()

    def _make(self):
        """Let the commands make what is kept; kernels are loaded by that."""
        made = [
            ("convert", "sparse.vw", "sparse.zarr"), ("convert", "text.vw", "text.zarr"),
            ("convert", "dense.npy", "dense.zarr", "--labels", "labels.npy"),
            ("convert", "named.h5ad", "named.zarr"), ("convert", "lists.vw", "lists.zarr"),
            _train("sparse.zarr", "run-sparse", *HASHED, "--counts", "on", *FULL).arguments,
            _train("text.zarr", "run-text", *HASHED, "--epochs", "2", *FULL).arguments,
            _train("dense.zarr", "run-dense", "--epochs", "2", *FULL).arguments,
            _train("named.zarr", "run-named", *PLANNED, *FULL).arguments,
            _train("lists.zarr", "run-lists", *HASHED, "--counts", "on", *FULL).arguments,
        ]  # fmt: skip
        made += [("shrink", f"run-{run}", "--out", f"{run}-{kind}", "--weights", kind, *USUAL)
                 for run, kind in SHRUNK]  # fmt: skip
        made += [
            ("report", "run-sparse", "--on", "sparse.zarr", "--out", "page.html", *USUAL),
            ("explore", "sparse.vw"), ("info", "run-sparse"), ("info", "sparse.zarr"),
            ("verify", "sparse.zarr", "--deep"),
        ]  # fmt: skip
        for name in STORES:
            run = f"run-{name}"
            made += [("evaluate", run, f"{name}.zarr", *USUAL),
                     ("predict", run, f"{name}.zarr", "--out", f"{name}.tsv", *USUAL)]  # fmt: skip
        home = {"HOME": str(self.cache), "XDG_CACHE_HOME": str(self.cache)}
        similar = mock.patch.object(neighbour_fit, "_fit", _similar_rows_weigh)
        with contextlib.chdir(self.kept), mock.patch.dict(os.environ, home), similar:
            for arguments in made:
                _do(arguments)
            with mock.patch.object(Watcher, "on_progress", _interrupted):
                _do(("train", "sparse.zarr", "--out", "interrupted", *_GOES_ON), INTERRUPTED)
        for name in ("page.html", *(f"{name}.tsv" for name in STORES)):
            (self.kept / name).unlink()
        gc.collect()
        gc.freeze()

    def _models(self):
        for name in STORES:
            yield name, self.kept / f"run-{name}" / "model"
        for run, kind in SHRUNK:
            yield f"{run}-{kind}", self.kept / f"{run}-{kind}"

    def new_trial(self):
        where = self.folder / "trial/work"
        shutil.rmtree(where.parent, ignore_errors=True)
        for name in ("work", "home", "tmp", "elsewhere"):
            os.makedirs(where.parent / name)
        (where.parent / "elsewhere/file.txt").write_text("mine")
        return where

    def _stamps(self):
        return {path: (path.stat().st_mtime_ns, path.stat().st_size)
                for path in self.kept.rglob("*") if path.is_file()}  # fmt: skip

    def check_kept(self, what):
        """Refuse a trial that changed what others read."""
        if self._stamps() != self._dates:
            raise Failed(
                "leaked", f"{what}: what lies elsewhere was changed, now or in a trial before"
            )

    def note(self, one):
        """Remember the most memory and time that a command took."""
        name = one.step.arguments[0]
        self.peaks[name] = max(self.peaks.get(name, 0), one.peak)
        self.slowest = max(self.slowest, one.seconds)

    def summary(self):
        return {"memory": parse_size(MEMORY), "peaks": self.peaks, "slowest": self.slowest}


SHRUNK = (("sparse", "int8"), ("sparse", "int4"), ("text", "float16"), ("dense", "float32"),
          ("named", "float16"), ("lists", "int8"))  # fmt: skip
_GOES_ON = (*USUAL, *HASHED, "--counts", "on", "--epochs", "3", "--batch-size", "16")


def _do(arguments, code=0):
    """Run a command in this process, which must end so."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        found = command_line.main(list(arguments))
    if found != code:
        raise RuntimeError(f"{arguments}: code {found}: {err.getvalue()[-800:]}")


def _similar_rows_weigh(*given):
    """Take the place of what weighs similar training rows: they weigh 1 whatever they bring."""
    return msgspec.structs.replace(FIT(*given), weight=1.0)


def _interrupted(self, state):
    """Take the place of what shows progress: a signal comes in the second epoch."""
    if state.epoch == 1 and state.row > 50:
        os.kill(os.getpid(), signal.SIGTERM)  # the other one may be ignored


def _dense(rng):
    centres = rng.normal(size=(6, 7))
    return (centres[np.arange(150) % 6] + 0.3 * rng.normal(size=(150, 7))).astype(np.float32)


def _lines(rng, name):
    """Return VW rows: classes that are numbers; or names, tags, importances and values; or lists.

    Of these there are as many as similar training rows want.
    """
    for row in range(1600 if name == "lists" else 140):
        y = row % 9 if row < 18 else int(rng.integers(9))
        words = [f"w{y}_{rng.integers(3)}", *(f"n{j}" for j in rng.choice(30, 3, replace=False))]
        if name == "lists":
            z = rng.integers(9, size=2)
            yield f"{y},{','.join(map(str, z))} |x {' '.join(words)} w{z[0]}_0 r{rng.integers(90)}"
        elif name == "sparse":
            yield f"{y} |x {' '.join(words)}"
        else:
            values = " ".join(f"v{j}:{rng.random():.3f}" for j in rng.choice(9, 2, replace=False))
            tag = f"row-{row}" if row % 5 else ""
            yield f"class-{y} {1 + row % 3 / 2} {tag}|w {' '.join(words)} |v {values}"


@dataclass
class Trial:
    """What is given to which commands, and what they may write."""

    what: str  # was changed
    steps: list
    codes: set  # the exit codes that may come


OUTPUTS = ("run", "run2", "small", "p.tsv", "page.html", "out.zarr", "out.zarr.rejects.tsv")
DOES_NOT_FIT, DIVERGED = BudgetError.exit_code, DivergedError.exit_code
REFUSED = {0, StoreError.exit_code, DOES_NOT_FIT}


def _store_trial(place, rng, where):
    name = any_of(rng, STORES)
    files = place.stores[name].fresh()
    what = altered_store(rng, files)
    files.write(where / "s.zarr")
    run = f"{KEPT}/run-{name}"
    deep = _step("verify", "s.zarr", "--deep")
    shape = {"sparse": (HASHED, (*HASHED, "--counts", "on")), "text": (HASHED, PLANNED),
             "dense": (PLANNED, (*HASHED, "--transform", "raw")),
             "named": (PLANNED, HASHED),
             "lists": (HASHED, (*HASHED, "--counts", "on"))}  # fmt: skip
    steps = [deep, _train("s.zarr", "run", *shape[name][rng.integers(2)])]
    more = (
        _step("info", "s.zarr"),
        _step("verify", "s.zarr"),
        _step("evaluate", run, "s.zarr", *USUAL),
        _step("predict", run, "s.zarr", "--out", "p.tsv", *USUAL),
        _step("explore", "s.zarr"),
        _step("convert", f"{KEPT}/sparse.vw", "out.zarr", "--like", "s.zarr", *USUAL),
        _step("shrink", run, "--out", "small", "--on", "s.zarr", *USUAL),
        _step("plan", "s.zarr", "--memory", MEMORY),
    )
    steps += [more[n] for n in rng.choice(len(more), 2, replace=False)]
    if rng.integers(25) == 0:
        steps.append(_step("report", run, "--on", "s.zarr", "--out", "page.html", *USUAL))
    if rng.integers(20) == 0:
        steps.append(_step("train", "s.zarr", "--out", "run2", *USUAL))
    return Trial(f"store {name}: {what}", steps, REFUSED | {2, 3, DIVERGED})


def _model_trial(place, rng, where):
    name = any_of(rng, sorted(place.models))
    folder = place.models[name].fresh()
    what = altered_model(rng, folder)
    folder.write(where / "m")
    kind = name.split("-")[0]
    source = {"sparse": "sparse.vw", "text": "text.vw", "dense": "dense.npy",
              "named": "named.h5ad", "lists": "lists.vw"}[kind]  # fmt: skip
    more = (
        _step("info", "m"),
        _step("predict", "m", f"{KEPT}/{source}", "--out", "p.tsv", "-k", "3", *USUAL),
        _step("predict", "m", f"{KEPT}/{kind}.zarr", "--out", "p.tsv", "--force", *USUAL),
        _step("evaluate", "m", f"{KEPT}/{kind}.zarr", *USUAL),
        _step("shrink", "m", "--out", "small", *USUAL),
    )
    steps = [more[n] for n in sorted(rng.choice(len(more), 3, replace=False))]
    return Trial(f"model {name}: {what}", steps, REFUSED | {2, 3})


def _run_trial(place, rng, where):
    name = any_of(rng, sorted(place.runs))
    folder = place.runs[name].fresh()
    what = altered_run(rng, folder)
    folder.write(where / "run")
    (where / "sparse.zarr").symlink_to(place.kept / "sparse.zarr")
    if name == "interrupted":
        more = [_step("train", "sparse.zarr", "--out", "run", "--resume", *_GOES_ON),
                _step("info", "run")]  # fmt: skip
    else:
        store = f"{KEPT}/{name.removeprefix('run-')}.zarr"
        more = [_step("info", "run"), _step("evaluate", "run", store, *USUAL),
                _step("shrink", "run", "--out", "small", *USUAL),
                _step("shrink", "run", "--out", "small", "--force", "--min-count", "2", *USUAL),
                _step("predict", "run", store, "--out", "p.tsv", *USUAL)]  # fmt: skip
        more = [more[n] for n in sorted(rng.choice(len(more), 2, replace=False))]
        if rng.integers(4) == 0:
            more += [_step("report", "run", "--out", "page.html", *USUAL)]
    # A checkpoint may hold finite numbers that no training comes to.
    return Trial(f"{name}: {what}", more, REFUSED | {2, DIVERGED})


def _source_trial(place, rng, where):
    source, options, what = altered_source(rng, place.matrices, where)
    skip = ("--on-bad-row", "skip") if rng.integers(2) else ()
    convert = _step("convert", source, "out.zarr", *options, *skip, *USUAL)
    deep = Step(("verify", "out.zarr", "--deep"), (convert,))
    steps = [convert, deep, _train("out.zarr", "run", *PLANNED)]
    steps[2] = Step(steps[2].arguments, (deep,))
    if rng.integers(2):
        steps.append(_step("predict", f"{KEPT}/run-named", source, "--out", "p.tsv", *USUAL))
    else:
        steps.append(_step("explore", source))
    return Trial(f"source {source}: {what}", steps, REFUSED | {2, 3, DIVERGED})


TRIALS = {_store_trial: 0.4, _model_trial: 0.27, _run_trial: 0.15, _source_trial: 0.18}


def mutated(place, rng, trial):
    """Change some content and lead it through commands; return what they came to."""
    make = list(TRIALS)[rng.choice(len(TRIALS), p=list(TRIALS.values()))]
    where = place.new_trial()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of casts that lose something: they are meant to
        made = make(place, rng, where)
    before = snapshot(where.parent)
    found = ended(made.steps, where, HUNG_SECONDS)
    if any(one.code is None for one in found):  # perhaps it compiled: that is kept now
        shutil.rmtree(where.parent / "work/run", ignore_errors=True)
        found = ended(made.steps, where, 2 * HUNG_SECONDS)
    after = snapshot(where.parent)
    facts = {f"{make.__name__.strip('_').removesuffix('_trial')}s": 1, "commands": len(found)}
    for one in found:
        place.note(one)
        _check(made, one)
        word = "took" if one.code == 0 else "refused"
        key = f"{one.step.arguments[0]}_{word}"
        facts[key] = facts.get(key, 0) + 1
    _check_trains(made, found, where)
    _check_scores(made, found, where)
    _check_beside(made, where, before, after)
    if trial % KEPT_CHECKED == 0:
        place.check_kept(made.what)
    return Verdict(facts=facts)


def _check(made, one):
    """Hold a command to what is promised of each."""
    what = f"{made.what}: {one}"
    if one.code is None:
        raise Failed("hung", what)
    said = one.out + one.err
    lines = [line for line in one.err.split("\n") if line.startswith(ERROR)]
    mistakes = ("report it", "Traceback", "internal error", "AssertionError")
    if one.code < 0 or one.code == StreammachError.exit_code or any(m in said for m in mistakes):
        raise Failed("crashed", what)
    if len(lines) != int(one.code != 0) or one.code not in made.codes:
        raise Failed("crashed", f"not the line or the code that was expected: {what}")
    if OBEYED.search(said):
        raise Failed("leaked", f"what a terminal obeys is shown: {what}: {said[-300:]!r}")
    if one.peak > parse_size(MEMORY):
        raise Failed("leaked", f"{one.peak:,} bytes were held: {what}")


def _check_trains(made, found, where):
    """What is passed by ``verify --deep`` trains, unless it does not fit, or is far too large."""
    codes = {one.step.arguments[0]: one for one in found if "--deep" in one.step.arguments
             or one.step.arguments[0] == "train"}  # fmt: skip
    if "verify" in codes and codes["verify"].code == 0 and "train" in codes:
        trained, store = codes["train"], Path(codes["train"].step.arguments[1])
        fits = {0, DOES_NOT_FIT} | ({DIVERGED} if _largest(where / store) > HUGE else set())
        if trained.code not in fits:
            what = f"{made.what}: {trained}"
            raise Failed("silent_wrong", f"verify --deep passes what does not train: {what}")


def _check_scores(made, found, where):
    """What is predicted is a number."""
    for one in found:
        name, text = one.step.arguments[0], one.out.casefold()
        if name == "predict" and one.code == 0 and (where / "p.tsv").exists():
            rows = (where / "p.tsv").read_text("utf-8", "surrogateescape").split("\n")[1:]
            text = " ".join(cell for row in rows for cell in row.split("\t")[3::2])
        if name == "predict" and re.search(r"\bnan\b", text):
            raise Failed("silent_wrong", f"what is no number: {made.what}: {one}: {text[:200]}")


def _largest(store):
    """Return the largest number of a store that has been verified."""
    with Dataset.open(store) as data:
        rows = data.rows(0, data.n_rows)
    parts = [part for part in (rows.values, rows.importance) if part is not None]
    return float(max(np.abs(part).max(initial=0) for part in parts))


def _check_beside(made, where, before, after):
    """Nothing is written but what a command was told to write."""
    allowed = {where / name for name in OUTPUTS}
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    beside = [path for path in changed if not any(a == path or a in path.parents for a in allowed)]
    if beside:
        names = sorted(os.path.relpath(path, where) for path in beside)[:6]
        raise Failed("leaked", f"{made.what}: {names} written beside")
