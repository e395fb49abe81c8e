"""Sources that change while they are converted, before that goes on, or before it is used again."""

import contextlib
import gzip
import importlib.util
import os
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse

import streammach.inputs.matrices.matrix
import streammach.inputs.text
from streammach.conversion import intake
from streammach.conversion.convert import convert
from streammach.conversion.folder import ConversionMemory
from streammach.inputs.source_options import SourceOptions
from streammach.inputs.sources import open_source
from streammach.store.dataset import Dataset
from streammach.system.errors import StreammachError
from tests.campaigns.trials import Failed, Verdict, in_a_process, spread, started

HUNG_SECONDS = 60.0
N_ROWS, N_CLASSES, N_COLUMNS = 900, 15, 24
BLOCK_BYTES, PIECE_VALUES, ROOM_BYTES = 1024, 150, 30_000
CUT_OFF = 9  # exit code of a conversion that is cut off
RUNS_KEPT = 2  # so many times rows are put aside before
TRAIN = ("--buckets", "5", "--repetitions", "2", "--epochs", "1", "--learning-rate", "0.5",
         "--transform", "binary", "--threads", "1")  # fmt: skip


@dataclass(frozen=True)
class Form:
    """A format, and how a source of it is made."""

    name: str
    make: Callable[[Path, int], None]  # given a folder and which of two contents of one shape
    paths: tuple[str, ...]  # what is converted
    options: dict  # more of what ``convert`` is asked for
    given: tuple[str, ...] = ()  # the same as options of the command


def _rng(version):
    return np.random.default_rng([5, version])


def _text(version):
    rng = _rng(version)
    rows = (
        f"{row % N_CLASSES + 10} |w w{row % N_CLASSES + 10}_{rng.integers(3)} "
        f"v{rng.integers(100, 400)} |x x{rng.integers(10, 99)}:{rng.integers(2, 9)}"
        for row in range(N_ROWS)
    )
    return "\n".join(rows).encode()


def _make_text(folder, version):
    (folder / "a.vw").write_bytes(_text(version))
    (folder / "b.vw").write_bytes(_text(0)[:9000].rpartition(b"\n")[0])


def _make_gzip(folder, version):
    stored = gzip.compress(_text(version), 0, mtime=0)  # so that both have as many bytes
    (folder / "a.vw.gz").write_bytes(stored)


def _matrix(version):
    rng = _rng(version)
    rows = np.repeat(np.arange(N_ROWS), 5)
    columns = (5 * np.arange(rows.size) + rng.integers(0, 5, rows.size)) % N_COLUMNS
    values = rng.integers(1, 5, rows.size).astype(np.float32)
    x = scipy.sparse.csr_matrix((values, (rows, columns)), (N_ROWS, N_COLUMNS))
    x.sum_duplicates()
    return x, np.roll(np.arange(N_ROWS) % N_CLASSES, 7 * version)


def _make_npz(folder, version):
    x, y = _matrix(version)
    parts = {"data": x.data, "indices": x.indices, "indptr": x.indptr, "shape": x.shape}
    np.savez(folder / "m.npz", **parts, format=b"csr", y=y)


def _make_npy(folder, version):
    x, y = _matrix(version)
    np.save(folder / "x.npy", x.toarray())
    np.save(folder / "y.npy", y)


def _make_hdf5(folder, version):
    import h5py  # loads a library of its own

    x, y = _matrix(version)
    with h5py.File(folder / "m.h5", "w") as file:
        file.create_dataset("X", data=x.toarray(), chunks=(64, N_COLUMNS))
        file["y"] = y


def _make_anndata(folder, version):
    import anndata
    import pandas

    x, y = _matrix(version)
    obs = pandas.DataFrame({"kind": y}, index=[str(i) for i in range(N_ROWS)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        anndata.AnnData(X=x, obs=obs).write_zarr(folder / "m.zarr")


FORMS = [
    Form("text", _make_text, ("a.vw", "b.vw"), {}),
    Form("gzip", _make_gzip, ("a.vw.gz",), {}),
    Form("npz", _make_npz, ("m.npz",), {"y_path": "y"}, ("--y-path", "y")),
    Form("npy", _make_npy, ("x.npy",), {"labels": ["y.npy"]}, ("--labels", "y.npy")),
    Form("hdf5", _make_hdf5, ("m.h5",), {"y_path": "y"}, ("--y-path", "y")),
]  # fmt: skip
if importlib.util.find_spec("anndata"):
    FORMS += [Form("anndata", _make_anndata, ("m.zarr",), {"y_path": "obs/kind"},
                   ("--y-path", "obs/kind"))]  # fmt: skip


def _cut(path, other, rng):
    os.truncate(path, int(rng.integers(path.stat().st_size)))


def _grown(path, other, rng):
    """Append to a file what stands at its start."""
    piece = path.read_bytes()[: int(rng.integers(1, 3000))]
    with open(path, "ab") as file:
        file.write(piece)


def _replaced(path, other, rng):
    """Give another file its name."""
    shutil.copyfile(other, path.with_name("other"))
    os.replace(path.with_name("other"), path)


def _rewritten(path, other, rng):
    """Write other content into it."""
    with open(path, "r+b") as file:
        file.write(other.read_bytes())
        file.truncate()


def _put_back(path, other, rng):
    """Write other content into it, and set its time to what it was."""
    facts = path.stat()
    _rewritten(path, other, rng)
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))


