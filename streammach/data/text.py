"""Text of any format, plain or gzip, in pieces of whole lines."""

from __future__ import annotations

import io
import re
import select
import stat
import zlib
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
from isal import igzip, igzip_lib
from numpy.typing import NDArray

from streammach.data.formats import parsed
from streammach.data.formats.parsed import NEWLINE, TextHeader
from streammach.data.formats.registry import TEXT_FORMATS
from streammach.data.identity import ChangedError, Fingerprint, name_of
from streammach.data.source import START, Large, Place, Source
from streammach.data.text_rows import TextBuffer, TextPiece, TextReader
from streammach.errors import DataError, clean
from streammach.files.reading import disk_error
from streammach.rows.vocabulary import Vocabulary
from streammach.simd import PADDING
from streammach.spec.types import Multilabel

BLOCK_BYTES = 1 << 20
MAX_LINE = 64 << 20
LARGE_TEXT = 4 << 20  # of a piece, from which on what it takes is counted
TEXT_BYTES, VALUE_BYTES = 4, 64  # for a byte of a large piece, and for a value in it
TAB = 9
GZIP_ERRORS: Any = (
    EOFError, zlib.error, igzip_lib.IsalError, igzip.BadGzipFile,
)  # fmt: skip
GZIP_MAGIC = b"\x1f\x8b"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
PACKED = {  # by what a file begins with
    rb"BZh[1-9]1AY&SY": "bzip2 -dc", rb"\xfd7zXZ\0": "xz -dc", rb"\x28\xb5\x2f\xfd": "zstd -dc",
    rb"PK\x03\x04": "unzip -p",
}  # fmt: skip
STANDARD_INPUT = Path("-")


def is_piped(path: Path) -> bool:
    """Return whether a path is standard input, a pipe or a device: text that is read once."""
    if path == STANDARD_INPUT:
        return True
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)


def gzip_error(error: Exception, path: Path, n_bytes: int) -> DataError:
    """Return what is wrong with a gzip stream of which so many bytes of text could be read."""
    what = "ends before its end mark" if isinstance(error, EOFError) else "is damaged"
    return DataError(
        f"the gzip stream {what}, after {n_bytes:,} bytes of text",
        path=path,
        hint="Copy the file again.",
    )


def check_packed(head: bytes, path: Path) -> None:
    """Refuse a text that is packed in another way than gzip, by its first bytes."""
    for begin, tool in PACKED.items():
        if re.match(begin, head):
            hint = f"Pack it with gzip, or pipe it: {tool} FILE | streammach ... -"
            raise DataError("it is packed, and not with gzip", path=path, hint=hint)


class RawFile(io.RawIOBase):
    """A file, or standard input, that counts the bytes read from it and their crc32c."""

    def __init__(self, path: Path, *, prompt: bool = False) -> None:
        standard = path == STANDARD_INPUT
        self._file = io.FileIO(0 if standard else path, "rb", closefd=not standard)
        self._path, self._head = path, b""
        self._prompt = prompt
        self.ended = False  # whether the end was met
        self.n_bytes = 0  # bytes that were read
        self.crc = google_crc32c.Checksum()

    def readable(self) -> bool:
        """Return True."""
        return True

    def head(self, n: int) -> bytes:
        """Return up to `n` first bytes, which are read again afterwards.

        Of a prompt pipe no more than it takes to tell the format and the names of columns.
        """
        while len(self._head) < n and not self.ended:
            if self._prompt and _tells(self._head):
                break
            more = self._file.read(n - len(self._head))
            self.ended = not more
            self._head += more
        return self._head[:n]

    def pauses(self) -> bool:
        """Return whether lines are wanted as they come, and no more bytes wait at present."""
        if not self._prompt or self._head:
            return False
        ready, _, _ = select.select([self._file.fileno()], [], [], 0)
        return not ready

    def readinto(self, buffer: Any, /) -> int:
        """Read into a buffer; return how many bytes."""
        if self._head:
            got = min(len(buffer), len(self._head))
            memoryview(buffer)[:got] = self._head[:got]
            self._head = self._head[got:]
        else:
            got = 0 if self.ended else self._file.readinto(buffer) or 0
            self.ended = not got
        self.n_bytes += got
        self.crc.update(bytes(memoryview(buffer)[:got]))
        return got

    def close(self) -> None:
        """Close the file; standard input stays open."""
        self._file.close()
        super().close()

    def text(self) -> io.RawIOBase | io.BufferedReader:
        """Return the text of the file, decompressed where it is gzip."""
        check_packed(self.head(10), self._path)
        if self.head(2) == GZIP_MAGIC:
            return io.BufferedReader(igzip.GzipFile(fileobj=self, mode="rb"), BLOCK_BYTES)
        return self


def _tells(head: bytes) -> bool:
    """Return whether the first bytes of a plain text hold its header, or a line that tells it."""
    if head.startswith(GZIP_MAGIC) or head.count(b'"') % 2:
        return False
    lines = [line for line in head.split(b"\n")[:-1] if line.strip() and line.lstrip()[:1] != b"#"]
    return len(lines) > 1 or (len(lines) == 1 and not lines[0].replace(b" ", b"").strip().isdigit())


