"""Formats of predictions: how rows are made ready, and what writes them.

Where row groups of Parquet end depends on nothing but the rows.
"""

from __future__ import annotations

import io
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from streammach.inputs.tables.arrow_rows import arrow
from streammach.model.model import Model
from streammach.options.figures import Explanation
from streammach.prediction.allowed import Allowed
from streammach.prediction.explain import LINES, reasons_array
from streammach.prediction.scorer_sum import PredictionRequest, Predictions
from streammach.rows.names import Names
from streammach.system.errors import UNSAFE, StreammachError, escape_controls

Write = Callable[[Any], object]  # takes bytes of a file, or rows as a format makes them
NUMBER = "%.6g"
ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})
PLURALS = {"score": "scores", "probability": "probabilities"}
MARK = {b"streammach": b"predictions"}  # by which a Parquet file is known as ours
GROUP_ROWS, GROUP_CELLS = 1 << 16, 1 << 20  # most rows of a row group, and most of its cells
EXPLAINED_CELLS = 64  # of a class whose score is explained, about
LIBRARY_BYTES = 160_000_000  # of Arrow, of a row group and of what it is encoded into


@dataclass(frozen=True, kw_only=True)
class AnswerShape:
    """What all rows of a table of predictions have in common."""

    k: int  # classes a row
    labels: Names  # the labels by class id
    word: str = "score"  # what stands beside a label: `score` or `probability`
    titles: Names | None = None  # what labels are called in words, by class id, if that is known
    features: Names | None = None  # features by id, where scores are explained

    @classmethod
    def of(cls, request: PredictionRequest, model: Model, allowed: Allowed | None) -> AnswerShape:
        """Return what rows have in common of which that is asked."""
        most = model.n_labels if allowed is None else allowed.n_labels
        return cls(
            k=min(request.k, most), labels=model.labels, titles=model.titles,
            word="probability" if request.probabilities else "score",
            features=model.features if request.explain else None,
        )  # fmt: skip

    @property
    def columns(self) -> tuple[str, ...]:
        """What stands in a row for each label, in its order."""
        titled, explained = self.titles is not None, self.features is not None
        return ("label", *["title"] * titled, self.word, *["explanation"] * explained)


class OutputFormat(ABC):
    """A format of predictions."""

    name: str  # in options
    endings: tuple[str, ...]  # of the names of its files
    text = True  # whether it is text, whose rows can be read as they come
    import_bytes = 0  # memory of a library that it needs, and of its own work

    def check(self) -> None:
        """Raise UsageError if what it needs is not installed."""
        return

    @abstractmethod
    def rows(self, part: Predictions, shape: AnswerShape) -> Any:
        """Return some rows ready to be written; cells of the id -1 are empty."""

    def heading(self, shape: AnswerShape) -> bytes:
        """Return what stands before the rows of a text."""
        return b""

    @contextmanager
    def table(self, write: Write, shape: AnswerShape) -> Iterator[Write]:
        """Yield what writes rows; these are text, unless a format says otherwise.

        Parameters
        ----------
        write : callable
            Takes the bytes of the file.
        shape : AnswerShape
            What all rows have in common.

        Yields
        ------
        callable
            Takes what :meth:`rows` returns.
        """
        write(self.heading(shape))
        yield write

    @abstractmethod
    def is_ours(self, path: Path, start: bytes) -> bool:
        """Return whether a file with such first bytes of text was made here."""


class ByteFile(io.RawIOBase):
    """What takes bytes, as a file that is only written to."""

    def __init__(self, write: Write) -> None:
        super().__init__()
        self._write, self._size = write, 0

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Any) -> int:
        """Write bytes."""
        self._write(memoryview(data))
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        """Return how many bytes were written."""
        return self._size


