"""Reads what follows the head of a row: its features, and their ids and that of its label."""

from __future__ import annotations

from typing import Any

import numpy as np

from streammach.inputs.formats import parsed
from streammach.inputs.formats.parsed import Parsed
from streammach.inputs.formats.tokens import (
    MAX_FLOAT32,
    all_digits,
    is_below,
    is_blank,
    long_number,
    must_be_rounded_again,
    name_at,
    number,
    small_number,
    token_end,
)
from streammach.rows.name_table import (
    EMPTY,
    LOW32,
    NO_SPACE,
    WORD,
    NameTable,
    find,
    find_or_add,
    hash_name,
    needs_comparing,
    same_bytes,
    slot_of,
)
from streammach.rows.names import MAX_NAME, MAX_NAMESPACES, SEPARATOR
from streammach.system.jit import Array, kernel
from streammach.system.simd import prefetch

SPACES = MAX_NAMESPACES - 1
ANY_NUMBER = 1 << 30
IN_SLOT = 0xFFFFFFFF  # of a span: namespace and length
NAN, INF = np.frombuffer(b"nan", np.uint8), np.frombuffer(b"inf", np.uint8)


@kernel(fastmath=False, inner=True)
def namespace_head(text: Array, p: int, spaces: NameTable, add: bool) -> Any:
    """Read ``|space[:scale]`` at `p`: namespace id, scale, position, reason; id -1: no room."""
    # The id is 0 for the space without a name; an unknown one that may not be added gets the id
    # MAX_NAMESPACES, which no name belongs to.
    start = p + 1
    if text[start] <= parsed.SPACE:
        return 0, 1.0, start, parsed.OK
    state, _, p = name_at(text, start, 0, parsed.BAR)
    size, scale, reason = p - start, 1.0, parsed.OK
    for q in range(start, p):
        if text[q] == SEPARATOR:
            reason = parsed.BAD_SPACE
    if text[p] == parsed.COLON:
        scale, p, bad, _ = long_number(text, p + 1)
        if bad != parsed.OK or not abs(scale) < MAX_FLOAT32:
            reason = parsed.BAD_SPACE
    if text[p] > parsed.SPACE or size > MAX_NAME:
        reason = parsed.BAD_SPACE
    if reason != parsed.OK or size == 0:
        return 0, scale, p, reason
    if add:
        space = find_or_add(spaces, text, start, size, NO_SPACE, state) + 1
        if space == 0:
            return -1, scale, p, parsed.OK
    else:
        space = find(spaces, text, start, size, NO_SPACE, state)[0] + 1
        space = MAX_NAMESPACES if space == 0 else space
    return space, scale, p, parsed.MANY_SPACES if add and space >= MAX_NAMESPACES else parsed.OK


@kernel(fastmath=False)
def refuse_row(state: Array, reason: int, start: int, end: int) -> Any:
    """Say why a row is bad and where, in ``Parsed.state``; return BAD."""
    state[parsed.REASON], state[parsed.FROM], state[parsed.TO] = reason, start, end
    return parsed.BAD


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
def first_bad_label(text: Array, start: int, end: int, numbered: bool, state: Array) -> Any:
    """Return where the first label of a row that is bad starts and ends, and why; or OK."""
    # Labels of lists stand between commas. Those of a text whose features are `numbered` are below
    # the header's number of labels, if it says one, and neither NaN nor infinite.
    first, most, split = start, state[parsed.MOST_LABELS], state[parsed.SPLIT] != 0
    for q in range(start, end + 1):
        if q < end and not (split and text[q] == parsed.COMMA):
            continue
        if q == first:
            return start, end, parsed.EMPTY_LABEL
        if most > 0:
            if not is_below(text, first, q, most):
                return first, q, parsed.LABEL_TOO_LARGE
        elif numbered and (is_word(text, first, q, NAN) or is_word(text, first, q, INF)):
            return first, q, parsed.NO_FINITE_LABEL
        if q - first > MAX_NAME:
            return first, q, parsed.TOO_LONG
        first = q + 1
    return start, end, parsed.OK


