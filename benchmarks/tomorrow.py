"""What a training that goes on from yesterday's reaches, beside a full one, day after day.

    python -m benchmarks.tomorrow TRAIN.vw TEST.vw [--group LETTER] [--rows N] [--days 1,3,5]
        [--classes N] [--memory SIZE] [--first SHARE] [--total DAYS] [--folder DIR] [--json FILE]

Rows of VW text, plain or gzip, in a random order of their groups: the values of one namespace, such
as the files that they come from. Day 0 has four fifths of them, or SHARE; each of five days, or so
many, an equal part of the rest, and so many classes that no earlier day has: their earlier rows
come that day. Each day's store extends that of the day before, and `train --start` goes on from the
run of the day before. On some days a model is trained on the same store from the beginning.

Said are processor seconds of each training on one thread, and accuracy and top-5 of the same test
rows: all of them, and those of classes that came on a day so far.
"""

import gzip
import json
import os
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

import numpy as np

from benchmarks.machine_facts import facts, parser, report

LEAST, MOST = 8, 200  # rows of a class that comes later
TEST_ROWS = 6000


def lines_of(path):
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rb") as file:
        yield from file


def label_of(line):
    return line.split(b" ", 1)[0]


def group_of(line, letter):
    at = line.find(b" |" + letter + b" ")
    return line if at < 0 else line[at:].split(b"|", 2)[1]


def taken(path, letter, most):
    """Rows of groups in a random order, so many at most."""

    def key(line):
        return zlib.crc32(group_of(line, letter)) * 0x9E3779B1 & 0xFFFFFFFF

    n = sum(1 for _ in lines_of(path))
    bound = 2**32 * min(1.0, most / n)
    return sorted((line for line in lines_of(path) if key(line) < bound), key=key)


def by_day(lines, n_classes, first_share, n_days):
    """The rows of each day, and the classes that come with it."""
    labels = np.array([label_of(line) for line in lines])
    first = int(first_share * len(lines))
    edges = np.linspace(first, len(lines), n_days + 1).astype(int)
    day = np.searchsorted(edges, np.arange(len(lines)), "right")
    names, counts = np.unique(labels, return_counts=True)
    some = names[(counts >= LEAST) & (counts <= MOST)]
    some = np.random.default_rng(0).permutation(some)[: n_days * n_classes]
    came = {name: 1 + i // n_classes for i, name in enumerate(some)}
    least = np.array([came.get(label, 0) for label in labels])
    day = np.maximum(day, least)
    return [[lines[i] for i in np.flatnonzero(day == d)] for d in range(n_days + 1)], came


def run(*arguments):
    """Run a command; return what it prints as JSON, and its processor seconds."""
    command = [sys.executable, "-m", "streammach", *map(str, arguments), "--json"]
    process = subprocess.Popen(
        [*command, "--threads", "1", "--progress", "none"], stdout=subprocess.PIPE
    )
    text = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} ended with {status}")
    return json.loads(text), used.ru_utime + used.ru_stime


def figures(model, folder):
    found = {}
    for name in ("all", "new"):
        path = folder / f"{name}.vw"
        if path.stat().st_size:
            got, _ = run("evaluate", model, path, "--on-bad-row", "skip")
            found[name] = [round(got["accuracy"], 4), round(got["top_5_accuracy"], 4)]
            found[f"{name}_rows"] = got["n_rows"]
    return found


def compare(asked, folder):
    letter = asked.group.encode()
    lines = taken(asked.train, letter, asked.rows)
    days, came = by_day(lines, asked.classes, asked.first, asked.total)
    test = [*lines_of(asked.test)]
    test = test[:: max(1, len(test) // TEST_ROWS)]
    (folder / "all.vw").write_bytes(b"".join(test))
    out = []
    for d, lines in enumerate(days):
        new = [line for line in test if 0 < came.get(label_of(line), 0) <= d]
        (folder / "new.vw").write_bytes(b"".join(new))
        (folder / "day.vw").write_bytes(b"".join(lines))
        store, before = folder / f"{d}.zarr", folder / f"{d - 1}.zarr"
        more = ["--extend", before] if d else []
        made, seconds = run("convert", folder / "day.vw", store, "--force", *more)
        entry = {"day": d, "rows": len(lines), "convert_seconds": round(seconds, 1)}
        entry |= {name: made[name] for name in ("n_classes", "new_classes", "new_features")}
        ways = {"start": ["--start", folder / f"start-{d - 1}"]} if d else {"start": []}
        if d in asked.days:
            ways["full"] = []
        for way, options in ways.items():
            model = folder / f"{way}-{d}"
            if not (model / "result.json").exists():
                _, seconds = run("train", store, "--out", model, "--memory", asked.memory, *options)
                (folder / f"{way}-{d}.seconds").write_text(str(seconds))
            seconds = float((folder / f"{way}-{d}.seconds").read_text())
            entry[way] = {"seconds": round(seconds, 1), **figures(model, folder)}
        print(json.dumps(entry), file=sys.stderr, flush=True)
        out.append(entry)
    return out


def main():
    known = parser(__doc__)
    known.add_argument("train", type=Path)
    known.add_argument("test", type=Path)
    known.add_argument("--group", default="-")
    known.add_argument("--rows", type=int, default=60_000)
    known.add_argument("--classes", type=int, default=25)
    known.add_argument("--memory", default="1GB")
    known.add_argument("--first", type=float, default=0.8)
    known.add_argument("--total", type=int, default=5)
    known.add_argument("--days", type=lambda text: [*map(int, text.split(","))], default=[1, 3, 5])
    known.add_argument("--folder", type=Path)
    asked = known.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = asked.folder or Path(scratch)
        folder.mkdir(exist_ok=True)
        report({"machine": facts(), "days": compare(asked, folder)}, asked.json)


if __name__ == "__main__":
    main()
