"""Reads the lines of VW and of svmlight text: the label, then the features of each."""

from __future__ import annotations

from typing import Any

from streammach.inputs.formats import parsed
from streammach.inputs.formats.features import features_of_row, take_row
from streammach.inputs.formats.parsed import Parsed
from streammach.inputs.formats.svmlight import svmlight_head
from streammach.inputs.formats.tokens import is_blank, next_line
from streammach.inputs.formats.vw import vw_head
from streammach.rows.name_table import NameTable
from streammach.system.jit import Array, kernel


@kernel()
def read_lines(
    numbered: bool, text: Array, p: int, end: int, label_needed: bool, add_labels: bool,
    add_names: bool, out: Parsed, labels: NameTable, spaces: NameTable, names: NameTable,
) -> Any:  # fmt: skip
    """Read lines of svmlight if `numbered`, else of VW, as a :class:`registry.Parser` does."""
    needed = label_needed and not out.state[parsed.NONE_OK]
    while p < end:
        line = p
        while is_blank(text[p]):
            p += 1
        if text[p] == parsed.NEWLINE or (numbered and text[p] == parsed.HASH):
            p = next_line(text, p)
            out.state[parsed.LINE] += 1
            continue
        if out.state[parsed.ROWS] + out.state[parsed.LEFT] >= out.classes.shape[0]:
            return parsed.FULL, line
        hard, importance = out.state[parsed.HARD], 1.0
        if numbered:
            start, stop, p, reason = svmlight_head(text, p, out.state)
        else:
            start, stop, importance, p, reason = vw_head(text, p, needed, out.state)
        head = start, stop, reason
        p, n, code = features_of_row(text, p, numbered, head, out, spaces, names, add_names)
        if code == parsed.DONE:
            code = take_row(
                text, line, start, stop, importance, n, hard, out, labels, names, add_labels,
                add_names,
            )  # fmt: skip
        if code != parsed.DONE:
            out.state[parsed.HARD] = hard
            return code, line
        p = next_line(text, p)
    return parsed.DONE, p
