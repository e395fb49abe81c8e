"""The command explore: what sources hold, before they are converted."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import click

from streammach.cli.options import (
    debug_option,
    epilog,
    format_option,
    json_option,
    layout_options,
    progress_option,
    source_options,
    sources_argument,
    table_options,
)
from streammach.cli.output import say, say_json, say_named, short_path
from streammach.machine import size_text, time_text
from streammach.spec.types import Multilabel

if TYPE_CHECKING:
    from streammach.data.explore import Exploration, SourceFacts
    from streammach.data.source_options import Layout, TableOptions

LABELS = {"integer": "integers", "utf8": "text", "bytes": "bytes that are not all UTF-8"}
VALUES = {
    "uint8": "integers from 0 to 255: a byte each",
    "float32": "other numbers: float32, four bytes each",
}


@click.command(epilog=epilog("streammach explore train.vw.gz"))
@sources_argument
@format_option
@table_options
@layout_options
@source_options
@progress_option
@json_option
@debug_option
def explore(
    *,
    sources: tuple[Path, ...],
    form: str | None,
    table: TableOptions,
    layout: Layout,
    labels: tuple[Path, ...],
    x_path: str | None,
    y_path: str | None,
    first_label: bool,
    multilabel: Multilabel,
    progress: str,
    as_json: bool,
) -> None:
    """Look at the start of sources: what they hold, what their conversion will take.

    A few MB of each source are read and nothing is written. What is said of the rest takes it for
    rows like those at the start: where rows are sorted, their start tells little.
    """
    from streammach.data.explore import explore as run  # compiled code loads on demand

    found = run(
        sources, format=form, labels=labels, x_path=x_path, y_path=y_path,
        first_label=first_label, multilabel=multilabel, table=table,
        progress=progress, layout=layout,
    )  # fmt: skip
    if as_json:
        say_json({**dataclasses.asdict(found), "mean_row_nnz": found.mean_row_nnz})
        return
    for source in found.sources:
        say(_source_line(source))
    say_named(_lines(found))


def _about(n: int, *, exact: bool) -> str:
    """Return a number, to three digits where it is an estimate."""
    return f"{n:,}" if exact else f"about {float(f'{n:.3g}'):,.0f}"


def _source_line(source: SourceFacts) -> str:
    size = size_text(source.n_bytes)
    if source.text_bytes not in (0, source.n_bytes):
        size += f", {size_text(source.text_bytes)} of text"
    note = f"; {source.note}" if source.note else ""
    rows = _about(source.rows, exact=source.exact)
    return f"{short_path(source.path)}: {source.form}, {size}, {rows} rows{note}"


def _lists_text(found: Exploration) -> str:
    if found.max_row_labels <= 1 and found.sample_labels == found.sample_rows:
        return ""
    mean = found.sample_labels / found.sample_rows
    return f"; {mean:.3g} a row, at most {found.max_row_labels:,}"


def _lines(found: Exploration) -> list[tuple[str, str]]:
    n_read = found.sample_rows + sum(found.skipped.values())
    bad = ", ".join(f"{n:,} {reason}" for reason, n in found.skipped.items())
    whole = "all" if found.exact else "the first"
    return [
        ("sample", f"{whole} {n_read:,} rows: {found.sample_classes:,} classes, "
                   f"{found.sample_features:,} features"),
        ("row", f"{found.mean_row_nnz:.3g} values, at most {found.max_row_nnz:,}"),
        ("labels", LABELS[found.label_kind] + _lists_text(found)),
        ("values", VALUES[found.value_kind]),
        ("bad rows", bad or "none"),
        ("store", f"about {size_text(found.store_bytes)}, "
                  f"{_about(found.rows, exact=found.exact)} rows with "
                  f"{_about(found.nnz, exact=found.exact)} values"),
        ("convert", f"about {time_text(found.seconds)} on one core"),
    ]  # fmt: skip