class TextFile(Source[TextPiece]):
    """One file of text, whose rows end at newlines."""

    row_is = "a line"

    def __init__(self, path: Path, form: str, raw: RawFile | None = None) -> None:
        self.path, self.form, self._raw = path, form, raw
        self._free: deque[TextBuffer] = deque()

    def files(self) -> list[Path]:
        """Return the file; none for a pipe."""
        return [] if is_piped(self.path) else [self.path]

    def fingerprint(self) -> Fingerprint:
        """Return what identifies what was read, of a pipe too."""
        assert self._raw is not None, "nothing was read"
        return Fingerprint(
            name=name_of(self.path.name), format=self.form, bytes=self._raw.n_bytes,
            crc32c=self._raw.crc.digest().hex(),
        )  # fmt: skip

    def pieces(self, begin: Place = START) -> Iterator[TextPiece]:
        """Yield the lines in their order, in pieces of about a megabyte."""
        # Text before `begin` is read too: its digest is compared, and the fingerprint is that of
        # the whole file.
        done = crc = before = 0
        try:
            raw = self._raw if is_piped(self.path) and self._raw else RawFile(self.path)
            self._raw = raw
            with raw:
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
                        n_read=raw.n_bytes, crc=crc,
                        large=self._large(buffer.text[start:size]) if size > LARGE_TEXT else None,
                    )  # fmt: skip
                    before = 0
                if done < begin.at:
                    self._check_before(begin, -1)
        except GZIP_ERRORS as error:
            raise gzip_error(error, self.path, done) from None
        except OSError as error:
            raise disk_error(error, self.path) from error

    def _large(self, text: NDArray[np.uint8]) -> Large:
        """Return what a piece with a long row takes."""
        blanks, commas = (int(np.count_nonzero(text == byte)) for byte in b" ,")
        values = blanks + int(np.count_nonzero(text == TAB))
        return Large(TEXT_BYTES * len(text) + VALUE_BYTES * (values + commas), values, len(text))

    def _check_before(self, begin: Place, crc: int) -> None:
        if crc != begin.crc:
            raise ChangedError("what was read before is not there", path=self.path)

    def give_back(self, piece: TextPiece) -> None:
        """Say that a piece and the rows read from it are needed no more."""
        if piece.large is None:
            self._free.append(piece.buffer)

    def take_over(self, other: Source[Any]) -> None:
        """Read into the memory of a text that was read before."""
        if isinstance(other, TextFile):
            self._free, other._free = other._free, self._free

    def _first_row(self, text: NDArray[np.uint8], size: int) -> tuple[int, int]:
        """Return where the rows start, and the lines before them."""
        del size
        return behind_mark(text), 0

    def _whole_lines(self, raw: RawFile) -> Iterator[tuple[TextBuffer, int, int]]:
        """Yield (buffer, bytes of whole lines in it, offset of the first in the text).

        Newlines stand behind the lines. A last line without one gets one.
        """
        file = raw.text()
        buffer, have, base, ended = self._buffer(), 0, 0, False
        while not ended:
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
                raise DataError(
                    f"{self.row_is} is longer than {MAX_LINE >> 20} MiB", path=self.path
                )
        self._free.append(buffer)

    def _cut(self, text: NDArray[np.uint8], size: int, *, ended: bool) -> int:
        """Return where the last whole row in the first bytes ends, 0 without one."""
        del ended
        return text[:size].tobytes().rfind(b"\n") + 1

    def _buffer(self) -> TextBuffer:
        return self._free.popleft() if self._free else TextBuffer(BLOCK_BYTES)


class TextSource(TextFile):
    """One text file of labelled rows, in a format with one row a line."""

    def __init__(
        self,
        path: Path,
        form: str,
        *,
        first_label: bool = False,
        multilabel: Multilabel = "off",
        raw: RawFile | None = None,
    ) -> None:
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
        """Return something that reads pieces."""
        parse, options = self._known.parse, self._options
        return TextReader(parse, options, vocabulary, label_needed=label_needed, strict=strict)

    def check_end(self, n_rows: int, n_bad: int, n_lines: int) -> None:
        """Refuse text with another number of rows than its header names."""
        if self._header is None:
            return
        promised, found = self._header.rows, n_rows + n_bad
        if promised not in (found, n_lines - 1):  # a line may be empty
            raise DataError(
                f"{found:,} rows, the header names {promised:,}",
                path=self.path,
                hint="Copy the file again, or correct its first line.",
            )

    def _first_row(self, text: NDArray[np.uint8], size: int) -> tuple[int, int]:
        """Return where the rows start, and the lines before them: a header, if there is one."""
        start = behind_mark(text)
        if self._known.header is None:
            return start, 0
        stop = start + int(np.argmax(text[start:size] == NEWLINE))
        self._header = self._known.header(text[start:stop].tobytes())
        if self._header is None:
            raise DataError(
                f"'{clean(text[start:stop].tobytes(), 60)}' is not the numbers of rows, columns "
                "and labels",
                path=self.path,
                line=1,
                hint=f"Text of --format {self.form} starts with them.",
            )
        places = [parsed.MOST_COLUMNS, parsed.MOST_LABELS]
        self._options[places] = self._header.columns, self._header.labels
        return stop + 1, 1


def behind_mark(text: NDArray[np.uint8]) -> int:
    """Return where a text starts, behind a byte order mark."""
    mark = len(BYTE_ORDER_MARK)
    return mark if text[:mark].tobytes() == BYTE_ORDER_MARK else 0
