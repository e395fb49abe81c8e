"""VW text: ``label [importance [base]] ['tag] |space[:scale] name[:value] ... |space2 ...``.

What touches the first ``|`` is the tag.
"""

from __future__ import annotations

from typing import Any

from streammach.inputs.formats import parsed
from streammach.inputs.formats.tokens import is_blank, long_number, token_end
from streammach.rows.arrays import MOST_IMPORTANCE
from streammach.rows.names import MAX_NAME
from streammach.system.jit import Array, kernel


def fits(line: bytes, following: bytes) -> bool:
    """Return whether the first two lines of a text look like it."""
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
        at_comma = text[q] == parsed.COMMA and state[parsed.SPLIT] != 0
        if at_comma and (q == start or q == end - 1 or text[q - 1] == parsed.COMMA):
            return start, end, 1.0, end, parsed.EMPTY_LABEL
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
