"""What the command line gains: --dask and --devices of train, evaluate and predict."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from streammach.options.option_fields import keywords_of, option
from streammach.system.errors import UsageError, clean
from streammach.system.files.destinations import STANDARD_OUTPUT

if TYPE_CHECKING:
    from distributed import Client

    from streammach.cli.trainings import TrainOptions
    from streammach.prediction.evaluate import Evaluation
    from streammach.prediction.metric_table import EvaluationRequest
    from streammach.prediction.options import Device, PredictOptions
    from streammach.prediction.predict import Predicted
    from streammach.system.progress import ProgressBar
    from streammach.training.run import Run

OF_FILES = (
    "on_bad_row", "max_bad", "rejects", "format", "labels", "x_path", "y_path", "first_label",
    "multilabel", "quotes", "header", "columns",
)  # fmt: skip
ON_CLUSTER = "{} on the workers of this Dask cluster: its scheduler's address or file."
IN_PROCESSES = "{} in so many processes of this machine, such as cpu,cpu; they share the threads."
RANK = "Rank the rows of a store, with the same result,"


@dataclass(frozen=True, kw_only=True)
class ClusterTraining:
    """Where a run is trained by its shares."""

    dask: str | None = option(None, ON_CLUSTER.format("Train"), "ADDRESS")
    devices: str | None = option(None, IN_PROCESSES.format("Train"), "LIST")

    @property
    def is_wanted(self) -> bool:
        """Whether a cluster, or processes, are named."""
        return self.dask is not None or self.devices is not None

    def train(self, store: Path, options: TrainOptions, progress: str) -> Run:
        """Train a run by its shares."""
        out, asked, constraints = options.out, options.run, options.run.constraints
        if len([x for x in (options.part, self.dask, self.devices) if x is not None]) > 1:
            raise UsageError("only one of these can be: --part, --dask, --devices")
        if constraints.time is not None:
            raise UsageError("what depends on a machine's speed is not trained in parts: --time")
        from streammach.cli.trainings import planned_rows, say_plan, watchers
        from streammach.frontends.cluster import workers  # loads on demand
        from streammach.frontends.cluster.distributed import train as train_apart
        from streammach.training.replacing import run_folder
        from streammach.training.run import Run

        workers.check_installed()
        named, device = workers.devices_of(self.devices or workers.CPU), constraints.device
        kind = workers.CPU if {*named} == {workers.CPU} else workers.NUMBERED
        if self.devices is not None and device not in ("auto", kind):
            raise UsageError(f"--device {device} and --devices {clean(self.devices)} differ")
        constraints = replace(constraints, device=kind if device == "auto" else device)
        asked = replace(asked, constraints=constraints)
        with ExitStack() as opened:
            client = None if self.dask is None else opened.enter_context(workers.connect(self.dask))
            planned = planned_rows(store, out, asked, progress, apart=True)
            rows, plan, shown, _ = opened.enter_context(planned)
            say_plan(rows, out, plan, (plan.projected_bytes, shown))
            if client is None:
                threads = plan.config.placement.threads
                client = opened.enter_context(workers.started_here(named, threads))
            place = run_folder(out, force=asked.force, resume=asked.resume)
            train_apart(
                store, plan, client, out=opened.enter_context(place), options=asked.training,
                callbacks=watchers(shown), tell=shown.tell, **keywords_of(asked.labels),
                resume=asked.resume, checkpoint_minutes=asked.checkpoint_minutes,
            )  # fmt: skip
        return Run.open(out)


@dataclass(frozen=True, kw_only=True)
class ClusterRanking(ClusterTraining):
    """Where the rows of a store are ranked by ranges."""

    dask: str | None = option(None, ON_CLUSTER.format(RANK), "ADDRESS")
    devices: str | None = option(None, IN_PROCESSES.format(RANK), "LIST")

    def evaluate(
        self, run: Path, store: Path, estimator: str | None, request: EvaluationRequest,
        device: Device, shown: ProgressBar,
    ) -> Evaluation:  # fmt: skip
        """Measure a run on the rows of a store."""
        with self._connect(device) as client:
            from streammach.frontends.cluster import ranges  # loads on demand

            return ranges.evaluate(
                run, store, client, estimator=estimator, memory=device.memory, progress=shown,
                tell=shown.tell, **vars(request),
            )  # fmt: skip

    def predict(
        self, run: Path, source: Path, options: PredictOptions, device: Device, shown: ProgressBar
    ) -> Predicted:
        """Write the best classes of a store's rows."""
        if options.out is None or options.out in STANDARD_OUTPUT:
            raise UsageError("a cluster writes to a file: --out")
        _refuse(("buckets",), "a cluster writes no bucket probabilities")
        with self._connect(device) as client:
            from streammach.frontends.cluster import ranges  # loads on demand

            return ranges.predict(
                run, source, client, memory=device.memory, progress=shown, tell=shown.tell,
                **{name: value for name, value in vars(options).items() if name != "buckets"},
            )  # fmt: skip

    @contextmanager
    def _connect(self, device: Device) -> Iterator[Client]:
        """Yield the cluster that ranks a store's rows: the one that is named, or processes here.

        What the user asks of files is refused: a cluster ranks the rows of a store alone.
        """
        from streammach.frontends.cluster import workers  # loads on demand
        from streammach.system.machine import cores

        _refuse(OF_FILES, "a cluster ranks the rows of a store, which has no bad ones")
        if device.device not in ("auto", workers.CPU):
            raise UsageError("a cluster ranks rows on CPUs alone: --device")
        if self.dask is not None and self.devices is not None:
            raise UsageError("only one of these can be: --dask, --devices")
        workers.check_installed()
        if self.dask is not None:
            _refuse(("threads",), "workers of a cluster have threads of their own")
            with workers.connect(self.dask) as client:
                yield client
            return
        named = workers.devices_of(self.devices or workers.CPU)
        if {*named} != {workers.CPU}:
            raise UsageError("a cluster ranks rows on CPUs alone: --devices")
        with workers.started_here(named, device.threads or cores()) as client:
            yield client


OPTIONS = {"train": ClusterTraining, "rank": ClusterRanking}  # by the kind of work


def _refuse(names: Collection[str], why: str) -> None:
    context = click.get_current_context()
    for one in context.command.params:
        name = one.name or ""
        if name in names and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise UsageError(f"{why}: {one.opts[0]}")
