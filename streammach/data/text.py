"""VW, svmlight and XMC text, plain or gzip, as blocks of rows."""

from __future__ import annotations

import io
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
from isal import igzip
from numpy.typing import NDArray

from streammach.data.text_kernels import (
    BAD,
    FIRST,
    FROM,
    FULL,
    GROW,
    HARD,
    LINE,
    MOST_COLUMNS,
    MOST_LABELS,
    N_STATE,
    REASON,
    REASONS,
    ROWS,
    TO,
    UNKNOWN,
    VALUES,
    Parsed,
    parse,
)
from streammach.errors import DataError, clean
from streammach.files import disk_error
from streammach.rows.block import RowBlock
from streammach.rows.vocabulary import Vocabulary
from streammach.rows.words import PADDING

BLOCK_BYTES = 1 << 20
MAX_LINE = 64 << 20
GZIP_ERRORS = (EOFError, zlib.error, igzip.BadGzipFile)
GZIP_MAGIC = b"\x1f\x8b"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
NEWLINE = 10
STRICT_HINT = "Fix the line, or let --on-bad-row skip leave such rows out."


@dataclass
class BadRows:
    """What to do with rows that cannot be read, and what was met.

    Attributes
    ----------
    skip : bool
        Whether they are left out; else the first one raises DataError.
    reasons : Counter
        How many were left out, by reason.
    unknown_values : int
        Values whose feature is not in a vocabulary that may not grow.
    """

    skip: bool = False
    reasons: Counter[str] = field(default_factory=Counter)
    unknown_values: int = 0


def xmc_header(line: bytes) -> tuple[int, int, int] | None:
    """Return the numbers of rows, columns and labels that a first line holds, or None."""
    fields = line.split()
    if len(fields) != 3 or not all(f.isdigit() and len(f) <= 18 for f in fields):
        return None
    rows, columns, labels = (int(f) for f in fields)
    return (rows, columns, labels) if rows and columns and labels else None


def gzip_error(error: Exception, path: Path, rows: int) -> DataError:
    """Return what is wrong with a gzip stream of which so many rows could be read."""
    what = "ends before its end mark" if isinstance(error, EOFError) else "is damaged"
    return DataError(
        f"the gzip stream {what}, after {rows:,} rows",
        path=clean(path, 300),
        hint="Copy the file again.",
    )


class _Measured(io.RawIOBase):
    """A raw file that counts the bytes read from it and their crc32c."""

    def __init__(self, file: io.FileIO, progress: Callable[[int], None] | None) -> None:
        self._file = file
        self._progress = progress
        self.n_bytes = 0
        self.crc = google_crc32c.Checksum()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        got = self._file.readinto(buffer) or 0
        self.n_bytes += got
        self.crc.update(bytes(memoryview(buffer)[:got]))
        if self._progress is not None:
            self._progress(self.n_bytes)
        return got


