"""Writes the page of a run."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from streammach.files.destinations import Destination
from streammach.files.urls import located
from streammach.prediction.calibrate import CANDIDATES
from streammach.prediction.diagnose import Diagnosis, ListDiagnosis, diagnose
from streammach.prediction.memory import room_before
from streammach.prediction.queries import QueryTime, query_time
from streammach.progress import Wanted, shown
from streammach.reports.drawing import require
from streammach.reports.pages import Page, run_page
from streammach.training.run import PAGE, Run

ROWS = 20_000  # of a store, that plots are of
STAGES = {
    "rank": 2.0,
    "repetitions": 2.0,
    "queries": 0.2,
    "draw": 1.0,
}  # their times beside one another


@dataclass(frozen=True, kw_only=True)
class Report:
    """A page that was written."""

    path: Path  # the file
    page: Page  # what it holds
    rows: Diagnosis | ListDiagnosis | None = None  # what was measured for it on rows of a store
    query: QueryTime | None = None  # how long the model takes for one of these rows
    projected_bytes: int | None = None  # memory that this was to take


def report(
    run: str | os.PathLike[str], out: str | os.PathLike[str] | None = None, *,
    on: str | os.PathLike[str] | None = None, rows: int = ROWS, memory: str | int | None = None,
    threads: int | None = None, force: bool = False, progress: Wanted = None,
) -> Report:  # fmt: skip
    """Draw what a run planned, measured and reached: one HTML file with everything in it.

    Parameters
    ----------
    run : path-like
        The folder of the run.
    out : path-like, optional
        The file; ``report.html`` in the folder otherwise.
    on : path-like, optional
        A store with labelled rows, for what guessing would reach, the time of a query and the
        plots of probabilities, class frequency and repetitions.
    rows : int
        How many of its first rows are used.
    memory : str or int, optional
        Bytes that the process may take; otherwise 2 GB, or what is needed.
    threads : int, optional
        Threads that compute; all cores otherwise.
    force : bool
        Whether a page that is there may be replaced.
    progress : bool, str or callable, optional
        Whether it is told how it goes: True or ``auto``, ``bar``, ``plain``, ``json``; or what is
        called with (stage, done, total).

    Raises
    ------
    UsageError
        If matplotlib is not installed, or a path is wrong.
    BudgetError
        If it does not fit the memory.
    MismatchError, ModelError, StoreError, DiskError
        If files cannot be read or written.
    """
    require()
    opened, folder = Run.open(run), Path(run)
    target = folder / "report.html" if out is None else Path(out)
    inputs = [folder / "model", *([] if on is None else [located(on)])]
    destination = Destination(target, PAGE, force=force, inputs=inputs)
    found, query, projected = None, None, None
    with shown(progress, {"rank": "rows"}, STAGES if on is not None else {}) as told:
        if on is not None:
            room = room_before(run, "report", on, CANDIDATES, memory=memory, threads=threads)
            projected = room.projected_bytes
            told("rank", 0, 0)
            found = diagnose(
                opened.model, on, rows=rows, memory=memory, threads=threads, progress=told
            )
            told("queries", 0, 0)
            query = query_time(opened.model, on)
        told("draw", 0, 0)
        page = run_page(opened, found, query)
        destination.write(page.html.encode())
    return Report(path=target, page=page, rows=found, query=query, projected_bytes=projected)
