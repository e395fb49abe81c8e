"""The figures of benchmarks.peers.run as a page.

python -m benchmarks.peers.table benchmarks/results/peers.json > docs/benchmarks.md
"""

import json
import sys
from pathlib import Path

HEAD = """# Beside other systems

Made from `benchmarks/results/peers.json` by `python -m benchmarks.peers.table`. Every system ran
alone in a process of its own on the same rows, with {threads} threads ({processor}). P@1 and
P@5 are of the test rows, where a label that training never saw counts as wrong. Training is the
system's own time, without the writing of its input, for streammach with the search of its settings.
Peak is the largest resident memory of the process, with the rows that the harness holds. One run
each; the settings are the systems' defaults or what their authors use, not tuned on these data.
"""
COLUMNS = "| system | P@1 | P@5 | training s | model MB | us a query | peak GB | settings |"


def cell(row):
    """Return a system's line."""
    if "failed" in row:
        return f"| {row['system']} | {row['failed']} | | | | | | {row['settings']} |"
    five = "-" if row["p_at_5"] is None else f"{row['p_at_5']:.3f}"
    return (
        f"| {row['system']} {row['version']} | {row['p_at_1']:.3f} | {five} | "
        f"{row['train_seconds']:.0f} | {row['model_bytes'] / 1e6:.1f} | "
        f"{row['microseconds_a_query']:.0f} | {row['peak_bytes'] / 1e9:.2f} | {row['settings']} |"
    )


def page(results):
    """Return the page."""
    data = {name: rows for name, rows in results.items() if name != "machine"}
    rows = [row for systems in data.values() for row in systems.values()]
    threads = max(row.get("threads", 0) for row in rows)
    lines = [HEAD.format(threads=threads, processor=results["machine"]["processor"])]
    for name, systems in data.items():
        found = sorted(systems.values(), key=lambda row: -row.get("p_at_1", -1))
        tested = max(row.get("test_rows", 0) for row in found)
        lines += [f"## {name}: {tested:,} test rows\n", COLUMNS, "|---" * 8 + "|"]
        lines += [*(cell(row) for row in found), ""]
    return "\n".join(lines)


if __name__ == "__main__":
    print(page(json.loads(Path(sys.argv[1]).read_text())))
