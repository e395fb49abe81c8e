"""Looks at the start of sources: what they hold, and what their conversion will take.

All figures beyond the sample are estimates: they take the rest for rows like those at the start.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.conversion.folder import ConversionMemory
from streammach.inputs.bad_rows import BadRows
from streammach.inputs.matrices.matrix_source import MatrixSource
from streammach.inputs.source import Source
from streammach.inputs.source_options import Layout, Paths, SourceOptions, TableOptions, paths_of
from streammach.inputs.sources import agree_recipe, open_sources
from streammach.inputs.tables.table_source import Table
from streammach.options.annotated import check_options
from streammach.options.option_fields import add_attributes, add_parameters, attribute, make_record
from streammach.options.types import Multilabel
from streammach.rows.block import RowBlock
from streammach.rows.canonical import canonicalize
from streammach.rows.names import Names
from streammach.rows.vocabulary import Vocabulary, by_frequency
from streammach.store.stored_arrays import CHUNK, compress_values
from streammach.system.errors import BudgetError, DataError, UsageError, clean
from streammach.system.files.raw_text import GZIP_MAGIC, is_piped, text_errors, unpack_head
from streammach.system.progress import ProgressBar, Told, Wanted

SAMPLE_TEXT = 4 << 20  # bytes of text that are read
SAMPLE_VALUES = 1 << 20
MOST_SOURCES = 16  # that are sampled; more are taken for like these
MOST_READ = 64 << 20  # bytes of a file, where nearly all rows are bad
SCRATCH_BYTES_PER_VALUE = 5  # a feature and a value as they are put aside, compressed
SCRATCH_BYTES_PER_ROW = 32  # its key, place, class, importance and length
FIXED_BYTES = 100_000  # metadata, tables of shards, last chunks that are filled up
FIXED_SECONDS = 1.0  # to start and to load compiled code
FINISH_SECONDS_PER_VALUE = 60e-9  # shuffle, sort, pack; the time to read is measured on the spot


@dataclass(frozen=True, kw_only=True)
class SourceFacts:
    """One source."""

    # path, form, note: the file or folder, its format, and what was guessed beside the format
    path: str
    form: str
    note: str
    n_bytes: int  # its size on disk
    text_bytes: int = 0  # bytes of text when decompressed, an estimate for gzip; 0 for matrices
    rows: int  # rows, good ones and bad ones; an estimate unless `exact`
    exact: bool = False  # whether the rows are counted: the source was read to its end, or says it
    # rows that were read; 0 where there are many sources and this one is taken for like the rest
    sample_rows: int = 0


@add_attributes
@dataclass(frozen=True, kw_only=True)
class Exploration:
    """What sources hold, and what converting them will take."""

    sources: tuple[SourceFacts, ...] = attribute("Each source.")
    sample_rows: int = attribute("Good rows that were read.")
    sample_nnz: int = attribute("Their values.")
    sample_classes: int = attribute("Classes among them.")
    sample_features: int = attribute("Features among them.")
    max_row_nnz: int = attribute("The most values of a row among them.")
    sample_labels: int = attribute("Labels of all these rows.")
    max_row_labels: int = attribute("The most labels of one of them.")
    skipped: dict[str, int] = attribute("Bad rows among those read, by reason.")
    label_kind: str = attribute("integer, utf8 or bytes: what all labels of the sample are.")
    value_kind: str = attribute("uint8 if all of its values are integers to 255, else float32.")
    exact: bool = attribute(
        "Whether the sources were read to their ends, so that nothing below is an estimate but "
        "times and bytes."
    )
    rows: int = attribute("Good rows of all sources.")
    nnz: int = attribute("Their values.")
    store_bytes: int = attribute("What the store takes on disk.")
    scratch_bytes: int = attribute("What its conversion takes beside it at most.")
    seconds: float = attribute("Time of the conversion on one thread.")

    @property
    def mean_row_nnz(self) -> float:
        """Values of a row of the sample, on average."""
        return self.sample_nnz / self.sample_rows


@dataclass(kw_only=True)
class _Sample:
    """Rows from the start of a source, and what reading them took."""

    blocks: list[RowBlock] = field(default_factory=list)
    rows: int = 0  # good ones
    bad: int = 0
    nnz: int = 0
    text_bytes: int = 0
    read_bytes: int = 0
    times: list[tuple[float, int]] = field(default_factory=list)
    ended: bool = False

    def seconds(self, rows: int) -> float:
        """Return the time to read so many rows, without what starts and compiles for the first."""
        if not self.times:
            return 0.0
        (first, first_rows), (last, last_rows) = self.times[0], self.times[-1]
        if last_rows > first_rows:
            return rows * (last - first) / (last_rows - first_rows)
        return rows * last / max(1, last_rows)


@add_parameters(SourceOptions)
def explore(
    paths: Paths, *, format: str | None = None, labels: Paths = (), x_path: str | None = None,
    y_path: str | None = None, first_label: bool = False, multilabel: Multilabel = "auto",
    table: TableOptions | None = None, layout: Layout | None = None, progress: Wanted = None,
) -> Exploration:  # fmt: skip
    """Look at the start of sources without converting them.

    Parameters
    ----------
    paths : path-like or sequence of them
        Sources as :func:`convert` takes them.
    table : TableOptions, optional
        What the columns of tables are; guessed otherwise.
    layout : Layout, optional
        How the cells of CSV and TSV lie.
    progress : bool, str or callable, optional
        Whether it is told how it goes, as for :func:`streammach.train`: sources that were looked
        at.

    Raises
    ------
    UsageError
        If a path or option is wrong.
    DataError
        If a source is damaged or in no known format, or no row of the samples is good.
    DiskError
        If a file cannot be read.
    """
    check_options(explore.__annotations__, locals())
    source = make_record(SourceOptions, locals())
    files = paths_of(paths)
    if not files:
        raise UsageError("no source was named")
    if any(is_piped(path) for path in files):
        raise UsageError("standard input can be read once, by convert: -")
    if table is not None or layout is not None:
        source = replace(source, table=table or TableOptions(), layout=layout or Layout())
    options = source.each(len(files))
    with ProgressBar(progress, "sources") as told:
        told("explore", 0, 0)
        opened = open_sources(files, options)
        try:
            reading = [source.reading_bytes() for source in opened]
            ConversionMemory.of(None, reading, 1, 0).room(0, 0)
        except BudgetError as error:
            raise BudgetError(error.message, path=files[0]) from None
        agree_recipe(opened, options, None)
        return explore_sources(opened, told)


def explore_sources(sources: Sequence[Source[Any]], told: Told | None = None) -> Exploration:
    """Look at the start of one or more open sources, or raise DataError or DiskError."""
    vocabulary, bad_rows = Vocabulary(), BadRows(skip=True)
    sizes = np.array([source.n_bytes for source in sources])
    places = np.linspace(0, len(sources) - 1, min(len(sources), MOST_SOURCES)).round()
    # where there are many, the largest, too: it has rows if any has
    chosen = np.union1d(places.astype(int), sizes.argmax())
    samples = dict[int, _Sample]()
    for i in chosen.tolist():
        samples[i] = _read_sample(sources[i], vocabulary, bad_rows)
        if told is not None:
            told("explore", len(samples), len(chosen))
    if not any(sample.rows for sample in samples.values()):
        reason = "".join(f" ({clean(reason)})" for reason, _ in bad_rows.reasons.most_common(1))
        raise DataError(f"no row of the sample could be read{reason}", path=sources[0].path)
    facts = {i: _facts(sources[i], sample) for i, sample in samples.items()}
    dense = sum(f.rows for f in facts.values()) / sum(f.n_bytes for f in facts.values())
    every = tuple(
        facts.get(i) or _facts_of(source, rows=round(source.n_bytes * dense))
        for i, source in enumerate(sources)
    )
    return _estimate(every, samples, vocabulary, bad_rows.reasons)


class _EnoughError(Exception):
    """So many bytes were read that no further row is waited for."""


def _read_sample(source: Source[Any], vocabulary: Vocabulary, bad_rows: BadRows) -> _Sample:
    sample, bad = _Sample(), bad_rows.total
    began = time.perf_counter()

    def stop_late(n_bytes: int) -> None:
        sample.read_bytes = n_bytes
        if n_bytes > MOST_READ:
            raise _EnoughError

    blocks = source.blocks(vocabulary, bad_rows, progress=stop_late)
    with suppress(_EnoughError), closing(blocks):
        for block in blocks:
            assert block.places is not None
            sample.blocks.append(block.take(np.arange(block.n_rows)))
            sample.rows, sample.nnz = sample.rows + block.n_rows, sample.nnz + block.nnz
            sample.text_bytes = int(block.places[-1]) if block.n_rows else sample.text_bytes
            sample.bad = bad_rows.total - bad
            sample.times.append((time.perf_counter() - began, sample.rows + sample.bad))
            if sample.text_bytes >= SAMPLE_TEXT or sample.nnz >= SAMPLE_VALUES:
                sample.ended = next(blocks, None) is None
                break
        else:
            sample.ended = True
    if sample.ended or not sample.blocks:
        sample.bad = bad_rows.total - bad
    return sample


def _facts(source: Source[Any], sample: _Sample) -> SourceFacts:
    """Return what is known of a source after its sample was read."""
    read = sample.rows + sample.bad
    rows, exact, text = read, sample.ended, 0
    if isinstance(source, MatrixSource):
        rows, exact = source.n_rows, True
    elif isinstance(source, Table):  # places are rows
        if not sample.ended:
            rows = max(read, round(read * source.n_bytes / max(1, sample.read_bytes)))
    else:
        text = sum(map(text_size, source.files()))
        if not sample.ended:
            rows = max(read, round(read * text / max(1, sample.text_bytes)))
    return _facts_of(source, rows=rows, text_bytes=text, exact=exact, sample_rows=read)


def _facts_of(source: Source[Any], **more: Any) -> SourceFacts:
    return SourceFacts(
        path=str(source.path), form=source.form, note=source.note, n_bytes=source.n_bytes, **more
    )


def text_size(path: Path) -> int:
    """Return the bytes of a text (of gzip an estimate), or raise DataError or DiskError."""
    size = path.stat().st_size
    with text_errors(path), open(path, "rb") as file:
        head = file.read(SAMPLE_TEXT)
        if not head.startswith(GZIP_MAGIC):
            return size
        text, packed, _ = unpack_head(head, 4 * SAMPLE_TEXT)
    return len(text) if packed >= size else round(len(text) * size / max(1, packed))


def _estimate(
    facts: tuple[SourceFacts, ...], samples: dict[int, _Sample], vocabulary: Vocabulary,
    reasons: Counter[str],
) -> Exploration:  # fmt: skip
    block = RowBlock.concat([block for sample in samples.values() for block in sample.blocks])
    sampled = [(facts[i], sample) for i, sample in samples.items()]
    scales = [f.rows / max(1, s.rows + s.bad) for f, s in sampled]
    more = sum(f.rows for f in facts) / max(1, sum(f.rows for f, _ in sampled))
    rows = round(more * sum(k * s.rows for k, (_, s) in zip(scales, sampled, strict=True)))
    nnz = round(more * sum(k * s.nnz for k, (_, s) in zip(scales, sampled, strict=True)))
    reading = more * sum(s.seconds(f.rows) for f, s in sampled)
    whole = bool(np.all((block.values >= 0) & (block.values <= 255) & (block.values % 1 == 0)))
    values, starts = _packed_bytes(block, vocabulary, np.dtype(np.uint8 if whole else np.float32))
    features, labels = vocabulary.feature_names(), vocabulary.label_names()
    scale = rows / max(1, block.n_rows)
    names = _names_bytes(features, block.features, scale)
    names += _names_bytes(labels, block.lists.classes, scale)
    packed = values * nnz / max(1, block.nnz) + starts * scale
    ended = len(samples) == len(facts) and all(sample.ended for sample in samples.values())
    return Exploration(
        sources=facts, sample_rows=block.n_rows, sample_nnz=block.nnz,
        sample_classes=vocabulary.n_labels, sample_features=vocabulary.n_features,
        max_row_nnz=int(np.diff(block.indptr).max(initial=0)),
        sample_labels=block.lists.n_labels,
        max_row_labels=int(block.lists.lengths.max(initial=0)),
        skipped=dict(sorted(reasons.items())), label_kind=labels.kind,
        value_kind="uint8" if whole else "float32", exact=ended, rows=rows, nnz=nnz,
        store_bytes=round(FIXED_BYTES + packed + names),
        scratch_bytes=nnz * SCRATCH_BYTES_PER_VALUE + rows * SCRATCH_BYTES_PER_ROW,
        seconds=FIXED_SECONDS + reading + FINISH_SECONDS_PER_VALUE * nnz,
    )  # fmt: skip


def _packed_bytes(
    block: RowBlock, vocabulary: Vocabulary, value_type: np.dtype[Any]
) -> tuple[int, int]:
    """Return the bytes that the values, and what rows have once, take in a store."""
    counts = np.bincount(block.features, minlength=vocabulary.n_features)
    rank = np.empty(len(counts), np.int32)
    rank[by_frequency(vocabulary.feature_names(), counts)] = np.arange(len(counts), dtype=np.int32)
    done = canonicalize(block, rank)
    values = _count_packed(done.features) + _count_packed(done.values.astype(value_type))
    rows = _count_packed(done.indptr) + _count_packed(done.lists.classes)
    return values, rows + (0 if done.labels is None else _count_packed(done.labels.starts))


def _count_packed(values: NDArray[Any]) -> int:
    return sum(len(compress_values(values[a : a + CHUNK])) for a in range(0, len(values), CHUNK))


def _names_bytes(names: Names, ids: NDArray[np.int32], scale: float) -> float:
    """Return the bytes of the names that so many times the rows will have."""
    # Each doubling of the rows multiplies the names by a factor that falls as it fell between the
    # quarter, the half and the whole of the sample.
    quarter, half = (len(np.unique(ids[: len(ids) // part])) for part in (4, 2))
    if not quarter or scale <= 1:
        growth = 1.0
    else:
        now, before = np.log2(len(names) / half), np.log2(half / quarter)
        falls = max(0.02, before - now)
        doublings = np.log2(scale)
        steps = min(doublings, now / falls)  # until nothing is new
        growth = 2 ** (steps * now - falls * steps * (steps + 1) / 2) if steps > 0 else 1.0
    counts = np.bincount(ids, minlength=len(names)).astype(np.int64)
    packed = sum(_count_packed(part) for part in (names.offsets, names.data, counts))
    return packed * max(1.0, float(growth))
