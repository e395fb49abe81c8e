"""The command that writes made-up rows: what the script beside this folder runs."""

from pathlib import Path

import click

from streammach.cli import options
from streammach.cli.arguments import Arguments, command
from streammach.cli.console import say, say_json
from streammach.errors import UsageError, clean
from streammach.machine import size_text
from streammach.progress import ProgressBar
from tools.synthetic.files import FORMS, Written, destination_of, write_rows
from tools.synthetic.lists import Lists
from tools.synthetic.rows import PARTS, SHAPES, SyntheticRows


@command("python tools/make_synthetic.py odp train.vw.gz --scale 0.01")
@click.argument("shape_name", metavar="SHAPE", type=click.Choice(list(SHAPES)))
@click.argument("out", metavar="OUT", type=options.PATH)
@click.option("--test", metavar="FILE", type=options.PATH, help="Also write the test rows, here.")
@options.one_of("--part", PARTS, "Which rows OUT gets.")
@click.option("--scale", type=float, default=1.0, show_default=True,
              help="Factor of rows, classes and, for odp, features.")  # fmt: skip
@click.option("--rows", type=int, help="Training rows.  [default: the data's, scaled]")
@click.option("--test-rows", type=int, help="Test rows.  [default: the data's, scaled]")
@click.option("--classes", type=int, help="Classes.  [default: the data's, scaled]")
@click.option("--features", type=int, help="Features.  [default: the data's]")
@click.option("--words", type=float, help="Words a row of odp, mean.  [default: 65.5]")
@click.option("--labels", type=float,
              help="Lists of labels: so many a row, mean.  [default: one label a row]")  # fmt: skip
@click.option("--unlabelled", metavar="SHARE", type=float,
              help="With --labels: share of the rows that have none.  [default: 0]")  # fmt: skip
@click.option("--format", "form", type=click.Choice(FORMS), default="vw", show_default=True,
              help="Format.")  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, help="Decides all that is random.")
@options.add_shared_options(options.progress_option)
def make(*, out: Path, test: Path | None, part: str, given: Arguments) -> None:
    """Write made-up rows of a SHAPE to OUT, as text: plain, or gzip where its name ends in .gz.

    odp: word counts, sparse, 60 values a row. imagenet: 6,144 features of a network, a third of
    them above 0. A class has its own distribution over features. The same seed gives the same
    rows; training and test rows share classes. Labels count from 1, features from 0. With --labels
    a row's features come from all of its labels.
    """
    if test is not None and part == "test":
        raise UsageError(f"OUT gets the test rows already: {clean(test)}: --test")
    shape = SHAPES[given.shape_name].scaled(given.scale).changed(
        n_rows=given.rows, n_test_rows=given.test_rows, n_classes=given.classes,
        n_features=given.features, words=given.words, lists=_lists(given.labels, given.unlabelled),
    )  # fmt: skip
    jobs = [(part, out)] + ([] if test is None else [("test", test)])
    for number, (_, path) in enumerate(jobs):  # all of them, before the first is begun
        destination_of(path, others=[other for _, other in jobs[:number]])
    done = []
    for name, path in jobs:
        made = SyntheticRows(shape, part=name, seed=given.seed)
        with ProgressBar(given.progress, "rows") as shown:
            done.append(write_rows(made, path, xmc=given.form == "xmc", progress=shown))
    if given.as_json:
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
