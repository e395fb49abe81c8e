"""Makes other models of trained ones: smaller ones, and ones with more classes."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from streammach import hashing
from streammach.backends.registry import fallback, open_to_predict
from streammach.counts.name_words import CountedFeatures, pair_names
from streammach.inputs.label_names import NamesOfLabels, add_labels, read_label_names
from streammach.inputs.source_options import GUESSED, SourceOptions
from streammach.model.added import NewClasses, check_open, with_classes
from streammach.model.calibration import CANDIDATES
from streammach.model.document import Width, folder_of, not_a_model
from streammach.model.model import Model
from streammach.model.shrink import LEVELS, ShrinkTarget, Size, frequent, shrink_to, types_of
from streammach.model.shrink import rounded_gains as rounded
from streammach.model.shrink import shrink as made_smaller
from streammach.model.size import ModelSize, size_in_file
from streammach.options.annotated import check_options
from streammach.prediction.inputs import InputCounts, InputLabels, Room, rows_of
from streammach.prediction.new_classes import MEANS_BYTES, new_classes, new_rows
from streammach.prediction.ranked_rows import lists_of_labels
from streammach.prediction.room import (
    Input,
    Task,
    changing_bytes,
    device_for,
    room_before,
    room_for,
)
from streammach.rows.block import RowBlock
from streammach.store.dataset import Dataset
from streammach.store.label_facts import LabelFacts
from streammach.system.errors import DataError, UsageError
from streammach.system.files.destinations import Destination
from streammach.system.files.raw_text import is_piped
from streammach.system.files.urls import Url, locate
from streammach.system.machine import budget as budget_of
from streammach.system.machine import cores, parse_size
from streammach.system.progress import Told
from streammach.training.run import Run

ROW_BYTES = 4 << 20  # of rows of new classes, at least
MOST_PAIRS = 1 << 22  # of names of new classes
CLASSES = 1  # of a row that are asked for: its rows are not ranked


@dataclass(frozen=True, kw_only=True)
class DerivedModel:
    """A model that was made of another one; one with more classes, and what they were made of."""

    before: Model  # the model as it was
    model: Model
    n_rows: int = 0  # n_rows, left_out: rows with a new label, which were used, and the others
    left_out: int = 0
    unknown_values: int = 0  # values left out because the model does not know their feature
    projected_bytes: int  # bytes that this was said to take


def shrink(
    run: str | os.PathLike[str], out: str | os.PathLike[str], *, size: str | int | None = None,
    weights: Width | None = None, repetitions: int | None = None, pairs: int | None = None,
    min_count: int | None = None, store: str | os.PathLike[str] | None = None,
    memory: str | int | None = None, force: bool = False,
) -> Model:  # fmt: skip
    """Make a smaller model from that of a run, or from a smaller one; return it.

    Parameters
    ----------
    run : path-like
        The folder of the run or the model.
    out : path-like
        Folder of the smaller model.
    size, weights, repetitions, pairs, min_count, store : optional
        Most bytes of its files, such as ``100MB``; the type of its weights; how many repetitions
        and pairs are kept; leave out features that fewer training rows hold; the training store,
        for that one, where it is not the run's. What is not given is chosen for the size; without
        it weights are int8, those of dense rows as they are, and all is kept.
    memory : str or int, optional
        Bytes that the process may take; otherwise 2 GB, or what is needed.
    force : bool
        Whether a model that is there may be replaced.

    Raises
    ------
    UsageError
        If a value is out of its range, or a path is wrong.
    BudgetError
        If the work does not fit the memory, or no model fits the size.
    ModelError, StoreError, DiskError
        If files cannot be read or written.
    """
    check_options(shrink.__annotations__, locals())
    found = make_smaller(
        run, out, size=size, weights=weights, repetitions=repetitions, pairs=pairs,
        min_count=min_count, store=store, memory=memory, force=force,
    )  # fmt: skip
    found.model.save(out, force=force)
    return found.model


def make_smaller(
    run: str | os.PathLike[str], out: str | os.PathLike[str], *, size: str | int | None,
    weights: Width | None, repetitions: int | None, pairs: int | None, min_count: int | None,
    store: str | os.PathLike[str] | None, memory: str | int | None, force: bool,
    threads: int | None = None, on: Path | None = None, progress: Told | None = None,
) -> DerivedModel:  # fmt: skip
    """Return a smaller model, not written yet; with `on` both will be measured on these rows."""
    inputs = [folder_of(run), *(locate(path) for path in (store, on) if path is not None)]
    Destination(Path(out), not_a_model, force=force, inputs=inputs)
    if on is None:
        projected = changing_bytes(size_in_file(run), memory)
    else:
        room = room_before(run, "change", on, CANDIDATES, memory=memory, threads=threads)
        projected = room.projected_bytes
    model = whole = Model.load(run)
    if progress is not None:
        progress("shrink", 0, 0)
    if min_count is not None:
        model = _frequent(model, Path(run), store, min_count)
    if size is not None:
        small = shrink_to(model, parse_size(size), ShrinkTarget(weights, repetitions, pairs))
    else:
        known = [stored for stored in types_of(model) if model.dense or stored in LEVELS]
        most = model.spec.n_repetitions if repetitions is None else repetitions
        kept = model.n_pairs if pairs is None else pairs
        small = made_smaller(model, Size(weights or known[0], most, kept))
    return DerivedModel(before=whole, model=small, projected_bytes=projected)


def _frequent(
    whole: Model, run: Path, trained_on: str | os.PathLike[str] | None, least: int
) -> Model:
    """Return the model without rare features, which its training store knows."""
    store = _store_of(run) if trained_on is None else locate(trained_on)
    with Dataset.open(store) as data:
        if data.facts.digest != whole.store:
            what = "it is not the store that the model was trained on"
            raise UsageError(what, path=store, hint="Name that one with --store.")
        rows = data.feature_counts
        if len(rows) != whole.spec.n_features:  # some are left out already
            rows = rows[data.features.ids_of(whole.features)]
        return frequent(whole, rows, least)


def _store_of(run: Path) -> Path:
    found = locate(Run.open(run).plan.facts.path) if (run / "plan.json").exists() else None
    if found is None or not (isinstance(found, Url) or found.exists()):
        what = "--min-count needs the training store: --store STORE"
        raise UsageError(what, path=run)
    return found


def add(
    run: str | os.PathLike[str], rows: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None, *, options: SourceOptions = GUESSED,
    label_names: NamesOfLabels | None = None, label_language: str | None = None,
    memory: str | int | None = None, threads: int | None = None, force: bool = False,
) -> Model:  # fmt: skip
    """Add the classes to a model that it does not know, from rows of theirs; return the new model.

    Or from names, of labels with rows or without, where the model was trained with names.

    No weight changes: old classes keep their scores of rows with known features, to the last bit. A
    class gets the buckets in which the model sees its rows anyway.

    Parameters
    ----------
    run : path-like
        The folder of the run or the model.
    rows : path-like, optional
        A store, or a labelled file of any format that can be converted. Rows with known labels
        alone are left out, and features that the model does not know.
    out : path-like, optional
        Folder of the new model; nothing is written otherwise.
    options : SourceOptions, optional
        How a file is read, and where its labels are; guessed otherwise.
    label_names, label_language : optional
        What new labels are called, as for :func:`streammach.train`.
    memory : str or int, optional
        Bytes that the process may take; otherwise 2 GB, or what is needed.
    threads : int, optional
        Threads that compute; all cores otherwise.
    force : bool
        Whether a model that is there may be replaced.

    Raises
    ------
    UsageError
        If each class of the model has weights of its own, or a path is wrong.
    DataError
        If a row cannot be read, or none has a new label.
    BudgetError
        If the work does not fit the memory.
    ModelError, StoreError, DiskError
        If files cannot be read or written.
    """
    check_options(add.__annotations__, locals())
    found = add_classes(
        run, rows, out, options=options, memory=memory, threads=threads, force=force,
        facts=LabelFacts(names=label_names, language=label_language),
    )  # fmt: skip
    if out is not None:
        found.model.save(out, force=force)
    return found.model


def add_classes(
    run: str | os.PathLike[str], rows: str | os.PathLike[str] | None,
    out: str | os.PathLike[str] | None = None, *, options: SourceOptions = GUESSED,
    memory: str | int | None = None, threads: int | None = None, force: bool = False,
    facts: LabelFacts, on: Path | None = None, progress: Told | None = None,
) -> DerivedModel:  # fmt: skip
    """Return a model with more classes, not written yet, and what they were made of."""
    path, threads = None if rows is None else locate(rows), threads or cores()
    if path is None and facts.names is None:
        raise UsageError("neither rows nor names of new labels: ROWS, --label-names")
    if out is not None:
        read = [one for one in (path, on) if one is not None and not is_piped(one)]
        Destination(Path(out), not_a_model, force=force, inputs=[folder_of(run), *read])
    held = size_in_file(run)
    check_open(held.spec)
    room, left = _room(held, path, on, options, memory, threads)
    model = Model.load(run)
    found = DerivedModel(before=model, model=model, projected_bytes=room.projected_bytes)
    if path is not None:
        found = _add_rows(found, path, options, room, left, threads, progress)
        if on is None:
            room.keep_kernels()
    return found if facts.names is None else _add_names(found, facts.names, facts.language)


def _add_rows(
    whole: DerivedModel, path: Path, options: SourceOptions, room: Room, left: int, threads: int,
    progress: Told | None,
) -> DerivedModel:  # fmt: skip
    """Add classes of rows, of which so many bytes are held."""
    model, seen, met = whole.model, InputCounts(), InputLabels()
    tell = progress or (lambda stage, done, total: None)

    def read(n: int) -> None:
        tell("read", n, seen.total)

    def blocks() -> Iterator[RowBlock]:
        for block in rows_of(path, model, seen, room, options=options, met=met):
            if block.labels is not None and not model.listed:
                raise lists_of_labels(path)
            yield block

    found, present = new_rows(blocks(), model.spec.n_classes, left, read)
    if not len(present):
        raise DataError("no row has a label that the model does not know", path=path)
    assert met.names is not None
    new_labels = np.zeros(len(met.names), np.bool_)
    new_labels[len(model.labels) + present] = True
    labels = met.names.take(np.flatnonzero(new_labels))
    tell("add", 0, 0)
    _, backend = open_to_predict(
        fallback(), model.spec, dense=model.dense, threads=threads, weights=model.hashed_arrays,
        logistic=model.training.logistic,
    )  # fmt: skip
    with closing(backend):
        new = new_classes(model, found, labels, backend)
    return replace(
        whole, model=with_classes(model, new), n_rows=found.n_distinct, left_out=found.left_out,
        unknown_values=seen.unknown_values,
    )  # fmt: skip


def _add_names(found: DerivedModel, names: NamesOfLabels, language: str | None) -> DerivedModel:
    """Let new labels have names, and add those that have nothing else; UsageError if none can."""
    given, before, spec = read_label_names(names, language), found.model, found.model.spec
    if before.names is None or before.counts is None or before.titles is None:
        what = "the model does not know what words of names weigh: --label-names"
        raise UsageError(what, hint="Train it with names of labels, if held-out rows gain by them.")
    labels, ids = add_labels(before.labels, given)
    bare = labels.part(spec.n_classes, len(labels))
    n, none = len(bare), np.zeros(len(bare), np.int64)
    usual = np.exp(before.counts.plain().log_values.mean())  # else few values would speak for them
    model = with_classes(before, NewClasses(
        codes=hashing.codes(spec.hash_a, spec.hash_b, n, spec.n_buckets, spec.n_classes),
        labels=bare, pairs=np.zeros((2, 0), np.int32), n_values=none + round(float(usual)),
        n_rows=none, n_distinct=0,
    ))  # fmt: skip
    assert model.counts is not None, "it had some"
    own = given.by_class(np.where(ids < found.before.spec.n_classes, -1, ids))
    known = CountedFeatures.of_model(model.features, before.names.words, model.recipe)
    pairs = pair_names(known, own, len(labels), MOST_PAIRS)
    if model.stored in LEVELS:
        pairs = replace(pairs, gains=rounded(pairs.gains))
    if lost := len(np.setdiff1d(own.classes, pairs.classes)):
        warnings.warn(f"{lost:,} new labels have no name with a known word", stacklevel=4)
    counts, every = model.counts.plain().with_pairs(pairs), before.names.with_classes(pairs)
    titles = own.titles(len(labels), model.titles)
    return replace(found, model=replace(model, counts=counts, names=every, titles=titles))


def _room(
    held: ModelSize, path: Path | None, on: Path | None, options: SourceOptions,
    memory: str | int | None, threads: int,
) -> tuple[Room, int]:  # fmt: skip
    """Return how much of the rows is read at a time, and bytes that may be kept of them."""
    budget = budget_of(memory)
    given = Input(is_store=True) if path is None else Input.of(path, held, options)
    task: Task = "add"
    k, device = CLASSES, fallback()
    if on is not None:  # one after the other: the larger of both would do
        task, k, device = "change", CANDIDATES, device_for("auto", held)
        given = given.beside(Input.of(on, held))
    room = room_for(
        held, task, given, k, device=device, threads=threads, budget=budget,
        beside={"rows of new classes": ROW_BYTES + 3 * MEANS_BYTES},
    )  # fmt: skip
    most = budget.n_bytes if budget.named else budget.limit
    return room, ROW_BYTES + max(0, most - room.projected_bytes)
