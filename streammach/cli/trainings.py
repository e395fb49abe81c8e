"""The commands that plan and train: plan, train, merge."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from streammach.cli import options
from streammach.cli.arguments import Arguments, command
from streammach.cli.console import peak_of, say, say_json, short_path
from streammach.errors import UsageError, clean
from streammach.figures import figures_text
from streammach.files.urls import locate
from streammach.machine import DEFAULT_MEMORY, size_text, time_text
from streammach.progress import ProgressBar

if TYPE_CHECKING:
    from streammach.data.store.dataset import Dataset
    from streammach.planning.constraints import Constraints
    from streammach.spec.plan import Plan
    from streammach.training.run import Result, Run
    from streammach.training.trainer import Trainer
    from streammach.training.warm_start import Start

LARGE = 0.1  # share of the time from which on a stage is named


@command("streammach plan train.zarr --memory 12GB")
@click.argument("store", type=options.STORE_PATH)
@options.add_shared_options(*options.SHAPE, *options.CACHE)
def plan(*, store: Path, given: Arguments) -> None:
    """Choose the model that fits a memory budget.

    Every byte is accounted for. What is lost is expected, in points of the mean of accuracy and
    top-5 accuracy, against the best model of any size; so is the time of a training. Without
    --memory, --buckets or --exact the budget is half of what is free, 2 to 12GB.
    """
    from streammach.planning.choose import plan as choose  # compiled code loads on demand
    from streammach.reports.plan_text import plan_document, plan_lines

    chosen = choose(store, given.constraints())
    if given.as_json:
        say_json(plan_document(chosen))
        return
    names = ("memory", "buckets", "repetitions", "time", "latency")
    said = ((name, getattr(given, name)) for name in names)
    again = "".join(f" --{name} {value}" for name, value in said if value is not None)
    command = f"streammach train {clean(store, 300)} --out RUN{again}"
    for line in plan_lines(chosen, command):
        say(line)


@command("streammach train train.zarr --out runs/odp --memory 12GB")
@click.argument("store", type=options.STORE_PATH)
@click.option("--out", required=True, metavar="RUN", type=options.PATH,
              help="Folder of the run.")  # fmt: skip
@options.add_shared_options(
    *options.RUN,
    click.option("--start", metavar="RUN", type=options.PATH,
                 help="Go on from a run whose store this one extends: one epoch of the new rows "
                      "and of some old ones."),
    click.option("--part", metavar="K/N",
                 help="Train the repetitions of one of N parts alone, such as 3/8; merge joins "
                      "them."),
    click.option("--settings", metavar="PART", type=options.PATH,
                 help="With --part: another part, where transform and rate are decided already.  "
                      "[default: decided again]"),
    *options.of_faces("train"), *options.CACHE, options.progress_option,
)  # fmt: skip
def train(*, store: Path, out: Path, given: Arguments) -> None:
    """Train a model within a memory budget.

    Without --memory, --buckets or --exact the budget is half of what is free, 2 to 12GB; 2GB where
    parts of a run are trained apart. Transform, learning rate and estimator are chosen on held-out
    rows where they are not given; what was chosen and why is said.
    """
    if given.part is None and given.settings is not None:
        raise UsageError("a whole run decides itself: --settings without --part")
    elsewhere = options.elsewhere(given)
    if given.start is not None and (elsewhere is not None or given.part is not None):
        raise UsageError("what goes on from a run is trained at once, here: --start")
    if elsewhere is not None:
        say_run(elsewhere.train(store, out, given), given)
    elif given.part is not None:
        _train_part(store, out, given)
    else:
        say_run(train_run(store, out, given), given)


def train_run(store: Path, out: Path, given: Arguments) -> Run:
    """Plan and train as asked; tell how it goes."""
    with planned_rows(store, out, given) as (rows, chosen, shown, start):
        from streammach.training.replacing import run_folder  # loads on demand
        from streammach.training.run import Run
        from streammach.training.small_training import rehearsal

        trainer = _trainer(chosen, given, shown, start)
        say_plan(rows, out, chosen, (chosen.projected_bytes, shown))
        place = run_folder(out, force=given.force, resume=given.resume)
        with rehearsal(chosen), place as folder:
            trainer.fit(rows, folder, resume=given.resume)
        return Run.open(out)


def _train_part(store: Path, out: Path, given: Arguments) -> None:
    from streammach.training.run import PART_OF_RUN  # compiled code loads on demand
    from streammach.training.run_part import PartNumber

    number = PartNumber.of_text(given.part)
    with planned_rows(store, out, given, PART_OF_RUN, apart=True) as (rows, plan, shown, _):
        number.check(plan, given.training())
        projected = number.projected_bytes(plan, decides=given.settings is None)
        say_plan(rows, out, plan, (projected, shown), f"part {number} of ")
        part = _trainer(plan, given, shown).fit_part(
            rows, out, (number.number, number.of), settings=given.settings, resume=given.resume
        )
    first, last = part.repetitions
    assert part.settings is not None, "it is finished"
    if given.as_json:
        say_json({
            "part": str(part.path), "number": number.number, "of": number.of,
            "first_repetition": first + 1, "last_repetition": last,
            "repetitions": plan.n_repetitions, "epochs": part.settings.training.epochs,
            "projected_bytes": projected, "peak_bytes": peak_of(projected),
        })  # fmt: skip
        return
    say(
        f"{short_path(part.path)}: part {number}, repetitions {first + 1} to {last} of "
        f"{plan.n_repetitions}, {part.settings.training.epochs} epochs; peak "
        f"{size_text(peak_of(projected))} of {size_text(projected)} projected"
    )
    say("all parts make a run: streammach merge RUN PART...")


@contextmanager
def planned_rows(
    store: Path, out: Path, given: Arguments, kind: str = "run", *, apart: bool = False
) -> Iterator[tuple[Path | Dataset, Plan, ProgressBar, Start | None]]:
    """Yield a store, or its view by weights of classes, its plan, what tells, where it starts.

    Where its parts are trained `apart`, perhaps by several machines, all of them plan alike.
    """
    with ExitStack() as opened, ProgressBar(given.progress, "") as shown:
        shown("plan", 0, 0)
        from streammach.data.class_weights import weigh_classes  # compiled code loads on demand
        from streammach.data.store.dataset import Dataset
        from streammach.planning.choose import plan as choose
        from streammach.planning.speed import speed
        from streammach.training.replacing import check_run_folder
        from streammach.training.warm_start import Start

        check_run_folder(out, resume=given.resume, force=given.force, kind=kind)
        rows: Path | Dataset = store
        run = vars(given).get("start")
        if given.class_weight is not None or run is not None:
            rows = opened.enter_context(Dataset.open(store))
            if given.class_weight is not None:
                rows = weigh_classes(rows, given.class_weight)
        speed(again=not (apart or given.resume))  # those plan as they did
        fixed = _constraints(out, given, apart=apart)
        if run is None or isinstance(rows, Path):
            yield rows, choose(rows, fixed), shown, None
            return
        start = Start.of(run, rows)
        yield rows, start.plan(rows, fixed), shown, start


def _constraints(out: Path, given: Arguments, *, apart: bool) -> Constraints:
    """Return what is fixed of a run's plan: its memory, too, where another machine plans it again.

    Parts of a run are planned by each machine, and a run that goes on when other memory is free.
    """
    from streammach.training.run import budget_of  # compiled code loads on demand
    from streammach.training.trainer import rows_held_out

    found = given.constraints().beside(given.training())
    if apart:  # repetitions are trained apart
        found = dataclasses.replace(found, parts={"linear": "off", **found.parts})
    if given.validation is not None:
        found = dataclasses.replace(found, held_out_rows=rows_held_out(given.validation))
    if found.shaped or found.memory is not None:
        return found
    kept = budget_of(out) if given.resume else None
    return dataclasses.replace(found, memory=DEFAULT_MEMORY if apart else kept)


def _trainer(
    plan: Plan, given: Arguments, shown: ProgressBar, start: Start | None = None
) -> Trainer:
    from streammach.training.trainer import Trainer  # compiled code loads on demand

    return Trainer(
        plan, given.training(), callbacks=watchers(shown),
        checkpoint_minutes=given.checkpoint_minutes, clock=given.clock(), start=start,
    )  # fmt: skip


def watchers(shown: ProgressBar) -> list[object]:
    """Return what watches a training of the command."""
    from streammach.training.callbacks import EarlyStopping, Progress  # loads on demand

    return [Progress(bar=shown), EarlyStopping()]


def say_plan(
    rows: Path | Dataset, out: Path, chosen: Plan, told: tuple[int, ProgressBar], note: str = ""
) -> None:
    """Say what will be trained, and the bytes that it takes of those that it may take."""
    from streammach.backends.registry import device_text  # compiled code loads on demand
    from streammach.reports.plan_text import budgets, model_text

    n_bytes, shown = told
    shown.close()  # the rest of the stages is the training's
    name = rows if isinstance(rows, Path) else rows.path
    shown.tell(
        f"{short_path(name)} -> {short_path(out)}  {note}{model_text(chosen)}, "
        f"{device_text(chosen)}"
    )
    projected = (n_bytes, chosen.device_projected_bytes)
    for (what, allowed, source), taken in zip(budgets(chosen), projected, strict=False):
        shown.tell(
            f"{'GPU' if what else 'memory':<9}{size_text(taken)} projected of "
            f"{size_text(allowed)} allowed ({source})"
        )


def _stages(result: Result) -> str:
    by_time = sorted(result.stages.items(), key=lambda item: -item[1])
    large = {name: seconds for name, seconds in by_time if seconds >= LARGE * result.seconds}
    rest = max(result.seconds - sum(large.values()), 0.0)
    return ", ".join(
        f"{name} {time_text(seconds)}" for name, seconds in {**large, "the rest": rest}.items()
    )


def say_run(run: Run, given: Arguments) -> bool:
    """Say what a finished run chose and reached, or print its object; return whether it is said."""
    if given.as_json:
        from streammach.reports.plan_text import plan_document  # compiled code loads on demand

        names = (
            "stopped", "estimator", "seconds", "stages", "projected_bytes", "peak_bytes",
            "device_projected_bytes", "device_peak_bytes", "warnings",
        )  # fmt: skip
        say_json({
            "run": str(run.path), "plan": plan_document(run.plan),
            "training": dataclasses.asdict(run.settings.training),
            "held_out": run.settings.held_out, "trials": msgspec.to_builtins(run.settings.trials),
            "history": msgspec.to_builtins(run.result.history),
            "best_epoch": run.result.best_epoch + 1,
            "validation": msgspec.to_builtins(run.result.validation),
            **{name: getattr(run.result, name) for name in names},
        })  # fmt: skip
        return False
    result, best = run.result, run.result.best
    for reason in (*run.settings.reasons, *result.reasons):
        say(reason)
    say(f"time: {_stages(result)}")
    listed = run.plan.facts.listed
    figures = "" if best is None else figures_text(best, listed=listed)
    reached = "" if best is None else f"held-out {figures} on {run.settings.held_out}; "
    epochs = f"epoch {result.best_epoch + 1} of {len(result.history)} kept"
    if not result.history:
        training = run.settings.training
        epochs = "no whole epoch" if training.epochs else training.text
    if run.plan.config.part("linear") is not None:
        reached, epochs = f"{figures}; ", "linear classifiers"  # how it was measured stands above
    say(
        f"{short_path(run.path)}: {reached}{epochs}"
        f"{f' ({result.stopped})' if result.stopped else ''}, {time_text(result.seconds)}, "
        f"peak {size_text(result.peak_bytes)} of {size_text(result.projected_bytes)} projected"
        + (
            f", of the GPU's buffers {size_text(result.device_peak_bytes)} of "
            f"{size_text(result.device_projected_bytes)}"
            if result.device_peak_bytes
            else ""
        )
    )
    return True


@command("streammach merge runs/odp part1 part2 part3")
@click.argument("run", metavar="RUN", type=options.PATH)
@click.argument("parts", nargs=-1, required=True, metavar="PART...", type=options.PATH)
@click.option("--store", metavar="STORE", type=options.STORE_PATH,
              help="The training store, where it lies elsewhere now.")  # fmt: skip
@click.option(
    "--validation", metavar="STORE", help="The store of held-out rows, where it lies elsewhere now."
)
@click.option("--class-weight", metavar="balanced|FILE",
              help="What the parts were trained with.  [default: 1 each]")  # fmt: skip
@click.option("--resume", is_flag=True, help="Go on with an interrupted merge.")
@options.add_shared_options(*options.CACHE, options.progress_option)
def merge(*, run: Path, parts: tuple[Path, ...], given: Arguments) -> None:
    """Join the parts of a run, in any order: all that train --part made with the same options.

    The model has the bytes of one that was trained at once. The parts are read only.
    """
    from streammach.planning.speed import speed  # compiled code loads on demand
    from streammach.training.trainer import merge as joined

    with ExitStack() as opened, ProgressBar(given.progress, "") as shown:
        speed()
        data = _data(parts[0], given, opened)
        said = {"data": data, "callbacks": watchers(shown)}
        made = joined(run, parts, **given.of(joined) | said)
    say_run(made, given)


def _data(part: Path, given: Arguments, opened: ExitStack) -> Path | Dataset | None:
    """Return the training store, or its view by weights of classes; None: the part knows it."""
    store: Path | None = given.store
    if given.class_weight is None:
        return store
    from streammach.data.class_weights import weigh_classes  # loads on demand
    from streammach.data.store.dataset import Dataset
    from streammach.training.run_part import RunPart

    place = locate(RunPart.open(part).facts.store) if store is None else store
    return weigh_classes(opened.enter_context(Dataset.open(place)), given.class_weight)
