"""Opens every text that a user gives: rows, lists of labels, weights, titles, documents.

Only here gzip is unpacked, a byte-order mark dropped, UTF-16 refused, and bytes counted and
bounded: `RawFile` reads any text by pieces, `text_lines` a list by its lines, `read_text` a
document whole.
"""

from __future__ import annotations

import io
import os
import re
import select
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

import google_crc32c
from isal import igzip, igzip_lib

from streammach.system.errors import DataError, StreammachError
from streammach.system.files.reading import disk_error, regular

MAX_LINE = 64 << 20  # bytes of a row
MAX_ENTRY = 8 << 20  # bytes of a line of a list: some are read at a time, whatever the budget is
LIST_BYTES = 1 << 18  # of lines of a list that are split at a time: they take fifty times as much
GZIP_ERRORS: Any = (EOFError, zlib.error, igzip_lib.IsalError, igzip.BadGzipFile)
GZIP_MAGIC = b"\x1f\x8b"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
PACKED = {  # by what a file begins with
    rb"BZh[1-9]1AY&SY": "bzip2 -dc", rb"\xfd7zXZ\0": "xz -dc", rb"\x28\xb5\x2f\xfd": "zstd -dc",
    rb"PK\x03\x04": "unzip -p",
}  # fmt: skip
STANDARD_INPUT = Path("-")
GZIP_BITS = 31
GROWS = 2  # times as much is looked at where what is looked for is not there
T = TypeVar("T")


def is_piped(path: Path) -> bool:
    """Return whether a path is standard input, a pipe or a device: text that is read once."""
    if path == STANDARD_INPUT:
        return True
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)


def check_packed(head: bytes, path: Path) -> None:
    """Refuse a text that is packed in another way than gzip, by its first bytes."""
    for begin, tool in PACKED.items():
        if re.match(begin, head):
            hint = f"Pack it with gzip, or pipe it: {tool} FILE | streammach ... -"
            raise DataError("it is packed, and not with gzip", path=path, hint=hint)


@contextmanager
def text_errors(path: Path, done: Callable[[], int] = int) -> Iterator[None]:
    """Turn what is said of a text in a block into DataError or DiskError.

    `done` tells how many bytes of text were read.
    """
    try:
        yield
    except StreammachError:
        raise
    except GZIP_ERRORS as error:
        what = "ends before its end mark" if isinstance(error, EOFError) else "is damaged"
        what = f"the gzip stream {what}, after {done():,} bytes of text"
        raise DataError(what, path=path, hint="Copy the file again.") from None
    except OSError as error:
        raise disk_error(error, path) from error


class RawFile(io.RawIOBase):
    """A file, or standard input, that counts the bytes read from it and their crc32c."""

    def __init__(
        self, path: Path, *, prompt: bool = False, opener: Callable[[str, int], int] | None = None
    ) -> None:
        standard = path == STANDARD_INPUT
        self._file = io.FileIO(0 if standard else path, "rb", closefd=not standard, opener=opener)
        self._path, self._head = path, b""
        self._seen: bytearray | None = None  # what was read and is read again, if there is any
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
        text = bytes(memoryview(buffer)[:got])
        self.n_bytes += got
        self.crc.update(text)
        if self._seen is not None:
            self._seen += text
        return got

    @contextmanager
    def rewinding(self) -> Iterator[None]:
        """Read the first bytes in a block; behind it they are read again."""
        self._seen = bytearray()
        try:
            yield
        finally:
            self._head, self._seen = bytes(self._seen) + self._head, None
            self.n_bytes, self.crc = 0, google_crc32c.Checksum()

    def close(self) -> None:
        """Close the file; standard input stays open."""
        if hasattr(self, "_file"):  # it was opened
            self._file.close()
        super().close()

    def text(self, block_bytes: int) -> io.RawIOBase | io.BufferedReader:
        """Return the text of the file without its mark; gzip in so many bytes at a time."""
        check_packed(self.head(10), self._path)
        text: io.RawIOBase | io.BufferedReader = self
        head = self.head(len(BYTE_ORDER_MARK))
        if head.startswith(GZIP_MAGIC):
            text = io.BufferedReader(igzip.GzipFile(fileobj=self, mode="rb"), block_bytes)
            head = text.peek(len(BYTE_ORDER_MARK))
        if len(without_mark(head, self._path)) < len(head):
            text.read(len(BYTE_ORDER_MARK))
        return text

    def lines(self, longest: int, block_bytes: int) -> Iterator[list[bytes]]:
        """Yield the lines in lists of about so many bytes, without LF or CRLF, or DataError."""
        n_bytes, rest = 0, b""
        with text_errors(self._path, lambda: n_bytes):
            text = self.text(block_bytes)
            while block := text.read(block_bytes):
                n_bytes += len(block)
                lines = (rest + block).replace(b"\r\n", b"\n").split(b"\n")
                rest = lines.pop()
                if len(rest) > longest:
                    what = f"a line is longer than {longest >> 20} MiB"
                    raise DataError(what, path=self._path)
                yield lines
        if rest:
            yield [rest]


