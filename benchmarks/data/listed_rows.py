"""Rows with lists of labels as VW text: what the scripts of this folder share.

A script yields rows with their labels, features and group. The group is a feature too, in a
namespace of its own, `g`, to hold out rows by: one in ten groups, drawn by a hash of their name,
has the test rows. Labels of fewer than so many training rows are left out, features of fewer than
two, and then rows without a label. The same rows give the same bytes: train.vw.gz, test.vw.gz and
stats.json.
"""

import gzip
import hashlib
import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

TEST_SHARE = 10  # one group of so many
LEAST_FEATURE = 2  # training rows of a feature
WORD = re.compile(r"[A-Za-z][a-z]+|[A-Z]+(?![a-z])|[0-9]+")


@dataclass(frozen=True)
class Row:
    """A function: what it calls, its features by namespace, the group that is split by."""

    labels: frozenset[str]
    features: tuple[str, ...]
    group: str


def words(text: str) -> list[str]:
    """Return the words of a name or a text, in small letters."""
    return [word.lower() for word in WORD.findall(text)]


def is_test(group: str) -> bool:
    return hashlib.sha256(group.encode()).digest()[0] % TEST_SHARE == 0


def kept(rows: list[Row], least_label: int) -> tuple[set[str], set[str]]:
    labels, features = Counter[str](), Counter[str]()
    for row in rows:
        labels.update(row.labels)
        features.update(row.features)
        features.update([f"g^{row.group}"])
    return (
        {name for name, n in labels.items() if n >= least_label},
        {name for name, n in features.items() if n >= LEAST_FEATURE},
    )


def line_of(row: Row, labels: set[str], features: set[str]) -> str | None:
    """Return a row as VW text; None where no label is left."""
    own = sorted(row.labels & labels)
    if not own:
        return None
    spaces: dict[str, list[str]] = {}
    for feature in (*row.features, f"g^{row.group}"):
        if feature in features:
            space, _, name = feature.partition("^")
            spaces.setdefault(space, []).append(name)
    said = " ".join(f"|{space} {' '.join(names)}" for space, names in spaces.items())
    return f"{','.join(own)} {said or '|'}\n"


def write(path: Path, lines: list[str]) -> None:
    path.write_bytes(gzip.compress("".join(lines).encode(), 6, mtime=0))


def write_rows(folder: Path, rows: list[Row], least_label: int, stats: dict[str, object]) -> None:
    train = [row for row in rows if not is_test(row.group)]
    labels, features = kept(train, least_label)
    folder.mkdir(parents=True, exist_ok=True)
    stats |= {"labels": len(labels), "features": len(features)}
    for name, some in (("train", train), ("test", [row for row in rows if is_test(row.group)])):
        lines = [line for row in some if (line := line_of(row, labels, features)) is not None]
        lines.sort(key=lambda line: hashlib.sha256(line.encode()).digest())
        write(folder / f"{name}.vw.gz", lines)
        n_labels = sum(line.split(" ", 1)[0].count(",") + 1 for line in lines)
        stats[name] = {"rows": len(lines), "labels_a_row": round(n_labels / max(len(lines), 1), 3)}
    (folder / "stats.json").write_text(json.dumps(stats, indent=1) + "\n")
    print(json.dumps(stats))