class TextOutput(OutputFormat):
    """A format with a line for each row, all of them made by one template."""

    special: re.Pattern[str]  # what a name holds that does not stand in a line as it is
    paired = True  # whether each score follows its label; else all labels come first

    @abstractmethod
    def cell(self, name: bytes) -> str:
        """Return a label or a tag as it stands in a line, where something in it is special."""

    @abstractmethod
    def line(self, n_labels: int, shape: AnswerShape, number: str) -> str:
        """Return the template of a row with so many labels: number, tag, labels and scores."""

    def tag(self, cell: str) -> str:
        """Return what stands for a tag, by its cell; that of a row without one is empty."""
        return cell

    def number(self, value: float) -> str:
        """Return what stands for a score that is not finite."""
        return NUMBER % value

    def explanation_cells(self, why: list[Explanation]) -> list[str]:
        """Return the cells of explanations."""
        return self._cells([str(one).encode() for one in why])

    def rows(self, part: Predictions, shape: AnswerShape) -> bytes:
        """Return some rows as lines, in one step of formatting: a call for each costs more."""
        n, k = part.ids.shape
        there, number = part.ids >= 0, NUMBER
        scores: NDArray[Any] = part.scores
        if not np.isfinite(scores).all():
            number, texts = "%s", [self.number(score) for score in scores.ravel().tolist()]
            scores = np.array(texts, object).reshape(n, k)
        names = [shape.labels, *([] if shape.titles is None else [shape.titles])]
        width = len(shape.columns)
        given = np.empty((n, 2 + width * k), object)
        tags = [""] * n if part.tags is None else self._cells(part.tags.raws())
        given[:, 0], given[:, 1] = part.rows, [self.tag(cell) for cell in tags]
        places = [slice(2 + i * k, 2 + (i + 1) * k) for i in range(width)]
        if self.paired:
            places = [slice(2 + i, None, width) for i in range(width)]
        unique, where = np.unique(part.ids[there], return_inverse=True)
        which = np.full((n, k), -1)
        which[there] = where.ravel()
        for place, own in zip(places, names, strict=False):
            cells = np.array([*self._cells(own.raws(unique)), None], object)
            given[:, place] = cells[which]
        given[:, places[len(names)]] = scores
        if shape.features is not None:
            why = reasons_array(part.ids, part.reasons, shape.labels, shape.features)
            why[there] = self.explanation_cells(why[there].tolist())
            given[:, places[-1]] = why
        if there.all():
            lines, values = self.line(k, shape, number) * n, given.ravel()
        else:
            used = np.ones(given.shape, bool)
            for place in places:
                used[:, place] = there
            templates = [self.line(m, shape, number) for m in range(k + 1)]
            lines = "".join([templates[m] for m in there.sum(axis=1).tolist()])
            values = given[used]
        text: str = lines % tuple(values.tolist())
        return text.encode()

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

    def heading(self, shape: AnswerShape) -> bytes:
        columns = [f"{what}_{i}" for i in range(1, shape.k + 1) for what in shape.columns]
        return (self.delimiter.join(("row", "tag", *columns)) + "\n").encode()

    def line(self, n_labels: int, shape: AnswerShape, number: str) -> str:
        own = [number if what == shape.word else "%s" for what in shape.columns]
        cells = own * n_labels + [""] * len(own) * (shape.k - n_labels)
        return self.delimiter.join(("%d", "%s", *cells)) + "\n"

    def is_ours(self, path: Path, start: bytes) -> bool:
        cells = start.partition(b"\n")[0].decode("utf-8", "replace").split(self.delimiter)
        return cells[:4] in [
            ["row", "tag", "label_1", word] for word in ("score_1", "probability_1", "title_1")
        ]


class TsvOutput(Delimited):
    """Tab-separated: cells have no quotes, and what would break a line is escaped."""

    name, endings, delimiter = "tsv", (".tsv", ".tab"), "\t"
    special = re.compile(rf"\\|{UNSAFE.pattern}")

    def cell(self, name: bytes) -> str:
        """Return a label or a tag with the escapes of C where a terminal needs them."""
        text = name.decode("utf-8", "surrogateescape").translate(ESCAPES)
        whole = text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        return escape_controls(whole)


class CsvOutput(Delimited):
    """Comma-separated, with quotes as RFC 4180 says; a line ends with a newline alone."""

    name, endings, delimiter = "csv", (".csv",), ","
    special = re.compile('[",\r\n]')

    def cell(self, name: bytes) -> str:
        text = name.decode("utf-8", "backslashreplace")
        return '"' + text.replace('"', '""') + '"' if self.special.search(text) else text


class JsonLinesOutput(TextOutput):
    """An object for each row: row, tag, labels and scores; integers are numbers."""

    name, endings = "jsonl", (".jsonl", ".ndjson")
    special = re.compile(rf'["\\]|{UNSAFE.pattern}')
    paired = False
    ours = re.compile(rb'\{"row":\d+,"tag":(?:null|"(?:[^"\\]|\\.)*"),"labels":\[')

    def cell(self, name: bytes) -> str:
        return _json(name.decode("utf-8", "backslashreplace"))[1:-1]

    def explanation_cells(self, why: list[Explanation]) -> list[str]:
        return [_json(one) for one in why]

    def tag(self, cell: str) -> str:
        """Return the tag in quotes, null without one."""
        return f'"{cell}"' if cell else "null"

    def number(self, value: float) -> str:
        """Return a score, null where it is not finite: JSON has no such numbers."""
        return NUMBER % value if np.isfinite(value) else "null"

    def line(self, n_labels: int, shape: AnswerShape, number: str) -> str:
        label = "%s" if shape.labels.kind == "integer" else '"%s"'
        cells = {"label": label, "title": '"%s"', shape.word: number, "explanation": "%s"}
        names = {"label": "labels", "title": "titles", shape.word: PLURALS[shape.word]}
        names["explanation"] = "explanations"
        lists = [(names[what], ",".join([cells[what]] * n_labels)) for what in shape.columns]
        own = ",".join(f'"{name}":[{each}]' for name, each in lists)
        return f'{{"row":%d,"tag":%s,{own}}}\n'

    def is_ours(self, path: Path, start: bytes) -> bool:
        return self.ours.match(start) is not None


