"""Sparse matrices as text, as the XMC repository has them: features in a file, labels in another.

Each has a line with the numbers of its rows and columns, then a line ``column:value ...`` for each
row. Joined they are XMC text, which is read as any other. A label of value 0 is none; other values
of labels count as 1.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any

from streammach.inputs.identity import Fingerprint
from streammach.inputs.source import Source
from streammach.inputs.text import BLOCK_BYTES, TextReader, TextSource
from streammach.rows.vocabulary import Vocabulary
from streammach.system.errors import DataError, UsageError, clean
from streammach.system.files.raw_text import MAX_LINE, RawFile

AGAIN = "Copy the file again, or correct its first line."
NO_LINE = b"\n"  # in place of a line, which holds no newline
NO_FEATURES = b"qid:0"  # a row without labels and features; a blank line would be no row


def matrix_shape(line: bytes) -> tuple[int, int] | None:
    """Return rows and columns by the first line of such text, None if it is none."""
    fields = line.split()
    sound = len(fields) == 2 and all(field.isdigit() and len(field) <= 18 for field in fields)
    return (int(fields[0]), int(fields[1])) if sound else None


class JoinedText(io.RawIOBase):
    """XMC text of a file of features and one of labels; without labels all rows have label 0."""

    def __init__(self, features: Path, labels: Path | None) -> None:
        self._open = ExitStack()
        self._paths = [features] if labels is None else [features, labels]
        self._raws = [self._open.enter_context(RawFile(path)) for path in self._paths]
        self._lines, self._left = self._join_lines(), b""

    @property
    def n_bytes(self) -> int:
        """Bytes of the files that were read."""
        return sum(raw.n_bytes for raw in self._raws)

    def text(self, block_bytes: int) -> io.BufferedReader:
        """Return the text, in so many bytes at a time."""
        return io.BufferedReader(self, block_bytes)

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Read into a buffer; return how many bytes."""
        self._left = self._left or next(self._lines, b"")
        got = min(len(buffer), len(self._left))
        buffer[:got], self._left = self._left[:got], self._left[got:]
        return got

    def close(self) -> None:
        """Close the files."""
        self._open.close()
        super().close()

    def _join_lines(self) -> Iterator[bytes]:
        """Yield the header and the rows, a line each."""
        blocks = (raw.lines(MAX_LINE, BLOCK_BYTES) for raw in self._raws)
        texts = [chain.from_iterable(one) for one in blocks]
        shapes = [_shape(path, next(t, b"")) for path, t in zip(self._paths, texts, strict=True)]
        n = shapes[0][0]
        if shapes[-1][0] != n:
            what = f"its header names {shapes[-1][0]:,} rows, that of the features {n:,}"
            raise DataError(what, path=self._paths[-1], line=1)
        yield b"%d %d %d\n" % (*shapes[0], 1 if len(shapes) == 1 else shapes[1][1])
        for number in range(n):
            lines = [next(text, NO_LINE) for text in texts]
            if NO_LINE in lines:
                what = f"{number:,} rows, the header names {n:,}"
                raise DataError(what, path=self._paths[lines.index(NO_LINE)], hint=AGAIN)
            labels = _labels(lines[1]) if len(lines) > 1 else b"0"
            yield labels + b" " + (lines[0].strip() or (b"" if labels else NO_FEATURES)) + b"\n"
        for path, text in zip(self._paths, texts, strict=True):
            if any(line.strip() for line in text):
                raise DataError(f"more rows than the {n:,} of its header", path=path, hint=AGAIN)


def _shape(path: Path, line: bytes) -> tuple[int, int]:
    """Return the rows and columns that a first line says, or raise DataError."""
    found = matrix_shape(line)
    if found is None:
        what = f"'{clean(line.strip(), 60)}' is not the numbers of rows and columns"
        raise DataError(what, path=path, line=1)
    return found


def _labels(line: bytes) -> bytes:
    """Return the labels of a row with commas between them; what is no number is refused later."""
    cells = [cell.partition(b":") for cell in line.split()]
    return b",".join(label for label, _, value in cells if not value or value.strip(b"0."))


class MatrixText(TextSource):
    """Features in one file of text, labels in another one, or unknown."""

    def __init__(self, path: Path, labels: Path | None, **how: Any) -> None:
        super().__init__(path, "xmc", **how)
        self._labels_path = labels

    def files(self) -> list[Path]:
        return [self.path, *([] if self._labels_path is None else [self._labels_path])]

    def fingerprint(self) -> Fingerprint:
        return Source.fingerprint(self)

    def reader(self, vocabulary: Vocabulary, *, label_needed: bool, strict: bool) -> TextReader:
        """Return something that reads pieces, or raise UsageError without labels."""
        if label_needed and self._labels_path is None:
            hint = "Name the file that has them: --labels, such as trn_X_Y.txt."
            raise UsageError(
                "it is a matrix of features, without labels", path=self.path, hint=hint
            )
        return super().reader(vocabulary, label_needed=label_needed, strict=strict)

    def open_text(self) -> JoinedText:
        return JoinedText(self.path, self._labels_path)