WHILE = {
    "cut": _cut, "grown": _grown, "replaced": _replaced, "rewritten": _rewritten,
    "touched": lambda path, other, rng: os.utime(path),
    "removed": lambda path, other, rng: path.unlink(),
}  # fmt: skip
BETWEEN = WHILE | {"put back": _put_back}


class Sources:
    """Sources of each form with two contents, and what conversions of them make undisturbed.

    The contents are always the same: a trial decides what happens to them.
    """

    def __init__(self, folder, seed):
        self.folder = folder
        self.calls, self.files = {}, {}
        for form in FORMS:
            for version in (0, 1):
                where = folder / f"{form.name}-{version}"
                where.mkdir()
                form.make(where, version)
            where = self.new_trial(form)
            done = self.convert(form, where)
            if done["code"]:
                raise RuntimeError(f"{form.name}: {done}")
            self.calls[form.name] = done["calls"]
            read = in_a_process(lambda of=form, at=where: _read(of, at), HUNG_SECONDS)
            self.files[form.name] = read["files"]
            where = self.new_trial(form)
            ended = started(["fit", *form.paths, *form.given, "--out", "run", *TRAIN], where)
            if ended.code:
                raise RuntimeError(f"{form.name}: {ended}")
            where.rename(folder / f"{form.name}-fitted")

    def new_trial(self, form, state="0"):
        """Return a new folder with a source."""
        where = self.folder / "trial/work"
        shutil.rmtree(where.parent, ignore_errors=True)
        where.parent.mkdir()
        shutil.copytree(self.folder / f"{form.name}-{state}", where)
        for name in ("home", "tmp"):
            (where.parent / name).mkdir()
        return where

    def convert(self, form, where, *, at=None, change=None, cut_off=False, out="out"):
        """Convert in a process of its own; return exit code, digest, what was said, reports.

        At the report of progress `at` something is changed; a process that is cut off dies after
        some rows were put aside.
        """

        def work():
            os.chdir(where)
            streammach.inputs.text.BLOCK_BYTES = BLOCK_BYTES
            streammach.inputs.matrices.matrix.PIECE_VALUES = PIECE_VALUES
            ConversionMemory.room = lambda *_: ROOM_BYTES
            if cut_off:
                _cut_off_after(RUNS_KEPT)
            calls = [0]

            def progress(*_):
                calls[0] += 1
                if calls[0] == at:
                    change()

            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    done = convert(
                        list(form.paths), out, threads=2, progress=progress, **form.options
                    )
            except StreammachError as error:
                return {"code": error.exit_code, "said": str(error), "calls": calls[0]}
            return {"code": 0, "digest": done.digest, "resumed": done.resumed, "calls": calls[0]}

        return in_a_process(work, HUNG_SECONDS)


def _read(form, where):
    """Return the names of the files that are read: not all of those in a folder are."""
    labels = [where / name for name in form.options.get("labels", ())]
    options = SourceOptions(labels=next(iter(labels), None), y_path=form.options.get("y_path"))
    opened = [open_source(where / name, options) for name in form.paths]
    read = {path.resolve() for source in opened for path in source.files()}
    names = [path.relative_to(where.resolve()).as_posix() for path in read]
    return {"files": sorted([*names, *form.options.get("labels", ())])}


def _cut_off_after(number):
    write, written = intake.write_spill, [0]

    def dying(*args, **kwargs):
        found = write(*args, **kwargs)
        written[0] += 1
        if written[0] == number:
            os._exit(CUT_OFF)
        return found

    intake.write_spill = dying


