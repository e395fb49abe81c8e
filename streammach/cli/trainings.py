"""The commands that plan and train: plan, train, merge."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from streammach.cli.console import peak_of, say, say_json, short_path
from streammach.cli.options import PATH, STORE_PATH, command
from streammach.options.figures import figures_text
from streammach.options.option_fields import option
from streammach.options.training import TrainingOptions
from streammach.options.types import StorePath
from streammach.planning.constraints import CARD, Constraints
from streammach.system.clock import Clock
from streammach.system.errors import UsageError, clean
from streammach.system.files.urls import locate
from streammach.system.machine import DEFAULT_MEMORY, size_text, time_text
from streammach.system.progress import ProgressBar

if TYPE_CHECKING:
    from streammach.options.plan import Plan
    from streammach.store.dataset import Dataset
    from streammach.store.label_facts import LabelFacts
    from streammach.training.run import Result, Run
    from streammach.training.trainer import Trainer
    from streammach.training.warm_start import Start

SIZES = "rows=N,classes=N,features=N,values=N[,labels=N]"
LARGE = 0.1  # share of the time from which on a stage is named


@dataclass(frozen=True, kw_only=True)
class LabelOptions:
    """What is said of labels beside the rows that have them."""

    class_weight: str | None = option(
        None, "What rows count for by their class: balanced, all classes alike; or a file of "
        "labels, a tab and a weight in each line.", "balanced|FILE", usual="1 each",
    )  # fmt: skip
    label_names: str | None = option(
        None, "What labels are called: a file with a label, a tab and its name in each line; or a "
        "vocabulary in SKOS; or labels are names themselves.", "labels|FILE",
        usual="what the store says",
    )  # fmt: skip
    label_language: str | None = option(
        None, "Of names in SKOS: those of these languages, such as de,en.", "CODES",
        usual="all languages",
    )  # fmt: skip

    @property
    def facts(self) -> LabelFacts:
        """The same for a data set."""
        from streammach.store.label_facts import LabelFacts  # compiled code loads on demand

        return LabelFacts(
            weights=self.class_weight, names=self.label_names, language=self.label_language
        )


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How a run is planned and trained."""

    constraints: Constraints = field(default_factory=Constraints)
    training: TrainingOptions = field(default_factory=TrainingOptions)
    labels: LabelOptions = field(default_factory=LabelOptions)
    checkpoint_minutes: float = option(10.0, "Time between checkpoints.", "X", least=0)
    resume: bool = option(False, "Go on with an interrupted run.")
    force: bool = option(False, "Replace a run that is there, if nothing else is in its folder.")


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """What is trained: a run, one that goes on from another, or a part of one."""

    out: Path = option(..., "Folder of the run.", "RUN")
    run: RunOptions = field(default_factory=RunOptions)
    start: Path | None = option(
        None, "Go on from a run whose store this one extends: one epoch of the new rows and of "
        "some old ones.", "RUN",
    )  # fmt: skip
    part: str | None = option(
        None, "Train the repetitions of one of N parts alone, such as 3/8; merge joins them.",
        "K/N",
    )  # fmt: skip
    settings: Path | None = option(
        None, "With --part: another part, where transform and rate are decided already.",
        "PART", usual="decided again",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Elsewhere:
    """What a plan is made for that is not here: rows, a machine."""

    shape: str | None = option(
        None, "Plan for rows that are not here; values may be dense, labels of a row are 1.", SIZES
    )
    card: str | None = option(None, CARD, "CARD")


@command("streammach plan train.zarr --memory 12GB", cached=True)
@click.argument("store", type=STORE_PATH, required=False)
def plan(*, store: Path | None, other: Elsewhere, constraints: Constraints, as_json: bool) -> None:
    """Choose the model that fits a memory budget.

    Every byte is accounted for. What is lost is expected, in points of the mean of accuracy and
    top-5 accuracy, against the best model of any size; so is the time of a training. Without
    --memory, --buckets or --exact the budget is half of what is free, 2 to 12GB; of another
    machine, which has 8 --threads, all of its card or 12GB.
    """
    if (store is None) == (other.shape is None):
        raise UsageError("name a store or the sizes of rows: STORE, --shape")
    from streammach.cli.plan_text import plan_document, plan_lines
    from streammach.planning.choose import plan as choose  # compiled code loads on demand
    from streammach.planning.data_shape import Shape

    rows = store or Shape.of_text(other.shape or "")
    chosen = choose(rows, dataclasses.replace(constraints, card=other.card))
    if as_json:
        say_json(plan_document(chosen))
        return
    names = ("memory", "n_buckets", "n_repetitions", "time", "latency")
    fixed = {name.removeprefix("n_"): getattr(constraints, name) for name in names}
    if chosen.elsewhere and not constraints.exact:
        fixed["memory"] = f"{(chosen.limits.device or chosen.limits.host) / 1e9:g}GB"
    again = "".join(f" --{name} {x}" for name, x in fixed.items() if x is not None)
    command = f"streammach train {clean(store or 'STORE', 300)} --out RUN{again}"
    for line in plan_lines(chosen, command):
        say(line)


@command("streammach train train.zarr --out runs/odp --memory 12GB", cached=True,
         elsewhere="train")  # fmt: skip
@click.argument("store", type=STORE_PATH)
def train(
    *, store: Path, options: TrainOptions, elsewhere: Any, progress: str, as_json: bool
) -> None:
    """Train a model within a memory budget.

    Without --memory, --buckets or --exact the budget is half of what is free, 2 to 12GB; 2GB where
    parts of a run are trained apart. Transform, learning rate and estimator are chosen on held-out
    rows where they are not given; what was chosen and why is said.
    """
    if options.part is None and options.settings is not None:
        raise UsageError("a whole run decides itself: --settings without --part")
    if options.start is not None and (elsewhere is not None or options.part is not None):
        raise UsageError("what goes on from a run is trained at once, here: --start")
    if elsewhere is not None:
        say_run(elsewhere.train(store, options, progress), as_json=as_json)
    elif options.part is not None:
        _train_part(store, options, options.part, progress, as_json=as_json)
    else:
        run = train_run(store, options.out, options.run, progress, start=options.start)
        say_run(run, as_json=as_json)


def train_run(
    store: Path, out: Path, options: RunOptions, progress: str, *, start: Path | None = None
) -> Run:
    """Plan and train as asked; tell how it goes."""
    opened = planned_rows(store, out, options, progress, start=start)
    with opened as (rows, chosen, shown, origin):
        from streammach.training.replacing import run_folder  # loads on demand
        from streammach.training.run import Run
        from streammach.training.small_training import rehearsal

        trainer = _trainer(chosen, options, shown, origin)
        say_plan(rows, out, chosen, (chosen.projected_bytes, shown))
        place = run_folder(out, force=options.force, resume=options.resume)
        with rehearsal(chosen), place as folder:
            trainer.fit(rows, folder, resume=options.resume)
        return Run.open(out)


def _train_part(
    store: Path, options: TrainOptions, part: str, progress: str, *, as_json: bool
) -> None:
    from streammach.training.run import PART_OF_RUN  # compiled code loads on demand
    from streammach.training.run_part import PartNumber

    number, run, out = PartNumber.of_text(part), options.run, options.out
    opened = planned_rows(store, out, run, progress, PART_OF_RUN, apart=True)
    with opened as (rows, plan, shown, _):
        number.check(plan, run.training)
        projected = number.projected_bytes(plan, decides=options.settings is None)
        say_plan(rows, out, plan, (projected, shown), f"part {number} of ")
        made = _trainer(plan, run, shown).fit_part(
            rows, out, (number.number, number.of), settings=options.settings, resume=run.resume
        )
    first, last = made.repetitions
    assert made.settings is not None, "it is finished"
    if as_json:
        say_json({
            "part": str(made.path), "number": number.number, "of": number.of,
            "first_repetition": first + 1, "last_repetition": last,
            "repetitions": plan.n_repetitions, "epochs": made.settings.training.epochs,
            "projected_bytes": projected, "peak_bytes": peak_of(projected),
        })  # fmt: skip
        return
    say(
        f"{short_path(made.path)}: part {number}, repetitions {first + 1} to {last} of "
        f"{plan.n_repetitions}, {made.settings.training.epochs} epochs; peak "
        f"{size_text(peak_of(projected))} of {size_text(projected)} projected"
    )
    say("all parts make a run: streammach merge RUN PART...")


@contextmanager
def planned_rows(
    store: Path, out: Path, options: RunOptions, progress: str, kind: str = "run", *,
    apart: bool = False, start: Path | None = None,
) -> Iterator[tuple[Dataset, Plan, ProgressBar, Start | None]]:  # fmt: skip
    """Yield a store as it is by what is said of labels, its plan, what tells, where it starts.

    Where its parts are trained `apart`, perhaps by several machines, all of them plan alike.
    """
    with ExitStack() as opened, ProgressBar(progress, "") as shown:
        shown("plan", 0, 0)
        from streammach.planning.choose import plan as choose
        from streammach.planning.speed import speed
        from streammach.store.dataset import Dataset  # compiled code loads on demand
        from streammach.training.replacing import check_run_folder
        from streammach.training.warm_start import Start

        check_run_folder(out, resume=options.resume, force=options.force, kind=kind)
        rows = options.labels.facts.view(opened.enter_context(Dataset.open(store)))
        speed(again=not (apart or options.resume))  # those plan as they did
        fixed = _constraints(out, options, apart=apart)
        origin = None if start is None else Start.of(start, rows)
        yield rows, (choose if origin is None else origin.plan)(rows, fixed), shown, origin


def _constraints(out: Path, options: RunOptions, *, apart: bool) -> Constraints:
    """Return what is fixed of a run's plan: its memory, too, where another machine plans it again.

    Parts of a run are planned by each machine, and a run that goes on when other memory is free.
    """
    from streammach.planning.choose import rows_held_out
    from streammach.training.run import budget_of  # compiled code loads on demand

    fixed = options.constraints.beside(options.training)
    if apart:  # repetitions are trained apart
        fixed = dataclasses.replace(fixed, parts={"linear": "off", **fixed.parts})
    if options.training.validation is not None:
        n_rows = rows_held_out(options.training.validation)
        fixed = dataclasses.replace(fixed, held_out_rows=n_rows)
    if fixed.shaped or fixed.memory is not None:
        return fixed
    kept = budget_of(out) if options.resume else None
    return dataclasses.replace(fixed, memory=DEFAULT_MEMORY if apart else kept)


def _trainer(
    plan: Plan, options: RunOptions, shown: ProgressBar, start: Start | None = None
) -> Trainer:
    from streammach.training.trainer import Trainer  # compiled code loads on demand

    return Trainer(
        plan, options.training, callbacks=watchers(shown), start=start,
        checkpoint_minutes=options.checkpoint_minutes,
        clock=Clock.of_process(options.constraints.seconds),
    )  # fmt: skip


def watchers(shown: ProgressBar) -> list[object]:
    """Return what watches a training of the command."""
    from streammach.training.callbacks import EarlyStopping, Progress  # loads on demand

    return [Progress(bar=shown), EarlyStopping()]


def say_plan(
    rows: Dataset, out: Path, chosen: Plan, told: tuple[int, ProgressBar], note: str = ""
) -> None:
    """Say what will be trained, and the bytes that it takes of those that it may take."""
    from streammach.backends.registry import device_text  # compiled code loads on demand
    from streammach.cli.plan_text import budgets, model_text

    n_bytes, shown = told
    shown.close()  # the rest of the stages is the training's
    shown.tell(
        f"{short_path(rows.path)} -> {short_path(out)}  {note}{model_text(chosen)}, "
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


def say_run(run: Run, *, as_json: bool) -> bool:
    """Say what a finished run chose and reached, or print its object; return whether it is said."""
    if as_json:
        from streammach.cli.plan_text import plan_document  # compiled code loads on demand

        names = (
            "stopped", "estimator", "seconds", "stages", "projected_bytes", "peak_bytes",
            "device_projected_bytes", "device_peak_bytes", "warnings",
        )  # fmt: skip
        say_json({
            "run": str(run.path), "plan": plan_document(run.plan),
            "training": run.settings.training,
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
    if run.plan.config.linear:
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


@dataclass(frozen=True, kw_only=True)
class MergeOptions:
    """Where the parts of a run find what they were trained on."""

    store: StorePath | None = option(
        None, "The training store, where it lies elsewhere now.", "STORE"
    )
    validation: str | None = option(
        None, "The store of held-out rows, where it lies elsewhere now.", "STORE"
    )
    labels: LabelOptions = field(default_factory=LabelOptions)
    resume: bool = option(False, "Go on with an interrupted merge.")


@command("streammach merge runs/odp part1 part2 part3", cached=True)
@click.argument("run", metavar="RUN", type=PATH)
@click.argument("parts", nargs=-1, required=True, metavar="PART...", type=PATH)
def merge(
    *, run: Path, parts: tuple[Path, ...], options: MergeOptions, progress: str, as_json: bool
) -> None:
    """Join the parts of a run, in any order: all that train --part made with the same options.

    The model has the bytes of one that was trained at once. The parts are read only.
    """
    from streammach.planning.speed import speed  # compiled code loads on demand
    from streammach.training.trainer import merge as joined

    with ExitStack() as opened, ProgressBar(progress, "") as shown:
        speed()
        from streammach.store.dataset import Dataset
        from streammach.training.run_part import RunPart  # compiled code loads on demand

        store = options.store or locate(RunPart.open(parts[0]).facts.store)
        data = options.labels.facts.view(opened.enter_context(Dataset.open(store)))
        made = joined(
            run, parts, data=data, validation=options.validation, callbacks=watchers(shown),
            resume=options.resume,
        )  # fmt: skip
    say_run(made, as_json=as_json)