@kernel(fastmath=False, inner=True)
def features_of_row(
    text: Array, p: int, numbered: bool, head: tuple[int, int, int], out: Parsed,
    spaces: NameTable, names: NameTable, add: bool,
) -> Any:  # fmt: skip
    """Read a row's features into the scratch and the values; return (position, count, code).

    Parameters
    ----------
    text : uint8
        The text.
    p : int
        Where the features start.
    numbered : bool
        Whether they are whole numbers with a value each, ``qid`` aside, up to a note behind ``#``;
        names in namespaces, with a value or without, otherwise.
    head : tuple of int
        Where the label starts and ends, and what is wrong before the features, or OK.
    out, spaces, names, add : Parsed, NameTable, NameTable, bool
        What receives the features; namespaces, and whether new ones are taken in; names, whose
        slots are fetched ahead.
    """
    # One long loop, because a call for each feature would cost more than reading it.
    if head[2] != parsed.OK:
        return p, 0, refuse_row(out.state, head[2], head[0], head[1])
    stop = parsed.HASH if numbered else parsed.BAR
    z0, mask = out.state[parsed.VALUES], np.uint64(names.slots.shape[0] - 1)
    n, space, scale, hard = 0, 0, 1.0, out.state[parsed.HARD]
    while True:
        byte = text[p]
        if byte <= parsed.SPACE:
            if byte == parsed.NEWLINE:
                break
            if not is_blank(byte):
                return p, n, refuse_row(out.state, parsed.CONTROL, max(p - 1, 0), p)
            p += 1
            continue
        if byte == stop:
            if numbered:
                break  # a note
            space = out.short[text[p + 1]] if text[p + 2] <= parsed.SPACE else 0
            if space > 0:
                scale, p = 1.0, p + 2
                continue
            space, scale, end, reason = namespace_head(text, p, spaces, add)
            if reason != parsed.OK:
                end = token_end(text, p + 1, parsed.BAR)
                return p, n, refuse_row(out.state, reason, p + 1, end)
            if space < 0:
                return p, n, parsed.GROW
            if end == p + 2:
                out.short[text[p + 1]] = space
            p = end
            continue
        state, first, end = name_at(text, p, space, stop)
        if end == p:
            return p, n, refuse_row(out.state, parsed.NO_NAME, p, token_end(text, p, parsed.BAR))
        if end - p > MAX_NAME:
            return p, n, refuse_row(out.state, parsed.TOO_LONG, p, end)
        value, q, exact = 1.0, end, True
        has_value = text[end] == parsed.COLON
        if has_value:
            if numbered and end - p == 3 and text[p] == parsed.LETTER_Q:  # qid:n
                p = token_end(text, end, parsed.HASH)
                if not all_digits(text, end + 1, p):
                    return p, n, refuse_row(out.state, parsed.NO_QID, end + 1, p)
                continue
            value, q, reason, exact = number(text, end + 1)
            if reason != parsed.OK or not (text[q] <= parsed.SPACE or text[q] == stop):
                reason = reason if reason != parsed.OK else parsed.NO_NUMBER
                return p, n, refuse_row(out.state, reason, end + 1, token_end(text, end + 1, stop))
        if numbered:
            if not has_value:
                return p, n, refuse_row(out.state, parsed.NO_VALUE, p, end)
            short = small_number(first, end - p, ANY_NUMBER) >= 0
            if not short and not all_digits(text, p, end):
                return p, n, refuse_row(out.state, parsed.NO_INDEX, p, end)
            most = out.state[parsed.MOST_COLUMNS]
            if most > 0 and not is_below(text, p, end, most):
                return p, n, refuse_row(out.state, parsed.COLUMN_TOO_LARGE, p, end)
        if has_value or scale != 1.0:
            value *= scale
            if not abs(value) < MAX_FLOAT32:
                return p, n, refuse_row(out.state, parsed.NOT_FINITE, end + 1, q)
            if must_be_rounded_again(value, exact):
                out.hard[hard, 0], out.hard[hard, 1], out.hard[hard, 2] = z0 + n, end + 1, q
                out.scales[hard] = scale
                hard += 1
        out.values[z0 + n] = value
        if space > 0 or end - p > 7:
            prefetch(names.slots, np.int64(slot_of(state, mask)) * 2)
        out.keys[n, 0], out.keys[n, 1] = state, first
        out.spans[n] = (np.int64(p) << 32) | (np.int64(space) << 12) | (end - p)
        n, p = n + 1, q
    out.state[parsed.HARD] = hard
    return p, n, parsed.DONE


@kernel(fastmath=False, inner=True)
def append_labels(
    text: Array, start: int, end: int, out: Parsed, table: NameTable, add: bool
) -> Any:
    """Look up labels of the row that is read; return whether the table has room for them."""
    # Labels of lists stand between commas. ``out.label_starts`` says where those of the row end.
    row, split = out.state[parsed.ROWS], out.state[parsed.SPLIT] != 0
    while start < end:
        stop = end
        if split:
            stop = start
            while stop < end and text[stop] != parsed.COMMA:
                stop += 1
        size = stop - start
        state = hash_name(text, start, size, NO_SPACE)
        if add:
            label = find_or_add(table, text, start, size, NO_SPACE, state)
            if label < 0:
                return False
        else:
            label = find(table, text, start, size, NO_SPACE, state)[0]
        out.label_ids[out.label_starts[row + 1]] = label
        out.label_starts[row + 1] += 1
        start = stop + 1
    return True


