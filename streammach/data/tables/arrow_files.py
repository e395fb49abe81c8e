"""Parquet files, and Arrow files and streams: record batches in bounded memory."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streammach.data.bad_rows import BadRow
from streammach.data.source import START, Held, Part, Place, Source
from streammach.data.source_options import SourceOptions
from streammach.data.tables.arrow_rows import ArrowRows, arrow
from streammach.data.tables.base import HEAD_BYTES, HEAD_ROWS, Table
from streammach.data.tables.cells import TableRows
from streammach.data.tables.guess import Head
from streammach.data.tables.reader import TableReader
from streammach.errors import DataError, StreammachError, clean
from streammach.files.reading import disk_error
from streammach.machine import memory_limit, size_text
from streammach.rows.vocabulary import Vocabulary

PIECE_BYTES = 1 << 20  # of the cells of a piece, about
BATCH_BYTES = 64 << 20  # of a batch, where cells repeat those of a dictionary
MOST_ROWS, LEAST_ROWS = 1 << 14, 64  # of a batch
PACKED = 100  # bytes from one byte of a file, from which on a row group is looked at with care
UNPACKED = 3  # bytes of a batch for a byte of an Arrow file, which may be compressed
DECODED = 3 << 20  # of what Parquet holds of a column while it is read


@dataclass(frozen=True)
class BatchPiece:
    """Some rows of a table: the rows, the number of the first one, bytes read of the file."""

    rows: TableRows
    first_row: int
    n_read: int

    @property
    def end(self) -> Place:
        """The row behind it."""
        return Place(self.first_row + self.rows.n_rows)


class BatchReader:
    """Reads pieces of record batches; one thread at a time may use it."""

    def __init__(self, rows: TableReader) -> None:
        self._rows = rows

    def read(self, piece: BatchPiece) -> Part:
        """Return the rows of a piece."""
        return self._rows.read(piece.rows, piece.first_row)

    def found_bad(self, piece: BatchPiece, place: int, reason: str) -> BadRow:
        """Return a row of a piece, by its number in the source, as a bad one."""
        del piece
        return BadRow(reason=reason, line=place)


class BatchSource(Source[BatchPiece], Table):
    """A table of record batches."""

    def __init__(self, path: Path, form: str, options: SourceOptions) -> None:
        Table.__init__(self, options)
        self.path, self.form = path, form
        arrow()
        with self._errors():
            self._names = self._checked(self._schema_names())
        self._head: Head | None = None

    @abstractmethod
    def _schema_names(self) -> list[str]:
        """Return the names of the columns."""

    @abstractmethod
    def _batches(self, columns: list[str], begin: int) -> Iterator[tuple[Any, int]]:
        """Yield batches and the bytes read; rows before `begin` may be left out of none or all."""

    @abstractmethod
    def _batch_bytes(self) -> int:
        """Return the bytes that a batch takes while it is read, about at most."""

    def columns_there(self) -> list[str]:
        """Return the names of its columns."""
        return self._names

    def held(self) -> Held:
        """Return what reading it takes, rows that were read aside."""
        with self._errors():
            return Held(self.piece_bytes, self._batch_bytes())

    def reader(self, vocabulary: Vocabulary, *, label_needed: bool, strict: bool) -> BatchReader:
        """Return something that reads pieces."""
        del strict
        return BatchReader(self.table_reader(vocabulary, label_needed=label_needed))

    def head(self) -> Head:
        """Return the first cells of each column, or raise DataError or DiskError."""
        if self._head is None:
            found: dict[str, list[Any]] = {name: [] for name in self._names}
            n_rows = n_bytes = 0
            with self._errors():
                for batch, _ in self._batches(self._names, 0):
                    some = batch.slice(0, HEAD_ROWS - n_rows)
                    for name in self._names:
                        found[name] += ArrowRows(some).values(name)
                    n_rows, n_bytes = n_rows + some.num_rows, n_bytes + batch.nbytes
                    if n_rows >= HEAD_ROWS or n_bytes > HEAD_BYTES:
                        break
            if not n_rows:
                raise DataError("it holds no rows", path=self.path)
            self._head = found
        return self._head

    def pieces(self, begin: Place = START) -> Iterator[BatchPiece]:
        """Yield the rows in their order, in pieces of about a megabyte."""
        names = [name for name in self._names if name in set(self.recipe.names)]
        first = 0
        with self._errors():
            for batch, n_read in gathered(self._batches(names, begin.at)):
                for rows in slices(batch):
                    stop = first + rows.num_rows
                    if stop > begin.at:
                        skipped = max(0, begin.at - first)
                        yield BatchPiece(ArrowRows(rows.slice(skipped)), first + skipped, n_read)
                    first = stop

    def _checked(self, names: list[str]) -> list[str]:
        twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
        if twice is not None:
            raise DataError(f"two columns are called '{clean(twice, 60)}'", path=self.path)
        return names

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Say what is wrong with a file that cannot be read."""
        pa = arrow()
        try:
            yield
        except StreammachError:
            raise
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise self._damaged(error) from None
        except (ValueError, LookupError, EOFError) as error:  # some of types that pandas knows
            raise self._damaged(error) from None
        except OSError as error:
            if error.errno is None:
                raise self._damaged(error) from None
            raise disk_error(error, self.path) from error

    def _damaged(self, error: Exception) -> DataError:
        return DataError(
            f"it cannot be read as {self.form} ({clean(str(error).partition(chr(10))[0], 120)})",
            path=self.path,
            hint="Copy or write the file again.",
        )


