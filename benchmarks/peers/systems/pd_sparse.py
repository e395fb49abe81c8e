"""PD-Sparse, which no package holds."""

NAME = "PD-Sparse"
PACKAGE = None
SETTINGS = "-"
WHY_NOT = (
    "not run: no package on PyPI (pdsparse, pd-sparse are not there), "
    "and its C++ source was not built"
)
