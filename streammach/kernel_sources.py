"""What compiled kernels are made of: the statements of the package that a kernel can depend on.

Statements begin with those that define kernels. A statement brings those that define the names that
it mentions, in its own module or where that imports them from. So an edit of a message, of a
docstring, or of a function that only calls kernels leaves the digest as it was.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

DEFINES = ("kernel(", "@intrinsic(", " compiled(")  # a statement with one of these defines a kernel
PACKAGE = "streammach"


def package_texts(package: Path) -> dict[str, str]:
    """Return the text of each module of the package, by its name: 'streammach.jit' for example."""
    texts = {}
    for file in sorted(package.rglob("*.py")):
        parts = file.relative_to(package).with_suffix("").parts
        name = ".".join([PACKAGE, *(part for part in parts if part != "__init__")])
        texts[name] = file.read_text(encoding="utf-8")
    return texts


def texts_digest(texts: dict[str, str], *versions: str) -> str:
    """Return the digest of all texts and of versions of libraries: 16 hexadecimal digits."""
    return _digest([*versions, *(f"{name}\n{text}" for name, text in sorted(texts.items()))])


def kernel_digest(texts: dict[str, str], *versions: str) -> str:
    """Return the digest of what kernels depend on, in 16 digits; it takes about a second."""
    statements = kernel_statements(texts).items()
    return _digest([*versions, *(f"{name}\n{dump}" for name, dump in sorted(statements))])


def kernel_statements(texts: dict[str, str]) -> dict[str, str]:
    """Return the syntax of the statements that kernels depend on, by the names of their modules."""
    modules = {n: _Module(n, t) for n, t in texts.items() if any(mark in t for mark in DEFINES)}
    needed: dict[str, set[int]] = {name: set() for name in modules}
    names = [(name, number) for name, module in modules.items() for number in module.roots()]
    left: list[tuple[str, str | int]] = list(names)
    while left:
        source, what = left.pop()
        if source not in texts:
            continue
        if source not in modules:
            modules[source] = _Module(source, texts[source])
        module = modules[source]
        known = needed.setdefault(source, set())
        if isinstance(what, str) and what in module.imported:
            left += module.imported_from(what)
            continue
        new = {what} if isinstance(what, int) else module.numbers(what)
        for number in (new if known else new | module.effects) - known:
            known.add(number)
            left += module.mentions(number)
    return {
        name: "\n".join(ast.dump(modules[name].statements[n]) for n in sorted(numbers))
        for name, numbers in needed.items()
        if numbers
    }


class _Module:
    """The statements of a module, without docstrings and types, and the names that they define."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.lines, tree = text.splitlines(), ast.parse(text)
        for node in ast.walk(tree):
            _drop_texts(node)
        self.statements = tree.body
        self.imported: dict[str, tuple[str, str]] = {}  # a name: the module and the name there
        self.defined: dict[str, set[int]] = {}
        self.effects: set[int] = set()  # neither definitions nor imports: they run in any case
        for number, statement in enumerate(self.statements):
            if isinstance(statement, ast.ImportFrom):
                for alias in statement.names:
                    source = (statement.module or "", alias.name)
                    self.imported[alias.asname or alias.name] = source
            elif not isinstance(statement, ast.Import):
                defined = list(_defined_names(statement))
                for word in defined:
                    self.defined.setdefault(word, set()).add(number)
                if not defined:
                    self.effects.add(number)

    def roots(self) -> Iterator[int]:
        """Yield the numbers of the statements that define kernels."""
        for number, statement in enumerate(self.statements):
            text = "\n".join(self.lines[_first_line(statement) - 1 : statement.end_lineno])
            if any(mark in text for mark in DEFINES):
                yield number

    def numbers(self, name: str) -> set[int]:
        """Return the numbers of the statements that define a name; all, of the module as such."""
        if not name:
            return set(range(len(self.statements)))
        return self.defined.get(name, self.effects)

    def imported_from(self, name: str) -> list[tuple[str, str]]:
        """Return where an imported name comes from; it may be a module, which has no name there."""
        source, original = self.imported[name]
        return [(source, original), (f"{source}.{original}", "")]

    def mentions(self, number: int) -> Iterator[tuple[str, str]]:
        """Yield the modules and names that a statement depends on."""
        for node in ast.walk(self.statements[number]):
            if isinstance(node, ast.Name) and (node.id in self.defined or node.id in self.imported):
                yield self.name, node.id


def _digest(texts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text.encode() + b"\0")
    return digest.hexdigest()[:16]


def _first_line(statement: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(decorator.lineno for decorator in decorators)])


def _drop_texts(node: ast.AST) -> None:
    """Drop the docstring of a module, class or function, and the types of a function's values."""
    if isinstance(node, ast.arg):
        node.annotation = None
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        node.returns = None
    elif not isinstance(node, (ast.Module, ast.ClassDef)):
        return
    if not isinstance(node, ast.arg) and ast.get_docstring(node, clean=False) is not None:
        node.body = node.body[1:]


def _defined_names(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement defines; none where it also does something else."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield statement.name
    elif isinstance(statement, (ast.Assign, ast.AnnAssign)):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        for node in (node for target in targets for node in ast.walk(target)):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id
