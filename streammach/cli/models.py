"""The commands about models: plan, train."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streammach.cli.options import (
    debug_option,
    epilog,
    json_option,
    progress_option,
    shape_options,
)
from streammach.cli.output import Progress, say, say_json, short_path, tell
from streammach.errors import clean
from streammach.machine import parse_size, size_text, time_text

if TYPE_CHECKING:
    from streammach.spec import Plan
    from streammach.training.callbacks import State
    from streammach.training.trials import Trial

DEFAULT_MEMORY = "2GB"  # a constant, so that the same command gives the same model everywhere
GROUPS = ("memory", "buckets", "exact")


def _plan(store: Path, options: dict[str, Any]) -> Plan:
    from streammach.planning.choose import plan as choose  # compiled code loads on demand

    memory = options["memory"]
    if memory is None and options["buckets"] is None and not options["exact"]:
        memory = DEFAULT_MEMORY
    return choose(
        store,
        memory=parse_size(memory) if memory is not None else None,
        n_buckets=options["buckets"],
        n_repetitions=options["repetitions"],
        exact=options["exact"],
        batch_size=options["batch_size"],
        optimizer=options["optimizer"],
        counts=options["counts"],
        closed_form=not options["no_closed_form"],
        device=options["device"],
        threads=options["threads"],
        seed=options["seed"],
    )


def _shape(plan: Plan) -> str:
    if plan.model.exact:
        return f"exact ({plan.n_buckets:,} classes)"
    return f"{plan.n_buckets} x {plan.n_repetitions}"


def plan_lines(plan: Plan, out: str | None) -> list[str]:
    """Return the report of a plan as lines of at most 100 columns."""
    facts = plan.facts
    rows = [
        f"store    {clean(facts.path, 300)}",
        f"         {facts.n_rows:,} rows, {facts.n_features:,} features, "
        f"{facts.n_classes:,} classes, {facts.nnz / facts.n_rows:.3g} values a row",
        f"device   {plan.device_text}",
        *(
            f"{'budget' if i == 0 else '':<9}{size_text(allowed)} {what}allowed ({source})"
            for i, (what, allowed, source) in enumerate(_budgets(plan))
        ),
        f"chosen   {_shape(plan)} float32, {plan.optimizer}, batch {plan.batch_size:,}",
        *(f"why      {reason}" for reason in plan.reasons),
    ]
    rows += _ledger_lines(plan, "memory", "host", plan.allowed_bytes)
    if plan.device_allowed_bytes:
        rows += _ledger_lines(plan, "GPU", "device", plan.device_allowed_bytes)
    disk = ", ".join(f"{x.name} {size_text(x.n_bytes)}" for x in plan.ledger if x.where == "disk")
    rows.append(f"disk     {size_text(plan.disk_bytes)} at most ({disk})")
    if out is not None:
        rows.append(f"next     {out}")
    return rows


def _budgets(plan: Plan) -> list[tuple[str, int, str]]:
    """Return what a budget is of, its bytes, and who set it: the host's, then the device's."""
    found = [("", plan.allowed_bytes, plan.limit_source)]
    if plan.device_allowed_bytes:
        found.append(("of GPU memory ", plan.device_allowed_bytes, plan.device_limit_source))
    return found


def _ledger_lines(plan: Plan, head: str, where: str, allowed: int) -> list[str]:
    lines = [line for line in plan.ledger if line.where == where]
    width = max(len(line.name) for line in lines)
    total, rows = sum(line.n_bytes for line in lines), []
    for i, line in enumerate(lines):
        share = 100 * line.n_bytes / total
        first = head if i == 0 else ""
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
            "allowed_bytes": plan.device_allowed_bytes,
            "projected_bytes": plan.device_projected_bytes,
        },
        "allowed_bytes": plan.allowed_bytes,
        "projected_bytes": plan.projected_bytes,
        "disk_bytes": plan.disk_bytes,
        "chosen": {
            "buckets": plan.n_buckets,
            "repetitions": plan.n_repetitions,
            "exact": plan.model.exact,
            "batch_size": plan.batch_size,
            "optimizer": plan.optimizer,
            "dense": plan.dense,
            "max_pairs": plan.max_pairs,
            "closed_form": plan.closed_form,
        },
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

    Every byte is accounted for. Without --memory, --buckets or --exact the budget is 2GB.
    """
    chosen = _plan(store, options)
    if as_json:
        say_json(plan_document(chosen))
        return
    memory = f" --memory {options['memory']}" if options["memory"] else ""
    command = f"streammach train {clean(store, 300)} --out RUN{memory}"
    for line in plan_lines(chosen, command):
        say(line)


