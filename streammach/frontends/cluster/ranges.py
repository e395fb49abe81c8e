"""Predicts and evaluates a store by ranges of its rows, on the workers of a cluster."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streammach.frontends.cluster.worker import RowsTask, do_range
from streammach.frontends.cluster.workers import FURTHER, ClusterWorkers, check_installed, in_turn
from streammach.model.document import document_digest, folder_of
from streammach.model.model import Model
from streammach.options.annotated import check_options
from streammach.prediction.allowed import KnownLabels, LabelFile, labels_in
from streammach.prediction.evaluate import Evaluation, evaluation_of
from streammach.prediction.inputs import InputCounts, is_store
from streammach.prediction.metric_table import EvaluationRequest, MetricSums
from streammach.prediction.metrics import DEFAULT_A, DEFAULT_B
from streammach.prediction.order import Order, in_source_order, source_order
from streammach.prediction.output import AnswerShape
from streammach.prediction.predict import UNITS, Predicted, output_of, target, write_table
from streammach.prediction.room import NOTHING, room_before
from streammach.prediction.scorer_sum import PredictionRequest
from streammach.store.dataset import Dataset
from streammach.system.errors import UsageError, clean
from streammach.system.files.destinations import Destination
from streammach.system.files.raw_text import is_piped
from streammach.system.files.urls import absolute, locate
from streammach.system.machine import budget, size_text
from streammach.system.progress import ProgressBar, Wanted

if TYPE_CHECKING:
    from distributed import Client

RANGES_A_WORKER = 4  # so that workers end at about the same time
MOST_ROWS = 1 << 18  # of a range: what a lost worker loses
LEAST_ROWS = 1 << 10  # of a range, where its edges decide nothing
Tell = Callable[[str], None]


def predict(
    run: str | os.PathLike[str], store: str | os.PathLike[str], client: Client, *,
    out: str | os.PathLike[str], k: int = 5, threshold: float | None = None,
    probabilities: bool = False, only: LabelFile | None = None, never: LabelFile | None = None,
    explain: int = 0, out_format: str | None = None, force: bool = False, progress: Wanted = None,
    ranges: int | None = None, memory: str | int | None = None, tell: Tell | None = None,
) -> Predicted:  # fmt: skip
    """Write the best classes of every row of a store, ranked by the workers of a Dask cluster.

    The table has the bytes of one that :func:`streammach.predict` writes. Each worker loads the
    model and ranks ranges of the store's rows, one at a time; this process brings them into their
    order and writes the table. The range of a worker that is lost is ranked again by another one.

    Parameters
    ----------
    run : path-like
        The folder of a run or a model, on storage that this process and all workers share, by the
        same name.
    store : path-like
        The store, on the same storage; or its URL in object storage.
    client : distributed.Client
        The connection to the cluster; it stays open.
    out : path-like
        The table.
    k, threshold, probabilities, only, never, explain : as there
        They are those of :func:`streammach.predict`.
    out_format, force, progress : as there
        They, too.
    ranges : int, optional
        Into how many ranges rows are cut, at least; by default four a worker, or as many as their
        memory and 262,144 rows each ask for.
    memory : str or int, optional
        Bytes that each worker may take, such as ``"1GB"``; 2 GB or what the model needs otherwise.
    tell : callable, optional
        Given a line for each worker in the end.

    Raises
    ------
    UsageError
        If Dask is not installed, there is no worker, the input is no store, or the table may not be
        written there.
    BudgetError
        If no worker may take the memory.
    StreammachError
        If workers were lost again and again, or the scheduler was.
    DataError, StoreError, ModelError, DiskError
        As for a prediction, on a worker or here.
    """
    check_options(predict.__annotations__, locals())
    began = time.monotonic()
    check_installed()
    most_bytes, table = budget(memory).most, Path(os.path.abspath(out))
    request = PredictionRequest(
        k=k, threshold=threshold, probabilities=probabilities, explain=explain,
        only=labels_in(only, most_bytes), never=labels_in(never, most_bytes),
    )  # fmt: skip
    output = output_of(table, out_format)
    store, folder = absolute(store), folder_of(os.path.abspath(run))
    goal = target(table, force=force, inputs=[locate(store), folder])
    if not isinstance(goal, Destination):
        raise UsageError("a cluster writes to a file: --out", path=table)
    site = Site.of(client, store, folder, request, memory, beside=output.beside)
    model, room = Model.load(folder), site.task.room
    allowed = KnownLabels(model).limit_labels(request.only, request.never)
    shape, seen = AnswerShape.of(request, model, allowed), InputCounts(total=site.order.n_rows)
    record = request.record_type(shape.k)
    # What was ranked and has not come into its order takes no more than what is brought into it.
    room_of_one = room.sorted_bytes // (FURTHER * site.n_workers)
    most = min(MOST_ROWS, room_of_one // site.order.row_bytes(record))
    unit = room.rows if model.dense else min(room.rows, LEAST_ROWS)
    pieces = site.cut(ranges, most, unit)
    with (
        ProgressBar(progress, UNITS) as told,
        closing(site.work(pieces, seen, partial(told, "predict"), tell)) as parts,
    ):
        write_table(
            in_source_order(parts, site.order, record, room.sorted_bytes, goal.path),
            goal, output, shape, report=lambda n: told("write", n, seen.total), at_once=True,
        )  # fmt: skip
    return Predicted(
        out=str(out), n_rows=seen.rows, k=shape.k,
        estimator=model.calibrated_ranking if request.calibrated else model.estimator,
        unknown_values=seen.unknown_values, skipped={}, rejects=None,
        seconds=time.monotonic() - began, projected_bytes=room.projected_bytes,
    )  # fmt: skip


def evaluate(
    run: str | os.PathLike[str], store: str | os.PathLike[str], client: Client, *,
    estimator: str | None = None, threshold: float = 0.5,
    propensity: tuple[float, float] = (DEFAULT_A, DEFAULT_B), estimators: bool = False,
    by: str | None = None, at: Sequence[int] = (), by_class: bool = False, confusions: int = 0,
    progress: Wanted = None, ranges: int | None = None, memory: str | int | None = None,
    tell: Tell | None = None,
) -> Evaluation:  # fmt: skip
    """Return what a model reaches on a store, whose rows the workers of a Dask cluster rank.

    Each worker loads the model and ranks ranges of the store's rows, one at a time; this process
    adds up what they come to, in the order of the rows. The figures are those that
    :func:`streammach.evaluate` returns, to the last digit. The range of a worker that is lost is
    ranked again by another one.

    Parameters
    ----------
    run : path-like
        The folder of a run or a model, as for :func:`streammach.distributed.predict`.
    store : path-like
        The store, as there.
    client : distributed.Client
        The connection to the cluster; it stays open.
    estimator : str, optional
        How classes are ranked; as the model says otherwise.
    threshold, propensity, estimators, by, at, by_class, confusions, progress : as there
        They are those of :func:`streammach.evaluate` and :class:`streammach.Predictor`.
    ranges, memory, tell : as there
        They are those of :func:`streammach.distributed.predict`.

    Raises
    ------
    StreammachError
        As for :func:`streammach.distributed.predict`, and as for an evaluation.
    """
    check_options(evaluate.__annotations__, locals())
    began = time.monotonic()
    check_installed()
    store, folder = absolute(store), folder_of(os.path.abspath(run))
    wanted = EvaluationRequest(
        threshold=threshold, propensity=propensity, estimators=estimators, by=by, at=tuple(at),
        by_class=by_class, confusions=confusions,
    )  # fmt: skip
    site = Site.of(client, store, folder, wanted, memory, estimator)
    pieces = site.cut(ranges, MOST_ROWS, site.task.room.rows)
    model, seen = Model.load(folder), InputCounts(total=site.order.n_rows)
    sums = MetricSums(model, wanted)
    with (
        ProgressBar(progress, "rows") as told,
        closing(site.work(pieces, seen, partial(told, "evaluate"), tell)) as blocks,
    ):
        for more in blocks:
            sums.add(more)
    return evaluation_of(sums, seen, estimator or model.estimator, began)


@dataclass(frozen=True, kw_only=True)
class Site:
    """A cluster, what it works at, and what each worker takes."""

    client: Client
    task: RowsTask  # by names that all workers know
    order: Order
    able: list[str] | None
    n_workers: int

    @classmethod
    def of(
        cls, client: Client, store: str, model: Path, wanted: PredictionRequest | EvaluationRequest,
        memory: str | int | None, estimator: str | None = None,
        beside: Mapping[str, int] = NOTHING,
    ) -> Site:  # fmt: skip
        """Look at a store and at the workers; refuse what they cannot do."""
        path = locate(store)
        if is_piped(path) or not (is_store(path) or path.exists()):
            raise UsageError("there is no such store", path=path)
        if not is_store(path):
            raise UsageError(
                "a cluster ranks the rows of a store alone", path=path,
                hint="Convert it first.",
            )  # fmt: skip
        with Dataset.open(path) as data:
            digest = data.digest
        order = source_order(path)
        assert order is not None, "it is a store"
        workers = ClusterWorkers(client)
        room = room_before(
            model, wanted.task, path, wanted.cells(), memory=memory, device="cpu",
            threads=max(client.nthreads().values(), default=1),
            beside=lambda n_classes: {**beside, **wanted.beside(n_classes)},
            some_labels=wanted.some_labels,
        )  # fmt: skip
        able = workers.able(room.projected_bytes, "a range of rows")
        task = RowsTask(
            run=str(model), document=document_digest(model), store=store, digest=digest, room=room,
            estimator=estimator, wanted=wanted,
        )  # fmt: skip
        return cls(
            client=client, task=task, order=order, able=able,
            n_workers=len(workers) if able is None else len(able),
        )  # fmt: skip

    def cut(self, wanted: int | None, most: int, unit: int) -> list[tuple[int, int]]:
        """Return ranges of rows, of so many units each and of so many rows at most."""
        if wanted is not None and wanted < 1:
            raise UsageError("at least one range is needed: ranges")
        least = -(-self.order.n_rows // max(most // unit * unit, unit))
        n = RANGES_A_WORKER * self.n_workers if wanted is None else wanted
        return cuts(self.order.n_rows, max(n, least), unit)

    def work(
        self, pieces: list[tuple[int, int]], seen: InputCounts,
        report: Callable[[int, int], object], tell: Tell | None,
    ) -> Generator[Any, None, None]:  # fmt: skip
        """Yield what workers say of the blocks of ranges, in order; tell what each of them did."""
        peaks: dict[str, list[int]] = {}
        report(0, seen.total)
        calls = [(f"rows-{i + 1}", do_range, (self.task, *piece)) for i, piece in enumerate(pieces)]
        with closing(in_turn(self.client, calls, self.able)) as results:
            for done in results:
                peaks.setdefault(done.worker, []).append(done.peak_bytes)
                yield from done.blocks
                seen.rows += done.seen.rows
                seen.unknown_values += done.seen.unknown_values
                report(seen.rows, seen.total)
        for worker, own in sorted(peaks.items()):
            if tell is not None:
                tell(
                    f"{clean(worker)}: {len(own)} of {len(calls)} ranges of rows, "
                    f"peak {size_text(max(own))}"
                )


def cuts(n_rows: int, n: int, unit: int) -> list[tuple[int, int]]:
    """Return the first row of each of at most n ranges, and the one behind its last."""
    units = -(-n_rows // unit)
    n = max(min(n, units), 1)
    edges = [min(units * i // n * unit, n_rows) for i in range(n + 1)]
    return [*itertools.pairwise(edges)]