class ParquetSource(BatchSource):
    """A Parquet file, whose row groups are read page by page."""

    def _schema_names(self) -> list[str]:
        return list(self._open().schema_arrow.names)

    def _open(self) -> Any:
        import pyarrow.parquet as pq

        return pq.ParquetFile(self.path, memory_map=False, buffer_size=1 << 20, pre_buffer=False)

    def _batch_bytes(self) -> int:
        with self._open() as file:
            groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
        used = None if self._recipe is None else set(self._recipe.names)
        held = 0
        for i in range(groups[0].num_columns if groups else 0):
            if used is None or groups[0].column(i).path_in_schema.split(".")[0] in used:
                held += min(DECODED, max(g.column(i).total_uncompressed_size for g in groups))
        return BATCH_BYTES + held

    def _batches(self, columns: list[str], begin: int) -> Iterator[tuple[Any, int]]:
        with self._open() as file:
            n_groups, size, first = file.metadata.num_row_groups, self.path.stat().st_size, 0
            for group in range(n_groups):
                facts = file.metadata.row_group(group)
                rows = self._batch_rows(facts, group, columns)
                for batch in file.iter_batches(
                    rows, row_groups=[group], columns=columns, use_threads=False
                ):
                    first += batch.num_rows
                    yield batch, size * first // max(file.metadata.num_rows, 1)

    def _batch_rows(self, facts: Any, group: int, columns: list[str]) -> int:
        """Return how many rows of a row group are decoded at a time.

        Raises
        ------
        DataError
            If it says that it holds more than there is memory for, in a file that is small.
        """
        chosen = set(columns)
        whole = dictionaries = 0.0
        for i in range(facts.num_columns):
            chunk = facts.column(i)
            if chunk.path_in_schema.split(".")[0] not in chosen:
                continue
            plain, packed = chunk.total_uncompressed_size, max(chunk.total_compressed_size, 1)
            whole += plain
            limit = memory_limit()
            if plain > PACKED * packed and plain > limit.n_bytes // 4:
                raise DataError(
                    f"row group {group:,} says that {size_text(packed)} of the column "
                    f"'{clean(chunk.path_in_schema, 40)}' hold {size_text(plain)}",
                    path=self.path,
                    hint="If that is so, write it with smaller row groups.",
                )
            if chunk.has_dictionary_page and chunk.dictionary_page_offset:
                head = max(chunk.data_page_offset - chunk.dictionary_page_offset, 0)
                dictionaries += plain * min(head / packed, 1.0)
        rows = min(MOST_ROWS, int(PIECE_BYTES * facts.num_rows / max(whole, 1)))
        rows = max(rows, LEAST_ROWS)
        return max(1, min(rows, int(BATCH_BYTES / max(dictionaries, 1.0))))


class ArrowSource(BatchSource):
    """An Arrow IPC file or stream; also one that Feather wrote."""

    def _schema_names(self) -> list[str]:
        with self._open() as (reader, _):
            return list(reader.schema.names)

    def _batch_bytes(self) -> int:
        with self._open() as (reader, _):
            n = max(getattr(reader, "num_record_batches", 1), 1)
        return max(BATCH_BYTES, UNPACKED * self.path.stat().st_size // n) if n > 1 else BATCH_BYTES

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

    def _batches(self, columns: list[str], begin: int) -> Iterator[tuple[Any, int]]:
        size = self.path.stat().st_size
        with self._open() as (reader, file):
            if hasattr(reader, "num_record_batches"):
                n = reader.num_record_batches
                for i in range(n):
                    yield reader.get_batch(i).select(columns), size * (i + 1) // n
            else:
                for batch in reader:
                    yield batch.select(columns), int(file.tell())


def gathered(batches: Iterator[tuple[Any, int]]) -> Iterator[tuple[Any, int]]:
    """Yield small batches joined into some of about a megabyte, with what was read by then."""
    held: list[Any] = []
    n_bytes = read = 0
    for batch, n_read in batches:
        held.append(batch)
        n_bytes, read = n_bytes + batch.nbytes, n_read
        if n_bytes >= PIECE_BYTES:
            yield from ((some, read) for some in _joined(held))
            held, n_bytes = [], 0
    yield from ((some, read) for some in _joined(held))


def _joined(batches: list[Any]) -> list[Any]:
    """Return batches as one, or as few as may be."""
    if len(batches) < 2:
        return batches
    joined: list[Any] = arrow().Table.from_batches(batches).combine_chunks().to_batches()
    return joined


def slices(batch: Any) -> Iterator[Any]:
    """Yield the rows of a batch in slices of about a megabyte."""
    n = batch.num_rows
    rows = max(1, min(n, int(PIECE_BYTES * n / max(batch.nbytes, 1)), MOST_ROWS))
    for first in range(0, n, rows):
        yield batch.slice(first, rows)
