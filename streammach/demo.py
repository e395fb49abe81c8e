"""A real data set without a download: guess the next identifier of Python code.

Every identifier in the running Python's standard library is a row: its name is the label, what
stands before it the features. Whole files are held out for the test, so that the model meets code
that it has not seen. The job itself is done by the real commands, each shown before it runs.
"""

from __future__ import annotations

import gzip
import hashlib
import keyword
import os
import re
import sysconfig
import tempfile
import tokenize
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import msgspec
import numpy as np
from numpy.typing import NDArray

from streammach.data.store.opening import STORE
from streammach.errors import UsageError, clean, escaped
from streammach.files.destinations import Destination, not_regular
from streammach.files.folders import remove_folder
from streammach.files.reading import file_pieces, sha256
from streammach.files.workplaces import Workplace
from streammach.files.writing import remove_file, write_atomic
from streammach.processes import run
from streammach.training.run import workplace

LEFT_OUT = {
    "site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3", "turtledemo",
    "ensurepip", "encodings", "__pycache__",
}  # fmt: skip
SILENT = {tokenize.COMMENT, tokenize.NL, tokenize.ENCODING, tokenize.ENDMARKER}
STAND_INS = {
    tokenize.NUMBER: "<num>",
    tokenize.STRING: "<str>",
    tokenize.NEWLINE: "<nl>",
    tokenize.INDENT: "<in>",
    tokenize.DEDENT: "<de>",
}
SPECIAL = re.compile(r"[:|\s]")  # characters that VW text gives a meaning
OPENING, CLOSING = "([{", ")]}"
REMEMBERED = 12  # identifiers before the row that count as a bag
TEST_SHARE = 51 / 256
MIN_LABEL_ROWS = 2
SHOWN = 5
TEXTS = ("train.vw.gz", "test.vw.gz", "few.vw.gz")
MEMORY = "1500MB"
SMOOTHING = 0.01  # of naive Bayes


@dataclass(frozen=True)
class Row:
    """An identifier and what stands before it: features as (namespace, name)."""

    label: str
    features: tuple[tuple[str, str], ...]
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
                features = _features(list(before), identifiers, brackets, module)
                start = token.line[: token.start[1]].strip()
                yield Row(text, features, f"{module}:{token.start[0]}", start)
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
    before: list[str], identifiers: deque[str], brackets: list[tuple[str, int]], module: str
) -> tuple[tuple[str, str], ...]:
    d, c, b, a = before
    features = [
        ("a", a), ("b", b), ("c", c), ("d", d), ("e", f"{b}_{a}"), ("f", f"{c}_{b}_{a}"),
        ("m", module),
    ]  # fmt: skip
    if brackets and brackets[-1][0]:
        callee, commas = brackets[-1]
        features.append(("g", f"{callee}_{commas}"))
    return (*features, *(("i", name) for name in dict.fromkeys(identifiers)))


@dataclass(frozen=True)
class Text:
    """The rows of training and test, in a fixed random order, and what was left out."""

    train: list[Row]
    test: list[Row]
    dropped: int
    n_files: int


def collect(root: Path) -> Text:
    """Read a standard library; rows of labels that training has fewer than twice are left out."""
    rows: dict[bool, list[Row]] = {False: [], True: []}
    n_files = 0
    for path in source_files(root):
        name = path.relative_to(root).as_posix()
        digest = hashlib.md5(name.encode(), usedforsecurity=False).digest()
        held_out = digest[0] < TEST_SHARE * 256
        module = name.removesuffix(".py").replace("/", ".")
        try:
            rows[held_out] += list(rows_of_file(path, module))
            n_files += 1
        except (SyntaxError, UnicodeDecodeError, tokenize.TokenError):
            continue  # files of the library that are broken on purpose
    counts = Counter(row.label for row in rows[False])
    known = {label for label, n in counts.items() if n >= MIN_LABEL_ROWS}
    kept = {key: [row for row in part if row.label in known] for key, part in rows.items()}
    dropped = len(rows[True]) - len(kept[True])
    order = {key: np.random.default_rng(key).permutation(len(part)) for key, part in kept.items()}
    train, test = ([kept[key][i] for i in order[key]] for key in (False, True))
    return Text(train, test, dropped, n_files)


