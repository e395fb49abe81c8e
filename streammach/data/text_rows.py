"""Reads pieces of text as rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streammach.data.bad_rows import BadRow
from streammach.data.formats import parsed
from streammach.data.formats.parsed import REASONS, Parsed
from streammach.data.formats.registry import Parser
from streammach.data.source import Large, PieceRows, Place
from streammach.errors import clean
from streammach.rows.block import RowBlock
from streammach.rows.label_lists import LabelLists
from streammach.rows.texts import Texts, copy_texts
from streammach.rows.vocabulary import Vocabulary
from streammach.simd import PADDING

DIRECT = 1 << 20  # numbers below are looked up in an array of their own


class TextBuffer:
    """A buffer of text and room for its rows, used again and again."""

    def __init__(self, n_bytes: int) -> None:
        self.text = np.empty(n_bytes + PADDING, np.uint8)
        self._room: Parsed | None = None

    @property
    def room(self) -> Parsed:
        """Arrays for all rows of the text."""
        if self._room is None:
            most = len(self.text) // 2 + 1  # a row or a value takes two bytes at least
            self._room = room_for(most, most, most)
        return self._room

    def with_room_for(self, n_bytes: int, kept: int) -> TextBuffer:
        """Return a buffer of at least so many bytes whose first ones are those of this one."""
        if len(self.text) - PADDING >= n_bytes:
            return self
        larger = TextBuffer(max(n_bytes, 2 * len(self.text)))
        larger.text[:kept] = self.text[:kept]
        return larger


@dataclass(kw_only=True)
class TextPiece:
    """Whole lines: bytes ``start:stop`` of a buffer's text, which starts at byte `base`.

    Of a table, `first_row` is the number of its first row, `n_rows` how many there are, and
    `first_line` how many lines of its file are before them.
    """

    buffer: TextBuffer
    start: int
    stop: int
    base: int
    n_lines_before: int
    n_read: int
    crc: int
    large: Large | None = None
    first_row: int = 0
    n_rows: int = 0
    first_line: int = 0

    @property
    def end(self) -> Place:
        """The place behind the piece."""
        return Place(self.base + self.stop, self.crc)


class TextReader:
    """Reads pieces of one text, as :meth:`Source.reader` says; for one thread at a time.

    `options` is int64 (N_STATE,): what `Parsed.state` begins with.
    """

    def __init__(
        self, parse: Parser, options: NDArray[np.int64], vocabulary: Vocabulary, *,
        label_needed: bool, strict: bool,
    ) -> None:  # fmt: skip
        self._line_parser, self._options, self._vocabulary = parse, options, vocabulary
        self._label_needed, self._strict = label_needed, strict
        self._short = np.zeros(256, np.int32)
        self._direct = np.full(DIRECT, -1, np.int32)

    def read(self, piece: TextPiece) -> PieceRows:
        """Return the rows of a piece."""
        out = piece.buffer.room._replace(short=self._short, direct=self._direct)
        out.state[:] = self._options
        out.state[parsed.LINE], out.state[parsed.DROP] = piece.n_lines_before, self._label_needed
        bad = self._parse(piece, out)
        n_left = int(out.state[parsed.LEFT])
        left = out.tags[len(out.tags) - n_left :][::-1] + piece.base
        block = _taken(piece.buffer.text, piece.base, out, bad, left)
        unknown = int(out.state[parsed.UNKNOWN])
        return PieceRows(block, bad, int(out.state[parsed.LINE]), unknown, left=left.copy())

    def bad_row(self, piece: TextPiece, place: int, reason: str) -> BadRow:
        """Return a row of a piece, by the byte of the text at which it starts, as a bad one."""
        before = piece.buffer.text[piece.start : place - piece.base]
        line = piece.n_lines_before + int(np.count_nonzero(before == parsed.NEWLINE)) + 1
        return BadRow(reason=reason, line=line, byte=1)

    def _parse(self, piece: TextPiece, out: Parsed) -> list[BadRow]:
        """Read all rows of a piece into `out`; return the bad ones."""
        bad: list[BadRow] = []
        words, text, position = self._vocabulary, piece.buffer.text, piece.start
        while position < piece.stop:
            code, position = self._line_parser(
                text, position, piece.stop, self._label_needed, words.add_labels,
                words.add_features, out, words.labels, words.spaces, words.features,
            )  # fmt: skip
            if code == parsed.GROW:
                words.grow()
            elif code == parsed.BAD:
                bad.append(_bad_row(text, position, out))
                if self._strict:
                    break
                while text[position] != parsed.NEWLINE:
                    position += 1
                position += 1
                out.state[parsed.LINE] += 1
        return bad


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
        direct=np.empty(0, np.int32), state=np.zeros(parsed.N_STATE, np.int64),
    )  # fmt: skip
    room.label_starts[0] = room.indptr[0] = 0
    return room


def _bad_row(text: NDArray[np.uint8], position: int, out: Parsed) -> BadRow:
    """Return the row at a position, which `out` says is bad."""
    start, stop = int(out.state[parsed.FROM]), int(out.state[parsed.TO])
    return BadRow(
        reason=REASONS[int(out.state[parsed.REASON])], text=clean(text[start:stop].tobytes(), 60),
        line=int(out.state[parsed.LINE]) + 1, byte=start - position + 1,
        before=int(out.state[parsed.ROWS]),
    )  # fmt: skip


def _taken(
    text: NDArray[np.uint8], base: int, out: Parsed, bad: list[BadRow], left: NDArray[np.int64]
) -> RowBlock:
    """Return the rows read, with the values rounded that the kernel left to Python."""
    n_hard = int(out.state[parsed.HARD])
    hard, scales = out.hard[:n_hard].tolist(), out.scales[:n_hard].tolist()
    for (value, start, stop), scale in zip(hard, scales, strict=True):
        out.values[value] = np.float32(float(text[start:stop].tobytes()) * scale)
    n, nnz = int(out.state[parsed.ROWS]), int(out.state[parsed.VALUES])
    places = out.places[:n] + base
    earlier = np.searchsorted([row.before for row in bad], np.arange(n), "right")
    earlier += np.searchsorted(left[:, 0], places)
    labels = None
    if out.state[parsed.LISTED]:
        starts, ids = out.label_starts[: n + 1], out.label_ids[: int(out.state[parsed.LABELS])]
        labels = LabelLists(starts, ids).sorted()
    return RowBlock(
        indptr=out.indptr[: n + 1], features=out.features[:nnz], values=out.values[:nnz],
        classes=out.classes[:n], importance=out.importance[:n], places=places,
        numbers=np.arange(n) + earlier, tags=_tags(text, out.tags[:n]),
    ).with_labels(labels)  # fmt: skip


def _tags(text: NDArray[np.uint8], spans: NDArray[np.int64]) -> Texts | None:
    """Return the tags of rows, of which `spans` int64 (n, 2) says where they start and end."""
    ends = np.concatenate([[0], np.cumsum(spans[:, 1] - spans[:, 0])])
    if not ends[-1]:
        return None
    data = np.empty(int(ends[-1]), np.uint8)
    copy_texts(text, spans[:, 0], ends, data)
    return Texts(ends, data)
