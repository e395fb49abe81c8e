"""Compiled loops over the cells of a table: words of texts, names, numbers, into features."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammach.inputs.formats import parsed
from streammach.inputs.formats.features import append_labels, take_row
from streammach.inputs.formats.parsed import Parsed
from streammach.rows.name_table import LARGEST, NameTable, mix, slot_of, start_state
from streammach.rows.names import MAX_NAME
from streammach.system.jit import Array, kernel
from streammach.system.simd import PADDING, load8, prefetch

TEXT, NAMES, VALUE, BIN = range(4)  # what the kernel does with a column
NGRAMS, LEAST, MOST = range(3)  # places in Frame.options: words of a run; characters, 0: none
# Places in Frame.columns, for each column: what it is, its namespace, another one (of characters,
# or of rows that lack a value; 0: none), its first number, how many it has, its first name among
# those that are known beforehand.
KIND, OF, OTHER, FIRST_NUMBER, N_NUMBERS, FIRST_FIXED = range(6)
LOWER_A, LOWER_Z, UPPER_A, UPPER_Z, ZERO, NINE = 97, 122, 65, 90, 48, 57
LOWERED = np.array(  # of ASCII: the small letter or the digit, 0 for what stands between words
    [
        c + 32 if UPPER_A <= c <= UPPER_Z
        else c if LOWER_A <= c <= LOWER_Z or ZERO <= c <= NINE
        else 0
        for c in range(128)
    ],
    np.uint8,
)  # fmt: skip


class Frame(NamedTuple):
    """Cells of some rows, as the kernel reads them.

    ``data`` uint8, the bytes of all cells and `PADDING` more; ``offsets`` int64 (C + 1, n + 1),
    where the items of a row start in each column, the labels last; ``starts`` and ``stops`` int64
    (items,) in ``data``; ``weights`` float64 (items,), or (1,) where all are 1; ``numbers`` float64
    (n, N), NaN where there is none; ``columns`` int64 (C, 6); ``importance`` float32 (n,);
    ``bad`` bool (n,), rows that are left out; ``options`` int64 (3,); ``kinds`` uint8, what each
    character is.
    """

    data: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    weights: NDArray[np.float64]
    numbers: NDArray[np.float64]
    columns: NDArray[np.int64]
    importance: NDArray[np.float32]
    bad: NDArray[np.bool_]
    options: NDArray[np.int64]
    kinds: NDArray[np.uint8]


class Scratch(NamedTuple):
    """Room for the features of a row.

    ``text`` uint8 holds the names that are known beforehand, then those of the row; ``words`` int64
    (words, 2), where each word of a cell starts and ends there; ``fixed`` int64 (F, 2), where the
    names that are known beforehand start and end.
    """

    text: NDArray[np.uint8]
    words: NDArray[np.int64]
    fixed: NDArray[np.int64]


@kernel(fastmath=False, inner=True)
def code_at(data: Array, q: int) -> Any:
    """Return the code point of valid UTF-8 at `q`, and its bytes."""
    byte = np.int64(data[q])
    if byte < 0x80:
        return byte, 1
    if byte < 0xE0:
        return (byte & 0x1F) << 6 | (np.int64(data[q + 1]) & 0x3F), 2
    if byte < 0xF0:
        low = (np.int64(data[q + 1]) & 0x3F) << 6 | (np.int64(data[q + 2]) & 0x3F)
        return (byte & 0x0F) << 12 | low, 3
    low = (np.int64(data[q + 2]) & 0x3F) << 6 | (np.int64(data[q + 3]) & 0x3F)
    return ((byte & 0x07) << 18 | (np.int64(data[q + 1]) & 0x3F) << 12 | low), 4


@kernel(fastmath=False, inner=True)
def split_words(
    data: Array, q: int, stop: int, kinds: Array, text: Array, p: int, words: Array
) -> Any:
    """Write the words of a cell with a space before and behind each; return their end and number.

    Parameters
    ----------
    data, q, stop : uint8, int, int
        Hold the cell: ASCII in any case, or what is normalised; where it starts and ends.
    kinds : uint8
        What each character is; ASCII ones alone where the cells are ASCII.
    text, p : uint8, int
        Receives the words, from `p` on.
    words : int64 (words, 2)
        Receives where each word starts and ends in `text`.
    """
    n, small = 0, np.uint8(0)
    text[p] = parsed.SPACE
    p += 1
    start, inside = p, False
    while q < stop:
        kind, size = np.uint8(0), 1
        if data[q] < 0x80:
            small = LOWERED[data[q]]
            kind = np.uint8(small != 0)
        else:
            code, size = code_at(data, q)
            kind = kinds[code]
        if inside and kind != 1:
            p, n, inside = end_word(text, start, p, words, n), n + 1, False
            start = p
        if kind != 0:
            if p - start + size <= MAX_NAME:  # the rest of a word that is longer is left out
                for i in range(size):
                    text[p + i] = data[q + i] if size > 1 else small
                p += size
            inside = True
        if kind == 2:
            p, n, inside = end_word(text, start, p, words, n), n + 1, False
            start = p
        q += size
    if inside:
        p, n = end_word(text, start, p, words, n), n + 1
    return p, n


@kernel(inline=True)
def end_word(text: Array, start: int, p: int, words: Array, n: int) -> Any:
    """Write where a word is, and a space behind it; return where the next one starts."""
    words[n, 0], words[n, 1] = start, p
    text[p] = parsed.SPACE
    return p + 1


@kernel(inline=True)
def emit(
    text: Array, start: int, stop: int, space: int, n: int, keys: Array, spans: Array, slots: Array
) -> None:
    """Write a span of the row's text as its feature `n`."""
    # The hash is that of hash_name. Arrays come one by one: each look into a tuple would count.
    state, first = start_state(space), np.uint64(0)
    size = stop - start
    for done in range(0, size, 8):
        word = load8(text, start + done)
        left = size - done
        if left < 8:
            word &= (np.uint64(1) << np.uint64(8 * left)) - np.uint64(1)
        if done == 0:
            first = word
        state = mix(state, word)
    state = min(state, LARGEST)
    mask = np.uint64(slots.shape[0] - 1)
    prefetch(slots, np.int64(slot_of(state, mask)) * 2)
    keys[n, 0], keys[n, 1] = state, first
    spans[n] = (np.int64(start) << 32) | (np.int64(space) << 12) | size


