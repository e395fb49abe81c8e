"""A real data set without a download: guess the next identifier of Python code.

Every identifier in the running Python's standard library is a row: its name is the label, what
stands before it the features. Whole files are held out for the test. The real commands do the job.
"""

from __future__ import annotations

import contextlib
import hashlib
import keyword
import os
import re
import sysconfig
import tempfile
import tokenize
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TypedDict

import msgspec
import numpy as np
from isal import igzip

from streammach.store.opening import not_a_store
from streammach.system.errors import UsageError, escape_controls
from streammach.system.files.destinations import Destination, not_regular
from streammach.system.files.folders import remove_folder
from streammach.system.files.reading import file_pieces, sha256
from streammach.system.files.workplaces import Workplace
from streammach.system.files.writing import remove_file, write_atomic
from streammach.system.machine import memory_limit
from streammach.system.processes import run
from streammach.training.run import workplace

LEFT_OUT = {
    "site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3", "turtledemo",
    "ensurepip", "encodings", "__pycache__",
}  # fmt: skip
SILENT = {tokenize.COMMENT, tokenize.NL, tokenize.ENCODING, tokenize.ENDMARKER}
STAND_INS = {
    tokenize.NUMBER: "<num>", tokenize.STRING: "<str>", tokenize.NEWLINE: "<nl>",
    tokenize.INDENT: "<in>", tokenize.DEDENT: "<de>",
}  # fmt: skip
SPECIAL = re.compile(r"[:|\s]")  # characters that VW text gives a meaning
OPENING, CLOSING = "([{", ")]}"
REMEMBERED = 12  # identifiers before the row that count as a bag
TEST_SHARE = 51 / 256
MIN_LABEL_ROWS = 2
SHOWN, TESTED = 3, 10_000  # rows: whose guesses are shown; of the test
TEXTS = ("train.vw.gz", "test.vw.gz", "few.vw.gz")
STORES, RUN = ("train.zarr", "test.zarr"), "run"
MEMORY = "1500MB"
QUICK = "--epochs", "2", "--judge-rows", "1000"  # as accurate here, in less time
# What is rehearsed with, a folder of the library; with how many rows; and what must be free for
# two processes at once.
REHEARSED, REHEARSED_ROWS, REHEARSAL_BYTES = "email", 3000, 3_000_000_000
COMMAND = "streammach.cli.main:main"
KIND = ("demo",)  # of work whose kernels are kept


class Row(NamedTuple):
    """An identifier: its line of VW text, its place, and the code that stands before it."""

    label: str
    line: str
    place: str
    text: str


def source_files(root: Path) -> Iterator[Path]:
    """Yield the modules of a standard library in sorted order."""
    for path in sorted(root.iterdir()):
        if path.name in LEFT_OUT or path.name.startswith("config-"):
            continue
        if path.is_dir():
            yield from source_files(path)
        elif path.suffix == ".py":
            yield path


def rows_of_file(path: Path, module: str) -> Iterator[Row]:
    """Yield a row for each identifier of a file that is no keyword."""
    before = deque(["<bof>"] * 4, maxlen=4)
    identifiers: deque[str] = deque(maxlen=REMEMBERED)
    brackets: list[tuple[str, int]] = []  # callee ("" if none) and commas so far
    with tokenize.open(path) as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type in SILENT:
                continue
            text = _token_text(token)
            is_name = token.type == tokenize.NAME and text not in keyword.kwlist
            if is_name:
                line = f"{text} {_features(before, identifiers, brackets, module)}\n"
                start = token.line[: token.start[1]].strip()
                yield Row(text, line, f"{module}:{token.start[0]}", start)
                identifiers.append(text)
            elif text and text in OPENING:
                last = before[-1]
                callee = last if text == "(" and last.isidentifier() else ""
                brackets.append(("" if keyword.iskeyword(callee) else callee, 0))
            elif text and text in CLOSING and brackets:
                brackets.pop()
            elif text == "," and brackets:
                callee, commas = brackets[-1]
                brackets[-1] = (callee, commas + 1)
            before.append(text)


