"""Predictions of a whole input as a table: read, ranked and written at the same time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from streammach.data.bad_rows import listed_rows, rejects_list, skipping
from streammach.data.raw_text import is_piped
from streammach.data.source_options import GUESSED, SourceOptions
from streammach.files.destinations import Destination
from streammach.files.folders import remove_left
from streammach.files.urls import located
from streammach.model.model import Model, folder_of
from streammach.prediction.calibrate import CANDIDATES
from streammach.prediction.inputs import InputCounts
from streammach.prediction.memory import room_before
from streammach.prediction.order import Predictions
from streammach.prediction.output.formats import Shape
from streammach.prediction.output.writing import Output, output_of, target, writing
from streammach.prediction.predictor import Predictor
from streammach.progress import Wanted, shown
from streammach.spec.types import Decoding, Ranker
from streammach.threads import in_order

UNITS = {"predict": "rows", "write": "rows"}


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """What was predicted and written.

    Attributes
    ----------
    out : str or None
        The table; None for standard output.
    n_rows : int
        Its rows.
    k : int
        Most classes a row.
    estimator : str
        What the scores are.
    unknown_values : int
        Values left out because the model does not know their feature.
    skipped : dict of str to int
        Rows that could not be read, by reason.
    rejects : str or None
        The file that lists them; None without any, or where nothing lists them.
    seconds : float
        Time taken.
    projected_bytes : int
        Memory that was expected to be taken.
    """

    out: str | None
    n_rows: int
    k: int
    estimator: Ranker
    unknown_values: int
    skipped: dict[str, int]
    rejects: str | None
    seconds: float
    projected_bytes: int


def predict(
    predictor: Predictor | Model | str | os.PathLike[str], path: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None, *, k: int = 5, threshold: float | None = None,
    probabilities: bool = False, out_format: str | None = None, on_bad_row: str = "error",
    max_bad: int | None = None, rejects: str | os.PathLike[str] | None = None, force: bool = False,
    options: SourceOptions = GUESSED, memory: str | int | None = None, device: str = "auto",
    decode: Decoding = "auto", threads: int | None = None, progress: Wanted = None,
) -> Predicted:  # fmt: skip
    """Write the best classes of every row of an input, in its order, with its row numbers and tags.

    The table appears when it is whole; a call that is interrupted leaves nothing.

    Parameters
    ----------
    predictor : Predictor, Model, or path-like
        The model with its estimator; or a model, or the folder of one or of a run.
    path : path-like
        A store, or a file of any format that can be converted, whose rows need no labels; ``-`` is
        text on standard input.
    out : path-like, optional
        The table; standard output otherwise.
    k : int
        Most classes a row.
    threshold : float, optional
        Give the labels with at least this probability, `k` at most, and their probabilities as
        scores. Only of rows with lists of labels.
    probabilities : bool
        Give calibrated probabilities in place of scores; see
        :meth:`streammach.Predictor.topk`.
    out_format : str, optional
        ``tsv``, ``csv``, ``jsonl`` or ``parquet``; told by the name of `out` otherwise.
    on_bad_row : str
        ``error`` or ``skip``: rows of a file that cannot be read are left out, and keep their
        numbers.
    max_bad : int, optional
        How many may be skipped; any number otherwise.
    rejects : path-like, optional
        Where these are listed; the name of `out` followed by ``.rejects.tsv`` otherwise.
    force : bool
        Whether a table of predictions that is there may be replaced.
    options : SourceOptions, optional
        How a file is read; guessed otherwise.
    memory : str or int, optional
        Bytes that the process may take, such as ``"1GB"``; those of a predictor that is given, or 2
        GB or what the model needs.
    device : str
        ``auto``, ``cpu`` or ``cuda``.
    decode : str
        How the CPU finds the best classes; see
        :class:`streammach.prediction.predictor.Predictor`.
    threads : int, optional
        Threads that compute; all cores otherwise.
    progress : bool, str or callable, optional
        Whether it is told how it goes: True or ``auto``, ``bar``, ``plain``, ``json``; or what is
        called with (stage, done, total).

    Raises
    ------
    UsageError, DataError, StoreError, ModelError, DiskError
        If the model or the input cannot be read, or the table cannot be written.
    BudgetError
        If it does not fit the memory.
    """
    began = time.monotonic()
    request = PredictionRequest(k=k, threshold=threshold, probabilities=probabilities)
    table, skip = None if out is None else Path(out), skipping(on_bad_row, max_bad)
    output = output_of(table, out_format)
    folder = None if isinstance(predictor, Predictor | Model) else folder_of(predictor)
    reads = [located(path), *([] if folder is None else [folder])]
    if table is not None:
        remove_left(table)  # by a process that was killed
    goal = target(table, force=force, inputs=[*reads])
    if isinstance(goal, Destination):
        if rejects is None and skip:
            rejects = goal.path.with_name(f"{goal.path.name}.rejects.tsv")
        reads.append(goal.path)
    listed = rejects_list(rejects, skip=skip, force=force, inputs=reads)
    with ExitStack() as stack:
        room = None
        if folder is not None:
            room = room_before(
                folder, "predict", path, request.best, memory=memory, device=device, decode=decode,
                threads=threads, options=options, beside=output.beside,
            )  # fmt: skip
        if not isinstance(predictor, Predictor):
            model = predictor if isinstance(predictor, Model) else Model.load(predictor)
            predictor = stack.enter_context(
                Predictor(model, memory=memory, device=device, threads=threads, decode=decode)
            )
        room = room or predictor.room("predict", path, request.best, options, output.beside)
        bad_rows = stack.enter_context(listed_rows(listed, skip=skip, most=max_bad))
        told = stack.enter_context(shown(progress, UNITS))
        shape, seen = request.shape(predictor.model), InputCounts()
        parts = predictor.stream(
            path, k, options=options, seen=seen, threshold=threshold, probabilities=probabilities,
            room=room, bad_rows=bad_rows, told=lambda n: told("predict", n, seen.total),
            beside=goal.path if isinstance(goal, Destination) else None,
        )  # fmt: skip
        n_rows = write_table(
            parts, goal, output, shape, ahead=not is_piped(located(path)),
            # Rows of a store are all ranked before the first is written.
            told=lambda n: told("write" if seen.total else "predict", n, seen.total),
        )  # fmt: skip
    return Predicted(
        out=None if goal is None else str(table), n_rows=n_rows, k=shape.k,
        estimator=predictor.model.calibrated if request.calibrated else predictor.estimator,
        unknown_values=seen.unknown_values, skipped=dict(bad_rows.reasons),
        rejects=str(listed.path) if listed is not None and bad_rows.total else None,
        seconds=time.monotonic() - began, projected_bytes=room.projected_bytes,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PredictionRequest:
    """What is wanted of each row."""

    k: int  # most classes a row
    threshold: float | None  # the least probability of a label that is given
    probabilities: bool  # whether probabilities stand in place of scores

    @property
    def calibrated(self) -> bool:
        """Whether the ranking that is calibrated is used."""
        return self.probabilities or self.threshold is not None

    @property
    def best(self) -> int:
        """Classes that are ranked of each row."""
        return max(self.k, CANDIDATES) if self.calibrated else self.k

    def shape(self, model: Model) -> Shape:
        """Return what all rows of the table have in common."""
        word = "probability" if self.probabilities else "score"
        return Shape(k=min(self.k, model.spec.n_classes), labels=model.labels, word=word)


def write_table(
    parts: Iterator[Predictions], goal: Destination | Path | None, output: Output, shape: Shape, *,
    told: Callable[[int], None], ahead: bool = True,
) -> int:  # fmt: skip
    """Write rows, which a thread makes ready while the next ones are ranked; return their number.

    Without `ahead` each part is written as soon as it is there: rows of a pipe are answered when
    they come.
    """
    n_rows = 0
    with writing(goal, output, shape) as write, ThreadPoolExecutor(1, "rows") as pool:

        def made(part: Predictions) -> tuple[Any, int]:
            return output.format.rows(part, shape), len(part.rows)

        calls = (partial(made, part) for part in parts)
        for rows, n in in_order(pool, calls, int(ahead)):
            write(rows)
            n_rows += n
            told(n_rows)
    return n_rows
