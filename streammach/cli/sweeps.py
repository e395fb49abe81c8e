"""The command sweep: a grid of models within a budget, and those worth their bytes."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from streammach.cli import options
from streammach.cli.arguments import Arguments, command
from streammach.cli.console import say, say_json, short_path, table
from streammach.errors import UsageError
from streammach.figures import words
from streammach.machine import size_text, time_text
from streammach.progress import ProgressBar

if TYPE_CHECKING:
    from streammach.figures import Reached
    from streammach.spec.plan import Plan
    from streammach.training.sweep import Sweep


@command("streammach sweep train.zarr --memory 2GB --out sweeps/odp")
@click.argument("store", type=options.STORE_PATH)
@click.option("--memory", required=True, metavar="SIZE",
              help="Budget of each training, such as 12GB or 500MB.")  # fmt: skip
@click.option("--out", required=True, metavar="FOLDER", type=options.PATH,
              help="Folder of the sweep: a run for each point.")  # fmt: skip
@click.option("--buckets", callback=options.numbers, default="32,128", show_default=True,
              metavar="B,B,...", help="Buckets of the grid.")  # fmt: skip
@click.option("--repetitions", callback=options.numbers, default="4,8,16", show_default=True,
              metavar="R,R,...", help="Repetitions of the grid.")  # fmt: skip
@click.option("--on", "test", metavar="TEST", type=options.STORE_PATH,
              help="Measure and compare the points on these rows.  "
                   "[default: held-out rows]")  # fmt: skip
@options.shared(
    *options.TRAINING, *options.PARTS, options.threads_option, options.seed_option, *options.CACHE,
    options.progress_option,
)  # fmt: skip
def sweep(
    *, store: Path, memory: str, out: Path, buckets: tuple[int, ...], repetitions: tuple[int, ...],
    given: Arguments,
) -> None:  # fmt: skip
    """Train a grid of models and show which are worth their bytes.

    Every B goes with every R; what does not fit the budget is listed. The same command goes on
    where it was interrupted: finished points are not trained again.
    """
    from streammach.training.callbacks import EarlyStopping, Progress  # compiled code loads late
    from streammach.training.sweep import sweep as run

    with ProgressBar(given.progress, "") as shown:

        def callbacks(plan: Plan) -> list[Any]:
            shown.tell(
                f"{short_path(store)} -> {short_path(out)}  {plan.n_buckets} x "
                f"{plan.n_repetitions}, {size_text(plan.projected_bytes)} projected"
            )
            return [Progress(bar=shown, stages=False), EarlyStopping()]

        found = run(
            store, out, memory=memory, buckets=buckets, repetitions=repetitions, test=given.test,
            training=given.training(), callbacks=callbacks, progress=shown,
            told=lambda one: shown.tell(
                f"{one.buckets} x {one.repetitions} "
                f"{'done' if hasattr(one, 'run') else 'does not fit'}"
            ),
            constraints=given.constraints(),
        )  # fmt: skip
    page = _draw(found, out)
    if given.as_json:
        say_json({**msgspec.to_builtins(found), "page": None if page is None else str(page)})
        return
    for line in table(_rows(found)):
        say(line)
    for one in found.refused:
        say(f"left out: {one.reason}")
    rows = "test" if found.tested else "held-out"
    say(f"{short_path(page or out)}: {len(found.points)} points; *: no other has fewer bytes and "
        f"more {rows} {words(bool(found.listed)).first}")  # fmt: skip


def _draw(found: Sweep, out: Path) -> Path | None:
    from streammach.files.destinations import Destination  # loads on demand
    from streammach.reports.pages import sweep_page
    from streammach.training.run import PAGE

    try:
        content = sweep_page(found, out)
        # The sweep goes on, and so does it.
        page = Destination(out / "sweep.html", PAGE, force=True)
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
    rows = (
        (
            found.shape_of(point),
            size_text(point.model_bytes), size_text(point.peak_bytes), time_text(point.seconds),
            *_figures(point.held_out), *_figures(point.test), "*" if point.frontier else "",
        )
        for point in found.points
    )  # fmt: skip
    return [header, *rows]


def _figures(reached: Reached | None) -> tuple[str, str]:
    if reached is None:
        return "-", "-"
    return f"{reached.accuracy:.3f}", f"{reached.top_5_accuracy:.3f}"
