"""Predictions as Parquet: columns of their own types, and a mark by which a file is known as ours.

Where row groups end depends on nothing but the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from streammach.data.tables.arrow_rows import arrow
from streammach.errors import StreammachError
from streammach.prediction.order import Predictions
from streammach.prediction.output.base import ByteFile, OutputFormat, Shape, Write

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

    def rows(self, part: Predictions, shape: Shape) -> Any:
        """Return some rows as a record batch of Arrow."""
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
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    @contextmanager
    def table(self, write: Write, shape: Shape) -> Iterator[Write]:
        """Yield what takes record batches, which become row groups of one size."""
        import pyarrow.parquet as pq

        pa, schema, waiting = arrow(), _schema(shape), list[Any]()
        size = max(1, min(GROUP_ROWS, GROUP_CELLS // (2 + 2 * shape.k)))

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