def _token_text(token: tokenize.TokenInfo) -> str:
    if token.type in STAND_INS:
        return STAND_INS[token.type]
    if token.type not in (tokenize.NAME, tokenize.OP):
        return "<str>"  # the pieces of f-strings, from Python 3.12 on
    return tokenize.tok_name[token.exact_type] if SPECIAL.search(token.string) else token.string


def _features(
    before: deque[str], identifiers: deque[str], brackets: list[tuple[str, int]], module: str
) -> str:
    d, c, b, a = before
    features = f"|a {a} |b {b} |c {c} |d {d} |e {b}_{a} |f {c}_{b}_{a} |m {module}"
    if brackets and brackets[-1][0]:
        callee, commas = brackets[-1]
        features += f" |g {callee}_{commas}"
    return f"{features} |i {' '.join(dict.fromkeys(identifiers))}" if identifiers else features


def collect(root: Path) -> tuple[list[Row], list[Row], int, int]:
    """Return rows to train and to test in a fixed random order; how many files, and lost rows.

    Test rows of labels that training has fewer than twice are left out.
    """
    rows: tuple[list[Row], list[Row]] = ([], [])
    n_files = 0
    for path in source_files(root):
        name = path.relative_to(root).as_posix()
        digest = hashlib.md5(name.encode(), usedforsecurity=False).digest()
        module = name.removesuffix(".py").replace("/", ".")
        try:
            rows[digest[0] < TEST_SHARE * 256].extend(list(rows_of_file(path, module)))
            n_files += 1
        except (SyntaxError, UnicodeDecodeError, tokenize.TokenError):
            continue  # files of the library that are broken on purpose
    counts = Counter(row.label for row in rows[0])
    kept = [[row for row in part if counts[row.label] >= MIN_LABEL_ROWS] for part in rows]
    train, test = (
        [part[i] for i in np.random.default_rng(seed).permutation(len(part))]
        for seed, part in enumerate(kept)
    )
    return train, test, n_files, len(rows[1]) - len(test)


def pack_rows(rows: list[Row]) -> bytes:
    """Return rows as gzipped VW text; the bytes do not depend on the time."""
    packed: bytes = igzip.compress("".join(row.line for row in rows).encode(), mtime=0)
    return packed


def texts_of(rows: list[Row], test_rows: list[Row]) -> dict[str, bytes]:
    """Return the texts of a demo by their names."""
    parts = (rows, test_rows, test_rows[:SHOWN])
    return {name: pack_rows(part) for name, part in zip(TEXTS, parts, strict=True)}


class Accuracies(TypedDict):
    """What a way to guess reached on the test rows."""

    accuracy: float
    top_5_accuracy: float


def majority(train: list[Row], test: list[Row]) -> Accuracies:
    """Return what the five most frequent labels reach on test rows."""
    common = [label for label, _ in Counter(row.label for row in train).most_common(5)]
    return {
        "accuracy": sum(row.label == common[0] for row in test) / len(test),
        "top_5_accuracy": sum(row.label in common for row in test) / len(test),
    }


class DemoFigures(Accuracies):
    """What a demo made and reached, beside the most frequent labels."""

    folder: str
    n_train: int
    n_test: int
    n_dropped: int
    majority: Accuracies


def commands(folder: Path) -> Iterator[tuple[str, ...]]:
    """Yield the commands of the job in a folder with the texts."""
    rows, test_rows, few = (str(folder / name) for name in TEXTS)
    train, test, run_ = (str(folder / name) for name in (*STORES, RUN))
    yield "convert", rows, train, "--force"
    yield "convert", test_rows, test, "--like", train, "--force"
    yield ("train", train, "--out", run_, "--memory", MEMORY, "--hold-out-by", "m", *QUICK)
    yield "evaluate", run_, test, "--json"
    yield "predict", run_, few


def rehearse(folder: str, kind: tuple[object, ...], library: str) -> None:
    """Do the job in a folder with a few rows, to compile its kernels; `kind` is that of a demo."""
    rows, test_rows, *_ = collect(Path(library) / REHEARSED)
    for name, content in texts_of(rows[:REHEARSED_ROWS], test_rows).items():
        (Path(folder) / name).write_bytes(content)
    for command in commands(Path(folder)):
        run(COMMAND, list(command))


