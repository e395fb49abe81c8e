"""Converts sources of rows into a store: ids by frequency, rows in a full random order."""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from streammach.conversion.build import STAGES, UNITS, Build, ConversionOutcome
from streammach.conversion.explore import explore_sources
from streammach.conversion.folder import ConversionFolder, ConversionMemory
from streammach.conversion.memory_sources import memory_source
from streammach.conversion.request import ConversionRequest
from streammach.conversion.small_conversion import compile_before
from streammach.conversion.store_source import open_extended
from streammach.inputs.bad_rows import LIST, skipping
from streammach.inputs.identity import ChangedError, FileState, check_unchanged, state_of
from streammach.inputs.source import Source
from streammach.inputs.source_options import ConvertOptions, Paths, paths_of
from streammach.inputs.sources import agree_recipe, open_sources, tables_of
from streammach.inputs.tables.memory_objects import named_files
from streammach.inputs.tables.table_reader import TableCounts
from streammach.inputs.tokenizers import Tokenizer
from streammach.options.annotated import check_options
from streammach.options.option_fields import add_attributes, add_parameters, attribute, make_record
from streammach.options.types import STORE_FORMAT, Multilabel, Quotes
from streammach.store.dataset import Dataset
from streammach.store.opening import not_a_store
from streammach.store.remote import Upload
from streammach.system.errors import (
    DataError,
    DiskError,
    Interrupted,
    LockedError,
    UsageError,
    clean,
)
from streammach.system.files.destinations import Destination, check_name
from streammach.system.files.folders import make_folder, remove_leftovers, temporary_folder
from streammach.system.files.reading import check_free, file_pieces
from streammach.system.files.urls import Url, locate
from streammach.system.files.writing import remove_file, write_atomic
from streammach.system.machine import cores
from streammach.system.progress import ProgressBar, Wanted

LARGE_BYTES = 1 << 30  # of sources, from which on the disk is looked at before the work
RUNS = 6  # the way in which rows are put aside; those of another one are not gone on from


@add_attributes
@dataclass(frozen=True, kw_only=True)
class Conversion:
    """What a conversion made."""

    path: str = attribute("The store.")
    digest: str = attribute("SHA-256 of its manifest.")
    n_rows: int = attribute("Rows of the store.")
    n_classes: int = attribute("Its classes.")
    n_features: int = attribute("Its features.")
    nnz: int = attribute("Its values.")
    skipped: dict[str, int] = attribute("Rows left out, by reason.")
    duplicates: int = attribute("Values that were added to another one of their row and feature.")
    unknown_values: int = attribute("Values dropped because the store of `like` lacks the feature.")
    unseen_label_rows: int = attribute("Rows whose label the store given by `like` does not have.")
    formats: tuple[str, ...] = attribute("The format of each source.")
    notes: tuple[str, ...] = attribute("What was guessed about sources beside their format.")
    rejects: str | None = attribute("The file that lists the rows left out.")
    resumed: bool = attribute("Whether it went on from what an interrupted one had left.")
    projected_bytes: int = attribute("Memory that the process was to take at most.")
    seconds: float = attribute("Time of the call.", 0.0)
    weightless_rows: int = attribute("Rows of importance 0, which are left out.", 0)
    new_rows: int = attribute("Rows that the store given by `extend` does not have.", 0)
    new_classes: int = attribute("Classes that it does not have.", 0)
    new_features: int = attribute("Features that it does not have.", 0)
    rare_features: int = attribute("Features of fewer rows than `min_rows`, which are left out.", 0)
    rare_values: int = attribute("Values of these.", 0)
    single_row_features: int = attribute("Features of one row among all that were met.", 0)


