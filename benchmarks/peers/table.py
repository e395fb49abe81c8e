"""The figures of benchmarks.peers.run as tables: one for each data set, settings, versions.

python -m benchmarks.peers.table benchmarks/results/peers.json
"""

import json
import re
import sys
from pathlib import Path

ONE = ("p_at_1", "p_at_5")
LISTS = ("P@1", "P@3", "P@5", "N@3", "N@5", "PSP@1", "PSP@3", "PSP@5")  # N@1 is P@1
TOOK = ("training s", "model MB", "us a query", "peak GB")


def data_of(results):
    return {name: rows for name, rows in results.items() if name != "machine"}


def file_name(name):
    return f"benchmarks-{re.sub('[^a-z]+', '-', name)}.svg"


def line(cells):
    return f"| {' | '.join(cells)} |"


def cell(row, shown):
    """Return a system's line; seconds are of the processor where they are known."""
    figures = row.get("figures", row)
    seconds = row.get("train_processor_seconds", row["train_seconds"])
    query = row.get("processor_microseconds_a_query", row["microseconds_a_query"])
    reached = (figures[name] for name in shown)
    return line([
        row["system"], *("-" if x is None else f"{x:.3f}" for x in reached),
        f"{seconds:,.0f}", f"{row['model_bytes'] / 1e6:,.1f}", f"{query:,.0f}",
        f"{row['peak_bytes'] / 1e9:.2f}",
    ])  # fmt: skip


def section(name, systems, known):
    """Return a data set's lines; `known`: the systems of all data sets."""
    rows = systems.values()
    found = sorted((r for r in rows if "failed" not in r), key=lambda row: -row["p_at_1"])
    shown = LISTS if "figures" in found[0] else ONE
    failed = sorted((r for r in rows if "failed" in r), key=lambda row: row["system"])
    missing = sorted(known - {row["system"] for row in rows})
    return [
        f"## {name}: {max(row['test_rows'] for row in found):,} test rows\n",
        line(["system", *(("accuracy", "top-5") if shown is ONE else shown), *TOOK]),
        line(["---"] * (1 + len(shown) + len(TOOK))), *(cell(row, shown) for row in found), "",
        *(f"- {row['system']}: {row['failed']}" for row in failed),
        *([f"- not measured here: {'; '.join(missing)}"] if missing else []), "",
    ]  # fmt: skip


def page(results):
    data, machine = data_of(results), results["machine"]
    every = {row["system"]: row for systems in data.values() for row in systems.values()}
    lines = [x for name, systems in data.items() for x in section(name, systems, set(every))]
    lines += ["## Settings and versions\n", line(["system", "package", "settings"]),
              line(["---"] * 3)]  # fmt: skip
    for name, row in sorted(every.items(), key=lambda item: item[0].lower()):
        package = "-" if row["package"] is None else f"{row['package']} {row['version']}"
        lines.append(line([name, package, row["settings"]]))
    libraries = ", ".join(f"{name} {version}" for name, version in machine["libraries"].items())
    lines += ["", f"{machine['processor']}; Python {machine['python']}, {libraries}."]
    return "\n".join(lines)


if __name__ == "__main__":
    print(page(json.loads(Path(sys.argv[1]).read_text())))