@kernel(fastmath=False, inner=True)
def runs_of_words(
    words: Array, n_words: int, longest: int, text: Array, space: int, n: int, keys: Array,
    spans: Array, slots: Array,
) -> Any:  # fmt: skip
    """Take words, and runs of up to `longest` of them, as features; return the next number."""
    for w in range(n_words):
        stop = words[w, 1]
        for before in range(min(longest, w + 1)):
            start = words[w - before, 0]
            if stop - start <= MAX_NAME:
                emit(text, start, stop, space, n, keys, spans, slots)
                n += 1
    return n


@kernel(fastmath=False, inner=True)
def runs_of_characters(
    words: Array, n_words: int, least: int, most: int, text: Array, space: int, n: int,
    keys: Array, spans: Array, slots: Array,
) -> Any:  # fmt: skip
    """Take runs of characters of words, with their spaces, as features; return the next number."""
    # A word that is shorter than the least run is one itself, with its spaces.
    for w in range(n_words):
        first, end = words[w, 0] - 1, words[w, 1] + 1
        for length in range(least, most + 1):
            start, stop, have = first, first, 0
            while stop < end and have < length:
                stop += 1
                while stop < end and text[stop] & 0xC0 == 0x80:
                    stop += 1
                have += 1
            if have < length:
                if length > least or end - first > MAX_NAME:
                    break
                stop = end
            while True:
                emit(text, start, stop, space, n, keys, spans, slots)
                n += 1
                if stop == end:
                    break
                start += 1
                while text[start] & 0xC0 == 0x80:
                    start += 1
                stop += 1
                while stop < end and text[stop] & 0xC0 == 0x80:
                    stop += 1
    return n


