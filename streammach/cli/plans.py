"""How a plan is made from options, and how it is shown."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import click

from streammach.cli.arguments import RunArguments, recorded
from streammach.cli.options import debug_option, epilog, json_option, shape_options
from streammach.cli.output import handlers_installed, say, say_json
from streammach.cli.places import STORE_PATH, cache_options
from streammach.errors import clean
from streammach.processes import run
from streammach.progress import tell

if TYPE_CHECKING:
    from streammach.data.store.dataset import Dataset
    from streammach.planning.constraints import Constraints
    from streammach.spec.plan import Plan
    from streammach.spec.training import TrainingOptions

PATIENCE_SECONDS = 2.0  # for a pilot to heed a signal: it keeps nothing


def made_plan(store: Path | Dataset, arguments: RunArguments, folder: Path | None = None) -> Plan:
    """Return the plan for a store; with ``--pilot``, samples are trained on first."""
    # That is done in a process of its own, and in `folder` where one is given.
    from streammach.planning.choose import plan as choose  # compiled code loads on demand

    constraints = arguments.constraints()
    if arguments.pilot is None:
        return choose(store, constraints)
    how = PilotRun(arguments.pilot, constraints, arguments.training(), folder)
    made: Plan = run("streammach.cli.plans:pilot_here", store, how, patience=PATIENCE_SECONDS)
    return made


@dataclasses.dataclass(frozen=True)
class PilotRun:
    """A pilot: its time, what is fixed of plan and trainings, and its folder if one is given."""

    within: str
    constraints: Constraints
    training: TrainingOptions
    folder: Path | None


def pilot_here(store: Path, how: PilotRun) -> Plan:
    """Train on samples, in a process of its own."""
    from streammach.data.store.dataset import Dataset  # compiled code loads on demand
    from streammach.reports.plan_text import pilot_line
    from streammach.training.pilot import pilot

    with handlers_installed():
        with Dataset.open(store) as data:
            listed = data.listed
        return pilot(
            store, how.within, constraints=how.constraints, training=how.training,
            folder=how.folder, told=lambda one: tell(pilot_line(one, listed=listed)),
        )  # fmt: skip


@click.command(epilog=epilog("streammach plan train.zarr --memory 12GB"))
@click.argument("store", type=STORE_PATH)
@shape_options
@cache_options
@json_option
@debug_option
@recorded
def plan(store: Path, arguments: RunArguments, as_json: bool) -> None:
    """Choose the model that fits a memory budget.

    Every byte is accounted for. What is lost is expected, in points of the mean of accuracy and
    top-5 accuracy, against the best model of any size; so is the time of a training. Without
    --memory, --buckets or --exact the budget is 2GB.
    """
    from streammach.reports.plan_text import plan_document, plan_lines  # loads on demand

    chosen = made_plan(store, arguments)
    if as_json:
        say_json(plan_document(chosen))
        return
    names = ("memory", "buckets", "repetitions", "time", "latency", "pilot")
    given = ((name, getattr(arguments, name)) for name in names)
    again = "".join(f" --{name} {said}" for name, said in given if said is not None)
    command = f"streammach train {clean(store, 300)} --out RUN{again}"
    for line in plan_lines(chosen, command):
        say(line)
