"""The systems that are compared, by name: a module for each package."""

import pkgutil
from importlib import import_module

from benchmarks.peers.task import System

NO_PACKAGE = "not run: no package on PyPI ({} are not there), and its C++ source was not built"
SYSTEMS = {
    "dismec": System("DiSMEC", None, "-", why_not=NO_PACKAGE.format("dismec, pydismec, pyxclib")),
    "pd_sparse": System("PD-Sparse", None, "-", why_not=NO_PACKAGE.format("pdsparse, pd-sparse")),
    "fastxml": System("FastXML", None, "-", why_not=(
        "not run: fastxml 2.0.0, its package on PyPI, builds with Cython below 3 and is then "
        "Python 2 code: SyntaxError: Missing parentheses in call to 'print'")),
}  # fmt: skip
for _module in pkgutil.iter_modules(__path__):
    SYSTEMS |= import_module(f"{__name__}.{_module.name}").SYSTEMS