class TextSource:
    """One text file of labelled rows.

    Parameters
    ----------
    path : Path
        The file, plain or gzip.
    form : str
        ``vw``, ``svmlight`` or ``xmc``.
    first_label : bool
        Whether a row with several labels counts under the first one; such rows are bad otherwise.
    """

    note = ""

    def __init__(self, path: Path, form: str, *, first_label: bool = False) -> None:
        self.path = path
        self.form = form
        self._first_label = first_label
        self._read: _Measured | None = None

    @property
    def n_bytes(self) -> int:
        """Bytes of the file."""
        return self.path.stat().st_size

    @property
    def fingerprint(self) -> dict[str, str | int]:
        """Name, format, bytes and crc32c of the file as far as it was read."""
        assert self._read is not None, "the source was not read"
        return {
            "name": self.path.name,
            "format": self.form,
            "bytes": self._read.n_bytes,
            "crc32c": self._read.crc.digest().hex(),
        }

    def blocks(
        self,
        vocabulary: Vocabulary,
        bad_rows: BadRows,
        *,
        label_needed: bool = True,
        progress: Callable[[int], None] | None = None,
    ) -> Iterator[RowBlock]:
        """Yield the rows in their order; a block is valid until the next one.

        Parameters
        ----------
        vocabulary : Vocabulary
            Gives the ids; takes in new names where it may.
        bad_rows : BadRows
            The policy; counts what was left out.
        label_needed : bool
            Whether a row without a label is bad.
        progress : callable, optional
            Told the number of bytes read from the file.

        Yields
        ------
        RowBlock
            Values float32; places are byte offsets in the decompressed text.

        Raises
        ------
        DataError
            For a bad row, unless these are skipped, and for a damaged gzip stream.
        DiskError
            If the file cannot be read.
        """
        rows, promised = 0, -1
        n_bad = bad_rows.reasons.total()
        out = _room(BLOCK_BYTES)
        out.state[FIRST] = self._first_label
        try:
            with open(self.path, "rb", buffering=0) as file:
                self._read = _Measured(file, progress)
                for text, end, base in _whole_lines(_plain(self._read, file), self.path):
                    if len(out.values) < end // 2 + 1:
                        state = out.state
                        out = _room(end)
                        out.state[:] = state
                    start = 0
                    if self.form == "xmc" and base == 0:
                        start, promised = self._header(text, end, out)
                    for block in self._parsed(
                        text, start, end, base, out, vocabulary, bad_rows, label_needed
                    ):
                        rows += block.n_rows
                        yield block
            if promised >= 0:
                self._check_count(promised, rows + bad_rows.reasons.total() - n_bad, out)
        except GZIP_ERRORS as error:
            raise gzip_error(error, self.path, rows) from None
        except OSError as error:
            raise disk_error(error, self.path) from error

    def _header(self, text: NDArray[np.uint8], end: int, out: Parsed) -> tuple[int, int]:
        """Take in the first line of XMC text; return where the rows start and how many come."""
        stop = int(np.argmax(text[:end] == NEWLINE))
        numbers = xmc_header(text[:stop].tobytes())
        if numbers is None:
            raise DataError(
                f"'{clean(text[:stop].tobytes(), 60)}' is not the numbers of rows, columns and "
                "labels",
                path=clean(self.path, 300),
                line=1,
                hint="XMC text starts with them; without them it is --format svmlight.",
            )
        rows, out.state[MOST_COLUMNS], out.state[MOST_LABELS] = numbers
        out.state[LINE] += 1
        return stop + 1, rows

    def _check_count(self, promised: int, found: int, out: Parsed) -> None:
        """Refuse XMC text with another number of rows than its header names."""
        if promised not in (found, int(out.state[LINE]) - 1):  # a line may be empty
            raise DataError(
                f"{found:,} rows, the header names {promised:,}",
                path=clean(self.path, 300),
                hint="Copy the file again, or correct its first line.",
            )

    def _parsed(
        self,
        text: NDArray[np.uint8],
        position: int,
        end: int,
        base: int,
        out: Parsed,
        vocabulary: Vocabulary,
        bad_rows: BadRows,
        label_needed: bool,
    ) -> Iterator[RowBlock]:
        """Yield the rows of one buffer; ends where a bad row stopped it, or at its end."""
        while position < end:
            code, position = parse(
                text,
                position,
                end,
                self.form != "vw",
                label_needed,
                vocabulary.add_labels,
                vocabulary.add_features,
                out,
                vocabulary.labels,
                vocabulary.spaces,
                vocabulary.features,
            )
            if code == GROW:
                vocabulary.grow()
            elif code == BAD:
                self._refuse(text, position, out, bad_rows)
                while text[position] != NEWLINE:
                    position += 1
                position += 1
                out.state[LINE] += 1
            if out.state[ROWS] and (code == FULL or position >= end):
                yield _taken(text, base, out)
                out.state[[ROWS, VALUES, HARD]] = 0
        bad_rows.unknown_values += int(out.state[UNKNOWN])
        out.state[UNKNOWN] = 0

    def _refuse(
        self, text: NDArray[np.uint8], position: int, out: Parsed, bad_rows: BadRows
    ) -> None:
        reason = REASONS[int(out.state[REASON])]
        if bad_rows.skip:
            bad_rows.reasons[reason.replace("'{}'", "...")] += 1
            return
        start, stop = int(out.state[FROM]), int(out.state[TO])
        raise DataError(
            reason.format(clean(text[start:stop].tobytes(), 60)),
            path=clean(self.path, 300),
            line=int(out.state[LINE]) + 1,
            byte=start - position + 1,
            hint=STRICT_HINT,
        )


