"""Rows that cannot be read: the policy, what was met, and the file that lists them."""

from __future__ import annotations

import io
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from streammach.system.errors import DataError, UsageError, check_word, clean
from streammach.system.files.destinations import Destination, known_by_mark
from streammach.system.files.reading import disk_errors, regular
from streammach.system.files.writing import fsync_folder, remove_file
from streammach.system.linux import sync

STRICT_HINT = "Fix it, or let --on-bad-row skip leave such rows out."
UTF8_HINT = "Write it as UTF-8, such as with: iconv -f LATIN1 -t UTF-8 FILE"
HEADING = "file\tline\tbyte\treason\n"

LIST = known_by_mark(HEADING, "it is no list of rows that streammach left out")


@dataclass(frozen=True, kw_only=True)
class BadRow:
    """A row that cannot be read."""

    reason: str  # why; `{}` stands for what was found
    text: str = ""  # what was found, safe to print
    line: int  # line in the piece of text, from 1; for a matrix its row, from 0
    byte: int | None = None  # byte in the line, from 1; None for a matrix
    before: int = 0  # rows of the piece before it that could be read


class BadRows:
    """What to do with rows that cannot be read, and what was met."""

    def __init__(
        self, *, skip: bool = False, most: int | None = None, listed: Path | None = None
    ) -> None:
        self.skip = skip
        self.reasons: Counter[str] = Counter()  # how many were left out, by reason
        self.unknown_values = 0  # values whose feature is not in a vocabulary that may not grow
        self._most = most
        self._listed = listed
        self._file: io.FileIO | None = None
        self._named = False  # whether the list's name is durable

    @property
    def total(self) -> int:
        """Number of rows left out."""
        return self.reasons.total()

    def take(self, rows: list[BadRow], path: Path, lines_before: int) -> None:
        """Count rows that were found bad, in their order, or refuse the first one."""
        for row in rows:
            where = row.line if row.byte is None else row.line + lines_before
            what = row.reason.format(row.text)
            if not self.skip:
                hint = UTF8_HINT if what.endswith("is not UTF-8") else STRICT_HINT
                if row.byte is None:
                    what = f"row {where:,} (counted from 0): {what}"
                    raise DataError(what, path=path, hint=hint)
                raise DataError(what, path=path, line=where, byte=row.byte, hint=hint)
            self.reasons[row.reason.replace("'{}'", "...")] += 1
            self._list(f"{clean(path, 300)}\t{where}\t{row.byte or ''}\t{what}\n")
            if self._most is not None and self.total > self._most:
                many = f"{self.total:,} bad rows are more than --max-bad {self._most:,}"
                line = None if row.byte is None else where
                raise DataError(f"{many}, the last: {what}", path=path, line=line, byte=row.byte)

    def allow(self, reasons: dict[str, int]) -> bool:
        """Return whether so many rows may be left out."""
        total = sum(reasons.values())
        return not total or (self.skip and (self._most is None or total <= self._most))

    def save(self) -> int:
        """Make the list durable; return its bytes."""
        if self._file is None:
            return 0
        with disk_errors(str(self._listed)):
            sync(self._file.fileno())
            if self._listed is not None and not self._named:
                fsync_folder(self._listed.parent)
                self._named = True
            return self._file.tell()

    def resume(self, reasons: dict[str, int], unknown_values: int, n_bytes: int) -> None:
        """Go on from what an interrupted conversion had met and listed."""
        self.reasons = Counter(reasons)
        self.unknown_values = unknown_values
        if n_bytes and self._listed is not None:
            with disk_errors(self._listed):
                self._file = os.fdopen(regular(self._listed, os.O_RDWR), "r+b", buffering=0)
                self._file.truncate(n_bytes)
                self._file.seek(n_bytes)

    def close(self) -> None:
        """Close the list."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _list(self, line: str) -> None:
        if self._listed is None:
            return
        with disk_errors(self._listed):
            if self._file is None:
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
                self._file = os.fdopen(regular(self._listed, flags), "wb", buffering=0)
                line = HEADING + line
            data = line.encode()
            while data:
                data = data[self._file.write(data) or 0 :]


def skipping(on_bad_row: str, max_bad: int | None) -> bool:
    """Return whether rows that cannot be read are left out, as the user said it."""
    check_word(on_bad_row, ("error", "skip"), "--on-bad-row")
    if max_bad is not None and (max_bad < 0 or on_bad_row != "skip"):
        raise UsageError("it is a number of 0 or more, beside --on-bad-row skip: --max-bad")
    return on_bad_row == "skip"


@contextmanager
def listed_rows(
    path: str | os.PathLike[str] | None, *, skip: bool, most: int | None, force: bool,
    inputs: Sequence[Path],
) -> Iterator[BadRows]:  # fmt: skip
    """Yield what counts rows that cannot be read; their list appears when the block is done."""
    if path is None:
        yield BadRows(skip=skip, most=most)
        return
    if not skip:
        raise UsageError("rows are left out and listed with --on-bad-row skip: --rejects")
    destination = Destination(Path(path), LIST, force=force, inputs=inputs)
    with destination.scratch() as made:
        rows = BadRows(skip=skip, most=most, listed=made)
        try:
            yield rows
        finally:
            rows.close()
        if made.exists():
            destination.take(made)
        elif destination.path.exists():
            destination.check()
            remove_file(destination.path)
