"""How a plan is made from options, and how it is shown."""

from __future__ import annotations

import dataclasses
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streammach.cli.conduct import conducted
from streammach.cli.options import debug_option, epilog, json_option, shape_options
from streammach.cli.output import say, say_json, tell
from streammach.errors import clean
from streammach.machine import parse_size, size_text, time_text
from streammach.processes import run

if TYPE_CHECKING:
    from streammach.spec import Budget, DataFacts, Option, Pilot, Plan

MAX_COLUMNS = 100
PATIENCE_SECONDS = 2.0  # for a pilot to heed a signal: it keeps nothing
HEADING = "      B    R  beside        batch   memory    model  lost        query    training"


def made_plan(store: Path, options: dict[str, Any], folder: Path | None = None) -> Plan:
    """Return the plan for a store that the options of :func:`shape_options` ask for.

    With ``--pilot``, trainings on samples come first, in a process of their own, and in a folder
    where one is given.
    """
    from streammach.planning.choose import plan as choose  # compiled code loads on demand

    memory = options["memory"]
    asked = {
        "memory": parse_size(memory) if memory is not None else None,
        "n_buckets": options["buckets"],
        "n_repetitions": options["repetitions"],
        "closed_form": not options["no_closed_form"],
        "whitening": not options["no_whitening"],
    }
    same = ("exact", "batch_size", "optimizer", "counts", "time", "latency", "objective", "device")
    asked |= {name: options[name] for name in (*same, "weights", "threads", "seed")}
    if options["pilot"] is None:
        return choose(store, **asked)
    made: Plan = run("streammach.cli.plans:pilot_here", store, options, asked, folder,
                     patience=PATIENCE_SECONDS)  # fmt: skip
    return made


def pilot_here(
    store: Path, options: dict[str, Any], asked: dict[str, Any], folder: Path | None
) -> Plan:
    """Train on samples, in a process of its own."""
    from streammach.training.asked import Training  # compiled code loads on demand
    from streammach.training.pilot import pilot

    fields = [field.name for field in dataclasses.fields(Training)]
    training = Training(**{name: options[name] for name in fields if name in options})
    with conducted():
        return pilot(
            store, options["pilot"], training=training, folder=folder,
            told=lambda one: tell(_pilot_line(one)), **asked,
        )  # fmt: skip


def shape_text(plan: Plan) -> str:
    """Return the model's shape for people."""
    if plan.model.exact:
        return f"exact ({plan.n_buckets:,} classes)"
    return f"{plan.n_buckets} x {plan.n_repetitions}"


def plan_lines(plan: Plan, following: str | None) -> list[str]:
    """Return the report of a plan as lines of at most 100 columns.

    Parameters
    ----------
    plan : Plan
        The plan.
    following : str or None
        The command to go on with.
    """
    facts = plan.facts
    rows = [
        f"store    {clean(facts.path, 300)}",
        f"         {facts.n_rows:,} rows, {facts.n_features:,} features, "
        f"{facts.n_classes:,} classes, {facts.nnz / facts.n_rows:.3g} values a row",
        *_wrapped("device", plan.device_text),
        *(
            f"{'' if i else 'budget':<9}{size_text(allowed)} {what}allowed ({source})"
            for i, (what, allowed, source) in enumerate(budgets(plan))
        ),
        HEADING,
        *(_option_line(option, plan) for option in plan.options),
        *(_pilot_line(one) for one in plan.pilots),
        f"chosen   {shape_text(plan)} {plan.weights}, {plan.optimizer}, batch {plan.batch_size:,}",
        *(line for reason in plan.reasons for line in _wrapped("why", reason)),
        *_ledger_lines(plan),
    ]
    if plan.budgets:
        rows += _wrapped("budgets", "; ".join(_budget_text(b, facts) for b in plan.budgets))
    if following is not None:
        rows.append(f"next     {following}")
    return rows


