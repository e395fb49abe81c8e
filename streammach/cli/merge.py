"""The command merge: a run of its parts."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from streammach.cli.options import debug_option, epilog, json_option, progress_option
from streammach.cli.output import say_json
from streammach.cli.places import STORE_PATH, cache_options
from streammach.cli.training import run_document, say_run
from streammach.files.urls import located
from streammach.progress import Progress

if TYPE_CHECKING:
    from streammach.data.store.dataset import Dataset


@click.command(epilog=epilog("streammach merge runs/odp part1 part2 part3"))
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.argument("parts", nargs=-1, required=True, metavar="PART...",
                type=click.Path(path_type=Path))  # fmt: skip
@click.option("--store", metavar="STORE", type=STORE_PATH,
              help="The training store, where it lies elsewhere now.")  # fmt: skip
@click.option(
    "--validation", metavar="STORE", help="The store of held-out rows, where it lies elsewhere now."
)
@click.option(
    "--class-weight",
    metavar="balanced|FILE",
    help="What the parts were trained with.  [default: 1 each]",
)
@click.option("--resume", is_flag=True, help="Go on with an interrupted merge.")
@cache_options
@progress_option
@json_option
@debug_option
def merge(
    *,
    run: Path,
    parts: tuple[Path, ...],
    store: Path | None,
    validation: str | None,
    class_weight: str | None,
    resume: bool,
    progress: str,
    as_json: bool,
) -> None:
    """Join the parts of a run, in any order: all that train --part made with the same options.

    The model has the bytes of one that was trained at once. The parts are read only.
    """
    from streammach.planning.speed import speed  # compiled code loads on demand
    from streammach.training.callbacks import EarlyStopping, watcher
    from streammach.training.trainer import merge as joined

    with ExitStack() as opened, Progress(progress, "") as shown:
        speed()
        data = _data(store, parts[0], class_weight, opened)
        made = joined(
            run, parts, data=data, validation=validation, resume=resume,
            callbacks=[watcher(shown), EarlyStopping()],
        )  # fmt: skip
    if as_json:
        say_json(run_document(made))
        return
    say_run(made)


def _data(
    store: Path | None, part: Path, class_weight: str | None, opened: ExitStack
) -> Path | Dataset | None:
    """Return the training store, or its view by weights of classes."""
    if class_weight is None:
        return store
    from streammach.data.class_weights import weighed  # loads on demand
    from streammach.data.store.dataset import Dataset
    from streammach.training.run_part import RunPart

    place = located(RunPart.open(part).facts.store) if store is None else store
    return weighed(opened.enter_context(Dataset.open(place)), class_weight)