@kernel(fastmath=False)
def count_needs(frame: Frame) -> Any:
    """Return the most features of all rows; the most features, bytes of text and words of a row."""
    every, longest, most_bytes, most_words = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    runs = frame.options[MOST] - frame.options[LEAST] + 1 if frame.options[MOST] > 0 else 0
    for row in range(frame.bad.shape[0]):
        if frame.bad[row]:
            continue
        features, n_bytes = np.int64(0), np.int64(PADDING)
        for c in range(frame.columns.shape[0]):
            first, stop = frame.offsets[c, row], frame.offsets[c, row + 1]
            features += frame.columns[c, N_NUMBERS] + (stop - first)
            for i in range(first, stop):
                size = frame.stops[i] - frame.starts[i]
                n_bytes += 2 * size + 2
                if frame.columns[c, KIND] == TEXT:
                    most_words = max(most_words, size // 2 + 1)
                    features += frame.options[NGRAMS] * (size // 2 + 1) + runs * (2 * size + 4)
        every, longest = every + features, max(longest, features)
        most_bytes = max(most_bytes, n_bytes)
    return every, longest, most_bytes, most_words


@kernel(fastmath=False, inner=True)
def features_of_cells(frame: Frame, row: int, scratch: Scratch, out: Parsed, slots: Array) -> Any:
    """Read the cells of a row into features; return how many."""
    text, words, fixed, data = scratch.text, scratch.words, scratch.fixed, frame.data
    keys, spans, columns = out.keys, out.spans, frame.columns
    starts, stops = frame.starts, frame.stops
    ngrams, least, most = frame.options[NGRAMS], frame.options[LEAST], frame.options[MOST]
    values = out.values[out.state[parsed.VALUES] :]
    p = fixed[-1, 1] if fixed.shape[0] > 0 else 0
    n = 0
    for c in range(columns.shape[0]):
        kind, space = columns[c, KIND], columns[c, OF]
        if kind in (VALUE, BIN):
            at, name = columns[c, FIRST_NUMBER], columns[c, FIRST_FIXED]
            for k in range(columns[c, N_NUMBERS]):
                number = frame.numbers[row, at + k]
                gap = np.isnan(number)
                own = columns[c, OTHER] if gap else space
                if (gap and own == 0) or (kind == VALUE and number == 0.0):
                    continue
                which = name + (np.int64(number) if kind == BIN else k)
                values[n] = 1.0 if kind == BIN or gap else number
                emit(text, fixed[which, 0], fixed[which, 1], own, n, keys, spans, slots)
                n += 1
        for i in range(frame.offsets[c, row], frame.offsets[c, row + 1]):
            start, stop = starts[i], stops[i]
            if kind == TEXT:
                before = n
                p, n_words = split_words(data, start, stop, frame.kinds, text, p, words)
                n = runs_of_words(words, n_words, ngrams, text, space, n, keys, spans, slots)
                if most > 0:
                    n = runs_of_characters(
                        words, n_words, least, most, text, columns[c, OTHER], n, keys, spans,
                        slots,
                    )  # fmt: skip
                values[before:n] = 1.0
                continue
            for q in range(stop - start):
                text[p + q] = data[start + q]
            values[n] = frame.weights[i] if frame.weights.shape[0] > 1 else 1.0
            emit(text, p, p + stop - start, space, n, keys, spans, slots)
            n += 1
            p += stop - start
    return n


@kernel()
def read_rows(
    frame: Frame, row: int, scratch: Scratch, out: Parsed, labels: NameTable, names: NameTable,
    add_labels: bool, add_names: bool,
) -> Any:  # fmt: skip
    """Read rows from `row` on that are not bad; return a code and where it stopped.

    Parameters
    ----------
    frame : Frame
        The rows.
    row : int
        Where to start.
    scratch, out : Scratch, Parsed
        Work, and what receives the rows; ``places`` how many features of each are not known.
    labels, names : NameTable
        Labels and features met so far.
    add_labels, add_names : bool
        Which of them may take in new names.

    Returns
    -------
    code, row : int
        DONE: all is read. GROW: a table is full.
    """
    n_rows = frame.bad.shape[0]
    while row < n_rows:
        if frame.bad[row]:
            row += 1
            continue
        number, hard = out.state[parsed.ROWS], out.state[parsed.HARD]
        out.label_starts[number + 1] = out.label_starts[number]
        for i in range(frame.offsets[-1, row], frame.offsets[-1, row + 1]):
            start, stop = frame.starts[i], frame.stops[i]
            if not append_labels(frame.data, start, stop, out, labels, add_labels):
                return parsed.GROW, row
        n = features_of_cells(frame, row, scratch, out, names.slots)
        unknown = out.state[parsed.UNKNOWN]
        code = take_row(scratch.text, row, frame.importance[row], n, hard, out, names, add_names)
        if code != parsed.DONE:
            return code, row
        out.places[number] = out.state[parsed.UNKNOWN] - unknown
        row += 1
    return parsed.DONE, row
