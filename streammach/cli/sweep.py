"""The command sweep: a grid of models within a budget, and those worth their bytes."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from streammach.cli.arguments import RunArguments, recorded
from streammach.cli.options import (
    debug_option,
    epilog,
    json_option,
    part_options,
    progress_option,
    seed_option,
    threads_option,
    training_options,
)
from streammach.cli.output import say, say_json, short_path, table
from streammach.cli.places import STORE_PATH, cache_options
from streammach.errors import UsageError
from streammach.figures import words
from streammach.machine import size_text, time_text
from streammach.progress import Progress

if TYPE_CHECKING:
    from streammach.figures import Reached
    from streammach.spec.plan import Plan
    from streammach.training.sweep import Infeasible, Point, Sweep


def _numbers(ctx: click.Context, param: click.Parameter, value: str) -> tuple[int, ...]:
    """Return whole numbers that stand with commas between."""
    parts = value.split(",")
    if not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
        raise click.BadParameter(f"'{value}' is not a list such as 4,8,16", ctx, param)
    return tuple(int(part) for part in parts)


@click.command(epilog=epilog("streammach sweep train.zarr --memory 2GB --out sweeps/odp"))
@click.argument("store", type=STORE_PATH)
@click.option("--memory", required=True, metavar="SIZE",
              help="Budget of each training, such as 12GB or 500MB.")  # fmt: skip
@click.option("--out", required=True, metavar="FOLDER", type=click.Path(path_type=Path),
              help="Folder of the sweep: a run for each point.")  # fmt: skip
@click.option("--buckets", callback=_numbers, default="32,128", show_default=True,
              metavar="B,B,...", help="Buckets of the grid.")  # fmt: skip
@click.option("--repetitions", callback=_numbers, default="4,8,16", show_default=True,
              metavar="R,R,...", help="Repetitions of the grid.")  # fmt: skip
@click.option("--on", "test", metavar="TEST", type=STORE_PATH,
              help="Measure and compare the points on these rows.  "
                   "[default: held-out rows]")  # fmt: skip
@training_options
@part_options
@threads_option
@seed_option
@cache_options
@progress_option
@json_option
@debug_option
@recorded
def sweep(
    *,
    store: Path,
    memory: str,
    out: Path,
    buckets: tuple[int, ...],
    repetitions: tuple[int, ...],
    test: Path | None,
    arguments: RunArguments,
    progress: str,
    as_json: bool,
) -> None:
    """Train a grid of models and show which are worth their bytes.

    Every B goes with every R; what does not fit the budget is listed. The same command goes on
    where it was interrupted: finished points are not trained again.
    """
    from streammach.planning.constraints import Constraints
    from streammach.training.callbacks import EarlyStopping, watcher  # compiled code loads late
    from streammach.training.sweep import sweep as run

    with Progress(progress, "") as shown:

        def callbacks(plan: Plan) -> list[Any]:
            shown.tell(
                f"{short_path(store)} -> {short_path(out)}  {plan.n_buckets} x "
                f"{plan.n_repetitions}, {size_text(plan.projected_bytes)} projected"
            )
            return [watcher(shown, stages=False), EarlyStopping()]

        found = run(
            store, out, memory=memory, buckets=buckets, repetitions=repetitions, test=test,
            training=arguments.training(), callbacks=callbacks, progress=shown,
            told=lambda one: shown.tell(_told(one)),
            constraints=Constraints(
                seed=arguments.seed, threads=arguments.threads, parts=arguments.parts
            ),
        )  # fmt: skip
    page = _draw(found, out)
    if as_json:
        say_json({**msgspec.to_builtins(found), "page": None if page is None else str(page)})
        return
    for line in table(_rows(found)):
        say(line)
    for one in found.refused:
        say(f"left out: {one.reason}")
    rows = "test" if found.tested else "held-out"
    say(f"{short_path(page or out)}: {len(found.points)} points; *: no other has fewer bytes and "
        f"more {rows} {words(bool(found.listed)).first}")  # fmt: skip


def _told(found: Point | Infeasible) -> str:
    what = "done" if hasattr(found, "run") else "does not fit"
    return f"{found.buckets} x {found.repetitions} {what}"


def _draw(found: Sweep, out: Path) -> Path | None:
    """Write the page; where it cannot be drawn, warn."""
    from streammach.files.destinations import Destination  # loads on demand
    from streammach.reports.pages import sweep_page
    from streammach.training.ours import PAGE

    try:
        content = sweep_page(found, out)
        page = Destination(
            out / "sweep.html", PAGE, force=True
        )  # the sweep goes on, and so does it
        page.write(content.encode())
    except UsageError as error:
        warnings.warn(f"no page was drawn: {error}", stacklevel=1)
        return None
    return page.path


def _rows(found: Sweep) -> list[tuple[str, ...]]:
    said = words(bool(found.listed))
    header = (
        "B x R", "model", "peak", "time", f"held-out {said.first}", said.five,
        f"test {said.first}", said.five, "frontier",
    )  # fmt: skip
    return [header, *(_row(found, point) for point in found.points)]


def _row(found: Sweep, point: Point) -> tuple[str, ...]:
    return (
        found.shape_of(point),
        size_text(point.model_bytes), size_text(point.peak_bytes), time_text(point.seconds),
        *_figures(point.held_out), *_figures(point.test), "*" if point.frontier else "",
    )  # fmt: skip


def _figures(reached: Reached | None) -> tuple[str, str]:
    if reached is None:
        return "-", "-"
    return f"{reached.accuracy:.3f}", f"{reached.top_5_accuracy:.3f}"
