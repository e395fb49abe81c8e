"""A run in parts: the option --part of train, and the command merge."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from streammach.cli.arguments import RunArguments
from streammach.cli.options import debug_option, epilog, json_option, progress_option
from streammach.cli.output import Document, peak_of, say, say_json, short_path
from streammach.cli.plans import made_plan
from streammach.cli.training import run_document, say_plan, say_run, trainer_of, weighed_rows
from streammach.errors import UsageError
from streammach.machine import size_text
from streammach.progress import Progress

if TYPE_CHECKING:
    from streammach.data.store.dataset import Dataset
    from streammach.training.run_part import RunPart


def train_part(
    store: Path, out: Path, arguments: RunArguments, which: tuple[str, Path | None], progress: str,
    *, as_json: bool,
) -> None:  # fmt: skip
    """Train the repetitions of a part, and say so."""
    from streammach.training.part_job import PartJob  # compiled code loads on demand
    from streammach.training.run_part import KIND, PartNumber

    number, settings = PartNumber.of_text(which[0]), which[1]
    if arguments.pilot is not None:
        hint = "Give the --buckets and --repetitions that a pilot chose."
        raise UsageError("samples may say something else in each part: --pilot", hint=hint)
    with weighed_rows(store, out, arguments, progress, KIND) as (rows, given, shown):
        plan = made_plan(rows, given)
        job = PartJob(plan, number, given.training(), settings)
        trainer = trainer_of(plan, given, shown)
        say_plan(rows, out, plan, (job.projected_bytes, shown), f"part {number} of ")
        part = trainer.do(job, rows, out, resume=given.resume)
    if as_json:
        say_json(_document(part, job.projected_bytes))
        return
    first, last = part.repetitions
    assert part.settings is not None, "it is finished"
    say(
        f"{short_path(part.path)}: part {number}, repetitions {first + 1} to {last} of "
        f"{plan.n_repetitions}, {part.settings.training.epochs} epochs; peak "
        f"{size_text(peak_of(job.projected_bytes))} of {size_text(job.projected_bytes)} projected"
    )
    say("all parts make a run: streammach merge RUN PART...")


def _document(part: RunPart, projected: int) -> Document:
    """Return a finished part as one JSON-ready object."""
    assert part.settings is not None, "it is finished"
    first, last = part.repetitions
    return {
        "part": str(part.path), "number": part.facts.part.number, "of": part.facts.part.of,
        "first_repetition": first + 1, "last_repetition": last,
        "repetitions": part.plan.n_repetitions, "epochs": part.settings.training.epochs,
        "projected_bytes": projected, "peak_bytes": peak_of(projected),
    }  # fmt: skip


@click.command(epilog=epilog("streammach merge runs/odp part1 part2 part3"))
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.argument("parts", nargs=-1, required=True, metavar="PART...",
                type=click.Path(path_type=Path))  # fmt: skip
@click.option("--store", metavar="STORE", type=click.Path(path_type=Path),
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
    from streammach.training.merge import merge as joined

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

    place = Path(RunPart.open(part).facts.store) if store is None else store
    return weighed(opened.enter_context(Dataset.open(place)), class_weight)
