"""Predictions of a whole input as a table: read, ranked and written at the same time."""

from __future__ import annotations

import io
import os
import sys
import time
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from isal import igzip

from streammach.inputs.bad_rows import listed_rows, skipping
from streammach.inputs.source_options import GUESSED, SourceOptions
from streammach.model.document import folder_of, read_document
from streammach.model.model import Model
from streammach.options.annotated import check_options
from streammach.options.model_spec import ModelSpec
from streammach.options.option_fields import add_attributes, add_parameters, attribute
from streammach.options.types import Ranker
from streammach.prediction.allowed import LabelFile, labels_in
from streammach.prediction.inputs import InputCounts
from streammach.prediction.options import Device, ListedRowOptions, PredictOptions
from streammach.prediction.output import OUTPUT_FORMATS, AnswerShape, ByteFile, OutputFormat, Write
from streammach.prediction.predictor import Predictor
from streammach.prediction.room import room_before
from streammach.prediction.scorer_sum import PredictionRequest, Predictions, check_hashed
from streammach.system.errors import DiskError, UsageError, check_word
from streammach.system.files.destinations import Destination, is_stream, not_regular
from streammach.system.files.raw_text import is_piped
from streammach.system.files.reading import PIECE, disk_error, disk_errors
from streammach.system.files.urls import locate
from streammach.system.files.writing import Writer
from streammach.system.machine import budget
from streammach.system.progress import ProgressBar, Wanted, for_stream
from streammach.system.threads import work_ahead

PACKED = ".gz"
START_BYTES = 1 << 16
GZIP_MAGIC, GZIP_BITS, GZIP_LEVEL = b"\x1f\x8b", 31, 1
UNITS = {"predict": "rows", "write": "rows"}


@add_attributes
@dataclass(frozen=True, kw_only=True)
class Predicted:
    """What was predicted and written."""

    out: str | None = attribute("The table; None for standard output.")
    n_rows: int = attribute("Its rows.")
    k: int = attribute("Most classes a row.")
    estimator: Ranker = attribute("What the scores are.")
    unknown_values: int = attribute("Values left out because the model lacks their feature.")
    skipped: dict[str, int] = attribute("Rows that could not be read, by reason.")
    rejects: str | None = attribute("The file that lists them; None where there is none.")
    seconds: float = attribute("Time taken.")
    projected_bytes: int = attribute("Memory that was expected to be taken.")


