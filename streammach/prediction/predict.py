"""Predictions of a whole input as a table: read, ranked and written at the same time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from streammach.data.bad_rows import BadRows, listed_rows, rejects_list, skipping
from streammach.data.identity import files_in, state_of
from streammach.data.source_options import GUESSED, SourceOptions
from streammach.data.store.dataset import Dataset
from streammach.data.text import is_piped
from streammach.errors import UsageError
from streammach.files.destinations import Destination
from streammach.files.urls import located
from streammach.model.model import Model, folder_of
from streammach.prediction.asked import Ask, document_digest
from streammach.prediction.inputs import Seen, is_store
from streammach.prediction.memory import room_before
from streammach.prediction.order import NOTHING_KEPT, Kept, Predictions
from streammach.prediction.output.base import Shape
from streammach.prediction.output.kept import Appended, KeptWork
from streammach.prediction.output.places import Sink, streamed, target
from streammach.prediction.output.registry import Output, output_of
from streammach.prediction.predictor import Predictor
from streammach.prediction.room import Room
from streammach.progress import Told, Wanted, shown
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
    resumed : bool
        Whether it went on from an interrupted one.
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
    resumed: bool
    seconds: float
    projected_bytes: int


def predict(
    predictor: Predictor | Model | str | os.PathLike[str],
    path: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    k: int = 5,
    threshold: float | None = None,
    probabilities: bool = False,
    out_format: str | None = None,
    on_bad_row: str = "error",
    max_bad: int | None = None,
    rejects: str | os.PathLike[str] | None = None,
    resume: bool = False,
    force: bool = False,
    options: SourceOptions = GUESSED,
    memory: str | int | None = None,
    device: str = "auto",
    decode: Decoding = "auto",
    threads: int | None = None,
    progress: Wanted = None,
) -> Predicted:
    """Write the best classes of every row of an input, in its order, with its row numbers and tags.

    The table appears when it is whole. What is made of it is kept beside it until then, in a hidden
    folder, so that a call that was interrupted or killed can go on: `resume`.

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
    resume : bool
        Whether to go on with an interrupted call of the same model, input and options.
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
    MismatchError
        If what was interrupted had another model, input or option.
    BudgetError
        If it does not fit the memory.
    Interrupted
        If it was interrupted (KeyboardInterrupt) and the same call would go on.
    """
    began = time.monotonic()
    ask = Ask(k=k, threshold=threshold, probabilities=probabilities, options=options)
    table, skip = None if out is None else Path(out), skipping(on_bad_row, max_bad)
    output = output_of(table, out_format)
    folder = None if isinstance(predictor, Predictor | Model) else folder_of(predictor)
    reads = [located(path), *([] if folder is None else [folder])]
    if table is not None and not force and table.is_file():
        KeptWork(table).tidy()
    goal = target(table, force=force, inputs=[*reads])
    if isinstance(goal, Destination):
        if rejects is None and skip:
            rejects = goal.path.with_name(f"{goal.path.name}.rejects.tsv")
        reads.append(goal.path)
    listed = rejects_list(rejects, skip=skip, force=force or resume, inputs=reads)
    if resume and (folder is None or is_piped(located(path)) or not isinstance(goal, Destination)):
        what = "the folder of a model, an input that can be read again, and a table: --resume"
        raise UsageError(f"only a command can go on that has {what}")
    with ExitStack() as stack:
        work = None
        if isinstance(goal, Destination):
            work = KeptWork(goal.path)
            stack.enter_context(work.locked())
            work.check()
        room = None
        imports = output.format.import_bytes
        beside = {output.format.name: imports} if imports else {}
        if folder is not None:
            room = room_before(
                folder, "predict", path, ask.best, memory=memory, device=device, decode=decode,
                threads=threads, options=options, beside=beside,
            )  # fmt: skip
        if not isinstance(predictor, Predictor):
            model = predictor if isinstance(predictor, Model) else Model.load(predictor)
            predictor = stack.enter_context(
                Predictor(model, memory=memory, device=device, threads=threads, decode=decode)
            )
        room = room or predictor.room("predict", path, ask.best, options, beside)
        bad_rows = stack.enter_context(listed_rows(listed, skip=skip, most=max_bad))
        told = stack.enter_context(shown(progress, UNITS))
        job = _Job(predictor, located(path), ask, output, room, bad_rows, told)
        if work is None or not isinstance(goal, Destination):
            job.stream(goal if isinstance(goal, Path) else None)
        else:
            job.keep(work, goal, _identity(job, folder), resume=resume)
    n_bad = bad_rows.total
    return Predicted(
        out=None if goal is None else str(table), n_rows=job.n_rows, k=job.shape.k,
        estimator=job.ranker, unknown_values=job.seen.unknown_values,
        skipped=dict(bad_rows.reasons),
        rejects=str(listed.path) if listed is not None and n_bad else None, resumed=job.resumed,
        seconds=time.monotonic() - began, projected_bytes=room.projected_bytes,
    )  # fmt: skip


@dataclass
class _Job:
    """The work: one thread reads rows, this one and its own rank, one more makes bytes."""

    predictor: Predictor
    path: Path
    ask: Ask
    output: Output
    room: Room
    bad_rows: BadRows
    told: Told
    seen: Seen = field(default_factory=Seen)
    n_rows: int = 0  # rows of the table so far
    resumed: bool = False  # whether it went on from an interrupted one

    @property
    def shape(self) -> Shape:
        """What all rows of the table have in common."""
        model = self.predictor.model
        k = min(self.ask.k, model.spec.n_classes)
        return Shape(k=k, labels=model.labels, word=self.ask.word)

    @property
    def ranker(self) -> Ranker:
        """What makes the scores."""
        model = self.predictor.model
        return model.calibrated if self.ask.calibrated else self.predictor.estimator

    def stream(self, path: Path | None) -> None:
        """Write the table to standard output, or to a pipe or a device."""
        parts = self._parts(NOTHING_KEPT)
        with streamed(path, self.output.format.heading(self.shape)) as sink:
            self._write(parts, sink)

    def keep(
        self, work: KeptWork, goal: Destination, identity: Mapping[str, Any], *, resume: bool
    ) -> None:
        """Write the table to a file, and keep what there is of it when that is interrupted."""
        self.resumed = work.start(identity, resume=resume)
        with work.gone_on_with(again=not is_piped(self.path)):
            parts = self._parts(work.kept)
            out = Appended(work, goal.path, self.output.format.heading(self.shape))
            self.n_rows = out.written.rows
            try:
                self._write(parts, out)
            except KeyboardInterrupt:
                out.save()
                raise
            finally:
                out.close()
            work.take(goal, work.finished(self.output, self.shape))

    def _parts(self, kept: Kept) -> Iterator[Predictions]:
        ask = self.ask
        return self.predictor.stream(
            self.path, ask.k, options=ask.options, seen=self.seen, threshold=ask.threshold,
            probabilities=ask.probabilities, room=self.room, bad_rows=self.bad_rows, kept=kept,
            told=lambda n: self.told("predict", n, self.seen.total),
        )  # fmt: skip

    def _write(self, parts: Iterator[Predictions], sink: Sink) -> None:
        """Write rows, which a thread makes into bytes while the next ones are ranked."""
        made, shape = self.output.format.rows, self.shape
        calls = (partial(_made, made, part, shape) for part in parts)
        waiting = 0 if is_piped(self.path) else 1  # rows of a pipe are answered when they come
        with ThreadPoolExecutor(1, "rows") as pool:
            for rows, n in in_order(pool, calls, waiting):
                sink.add(rows, n)
                self.n_rows += n
                # Rows of a store are all ranked before the first is written.
                self.told("write" if self.seen.total else "predict", self.n_rows, self.seen.total)


def _made(
    made: Callable[[Predictions, Shape], bytes], part: Predictions, shape: Shape
) -> tuple[bytes, int]:
    return made(part, shape), len(part.rows)


def _identity(job: _Job, folder: Path | None) -> dict[str, Any]:
    """Return what a table is made of: who goes on with it must have the same."""
    ask, path, model = job.ask, job.path, job.predictor.model
    if is_piped(path):
        source: Any = None
    elif is_store(path):
        with Dataset.open(path) as data:
            source = data.digest
    else:
        files = files_in(path) if path.is_dir() else [path]
        source = [asdict(state_of(file)) for file in files]
    # Products of dense rows depend, in their last digits, on how rows are cut and shared out.
    cut = [job.room.rows, job.room.values, job.predictor.threads] if model.dense else []
    return {
        "model": None if folder is None else document_digest(folder), "input": source,
        "options": ask.facts(
            job.output, skip=job.bad_rows.skip, device=job.predictor.device, cut=cut
        ),
    }  # fmt: skip
