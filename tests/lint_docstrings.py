"""Checks that docstrings of several lines document the parameters, and just those there are."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path


def public_functions(body: list[ast.stmt]) -> Iterator[ast.FunctionDef]:
    """Yield the public functions, and methods of public classes, of a module or class."""
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
            if isinstance(node, ast.FunctionDef):
                yield node
            else:
                yield from public_functions(node.body)


def is_command(function: ast.FunctionDef) -> bool:
    """Return whether a function is a click command, whose docstring is the text of ``--help``."""
    made_by = (getattr(decorator, "func", decorator) for decorator in function.decorator_list)
    return any(isinstance(f, ast.Attribute) and f.attr == "command" for f in made_by)


def lacks_parameters(function: ast.FunctionDef) -> bool:
    """Return whether a docstring of several lines has no section of the parameters there are."""
    given = function.args
    names = {a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs)}
    lines = (ast.get_docstring(function) or "").splitlines()
    return len(lines) > 1 and "Parameters" not in lines and bool(names - {"self", "cls"})


files = sorted(Path("streammach").rglob("*.py"))
wrong = [
    f"{file}:{function.lineno}: {function.name} has a docstring of several lines without Parameters"
    for file in files
    for function in public_functions(ast.parse(file.read_text("utf-8")).body)
    if lacks_parameters(function) and not is_command(function)
]
lint = subprocess.run([sys.executable, "-m", "numpydoc", "lint", *map(str, files)], check=False)
sys.exit("\n".join(wrong) or lint.returncode)
