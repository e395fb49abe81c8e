"""Text with a row a line: what tells VW, svmlight and XMC text, and the heads of their rows.

VW: ``label [importance [base]] ['tag] |space[:scale] name[:value] ... |space2 ...``; what touches
the first ``|`` is the tag. svmlight: ``label [qid:n] index:value ... [# note]``. XMC text is the
lines of svmlight, ``label[,label2 ...]``, behind a line with the numbers of rows, columns and
labels; columns and labels are numbers from 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from streammach.inputs.formats import parsed
from streammach.inputs.formats.features import (
    append_labels,
    features_of_row,
    first_bad_label,
    take_row,
)
from streammach.inputs.formats.parsed import Parsed, TextHeader
from streammach.inputs.formats.tokens import is_blank, long_number, next_line, token_end
from streammach.rows.arrays import MOST_IMPORTANCE
from streammach.rows.name_table import NameTable
from streammach.rows.names import MAX_NAME
from streammach.system.jit import Array, kernel


def fits_vw(line: bytes, following: bytes) -> bool:
    """Return whether the first two lines of a text look like VW."""
    del following
    return b"|" in line


@kernel(fastmath=False, inner=True)
def vw_head(text: Array, p: int, label_needed: bool, state: Array) -> Any:
    """Read what stands before the first ``|``: label start and end, weight, position, reason."""
    # The label is empty where there is none and none is needed. A tag's place goes to `state`.
    start = p
    state[parsed.TAG_FROM] = state[parsed.TAG_TO] = 0
    end = token_end(text, p, parsed.BAR)
    if text[end] == parsed.BAR or text[start] == parsed.QUOTE:  # no label, perhaps a tag
        if label_needed:
            touching = end > start and text[end] == parsed.BAR
            return start, end, 1.0, end, parsed.TOUCHING if touching else parsed.NO_LABEL
        end = start
    for q in range(start, end):
        if text[q] == parsed.COLON:
            return start, end, 1.0, end, parsed.COLON_LABEL
    weight, numbers, p = 1.0, 0, end
    while text[p] != parsed.BAR:
        if is_blank(text[p]):
            p += 1
            continue
        if text[p] < parsed.SPACE:
            reason = parsed.NO_BAR if text[p] == parsed.NEWLINE else parsed.CONTROL
            return start, end, weight, p, reason
        q = token_end(text, p, parsed.BAR)
        if text[p] == parsed.QUOTE or text[q] == parsed.BAR:
            state[parsed.TAG_FROM], state[parsed.TAG_TO] = p + (text[p] == parsed.QUOTE), q
            if q - state[parsed.TAG_FROM] > MAX_NAME:
                return p, q, weight, p, parsed.TOO_LONG
        else:  # importance, then a base that is not used
            value, stop, reason, _ = long_number(text, p)
            if reason != parsed.OK or stop != q or not value >= 0.0 or numbers > 1:
                return p, q, weight, p, parsed.BAD_WEIGHT
            if value > MOST_IMPORTANCE:
                return p, q, weight, p, parsed.TOO_HEAVY
            weight = value if numbers == 0 else weight
            numbers += 1
        p = q
    return start, end, weight, p, parsed.OK


def fits_svmlight(line: bytes, following: bytes) -> bool:
    """Return whether the first two lines of a text look like svmlight."""
    del following
    fields = line.split(b"#")[0].split()
    return len(fields) > 1 and all(b":" in field for field in fields[1:]) and b":" not in fields[0]


def fits_xmc(line: bytes, following: bytes) -> bool:
    """Return whether the first two lines of a text look like XMC."""
    header = xmc_header(line)
    rows = b":" in following and b"|" not in following
    return header is not None and (rows or not (header.rows or following))


def xmc_header(line: bytes) -> TextHeader | None:
    """Return what the first line of XMC text promises, or None if it is none."""
    fields = line.split()
    if len(fields) != 3 or not all(f.isdigit() and len(f) <= 18 for f in fields):
        return None
    found = TextHeader(*(int(f) for f in fields))
    return found if found.columns and found.labels else None


@kernel(fastmath=False, inner=True)
def svmlight_head(text: Array, p: int, state: Array) -> Any:
    """Read the label of an svmlight row: its start and end, the position after it, a reason."""
    end = token_end(text, p, parsed.HASH)
    stop = end
    for q in range(end - 1, p - 1, -1):
        if text[q] == parsed.COLON and state[parsed.NONE_OK]:
            return p, p, p, parsed.OK
        if text[q] == parsed.COLON:
            return p, p, end, parsed.NO_LABEL
        if text[q] == parsed.COMMA:
            stop = q
    if state[parsed.SPLIT]:
        stop = end
    elif stop < end and not state[parsed.FIRST]:
        return p, end, end, parsed.MANY_LABELS
    return p, stop, end, parsed.OK if stop > p else parsed.NO_LABEL


@kernel(fastmath=False, inner=True)
def leave_row_out(text: Array, line: int, first_hard: int, out: Parsed) -> None:
    """Leave a row of importance 0 out; note where it starts and ends, behind the tags of others."""
    out.state[parsed.LEFT] += 1
    last = out.tags.shape[0] - out.state[parsed.LEFT]
    out.tags[last, 0], out.tags[last, 1] = line, next_line(text, line)
    out.state[parsed.HARD] = first_hard
    out.state[parsed.LINE] += 1


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
        hard, importance = out.state[parsed.HARD], 1.0
        if numbered:
            start, stop, p, reason = svmlight_head(text, p, out.state)
        else:
            start, stop, importance, p, reason = vw_head(text, p, needed, out.state)
        if reason == parsed.OK and stop > start:
            start, stop, reason = first_bad_label(text, start, stop, numbered, out.state)
        head = start, stop, reason
        p, n, code = features_of_row(text, p, numbered, head, out, spaces, names, add_names)
        if code == parsed.DONE and out.state[parsed.DROP] and np.float32(importance) == 0:
            leave_row_out(text, line, hard, out)
        elif code == parsed.DONE:
            row, code = out.state[parsed.ROWS], parsed.GROW
            out.label_starts[row + 1] = out.label_starts[row]
            if append_labels(text, start, stop, out, labels, add_labels):
                code = take_row(text, line, importance, n, hard, out, names, add_names)
        if code != parsed.DONE:
            out.state[parsed.HARD] = hard
            return code, line
        p = next_line(text, p)
    return parsed.DONE, p
