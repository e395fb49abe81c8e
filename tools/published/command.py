"""Public data sets as stores: both parts converted, their counts compared with what is known."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from streammach.cli.console import say, say_json
from streammach.cli.data import conversion_text
from streammach.cli.data import convert as convert_command
from streammach.cli.options import PATH, OutputOptions, click_option, debug_option, epilog
from streammach.conversion.convert import Conversion, check_target, convert
from streammach.options.option_fields import declared_options
from streammach.store.dataset import Dataset
from streammach.system.errors import DataError, UsageError, clean
from streammach.system.progress import Wanted

# Options of convert that these commands take as it does; their help does not show them again.
PASSED = ("min_rows", "on_bad_row", "max_bad", "memory", "threads", "seed", "force")


@dataclass(frozen=True, kw_only=True)
class Published:
    """A public data set in VW text."""

    name: str  # what people call it
    address: str  # the folder on the web where its files are
    train_file: str  # train_file, test_file: their names
    test_file: str
    # n_rows, n_test_rows, n_classes, n_features: what they hold; classes and features are those of
    # the training rows
    n_rows: int
    n_test_rows: int
    n_classes: int
    n_features: int
    first_label: int  # the smallest label; they are numbers without gaps


def source_in(published: Published, folder: Path, name: str) -> Path:
    """Return a file in a folder, as it was published or unpacked, or raise UsageError."""
    for found in (folder / name, folder / name.removesuffix(".gz")):
        if found.is_file():
            return found
    raise UsageError(
        "there is no such file", path=folder / name, hint=f"Get it from {published.address}{name}."
    )


def convert_published(
    published: Published, sources: tuple[Path, Path], out: Path, *, sample: bool = False,
    options: Mapping[str, Any] | None = None, progress: Wanted = None,
) -> tuple[Conversion, Conversion]:  # fmt: skip
    """Convert the training rows, then the test rows with their labels and features; check both."""
    given = dict(options or {})
    files = (published.train_file, published.test_file)
    out.mkdir(parents=True, exist_ok=True)
    targets = [out / f"{name.partition('.')[0]}.zarr" for name in files]
    for target in targets:
        check_target(target, sources, force=given.get("force", False))
    train = convert(sources[0], targets[0], format="vw", progress=progress, **given)
    test = convert(sources[1], targets[1], format="vw", like=targets[0], progress=progress, **given)
    found = list(differences(published, train, test, sample=sample))
    if found:
        hint = "The stores are kept." + ("" if sample else " --sample accepts smaller files.")
        raise DataError(f"not {published.name} as published: {', '.join(found)}",
                        path=out, hint=hint)  # fmt: skip
    return train, test


def differences(
    published: Published, train: Conversion, test: Conversion, *, sample: bool
) -> Iterator[str]:
    """Yield what differs from what is known, in words."""
    rows, test_rows = (c.n_rows + sum(c.skipped.values()) for c in (train, test))
    counts = [
        (rows, published.n_rows, "training rows"),
        (test_rows, published.n_test_rows, "test rows"),
        (train.n_classes, published.n_classes, "classes"),
        (train.n_features, published.n_features, "features"),
    ]
    for found, known, what in counts:
        if found > known or (found < known and not sample):
            yield f"{found:,} {what} in place of {known:,}"
    foreign = _foreign_label(published, test)
    if foreign is not None:
        last = published.first_label + published.n_classes - 1
        yield f"label '{clean(foreign, 60)}' is not from {published.first_label} to {last}"


def _foreign_label(published: Published, test: Conversion) -> bytes | None:
    """Return a label of either part that cannot be; the test store has those of training too."""
    known = range(published.first_label, published.first_label + published.n_classes)
    with Dataset.open(test.path) as data:
        labels = (data.labels.raw(i) for i in range(len(data.labels)))
        wrong = (raw for raw in labels if not raw.isdigit() or int(raw) not in known)
        return next(wrong, None)


def passed_options() -> list[click.Parameter]:
    """Return the options of ``streammach convert`` that are passed on as they are, hidden."""
    options = [copy(option) for option in convert_command.params if option.name in PASSED]
    for option in options:
        vars(option)["hidden"] = True
    return options


def command_of(published: Published, script: str) -> click.Command:
    """Return the command that converts a public data set; its help calls it by `script`."""
    words = ", ".join(f"--{name.replace('_', '-')}" for name in PASSED)

    @click.command(
        params=[
            *passed_options(), *map(click_option, declared_options(OutputOptions)), debug_option(),
        ],
        epilog=epilog(f"python {script} FOLDER"),
        help=f"Convert {published.name}, downloaded to FOLDER ({published.train_file} and "
             f"{published.test_file}, or both unpacked), into two stores, and check their counts. "
             f"These options of 'streammach convert' are taken, too: {words}.",
    )  # fmt: skip
    @click.argument("folder", type=PATH)
    @click.option("--out", metavar="FOLDER", type=PATH,
                  help="Where the stores go; it is made.  [default: beside the files]")  # fmt: skip
    @click.option("--train", metavar="FILE", type=PATH,
                  help="The training rows, where they have another name.")  # fmt: skip
    @click.option("--test", metavar="FILE", type=PATH,
                  help="The test rows, where they have another name.")  # fmt: skip
    @click.option("--sample", is_flag=True, help="Accept fewer rows, classes and features.")
    def command(
        *, folder: Path, out: Path | None, train: Path | None, test: Path | None, sample: bool,
        progress: str, as_json: bool, **options: Any,
    ) -> None:  # fmt: skip
        sources = (
            train or source_in(published, folder, published.train_file),
            test or source_in(published, folder, published.test_file),
        )
        done = convert_published(
            published, sources, out or folder, sample=sample, options=options, progress=progress
        )
        if as_json:
            say_json({"train": dataclasses.asdict(done[0]), "test": dataclasses.asdict(done[1])})
            return
        for made in done:
            say(_line(made))
        say(f"counts are {'at most ' if sample else ''}those of {published.name} as published")

    return command


def _line(made: Conversion) -> str:
    notes = {
        "rows skipped": sum(made.skipped.values()),
        "rows with a label that training lacks": made.unseen_label_rows,
        "values of features that training lacks dropped": made.unknown_values,
    }
    more = "".join(f", {n:,} {what}" for what, n in notes.items() if n)
    return f"{conversion_text(made)}{more}"
