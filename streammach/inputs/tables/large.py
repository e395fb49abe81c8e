"""What a row that is larger than usual may take, told before it is read; Arrow's own sizes."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammach.inputs.source import LargePiece
from streammach.inputs.tables.arrow_rows import BYTES, VIEWS, ArrowRows, arrow, is_of
from streammach.options.recipe import Recipe

CHUNK = 1 << 18
COPY_BYTES = 10  # for a byte of a cell: decoded, normalised, and joined to others
VALUE_BYTES = 60  # for a feature of a text or a list while its row is read
ITEM_BYTES = 100  # for an item of a list
OBJECT_BYTES = 64  # for a value of JSON, beside its bytes
MARKS = list(b",:[{")
# What may stand between words, or begin one of its own.
BREAKS = np.array([not chr(b).isalnum() if b < 128 else b >= 0xC0 for b in range(256)])
MOST_METADATA = 64 << 20
DICTIONARY, RECORDS = 2, 3  # kinds of Arrow's messages


def of_text(text: NDArray[np.uint8], recipe: Recipe, *, objects: bool = False) -> LargePiece:
    """Return what rows in a text, uint8 (bytes,), may take: cells, or objects of JSON."""
    counts = _count_bytes(text)
    marks = int(counts[MARKS].sum())
    items = marks if objects or len(recipe.texts) < len(recipe.columns) else 0
    found = _large(recipe, len(text), int(counts[BREAKS].sum()) + 1, items)
    return found._replace(n_bytes=found.n_bytes + OBJECT_BYTES * marks * objects)


def of_row(rows: ArrowRows, recipe: Recipe) -> LargePiece:
    """Return what a row of Arrow may take."""
    texts = [rows.strings(name).data for name in recipe.texts if name in rows.names]
    words = sum(int(_count_bytes(text)[BREAKS].sum()) + 1 for text in texts)
    items = sum(int(items_of(column).sum()) for column in rows.batch.columns)
    return _large(recipe, rows.batch.nbytes + sum(map(len, texts)), words, items)


def items_of(column: Any) -> NDArray[np.int64]:
    """Return how many items each cell of an Arrow array has beyond one: int64 (n,)."""
    if is_of(column.type, "list", "large_list", "map"):
        return np.diff(np.asarray(column.offsets)).astype(np.int64)
    return np.zeros(len(column), np.int64)


def row_sizes(batch: Any) -> NDArray[np.int64]:
    """Return the bytes of the rows of a batch when they are decoded, about: int64 (n,)."""
    return sum(map(_cell_sizes, batch.columns), np.zeros(batch.num_rows, np.int64))


def _cell_sizes(column: Any) -> Any:
    """Return the bytes of each cell, int64 (n,), or those of any."""
    pa, kind = arrow(), column.type
    if isinstance(kind, pa.BaseExtensionType):
        return _cell_sizes(column.storage)
    if is_of(kind, "dictionary"):
        words = _cell_sizes(column.dictionary)
        if isinstance(words, int) or not len(words):
            return words if isinstance(words, int) else 0
        codes = np.asarray(column.indices.fill_null(0)).astype(np.int64)
        return words[codes]
    if is_of(kind, *VIEWS):
        views = np.frombuffer(column.buffers()[1], np.int32)
        return views[4 * column.offset :: 4][: len(column)].astype(np.int64)
    if is_of(kind, *BYTES):
        return np.asarray(pa.compute.binary_length(column).fill_null(0)).astype(np.int64)
    items = items_of(column)
    if items.any():
        return items * max(1, column.nbytes // int(items.sum()))
    return column.nbytes // max(len(column), 1)


def _count_bytes(text: NDArray[np.uint8]) -> NDArray[np.int64]:
    counts = np.zeros(256, np.int64)
    for first in range(0, len(text), CHUNK):
        counts += np.bincount(text[first : first + CHUNK], minlength=256)
    return counts


def _large(recipe: Recipe, n_bytes: int, words: int, items: int) -> LargePiece:
    least, most = recipe.chars or (1, 0)
    values = items + len(recipe.columns)
    name_bytes = n_bytes
    if recipe.texts:
        runs = range(least, most + 1)
        values += recipe.ngrams * words + len(runs) * 2 * n_bytes
        name_bytes += sum(range(recipe.ngrams + 1)) * (n_bytes + words) + 2 * n_bytes * sum(runs)
    taken = COPY_BYTES * n_bytes + VALUE_BYTES * values + ITEM_BYTES * items
    return LargePiece(taken, values, name_bytes)


class ArrowMessage(NamedTuple):
    """A message of Arrow: its kind, bytes in the file, and when it is decoded."""

    kind: int
    n_bytes: int
    decoded: int


def messages(file: IO[bytes]) -> Iterator[ArrowMessage]:
    """Yield the messages of an Arrow file or stream, as far as they can be read."""
    at = 8 if file.read(6) == b"ARROW1" else 0
    try:
        while True:
            file.seek(at)
            mark, size = struct.unpack("<Ii", file.read(8))
            if mark != 0xFFFFFFFF:  # older streams have no mark
                size, at = mark, at - 4
            if not 0 < size <= MOST_METADATA:
                return
            file.seek(at + 8)
            body = at + 8 + size
            kind, length, buffers, packed = _facts(file.read(size))
            decoded = 0
            for offset, n_bytes in buffers:
                unpacked = -1
                if packed and n_bytes >= 8:
                    file.seek(body + offset)
                    (unpacked,) = struct.unpack("<q", file.read(8))
                decoded += n_bytes if unpacked < 0 else unpacked
            yield ArrowMessage(kind, length, decoded)
            at = body + max(length, 0)
    except (struct.error, OverflowError, ValueError, OSError):
        return  # what reads the rows says what is wrong


def _facts(raw: bytes) -> tuple[int, int, list[tuple[int, int]], bool]:
    """Return kind, bytes of the body, places of its buffers, whether these are packed.

    `raw` is a flatbuffer: https://arrow.apache.org/docs/format/Columnar.html, Message.fbs.
    """
    (root,) = struct.unpack_from("<I", raw)
    kind, length = (_number(raw, form, _field(raw, root, n)) for form, n in (("B", 1), ("q", 3)))
    if kind not in (DICTIONARY, RECORDS):
        return kind, length, [], False
    batch = _follow(raw, root, 2)
    batch = batch if kind == RECORDS else _follow(raw, batch, 1)
    first = _follow(raw, batch, 2)
    n = _number(raw, "I", first)
    found = [struct.unpack_from("<qq", raw, first + 4 + 16 * i) for i in range(n)]
    return kind, length, [(int(a), int(b)) for a, b in found], bool(_field(raw, batch, 3))


def _number(raw: bytes, form: str, place: int) -> int:
    return int(struct.unpack_from("<" + form, raw, place)[0]) if place else 0


def _field(raw: bytes, table: int, field: int) -> int:
    """Return where a field of a flatbuffer's table lies, 0 where it is not there."""
    places = table - _number(raw, "i", table)
    if 4 + 2 * field >= _number(raw, "H", places):
        return 0
    offset = _number(raw, "H", places + 4 + 2 * field)
    return table + offset if offset else 0


def _follow(raw: bytes, table: int, field: int) -> int:
    place = _field(raw, table, field)
    return place + _number(raw, "I", place)
