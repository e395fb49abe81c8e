"""Predicts and evaluates a store by ranges of its rows, on the workers of a cluster."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from streammach.cluster.range_task import measure_range
from streammach.cluster.sites import MOST_ROWS, Place, Site, Tell, add_seen, cuts, watched
from streammach.cluster.tables import RankedTable
from streammach.cluster.turns import WorkersLostError
from streammach.cluster.workers import check_installed
from streammach.errors import UsageError, clean
from streammach.files.destinations import Destination
from streammach.files.urls import absolute, located
from streammach.model.model import Model, folder_of
from streammach.prediction.asked import Ask
from streammach.prediction.calibrate import CANDIDATES
from streammach.prediction.evaluate import Evaluation, evaluation_of
from streammach.prediction.inputs import Seen
from streammach.prediction.measured import Measured, Measures
from streammach.prediction.memory import NOTHING
from streammach.prediction.output.kept import KeptWork
from streammach.prediction.output.places import target
from streammach.prediction.output.registry import output_of
from streammach.prediction.predict import UNITS, Predicted
from streammach.prediction.set_metrics import DEFAULT_A, DEFAULT_B
from streammach.progress import Wanted, shown
from streammach.spec.types import Decoding

if TYPE_CHECKING:
    from distributed import Client


def predict(
    run: str | os.PathLike[str],
    store: str | os.PathLike[str],
    client: Client,
    *,
    out: str | os.PathLike[str],
    k: int = 5,
    threshold: float | None = None,
    probabilities: bool = False,
    out_format: str | None = None,
    ranges: int | None = None,
    resume: bool = False,
    force: bool = False,
    memory: str | int | None = None,
    decode: Decoding = "auto",
    progress: Wanted = None,
    tell: Tell | None = None,
) -> Predicted:
    """Write the best classes of every row of a store, ranked by the workers of a Dask cluster.

    The table has the bytes of one that :func:`streammach.predict` writes. Each worker loads the
    model and ranks ranges of the store's rows, one at a time; what it ranked lies in a hidden
    folder beside the table until that is whole. Then each worker writes slices of the table, which
    are joined in this process. The range of a worker that is lost is ranked again by another one.

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
        The table, on the same storage.
    k : int
        Most classes a row.
    threshold : float, optional
        As for :func:`streammach.predict`.
    probabilities : bool
        Give calibrated probabilities in place of scores.
    out_format : str, optional
        ``tsv``, ``csv``, ``jsonl`` or ``parquet``; told by the name of `out` otherwise.
    ranges : int, optional
        Into how many ranges rows are cut, at least; by default four a worker, or as many as their
        memory and 262,144 rows each ask for.
    resume : bool
        Go on with an interrupted call: ranges that were ranked are kept. It keeps their number.
    force : bool
        Whether a table of predictions that is there may be replaced.
    memory : str or int, optional
        Bytes that each worker may take, such as ``"1GB"``; 2 GB or what the model needs otherwise.
    decode : str
        How workers find the best classes; see
        :class:`streammach.prediction.predictor.Predictor`.
    progress : bool, str or callable, optional
        As for :func:`streammach.predict`.
    tell : callable, optional
        Given a line for each worker in the end.

    Raises
    ------
    UsageError
        If Dask is not installed, there is no worker, the input is no store, or the table may not be
        written there.
    MismatchError
        If what was interrupted had another model, input, option or number of ranges.
    BudgetError
        If no worker may take the memory.
    Interrupted
        After a signal, where the same call with `resume` would go on.
    StreammachError
        If workers were lost again and again, or the scheduler was.
    DataError, StoreError, ModelError, DiskError
        As for a prediction, on a worker or here.
    """
    began = time.monotonic()
    check_installed()
    ask = Ask(k=k, threshold=threshold, probabilities=probabilities)
    table = Path(os.path.abspath(out))
    output = output_of(table, out_format)
    place = Place(absolute(store), folder_of(os.path.abspath(run)))
    if not force and table.is_file():
        KeptWork(table).tidy()
    goal = target(table, force=force, inputs=[located(place.store), place.model])
    if not isinstance(goal, Destination):
        raise UsageError("a cluster writes to a file: --out", path=clean(table, 300))
    if threshold is not None and not place.document.listed:
        raise UsageError("rows have one label each: --threshold")
    with ExitStack() as stack:
        work = KeptWork(goal.path)
        stack.enter_context(work.locked())
        work.check()
        imports = output.format.import_bytes
        beside = {output.format.name: imports} if imports else NOTHING
        site = Site.of(client, place, "predict", ask.best, memory, beside)
        table_of = RankedTable(site, ask, output, work)
        known = table_of.known() if resume else None
        pieces, slices = table_of.cut(ranges, known)
        told = stack.enter_context(shown(progress, UNITS))
        resumed = work.start(table_of.identity(pieces, slices), resume=resume)
        with work.gone_on_with(also=WorkersLostError):
            task = table_of.task(decode, pieces, slices)
            seen = table_of.ranked(task, pieces, told, tell)
            table_of.written(task, goal, len(pieces), told)
            work.take(goal, work.finished(output, table_of.shape))
    calibrated = place.document.calibrated
    return Predicted(
        out=str(out), n_rows=seen.rows, k=table_of.k,
        estimator=calibrated if ask.calibrated else place.document.estimator,
        unknown_values=seen.unknown_values, skipped={}, rejects=None, resumed=resumed,
        seconds=time.monotonic() - began, projected_bytes=site.room.projected_bytes,
    )  # fmt: skip


def evaluate(
    run: str | os.PathLike[str],
    store: str | os.PathLike[str],
    client: Client,
    *,
    estimator: str | None = None,
    threshold: float = 0.5,
    propensity: tuple[float, float] = (DEFAULT_A, DEFAULT_B),
    estimators: bool = False,
    by: str | None = None,
    ranges: int | None = None,
    memory: str | int | None = None,
    decode: Decoding = "auto",
    progress: Wanted = None,
    tell: Tell | None = None,
) -> Evaluation:
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
    threshold : float
        Probability from which on a label is predicted, where rows have lists of labels.
    propensity : (float, float)
        A and B of the propensities then.
    estimators : bool
        Rank the rows by all estimators that the model has, too.
    by : str, optional
        A namespace, or a column of a table: how many rows are right by its values.
    ranges : int, optional
        Into how many ranges rows are cut, at least, as for
        :func:`streammach.distributed.predict`.
    memory : str or int, optional
        Bytes that each worker may take, such as ``"1GB"``; 2 GB or what the model needs otherwise.
    decode : str
        How workers find the best classes; see
        :class:`streammach.prediction.predictor.Predictor`.
    progress : bool, str or callable, optional
        As for :func:`streammach.evaluate`.
    tell : callable, optional
        Given a line for each worker in the end.

    Raises
    ------
    UsageError
        If Dask is not installed, there is no worker, or the input is no store; or as for an
        evaluation.
    BudgetError
        If no worker may take the memory.
    StreammachError
        If workers were lost again and again, or the scheduler was.
    DataError, StoreError, ModelError, DiskError
        As for an evaluation, on a worker or here.
    """
    began = time.monotonic()
    check_installed()
    place = Place(absolute(store), folder_of(os.path.abspath(run)))
    asked = Measures(threshold=threshold, propensity=propensity, estimators=estimators, by=by)
    site = Site.of(client, place, "evaluate", CANDIDATES, memory)
    task = replace(site.task(decode), estimator=estimator, measures=asked)
    pieces = cuts(site.n_rows, site.number(ranges, MOST_ROWS, site.room.rows), site.room.rows)
    model, seen = Model.load(run), Seen(total=site.n_rows)
    sums = Measured(model, asked)
    calls = [(f"measure-{i + 1}", measure_range, (task, *piece)) for i, piece in enumerate(pieces)]
    with shown(progress, "rows") as told:
        told("evaluate", 0, 0)
        for done in watched(site, calls, tell):
            for part in done.parts:
                sums.take(part)
            add_seen(seen, done.seen)
            told("evaluate", seen.rows, seen.total)
    found = evaluation_of(sums, seen, task.estimator or model.estimator)
    return replace(found, seconds=time.monotonic() - began)