@kernel(fastmath=False, inner=True)
def ask_for_long_names(out: Parsed, n_values: int, names: NameTable) -> None:
    """Ask for the bytes of the names that a row's will be compared with, all before the first."""
    # A slot says whose, the table where these are: so each is asked for in a pass of its own.
    mask = np.uint64(names.slots.shape[0] - 1)
    for known in range(2):
        for r in range(n_values):
            i = slot_of(out.keys[r, 0], mask)
            if out.spans[r] & MAX_NAME > WORD and names.slots[i, 0] == out.keys[r, 0]:
                name = np.int64(names.slots[i, 1] & LOW32)
                if known:
                    prefetch(names.arena, names.starts[name])
                else:
                    prefetch(names.starts, name)


@kernel(fastmath=False, inner=True)
def take_row(
    text: Array, line: int, importance: float, n_values: int, first_hard: int, out: Parsed,
    names: NameTable, add_names: bool,
) -> Any:  # fmt: skip
    """Look up the names of a row that was read, and take it; return DONE, or GROW: a table is full.

    A pass of its own, so that the cache misses of one row's names overlap with its reading, which
    asks for their slots. Without `add_names` unknown ones are dropped and the rest moves together.

    Parameters
    ----------
    text : uint8
        The text.
    line : int
        Where the row's line starts.
    importance : float
        Its importance.
    n_values, first_hard : int
        Its values, and the numbers before it that need Python's own rounding.
    out, names, add_names : Parsed, NameTable, bool
        What :class:`streammach.inputs.formats.registry.Parser` is given; `out` with the labels of
        the row.
    """
    n, first_value = out.state[parsed.ROWS], out.state[parsed.VALUES]
    mask = np.uint64(names.slots.shape[0] - 1)
    ask_for_long_names(out, n_values, names)
    kept, hard, kept_hard, all_hard = first_value, first_hard, first_hard, out.state[parsed.HARD]
    for r in range(n_values):
        state, first = out.keys[r, 0], out.keys[r, 1]
        span = out.spans[r]
        number = small_number(first, span & IN_SLOT, out.direct.shape[0])
        found = np.int64(-1)
        if number >= 0:
            found = np.int64(out.direct[number])
        if found < 0:
            size = span & MAX_NAME
            i = slot_of(state, mask)
            while names.slots[i, 0] != state and names.slots[i, 0] != EMPTY:
                i = (i + np.uint64(1)) & mask
            word = names.slots[i, 1]
            same = names.slots[i, 0] == state and word & ~LOW32 == np.uint64(span) << np.uint64(32)
            if same and needs_comparing(size, state):
                same = same_bytes(names, np.int64(word & LOW32), text, span >> 32, size)
            if same:  # the usual case without a call
                found = np.int64(word & LOW32)
            elif add_names:
                found = find_or_add(names, text, span >> 32, size, (span >> 12) & SPACES, state)
                if found < 0:
                    return parsed.GROW
            else:
                found = find(names, text, span >> 32, size, (span >> 12) & SPACES, state)[0]
            if number >= 0:
                out.direct[number] = found
        is_hard = hard < all_hard and out.hard[hard, 0] == first_value + r
        if found >= 0:
            if is_hard:
                out.hard[kept_hard, 0] = kept
                for i in range(1, 3):
                    out.hard[kept_hard, i] = out.hard[hard, i]
                out.scales[kept_hard] = out.scales[hard]
                kept_hard += 1
            out.features[kept] = found
            out.values[kept] = out.values[first_value + r]
            kept += 1
        if is_hard:
            hard += 1
    out.state[parsed.HARD] = kept_hard
    labels, end = out.label_starts[n], out.label_starts[n + 1]
    out.classes[n] = out.label_ids[labels] if labels < end else -1
    out.importance[n], out.places[n] = importance, line
    out.tags[n, 0], out.tags[n, 1] = out.state[parsed.TAG_FROM], out.state[parsed.TAG_TO]
    out.indptr[n + 1] = kept
    out.state[parsed.ROWS], out.state[parsed.VALUES] = n + 1, kept
    out.state[parsed.LABELS] = end
    if end != labels + 1:
        out.state[parsed.LISTED] = 1
    out.state[parsed.UNKNOWN] += n_values - (kept - first_value)
    out.state[parsed.LINE] += 1
    return parsed.DONE
