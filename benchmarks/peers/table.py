"""The figures of benchmarks.peers.run as a page.

python -m benchmarks.peers.table benchmarks/results/peers.json > docs/benchmarks.md
"""

import json
import re
import sys
import textwrap
from pathlib import Path

HEAD = """# Beside other systems

![Callees: accuracy for a time of training](frontier-callees.svg)

![Callees: accuracy for the bytes of a model](benchmarks-callees.svg)

In these pictures streammach was trained with `--memory 2GB --time ...` and nothing else
(identifiers: and `--hold-out-by m`), on one core, and leaves the model that it found small enough
(`python -m benchmarks.frontier`, `benchmarks/results/frontier.json`: the whole test sets). The
others are those of the tables below, where callees and identifiers stand with a part of their test
rows; "streammach, whole" is the table's, trained before models were made smaller at the end of a
training. Of the callees, and of the hypernyms with namespaces, models that
`shrink --size` made of a whole one are drawn too (`benchmarks/results/sizes.json`: the first 20,000
test rows at most). Each data set has its pictures in its section; what is right in fewer than half
as many rows as the best is named below them.

Made from `benchmarks/results/peers.json` by `python -m benchmarks.peers.table`, the plots by
`python -m benchmarks.peers.plot` and `python -m benchmarks.frontier draw`. Every system ran in a
process of its own on the same rows, with one thread, pinned to one core of a shared machine
({processor}). Seconds are of processor time; where the file has none they are by the clock, from
before other work was seen on that core. They are good for ratios of two and more, not for less.
Accuracies are of the test rows, where a label that training never saw counts as wrong. Training
is the system's own time, without the writing of its input, for streammach with the search of its
settings. Peak is the largest resident memory of the process, with the rows that the harness
holds. One run each. Without counts streammach's plan for the callees was 32 x 28 and is another
since.

Settings are the systems' defaults, what their authors use, or what a few trials on held-out
training rows chose; most systems had no trials at all, so read their rows as floors. These choices
were made after a look at test rows, each meant to help the peer: naive Bayes' smoothing and values
cut to 1 (on 5,000 test rows of the callees), words with values for fastText and the scale, epochs
and smoothing of PyTorch's MACH where rows are dense (ALOI), and the order of the labels in VW's
label tree (callees). How features are scaled for the scaled rows was written down once and not
varied. Nearest neighbours were not tuned: votes of ten neighbours did better on the embeddings in
an earlier measurement. Minutes and hours of what was not run are reckoned from speeds measured on
other data or on a few classes.
"""
NOTES = {
    "hypernyms, namespaces": "A WordNet noun's hypernym from the words of its gloss; features in "
    "namespaces. 65,822 rows, 15,511 classes, 167,569 features.",
    "hypernyms": "The same rows, features without namespaces.",
    "aloi": "Which of 1,000 objects an image shows: 97,200 rows, 128 features. Nearest neighbours, "
    "which keep every row, are the best of all here.",
    "identifiers": "The demo's rows: the next identifier of Python code, 278,067 rows, 16,482 "
    "classes. The test is of other files, without the 21% of their rows whose label training never "
    "saw. streammach holds out whole files (`--hold-out-by m`). Quick systems "
    "only.",
    "sentence embeddings": "The hypernyms' rows as dense embeddings of 384 dimensions "
    "(all-MiniLM-L6-v2) of lemmas and gloss.",
    "callees": "Which function a call in the Linux kernel calls: 1,090,755 rows, 104,965 classes, "
    "420,000 features. The first 50,000 test rows, which are in random order.",
}
DOCS = Path(__file__).parents[2] / "docs"
COLUMNS = "| system | accuracy | top-5 | training s | model MB | us a query | peak GB |"


def data_of(results):
    """Return the systems by data set."""
    return {name: rows for name, rows in results.items() if name != "machine"}


def file_name(name):
    """Return the file of a data set's plot."""
    return f"benchmarks-{re.sub('[^a-z]+', '-', name)}.svg"


def cell(row):
    """Return a system's line."""
    five = "-" if row["p_at_5"] is None else f"{row['p_at_5']:.3f}"
    seconds = row.get("train_processor_seconds", row["train_seconds"])
    query = row.get("processor_microseconds_a_query", row["microseconds_a_query"])
    return (
        f"| {row['system']} | {row['p_at_1']:.3f} | {five} | "
        f"{seconds:,.0f} | {row['model_bytes'] / 1e6:,.1f} | "
        f"{query:,.0f} | {row['peak_bytes'] / 1e9:.2f} |"
    )


def missing(systems, known):
    """Return a line with the systems that stand elsewhere but not here, in a list."""
    names = sorted(known - {row["system"] for row in systems.values()})
    return ["", textwrap.fill(f"Not measured here yet: {'; '.join(names)}.", 100)] if names else []


def frontier(name):
    """Return the picture of accuracy over seconds, where there is one."""
    picture = file_name(name).replace("benchmarks-", "frontier-")
    if not (DOCS / picture).exists():
        return []
    return [f"![Accuracy for a time of training]({picture})\n"]


def section(name, systems, known):
    """Return a data set's lines; `known`: the systems of all data sets."""
    rows = systems.values()
    found = sorted((r for r in rows if "failed" not in r), key=lambda row: -row["p_at_1"])
    failed = sorted((r for r in rows if "failed" in r), key=lambda row: row["system"])
    tested = max(row["test_rows"] for row in found)
    return [
        f"## {name}: {tested:,} test rows\n", textwrap.fill(NOTES.get(name, ""), 100), "",
        *frontier(name),
        f"![Accuracy against the size of the model]({file_name(name)})\n",
        COLUMNS, "|---" * 7 + "|", *(cell(row) for row in found), "",
        *([f"- {row['system']}: {row['failed']}" for row in failed]),
        *missing(systems, known), "",
    ]  # fmt: skip


def settings(data):
    """Return the lines with every system's settings and package."""
    rows = {row["system"]: row for systems in data.values() for row in systems.values()}
    lines = ["## Settings and versions\n", "| system | package | settings |", "|---|---|---|"]
    for name, row in sorted(rows.items(), key=lambda item: item[0].lower()):
        package = "-" if row["package"] is None else f"{row['package']} {row['version']}"
        lines.append(f"| {name} | {package} | {row['settings']} |")
    return [*lines, ""]


def page(results):
    """Return the page."""
    data, machine = data_of(results), results["machine"]
    lines = [HEAD.format(processor=machine["processor"])]
    known = {row["system"] for systems in data.values() for row in systems.values()}
    for name, systems in data.items():
        lines += section(name, systems, known)
    libraries = ", ".join(f"{name} {version}" for name, version in machine["libraries"].items())
    lines += [*settings(data), f"Python {machine['python']}, {libraries}."]
    return "\n".join(lines)


if __name__ == "__main__":
    print(page(json.loads(Path(sys.argv[1]).read_text())))
