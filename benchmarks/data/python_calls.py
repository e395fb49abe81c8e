"""Which names a Python function calls, from its docstring, name, parameters and neighbours.

    pip install ipython bokeh dask distributed django jax matplotlib networkx numba numpy pandas \
        scipy scikit-learn sphinx sqlalchemy statsmodels sympy twisted
    python -m benchmarks.data.python_calls FOLDER [--packages numpy,scipy]

A row is a function or method of the standard library and of installed packages; its labels are the
names that it calls, the last part of each (`np.array(...)`: array). Features, a VW namespace each:
d words of the docstring, n parts of the name, c of the class's, m of the module's path, p
parameters, b parts of the names of the functions before and after it. Nothing of its body is a
feature.

Whole subpackages (of the standard library top-level modules) are drawn for the test rows by a hash
of their path, one in ten. Labels of fewer than three training rows are left out. The same installed
files give the same bytes; stats.json names the versions.
"""

import argparse
import ast
import re
import sys
import sysconfig
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from benchmarks.data.listed_rows import Row, words, write_rows

LEAST_LABEL = 3  # training rows of a label
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
PACKAGES = (
    "IPython,bokeh,dask,distributed,django,jax,matplotlib,networkx,numba,numpy,pandas,scipy,"
    "sklearn,sphinx,sqlalchemy,statsmodels,sympy,twisted"
)
SKIPPED = {"tests", "test", "idlelib", "lib2to3", "site-packages", "__pycache__"}
Function = ast.FunctionDef | ast.AsyncFunctionDef


def called(node: Function) -> frozenset[str]:
    """Return the names that a function calls, without those within functions of its own."""
    found, left = set(), list(ast.iter_child_nodes(node))
    while left:
        one = left.pop()
        if isinstance(one, Function):
            continue
        if isinstance(one, ast.Call):
            name = getattr(one.func, "attr", getattr(one.func, "id", ""))
            if NAME.match(name):
                found.add(name)
        left += ast.iter_child_nodes(one)
    return frozenset(found)


def functions(body: list[ast.stmt], owner: str) -> Iterator[tuple[Function, str, list[str]]]:
    own = [node for node in body if isinstance(node, Function)]
    for place, node in enumerate(own):
        beside = own[max(place - 1, 0) : place] + own[place + 1 : place + 2]
        yield node, owner, [other.name for other in beside]
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from functions(node.body, node.name)


def rows_of(path: Path, module: str, group: str) -> Iterator[Row]:
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return
    for node, owner, beside in functions(tree.body, ""):
        spaces = {
            "d": words(ast.get_docstring(node) or ""), "n": words(node.name), "c": words(owner),
            "m": words(module), "b": [word for name in beside for word in words(name)],
            "p": [arg.arg for arg in (*node.args.args, *node.args.kwonlyargs)],
        }  # fmt: skip
        features = sorted({f"{space}^{word}" for space, found in spaces.items() for word in found})
        yield Row(called(node), tuple(features), group)


def files_of(folder: Path, name: str) -> Iterator[tuple[Path, str, str]]:
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        if not SKIPPED & set(parts):
            depth = 1 if name == "python" else 2
            yield path, ".".join((name, *parts)), ".".join((name, *parts[:depth]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--packages", default=PACKAGES)
    given = parser.parse_args()
    paths = sysconfig.get_paths()
    sources = [("python", Path(paths["stdlib"]))]
    sources += [(name, Path(paths["purelib"]) / name) for name in given.packages.split(",")]
    rows = [
        row
        for name, folder in sources
        for path, module, group in files_of(folder, name)
        for row in rows_of(path, module, group)
    ]
    owners = metadata.packages_distributions()
    versions = {
        name: metadata.version(owners[name][0]) for name, folder in sources[1:] if folder.is_dir()
    }
    stats: dict[str, object] = {"python": sys.version.split()[0], "packages": versions}
    write_rows(given.folder, rows, LEAST_LABEL, stats)


if __name__ == "__main__":
    main()
