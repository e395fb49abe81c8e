"""What the command line gains: --dask and --devices of train, evaluate and predict."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from streammach.errors import UsageError, clean

if TYPE_CHECKING:
    from distributed import Client

    from streammach.cli.arguments import Arguments
    from streammach.cli.options import Options
    from streammach.prediction.evaluate import Evaluation
    from streammach.prediction.predict import Predicted
    from streammach.progress import ProgressBar
    from streammach.training.run import Run

WHAT = {"train": "Train", "rank": "Rank the rows of a store, with the same result,"}
OF_FILES = (
    "on_bad_row", "max_bad", "rejects", "form", "labels", "x_path", "y_path", "first_label",
    "multilabel", "quotes", "header", "columns",
)  # fmt: skip


def options(work: str) -> Options:
    """Return the options of a command that does this work: train or rank."""
    cluster = f"{WHAT[work]} on the workers of this Dask cluster: its scheduler's address or file."
    here = f"{WHAT[work]} in so many processes of this machine, such as cpu,cpu; they share the "
    return (
        click.option("--dask", metavar="ADDRESS", help=cluster),
        click.option("--devices", metavar="LIST", help=f"{here}threads."),
    )


def wanted(given: Arguments) -> bool:
    """Return whether these options name a cluster, or processes."""
    return given.dask is not None or given.devices is not None


def train(store: Path, out: Path, given: Arguments) -> Run:
    """Train a run by its shares."""
    if len([one for one in (given.part, given.dask, given.devices) if one is not None]) > 1:
        raise UsageError("only one of these can be: --part, --dask, --devices")
    if given.time is not None:
        raise UsageError("what depends on a machine's speed is not trained in parts: --time")
    from streammach.cli.trainings import planned_rows, say_plan, watchers
    from streammach.cluster import workers  # loads on demand
    from streammach.cluster.distributed import train as train_apart
    from streammach.training.replacing import run_folder
    from streammach.training.run import Run

    workers.check_installed()
    named, device = workers.devices_of(given.devices or workers.CPU), given.device
    kind = workers.CPU if {*named} == {workers.CPU} else workers.NUMBERED
    if given.devices is not None and device not in ("auto", kind):
        raise UsageError(f"--device {device} and --devices {clean(given.devices)} differ")
    given = given.but(device=kind if device == "auto" else device)
    with ExitStack() as opened:
        client = None if given.dask is None else opened.enter_context(workers.connect(given.dask))
        rows, plan, shown, _ = opened.enter_context(planned_rows(store, out, given, apart=True))
        say_plan(rows, out, plan, (plan.projected_bytes, shown))
        if client is None:
            threads = plan.config.placement.threads
            client = opened.enter_context(workers.started_here(named, threads))
        folder = opened.enter_context(run_folder(out, force=given.force, resume=given.resume))
        train_apart(
            store, plan, client, out=folder, options=given.training(), callbacks=watchers(shown),
            tell=shown.tell, class_weight=given.class_weight, resume=given.resume,
            checkpoint_minutes=given.checkpoint_minutes,
        )  # fmt: skip
    return Run.open(out)


def evaluate(run: Path, store: Path, given: Arguments, shown: ProgressBar) -> Evaluation:
    """Measure a run on the rows of a store."""
    with _cluster(given) as client:
        from streammach.cluster.ranges import evaluate as measure_apart  # loads on demand

        taken: dict[str, Any] = given.of(measure_apart) | {"progress": shown}
        return measure_apart(run, store, client, tell=shown.tell, **taken)


def predict(
    run: Path, source: Path, out: Path | None, given: Arguments, shown: ProgressBar
) -> Predicted:
    """Write the best classes of a store's rows; `out` is None for standard output."""
    if out is None:
        raise UsageError("a cluster writes to a file: --out")
    with _cluster(given) as client:
        from streammach.cluster.ranges import predict as write_apart  # loads on demand

        taken: dict[str, Any] = given.of(write_apart) | {"progress": shown}
        return write_apart(run, source, client, out=out, tell=shown.tell, **taken)


@contextmanager
def _cluster(given: Arguments) -> Iterator[Client]:
    """Hold the cluster that ranks a store's rows: the one that is named, or processes here.

    What the user asks of files is refused: a cluster ranks the rows of a store alone.
    """
    dask: str | None = given.dask
    _refuse(OF_FILES, "a cluster ranks the rows of a store, which has no bad ones")
    if given.device not in ("auto", "cpu"):
        raise UsageError("a cluster ranks rows on CPUs alone: --device")
    if dask is not None and given.devices is not None:
        raise UsageError("only one of these can be: --dask, --devices")
    from streammach.cluster import workers  # loads on demand
    from streammach.machine import cores

    workers.check_installed()
    if dask is not None:
        _refuse(("threads",), "workers of a cluster have threads of their own")
        with workers.connect(dask) as client:
            yield client
        return
    named = workers.devices_of(given.devices or workers.CPU)
    if {*named} != {workers.CPU}:
        raise UsageError("a cluster ranks rows on CPUs alone: --devices")
    with workers.started_here(named, given.threads or cores()) as client:
        yield client


def _refuse(names: Collection[str], why: str) -> None:
    context = click.get_current_context()
    for option in context.command.params:
        name = option.name or ""
        if name in names and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise UsageError(f"{why}: {option.opts[0]}")