@add_parameters(PredictOptions, ListedRowOptions, Device)
def predict(
    predictor: Predictor | Model | str | os.PathLike[str], path: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None, *, k: int = 5, threshold: float | None = None,
    probabilities: bool = False, only: LabelFile | None = None, never: LabelFile | None = None,
    explain: int = 0, out_format: str | None = None, on_bad_row: str = "error",
    max_bad: int | None = None, rejects: str | os.PathLike[str] | None = None, force: bool = False,
    options: SourceOptions = GUESSED, memory: str | int | None = None, device: str = "auto",
    threads: int | None = None, progress: Wanted = None,
    buckets: str | os.PathLike[str] | None = None,
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
    options : SourceOptions, optional
        How a file is read; guessed otherwise.
    progress : bool, str or callable, optional
        Whether it is told how it goes, as for :func:`streammach.train`.

    Raises
    ------
    UsageError, DataError, StoreError, ModelError, DiskError
        If the model or the input cannot be read, or the table cannot be written.
    BudgetError
        If it does not fit the memory.
    """
    check_options(predict.__annotations__, locals())
    began = time.monotonic()
    folder = None if isinstance(predictor, Predictor | Model) else folder_of(predictor)
    n_columns = 0 if buckets is None else check_hashed(_spec_of(predictor)).n_columns
    table, skip = None if out is None else Path(out), skipping(on_bad_row, max_bad)
    most_bytes = budget(memory).most
    request = PredictionRequest(
        k=k, threshold=threshold, probabilities=probabilities, explain=explain,
        only=labels_in(only, most_bytes), never=labels_in(never, most_bytes), n_columns=n_columns,
    )  # fmt: skip
    output = output_of(table, out_format)
    beside = output.beside | request.beside(0)
    reads = [locate(path), *([] if folder is None else [folder])]
    goal = target(table, force=force, inputs=[*reads])
    if isinstance(goal, Destination):
        if rejects is None and skip:
            rejects = goal.path.with_name(f"{goal.path.name}.rejects.tsv")
        reads.append(goal.path)
    extra = None
    if buckets is not None:  # nothing in such a file says who made it: none is replaced
        extra = Destination(
            Path(buckets), lambda _: "it exists already", force=True, inputs=[*reads]
        )
        reads.append(extra.path)
    listed = listed_rows(rejects, skip=skip, most=max_bad, force=force, inputs=reads)
    with ExitStack() as stack:
        projected, bad_rows = 0, stack.enter_context(listed)
        if folder is not None:
            projected = room_before(
                folder, "predict", path, request.cells(), memory=memory, device=device,
                threads=threads, options=options, beside=beside, some_labels=request.some_labels,
            ).projected_bytes  # fmt: skip
        if not isinstance(predictor, Predictor):
            model = predictor if isinstance(predictor, Model) else Model.load(predictor)
            opened = Predictor(model, memory=memory, device=device, threads=threads)
            predictor = stack.enter_context(opened)
        allowed = predictor.limit_labels(request.only, request.never)
        room = predictor.room(
            "predict", path, request.cells(allowed), options, beside,
            some_labels=allowed is not None,
        )  # fmt: skip
        report = stack.enter_context(ProgressBar(progress, UNITS))
        shape, seen = AnswerShape.of(request, predictor.model, allowed), InputCounts()
        parts = predictor.rank_input(
            locate(path), request, options=options, room=room, allowed=allowed,
            seen=seen, bad_rows=bad_rows, report=lambda n: report("predict", n, seen.total),
            beside=goal.path if isinstance(goal, Destination) else None,
        )  # fmt: skip
        if extra is not None:
            written = write_buckets(parts, extra, predictor.model.spec)
            parts = stack.enter_context(closing(written))
        n_rows = write_table(
            parts, goal, output, shape, at_once=is_piped(locate(path)),
            # Rows of a store are all ranked before the first is written.
            report=lambda n: report("write" if seen.total else "predict", n, seen.total),
        )  # fmt: skip
    return Predicted(
        out=None if goal is None else str(table), n_rows=n_rows, k=shape.k,
        estimator=predictor.model.calibrated_ranking if request.calibrated else predictor.estimator,
        unknown_values=seen.unknown_values, skipped=dict(bad_rows.reasons),
        rejects=str(rejects) if rejects is not None and bad_rows.total else None,
        seconds=time.monotonic() - began, projected_bytes=max(projected, room.projected_bytes),
    )  # fmt: skip


def write_table(
    parts: Iterator[Predictions], goal: Destination | Path | None, output: Output,
    shape: AnswerShape, *, report: Callable[[int], None], at_once: bool = False,
) -> int:  # fmt: skip
    """Write rows while a thread ranks the next ones; return their number.

    With `at_once` each part is written before the next one is begun: rows of a pipe are answered
    when they come.
    """
    n_rows = 0
    with writing(goal, output, shape) as write:
        for part in parts if at_once else work_ahead(parts, "ranking"):
            write(output.format.rows(part, shape))
            n_rows += len(part.rows)
            report(n_rows)
    return n_rows


def _spec_of(predictor: Predictor | Model | str | os.PathLike[str]) -> ModelSpec:
    """Return the shape of a model, which is perhaps not loaded yet."""
    model = predictor.model if isinstance(predictor, Predictor) else predictor
    return (model if isinstance(model, Model) else read_document(model)).spec


def write_buckets(
    parts: Iterator[Predictions], goal: Destination, spec: ModelSpec
) -> Generator[Predictions, None, None]:
    """Yield predictions; bucket probabilities of their rows are a .npy file in the end."""
    n_rows = 0

    def write_head() -> bytes:  # NumPy leaves room in it for any number of rows
        head, facts = io.BytesIO(), {"descr": "<f4", "fortran_order": False}
        sizes = n_rows, spec.n_repetitions, spec.n_buckets
        np.lib.format.write_array_header_1_0(head, {**facts, "shape": sizes})
        return head.getvalue()

    with goal.scratch() as made, Writer(goal.path, temporary=made) as out:
        out.write(write_head())
        for part in parts:
            out.write(np.asarray(part.buckets).reshape(-1).view(np.uint8).data)
            n_rows += len(part.rows)
            yield part
        with disk_errors(goal.path), open(made, "r+b") as file:
            file.write(write_head())
        goal.take(made)


@dataclass(frozen=True)
class Output:
    """How predictions are written: the format, and whether it is packed by gzip."""

    format: OutputFormat
    packed: bool = False

    @property
    def beside(self) -> dict[str, int]:
        """Memory that the format takes, by its name."""
        return {self.format.name: self.format.import_bytes} if self.format.import_bytes else {}


def output_of(path: Path | None, name: str | None = None) -> Output:
    """Return how predictions are written, or raise UsageError."""
    if name is not None:
        check_word(name, OUTPUT_FORMATS, "--out-format")
    stream = path is None or is_stream(path)
    endings = [] if path is None else [ending.lower() for ending in path.suffixes]
    packed = bool(endings) and endings[-1] == PACKED and not stream
    ending = "".join((endings[:-1] if packed else endings)[-1:])
    by_ending = {known: form.name for form in OUTPUT_FORMATS.values() for known in form.endings}
    form = OUTPUT_FORMATS[name or by_ending.get(ending, "tsv")]
    if not form.text and (stream or packed):
        where = "is packed already: no .gz" if packed else "is written to a file: --out"
        raise UsageError(f"{form.name} {where}", path=path)
    form.check()
    return Output(form, packed)


def not_predictions(path: Path) -> str | None:
    """Return why a file holds no predictions of ours, in any format; None if it does."""
    why = not_regular(path)
    if why is not None:
        return why
    with open(path, "rb") as file:
        start = file.read(START_BYTES)
    if start.startswith(GZIP_MAGIC):
        try:
            start = zlib.decompressobj(GZIP_BITS).decompress(start, START_BYTES)
        except zlib.error:
            start = b""
    if any(form.is_ours(path, start) for form in OUTPUT_FORMATS.values()):
        return None
    return "it is no table of predictions that streammach made"


def target(path: Path | None, *, force: bool, inputs: list[Path]) -> Destination | Path | None:
    """Return where a table goes; None stands for standard output."""
    if path is None or (is_stream(path) and str(path) in ("-", "/dev/stdout")):
        if sys.stdout is None:
            raise DiskError("it is closed", path="standard output", hint="Name a file with --out.")
        return None
    return (
        path if is_stream(path) else Destination(path, not_predictions, force=force, inputs=inputs)
    )


@contextmanager
def writing(goal: Destination | Path | None, output: Output, shape: AnswerShape) -> Iterator[Write]:
    """Yield what writes rows: of a file that appears in the end, a pipe, standard output."""
    with ExitStack() as stack:
        if isinstance(goal, Destination):
            made = stack.enter_context(goal.scratch())
            write: Write = stack.enter_context(Writer(goal.path, temporary=made)).write
        else:
            write = _print if goal is None else stack.enter_context(_write_to_pipe(goal))
        with ExitStack() as table:
            if output.packed:
                write = table.enter_context(_write_gzip(write))
            yield table.enter_context(output.format.table(write, shape))
        if isinstance(goal, Destination):
            goal.take(made)


def _print(rows: bytes) -> None:
    """Write to standard output, whose reader gets rows as they come."""
    sys.stdout.write(for_stream(rows, is_terminal=sys.stdout.isatty()).decode())
    sys.stdout.flush()


@contextmanager
def _write_to_pipe(path: Path) -> Iterator[Write]:
    """Yield what writes to a pipe or a device."""

    def write(rows: bytes) -> None:
        file.write(for_stream(rows, is_terminal=file.isatty()))
        file.flush()

    try:
        with open(path, "wb", opener=lambda name, _: os.open(name, os.O_WRONLY)) as file:
            yield write
    except (BrokenPipeError, DiskError):
        raise
    except OSError as error:
        raise disk_error(error, path) from error


@contextmanager
def _write_gzip(write: Write) -> Iterator[Write]:
    """Yield what packs text in pieces of one size: the bytes do not depend on how rows come."""
    waiting = bytearray()
    packed = igzip.GzipFile(fileobj=ByteFile(write), mode="wb", compresslevel=GZIP_LEVEL, mtime=0)
    with packed as file:

        def add(rows: bytes) -> None:
            waiting.extend(rows)
            while len(waiting) >= PIECE:
                file.write(waiting[:PIECE])
                del waiting[:PIECE]

        yield add
        file.write(waiting)
