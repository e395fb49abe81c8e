"""Whether one huge cell or row in a file keeps its conversion within the budget.

    python -m benchmarks.faults.large_rows [--only NAME ...] [--memory 450MB] [--folder DIR]
                                           [--json FILE]
    python -m benchmarks.faults.large_rows --make NAME FOLDER

Some three hundred small rows and one of millions of features, a cell of eight megabytes, one that
is too large to be read, or many large cells that take next to nothing in their file: in each
container. A conversion that refuses its budget is given the one that its refusal names; a second
refusal is met in the same way, a third one is a failure, as is a process that took more than its
budget, refused or not. Exits with 1 if one failed.
"""

import gzip
import json
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.faults.shapes import HERE, tried
from benchmarks.machine_facts import facts, parser, report

N, WORDS, ITEMS = 300, 1_150_000, 1_500_000
MODULE = (sys.executable, "-m", "benchmarks.faults.large_rows")
SKIPPED = ("--on-bad-row", "skip")


def main():
    if sys.argv[1:2] == ["--make"]:
        make, options = SHAPES[sys.argv[2]]
        print(json.dumps([make(Path(sys.argv[3])), *options]))
        return 0
    arguments = parser(__doc__)
    arguments.add_argument("--only", nargs="+", choices=SHAPES, help="these")
    arguments.add_argument("--memory", default="450MB", help="the budget that is tried first")
    arguments.add_argument("--folder", help="where the files go; a temporary folder otherwise")
    options = arguments.parse_args()
    trials = []
    for name in options.only or SHAPES:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            made = subprocess.run(
                [*MODULE, "--make", name, folder], capture_output=True, check=True, cwd=HERE
            )
            command = ["convert", *json.loads(made.stdout), "a.zarr"]
            trials.append({"shape": name, **tried(command, folder, options.memory, most=2)})
            print(json.dumps(trials[-1]), flush=True)
    failed = [trial for trial in trials if trial["failed"]]
    print(f"{len(trials)} trials, {len(failed)} failed")
    report({"trials": trials, "machine": facts("psutil")}, options.json)
    return int(bool(failed))


def lines(folder, name, large, small, head=""):
    """A text of small rows and a large one among them; packed where its name says so."""
    rows = [small.format(kind="abc"[i % 3], i=i % 7) for i in range(N)]
    rows.insert(N // 2, large())
    opened = gzip.open if name.endswith("gz") else open
    with opened(folder / name, "wt") as file:
        file.write(head + "".join(row + "\n" for row in rows))
    return name


def words(n=WORDS, distinct=50_000):
    return " ".join(f"w{i % distinct}" for i in range(n))


def features(n=ITEMS, name="f{}"):
    return " ".join(name.format(i + 1) for i in range(n))


def items():
    return json.dumps({"label": "a", "x": [f"n{i % 1000}" for i in range(ITEMS)]})


def table(folder, name, cells, **written):
    """Parquet or Feather of some columns."""
    import pyarrow as pa

    found = pa.table({"label": (list("abc") * N)[: len(cells)], "x": cells})
    if name.endswith("parquet"):
        import pyarrow.parquet as pq

        pq.write_table(found, folder / name, **written)
    else:
        import pyarrow.feather as feather

        feather.write_feather(found, folder / name, **written)
    return name


def among(large, small):
    return [small] * (N // 2) + [large] + [small] * (N // 2)


LINE, OBJECT = "{kind},words and more {i}", '{{"label": "{kind}", "x": "words {i}"}}'
LISTED, PAIR = '{{"label": "{kind}", "x": ["n{i}"]}}', "{kind} | g{i}"
TEXT, NAMES = ("--label", "label", "--text", "x"), ("--label", "label", "--names", "x")
SHAPES = {
    **{f"a row of features, {name}": (partial(
        lines, name=name, large=lambda: "a | " + features(), small=PAIR), ())
       for name in ("a.vw", "a.vw.gz")},
    **{f"a row of features, {name}": (partial(
        lines, name=name, large=lambda: "1 " + features(name="{}:1"), small="{i} 1:1 2:2"), ())
       for name in ("a.svm", "a.svm.gz")},
    **{f"a large cell, {name}": (partial(
        lines, name=name, large=lambda: "a," + words(), small=LINE, head="label,x\n"), TEXT)
       for name in ("a.csv", "a.csv.gz")},
    "a large cell, a.tsv": (partial(
        lines, name="a.tsv", large=lambda: "a\t" + words(), small=LINE.replace(",", "\t"),
        head="label\tx\n"), TEXT),
    "a cell that is too large, a.csv": (partial(
        lines, name="a.csv", large=lambda: "a," + words(6 * WORDS), small=LINE,
        head="label,x\n"), (*TEXT, *SKIPPED)),
    "a large cell, a.jsonl": (partial(
        lines, name="a.jsonl", small=OBJECT,
        large=lambda: json.dumps({"label": "a", "x": words()})), TEXT),
    "a large cell, roles guessed, a.jsonl": (partial(
        lines, name="a.jsonl", small=OBJECT,
        large=lambda: json.dumps({"label": "a", "x": words()})), ()),
    **{f"a long list, {name}": (partial(lines, name=name, large=items, small=LISTED), NAMES)
       for name in ("a.jsonl", "a.jsonl.gz")},
    **{f"a long list, {name}": (lambda folder, name=name: table(
        folder, name, among(["n1"] * 2 * ITEMS, ["a"])), NAMES)
       for name in ("a.parquet", "a.feather")},
    **{f"a large cell, {name}": (lambda folder, name=name: table(
        folder, name, among(words(), "some words")), ())
       for name in ("a.parquet", "a.feather")},
    **{f"large cells that pack well, {name}": (lambda folder, name=name: table(
        folder, name, ["b" * 6_000_000 + " c"] * 60, compression="zstd"), ())
       for name in ("a.parquet", "a.feather")},
    "large cells in no dictionary, a.parquet": (lambda folder: table(
        folder, "a.parquet", ["b" * 6_000_000 + " c"] * 60, compression="zstd",
        use_dictionary=False), ()),
}  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