def _plain(read: _Measured, file: io.FileIO) -> io.RawIOBase | io.BufferedReader:
    magic = file.read(2)
    file.seek(0)
    if magic == GZIP_MAGIC:
        return io.BufferedReader(igzip.GzipFile(fileobj=read, mode="rb"))
    return read


def _whole_lines(
    file: io.RawIOBase | io.BufferedReader, path: Path
) -> Iterator[tuple[NDArray[np.uint8], int, int]]:
    """Yield (buffer, bytes of whole lines in it, offset of the first in the text).

    The buffer is reused; newlines stand behind the lines. A last line without one gets one.
    """
    buffer = np.empty(BLOCK_BYTES + PADDING, np.uint8)
    have, base, ended = 0, 0, False
    while not ended:
        room = len(buffer) - PADDING - 1
        got = file.readinto(buffer[have:room].data) or 0
        ended = not got
        if base == 0 and have == 0 and buffer[:3].tobytes() == BYTE_ORDER_MARK and got >= 3:
            buffer[: got - 3] = buffer[3:got].copy()
            got -= 3
        have += got
        if ended and have and buffer[have - 1] != NEWLINE:
            buffer[have] = NEWLINE
            have += 1
        cut = have - int(np.argmax(buffer[:have][::-1] == NEWLINE)) if have else 0
        if have and buffer[cut - 1] != NEWLINE:  # no newline at all
            if have >= MAX_LINE:
                raise DataError(
                    f"a line is longer than {MAX_LINE >> 20} MiB", path=clean(path, 300)
                )
            if have == room:
                buffer = np.concatenate([buffer, np.empty(len(buffer), np.uint8)])
            continue
        if cut:
            tail = buffer[cut:have].copy()
            buffer[cut : cut + PADDING] = NEWLINE
            yield buffer, cut, base
            base += cut
            have = len(tail)
            buffer[:have] = tail


def _room(text_bytes: int) -> Parsed:
    """Return arrays for all rows of a text: a row or a value takes two bytes at least."""
    n = text_bytes // 2 + 1
    return Parsed(
        np.empty(n, np.int32),
        np.empty(n, np.float32),
        np.empty(n, np.int64),
        np.zeros(n + 1, np.int64),
        np.empty(n, np.int32),
        np.empty(n, np.float32),
        np.empty((n, 3), np.uint64),
        np.empty((n, 3), np.int64),
        np.empty((n, 3), np.int64),
        np.empty(n, np.float64),
        np.zeros(256, np.int32),
        np.zeros(N_STATE, np.int64),
    )


def _taken(text: NDArray[np.uint8], base: int, out: Parsed) -> RowBlock:
    """Return the rows read so far, with the numbers rounded that the kernel left to Python."""
    n_hard = int(out.state[HARD])
    hard, scales = out.hard[:n_hard].tolist(), out.scales[:n_hard].tolist()
    for (value, start, stop), scale in zip(hard, scales, strict=True):
        out.values[value] = np.float32(float(text[start:stop].tobytes()) * scale)
    n, nnz = int(out.state[ROWS]), int(out.state[VALUES])
    return RowBlock(
        out.indptr[: n + 1],
        out.features[:nnz],
        out.values[:nnz],
        out.labels[:n],
        out.weights[:n],
        out.places[:n] + base,
    )