def changed(place, rng, trial):
    """Change a source at one of three moments; what is made of it is said, or refused."""
    form = FORMS[trial % len(FORMS)]
    turn = trial // len(FORMS)
    moment = (_while_converted, _before_going_on, _before_reuse)[(0, 0, 1, 2)[turn % 4]]
    ways = WHILE if moment is _while_converted else BETWEEN
    way = list(ways)[spread(turn // 4 * 2 + turn % 2, len(ways))]
    files = place.files[form.name]
    number = int(rng.integers(len(files)))

    def change(where):
        other = place.folder / f"{form.name}-1" / files[number]
        with contextlib.suppress(FileNotFoundError):
            ways[way](where / files[number], other, rng)

    what = f"{form.name}, {files[number]} {way}"
    facts = moment(place, form, rng, change, what)
    return Verdict(facts=facts | {moment.__name__.strip("_"): 1, form.name: 1})


def _while_converted(place, form, rng, change, what):
    where = place.new_trial(form)
    at = int(rng.integers(1, place.calls[form.name] + 1))
    done = place.convert(form, where, at=at, change=lambda: change(where))
    what = f"{what} at report {at} of {place.calls[form.name]}"
    _check_ended(done, what)
    if done["code"]:
        _check_nothing(form, where, done, what)
        return {"refused": 1}
    _check_is_of(place, form, where, done, what, before=True)
    return {"right": 1}


def _before_going_on(place, form, rng, change, what):
    where = place.new_trial(form)
    first = place.convert(form, where, cut_off=True)
    if not first.get("ended"):
        raise Failed("crashed", f"{what}: it was to be cut off: {first}")
    change(where)
    done = place.convert(form, where)
    what = f"{what} before it goes on"
    _check_ended(done, what)
    anew = place.convert(form, where, out="anew")
    if (done["code"], done.get("digest")) != (anew["code"], anew.get("digest")):
        raise Failed("silent_wrong", f"{what}: {done}, and anew {anew}")
    if not done["code"]:
        _check_is_of(place, form, where, done, what, before=False)
    return {"resumed" if done.get("resumed") else "begun_anew": 1, "refused": int(done["code"] > 0)}


def _before_reuse(place, form, rng, change, what):
    where = place.new_trial(form, "fitted")
    before = _contents(place, form, where)
    change(where)
    same = _contents(place, form, where) == before
    command = ["fit", *form.paths, *form.given, "--out", "run", *TRAIN, "--resume"]
    ended = started(command, where)
    what = f"{what} before fit uses the store again: {ended}"
    if ended.code == StreammachError.exit_code or "Traceback" in ended.err or ended.code is None:
        raise Failed("crashed", what)
    if ended.code == 0 and not same:
        raise Failed("silent_wrong", what)
    if ended.code and same:
        raise Failed("lost", what)
    return {"refused" if ended.code else "right": 1}


def _contents(place, form, where):
    paths = [where / name for name in place.files[form.name]]
    return {path: path.read_bytes() for path in paths if path.exists()}


def _check_ended(done, what):
    if done["code"] is None:
        raise Failed("hung", f"{what}: {done}")
    if done["code"] == StreammachError.exit_code or done.get("ended"):
        raise Failed("crashed", f"{what}: {done}")


def _check_nothing(form, where, done, what):
    """After a refusal there is no store; what was read may be kept for the next time."""
    left = sorted(p.name for p in where.iterdir() if p.name.lstrip(".").startswith("out"))
    if left not in ([], [".out.partial"]):
        raise Failed("leaked", f"{what}: {done}: {left}")


def _check_is_of(place, form, where, done, what, *, before):
    """A store is that of what its source holds now, or held before where that may be."""
    with Dataset.open(where / "out") as data:
        problems = data.verify(deep=True)
        said = [(one.bytes, one.crc32c) for one in data.root.source]
    (where / "out").rename(where / "found")
    wanted = [_undisturbed(place, form, where)]
    if before:
        wanted.append(_undisturbed(place, form, place.folder / f"{form.name}-0", keep=False))
    if problems or (done["digest"], said) not in wanted:
        raise Failed("silent_wrong", f"{what}: {done} {said}, not one of {wanted}: {problems}")


def _undisturbed(place, form, where, *, keep=True):
    """Return the digest of the store of a source as it is now, and what it says of that."""
    copy = where.parent / "undisturbed" if keep else place.folder / "undisturbed"
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir()
    for name in (*form.paths, *form.options.get("labels", ())):
        if (where / name).is_dir():
            shutil.copytree(where / name, copy / name)
        elif (where / name).exists():
            shutil.copyfile(where / name, copy / name)
    done = place.convert(form, copy)
    if done["code"]:
        return None
    with Dataset.open(copy / "out") as data:
        return done["digest"], [(one.bytes, one.crc32c) for one in data.root.source]
