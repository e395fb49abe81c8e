"""The command add: classes that a trained model does not know."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import click

from streammach.cli.compared import NAMES, UNITS, compared, reached, say_compared
from streammach.cli.options import (
    debug_option,
    epilog,
    format_option,
    json_option,
    layout_options,
    memory_option,
    one_source,
    progress_option,
    source_options,
    threads_option,
)
from streammach.cli.output import peak_of, say, say_json, short_path
from streammach.cli.places import STORE_PATH, cache_options
from streammach.progress import ProgressBar
from streammach.spec.types import Multilabel

if TYPE_CHECKING:
    from streammach.data.source_options import Layout
    from streammach.prediction.evaluate import Evaluation
    from streammach.training.added import Added


@click.command(epilog=epilog("streammach add runs/odp new.vw --out more --on test.zarr"))
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.argument("source", metavar="ROWS", type=STORE_PATH)
@click.option("--out", required=True, metavar="MODEL", type=click.Path(path_type=Path),
              help="Folder of the model with more classes.")  # fmt: skip
@click.option("--on", "store", metavar="STORE", type=STORE_PATH,
              help="Measure the model before and after on these rows.")  # fmt: skip
@click.option("--force", is_flag=True, help="Replace an existing model.")
@format_option
@layout_options
@source_options
@memory_option
@threads_option
@cache_options
@progress_option
@json_option
@debug_option
def add(
    *, run: Path, source: Path, out: Path, store: Path | None, force: bool, form: str | None,
    layout: Layout, labels: tuple[Path, ...], x_path: str | None, y_path: str | None,
    first_label: bool, multilabel: Multilabel, memory: str | None, threads: int | None,
    progress: str, as_json: bool,
) -> None:  # fmt: skip
    """Add classes to a trained model, from rows of their own.

    ROWS is a store, or a labelled file of any format that can be converted; - is text on standard
    input. Rows with a label that the model does not know are used, the others are left out. No
    weight changes: the known classes keep their scores, to the last bit. The model needs hashes or
    counts alone: where each class has weights of its own, none can be added.
    """
    from streammach.training.added import added  # compiled code loads on demand

    options = one_source(
        form=form, labels=labels, x_path=x_path, y_path=y_path, first_label=first_label,
        multilabel=multilabel, layout=layout,
    )  # fmt: skip
    measured: list[Evaluation] = []
    stages = {"open": 0.5, "read": 5.0, "add": 2.0, "write": 1.0}
    if store is not None:
        stages |= dict.fromkeys(NAMES, 5.0)
    with ProgressBar(progress, {"read": "rows", **UNITS}, stages) as shown:
        shown("open", 0, 0)
        found = added(
            run, source, out, options=options, memory=memory, threads=threads, force=force,
            on=store, progress=shown,
        )  # fmt: skip
        shown("write", 0, 0)
        found.model.save(out, force=force)
        if store is not None:
            models = (found.before, found.model)
            measured = reached(models, store, memory=memory, threads=threads, shown=shown)
    _left_out(found, source)
    peak = peak_of(found.projected_bytes)
    if as_json:
        say_json({
            "model": str(out), "classes": found.model.spec.n_classes,
            "added_classes": len(found.labels), "rows": found.n_rows,
            "left_out_rows": found.left_out, "unknown_values": found.unknown_values,
            **compared(measured), "projected_bytes": found.projected_bytes,
            "peak_bytes": peak,
        })  # fmt: skip
        return
    say(
        f"{short_path(out)}: {found.model.spec.n_classes:,} classes, {len(found.labels):,} of them "
        f"new, from {found.n_rows:,} rows"
    )
    say_compared(measured, store)


def _left_out(found: Added, source: Path) -> None:
    """Warn of rows and values that were not used."""
    if found.left_out:
        warnings.warn(
            f"{found.left_out:,} rows without a new label were left out: {short_path(source)}",
            stacklevel=2,
        )
    if found.unknown_values:
        warnings.warn(
            f"{found.unknown_values:,} values of features never seen in training were left out: "
            f"{short_path(source)}",
            stacklevel=2,
        )
