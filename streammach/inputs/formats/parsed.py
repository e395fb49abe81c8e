"""What a parser of text fills: arrays of rows, the codes it stops with, and why a row is bad."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammach.rows.block import RowBlock
from streammach.rows.label_lists import LabelLists
from streammach.rows.texts import Texts

# What stopped the parser.
DONE, GROW, BAD = range(3)
# Places in Parsed.state.
ROWS, VALUES, LINE, HARD, UNKNOWN, REASON, FROM, TO = range(8)
FIRST, MOST_COLUMNS, MOST_LABELS = 8, 9, 10  # options: first of several labels, XMC's numbers or 0
TAG_FROM, TAG_TO = 11, 12  # of the row that is read
SPLIT, NONE_OK = 13, 14  # options: labels are lists; a row may have none
LABELS, LISTED = 15, 16  # labels of all rows; whether a row has more or fewer than one
DROP, LEFT = 17, 18  # option: rows of importance 0 are left out; how many were
N_STATE = 19
# Why a row is bad.
REASONS = {
    1: "the line has no label",
    2: "label '{}' holds ':'",
    3: "'{}' is several labels (--first-label takes the first one, --multilabel on all)",
    4: "importance '{}' is not a number of 0 or more",
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
    20: "'{}' has an empty label beside a comma",
    21: "importance '{}' is above 1e9: divide all of them by one number",
}
OK, NO_LABEL, COLON_LABEL, MANY_LABELS, BAD_WEIGHT, NO_BAR, TOUCHING = range(7)
NO_NAME, NO_NUMBER, NOT_FINITE, BAD_SPACE, NO_VALUE, NO_INDEX, TOO_LONG, CONTROL = range(7, 15)
MANY_SPACES, COLUMN_TOO_LARGE, LABEL_TOO_LARGE, NO_FINITE_LABEL, NO_QID = range(15, 20)
EMPTY_LABEL, TOO_HEAVY = 20, 21

NEWLINE, SPACE, HASH, QUOTE, PLUS, COMMA, MINUS, ZERO, NINE = 10, 32, 35, 39, 43, 44, 45, 48, 57
COLON, LETTER_Q, BAR = 58, 113, 124


class TextHeader(NamedTuple):
    """What the first line of a text says that it holds."""

    rows: int
    columns: int
    labels: int


class Parsed(NamedTuple):
    """Rows of one block of text, in arrays of fixed room, and scratch for the row being read.

    ``classes`` int32, ``importance`` float32 and ``places`` int64 (rows,), the byte of the text
    where a row's line starts; ``tags`` int64 (rows, 2), where its tag starts and ends, and
    from the end on where lines of importance 0 that were left out start and end; where labels are
    lists, ``label_starts`` int64 (rows + 1,) and ``label_ids`` int32 (labels,); ``indptr``
    int64 (rows + 1,); ``features`` int32 and ``values`` float32 (values,). Scratch: ``keys`` uint64
    (values, 2) hash and first word of a name, ``spans`` int64 (values,) its start, namespace (20
    bits) and length (12), the last two as a slot of names has them. ``hard`` int64 (values, 3):
    place among the values, start and end of numbers that need Python's own rounding, ``scales``
    float64 (values,) their factors. ``short`` int32 (256,) keeps the ids of namespaces of one byte,
    ``direct`` int32 (numbers,) those of names without one that are numbers, -1 where not met:
    looking these up misses the cache less. ``state`` int64 (19,) holds the counters and options
    above.
    """

    classes: NDArray[np.int32]
    importance: NDArray[np.float32]
    places: NDArray[np.int64]
    tags: NDArray[np.int64]
    label_starts: NDArray[np.int64]
    label_ids: NDArray[np.int32]
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


def room_for(rows: int, values: int, labels: int) -> Parsed:
    """Return arrays for so many rows, values and labels."""
    room = Parsed(
        classes=np.empty(rows, np.int32), importance=np.empty(rows, np.float32),
        places=np.empty(rows, np.int64), tags=np.empty((rows, 2), np.int64),
        label_starts=np.empty(rows + 1, np.int64), label_ids=np.empty(labels, np.int32),
        indptr=np.empty(rows + 1, np.int64), features=np.empty(values, np.int32),
        values=np.empty(values, np.float32), keys=np.empty((values, 2), np.uint64),
        spans=np.empty(values, np.int64), hard=np.empty((values, 3), np.int64),
        scales=np.empty(values, np.float64), short=np.zeros(256, np.int32),
        direct=np.empty(0, np.int32), state=np.zeros(N_STATE, np.int64),
    )  # fmt: skip
    room.label_starts[0] = room.indptr[0] = 0
    return room


def block_of(
    out: Parsed, places: NDArray[np.int64], numbers: NDArray[np.int64], tags: Texts | None, *,
    listed: bool,
) -> RowBlock:  # fmt: skip
    """Return the rows that were read, with lists of labels or one label each."""
    n, nnz = int(out.state[ROWS]), int(out.state[VALUES])
    labels = None
    if listed:
        starts, ids = out.label_starts[: n + 1], out.label_ids[: int(out.state[LABELS])]
        labels = LabelLists(starts, ids).sort()
    return RowBlock(
        indptr=out.indptr[: n + 1], features=out.features[:nnz], values=out.values[:nnz],
        classes=out.classes[:n], importance=out.importance[:n], places=places, numbers=numbers,
        tags=tags if tags is not None and tags.text_bytes else None,
    ).with_labels(labels)  # fmt: skip