def text_lines(path: str | os.PathLike[str]) -> Iterator[list[bytes]]:
    """Yield the lines of a list that a user names, as :meth:`RawFile.lines` does."""
    place = Path(path)
    with text_errors(place), RawFile(place) as raw:
        yield from raw.lines(MAX_ENTRY, LIST_BYTES)


def numbered_lines(path: str | os.PathLike[str]) -> Iterator[list[tuple[int, bytes]]]:
    """Yield the lines of a list that are not empty, each with its number from 1, in pieces."""
    before = 0
    for lines in text_lines(path):
        yield [(number, line) for number, line in enumerate(lines, before + 1) if line]
        before += len(lines)


def read_text(path: Path, limit: int) -> bytes | None:
    """Return the text in a regular file; None where it has more than so many bytes."""
    found = bytearray()
    with text_errors(path, lambda: len(found)), RawFile(path, opener=regular) as raw:
        text = raw.text(LIST_BYTES)
        while len(found) <= limit and (piece := text.read(LIST_BYTES)):
            found += piece
    return bytes(found) if len(found) <= limit else None


def _tells(head: bytes) -> bool:
    """Return whether the first bytes of a plain text hold its header, or a line that tells it."""
    if head.startswith(GZIP_MAGIC) or head.count(b'"') % 2:
        return False
    lines = [line for line in head.split(b"\n")[:-1] if line.strip() and line.lstrip()[:1] != b"#"]
    return len(lines) > 1 or (len(lines) == 1 and not lines[0].replace(b" ", b"").strip().isdigit())


def find_in_head(
    path: Path, raw: RawFile | None, n_bytes: int, look: Callable[[bytes, bool], T | None]
) -> T | None:
    """Return what is found in the first bytes of a text; it reads more where it must."""
    found, whole = None, False
    with text_errors(path), RawFile(path) if raw is None else nullcontext(raw) as file:
        while found is None and not whole:
            text, ended = _first_bytes(path, file, n_bytes)
            whole = ended or n_bytes >= MAX_LINE
            found = look(text, whole)
            n_bytes *= GROWS
    return found


def _first_bytes(path: Path, raw: RawFile, n_bytes: int) -> tuple[bytes, bool]:
    """Return the first bytes of a text, and whether these are all of it."""
    text = head = raw.head(n_bytes)
    check_packed(head, path)
    whole = len(head) < n_bytes and raw.ended
    if head.startswith(GZIP_MAGIC):
        text, _, ended = unpack_head(head, n_bytes)
        if whole and not ended and len(text) < n_bytes:
            raise EOFError
        whole = whole and ended
    return without_mark(text, path), whole


def without_mark(text: bytes, path: Path) -> bytes:
    """Return the first bytes of a text without a byte-order mark, or raise DataError for UTF-16."""
    if text.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError("it is UTF-16", path=path, hint="Write it as UTF-8.")
    return text.removeprefix(BYTE_ORDER_MARK)


def unpack_head(head: bytes, n_bytes: int) -> tuple[bytes, int, bool]:
    """Return up to so many bytes of a gzip text, how many of its own these took, whether it ends.

    Zeros may stand behind a member, or the next one.
    """
    text, rest = b"", head
    while rest.startswith(GZIP_MAGIC) and len(text) < n_bytes:
        stream = zlib.decompressobj(GZIP_BITS)
        text += stream.decompress(rest, n_bytes - len(text))
        if not stream.eof:
            return text, len(head) - len(stream.unconsumed_tail), False
        rest = stream.unused_data.lstrip(b"\0")
    return text, len(head) - len(rest), not rest