class ParquetOutput(OutputFormat):
    """A Parquet file: row, tag, and a label and a score for each place."""

    name, endings, text = "parquet", (".parquet", ".pq"), False
    import_bytes = LIBRARY_BYTES

    def check(self) -> None:
        arrow()

    def rows(self, part: Predictions, shape: AnswerShape) -> Any:
        """Return some rows as a record batch of Arrow."""
        pa, there = arrow(), part.ids >= 0
        schema = _schema(shape)
        unique, where = np.unique(part.ids[there], return_inverse=True)
        places = np.zeros(part.ids.shape, np.int64)
        places[there] = where.ravel()
        names = [pa.array(shape.labels.values(unique), schema.field("label_1").type)]
        if shape.titles is not None:
            titles = [raw.decode("utf-8", "backslashreplace") for raw in shape.titles.raws(unique)]
            names.append(pa.array(titles, pa.string()))
        raws = [b""] * len(part.rows) if part.tags is None else part.tags.raws()
        tags = [raw.decode("utf-8", "backslashreplace") or None for raw in raws]
        columns = [pa.array(part.rows), pa.array(tags, pa.string())]
        why = None
        if shape.features is not None:
            why = reasons_array(part.ids, part.reasons, shape.labels, shape.features)
        for i in range(shape.k):
            lacking = ~there[:, i]
            columns += [
                *(own.take(pa.array(places[:, i], mask=lacking)) for own in names),
                pa.array(np.ascontiguousarray(part.scores[:, i]), mask=lacking),
            ]
            if why is not None:
                own = [None if one is None else msgspec.to_builtins(one) for one in why[:, i]]
                columns.append(pa.array(own, schema.field(f"explanation_{i + 1}").type))
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    @contextmanager
    def table(self, write: Write, shape: AnswerShape) -> Iterator[Write]:
        """Yield what takes record batches, which become row groups of one size."""
        import pyarrow.parquet as pq

        pa, schema, waiting = arrow(), _schema(shape), list[Any]()
        width = 2 if shape.features is None else EXPLAINED_CELLS
        size = max(1, min(GROUP_ROWS, GROUP_CELLS // (2 + width * shape.k)))

        def add(batch: Any) -> None:
            waiting.append(batch)
            while (n := sum(one.num_rows for one in waiting)) >= size:
                rows = pa.Table.from_batches(waiting, schema)
                out.write_table(rows.slice(0, size), row_group_size=size)
                waiting[:] = rows.slice(size).to_batches() if n > size else []

        with pa.PythonFile(ByteFile(write), "w") as file, pq.ParquetWriter(file, schema) as out:
            yield add
            if waiting:
                out.write_table(pa.Table.from_batches(waiting, schema), row_group_size=size)

    def is_ours(self, path: Path, start: bytes) -> bool:
        """Return whether a Parquet file has our mark; False where Arrow is not installed."""
        if not start.startswith(b"PAR1"):
            return False
        try:
            pa = arrow()
            import pyarrow.parquet as pq

            found = pq.read_schema(path).metadata or {}
        except (StreammachError, OSError, pa.ArrowException):
            return False
        return found.items() >= MARK.items()


def _json(value: Any) -> str:
    """Return a value as JSON in which nothing is unsafe for a terminal."""
    text = msgspec.json.encode(value).decode()
    return UNSAFE.sub(lambda found: json.dumps(found[0])[1:-1], text)


def _explanation_type(features: Names) -> Any:
    pa = arrow()
    number, name = pa.float32(), pa.int64() if features.kind == "integer" else pa.string()
    added = pa.struct([("feature", name), ("value", number), ("contribution", number)])
    lines = pa.struct([(line, number) for line in LINES])
    return pa.struct([("score", number), ("contributions", pa.list_(added)), ("lines", lines)])


def _schema(shape: AnswerShape) -> Any:
    pa = arrow()
    label = {"integer": pa.int64(), "utf8": pa.string()}.get(shape.labels.kind, pa.binary())
    fields = [("row", pa.int64()), ("tag", pa.string())]
    for i in range(1, shape.k + 1):
        kinds = {"label": label, "title": pa.string(), shape.word: pa.float32()}
        if shape.features is not None:
            kinds["explanation"] = _explanation_type(shape.features)
        fields += [(f"{what}_{i}", kinds[what]) for what in shape.columns]
    return pa.schema(fields, metadata=MARK)


OUTPUT_FORMATS: dict[str, OutputFormat] = {
    form.name: form for form in (TsvOutput(), CsvOutput(), JsonLinesOutput(), ParquetOutput())
}