class Watcher:
    """Tells how a training goes: trials, a bar or lines within epochs, a table line per epoch."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._headed = False

    def on_search(self, trial: Trial) -> None:
        """Tell what a trial reached."""
        self._progress.close()
        tell(
            f"trial    {trial.transform:<6} rate {trial.learning_rate:<7.3g} {trial.rows:>9,} rows "
            f"x {trial.epochs}  held-out P@1 {trial.measured.p_at_1:.3f}  "
            f"P@5 {trial.measured.p_at_5:.3f}"
        )

    def on_beside(self, text: str) -> None:
        """Tell what counting and fitting found."""
        self._progress.close()
        tell(f"beside   {text}")

    def on_progress(self, state: State) -> None:
        """Show where the epoch is."""
        note = f"{state.rows_per_second:,.0f} rows/s  loss {state.loss:.3f}"
        self._progress(f"epoch {state.epoch + 1}/{state.epochs}", state.row, state.n_rows, note)

    def on_epoch_end(self, state: State) -> None:
        """Add a line to the table of epochs."""
        self._progress.close()
        if not self._headed:
            tell(" epoch    loss  val P@1  val P@5  best    rows/s  peak GB  waiting")
            self._headed = True
        entry = state.history[-1]
        figures = [f"{entry[key]:.3f}" if key in entry else "-" for key in ("p_at_1", "p_at_5")]
        best = "*" if state.best_epoch == state.epoch else ""
        tell(
            f"{state.epoch + 1:>6}{entry['loss']:>8.3f}{figures[0]:>9}{figures[1]:>9}{best:>6}"
            f"{entry['rows_per_second']:>10,.0f}{entry['peak_bytes'] / 1e9:>9.2f}"
            f"{entry['waited_share']:>9.1%}"
        )


@click.command(epilog=epilog("streammach train train.zarr --out runs/odp --memory 12GB"))
@click.argument("store", type=click.Path(path_type=Path))
@click.option("--out", required=True, metavar="RUN", type=click.Path(path_type=Path),
              help="Folder of the run.")  # fmt: skip
@shape_options
@click.option(
    "--epochs", type=int, metavar="E", help="Passes over the rows.  [default: 5; dense 12]"
)
@click.option(
    "--learning-rate", type=float, metavar="X", help="Rate at the start.  [default: searched]"
)
@click.option("--transform", type=click.Choice(["auto", "raw", "binary", "log1p", "l2"]),
              default="auto", show_default=True,
              help="What is done to a row's values.")  # fmt: skip
@click.option("--label-smoothing", type=float, metavar="X",
              help="Share of the target spread over all buckets.  "
                   "[default: 0.1; dense 0]")  # fmt: skip
@click.option("--validation", metavar="STORE", type=click.Path(path_type=Path),
              help="Store of held-out rows.")  # fmt: skip
@click.option("--hold-out-by", metavar="NAMESPACE",
              help="Hold out rows that share a feature of this namespace.")  # fmt: skip
@click.option("--resume", is_flag=True, help="Go on with an interrupted run.")
@progress_option
@json_option
@debug_option
def train(
    store: Path,
    out: Path,
    epochs: int | None,
    learning_rate: float | None,
    transform: str,
    label_smoothing: float | None,
    validation: Path | None,
    hold_out_by: str | None,
    resume: bool,
    progress: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Train a model within a memory budget.

    Without --memory, --buckets or --exact the budget is 2GB. Transform, learning rate and
    estimator are chosen on held-out rows where they are not given; what was chosen and why is said.
    """
    from streammach.training.callbacks import EarlyStopping  # compiled code loads on demand
    from streammach.training.trainer import Trainer

    chosen = _plan(store, options)
    tell(
        f"{short_path(store)} -> {short_path(out)}  {_shape(chosen)} float32, {chosen.device_text}"
    )
    projected = (chosen.projected_bytes, chosen.device_projected_bytes)
    for (what, allowed, source), n_bytes in zip(_budgets(chosen), projected, strict=False):
        tell(
            f"{'GPU' if what else 'memory':<9}{size_text(n_bytes)} projected of "
            f"{size_text(allowed)} allowed ({source})"
        )
    with Progress(progress, "rows") as shown:
        trainer = Trainer(
            chosen, epochs=epochs, learning_rate=learning_rate, transform=transform,
            label_smoothing=label_smoothing, seed=options["seed"],
            callbacks=[Watcher(shown), EarlyStopping()],
        )  # fmt: skip
        run = trainer.fit(store, out, validation=validation, hold_out_by=hold_out_by, resume=resume)
    result, training = run.result, run.settings.training
    best = result.validation.get(result.estimator, result.history[result.best_epoch])
    if as_json:
        say_json(
            {
                "run": str(out),
                "plan": plan_document(run.plan),
                "training": dataclasses.asdict(training),
                "held_out": run.settings.held_out,
                "trials": run.settings.trials,
                "history": result.history,
                "best_epoch": result.best_epoch + 1,
                "stopped": result.stopped,
                "estimator": result.estimator,
                "validation": result.validation,
                "seconds": result.seconds,
                "projected_bytes": result.projected_bytes,
                "peak_bytes": result.peak_bytes,
                "device_projected_bytes": result.device_projected_bytes,
                "device_peak_bytes": result.device_peak_bytes,
            }
        )
        return
    for reason in (*run.settings.reasons, *result.reasons):
        say(reason)
    accuracy = (
        f"held-out P@1 {best['p_at_1']:.3f}, P@5 {best['p_at_5']:.3f}; " if "p_at_1" in best else ""
    )
    say(
        f"{short_path(out)}: {accuracy}epoch {result.best_epoch + 1} of {len(result.history)} kept"
        f"{f' ({result.stopped})' if result.stopped else ''}, {time_text(result.seconds)}, peak "
        f"{size_text(result.peak_bytes)} of {size_text(result.projected_bytes)} projected"
        + (
            f", of the GPU's buffers {size_text(result.device_peak_bytes)} of "
            f"{size_text(result.device_projected_bytes)}"
            if result.device_peak_bytes
            else ""
        )
    )