def line_of(row: Row) -> str:
    """Return a row as a line of VW text."""
    parts, last = [row.label], ""
    for space, name in row.features:
        parts.append(name if space == last else f"|{space} {name}")
        last = space
    return " ".join(parts)


def packed(rows: list[Row]) -> bytes:
    """Return rows as gzipped VW text; the bytes do not depend on the time."""
    text = "".join(line_of(row) + "\n" for row in rows).encode()
    return gzip.compress(text, 5, mtime=0)


class NaiveBayes:
    """Multinomial naive Bayes over sparse counts: the baseline that any method must beat.

    ln p(label) + sum over features of ln ((n_fl + s) / (N_l + s d)), s = 0.01.
    """

    def __init__(self, rows: list[Row]) -> None:
        self.labels = sorted({row.label for row in rows})
        number = {label: i for i, label in enumerate(self.labels)}
        pairs: dict[tuple[str, str], Counter[int]] = {}
        totals = np.zeros(len(self.labels))
        counts = np.zeros(len(self.labels))
        for row in rows:
            y = number[row.label]
            counts[y] += 1
            totals[y] += len(row.features)
            for feature in row.features:
                pairs.setdefault(feature, Counter())[y] += 1
        self._prior = np.log(counts / len(rows))
        self._absent = np.log(SMOOTHING / (totals + SMOOTHING * len(pairs)))
        self._gain = {
            feature: (
                np.fromiter(found.keys(), np.int64, len(found)),
                np.log1p(np.fromiter(found.values(), np.float64, len(found)) / SMOOTHING),
            )
            for feature, found in pairs.items()
        }

    def best(self, row: Row, k: int) -> list[str]:
        """Return the k best labels of a row."""
        known = [self._gain[f] for f in row.features if f in self._gain]
        scores: NDArray[np.float64] = self._prior + len(known) * self._absent
        for ids, gains in known:
            scores[ids] += gains
        top = np.argpartition(-scores, k)[:k]
        return [self.labels[i] for i in top[np.lexsort((top, -scores[top]))]]


class Accuracies(TypedDict):
    """What a way to guess reached on the test rows."""

    accuracy: float
    top_5_accuracy: float


def precision(rows: list[Row], best: Iterator[list[str]]) -> Accuracies:
    """Return accuracy and top-5 accuracy of lists of labels."""
    first = among = 0
    for row, labels in zip(rows, best, strict=True):
        first += labels[0] == row.label
        among += row.label in labels
    return {"accuracy": first / len(rows), "top_5_accuracy": among / len(rows)}


