"""Compiled parsers of VW and svmlight text: bytes in, rows of ids and values out.

The grammar that is read:

- VW: ``label [importance [base]] ['tag] |space[:scale] name[:value] ... |space2 ...``; what touches
  the first ``|`` is the tag.
- svmlight: ``label [qid:n] index:value ... [# note]``.
- XMC: the lines of svmlight, ``label[,label2 ...]``, behind a line with the numbers of rows,
  columns and labels; columns and labels are numbers from 0.

A value is ``float32(float64(text))``, exactly as Python reads it: see :func:`number`. The kernels
raise nothing; they stop with a code and a position, and the rows before that stay good.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammach.data.number_kernels import (
    MAX_FLOAT32,
    leading_digits,
    long_number,
    must_be_rounded_again,
    number,
)
from streammach.jit import Array, Number, kernel
from streammach.rows.names import (
    EMPTY,
    LOW32,
    MAX_NAME,
    MAX_NAMESPACES,
    SEPARATOR,
    NameTable,
    find,
    find_or_add,
    hash_name,
    mix,
    start_state,
)
from streammach.rows.words import HIGH, ONES, load8, low_bytes, prefetch, trailing_zeros, zero_bytes

SPACES = MAX_NAMESPACES - 1
ANY_NUMBER = 1 << 30
IN_SLOT = 0xFFFFFFFF  # of a span: namespace and length
# What stopped the parser.
DONE, GROW, FULL, BAD = 0, 1, 2, 3
# Places in Parsed.state.
ROWS, VALUES, LINE, HARD, UNKNOWN, REASON, FROM, TO = range(8)
FIRST, MOST_COLUMNS, MOST_LABELS = 8, 9, 10  # options: first of several labels, XMC's numbers or 0
TAG_FROM, TAG_TO = 11, 12  # of the row that is read
N_STATE = 13
# Why a row is bad.
REASONS = {
    1: "the line has no label",
    2: "label '{}' holds ':'",
    3: "'{}' is several labels (--first-label takes the first one)",
    4: "importance '{}' is not a number from 0 to 3.4e38",
    5: "no '|' after label '{}'",
    6: "label '{}' touches '|'",
    7: "a feature has no name before '{}'",
    8: "value '{}' is not a number",
    9: "value '{}' is not a finite float32",
    10: "'{}' is not a namespace with a number as its scale",
    11: "feature '{}' has no ':value'",
    12: "index '{}' is not an integer of at most 18 digits",
    13: "name '{}' has more than 4,095 bytes",
    14: "control byte after '{}'",
    15: "namespace '{}' is one too many, 1,048,575 are possible",
    16: "index '{}' is not below the header's number of columns",
    17: "label '{}' is not a number below the header's number of labels",
    18: "label '{}' is not a finite number",
    19: "qid '{}' is not an integer of at most 18 digits",
}
OK, NO_LABEL, COLON_LABEL, MANY_LABELS, BAD_WEIGHT, NO_BAR, TOUCHING = range(7)
NO_NAME, NO_NUMBER, NOT_FINITE, BAD_SPACE, NO_VALUE, NO_INDEX, TOO_LONG, CONTROL = range(7, 15)
MANY_SPACES, COLUMN_TOO_LARGE, LABEL_TOO_LARGE, NO_FINITE_LABEL, NO_QID = range(15, 20)

NEWLINE, SPACE, HASH, QUOTE, PLUS, COMMA, MINUS, DOT, ZERO, NINE = (
    10,
    32,
    35,
    39,
    43,
    44,
    45,
    46,
    48,
    57,
)
COLON, LETTER_Q, BAR = 58, 113, 124
NAN, INF = np.frombuffer(b"nan", np.uint8), np.frombuffer(b"inf", np.uint8)


class Parsed(NamedTuple):
    """Rows of one block of text, in arrays of fixed room, and scratch for the row being read.

    ``classes`` int32, ``importance`` float32 and ``places`` int64 (rows,), the byte of the text
    where a row's line starts; ``tags`` int64 (rows, 2), where its tag starts and ends; ``indptr``
    int64 (rows + 1,); ``features`` int32 and ``values`` float32 (values,). Scratch: ``keys`` uint64
    (values, 3) hash and first words of a name, ``spans`` int64 (values,) its start, namespace (20
    bits) and length (12), the last two as a slot of names has them. ``hard`` int64 (values, 3):
    place among the values, start and end of numbers that need Python's own rounding, ``scales``
    float64 (values,) their factors. ``short`` int32 (256,) keeps the ids of namespaces of one byte,
    ``direct`` int32 (numbers,) those of names without one that are numbers, -1 where not met:
    looking these up misses the cache less. ``state`` int64 (13,) holds the counters and options
    above.
    """

    classes: NDArray[np.int32]
    importance: NDArray[np.float32]
    places: NDArray[np.int64]
    tags: NDArray[np.int64]
    indptr: NDArray[np.int64]
    features: NDArray[np.int32]
    values: NDArray[np.float32]
    keys: NDArray[np.uint64]
    spans: NDArray[np.int64]
    hard: NDArray[np.int64]
    scales: NDArray[np.float64]
    short: NDArray[np.int32]
    direct: NDArray[np.int32]
    state: NDArray[np.int64]


@kernel(inline=True)
def name_at(text: Array, p: int, space: int, stop: int) -> Any:
    """Return hash, first two words and end of the name at `p`.

    A name ends before a blank, a control byte, ``:`` or the byte `stop`.
    """
    state, first, second = start_state(space), np.uint64(0), np.uint64(0)
    start = p
    while True:
        word = load8(text, p)
        colon = zero_bytes(word ^ (ONES * np.uint64(COLON)))
        other = zero_bytes(word ^ (ONES * np.uint64(stop)))
        blank = (word - ONES * np.uint64(SPACE + 1)) & ~word & HIGH
        count: Any = np.int64(trailing_zeros(colon | other | blank) >> np.uint64(3))
        word = low_bytes(word, count)
        if count > 0:
            if p == start:
                first = word
            elif p == start + 8:
                second = word
            state = mix(state, word)
        p += count
        if count < 8:
            return min(state, np.uint64(0xFFFFFFFFFFFFFFFE)), first, second, p


@kernel(inline=True)
def is_blank(byte: int) -> Any:
    """Return whether a byte separates tokens: space, tab, carriage return, vertical tab, feed."""
    return byte == SPACE or (9 <= byte <= 13 and byte != NEWLINE)


@kernel(fastmath=False)
def token_end(text: Array, p: int, stop: int) -> Any:
    """Return the first position from `p` on that holds a blank, a control byte or `stop`."""
    while text[p] > SPACE and text[p] != stop:
        p += 1
    return p


@kernel(fastmath=False)
def vw_head(text: Array, p: int, label_needed: bool, state: Array) -> Any:
    """Read what stands before the first ``|``: label start and end, weight, position, reason.

    The label is empty where there is none and none is needed. A tag's place goes to `state`.
    """
    start = p
    state[TAG_FROM] = state[TAG_TO] = 0
    end = token_end(text, p, BAR)
    if text[end] == BAR or text[start] == QUOTE:  # no label, perhaps a tag
        if label_needed:
            return start, end, 1.0, end, TOUCHING if end > start and text[end] == BAR else NO_LABEL
        end = start
    for q in range(start, end):
        if text[q] == COLON:
            return start, end, 1.0, end, COLON_LABEL
    weight, numbers, p = 1.0, 0, end
    while text[p] != BAR:
        if is_blank(text[p]):
            p += 1
            continue
        if text[p] < SPACE:
            return start, end, weight, p, NO_BAR if text[p] == NEWLINE else CONTROL
        q = token_end(text, p, BAR)
        if text[p] == QUOTE or text[q] == BAR:
            state[TAG_FROM], state[TAG_TO] = p + (text[p] == QUOTE), q
            if q - state[TAG_FROM] > MAX_NAME:
                return p, q, weight, p, TOO_LONG
        else:  # importance, then a base that is not used
            value, stop, reason, _ = long_number(text, p)
            if reason != OK or stop != q or not 0.0 <= value < MAX_FLOAT32 or numbers > 1:
                return p, q, weight, p, BAD_WEIGHT
            weight = value if numbers == 0 else weight
            numbers += 1
        p = q
    return start, end, weight, p, OK


@kernel(fastmath=False)
def is_word(text: Array, start: int, end: int, word: Array) -> Any:
    """Return whether the bytes are a word in small letters or large ones, a sign before it or not.

    `word` uint8 (n,) is in small letters.
    """
    if end > start and (text[start] == PLUS or text[start] == MINUS):
        start += 1
    if end - start != word.shape[0]:
        return False
    for q in range(word.shape[0]):
        if text[start + q] | 32 != word[q]:
            return False
    return True


@kernel(fastmath=False)
def svmlight_head(text: Array, p: int, state: Array) -> Any:
    """Read the label of an svmlight row: its start and end, the position after it, a reason."""
    end = token_end(text, p, HASH)
    stop = end
    for q in range(end - 1, p - 1, -1):
        if text[q] == COLON:
            return p, p, end, NO_LABEL
        if text[q] == COMMA:
            stop = q
    if stop < end and not state[FIRST]:
        return p, end, end, MANY_LABELS
    if state[MOST_LABELS] > 0 and not is_below(text, p, stop, state[MOST_LABELS]):
        return p, stop, end, LABEL_TOO_LARGE if stop > p else NO_LABEL
    if is_word(text, p, stop, NAN) or is_word(text, p, stop, INF):
        return p, stop, end, NO_FINITE_LABEL
    return p, stop, end, OK if stop > p else NO_LABEL


@kernel(fastmath=False)
def namespace_head(text: Array, p: int, spaces: NameTable, add: bool) -> Any:
    """Read ``|space[:scale]`` at `p`: namespace id, scale, position, reason; id -1: no room.

    The id is 0 for the space without a name; an unknown one that may not be added gets the id
    ``MAX_NAMESPACES``, which no name belongs to.
    """
    start = p + 1
    if text[start] <= SPACE:
        return 0, 1.0, start, OK
    state, first, second, p = name_at(text, start, 0, BAR)
    size, scale, reason = p - start, 1.0, OK
    for q in range(start, p):
        if text[q] == SEPARATOR:
            reason = BAD_SPACE
    if text[p] == COLON:
        scale, p, bad, _ = long_number(text, p + 1)
        if bad != OK or not abs(scale) < MAX_FLOAT32:
            reason = BAD_SPACE
    if text[p] > SPACE or size > MAX_NAME:
        reason = BAD_SPACE
    if reason != OK or size == 0:
        return 0, scale, p, reason
    if add:
        space = find_or_add(spaces, text, start, size, 0, state, first, second) + 1
        if space == 0:
            return -1, scale, p, OK
    else:
        space = find(spaces, text, start, size, 0, state, first, second)[0] + 1
        space = MAX_NAMESPACES if space == 0 else space
    return space, scale, p, MANY_SPACES if add and space >= MAX_NAMESPACES else OK


@kernel(fastmath=False)
def all_digits(text: Array, start: int, end: int) -> Any:
    """Return whether the bytes are at most 18 digits without sign or leading zero."""
    if end - start > 18 or end == start or (text[start] == ZERO and end - start > 1):
        return False
    for q in range(start, end):
        if not ZERO <= text[q] <= NINE:
            return False
    return True


@kernel(fastmath=False)
def is_below(text: Array, start: int, end: int, limit: int) -> Any:
    """Return whether the bytes are a number from 0 to below `limit`, in its usual form."""
    if not all_digits(text, start, end):
        return False
    found = np.int64(0)
    for q in range(start, end):
        found = found * 10 + (np.int64(text[q]) - ZERO)
    return found < limit


@kernel(inline=True)
def small_number(first: Number, in_slot: int, most: int) -> Any:
    """Return the number below `most` that a name is, or -1.

    `first` is its first word, `in_slot` its namespace and length as a slot of names has them.
    """
    number = np.int64(-1)
    if in_slot < 8:  # no namespace, and less than a word
        digits, value = leading_digits(first)
        usual = in_slot == 1 or first & np.uint64(0xFF) != np.uint64(ZERO)
        if digits == in_slot and usual and value < np.uint64(most):
            number = np.int64(value)
    return number


@kernel(fastmath=False)
def ids_of_row(
    text: Array,
    out: Parsed,
    table: NameTable,
    first_value: int,
    n_values: int,
    first_hard: int,
    add: bool,
) -> Any:
    """Look up the names of one row; return how many values are kept, or -1 if the table is full.

    A pass of its own, so that the cache misses of one row's names overlap with its reading, which
    asks for their slots. Without `add` unknown names are dropped and the rest moves together.
    """
    mask = np.uint64(table.slots.shape[0] - 1)
    kept, hard, kept_hard, all_hard = first_value, first_hard, first_hard, out.state[HARD]
    for r in range(n_values):
        state, first, second = out.keys[r, 0], out.keys[r, 1], out.keys[r, 2]
        span = out.spans[r]
        number = small_number(first, span & IN_SLOT, out.direct.shape[0])
        found = np.int64(-1)
        if number >= 0:
            found = np.int64(out.direct[number])
        if found < 0:
            size = span & MAX_NAME
            i = (state >> np.uint64(20)) & mask
            while table.slots[i, 0] != state and table.slots[i, 0] != EMPTY:
                i = (i + np.uint64(1)) & mask
            word = table.slots[i, 1]
            same = (
                table.slots[i, 0] == state
                and word & ~LOW32 == np.uint64(span) << np.uint64(32)
                and table.slots[i, 2] == first
                and table.slots[i, 3] == second
            )
            if same and size > 16:
                start = table.starts[np.int64(word & LOW32)] - (span >> 32)
                for q in range((span >> 32) + 16, (span >> 32) + size):
                    same = same and table.arena[start + q] == text[q]
            if same:  # the usual case without a call
                found = np.int64(word & LOW32)
            elif add:
                found = find_or_add(
                    table, text, span >> 32, size, (span >> 12) & SPACES, state, first, second
                )
                if found < 0:
                    return -1
            else:
                found = find(
                    table, text, span >> 32, size, (span >> 12) & SPACES, state, first, second
                )[0]
            if number >= 0:
                out.direct[number] = found
        is_hard = hard < all_hard and out.hard[hard, 0] == first_value + r
        if found >= 0:
            if is_hard:
                out.hard[kept_hard, 0] = kept
                out.hard[kept_hard, 1], out.hard[kept_hard, 2] = (
                    out.hard[hard, 1],
                    out.hard[hard, 2],
                )
                out.scales[kept_hard] = out.scales[hard]
                kept_hard += 1
            out.features[kept] = found
            out.values[kept] = out.values[first_value + r]
            kept += 1
        if is_hard:
            hard += 1
    out.state[HARD] = kept_hard
    return kept - first_value


@kernel(fastmath=False)
def label_of_row(text: Array, start: int, end: int, table: NameTable, add: bool) -> Any:
    """Return the id of a label, -1 if it is unknown and not added, -2 if the table is full."""
    size = end - start
    state, first, second = hash_name(text, start, size, 0)
    if add:
        found = find_or_add(table, text, start, size, 0, state, first, second)
        return found if found >= 0 else -2
    return find(table, text, start, size, 0, state, first, second)[0]


@kernel(fastmath=False)
def features_of_row(
    text: Array,
    p: int,
    svmlight: bool,
    out: Parsed,
    spaces: NameTable,
    names: NameTable,
    add: bool,
) -> Any:
    """Read a row's features from `p` on into the scratch and the values.

    Returns (position, number of values, code, reason, start and end of what is bad). One long loop,
    because a call for each feature would cost more than reading it.
    """
    stop = HASH if svmlight else BAR
    z0, mask = out.state[VALUES], np.uint64(names.slots.shape[0] - 1)
    n, space, scale, hard = 0, 0, 1.0, out.state[HARD]
    while True:
        byte = text[p]
        if byte <= SPACE:
            if byte == NEWLINE:
                break
            if not is_blank(byte):
                return p, n, BAD, CONTROL, max(p - 1, 0), p
            p += 1
            continue
        if byte == stop:
            if svmlight:
                break  # a note
            space = out.short[text[p + 1]] if text[p + 2] <= SPACE else 0
            if space > 0:
                scale, p = 1.0, p + 2
                continue
            space, scale, end, reason = namespace_head(text, p, spaces, add)
            if reason != OK:
                return p, n, BAD, reason, p + 1, token_end(text, p + 1, BAR)
            if space < 0:
                return p, n, GROW, OK, p, p
            if end == p + 2:
                out.short[text[p + 1]] = space
            p = end
            continue
        if z0 + n >= out.values.shape[0]:
            return p, n, FULL, OK, p, p
        state, first, second, end = name_at(text, p, space, stop)
        if end == p:
            return p, n, BAD, NO_NAME, p, token_end(text, p, BAR)
        if end - p > MAX_NAME:
            return p, n, BAD, TOO_LONG, p, end
        value, q, exact = 1.0, end, True
        has_value = text[end] == COLON
        if has_value:
            if svmlight and end - p == 3 and text[p] == LETTER_Q:  # qid:n
                p = token_end(text, end, HASH)
                if not all_digits(text, end + 1, p):
                    return p, n, BAD, NO_QID, end + 1, p
                continue
            value, q, reason, exact = number(text, end + 1)
            if reason != OK or not (text[q] <= SPACE or text[q] == stop):
                reason = reason if reason != OK else NO_NUMBER
                return p, n, BAD, reason, end + 1, token_end(text, end + 1, stop)
        if svmlight:
            if not has_value:
                return p, n, BAD, NO_VALUE, p, end
            short = small_number(first, end - p, ANY_NUMBER) >= 0
            if not short and not all_digits(text, p, end):
                return p, n, BAD, NO_INDEX, p, end
            most = out.state[MOST_COLUMNS]
            if most > 0 and not is_below(text, p, end, most):
                return p, n, BAD, COLUMN_TOO_LARGE, p, end
        if has_value or scale != 1.0:
            value *= scale
            if not abs(value) < MAX_FLOAT32:
                return p, n, BAD, NOT_FINITE, end + 1, q
            if must_be_rounded_again(value, exact):
                out.hard[hard, 0], out.hard[hard, 1], out.hard[hard, 2] = z0 + n, end + 1, q
                out.scales[hard] = scale
                hard += 1
        out.values[z0 + n] = value
        if space > 0 or end - p > 7:
            prefetch(names.slots, np.int64((state >> np.uint64(20)) & mask) * 4)
        out.keys[n, 0], out.keys[n, 1], out.keys[n, 2] = state, first, second
        out.spans[n] = (np.int64(p) << 32) | (np.int64(space) << 12) | (end - p)
        n, p = n + 1, q
    out.state[HARD] = hard
    return p, n, DONE, OK, p, p


@kernel()
def parse(
    text: Array,
    p: int,
    end: int,
    svmlight: bool,
    label_needed: bool,
    add_labels: bool,
    add_names: bool,
    out: Parsed,
    labels: NameTable,
    spaces: NameTable,
    names: NameTable,
) -> Any:
    """Parse the lines ``text[p:end]`` into `out`; return a code and where it stopped.

    Parameters
    ----------
    text : uint8 (end + PADDING,)
        Whole lines, the last ended by a newline, and room behind it.
    p, end : int
        The part to read; `p` starts a line.
    svmlight, label_needed, add_labels, add_names : bool
        The format; whether a row without a label is bad; which tables may take in new names.
    out : Parsed
        Receives the rows after those that it holds; ``out.state`` counts them.
    labels, spaces, names : NameTable
        Labels, namespaces and features met so far.

    Returns
    -------
    code : int
        DONE: all is read. GROW: a table is full. FULL: `out` is full. BAD: the line at the position
        is bad; REASON, FROM and TO in ``out.state`` say why.
    position : int
        Where to go on; for BAD after the caller has stepped over the line.
    """
    while p < end:
        line = p
        while is_blank(text[p]):
            p += 1
        if text[p] == NEWLINE or (svmlight and text[p] == HASH):  # a blank line or a comment
            while text[p] != NEWLINE:
                p += 1
            p += 1
            out.state[LINE] += 1
            continue
        n, z, hard = out.state[ROWS], out.state[VALUES], out.state[HARD]
        if n >= out.classes.shape[0]:
            return FULL, line
        weight = 1.0
        if svmlight:
            start, stop, p, reason = svmlight_head(text, p, out.state)
        else:
            start, stop, weight, p, reason = vw_head(text, p, label_needed, out.state)
        if reason == OK and stop - start > MAX_NAME:
            reason = TOO_LONG
        code = DONE if reason == OK else BAD
        bad_from, bad_to, label, count = start, stop, -1, 0
        if code == DONE:
            p, count, code, reason, bad_from, bad_to = features_of_row(
                text, p, svmlight, out, spaces, names, add_names
            )
        if code == DONE and stop > start:
            label = label_of_row(text, start, stop, labels, add_labels)
            code = GROW if label == -2 else DONE
        if code == DONE:
            kept = ids_of_row(text, out, names, z, count, hard, add_names)
            code = GROW if kept < 0 else DONE
        if code != DONE:
            out.state[HARD] = hard
            out.state[REASON], out.state[FROM], out.state[TO] = reason, bad_from, bad_to
            return code, line
        out.classes[n], out.importance[n], out.places[n] = label, weight, line
        out.tags[n, 0], out.tags[n, 1] = out.state[TAG_FROM], out.state[TAG_TO]
        out.indptr[n + 1] = z + kept
        out.state[ROWS], out.state[VALUES] = n + 1, z + kept
        out.state[UNKNOWN] += count - kept
        while text[p] != NEWLINE:
            p += 1
        p += 1
        out.state[LINE] += 1
    return DONE, p