@add_parameters(ConvertOptions)
def convert(
    sources: Paths | Any, out: str | os.PathLike[str], *, format: str | None = None,
    labels: Paths = (), x_path: str | None = None, y_path: str | None = None,
    first_label: bool = False, multilabel: Multilabel = "auto", label: str | None = None,
    text: str | Sequence[str] = (), category: str | Sequence[str] = (),
    number: str | Sequence[str] = (), date: str | Sequence[str] = (),
    names: str | Sequence[str] = (), weight: str | None = None, tag: str | None = None,
    label_names: str | None = None, label_separator: str | None = None, ngrams: int | None = None,
    chars: str | None = None, language: str | None = None, tokenizer: Tokenizer | None = None,
    quotes: Quotes = "auto", header: bool = True, columns: str | Sequence[str] = (),
    like: str | os.PathLike[str] | None = None, extend: str | os.PathLike[str] | None = None,
    min_rows: int = 1, on_bad_row: str = "error", max_bad: int | None = None,
    memory: str | int | float | None = None, threads: int | None = None,
    seed: int = 0, force: bool = False, progress: Wanted = None,
) -> Conversion:  # fmt: skip
    """Convert text files or matrices into one store.

    The order of the rows, the ids and every byte of the store follow from the sources, their order
    and the seed alone: neither from the memory nor from the number of threads. Rows that do not fit
    the memory are put aside, in order, in a folder beside the store; a conversion that is cut off
    after that goes on from there when it is started again. Rows that are skipped are listed in a
    file beside the store, its name followed by ``.rejects.tsv``. Rows that lose all features stay.

    Parameters
    ----------
    sources : path-like or sequence of them, table, AnnData, (X, y), or what gives some at a time
        VW, svmlight or XMC text, plain or gzip (``-``: standard input); tables in Parquet, Arrow,
        CSV, TSV or JSON lines; matrices in HDF5, .npz or .npy. Columns of a matrix are features
        named by their numbers, counted from 0. Or rows in memory: a DataFrame, an Arrow table, a
        dict of columns, a list of dictionaries; AnnData, whose `label` is a column of obs; a pair
        of a matrix and labels, as for :func:`streammach.train`. Or an iterator, loader or stream of
        dicts, of such tables or of such pairs, all of one kind, which is gone through once.
    out : path-like
        The store to make; it appears only when it is whole. At a URL (``s3://``, ``gs://``) it is
        made in a temporary folder, then uploaded; an upload that was cut off goes on when the same
        call is made again.
    progress : bool, str or callable, optional
        Whether it is told how it goes, as for :func:`streammach.train`.

    Raises
    ------
    UsageError
        If a path or option is wrong.
    DataError
        If a source is malformed, cut short or empty.
    BudgetError
        If the memory is too little, or more than there is.
    DiskError, LockedError
        If the store cannot be written.
    Interrupted
        If it was interrupted (KeyboardInterrupt) and the same call would go on.
    """
    parameters = locals()
    check_options(convert.__annotations__, parameters)
    target = locate(out)
    if isinstance(target, Url):
        return _convert_to_url(target, parameters)
    began, label_paths = time.monotonic(), paths_of(labels)
    files, first = named_files(sources)
    in_memory, paths = files is None, files or []
    check_name(target)
    skipping(on_bad_row, max_bad)
    if not (paths or in_memory):
        raise UsageError("no source was named")
    asked = make_record(ConvertOptions, parameters)
    if target.exists() and not force:
        tidy(target)
    recipe, model = None, like if extend is None else extend
    if model is not None:
        with Dataset.open(model) as known:
            recipe = known.root.recipe
            if multilabel == "auto":
                multilabel = "on" if known.listed else "off"
            if extend is not None:
                least = int(known.root.options.get("min_rows") or 1)
                asked = replace(asked, min_rows=max(min_rows, least))
    alike = replace(asked.source, multilabel=multilabel, recipe=recipe)
    options = alike.each(len(paths)) or [alike]  # rows in memory have none
    reads = [*paths, *label_paths, *([] if model is None else [locate(model)])]
    folder, destination, listed = check_target(target, reads, force=force)
    with (
        folder.hold_lock(),
        ProgressBar(progress, UNITS, STAGES) as told,
        open_extended(extend) as old,
    ):
        if in_memory:
            source, options[0] = memory_source(sources, options[0], first)
            opened = [source]
        else:
            opened = open_sources(paths, options)
            # May what headers claim, and first rows of tables, be read?
            reading = [source.reading_bytes() for source in opened]
            ConversionMemory.of(memory, reading, threads or cores(), 0).room(0, 0)
            compile_before(opened, options, like, memory, threads or cores())
        request = ConversionRequest(
            asked=asked, options=agree_recipe(opened, options, recipe),
            n_threads=threads or cores(), progress=told,
        )  # fmt: skip
        _check_disk(opened, target)
        opened = [*old, *opened]
        read = [path for source in opened for path in source.files()] + label_paths
        states = [state_of(path) for path in read]
        made, resumed = _make(opened, states, folder, request)
        try:
            check_unchanged(states, read)
        except DataError:
            folder.remove()
            raise
        rejects = _commit(folder, destination, listed)
    notes = [f"{clean(s.path.name)}: {s.note}" for s in opened if s.note]
    if not resumed:  # else a part was counted by the one that was cut off
        notes += [f"{clean(s.path.name)}: {it}" for s in tables_of(opened) for it in s.remarks()]
    root = made.root
    return Conversion(
        path=str(target), digest=root.manifest, n_rows=root.rows, n_classes=root.classes,
        n_features=root.features, nnz=root.nnz, skipped=root.skipped, **root.counts,
        single_row_features=made.single_row_features,
        formats=tuple(source.form for source in opened), notes=tuple(notes), rejects=rejects,
        resumed=resumed, projected_bytes=made.memory, seconds=time.monotonic() - began,
    )  # fmt: skip


