"""Which packages a package of Debian depends on, from its name, description, section and tags.

    python -m benchmarks.data.package_depends FOLDER [--lists LISTS]

A row is a binary package of the first suite that apt knows here; its labels are the packages that
it depends on or recommends (the first of several alternatives), but for those of its own source.
The indices (some 31 MB) are fetched with apt-get, with descriptions in English, unless --lists
names a folder that holds them. Features, a VW namespace each: n words of its name, m pairs of such
words, s its section, t its tags, f words of the first line of its description, w words of the rest,
o who maintains it, z the power of two of its size.

Packages of a source share it as their group: one group in ten has the test rows. Labels of fewer
than two training rows are left out. The same release gives the same bytes.
"""

import argparse
import re
import subprocess
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from benchmarks.data.listed_rows import Row, words, write_rows

LEAST_LABEL = 2  # training rows of a label
INDEX = "*_dists_*_main_binary-*_Packages*"
READER = "/usr/lib/apt/apt-helper"  # of files as apt compresses them
NAME = re.compile(r"[a-z0-9][a-z0-9+.\-]+")


def fetched(folder: str) -> Path:
    lists = Path(folder)
    (lists / "partial").mkdir()
    settings = {"Dir::State::lists": folder, "Acquire::Languages": "en", "APT::Sandbox::User": ""}
    options = [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]
    subprocess.run(["apt-get", "update", *options], check=True)
    return lists


def text_of(path: Path) -> str:
    read = subprocess.run([READER, "cat-file", path], check=True, capture_output=True)
    return read.stdout.decode("utf-8", "replace")


def records(path: Path) -> Iterator[dict[str, str]]:
    """Yield the fields of each package of an index."""
    for record in text_of(path).split("\n\n"):
        found, name = dict[str, str](), ""
        for line in record.splitlines():
            if line.startswith(" "):
                found[name] += f"\n{line}"
            else:
                name, _, value = line.partition(":")
                found[name] = value.strip()
        if found:
            yield found


def depended(record: dict[str, str]) -> set[str]:
    """Return the names of what a package depends on or recommends."""
    fields = (record.get(name, "") for name in ("Pre-Depends", "Depends", "Recommends"))
    found = (NAME.match(one.strip()) for field in fields for one in field.split(","))
    return {match.group() for match in found if match}


def row_of(record: dict[str, str], text: str, source: str, own: set[str]) -> Row:
    parts = words(record["Package"])
    size = int(record.get("Installed-Size", 0)).bit_length()
    spaces = {
        "n": parts, "m": ["_".join(two) for two in pairwise(["", *parts, ""])],
        "s": [record.get("Section", "")], "t": re.split(r",\s*", record.get("Tag", "")),
        "f": words(record.get("Description", "")), "w": words(text),
        "o": ["_".join(words(record.get("Maintainer", "").partition("<")[0]))], "z": [f"{size}"],
    }  # fmt: skip
    features = {f"{space}^{word.replace(':', '-')}" for space, said in spaces.items()
                for word in said if word}  # fmt: skip
    return Row(frozenset(depended(record) - own), tuple(sorted(features)), source)


def suite_of(lists: Path) -> str:
    """Return how the names of a suite's files begin: not those of its updates, which are longer."""
    return min((path.name for path in lists.glob(INDEX)), key=len).partition("_main_")[0]


def rows_of(lists: Path) -> Iterator[Row]:
    suite = suite_of(lists)
    said = next(lists.glob(f"{suite}_main_i18n_Translation-en*"))
    texts = {one["Package"]: one.get("Description-en", "") for one in records(said)}
    found = list(records(next(lists.glob(f"{suite}_main_binary-*_Packages*"))))
    sources = {one["Package"]: one.get("Source", one["Package"]).split(" ")[0] for one in found}
    members = dict[str, set[str]]()
    for package, source in sources.items():
        members.setdefault(source, set()).add(package)
    for record in found:
        source = sources[record["Package"]]
        rest = texts.get(record["Package"], "").partition("\n")[2]
        yield row_of(record, rest, source, members[source])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--lists", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lists = given.lists or fetched(folder)
        release = (lists / f"{suite_of(lists)}_InRelease").read_text()
        rows = list(rows_of(lists))
    version = re.search(r"^Version: (\S+)$", release, re.MULTILINE)
    write_rows(
        given.folder, rows, LEAST_LABEL, {"release": version.group(1) if version else "unknown"}
    )


if __name__ == "__main__":
    main()
