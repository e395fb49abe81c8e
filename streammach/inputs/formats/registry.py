"""The text formats: what tells one, and what reads its lines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from streammach.inputs.formats.lines import fits_svmlight, fits_vw, fits_xmc, read_lines, xmc_header
from streammach.inputs.formats.parsed import Parsed, TextHeader
from streammach.rows.name_table import NameTable


class Parser(Protocol):
    """Reads the lines of a format, mostly a kernel; it raises nothing and allocates nothing."""

    def __call__(
        self, text: NDArray[np.uint8], p: int, end: int, label_needed: bool, add_labels: bool,
        add_names: bool, out: Parsed, labels: NameTable, spaces: NameTable, names: NameTable, /,
    ) -> Any:  # fmt: skip
        """Parse the lines ``text[p:end]`` into `out`; return a code and where it stopped.

        Parameters
        ----------
        text : uint8 (end + PADDING,)
            Whole lines, the last ended by a newline, and room behind it.
        p, end : int
            The part to read; `p` starts a line.
        label_needed, add_labels, add_names : bool
            Whether a row without a label is bad; which tables may take in new names.
        out : Parsed
            Receives the rows after those that it holds, and has room for all; ``out.state`` counts
            them.
        labels, spaces, names : NameTable
            Labels, namespaces and features met so far.

        Returns
        -------
        code : int
            DONE: all is read. GROW: a table is full. BAD: the line at the position is bad; REASON,
            FROM and TO in ``out.state`` say why.
        position : int
            Where to go on; for BAD after the caller has stepped over the line.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class TextFormat:
    """A format of text with one row a line."""

    name: str  # in options and in stores
    fits: Callable[[bytes, bytes], bool]  # whether a text with these first two lines looks like it
    parse: Parser  # reads its lines
    several_labels: bool = False  # whether a row may have more than one label
    unlabelled_rows: bool = False  # whether a row without a label is right where labels are lists
    # What its first line promises, None if that is none; without it the first line is a row.
    header: Callable[[bytes], TextHeader | None] | None = None


TEXT_FORMATS = {
    known.name: known
    for known in (
        TextFormat(name="vw", fits=fits_vw, parse=partial(read_lines, False)),
        TextFormat(
            name="svmlight", fits=fits_svmlight, parse=partial(read_lines, True),
            several_labels=True,
        ),
        TextFormat(
            name="xmc", fits=fits_xmc, parse=partial(read_lines, True),
            several_labels=True, unlabelled_rows=True, header=xmc_header,
        ),
    )
}  # fmt: skip


def guess_format(line: bytes, following: bytes = b"") -> str | None:
    """Return the first format that the first two lines of a text look like, or None."""
    return next((name for name, known in TEXT_FORMATS.items() if known.fits(line, following)), None)
