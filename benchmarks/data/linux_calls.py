"""Which functions a function of the Linux kernel calls, from its name, folder, signature and words.

    python -m benchmarks.data.linux_calls FOLDER [--package linux-source-6.1] [--source FILE.deb]

A row is a function of a .c or .h file of Debian's package of the kernel's source (some 140 MB,
fetched with apt-get unless --source names it); its labels are the functions and macros that it
calls by name. Features, a VW namespace each: n parts of its name, m pairs of such parts, d the
folders of its path, s parts of the file's name, t words of what it returns and of its parameters'
types and names, w words of the comment before it, b parts of the names of the functions before and
after it. Nothing of its body is a feature.

Files are drawn for the test rows by a hash of their path, one in ten. Labels of fewer than three
training rows are left out. The same package gives the same bytes.
"""

import argparse
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import IO

from benchmarks.data.listed_rows import Row, words, write_rows

LEAST_LABEL = 3  # training rows of a label
MOST_HEAD = 800  # characters of a signature
HIDDEN = re.compile(
    r"/\*.*?(?:\*/|\Z)|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'"
    r"|^[ \t]*#(?:[^\n\\]|\\.)*", re.DOTALL | re.MULTILINE,
)  # fmt: skip
COMMENT = re.compile(r"/\*((?:[^*]|\*(?!/))*)\*/\s*\Z")
CALL = re.compile(r"(?<![\w.>])([A-Za-z_]\w*)\s*\(")
NAMED = re.compile(r"([A-Za-z_]\w*)\s*\(\s*(\w*)")
NO_CALLS = {
    "if", "while", "for", "switch", "return", "sizeof", "typeof", "defined", "case", "do", "else",
    "asm", "__asm__", "__volatile__", "volatile", "_Alignof", "__alignof__", "__attribute__",
    "_Static_assert", "offsetof", "int", "char", "void", "long",
}  # fmt: skip


def hidden(text: str) -> str:
    """Return C text with comments, strings and directives as blanks; places stay the same."""
    return HIDDEN.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), text)


def functions(text: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield the name, signature, body and comment of each function whose braces start a line."""
    plain, end = hidden(text), 0
    while True:
        start = plain.find("\n{", end)
        stop = plain.find("\n}", start)
        if start < 0 or stop < 0:
            return
        first = max(end, start - MOST_HEAD)
        first = max(plain.rfind(mark, first, start) + 1 for mark in ";}") or first
        head = plain[first:start]
        found = NAMED.search(head)
        if found and "=" not in head:
            outer, inner = found.groups()
            name = inner if inner and outer.isupper() else outer
            comment = COMMENT.search(
                text[end:first] + text[first : first + len(head) - len(head.lstrip())]
            )
            yield name, head, plain[start:stop], comment.group(1) if comment else ""
        end = stop + 2


def rows_of(path: str, text: str) -> Iterator[Row]:
    *folders, file = path.split("/")
    place = {f"d^{'/'.join(folders[: n + 1])}" for n in range(len(folders))}
    place |= {f"s^{word}" for word in words(file.rpartition(".")[0])}
    found = list(functions(text))
    for at, (name, head, body, comment) in enumerate(found):
        parts = words(name)
        beside = found[max(at - 1, 0) : at] + found[at + 1 : at + 2]
        spaces = {
            "n": parts, "m": ["_".join(two) for two in pairwise(["", *parts, ""])],
            "t": words(head.replace(name, " ")), "w": words(comment),
            "b": [word for other in beside for word in words(other[0])],
        }  # fmt: skip
        features = {f"{space}^{word}" for space, said in spaces.items() for word in said} | place
        yield Row(frozenset(CALL.findall(body)) - NO_CALLS, tuple(sorted(features)), path)


def c_files(file: IO[bytes]) -> Iterator[tuple[str, str]]:
    with tarfile.open(fileobj=file, mode="r|xz") as archive:
        for member in archive:
            if member.isfile() and member.name.endswith((".c", ".h")):
                opened = archive.extractfile(member)
                assert opened is not None, member.name
                yield member.name.partition("/")[2], opened.read().decode("utf-8", "replace")


def packaged(package: Path) -> Iterator[tuple[str, str]]:
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE) as tar:
        assert tar.stdout is not None
        with tarfile.open(fileobj=tar.stdout, mode="r|") as outer:
            for member in outer:
                if member.isfile() and member.name.endswith(".tar.xz"):
                    opened = outer.extractfile(member)
                    assert opened is not None, member.name
                    yield from c_files(opened)


def fetched(package: str, folder: str) -> Path:
    subprocess.run(["apt-get", "download", package], cwd=folder, check=True)
    return next(Path(folder).glob("*.deb"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--package", default="linux-source-6.1")
    parser.add_argument("--source", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source = given.source or fetched(given.package, folder)
        rows = [row for path, text in packaged(source) for row in rows_of(path, text)]
    write_rows(given.folder, rows, LEAST_LABEL, {"package": source.name})


if __name__ == "__main__":
    main()
