"""Parquet files, and Arrow files and streams: record batches in bounded memory."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from streammach.inputs.matrices.named_arrays import check_stored, reading_errors
from streammach.inputs.source import ReadingBytes
from streammach.inputs.source_options import SourceOptions
from streammach.inputs.tables.arrow_rows import arrow, check_buffers
from streammach.inputs.tables.batches import MOST_ROWS, PIECE_BYTES, BatchTable
from streammach.inputs.tables.large import DICTIONARY, messages
from streammach.inputs.tables.table_source import distinct

BATCH_BYTES = 64 << 20  # of a batch, where cells repeat those of a dictionary
LEAST_ROWS = 64  # of a batch
SLICED_ROWS = 1 << 20  # that are looked at together, for rows may take no byte, as nulls do
DECODED = 3 << 20  # of what Parquet holds of a column while it is read
PAGE_CELLS = 2048  # of the mean size, by which a page is longer than meant
LOOSE = 100  # bytes from one byte of a file, from which on a page may be all of its column
ITEM_BYTES, UNPACKED = 12, 4  # of an item of a list, and for a byte of Parquet


class ArrowFile(BatchTable):
    """A file of record batches."""

    def __init__(self, path: Path, form: str, options: SourceOptions) -> None:
        super().__init__(options)
        self.path, self.form = path, form
        arrow()
        with self.errors():
            schema = self._schema()
            self._names = distinct(list(schema.names), path)
            self.index = _index_of(schema)

    @abstractmethod
    def _schema(self) -> Any: ...

    @abstractmethod
    def _batches(self, columns: list[str]) -> Iterator[tuple[Any, int]]:
        """Yield batches and the bytes read."""

    @abstractmethod
    def _batch_bytes(self) -> int:
        """Return the bytes that a batch takes while it is read, about at most."""

    def batches(
        self, columns: Collection[str] | None, *, head: bool = False
    ) -> Iterator[tuple[Any, int]]:
        chosen = [name for name in self._names if columns is None or name in set(columns)]
        for batch, n_read in self._batches(chosen):
            check_stored(batch.num_rows, self.n_bytes, self.path, "a batch of rows")
            check_buffers(batch, self.path)
            for first in range(0, batch.num_rows, SLICED_ROWS):
                yield batch.slice(first, SLICED_ROWS), n_read

    def reading_bytes(self) -> ReadingBytes:
        piece, whole = super().reading_bytes()
        with self.errors():
            return ReadingBytes(piece, whole + self._batch_bytes())

    def errors(self) -> AbstractContextManager[None]:
        pa = arrow()
        damaged = (pa.ArrowNotImplementedError, pa.ArrowTypeError, pa.ArrowMemoryError, ValueError,
                   LookupError, EOFError)  # fmt: skip
        return reading_errors(self.path, f"it cannot be read as {self.form}", damaged)


class ParquetSource(ArrowFile):
    """A Parquet file, whose row groups are read page by page."""

    def _schema(self) -> Any:
        return self._open().schema_arrow

    def _open(self) -> Any:
        import pyarrow.parquet as pq

        return pq.ParquetFile(
            self.path, memory_map=False, buffer_size=1 << 20, pre_buffer=False,
            page_checksum_verification=True,
        )  # fmt: skip

    def _batch_bytes(self) -> int:
        used = self._names if self._recipe is None else self._recipe.names
        with self._open() as file:
            groups = [_facts(file, i) for i in range(file.metadata.num_row_groups)]
        each = [
            [_chunk_bytes(chunk, group.num_rows) for chunk in _chunks_of(group, used)]
            for group in groups
        ]
        held: int = sum(max(sizes) for sizes in zip(*each, strict=True))
        return BATCH_BYTES + held

    def _batches(self, columns: list[str]) -> Iterator[tuple[Any, int]]:
        with self._open() as file:
            n_groups, size, first = file.metadata.num_row_groups, self.path.stat().st_size, 0
            for group in range(n_groups):
                facts = _facts(file, group)
                rows, end = self._batch_rows(facts, columns), first + facts.num_rows
                for batch in file.iter_batches(
                    rows, row_groups=[group], columns=columns, use_threads=False
                ):
                    first += batch.num_rows
                    yield batch, size * first // max(file.metadata.num_rows, 1)
                if first != end:
                    raise ValueError(f"row group {group} has not the rows that the file says")

    def _batch_rows(self, facts: Any, columns: list[str]) -> int:
        """Return how many rows of a row group are decoded at a time."""
        whole = dictionaries = 0.0
        for chunk in _chunks_of(facts, columns):
            plain, packed = chunk.total_uncompressed_size, max(chunk.total_compressed_size, 1)
            whole += plain
            if chunk.has_dictionary_page and chunk.dictionary_page_offset:
                head = max(chunk.data_page_offset - chunk.dictionary_page_offset, 0)
                dictionaries += plain * min(head / packed, 1.0)
            whole += _hidden_bytes(chunk, facts.num_rows)
        share = facts.num_rows / max(whole, 1)
        rows = min(MOST_ROWS, max(int(PIECE_BYTES * share), LEAST_ROWS), int(BATCH_BYTES * share))
        return max(1, min(rows, int(BATCH_BYTES / max(dictionaries, 1.0))))


def _facts(file: Any, group: int) -> Any:
    """Return what the file says of a row group, or raise.

    Over facts that cannot be pyarrow ends the process where Python asks for them, unless its reader
    meets them first: it does when a batch of no rows is read.
    """
    facts = file.metadata.row_group(group)
    if facts.num_columns != len(file.schema):
        raise ValueError(f"row group {group} has {facts.num_columns:,} columns")
    next(file.reader.iter_batches(0, [group], None, False), None)
    return facts


def _chunks_of(facts: Any, columns: Collection[str]) -> list[Any]:
    """Return the parts of some columns, or of what lies in them, in a row group."""
    chunks = map(facts.column, range(facts.num_columns))
    return [chunk for chunk in chunks if chunk.path_in_schema.split(".")[0] in {*columns}]


def _chunk_bytes(chunk: Any, n_rows: int) -> int:
    """Return what is held of a column of a row group while it is read, at most."""
    plain, packed = chunk.total_uncompressed_size, max(chunk.total_compressed_size, 1)
    cells = max(chunk.num_values, 1)
    # A page ends where it has a megabyte, which is looked at behind each thousand cells or so.
    pages = plain if plain > LOOSE * packed else DECODED // 2 + PAGE_CELLS * plain // cells
    held = min(2 * plain, 2 * pages)  # a page, and cells of it
    return int(held + _hidden_bytes(chunk, n_rows))


def _hidden_bytes(chunk: Any, n_rows: int) -> int:
    """Return the bytes of items of lists that take less in the file than when they are decoded."""
    items = chunk.num_values - n_rows
    return max(0, int(ITEM_BYTES * items - UNPACKED * chunk.total_uncompressed_size))


class ArrowSource(ArrowFile):
    """An Arrow IPC file or stream; also one that Feather wrote."""

    def _schema(self) -> Any:
        with self._open() as (reader, _):
            return reader.schema

    def _batch_bytes(self) -> int:
        largest = dictionaries = 0
        with open(self.path, "rb") as file:
            for message in messages(file):
                if message.kind == DICTIONARY:
                    dictionaries += message.decoded
                largest = max(largest, 2 * message.decoded + message.n_bytes)
        return BATCH_BYTES + largest + dictionaries

    @contextlib.contextmanager
    def _open(self) -> Iterator[tuple[Any, Any]]:
        import pyarrow as pa

        with pa.OSFile(str(self.path)) as file:
            if file.read(6) == b"ARROW1":
                file.seek(0)
                yield pa.ipc.open_file(file), file
            else:
                file.seek(0)
                yield pa.ipc.open_stream(file), file

    def _batches(self, columns: list[str]) -> Iterator[tuple[Any, int]]:
        size = self.path.stat().st_size
        with self._open() as (reader, file):
            if hasattr(reader, "num_record_batches"):
                n = reader.num_record_batches
                for i in range(n):
                    yield reader.get_batch(i).select(columns), size * (i + 1) // n
            else:
                for batch in reader:
                    yield batch.select(columns), int(file.tell())


def _index_of(schema: Any) -> frozenset[str]:
    """Return the columns of a schema that were the index of a DataFrame of pandas."""
    try:
        found = (schema.pandas_metadata or {}).get("index_columns", ())
        return frozenset(name for name in found if isinstance(name, str))
    except (ValueError, TypeError, AttributeError):  # it is not what pandas writes
        return frozenset()