def _convert_to_url(url: Url, parameters: dict[str, Any]) -> Conversion:
    """Make a store in a temporary folder, and put it at a URL."""
    began = time.monotonic()
    if parameters["on_bad_row"] == "skip":
        what = "rows that are skipped are listed beside a store, in a folder"
        raise UsageError(what, path=url, hint="Convert into a folder, and copy it.")
    upload = Upload(url, force=parameters["force"])
    with temporary_folder() as folder:
        make_folder(folder)
        made = convert(**parameters | {"out": folder / "store"})
        upload.send(folder / "store", parameters["progress"])
    return replace(made, path=str(url), seconds=time.monotonic() - began)


def check_target(
    target: Path, reads: Sequence[Path], *, force: bool
) -> tuple[ConversionFolder, Destination, Destination]:
    """Refuse a store that may not be made; nothing is written."""
    store = Destination(target, not_a_store, force=force, inputs=reads)
    folder = ConversionFolder(target)
    cut_off = folder.check()  # it may have made the list, and not yet given the store its name
    listed = Destination(folder.rejects, LIST, force=force or cut_off, inputs=reads)
    return folder, store, listed


def _check_disk(opened: list[Source[Any]], target: Path) -> None:
    """Refuse large sources whose store, and what is put aside for it, will not fit the disk."""
    if sum(source.n_bytes for source in opened) < LARGE_BYTES:
        return
    estimate = explore_sources(opened)
    for table in tables_of(opened):
        table.counts = TableCounts()  # the sample is read again
    check_free(target.parent, estimate.store_bytes + estimate.scratch_bytes, "the conversion")


def _make(
    opened: list[Source[Any]], states: list[FileState], folder: ConversionFolder,
    request: ConversionRequest,
) -> tuple[ConversionOutcome, bool]:  # fmt: skip
    piped = any(not source.files() for source in opened)
    if piped:
        folder.remove()
    try:
        build = Build(opened, folder, request)
        identity = msgspec.json.encode({
            "format": STORE_FORMAT, "sources": [] if piped else states,
            "forms": [source.form for source in opened], **build.decided,
            "seed": request.asked.seed, "runs": RUNS, "recipe": request.options[0].recipe,
        }, order="deterministic")  # fmt: skip
        resume = folder.prepare(identity)
        try:
            return build.run(resume=resume), resume
        except ChangedError as error:
            warnings.warn(f"{error.finding}: what was kept of it is read again", stacklevel=3)
            folder.remove()
            folder.prepare(identity)
            return Build(opened, folder, request).run(resume=False), False
    except BaseException as error:
        if piped or not folder.has_runs:
            with contextlib.suppress(DiskError):  # it may be why
                folder.remove()
        elif isinstance(error, KeyboardInterrupt):
            hint = "Give the same command again to go on."
            raise Interrupted("what was read is kept", hint=hint) from None
        raise


def tidy(target: Path) -> None:
    """Remove what a conversion left that was killed after its store had been given its name."""
    folder = ConversionFolder(target)
    for path in (target, folder.rejects, folder.folder):
        remove_leftovers(path)
    if folder.folder.exists() or folder.lock.exists():
        with contextlib.suppress(DiskError, LockedError, UsageError), folder.hold_lock():
            if folder.check() and folder.is_over:
                folder.remove()


def _commit(folder: ConversionFolder, store: Destination, listed: Destination) -> str | None:
    """Give what was made its names; return that of the list of rows left out."""
    write_atomic(folder.written)
    rejects = folder.listed.exists()
    if rejects:
        listed.write(file_pieces(folder.listed))
    elif listed.path.exists():
        listed.check()
        remove_file(listed.path)
    store.take(folder.store)
    folder.remove()
    return str(listed.path) if rejects else None
