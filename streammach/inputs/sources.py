"""Sources of rows: which one a file is, and one recipe for several tables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, get_args

from streammach.inputs.formats.registry import TEXT_FORMATS, guess_format
from streammach.inputs.matrices.matrix_files import MATRIX_SOURCES
from streammach.inputs.matrix_text import MatrixText, matrix_shape
from streammach.inputs.source import START, Place, Source
from streammach.inputs.source_options import GUESSED, Layout, SourceOptions, TableOptions
from streammach.inputs.tables.arrow_files import ArrowFile, ArrowSource, ParquetSource
from streammach.inputs.tables.document_folder import DOCUMENTS, DocumentFolder, is_document_folder
from streammach.inputs.tables.guess import no_label
from streammach.inputs.tables.table_source import Table, recipe_for
from streammach.inputs.tables.text_tables import DELIMITERS, DelimitedSource, JsonSource, TextTable
from streammach.inputs.text import TextPiece, TextSource
from streammach.options.recipe import Recipe
from streammach.options.types import Multilabel
from streammach.system.errors import DataError, UsageError, check_word, clean
from streammach.system.files.raw_text import RawFile, find_in_head, is_piped
from streammach.system.files.reading import disk_errors

PIPED_TABLES: dict[str, type[TextTable]] = {
    "csv": DelimitedSource, "tsv": DelimitedSource, "jsonl": JsonSource,
}  # fmt: skip
FILED_TABLES: dict[str, type[ArrowFile | DocumentFolder]] = {
    "parquet": ParquetSource, "arrow": ArrowSource, DOCUMENTS: DocumentFolder,
}  # fmt: skip
TABLE_FORMATS = {**PIPED_TABLES, **FILED_TABLES}
ENDINGS = {
    ".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl",
    ".json": "jsonl",
}  # fmt: skip
MAGIC = {b"PAR1": "parquet", b"ARROW1": "arrow", b"\xff\xff\xff\xff": "arrow"}
SAMPLE_BYTES = 1 << 16
# lines of Annif's corpora and of PECOS's, their columns, what stands between labels
CORPORA = {
    re.compile(rb"[^\t]*\t *<[^<>\s]+>( +<[^<>\s]+>)*\s*"): (("text", "subjects"), " "),
    re.compile(rb"\d+(,\d+)*\t[^\t]*[^\t\d,.\s][^\t]*"): (("labels", "text"), ","),
}
EMPTY: tuple[bytes, None] = (b"", None)
LINE = re.compile(rb"^[^\S\n]*[^\s#][^\n]*", re.MULTILINE)  # that is not blank and no comment


def open_source(path: Path, options: SourceOptions | None = None) -> Source[Any]:
    """Return the source that a file is, or raise UsageError, DataError or DiskError."""
    options = options or GUESSED
    form = options.form
    check_word(options.multilabel, get_args(Multilabel), "--multilabel")
    if options.first_label and options.multilabel == "on":
        raise UsageError("rows have one label or several: --first-label, --multilabel on")
    every = (*TEXT_FORMATS, *TABLE_FORMATS, *MATRIX_SOURCES)
    if form is not None and form not in every:
        known = ", ".join(every)
        raise UsageError(f"'{clean(form)}' is not a format; known are {known}")
    options.layout.check()
    source = _text_source(path, options) if is_piped(path) else _file_source(path, options)
    has_cells = source.form in DELIMITERS or isinstance(source, NoRows)
    if options.layout != Layout() and not has_cells:
        what = "only CSV and TSV have a header and quotes: --no-header, --columns, --quotes"
        raise UsageError(what, path=path)
    return source


def open_sources(paths: Sequence[Path], options: Sequence[SourceOptions]) -> list[Source[Any]]:
    """Return sources for one store: where a file is of a corpus all TSV files without roles are."""
    opened = [open_source(path, own) for path, own in zip(paths, options, strict=True)]
    tables = [source for source in opened if isinstance(source, DelimitedSource)]
    corpus = next((t.options for t in tables if t.options.layout != options[0].layout), None)
    if corpus is None:
        return opened
    read: dict[str, Any] = {
        "table": corpus.table, "layout": corpus.layout, "multilabel": corpus.multilabel,
    }  # fmt: skip
    for i, (path, own) in enumerate(zip(paths, options, strict=True)):
        if opened[i] in tables and opened[i].form == "tsv" and path.is_file():
            opened[i] = open_source(path, replace(own, **read))
    return opened


def _file_source(path: Path, options: SourceOptions) -> Source[Any]:
    form = _form_of(path, options.form)
    if form in TABLE_FORMATS:
        return open_table(path, form, options)
    matrix = MATRIX_SOURCES.get(form or "")
    if options.x_path is not None and not (matrix and matrix.has_paths):
        raise UsageError("it has no paths inside: --x-path", path=path)
    return _text_source(path, options) if matrix is None else matrix(path, options)


def _form_of(path: Path, form: str | None) -> str | None:
    """Return the format of a file or folder, None for text whose lines tell it."""
    matrix, wrong = MATRIX_SOURCES.get(form or ""), ""
    if path.is_dir():
        if form in (None, DOCUMENTS) and is_document_folder(path):
            return DOCUMENTS
        if form is None:
            return next(name for name, known in MATRIX_SOURCES.items() if known.is_folder)
        wrong = "" if matrix and matrix.is_folder else f"it is a folder: --format {form}"
    elif not path.is_file():
        wrong = "there is no such file"
    elif matrix is not None and matrix.is_folder:
        wrong = f"it is no folder: --format {form}"
    if wrong:
        raise UsageError(wrong, path=path)
    if form is not None:
        return form
    with disk_errors(path), open(path, "rb") as file:
        head = file.read(16)
    begins = {known.magic: name for name, known in MATRIX_SOURCES.items() if known.magic} | MAGIC
    by_magic = next((name for magic, name in begins.items() if head.startswith(magic)), None)
    endings = [ending.lower() for ending in path.suffixes]
    if endings and endings[-1] == ".gz":
        endings.pop()
    return by_magic or (ENDINGS.get(endings[-1]) if endings else None)


def table_of_line(line: bytes) -> str | None:
    """Return the format of text by its first line, None where it looks like none."""
    if line.lstrip()[:1] == b"{":
        return "jsonl"
    if b"\t" in line:
        return "tsv"
    return "csv" if b"," in line or b";" in line else None


def open_table(
    path: Path, form: str, options: SourceOptions, raw: RawFile | None = None
) -> Source[Any]:
    """Return a table as a source, or raise UsageError, DataError or DiskError."""
    others = ("labels", "y_path", "x_path", "first_label")
    _refuse(options, others, "the labels of a table are a column, --label", path)
    if (
        form == "tsv"
        and options.layout == Layout()
        and not (options.table.features or options.table.label)
    ):
        line = (_first_line(path, raw) or EMPTY)[0]
        for looks, (columns, separator) in CORPORA.items():
            options = _corpus(options, columns, separator) if looks.fullmatch(line) else options
    if form in PIPED_TABLES:
        return PIPED_TABLES[form](path, form, options, raw)
    return FILED_TABLES[form](path, form, options)


def _corpus(options: SourceOptions, columns: tuple[str, ...], separator: str) -> SourceOptions:
    """Return how a corpus without a header is read: a column of text, one of lists of labels."""
    (label,) = {*columns} - {"text"}
    table = replace(options.table, label=label, label_separator=separator, text=("text",))
    layout = Layout(quotes="off", header=False, columns=columns)
    auto = options.multilabel == "auto" and not options.first_label and label == "subjects"
    multilabel = "on" if auto else options.multilabel
    return replace(options, table=table, layout=layout, multilabel=multilabel)


def _refuse(options: SourceOptions, names: Sequence[str], what: str, path: Path) -> None:
    for name in names:
        if getattr(options, name) not in (None, False):
            raise UsageError(f"{what}: --{name.replace('_', '-')}", path=path)


def _text_source(path: Path, options: SourceOptions) -> Source[Any]:
    if options.form is not None and options.form not in {**TEXT_FORMATS, **PIPED_TABLES}:
        raise UsageError(f"it is read once, as text: --format {options.form}", path=path)
    with disk_errors(path):
        raw = RawFile(path, prompt=options.prompt) if is_piped(path) else None
    found = _first_line(path, raw)
    if found is None and options.form not in PIPED_TABLES:
        return NoRows(path, options.form or NoRows.form, raw=raw)
    line, form = found or EMPTY
    if raw is None and options.form in (None, "xmc") and matrix_shape(line):
        _refuse(options, ("y_path", "first_label"), "labels are in a file of their own", path)
        return MatrixText(path, options.labels, multilabel=options.multilabel)
    _refuse(options, ("labels", "y_path"), "rows of text hold their labels", path)
    if options.form is None and options.layout == Layout() and (column := _bare(line, options)):
        layout = Layout(quotes="off", header=False, columns=(column,))
        return open_table(path, "tsv", replace(options, layout=layout), raw)
    form = options.form or form or table_of_line(line)
    if form in TABLE_FORMATS:
        return open_table(path, form, options, raw)
    if form is None:
        what = f"the format cannot be guessed from '{clean(line, 60)}'"
        raise DataError(what, path=path, hint="Name it with --format.")
    if options.first_label and not TEXT_FORMATS[form].several_labels:
        raise UsageError(f"a row of {form} text has one label: --first-label", path=path)
    return TextSource(
        path, form, first_label=options.first_label, multilabel=options.multilabel, raw=raw,
    )  # fmt: skip


def _bare(line: bytes, options: SourceOptions) -> str | None:
    """Return the only column of a model, of text, if lines are that text alone; else None."""
    recipe = options.recipe
    if recipe is None or len(recipe.columns) != 1 or not recipe.texts:
        return None
    (name,) = recipe.texts
    cells = [cell.strip(b' "\r') for cell in re.split(rb"[,;]", line)]
    table = b"\t" in line or line.lstrip()[:1] == b"{" or name.encode() in cells
    return None if table else name


def _first_line(path: Path, raw: RawFile | None) -> tuple[bytes, str | None] | None:
    """Return the first line that is not blank and no comment, and the format of text it tells."""

    def line_of(text: bytes, whole: bool) -> tuple[bytes, str | None] | None:
        if not whole:  # it may end within a value
            text = text[: max(map(text.rfind, (b" ", b"\t", b"\n"))) + 1]
        lines = [found[0] for found in islice(LINE.finditer(text), 2)]
        form = guess_format(*lines) if lines else None
        return (lines[0], form) if form or len(lines) > 1 or (lines and whole) else None

    return find_in_head(path, raw, SAMPLE_BYTES, line_of)


class NoRows(TextSource):
    """A text without a line that is a row: it is of any format."""

    form = "vw"

    def pieces(self, begin: Place = START) -> Iterator[TextPiece]:
        for piece in super().pieces(begin):
            if LINE.search(piece.buffer.text[piece.start : piece.stop].tobytes()):
                raise DataError("too much is before its first row to look at", path=self.path)
            self.give_back(piece)
        yield from ()


def agree_recipe(
    opened: Sequence[Source[Any]], options: Sequence[SourceOptions], recipe: Recipe | None
) -> list[SourceOptions]:
    """Return the options of sources with one recipe for all tables, and let these have it."""
    tables, n_bare = tables_of(opened), sum(isinstance(source, NoRows) for source in opened)
    if not tables:
        if options[0].table != TableOptions() and n_bare < len(opened):
            what = "only a table has columns to name: --label, --text, --category, --number"
            raise UsageError(what, path=opened[0].path)
        return list(options)
    if len(tables) + n_bare < len(opened):
        raise UsageError("tables and other files do not make one store", path=opened[0].path)
    if recipe is not None and options[0].table != TableOptions():
        raise UsageError("the store of --like has a recipe: --label, --text, --category, --number")
    recipe = recipe_for(tables) if recipe is None else recipe
    for table in tables:
        table.recipe = recipe
    if recipe.label is None:
        first = next((table for table in tables if table.columns_there()), tables[0])
        raise no_label(first.columns_there(), first.path)
    if not options[0].table.features and options[0].recipe is None:
        tables[0].note = recipe.in_words()
    return [replace(option, recipe=recipe) for option in options]


def tables_of(sources: Sequence[Source[Any]]) -> list[Table]:
    """Return those of some sources that are tables."""
    return [source for source in sources if isinstance(source, Table)]
