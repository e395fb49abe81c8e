"""FastXML, whose package is older than Python 3."""

NAME = "FastXML"
PACKAGE = None
SETTINGS = "-"
WHY_NOT = (
    "not run: fastxml 2.0.0, its package on PyPI, builds with Cython below 3 and is then Python 2 "
    "code: SyntaxError: Missing parentheses in call to 'print'"
)
