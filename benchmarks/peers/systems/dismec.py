"""DiSMEC, which no package holds."""

NAME = "DiSMEC"
PACKAGE = None
SETTINGS = "-"
WHY_NOT = (
    "not run: no package on PyPI (dismec, pydismec, pyxclib are not there), and its C++ source on "
    "GitHub could not be fetched where these figures were made"
)
