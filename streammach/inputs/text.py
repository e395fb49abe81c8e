"""Text of any format in pieces of whole lines, and its rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from streammach.inputs.bad_rows import BadRow
from streammach.inputs.formats import parsed
from streammach.inputs.formats.parsed import (
    NEWLINE,
    REASONS,
    Parsed,
    TextHeader,
    block_of,
    room_for,
)
from streammach.inputs.formats.registry import TEXT_FORMATS, Parser
from streammach.inputs.identity import ChangedError, Fingerprint, name_of
from streammach.inputs.source import START, LargePiece, Piece, PieceRows, Place, RowReader, Source
from streammach.options.types import Multilabel
from streammach.rows.block import RowBlock
from streammach.rows.texts import Texts
from streammach.rows.vocabulary import Vocabulary
from streammach.system.errors import DataError, clean
from streammach.system.files.raw_text import MAX_LINE, RawFile, is_piped, text_errors
from streammach.system.simd import PADDING

BLOCK_BYTES = 1 << 20
LARGE_TEXT = 4 << 20  # of a piece, from which on what it takes is counted
TEXT_BYTES, VALUE_BYTES = 4, 64  # for a byte of a large piece, and for a value in it
TAB = 9
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
class TextPiece(Piece):
    """Whole lines: bytes ``start:stop`` of a buffer's text, which starts at byte `base`.

    Of a table, `first_row` is the number of its first row, `n_rows` how many there are, and
    `first_line` how many lines of its file are before them.
    """

    buffer: TextBuffer
    start: int
    stop: int
    base: int
    n_lines_before: int
    first_row: int = 0
    n_rows: int = 0
    first_line: int = 0


class TextFile(Source[TextPiece]):
    """One file of text, whose rows end at newlines."""

    row_is = "a line"

    def __init__(self, path: Path, form: str, raw: RawFile | None = None) -> None:
        self.path, self.form, self._raw = path, form, raw
        self._free: deque[TextBuffer] = deque()

    def files(self) -> list[Path]:
        return [] if is_piped(self.path) else [self.path]

    def fingerprint(self) -> Fingerprint:
        """Return what identifies what was read, of a pipe too."""
        assert self._raw is not None, "nothing was read"
        return Fingerprint(
            name=name_of(self.path.name), format=self.form, bytes=self._raw.n_bytes,
            crc32c=self._raw.crc.digest().hex(),
        )  # fmt: skip

    def open_text(self) -> Any:
        """Return the text to read, a `RawFile` or what looks like one."""
        return RawFile(self.path)

    def pieces(self, begin: Place = START) -> Iterator[TextPiece]:
        """Yield the lines in their order, in pieces of about a megabyte."""
        with text_errors(self.path):
            self._raw = self._raw if is_piped(self.path) and self._raw else self.open_text()
        with self._raw:
            yield from self._pieces(self._raw, begin)

    def _pieces(self, raw: RawFile, begin: Place) -> Iterator[TextPiece]:
        # Text before `begin` is read too: its digest is compared, and the fingerprint is that of
        # the whole file.
        done = crc = before = 0
        with text_errors(self.path, lambda: done):
            for buffer, size, base in self._whole_lines(raw):
                done = base + size
                start = max(0, begin.at - base)
                if base < begin.at <= done:
                    self._check_before(
                        begin, google_crc32c.extend(crc, buffer.text[:start].tobytes())
                    )
                crc = google_crc32c.extend(crc, buffer.text[:size].tobytes())
                if base == 0:
                    first, lines = self._first_row(buffer.text, size)
                    start, before = max(start, first), lines if start < first else 0
                if start >= size:
                    self._free.append(buffer)
                    continue
                yield TextPiece(
                    buffer=buffer, start=start, stop=size, base=base, n_lines_before=before,
                    n_read=raw.n_bytes, end=Place(done, crc),
                    large=self._large(buffer.text[start:size]) if size > LARGE_TEXT else None,
                )  # fmt: skip
                before = 0
            if done < begin.at:
                self._check_before(begin, -1)

    def _large(self, text: NDArray[np.uint8]) -> LargePiece | None:
        """Return what a piece with a long row takes."""
        blanks, commas = (int(np.count_nonzero(text == byte)) for byte in b" ,")
        values = blanks + int(np.count_nonzero(text == TAB))
        return LargePiece(
            TEXT_BYTES * len(text) + VALUE_BYTES * (values + commas), values, len(text)
        )

    def _check_before(self, begin: Place, crc: int) -> None:
        if crc != begin.crc:
            raise ChangedError("what was read before is not there", path=self.path)

    def give_back(self, piece: TextPiece) -> None:
        if piece.large is None:
            self._free.append(piece.buffer)

    def take_over(self, other: Source[Any]) -> None:
        """Share the buffers of a text that was read before; some may be in use yet."""
        if isinstance(other, TextFile):
            self._free = other._free

    def _first_row(self, text: NDArray[np.uint8], size: int) -> tuple[int, int]:
        """Return where the rows start, and the lines before them."""
        del text, size
        return 0, 0

    def _whole_lines(self, raw: RawFile) -> Iterator[tuple[TextBuffer, int, int]]:
        """Yield (buffer, bytes of whole lines in it, offset of the first in the text).

        Newlines stand behind the lines. A last line without one gets one.
        """
        file = raw.text(BLOCK_BYTES)
        buffer, have, base, cut, ended = self._buffer(), 0, 0, 0, False
        while have or not ended:
            if not ended and (not cut or have < BLOCK_BYTES // 2):
                buffer = buffer.with_room_for(have + BLOCK_BYTES // 2 + 1, have)
                room = len(buffer.text) - PADDING - 1
                got = file.readinto(buffer.text[have:room].data) or 0
                ended = not got
                have += got
                if ended and have and buffer.text[have - 1] != NEWLINE:
                    buffer.text[have] = NEWLINE
                    have += 1
                if not ended and have < room // 2 and not (file is raw and raw.pauses()):
                    continue  # a pipe gives a little at a time
            cut = self._cut(buffer.text, have, ended=ended)
            if cut:
                following = self._buffer().with_room_for(have - cut + BLOCK_BYTES // 2 + 1, 0)
                following.text[: have - cut] = buffer.text[cut:have]
                buffer.text[cut : cut + PADDING] = NEWLINE
                yield buffer, cut, base
                buffer, have, base = following, have - cut, base + cut
            elif have >= MAX_LINE:
                what = f"{self.row_is} is longer than {MAX_LINE >> 20} MiB"
                raise DataError(what, path=self.path)
        self._free.append(buffer)

    def _cut(self, text: NDArray[np.uint8], size: int, *, ended: bool) -> int:
        """Return where the last whole row in the first bytes ends, 0 without one.

        A table may have it end before: what is behind comes with the next piece.
        """
        del ended
        return text[:size].tobytes().rfind(b"\n") + 1

    def _buffer(self) -> TextBuffer:
        return self._free.popleft() if self._free else TextBuffer(BLOCK_BYTES)


class TextSource(TextFile):
    """One text file of labelled rows, in a format with one row a line."""

    def __init__(
        self, path: Path, form: str, *, first_label: bool = False, multilabel: Multilabel = "off",
        raw: RawFile | None = None,
    ) -> None:  # fmt: skip
        super().__init__(path, form, raw)
        self._known = TEXT_FORMATS[form]
        multilabel = "off" if first_label else multilabel
        may_have_none = multilabel == "auto" and self._known.unlabelled_rows
        # What decides how lines are read, as `Parsed.state` has it.
        self._options = np.zeros(parsed.N_STATE, np.int64)
        self._options[parsed.FIRST] = first_label
        self._options[parsed.SPLIT] = multilabel != "off"
        self._options[parsed.NONE_OK] = multilabel == "on" or may_have_none
        self._options[parsed.LISTED] = multilabel == "on"
        self._header: TextHeader | None = None

    def reader(self, vocabulary: Vocabulary, *, label_needed: bool, strict: bool) -> TextReader:
        parse, options = self._known.parse, self._options
        return TextReader(parse, options, vocabulary, label_needed=label_needed, strict=strict)

    def check_end(self, n_rows: int, n_bad: int, n_lines: int) -> None:
        if self._header is None:
            return
        promised, found = self._header.rows, n_rows + n_bad
        if promised not in (found, n_lines - 1):  # a line may be empty
            what = f"{found:,} rows, the header names {promised:,}"
            hint = "Copy the file again, or correct its first line."
            raise DataError(what, path=self.path, hint=hint)

    def _first_row(self, text: NDArray[np.uint8], size: int) -> tuple[int, int]:
        """Return where the rows start, and the lines before them: a header, if there is one."""
        if self._known.header is None:
            return 0, 0
        stop = int(np.argmax(text[:size] == NEWLINE))
        line = text[:stop].tobytes()
        self._header = self._known.header(line)
        if self._header is None:
            what = f"'{clean(line, 60)}' is not the numbers of rows, columns and labels"
            hint = f"Text of --format {self.form} starts with them."
            raise DataError(what, path=self.path, line=1, hint=hint)
        places = [parsed.MOST_COLUMNS, parsed.MOST_LABELS]
        self._options[places] = self._header.columns, self._header.labels
        return stop + 1, 1


class TextReader(RowReader[TextPiece]):
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
        block = _take_block(piece.buffer.text, piece.base, out, bad, left)
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


def _bad_row(text: NDArray[np.uint8], position: int, out: Parsed) -> BadRow:
    """Return the row at a position, which `out` says is bad."""
    start, stop = int(out.state[parsed.FROM]), int(out.state[parsed.TO])
    return BadRow(
        reason=REASONS[int(out.state[parsed.REASON])], text=clean(text[start:stop].tobytes(), 60),
        line=int(out.state[parsed.LINE]) + 1, byte=start - position + 1,
        before=int(out.state[parsed.ROWS]),
    )  # fmt: skip


def _take_block(
    text: NDArray[np.uint8], base: int, out: Parsed, bad: list[BadRow], left: NDArray[np.int64]
) -> RowBlock:
    """Return the rows read, with the values rounded that the kernel left to Python."""
    n_hard = int(out.state[parsed.HARD])
    hard, scales = out.hard[:n_hard].tolist(), out.scales[:n_hard].tolist()
    for (value, start, stop), scale in zip(hard, scales, strict=True):
        out.values[value] = np.float32(float(text[start:stop].tobytes()) * scale)
    n = int(out.state[parsed.ROWS])
    places = out.places[:n] + base
    earlier = np.searchsorted([row.before for row in bad], np.arange(n), "right")
    earlier += np.searchsorted(left[:, 0], places)
    listed = bool(out.state[parsed.LISTED] and out.state[parsed.SPLIT])
    tags = Texts.of_spans(text, out.tags[:n, 0], out.tags[:n, 1])
    return block_of(out, places, np.arange(n) + earlier, tags, listed=listed)
