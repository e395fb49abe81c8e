"""Descriptions of Debian's packages as a table: who maintains a package, by its name and text.

    python -m benchmarks.data.debian_packages FOLDER

writes FOLDER/train.csv and FOLDER/test.csv, a row a package: name, description, section, tags, and
its maintainer as the label, for maintainers of at least 3 packages. A package goes to the test rows
by a digest of its name, one of ten. The rows are those that `apt-cache dumpavail` prints, so they
depend on the release; nothing is fetched.
"""

import csv
import hashlib
import subprocess
import sys
from collections import Counter
from pathlib import Path

LEAST = 3  # packages of a maintainer
TENTH = 26  # of 256 digests go to the test rows
COLUMNS = ("name", "description", "section", "tags", "maintainer")


def packages(text):
    """Yield the fields of each package once, continued lines joined."""
    seen = set()
    for stanza in text.split("\n\n"):
        found, name = {}, None
        for line in stanza.splitlines():
            if line[:1] in " \t":
                found[name] += " " + line.strip()
            else:
                name, _, value = line.partition(":")
                found[name] = value.strip()
        if "Package" in found and found["Package"] not in seen:
            seen.add(found["Package"])
            yield found


def row(found):
    """Return a package as a row."""
    return (
        found["Package"], found.get("Description", ""), found.get("Section", ""),
        found.get("Tag", "").replace(",", " "), found.get("Maintainer", "").partition(" <")[0],
    )  # fmt: skip


def main():
    """Write the two tables."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    command = ["apt-cache", "dumpavail"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = [row(found) for found in packages(text)]
    sizes = Counter(one[-1] for one in rows)
    rows = sorted(one for one in rows if one[-1] and sizes[one[-1]] >= LEAST)
    parts = {"train": [], "test": []}
    for one in rows:
        digest = hashlib.sha256(one[0].encode()).digest()[0]
        parts["test" if digest < TENTH else "train"].append(one)
    for name, some in parts.items():
        with open(folder / f"{name}.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            writer.writerows(some)
        labels = len({one[-1] for one in some})
        print(f"{folder / name}.csv: {len(some):,} rows, {labels:,} labels")


if __name__ == "__main__":
    main()
