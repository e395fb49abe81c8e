"""The command train."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from streammach.cli.arguments import RunArguments, recorded
from streammach.cli.options import (
    cluster_options,
    debug_option,
    epilog,
    json_option,
    progress_option,
    run_options,
)
from streammach.cli.output import Document, peak_of, say, say_json, short_path
from streammach.cli.places import STORE_PATH, cache_options
from streammach.cli.plans import made_plan
from streammach.errors import UsageError, clean
from streammach.figures import figures_text
from streammach.machine import size_text, time_text
from streammach.progress import Progress

if TYPE_CHECKING:
    from streammach.data.store.dataset import Dataset
    from streammach.spec.plan import Plan
    from streammach.training.run import Result, Run
    from streammach.training.run_part import RunPart
    from streammach.training.trainer import Trainer

LARGE = 0.1  # share of the time from which on a stage is named


@click.command(epilog=epilog("streammach train train.zarr --out runs/odp --memory 12GB"))
@click.argument("store", type=STORE_PATH)
@click.option("--out", required=True, metavar="RUN", type=click.Path(path_type=Path),
              help="Folder of the run.")  # fmt: skip
@run_options
@click.option(
    "--part",
    metavar="K/N",
    help="Train the repetitions of one of N parts alone, such as 3/8; merge joins them.",
)
@click.option("--settings", metavar="PART", type=click.Path(path_type=Path),
              help="With --part: another part, where transform and rate are decided already.  "
                   "[default: decided again]")  # fmt: skip
@cluster_options("Train")
@cache_options
@progress_option
@json_option
@debug_option
@recorded
def train(
    *, store: Path, out: Path, arguments: RunArguments, part: str | None, settings: Path | None,
    dask: str | None, devices: str | None, progress: str, as_json: bool,
) -> None:  # fmt: skip
    """Train a model within a memory budget.

    Without --memory, --buckets or --exact the budget is 2GB. Transform, learning rate and
    estimator are chosen on held-out rows where they are not given; what was chosen and why is said.
    """
    if part is None and settings is not None:
        raise UsageError("a whole run decides itself: --settings without --part")
    if len([one for one in (part, dask, devices) if one is not None]) > 1:
        raise UsageError("only one of these can be: --part, --dask, --devices")
    if part is not None:
        _train_part(store, out, arguments, (part, settings), progress, as_json=as_json)
        return
    if dask is not None or devices is not None:
        run = _trained_apart(store, out, arguments, (dask, devices), progress)
    else:
        run = trained(store, out, arguments, progress)
    if as_json:
        say_json(run_document(run))
        return
    say_run(run)


def trained(store: Path, out: Path, arguments: RunArguments, progress: str) -> Run:
    """Plan and train as asked; tell how it goes."""
    with _weighed_rows(store, out, arguments, progress) as (rows, shown):
        chosen = _planned(rows, out, arguments)
        trainer = _trainer(chosen, arguments, shown)
        _say_plan(rows, out, chosen, (chosen.projected_bytes, shown))
        _make_way(out, arguments)
        return trainer.fit(rows, out, resume=arguments.resume)


def _trained_apart(
    store: Path, out: Path, arguments: RunArguments, where: tuple[str | None, str | None],
    progress: str,
) -> Run:  # fmt: skip
    """Plan here, train on the workers of a cluster or in processes of this machine."""
    if arguments.pilot is not None or arguments.time is not None:
        raise UsageError(
            "what depends on a machine's speed is not trained in parts: --pilot, --time"
        )
    from streammach.cluster.distributed import train as train_apart  # loads on demand
    from streammach.cluster.workers import CPU, check_installed, connected, devices_of, started_here

    (address, devices), device = where, arguments.device
    check_installed()
    named = devices_of(devices or CPU)
    wanted = CPU if {*named} == {CPU} else "cuda"
    if devices is not None and device not in ("auto", wanted):
        raise UsageError(f"--device {device} and --devices {clean(devices)} differ")
    arguments = arguments.but(device=wanted if device == "auto" else device)
    with ExitStack() as opened:
        client = None if address is None else opened.enter_context(connected(address))
        rows, shown = opened.enter_context(_weighed_rows(store, out, arguments, progress))
        plan = made_plan(rows, arguments)
        _say_plan(rows, out, plan, (plan.projected_bytes, shown))
        if client is None:
            threads = plan.config.placement.threads
            client = opened.enter_context(started_here(named, threads))
        _make_way(out, arguments)
        return train_apart(
            store, plan, client, out=out, options=arguments.training(),
            class_weight=arguments.class_weight, callbacks=_watchers(shown),
            checkpoint_minutes=arguments.checkpoint_minutes, tell=shown.tell,
            resume=arguments.resume,
        )  # fmt: skip


def _train_part(
    store: Path, out: Path, arguments: RunArguments, which: tuple[str, Path | None], progress: str,
    *, as_json: bool,
) -> None:  # fmt: skip
    """Train the repetitions of a part, and say so."""
    from streammach.training.run import PART_OF_RUN  # compiled code loads on demand
    from streammach.training.run_part import PartNumber

    number, settings = PartNumber.of_text(which[0]), which[1]
    if arguments.pilot is not None:
        hint = "Give the --buckets and --repetitions that a pilot chose."
        raise UsageError("samples may say something else in each part: --pilot", hint=hint)
    with _weighed_rows(store, out, arguments, progress, PART_OF_RUN) as (rows, shown):
        plan = made_plan(rows, arguments)
        number.check(plan, arguments.training())
        projected = number.projected_bytes(plan, decides=settings is None)
        _say_plan(rows, out, plan, (projected, shown), f"part {number} of ")
        part = _trainer(plan, arguments, shown).fit_part(
            rows, out, (number.number, number.of), settings=settings, resume=arguments.resume
        )
    if as_json:
        say_json(_part_document(part, projected))
        return
    first, last = part.repetitions
    assert part.settings is not None, "it is finished"
    say(
        f"{short_path(part.path)}: part {number}, repetitions {first + 1} to {last} of "
        f"{plan.n_repetitions}, {part.settings.training.epochs} epochs; peak "
        f"{size_text(peak_of(projected))} of {size_text(projected)} projected"
    )
    say("all parts make a run: streammach merge RUN PART...")


def _part_document(part: RunPart, projected: int) -> Document:
    """Return a finished part as one JSON-ready object."""
    assert part.settings is not None, "it is finished"
    first, last = part.repetitions
    return {
        "part": str(part.path), "number": part.facts.part.number, "of": part.facts.part.of,
        "first_repetition": first + 1, "last_repetition": last,
        "repetitions": part.plan.n_repetitions, "epochs": part.settings.training.epochs,
        "projected_bytes": projected, "peak_bytes": peak_of(projected),
    }  # fmt: skip


@contextmanager
def _weighed_rows(
    store: Path, out: Path, arguments: RunArguments, progress: str, kind: str = "run"
) -> Iterator[tuple[Path | Dataset, Progress]]:
    """Yield a store, or its view by weights of classes, and what tells."""
    if arguments.pilot is not None and arguments.class_weight is not None:
        raise UsageError("samples are compared without weights of classes: --pilot")
    with ExitStack() as opened, Progress(progress, "") as shown:
        shown("plan", 0, 0)
        from streammach.data.class_weights import weighed  # compiled code loads on demand
        from streammach.data.store.dataset import Dataset
        from streammach.planning.speed import speed
        from streammach.training.ours import entered

        entered(out, resume=arguments.resume, force=arguments.force, kind=kind)
        rows: Path | Dataset = store
        if arguments.class_weight is not None:
            data = opened.enter_context(Dataset.open(store))
            rows = weighed(data, arguments.class_weight)
        speed()
        yield rows, shown


def _make_way(out: Path, arguments: RunArguments) -> None:
    """Remove the run that is there, where it is to be replaced."""
    from streammach.training.ours import replaced  # loads on demand

    if arguments.force:
        replaced(out)


def _trainer(plan: Plan, arguments: RunArguments, shown: Progress) -> Trainer:
    """Return the trainer by a plan and options."""
    from streammach.training.trainer import Trainer  # compiled code loads on demand

    return Trainer(
        plan, arguments.training(), callbacks=_watchers(shown),
        checkpoint_minutes=arguments.checkpoint_minutes, clock=arguments.clock(),
    )  # fmt: skip


def _watchers(shown: Progress) -> list[object]:
    """Return what watches a training."""
    from streammach.training.callbacks import EarlyStopping, watcher  # loads on demand

    return [watcher(shown), EarlyStopping()]


def _say_plan(
    rows: Path | Dataset, out: Path, chosen: Plan, told: tuple[int, Progress], note: str = ""
) -> None:
    """Say what will be trained, and the bytes that it takes of those that it may take."""
    from streammach.backends.registry import device_text  # compiled code loads on demand
    from streammach.reports.plan_text import budgets, shape_text

    n_bytes, shown = told
    shown.close()  # the rest of the stages is the training's
    name = rows if isinstance(rows, Path) else rows.path
    shown.tell(
        f"{short_path(name)} -> {short_path(out)}  {note}{shape_text(chosen)} "
        f"{chosen.config.placement.numbers}, {device_text(chosen)}"
    )
    projected = (n_bytes, chosen.device_projected_bytes)
    for (what, allowed, source), taken in zip(budgets(chosen), projected, strict=False):
        shown.tell(
            f"{'GPU' if what else 'memory':<9}{size_text(taken)} projected of "
            f"{size_text(allowed)} allowed ({source})"
        )


def _planned(rows: Path | Dataset, out: Path, arguments: RunArguments) -> Plan:
    """Return the plan of a training: that of its run, where it goes on after a pilot."""
    from streammach.training.run import begun, planned  # loads on demand

    if arguments.pilot is None:
        return made_plan(rows, arguments)
    if begun(out, resume=arguments.resume):
        return planned(out)
    beside = next(folder for folder in out.absolute().parents if folder.is_dir())
    return made_plan(rows, arguments, beside)


def run_document(run: Run) -> Document:
    """Return a finished run as one JSON-ready object."""
    from streammach.reports.plan_text import plan_document  # compiled code loads on demand

    result = run.result
    return {
        "run": str(run.path),
        "plan": plan_document(run.plan),
        "training": dataclasses.asdict(run.settings.training),
        "held_out": run.settings.held_out,
        "trials": msgspec.to_builtins(run.settings.trials),
        "history": msgspec.to_builtins(result.history),
        "best_epoch": result.best_epoch + 1,
        "stopped": result.stopped,
        "estimator": result.estimator,
        "validation": msgspec.to_builtins(result.validation),
        "seconds": result.seconds,
        "stages": result.stages,
        "projected_bytes": result.projected_bytes,
        "peak_bytes": result.peak_bytes,
        "device_projected_bytes": result.device_projected_bytes,
        "device_peak_bytes": result.device_peak_bytes,
    }


def _stages(result: Result) -> str:
    """Return the stages that took long, and the rest."""
    by_time = sorted(result.stages.items(), key=lambda item: -item[1])
    large = {name: seconds for name, seconds in by_time if seconds >= LARGE * result.seconds}
    rest = max(result.seconds - sum(large.values()), 0.0)
    return ", ".join(
        f"{name} {time_text(seconds)}" for name, seconds in {**large, "the rest": rest}.items()
    )


def say_run(run: Run) -> None:
    """Say what a finished run chose and reached."""
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
