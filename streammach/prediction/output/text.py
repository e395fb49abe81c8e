"""Predictions as text, a line for each row: tab-separated, CSV, JSON lines."""

from __future__ import annotations

import re
from abc import abstractmethod
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from streammach.errors import UNSAFE, escaped
from streammach.prediction.order import Predictions
from streammach.prediction.output.base import OutputFormat, Shape
from streammach.rows.names import Names

NUMBER = "%.6g"
ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


class TextOutput(OutputFormat):
    """A format with a line for each row, all of them made by one template.

    Attributes
    ----------
    paired : bool
        Whether each score follows its label; else all labels come first.
    """

    special: re.Pattern[str]  # what a name holds that does not stand in a line as it is
    paired = True

    @abstractmethod
    def cell(self, name: bytes) -> str:
        """Return a label or a tag as it stands in a line."""

    @abstractmethod
    def line(self, n_labels: int, shape: Shape, number: str) -> str:
        """Return the template of a row with so many labels: number, tag, labels and scores."""

    def tag(self, cell: str) -> str:
        """Return what stands for a tag, by its cell; that of a row without one is empty."""
        return cell

    def number(self, value: float) -> str:
        """Return what stands for a score that is not finite."""
        return NUMBER % value

    def rows(self, part: Predictions, shape: Shape) -> bytes:
        """Return some rows as lines, in one step of formatting: a call for each costs more."""
        n, k = part.ids.shape
        there, number = part.ids >= 0, NUMBER
        scores: NDArray[Any] = part.scores
        if not np.isfinite(scores).all():
            number, texts = "%s", [self.number(score) for score in scores.ravel().tolist()]
            scores = np.array(texts, object).reshape(n, k)
        given = np.empty((n, 2 + 2 * k), object)
        given[:, 0], given[:, 1] = part.rows, self._tags(part)
        labels, beside = slice(2, 2 + k), slice(2 + k, None)
        if self.paired:
            labels, beside = slice(2, None, 2), slice(3, None, 2)
        given[:, labels], given[:, beside] = self._labels(part.ids, there, shape.labels), scores
        if there.all():
            lines, cells = self.line(k, shape, number) * n, given.ravel()
        else:
            used = np.ones(given.shape, bool)
            used[:, labels] = used[:, beside] = there
            templates = [self.line(m, shape, number) for m in range(k + 1)]
            lines = "".join([templates[m] for m in there.sum(axis=1).tolist()])
            cells = given[used]
        text: str = lines % tuple(cells.tolist())
        return text.encode()

    def _tags(self, part: Predictions) -> NDArray[Any]:
        if part.tags is None:
            return np.full(len(part.rows), self.tag(""), object)
        found = np.empty(len(part.rows), object)
        found[:] = [self.tag(cell) for cell in self._cells(part.tags.raws())]
        return found

    def _labels(
        self, ids: NDArray[np.int64], there: NDArray[np.bool_], names: Names
    ) -> NDArray[Any]:
        """Return the cells of labels by class ids (n, k), None where there is none."""
        unique, where = np.unique(ids[there], return_inverse=True)
        cells = np.empty(len(unique), object)
        cells[:] = self._cells(names.raws(unique))
        found = np.full(ids.shape, None, object)
        found[there] = cells[where.ravel()]
        return found

    def _cells(self, raws: list[bytes]) -> list[str]:
        """Return the cells of names; mostly none of them holds anything special."""
        try:
            if not self.special.search(b" ".join(raws).decode()):
                return [raw.decode() for raw in raws]
        except UnicodeDecodeError:
            pass
        return [self.cell(raw) for raw in raws]


class Delimited(TextOutput):
    """Cells between delimiters: a heading, then number and tag of a row, its labels and scores."""

    delimiter: str

    def heading(self, shape: Shape) -> bytes:
        """Return the names of the columns as a line."""
        pairs = [f"{what}_{i}" for i in range(1, shape.k + 1) for what in ("label", shape.word)]
        return (self.delimiter.join(("row", "tag", *pairs)) + "\n").encode()

    def line(self, n_labels: int, shape: Shape, number: str) -> str:
        """Return the template of a row."""
        pairs = ["%s", number] * n_labels + ["", ""] * (shape.k - n_labels)
        return self.delimiter.join(("%d", "%s", *pairs)) + "\n"

    def is_ours(self, path: Path, start: bytes) -> bool:
        """Return whether a text starts with a heading of ours."""
        del path
        words = (("row", "tag", "label_1", word) for word in ("score_1", "probability_1"))
        headings = [self.delimiter.join(cells).encode() for cells in words]
        return any(start.startswith(head + end) for head in headings
                   for end in (b"\n", self.delimiter.encode()))  # fmt: skip


class TsvOutput(Delimited):
    """Tab-separated: cells have no quotes, and what would break a line is escaped."""

    name, endings, delimiter = "tsv", (".tsv", ".tab"), "\t"
    special = re.compile(rf"\\|{UNSAFE.pattern}")

    def cell(self, name: bytes) -> str:
        """Return a label or a tag as it may stand in a table, and on a terminal."""
        # A backslash stands as \\, tab, newline and carriage return as \t, \n, \r, and bytes and
        # characters that no terminal should be sent as \xNN or \uNNNN.
        text = name.decode("utf-8", "surrogateescape").translate(ESCAPES)
        whole = text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        return escaped(whole)


class CsvOutput(Delimited):
    """Comma-separated, with quotes as RFC 4180 says; a line ends with a newline alone."""

    name, endings, delimiter = "csv", (".csv",), ","
    special = re.compile('[",\r\n]')

    def cell(self, name: bytes) -> str:
        """Return a label or a tag in quotes where it needs them."""
        text = name.decode("utf-8", "backslashreplace")
        return '"' + text.replace('"', '""') + '"' if self.special.search(text) else text


class JsonLinesOutput(TextOutput):
    """An object for each row: row, tag, labels and scores; integers are numbers."""

    name, endings = "jsonl", (".jsonl", ".ndjson")
    special = re.compile(rf'["\\]|{UNSAFE.pattern}')
    paired = False
    ours = re.compile(rb'\{"row":\d+,"tag":(?:null|"(?:[^"\\]|\\.)*"),"labels":\[')

    def cell(self, name: bytes) -> str:
        """Return a label or a tag as it stands between quotes."""
        text = msgspec.json.encode(name.decode("utf-8", "backslashreplace")).decode()[1:-1]
        return UNSAFE.sub(lambda found: _escape(found[0]), text)

    def tag(self, cell: str) -> str:
        """Return the tag in quotes, null without one."""
        return f'"{cell}"' if cell else "null"

    def number(self, value: float) -> str:
        """Return a score, null where it is not finite: JSON has no such numbers."""
        return NUMBER % value if np.isfinite(value) else "null"

    def line(self, n_labels: int, shape: Shape, number: str) -> str:
        """Return the template of a row."""
        label = "%s" if shape.labels.kind == "integer" else '"%s"'
        labels, scores = (",".join([cell] * n_labels) for cell in (label, number))
        return f'{{"row":%d,"tag":%s,"labels":[{labels}],"{shape.plural}":[{scores}]}}\n'

    def is_ours(self, path: Path, start: bytes) -> bool:
        """Return whether a text starts with the names of ours, in their order."""
        del path
        return self.ours.match(start) is not None


def _escape(character: str) -> str:
    """Return a character as JSON may have it escaped."""
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