class _Commands:
    """Runs the real commands, each shown before it runs."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet

    def say(self, text: str = "") -> None:
        if not self._quiet:
            print(escaped(text, "\n"), flush=True)  # noqa: T201 - the demo is a command

    def run(self, arguments: list[str], *, read: bool = False) -> str:
        self.say(f"$ streammach {' '.join(arguments)}")
        with tempfile.TemporaryFile() as out, open(os.devnull, "w") as nowhere:
            code = run(
                "streammach.cli.main:main", arguments,
                stdout=out if read or self._quiet else None,
                stderr=nowhere if self._quiet else None,
            )  # fmt: skip
            if code:
                raise SystemExit(code)  # the command has said why
            out.seek(0)
            return out.read().decode()


class DemoFigures(Accuracies):
    """What a demo made and reached, beside two baselines."""

    folder: str
    n_train: int
    n_test: int
    n_dropped: int
    naive_bayes: Accuracies
    majority: Accuracies


def run_demo(folder: Path, *, quiet: bool, force: bool = False) -> DemoFigures:
    """Make the data, do the job, compare it with two baselines; return the figures."""
    commands = _Commands(quiet=quiet)
    _make_room(folder, force=force)
    root = Path(sysconfig.get_paths()["stdlib"])
    commands.say(f"reading {root}: every identifier is a row, what stands before it the features")
    text = collect(root)
    parts = (text.train, text.test, text.test[:SHOWN])
    contents = {name: packed(rows) for name, rows in zip(TEXTS, parts, strict=True)}
    texts = {name: sha256([content]) for name, content in contents.items()}
    Workplace(folder, "demo").open(texts=texts)  # before: what is not noted there is not ours
    for name, content in contents.items():
        write_atomic(folder / name, content)
    commands.say(
        f"{text.n_files:,} files: {len(text.train):,} rows to train, {len(text.test):,} rows of "
        f"other files to test;\n{text.dropped:,} more test rows ask for a name that training "
        "does not have twice: left out\n"
    )
    train, test, trained = (str(folder / name) for name in ("train.zarr", "test.zarr", "run"))
    commands.run(["convert", str(folder / "train.vw.gz"), train, "--force"])
    commands.run(["convert", str(folder / "test.vw.gz"), test, "--like", train, "--force"])
    commands.run(["train", train, "--out", trained, "--memory", MEMORY, "--hold-out-by", "m"])
    found = commands.run(["evaluate", trained, test, "--json"], read=True)
    predictions = commands.run(["predict", trained, str(folder / "few.vw.gz")], read=True)
    bayes = NaiveBayes(text.train)
    common = [label for label, _ in Counter(row.label for row in text.train).most_common(5)]
    reached = {
        "streammach": msgspec.json.decode(found, type=Accuracies),
        "naive Bayes": precision(text.test, (bayes.best(row, 5) for row in text.test)),
        "majority class": precision(text.test, (common for _ in text.test)),
    }
    commands.say(
        f"\n{'':<16} accuracy  top-5   on {len(text.test):,} rows of files not seen in training"
    )
    for name, one in reached.items():
        commands.say(f"{name:<16}    {one['accuracy']:.3f}  {one['top_5_accuracy']:.3f}")
    commands.say()
    for row, line in zip(text.test[:SHOWN], predictions.splitlines()[1:], strict=True):
        guesses = [g.replace(row.label, f"[{row.label}]") if g == row.label else g
                   for g in line.split("\t")[2::2]]  # fmt: skip
        commands.say(f"{row.place}: {row.text[-50:]} ?")
        commands.say(f"    it is {row.label}; guessed: {', '.join(guesses)}")
    commands.say(f"\neverything is in {folder}; see: streammach info {trained}")
    return {
        "folder": str(folder), "n_train": len(text.train), "n_test": len(text.test),
        "n_dropped": text.dropped, **reached["streammach"],
        "naive_bayes": reached["naive Bayes"], "majority": reached["majority class"],
    }  # fmt: skip


def _make_room(folder: Path, *, force: bool) -> None:
    """Remove what an earlier demo made; refuse everything else."""
    place = Workplace(folder, "demo")
    place.check()
    facts = place.facts()
    if facts is None:
        place.open()
        return
    run, stores = folder / "run", [folder / name for name in ("train.zarr", "test.zarr")]
    known = facts.get("texts")
    known = known if isinstance(known, dict) else {}
    texts = [folder / name for name in TEXTS if os.path.lexists(folder / name)]
    if not force and any(path.exists() for path in (run, *stores, *texts)):
        hint = "Use --force to replace it, or another --folder."
        raise UsageError("it holds an earlier demo", path=clean(folder, 300), hint=hint)
    for text in texts:
        if not_regular(text) or sha256(file_pieces(text)) != known.get(text.name):
            raise UsageError("it is not as the demo made it", path=clean(text, 300))
    for store in stores:
        Destination(store, STORE, force=True)
    workplace(run).check()
    remove_folder(run)
    for text in texts:
        remove_file(text)
