"""How records show themselves: one line as ``repr``, a report as ``str``, and in a notebook."""

from __future__ import annotations

from html import escape
from importlib import import_module
from typing import Any

REPORTS = "streammach.cli.about"  # far above, and loaded when someone looks


def format_in_columns(text: str) -> str:
    """Return text as a notebook shows it, in columns."""
    return f"<pre>{escape(text)}</pre>"


class Reported:
    """A record that people look at."""

    __slots__ = ()

    def _line(self) -> str:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._line()})"

    def __str__(self) -> str:
        text: str = import_module(REPORTS).text(self)
        return text

    def _repr_html_(self) -> str:
        return format_in_columns(str(self))


class FigureTable(dict[str, list[Any]]):
    """Columns by name, all of one length; ``pandas.DataFrame(table)`` takes them as they are."""

    __slots__ = ()

    @property
    def n_rows(self) -> int:
        """How many rows it has."""
        return len(next(iter(self.values()), []))

    def __repr__(self) -> str:
        return f"Table({self.n_rows:,} rows: {', '.join(self)})"

    def __str__(self) -> str:
        columns = ([_cell(x) for x in column] for column in self.values())
        lines = [tuple(self), *zip(*columns, strict=True)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self))]
        return "\n".join(
            "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
            for line in lines
        )

    def _repr_html_(self) -> str:
        return format_in_columns(str(self))


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:z,.0f}" if abs(value) >= 1000 else f"{value:z.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
