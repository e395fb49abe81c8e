"""DiSMEC, which no package holds."""

NAME = "DiSMEC"
PACKAGE = None
SETTINGS = "-"
WHY_NOT = (
    "not run: no package on PyPI (dismec, pydismec, pyxclib are not there), "
    "and its C++ source was not built"
)
