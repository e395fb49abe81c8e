"""The formats of predictions: which one a file gets, and which files are ours to replace."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path

from streammach.errors import UsageError, clean
from streammach.files.destinations import Product, is_stream, not_regular
from streammach.prediction.output.base import OutputFormat
from streammach.prediction.output.parquet import ParquetOutput
from streammach.prediction.output.text import CsvOutput, JsonLinesOutput, TsvOutput

OUTPUT_FORMATS: dict[str, OutputFormat] = {
    known.name: known for known in (TsvOutput(), CsvOutput(), JsonLinesOutput(), ParquetOutput())
}
PACKED = ".gz"
START_BYTES = 1 << 16
GZIP_MAGIC, GZIP_BITS = b"\x1f\x8b", 31


@dataclass(frozen=True)
class Output:
    """How predictions are written: the format, and whether it is packed by gzip."""

    format: OutputFormat
    packed: bool = False


def output_of(path: Path | None, name: str | None = None) -> Output:
    """Return how predictions are written, or raise UsageError."""
    if name is not None and name not in OUTPUT_FORMATS:
        known = ", ".join(OUTPUT_FORMATS)
        raise UsageError(f"'{clean(name)}' is not one of {known}: --out-format")
    stream = path is None or is_stream(path)
    endings = [] if path is None else [ending.lower() for ending in path.suffixes]
    packed = bool(endings) and endings[-1] == PACKED and not stream
    ending = "".join((endings[:-1] if packed else endings)[-1:])
    by_ending = {known: form.name for form in OUTPUT_FORMATS.values() for known in form.endings}
    form = OUTPUT_FORMATS[name or by_ending.get(ending, "tsv")]
    if not form.text and (stream or packed):
        where = "is packed already: no .gz" if packed else "is written to a file: --out"
        raise UsageError(f"{form.name} {where}", path=None if path is None else clean(path, 300))
    form.check()
    return Output(form, packed)


def _foreign(path: Path) -> str | None:
    """Return why a file holds no predictions of ours, in any format; None if it does."""
    why = not_regular(path)
    if why is not None:
        return why
    with open(path, "rb") as file:
        start = file.read(START_BYTES)
    if start.startswith(GZIP_MAGIC):
        try:
            start = zlib.decompressobj(GZIP_BITS).decompress(start, START_BYTES)
        except zlib.error:
            start = b""
    if any(form.is_ours(path, start) for form in OUTPUT_FORMATS.values()):
        return None
    return "it is no table of predictions that streammach made"


PREDICTIONS = Product("a table of predictions", _foreign)
