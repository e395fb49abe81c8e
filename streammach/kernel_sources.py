"""The source files that decide what compiled kernels do."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

PACKAGE = Path(__file__).parent
DEFINES = ("kernel(", "@intrinsic")
# Imports at the head of a module, whole: what a kernel names is frozen when its module is loaded,
# so that an import within a function cannot reach it.
IMPORTS = re.compile(r"^from (streammach[\w.]*) import (\([^)]*\)|[^\n]*)", re.MULTILINE)


def kernel_sources(package: Path = PACKAGE) -> dict[str, str]:
    """Return the modules with kernels, and all that these import at their heads, by their paths.

    Parameters
    ----------
    package : Path
        The folder of the package.

    Returns
    -------
    dict of str to str
        Texts by paths within the package, sorted.
    """
    texts = {
        str(file.relative_to(package)): file.read_text(encoding="utf-8")
        for file in package.rglob("*.py")
    }
    found = {name for name, text in texts.items() if any(mark in text for mark in DEFINES)}
    left = list(found)
    while left:
        new = (_imported(texts[left.pop()]) & texts.keys()) - found
        found |= new
        left += new
    return {name: texts[name] for name in sorted(found)}


def kernel_digest(*versions: str) -> str:
    """Return the digest of these sources and of versions of libraries: 16 hexadecimal digits."""
    digest = hashlib.sha256("\n".join(versions).encode())
    for name, text in kernel_sources().items():
        digest.update(f"{name}\n{text}".encode())
    return digest.hexdigest()[:16]


def _imported(text: str) -> set[str]:
    """Return the paths, within the package, that modules imported in a text may have."""
    found = set()
    for module, names in IMPORTS.findall(text):
        folder = module.split(".")[1:]
        parts = [re.split(r"\s", name.strip())[0] for name in names.strip("()").split(",")]
        for path in [folder, *([*folder, part] for part in parts if part)]:
            found |= {"/".join(path) + ".py", "/".join([*path, "__init__"]) + ".py"}
    return found - {"__init__.py"}  # names of the package itself are loaded on demand
