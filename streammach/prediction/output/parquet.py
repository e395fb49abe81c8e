"""Predictions as Parquet: columns of their own types, and a mark by which a file is known as ours.

Rows are appended to a file as record batches of Arrow, for a Parquet file cannot be added to; in
the end they become row groups whose rows depend on nothing but the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from streammach.data.tables.arrow_rows import arrow
from streammach.errors import StreammachError
from streammach.files.reading import disk_error
from streammach.files.writing import Writer
from streammach.prediction.order import Predictions
from streammach.prediction.output.base import Bytes, OutputFormat, Shape

MARK = {b"streammach": b"predictions"}
MAGIC = b"PAR1"
GROUP_ROWS, GROUP_CELLS = 1 << 16, 1 << 20  # most rows of a row group, and most of its cells
LIBRARY_BYTES = 160_000_000  # of Arrow, of a row group and of what it is encoded into


class ParquetOutput(OutputFormat):
    """A Parquet file: row, tag, and a label and a score for each place."""

    name, endings, text = "parquet", (".parquet", ".pq"), False
    import_bytes = LIBRARY_BYTES

    def check(self) -> None:
        """Raise UsageError if Arrow is not installed."""
        arrow()

    def heading(self, shape: Shape) -> bytes:
        """Return nothing: the columns are known."""
        del shape
        return b""

    def rows(self, part: Predictions, shape: Shape) -> bytes:
        """Return some rows as a message of Arrow."""
        pa, there = arrow(), part.ids >= 0
        schema = _schema(shape)
        unique, where = np.unique(part.ids[there], return_inverse=True)
        places = np.zeros(part.ids.shape, np.int64)
        places[there] = where.ravel()
        labels = pa.array(shape.labels.values(unique), schema.field("label_1").type)
        columns = [pa.array(part.rows), pa.array(_tags(part), pa.string())]
        for i in range(shape.k):
            lacking = ~there[:, i]
            columns += [
                labels.take(pa.array(places[:, i], mask=lacking)),
                pa.array(np.ascontiguousarray(part.scores[:, i]), mask=lacking),
            ]
        batch = pa.RecordBatch.from_arrays(columns, schema=schema)
        message: bytes = batch.serialize().to_pybytes()
        return message

    def finish(self, made: Path, out: Writer, shape: Shape) -> None:
        """Write the Parquet file from the messages that were appended to one."""
        import pyarrow.parquet as pq

        pa, schema = arrow(), _schema(shape)
        with pa.PythonFile(Bytes(out), "w") as sink, pq.ParquetWriter(sink, schema) as writer:
            for group in _groups(_batches(made, schema), schema, _group_rows(shape)):
                writer.write_table(group, row_group_size=max(group.num_rows, 1))

    def is_ours(self, path: Path, start: bytes) -> bool:
        """Return whether a Parquet file has our mark; False where Arrow is not installed."""
        if not start.startswith(MAGIC):
            return False
        try:
            pa = arrow()
            import pyarrow.parquet as pq

            found = pq.read_schema(path).metadata or {}
        except (StreammachError, OSError, pa.ArrowException):
            return False
        return found.items() >= MARK.items()


def _schema(shape: Shape) -> Any:
    pa = arrow()
    label = {"integer": pa.int64(), "utf8": pa.string()}.get(shape.labels.kind, pa.binary())
    fields = [("row", pa.int64()), ("tag", pa.string())]
    for i in range(1, shape.k + 1):
        fields += [(f"label_{i}", label), (f"{shape.word}_{i}", pa.float32())]
    return pa.schema(fields, metadata=MARK)


def _tags(part: Predictions) -> list[str | None]:
    """Return the tags of rows, None for those without."""
    if part.tags is None:
        return [None] * len(part.rows)
    return [raw.decode("utf-8", "backslashreplace") or None for raw in part.tags.raws()]


def _group_rows(shape: Shape) -> int:
    return max(1, min(GROUP_ROWS, GROUP_CELLS // (2 + 2 * shape.k)))


def _batches(made: Path, schema: Any) -> Iterator[Any]:
    """Yield the record batches of the messages in a file."""
    pa = arrow()
    try:
        with pa.OSFile(str(made)) as file:
            size = file.size()
            while file.tell() < size:
                yield pa.ipc.read_record_batch(pa.ipc.read_message(file), schema)
    except OSError as error:
        raise disk_error(error, made) from error


def _groups(batches: Iterator[Any], schema: Any, n_rows: int) -> Iterator[Any]:
    """Yield tables of so many rows each, the last one of what is left."""
    pa = arrow()
    held, n = [], 0
    for batch in batches:
        taken = 0
        while n + batch.num_rows - taken >= n_rows:
            held.append(batch.slice(taken, n_rows - n))
            taken += n_rows - n
            yield pa.Table.from_batches(held, schema)
            held, n = [], 0
        if taken < batch.num_rows:
            held.append(batch.slice(taken))
            n += batch.num_rows - taken
    if held:
        yield pa.Table.from_batches(held, schema)
