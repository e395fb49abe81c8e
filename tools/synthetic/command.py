"""The command that writes made-up rows: what the script beside this folder runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from streammach.cli.console import say, say_json
from streammach.cli.options import PATH, command
from streammach.options.option_fields import option
from streammach.system.errors import UsageError, clean
from streammach.system.machine import size_text
from streammach.system.progress import ProgressBar
from tools.synthetic.files import FORMS, Written, destination_of, write_rows
from tools.synthetic.lists import Lists
from tools.synthetic.rows import PARTS, SHAPES, SyntheticRows


@dataclass(frozen=True, kw_only=True)
class SyntheticOptions:
    """Which rows are made."""

    test: Path | None = option(None, "Also write the test rows, here.", "FILE")
    part: str = option(PARTS[0], "Which rows OUT gets.", words=PARTS)
    scale: float = option(1.0, "Factor of rows, classes and, for odp, features.")
    rows: int | None = option(None, "Training rows.", usual="the data's, scaled")
    test_rows: int | None = option(None, "Test rows.", usual="the data's, scaled")
    classes: int | None = option(None, "Classes.", usual="the data's, scaled")
    features: int | None = option(None, "Features.", usual="the data's")
    words: float | None = option(None, "Words a row of odp, mean.", usual="65.5")
    labels: float | None = option(
        None, "Lists of labels: so many a row, mean.", usual="one label a row"
    )
    unlabelled: float | None = option(
        None, "With --labels: share of the rows that have none.", "SHARE", usual="0"
    )
    format: str = option("vw", "Format.", words=FORMS)
    seed: int = option(0, "Decides all that is random.", usual="0")


@command("python tools/make_synthetic.py odp train.vw.gz --scale 0.01")
@click.argument("shape_name", metavar="SHAPE", type=click.Choice(list(SHAPES)))
@click.argument("out", metavar="OUT", type=PATH)
def make(
    *, shape_name: str, out: Path, options: SyntheticOptions, progress: str, as_json: bool
) -> None:
    """Write made-up rows of a SHAPE to OUT, as text: plain, or gzip where its name ends in .gz.

    odp: word counts, sparse, 60 values a row. imagenet: 6,144 features of a network, a third of
    them above 0. A class has its own distribution over features. The same seed gives the same
    rows; training and test rows share classes. Labels count from 1, features from 0. With --labels
    a row's features come from all of its labels.
    """
    test, part = options.test, options.part
    if test is not None and part == "test":
        raise UsageError(f"OUT gets the test rows already: {clean(test)}: --test")
    shape = SHAPES[shape_name].scaled(options.scale).changed(
        n_rows=options.rows, n_test_rows=options.test_rows, n_classes=options.classes,
        n_features=options.features, words=options.words,
        lists=_lists(options.labels, options.unlabelled),
    )  # fmt: skip
    jobs = [(part, out)] + ([] if test is None else [("test", test)])
    for number, (_, path) in enumerate(jobs):  # all of them, before the first is begun
        destination_of(path, others=[other for _, other in jobs[:number]])
    done = []
    for name, path in jobs:
        made = SyntheticRows(shape, part=name, seed=options.seed)
        with ProgressBar(progress, "rows") as shown:
            done.append(write_rows(made, path, xmc=options.format == "xmc", progress=shown))
    if as_json:
        say_json([vars(written) for written in done])
        return
    for written in done:
        say(_line(written))


def _lists(labels: float | None, unlabelled: float | None) -> Lists | None:
    if labels is None and unlabelled is not None:
        raise UsageError(
            "only rows with lists of labels may have none: --unlabelled needs --labels"
        )
    return None if labels is None else Lists(labels, unlabelled or 0.0)


def _line(written: Written) -> str:
    return (
        f"{clean(written.path, 60)}: {written.n_rows:,} rows, "
        f"{written.nnz / written.n_rows:,.1f} values a row, {size_text(written.n_bytes)} of text"
    )