@contextlib.contextmanager
def rehearse_beside(library: Path) -> Iterator[None]:
    """Have another process compile the kernels of a demo ahead of it, where they are not kept."""
    from streammach.system.jit import remember_compiled_work  # loads Numba
    from streammach.system.rehearsals import compiler

    fits = memory_limit().n_bytes >= REHEARSAL_BYTES
    with compiler(f"{__name__}:rehearse", KIND, str(library), fits=fits):
        yield
    remember_compiled_work("rehearsal", *KIND)


def run_demo(folder: Path, *, quiet: bool, force: bool = False) -> DemoFigures:
    """Make the data, do the job, compare it with the most frequent labels; return the figures."""

    def say(text: str = "") -> None:
        if not quiet:
            print(escape_controls(text, "\n"), flush=True)  # noqa: T201 - the demo is a command

    def command(*arguments: str, read: bool = False) -> str:
        say(f"$ streammach {' '.join(arguments)}")
        with tempfile.TemporaryFile() as out, open(os.devnull, "w") as nowhere:
            code = run(
                COMMAND, list(arguments),
                stdout=out if read or quiet else None, stderr=nowhere if quiet else None,
            )  # fmt: skip
            if code:
                raise SystemExit(code)  # the command has said why
            out.seek(0)
            return out.read().decode()

    _make_room(folder, force=force)
    root = Path(sysconfig.get_paths()["stdlib"])
    with rehearse_beside(root):
        say(f"reading {root}: every identifier is a row, what stands before it the features")
        rows, test_rows, n_files, n_dropped = collect(root)
        test_rows = test_rows[:TESTED]
        contents = texts_of(rows, test_rows)
        texts = {name: sha256([content]) for name, content in contents.items()}
        Workplace(folder, "demo").open(texts=texts)  # before: what is not noted there is not ours
        for name, content in contents.items():
            write_atomic(folder / name, content)
        say(
            f"{n_files:,} files: {len(rows):,} rows to train, {len(test_rows):,} rows of other "
            f"files to test;\n{n_dropped:,} more test rows ask for a name that training does not "
            "have twice: left out\n"
        )
        *made, evaluated, predicted = commands(folder)
        for given in made:
            command(*given)
        found, predictions = command(*evaluated, read=True), command(*predicted, read=True)
    own = msgspec.json.decode(found, type=Accuracies)
    common = majority(rows, test_rows)
    say(f"\n{'':<16} accuracy  top-5   on {len(test_rows):,} rows of files not seen in training")
    for name, one in {"streammach": own, "majority class": common}.items():
        say(f"{name:<16}    {one['accuracy']:z.3f}  {one['top_5_accuracy']:z.3f}")
    say()
    for row, line in zip(test_rows[:SHOWN], predictions.splitlines()[1:], strict=True):
        guesses = [f"[{guess}]" if guess == row.label else guess
                   for guess in line.split("\t")[2::2]]  # fmt: skip
        say(f"{row.place}: {row.text[-50:]} ?")
        say(f"    it is {row.label}; guessed: {', '.join(guesses)}")
    say(f"\neverything is in {folder}; see: streammach info {folder / RUN}")
    return {
        "folder": str(folder), "n_train": len(rows), "n_test": len(test_rows),
        "n_dropped": n_dropped, **own, "majority": common,
    }  # fmt: skip


def _make_room(folder: Path, *, force: bool) -> None:
    """Remove what an earlier demo made; refuse everything else."""
    place = Workplace(folder, "demo")
    place.check()
    facts = place.facts()
    if facts is None:
        place.open()
        return
    run, stores = folder / RUN, [folder / name for name in STORES]
    known = facts.get("texts")
    known = known if isinstance(known, dict) else {}
    texts = [folder / name for name in TEXTS if os.path.lexists(folder / name)]
    if not force and any(path.exists() for path in (run, *stores, *texts)):
        hint = "Use --force to replace it, or another --folder."
        raise UsageError("it holds an earlier demo", path=folder, hint=hint)
    for text in texts:
        if not_regular(text) or sha256(file_pieces(text)) != known.get(text.name):
            raise UsageError("it is not as the demo made it", path=text)
    for store in stores:
        Destination(store, not_a_store, force=True)
    workplace(run).check()
    remove_folder(run)
    for text in texts:
        remove_file(text)