def _wrapped(head: str, text: str) -> list[str]:
    """Return a text behind its head as lines of at most 100 columns."""
    return textwrap.wrap(
        text, MAX_COLUMNS, initial_indent=f"{head:<9}", subsequent_indent=" " * 9,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def budgets(plan: Plan) -> list[tuple[str, int, str]]:
    """Return what a budget is of, its bytes, and who set it: the host's, then the device's."""
    found = [("", plan.allowed_bytes, plan.limit_source)]
    if plan.device_allowed_bytes:
        found.append(("of GPU memory ", plan.device_allowed_bytes, plan.device_limit_source))
    return found


def _option_line(option: Option, plan: Plan) -> str:
    mark = ">" if option.chosen else " "
    shape = f"{option.n_buckets:>6}{option.n_repetitions:>5}"
    if option.n_buckets == plan.facts.n_classes:
        shape = f"{'exact':>6}{'':>5}"
    loss = f"{option.loss:.1f} +- {option.loss_error:.1f}"
    time = query = "not known"
    if plan.device == "cpu":
        time, query = time_text(option.seconds), time_text(option.query_seconds)
    if not option.fits:
        time = "does not fit"
    return (
        f"{mark}{shape}  {_beside(option):<11} {option.batch_size:>7,}"
        f"{size_text(option.projected_bytes):>9}{size_text(option.model_bytes):>9}  "
        f"{loss:<10}  {query:<7}  {time}"
    )


def _pilot_line(one: Pilot) -> str:
    shape = "exact" if one.n_repetitions == 1 else f"{one.n_buckets} x {one.n_repetitions}"
    return (
        f"pilot    {shape:<9} {_beside(one):<11} {one.rows:>11,} rows  held-out P@1 "
        f"{one.p_at_1:.3f}  P@5 {one.p_at_5:.3f}  {time_text(one.seconds)}"
    )


def _beside(option: Option | Pilot) -> str:
    if option.closed_form:
        return "closed form"
    n = option.max_pairs
    if not n:
        return "-"
    return f"{n / 1e6:.3g}M pairs" if n >= 1e6 else f"{n / 1e3:.3g}k pairs"


def _budget_text(budget: Budget, facts: DataFacts) -> str:
    size = size_text(budget.allowed_bytes)
    if budget.best is None:
        return f"{size}: nothing fits"
    return f"{size}: {facts.shape_of(budget.best)}, {budget.best.loss:.1f} lost"


def _ledger_lines(plan: Plan) -> list[str]:
    """Return the ledger of memory, of the device's own, and of disk."""
    rows = _memory_lines(plan, "memory", "host", plan.allowed_bytes)
    if plan.device_allowed_bytes:
        rows += _memory_lines(plan, "GPU", "device", plan.device_allowed_bytes)
    disk = ", ".join(f"{x.name} {size_text(x.n_bytes)}" for x in plan.ledger if x.where == "disk")
    return [*rows, f"disk     {size_text(plan.disk_bytes)} at most ({disk})"]


def _memory_lines(plan: Plan, head: str, where: str, allowed: int) -> list[str]:
    lines = [line for line in plan.ledger if line.where == where]
    width = max(len(line.name) for line in lines)
    total, rows = sum(line.n_bytes for line in lines), []
    for i, line in enumerate(lines):
        share = 100 * line.n_bytes / total
        first = "" if i else head
        rows.append(f"{first:<9}{line.name:<{width}} {size_text(line.n_bytes):>9} {share:5.1f}%")
    rows.append(f"{'':<9}{'sum':<{width}} {size_text(total):>9} of {size_text(allowed)}")
    return rows


def plan_document(plan: Plan) -> dict[str, Any]:
    """Return a plan as one JSON-ready object."""
    return {
        "store": dataclasses.asdict(plan.facts),
        "device": {
            "name": plan.device,
            "why": plan.device_reason,
            "threads": plan.threads,
            "limit_source": plan.limit_source,
            "waves": plan.waves,
            "resident": plan.resident,
            "allowed_bytes": plan.device_allowed_bytes,
            "projected_bytes": plan.device_projected_bytes,
        },
        "allowed_bytes": plan.allowed_bytes,
        "projected_bytes": plan.projected_bytes,
        "disk_bytes": plan.disk_bytes,
        "objective": plan.objective,
        "chosen": {
            "buckets": plan.n_buckets,
            "repetitions": plan.n_repetitions,
            "exact": plan.model.exact,
            "batch_size": plan.batch_size,
            "optimizer": plan.optimizer,
            "weights": plan.weights,
            "dense": plan.dense,
            "max_pairs": plan.max_pairs,
            "closed_form": plan.closed_form,
            "whitened": plan.whitened,
        },
        "expected": None if plan.expected is None else dataclasses.asdict(plan.expected),
        "options": [dataclasses.asdict(option) for option in plan.options],
        "budgets": [dataclasses.asdict(budget) for budget in plan.budgets],
        "pilots": [dataclasses.asdict(one) for one in plan.pilots],
        "ledger": [dataclasses.asdict(line) for line in plan.ledger],
        "reasons": list(plan.reasons),
    }


@click.command(epilog=epilog("streammach plan train.zarr --memory 12GB"))
@click.argument("store", type=click.Path(path_type=Path))
@shape_options
@json_option
@debug_option
def plan(store: Path, as_json: bool, **options: Any) -> None:
    """Choose the model that fits a memory budget.

    Every byte is accounted for. What is lost is expected, in points of the mean of P@1 and P@5,
    against the best model of any size; so is the time of a training. Without --memory, --buckets or
    --exact the budget is 2GB.
    """
    chosen = made_plan(store, options)
    if as_json:
        say_json(plan_document(chosen))
        return
    given = [f" --{name} {options[name]}" for name in ("memory", "pilot") if options[name]]
    command = f"streammach train {clean(store, 300)} --out RUN{''.join(given)}"
    for line in plan_lines(chosen, command):
        say(line)
