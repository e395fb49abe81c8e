"""Checks who has docstrings with sections: what users and implementers read, and nobody else.

Sections 'Parameters' stand at the public names of the package, their results, protocols and
kernels. Other docstrings say in a few lines what types cannot: shapes, units, what is raised. A
method has one, or overrides one that has.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

Node = ast.FunctionDef | ast.ClassDef
RESULTS = {  # of public functions, and what callbacks are given
    "Conversion", "Evaluation", "Exploration", "FigureTable", "HeldOutMetrics", "Predicted",
    "Predictions",
    "SetMetrics", "Source", "StageState", "State", "StreammachError", "Sweep", "Table",
    "TableOptions",
}  # fmt: skip
FILES = (
    "model/row_answers.py", "training/callbacks.py", "cluster/distributed.py", "cluster/ranges.py",
)  # fmt: skip
BASES = {"Protocol", "ABC"}
KERNELS = {"kernel", "intrinsic"}


def exported() -> set[str]:
    """Return the names of ``streammach.__all__``, read without the package's own dependencies."""
    body = ast.parse(Path("streammach/__init__.py").read_text("utf-8")).body
    return next(
        set(ast.literal_eval(node.value))
        for node in body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )


PUBLIC = exported() | RESULTS


def name_of(node: ast.expr) -> str:
    """Return the last name of a decorator or base: of ``a.b(c)`` it is b."""
    while isinstance(node, ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def nodes_of(body: list[ast.stmt], above: tuple[Node, ...] = ()) -> Iterator[tuple[Node, ...]]:
    """Yield classes and functions, each behind those that it stands in."""
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield (*above, node)
            yield from nodes_of(node.body, (*above, node))


def is_read(file: str, chain: tuple[Node, ...]) -> bool:
    """Return whether users or implementers read a docstring."""
    compiled = file.startswith(("backends/cpu/", "backends/cuda/"))  # kernels among them
    if compiled or file in FILES or chain[0].name in PUBLIC:
        return True
    made_by = {name_of(one) for node in chain for one in node.decorator_list}
    bases = {name_of(b) for node in chain if isinstance(node, ast.ClassDef) for b in node.bases}
    return bool(made_by & KERNELS or bases & BASES)


def fault_of(file: str, chain: tuple[Node, ...]) -> str | None:
    """Return what is wrong with a docstring."""
    node = chain[-1]
    lines = (ast.get_docstring(node) or "").splitlines()
    if not is_read(file, chain):
        return "has a section that nobody outside reads" if "Parameters" in lines else None
    inner = any(isinstance(one, ast.FunctionDef) for one in chain[:-1])
    if isinstance(node, ast.ClassDef) or inner or any(n.name.startswith("_") for n in chain):
        return None
    given, made_by = node.args, {name_of(one) for one in node.decorator_list}
    names = {a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs)}
    if len(lines) > 1 and "Parameters" not in lines and names - {"self", "cls"}:
        return None if "command" in made_by else "has several lines without Parameters"
    return None


def is_told(method: str, kind: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> bool:
    """Return whether a class, or one that it is made of, has a docstring for a method."""
    own = (n for n in kind.body if isinstance(n, ast.FunctionDef) and n.name == method)
    bases = (classes[name] for b in kind.bases if (name := name_of(b)) in classes)
    return any(map(ast.get_docstring, own)) or any(is_told(method, b, classes) for b in bases)


package = Path("streammach")
files = sorted(package.rglob("*.py"))
chains = [(f, c) for f in files for c in nodes_of(ast.parse(f.read_text("utf-8")).body)]
classes = {c[-1].name: c[-1] for _, c in chains if isinstance(c[-1], ast.ClassDef)}
wrong = [
    f"{file}:{chain[-1].lineno}: {chain[-1].name} {fault}"
    for file, chain in chains
    if (fault := fault_of(str(file.relative_to(package)), chain))
]
wrong += [
    f"{file}:{node.lineno}: {node.name} has no docstring, nor does what it overrides"
    for file, (*above, node) in chains
    if above and isinstance(node, ast.FunctionDef) and isinstance(above[-1], ast.ClassDef)
    if not any(one.name.startswith("_") for one in (*above, node))
    if not is_told(node.name, above[-1], classes)
]
lint = subprocess.run([sys.executable, "-m", "numpydoc", "lint", *map(str, files)], check=False)
sys.exit("\n".join(wrong) or lint.returncode)
