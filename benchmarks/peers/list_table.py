"""The figures of benchmarks.peers.run on rows with lists of labels as a page.

python -m benchmarks.peers.list_table benchmarks/results/peers_lists.json > docs/benchmarks-lists.md
"""

import json
import sys
import textwrap
from pathlib import Path

from benchmarks.peers.table import data_of, missing, settings

HEAD = """# Beside other systems: rows with lists of labels

Made from `benchmarks/results/peers_lists.json` by `python -m benchmarks.peers.list_table`. Every
system ran in a process of its own on the same rows, with one thread of a shared machine
({processor}) that was busy with other work; seconds are of processor time, good for ratios of two
and more. Metrics are those of the XMC repository over all test rows; labels that training never
saw count as missed. Training is the system's own time, without the writing of its input, for
streammach with the search of its settings. Peak is the largest resident memory of the process, with
the rows that the harness holds. One run each.

Test rows are of other files or subpackages than training rows. streammach was given `--memory 2GB`
and holds out whole groups (`--hold-out-by g`); the namespace that names the group was left out of
the rows of the others, since no test row has one of its features. Other systems have the settings
at the end of the page, on term frequency times idf in rows of length 1; the rows named scaled have
features scaled by the weights of groups that streammach fits. N@k is nDCG, and N@1 is P@1.
"""
NOTES = {
    "python_calls": "Which names a Python function calls (`python -m "
    "benchmarks.data.python_calls`): the standard library of 3.11 and eighteen packages. 96,526 "
    "training rows, 15,114 labels, 3.8 a row, 61,302 features.",
    "linux_calls": "Which functions a function of the Linux kernel calls (`python -m "
    "benchmarks.data.linux_calls`): Debian's linux-source-6.1 6.1.192-2. 491,980 training rows, "
    "106,187 labels, 4.0 a row, 377,372 features.",
}
SHOWN = ("P@1", "P@3", "P@5", "N@3", "N@5", "PSP@1", "PSP@3", "PSP@5")  # N@1 is P@1
COLUMNS = ("system", *SHOWN, "training s", "model MB", "us a query", "peak GB")


def cell(row):
    """Return a system's line."""
    figures = (f"{row['figures'][name]:.3f}" for name in SHOWN)
    used = row["train_processor_seconds"], row["processor_microseconds_a_query"]
    last = (f"{used[0]:,.0f}", f"{row['model_bytes'] / 1e6:,.1f}", f"{used[1]:,.0f}",
            f"{row['peak_bytes'] / 1e9:.2f}")  # fmt: skip
    return f"| {' | '.join((row['system'], *figures, *last))} |"


def section(name, systems, known):
    """Return a data set's lines; `known`: the systems of all data sets."""
    rows = [row for row in systems.values() if "failed" not in row]
    rows.sort(key=lambda row: -row["figures"]["P@1"])
    failed = [row for row in systems.values() if row.get("failed", "not run").find("not run") < 0]
    return [
        f"## {name}: {rows[0]['test_rows']:,} test rows\n", textwrap.fill(NOTES.get(name, ""), 100),
        "", f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|", *map(cell, rows), "",
        *(f"- {row['system']}: {row['failed']}" for row in failed), *missing(systems, known), "",
    ]  # fmt: skip


def page(results):
    """Return the page."""
    data, machine = data_of(results), results["machine"]
    known = {row["system"] for systems in data.values() for row in systems.values()
             if "figures" in row}  # fmt: skip
    lines = [HEAD.format(processor=machine["processor"])]
    for name, systems in data.items():
        lines += section(name, systems, known)
    measured = {name: {key: row for key, row in systems.items() if "figures" in row}
                for name, systems in data.items()}  # fmt: skip
    return "\n".join([*lines, *settings(measured)])


if __name__ == "__main__":
    print(page(json.loads(Path(sys.argv[1]).read_text())).rstrip())
