"""svmlight text, ``label [qid:n] index:value ... [# note]``, and XMC text.

XMC text is the lines of svmlight, ``label[,label2 ...]``, behind a line with the numbers of rows,
columns and labels; columns and labels are numbers from 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from streammach.inputs.formats import parsed
from streammach.inputs.formats.parsed import TextHeader
from streammach.inputs.formats.tokens import is_below, token_end
from streammach.system.jit import Array, kernel

NAN, INF = np.frombuffer(b"nan", np.uint8), np.frombuffer(b"inf", np.uint8)


def fits(line: bytes, following: bytes) -> bool:
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
def is_word(text: Array, start: int, end: int, word: Array) -> Any:
    """Return whether the bytes are `word`, in small letters or large ones, with a sign or not."""
    # `word` uint8 (n,) is in small letters.
    if end > start and (text[start] == parsed.PLUS or text[start] == parsed.MINUS):
        start += 1
    if end - start != word.shape[0]:
        return False
    for q in range(word.shape[0]):
        if text[start + q] | 32 != word[q]:
            return False
    return True


@kernel(fastmath=False, inner=True)
def check_labels(text: Array, p: int, end: int, state: Array) -> Any:
    """Return what :func:`svmlight_head` does for labels between commas; the first bad one's."""
    start = p
    for q in range(p, end + 1):
        if q < end and text[q] != parsed.COMMA:
            continue
        if q == start:
            return p, end, end, parsed.EMPTY_LABEL
        most = state[parsed.MOST_LABELS]
        if most > 0 and not is_below(text, start, q, most):
            return start, q, end, parsed.LABEL_TOO_LARGE
        if is_word(text, start, q, NAN) or is_word(text, start, q, INF):
            return start, q, end, parsed.NO_FINITE_LABEL
        start = q + 1
    return p, end, end, parsed.OK


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
    if stop < end and state[parsed.SPLIT]:
        return check_labels(text, p, end, state)
    if stop < end and not state[parsed.FIRST]:
        return p, end, end, parsed.MANY_LABELS
    if state[parsed.MOST_LABELS] > 0 and not is_below(text, p, stop, state[parsed.MOST_LABELS]):
        return p, stop, end, parsed.LABEL_TOO_LARGE if stop > p else parsed.NO_LABEL
    if is_word(text, p, stop, NAN) or is_word(text, p, stop, INF):
        return p, stop, end, parsed.NO_FINITE_LABEL
    return p, stop, end, parsed.OK if stop > p else parsed.NO_LABEL
