"""Tables by their formats: what tells one, and what reads it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from streammach.data.source import Source
from streammach.data.source_options import SourceOptions, TableOptions
from streammach.data.tables.base import Table
from streammach.data.tables.delimited import DelimitedSource, TextTable
from streammach.data.tables.guess import no_label
from streammach.data.tables.json_lines import JsonSource
from streammach.data.text import RawFile
from streammach.errors import UsageError
from streammach.files.reading import disk_error
from streammach.spec.recipe import Recipe

PIPED_TABLES: dict[str, type[TextTable]] = {
    "csv": DelimitedSource, "tsv": DelimitedSource, "jsonl": JsonSource,
}  # fmt: skip
ARROW_TABLES = ("parquet", "arrow")
TABLE_FORMATS: dict[str, None] = dict.fromkeys((*PIPED_TABLES, *ARROW_TABLES))
ENDINGS = {
    ".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl",
    ".json": "jsonl", ".parquet": "parquet", ".pq": "parquet", ".arrow": "arrow",
    ".feather": "arrow", ".ipc": "arrow", ".arrows": "arrow",
}  # fmt: skip
MAGIC = {b"PAR1": "parquet", b"ARROW1": "arrow", b"\xff\xff\xff\xff": "arrow"}


def table_form(path: Path, form: str | None) -> str | None:
    """Return the format of a table by its first bytes, or by the ending of its name, or None."""
    if form is not None and form not in TABLE_FORMATS:
        return None
    if not path.is_file():
        wrong = f"it is a folder: --format {form}" if path.is_dir() else "there is no such file"
        raise UsageError(wrong, path=path)
    if form is not None:
        return form
    try:
        with open(path, "rb") as file:
            head = file.read(8)
    except OSError as error:
        raise disk_error(error, path) from error
    for magic, known in MAGIC.items():
        if head.startswith(magic):
            return known
    endings = [ending.lower() for ending in path.suffixes]
    if endings and endings[-1] == ".gz":
        endings.pop()
    found = ENDINGS.get(endings[-1]) if endings else None
    return found if found in PIPED_TABLES else None


def table_of_line(line: bytes) -> str | None:
    """Return the format of text by its first line, None where it looks like none."""
    if line.lstrip()[:1] == b"{":
        return "jsonl"
    found = {"tsv": line.count(b"\t"), "csv": line.count(b",") or line.count(b";")}
    form = max(found, key=lambda name: found[name])
    return form if found[form] else None


def open_table(
    path: Path, form: str, options: SourceOptions, raw: RawFile | None = None
) -> Source[Any]:
    """Return a table as a source, or raise UsageError, DataError or DiskError."""
    for name in ("labels", "y_path", "x_path"):
        if getattr(options, name) is not None:
            raise UsageError(
                f"the labels of a table are a column, --label: --{name.replace('_', '-')}",
                path=path,
            )
    if options.first_label:
        raise UsageError("a table's labels are told by --label: --first-label", path=path)
    if form in PIPED_TABLES:
        return PIPED_TABLES[form](path, form, options, raw)
    from streammach.data.tables.arrow_files import ArrowSource, ParquetSource

    return (ParquetSource if form == "parquet" else ArrowSource)(path, form, options)


def agreed(
    opened: Sequence[Source[Any]], options: Sequence[SourceOptions], recipe: Recipe | None
) -> list[SourceOptions]:
    """Return the options of sources with one recipe for all tables, and let these have it."""
    tables = tables_of(opened)
    if not tables:
        if options[0].table != TableOptions():
            raise UsageError(
                "only a table has columns to name: --label, --text, --category, --number",
                path=opened[0].path,
            )
        return list(options)
    if len(tables) < len(opened):
        raise UsageError("tables and other files do not make one store", path=opened[0].path)
    if recipe is not None and options[0].table != TableOptions():
        raise UsageError("the store of --like has a recipe: --label, --text, --category, --number")
    recipe = tables[0].recipe if recipe is None else recipe
    if recipe.label is None:
        raise no_label(tables[0].columns_there(), tables[0].path)
    for table in tables:
        table.recipe = recipe
    if not options[0].table.features and options[0].recipe is None:
        opened[0].note = recipe.said()
    return [replace(option, recipe=recipe) for option in options]


def tables_of(sources: Sequence[Source[Any]]) -> list[Table]:
    """Return those of some sources that are tables."""
    return [source for source in sources if isinstance(source, Table)]
