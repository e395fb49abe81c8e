"""What a prediction takes of the memory, by name, and how much of its input is held at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from streammach.backends.kinds import Work
from streammach.backends.registry import BACKENDS, choose_device
from streammach.counts.scores import CountScorer
from streammach.inputs.source import TEXT_PIECE_BYTES
from streammach.inputs.source_options import GUESSED, SourceOptions
from streammach.inputs.sources import open_source
from streammach.model.size import ModelSize, size_in_file
from streammach.options.byte_lines import Line, bytes_in
from streammach.options.config import RunConfig
from streammach.prediction.allowed import Allowed
from streammach.prediction.inputs import Room, is_store
from streammach.prediction.ranking import FREQUENCY_BYTES
from streammach.rows.name_table import table_bytes
from streammach.rows.names import NameIndex
from streammach.store.dataset import Dataset
from streammach.system.errors import BudgetError, UsageError
from streammach.system.files.raw_text import is_piped
from streammach.system.files.urls import locate
from streammach.system.jit import CACHE_DIR, CODE_BYTES, compiler_bytes
from streammach.system.machine import MemoryBudget, advise_memory, cores, size_text
from streammach.system.machine import budget as budget_of
from streammach.system.rehearsals import compile_first

Task = Literal["add", "change", "evaluate", "predict", "report", "rows"]
READ_VALUES, READ_ROWS = 1 << 20, 1 << 14  # that are held at a time, where there is room
LEAST_VALUES = 1 << 12
VALUE_BYTES = 64  # of a value: as it was read, with the model's ids, transformed, and work
ROW_BYTES = 160  # of a row: pointers, class, number, place, importance, and work
BEST_BYTES = 110  # of one of a row's best classes: its score becomes a probability
CELL_BYTES = 200  # of one of a row's best classes in a table, its name aside
AHEAD_BYTES = 24  # of a value of rows that are read while others are ranked
AHEAD_ROW_BYTES = 96  # of such a row, its tag, and its place
LABEL_BYTES = 96  # of a label: its rows, its gain, how often it is there, found and said, its place
CLASS_BYTES = 8  # of a class: its rows, and how many of them are right
MEASURES: tuple[Task, ...] = ("change", "evaluate", "report")
CHANGES: tuple[Task, ...] = ("add", "change")  # make another model of one
CHUNK_BYTES = 12 << 20  # of a store that are decoded together
PLOT_BYTES = 122_000_000  # of the library that draws, of a page, and of explanations
SORTED = 64 << 20  # bytes of predictions that are brought into order at a time, where there is room
LEAST_SORTED = 1 << 20
MORE_ROWS = 0.1  # of what is needed at least, that rows may take where no budget was named
FIRST_ROWS = "streammach.prediction.diagnose:rank_first_rows"
NOTHING: Mapping[str, int] = {}


def room_before(
    run: str | os.PathLike[str], task: Task, path: str | os.PathLike[str], k: int, *,
    memory: str | int | None, device: str = "auto", threads: int | None = None,
    options: SourceOptions = GUESSED,
    beside: Mapping[str, int] | Callable[[int], Mapping[str, int]] = NOTHING,
    some_labels: bool = False,
) -> Room:  # fmt: skip
    """Return what work with a model will take, before the model is loaded.

    What is taken beside it may be told by the number of classes.
    """
    size, threads = size_in_file(run), threads or cores()
    beside = beside(size.spec.n_classes) if callable(beside) else beside
    source = Input.of(path, size, options, labels=task != "predict")
    budget, device = budget_of(memory), device_for(device, size)
    some_labels = some_labels or size.relabelled
    room = partial(
        room_for, size, task, source, k, device=device, threads=threads, budget=budget,
        beside=beside, some_labels=some_labels,
    )  # fmt: skip
    kept = room(compiling=0)  # which is refused where it is too little in any case
    needed, most = compiler_bytes(*kept.kind), _most(budget, kept.projected_bytes)
    if device == "cpu" and needed and CACHE_DIR and kept.projected_bytes + needed > most:
        compile_first(
            FIRST_ROWS, kept.kind, locate(run), task in MEASURES, locate(path), options, threads,
            some_labels, most=most,
        )  # fmt: skip
    return room()


def device_for(wanted: str, size: ModelSize) -> str:
    """Return the device that a predictor of a model will take, before it is loaded."""
    shape = size.spec.shape
    work = Work(model=shape, dense=size.dense, n_more=size.n_more)
    return choose_device(wanted, work)[0]


def changing_bytes(
    size: ModelSize, memory: str | int | None, beside: Mapping[str, int] = NOTHING
) -> int:
    """Return the bytes that making another model of one takes, or raise BudgetError."""
    found = {"code": CODE_BYTES, "model": size.bytes_to_change, **beside}
    lines, budget = _sorted_lines(found), budget_of(memory)
    if bytes_in(lines, "host") > budget.most:
        raise _budget_error(lines, budget)
    return bytes_in(lines, "host")


@dataclass(frozen=True, kw_only=True)
class Input:
    """What is known of an input before it is read."""

    is_store: bool  # whether it is a store
    longest: int = 0  # values of the longest row, with its labels, as far as that is known
    names: int = 0  # bytes of the tables by which its names are told, beside those of the model
    # bytes of what is read together, before it is cut, and of what is kept of the whole
    pieces: int = CHUNK_BYTES

    def beside(self, other: Input) -> Input:
        """Return what is known of this input and another one together."""
        return Input(
            is_store=self.is_store and other.is_store, longest=max(self.longest, other.longest),
            names=self.names + other.names, pieces=self.pieces + other.pieces,
        )  # fmt: skip

    @classmethod
    def of(
        cls, path: str | os.PathLike[str], size: ModelSize, options: SourceOptions = GUESSED, *,
        labels: bool = True,
    ) -> Input:  # fmt: skip
        """Look at an input."""
        place, known = locate(path), size.names
        # A table of labels may take in others, and one that grows is copied; names that are put
        # into a table lie beside it.
        tables = [n_bytes + table_bytes(n, n_bytes) for n, n_bytes in known]
        named = 2 * tables[0] * labels + tables[1]
        if is_piped(place):
            return cls(is_store=False, names=named, pieces=2 * TEXT_PIECE_BYTES)
        if not is_store(place):
            if not place.exists():
                raise UsageError("there is no such store or file", path=place)
            options = replace(options, recipe=size.recipe, labelled=labels)
            piece, whole = open_source(place, options).reading_bytes()
            # One piece is read while another one is used.
            return cls(is_store=False, names=named, pieces=2 * piece + whole)
        with Dataset.open(place) as dataset:
            facts = dataset.facts
            same = (dataset.digest, facts.n_features) == (size.store, size.spec.n_features)
            same &= not (labels and size.relabelled)
        ids = 4 * (facts.n_classes + facts.n_features)
        index = max(table_bytes(*one) for one in (known if labels else known[1:]))
        names = index + 2 * facts.names_bytes + ids
        longest = facts.max_row_nnz + facts.max_row_labels
        pieces = CHUNK_BYTES + facts.libraries_bytes
        return cls(is_store=True, longest=longest, names=0 if same else names, pieces=pieces)


def room_for(
    size: ModelSize, task: Task, source: Input | None, k: int, *, device: str, threads: int,
    budget: MemoryBudget, beside: Mapping[str, int] = NOTHING, some_labels: bool = False,
    compiling: int | None = None,
) -> Room:  # fmt: skip
    """Return how much of an input is held at a time, or raise BudgetError.

    With `some_labels` only some of the labels may be said. `compiling` is in bytes; otherwise what
    compiling takes, where it was not done before.
    """
    source, some_labels = source or Input(is_store=True), some_labels or size.relabelled
    kind = _kind(size, task, source, device, threads, some_labels=some_labels)
    fixed = _fixed_bytes(size, task, source, device, threads, some_labels=some_labels)
    fixed |= beside
    fixed["code"] += compiler_bytes(*kind) if compiling is None else compiling
    rooms = []
    for i in range(READ_ROWS.bit_length()):  # from much to the least
        rows, values = max(READ_ROWS >> i, 1), max(READ_VALUES >> i, LEAST_VALUES)
        ordered = max(SORTED >> i, LEAST_SORTED)
        best = BEST_BYTES if task in MEASURES else CELL_BYTES + 2 * size.label_bytes
        longest = max(values, source.longest)
        of_rows = rows * (ROW_BYTES + int(best * k))
        found = {**fixed, "values": VALUE_BYTES * longest, "rows": of_rows}
        if task == "predict":
            found["read ahead"] = AHEAD_BYTES * longest + AHEAD_ROW_BYTES * rows
            found |= {"order": ordered} if source.is_store else NOTHING
        work = sum(found.values()) - found["code"] - found["model"]
        if size.loading > work:
            found["loading"] = size.loading - work  # over before the rest is taken
        lines = _sorted_lines(found)
        rooms.append(Room(rows=rows, values=values, sorted_bytes=ordered, lines=lines, kind=kind))
    most = _most(budget, rooms[-1].projected_bytes)
    fitting = [room for room in rooms if room.projected_bytes <= most]
    if not fitting:
        raise _budget_error(rooms[-1].lines, budget)
    return fitting[0]


def _kind(
    size: ModelSize, task: Task, source: Input, device: str, threads: int, *, some_labels: bool
) -> tuple[object, ...]:
    """Return what decides which kernels are called."""
    return (
        "evaluate" if task == "change" else task, source.is_store, size.dense, size.counted,
        size.spec.exact, device, threads > 1, size.spec.n_buckets > 256, size.coded,
        *(["some labels"] if some_labels else []),
    )  # fmt: skip


def _most(budget: MemoryBudget, needed: int) -> int:
    """Return what may be taken, where so many bytes are needed at least."""
    if budget.named:
        return budget.n_bytes
    return min(max(budget.n_bytes, needed + int(MORE_ROWS * needed)), budget.limit)


def _budget_error(lines: tuple[Line, ...], budget: MemoryBudget) -> BudgetError:
    n_bytes = bytes_in(lines, "host")
    named = ", ".join(f"{line.name} {size_text(line.n_bytes)}" for line in lines[:3])
    what = f"this model needs {size_text(n_bytes)}: {named}"
    hint = f"Nothing was read; use --memory {advise_memory(n_bytes)} or more."
    return BudgetError(what, path=f"{size_text(budget.n_bytes)} ({budget.source})", hint=hint)


def _fixed_bytes(
    size: ModelSize, task: Task, source: Input, device: str, threads: int, *, some_labels: bool
) -> dict[str, int]:
    """Return what is taken however the input is cut."""
    spec = size.spec
    config = RunConfig.predicting(
        spec.shape, device=device, dense=size.dense, threads=threads, n_more=size.n_more
    )
    backend, _ = BACKENDS[device].footprint(config, None)
    found = {
        "code": CODE_BYTES,
        "model": size.bytes_to_change if task in CHANGES else size.n_bytes,
        **{name: n for name, n in backend.items() if name != "weights"},
        "names": source.names + (NameIndex.footprint(*size.names[1]) if task == "rows" else 0),
        "pieces": source.pieces,
    }
    if not size.dense:
        found["frequencies"] = FREQUENCY_BYTES * spec.n_classes
    if some_labels:
        found["some labels"] = Allowed.footprint(spec, size.names[0][1], threads)
    if size.counted:
        found["count scores"] = CountScorer.footprint(
            spec.n_classes, size.n_wide, spec.n_repetitions, threads, size.n_near
        )
    if size.listed:
        found["classifiers"] = 4 * threads * spec.n_classes
    if task in MEASURES:
        each = LABEL_BYTES if size.listed else CLASS_BYTES
        found["sums of labels"] = each * spec.n_classes
    if task == "report":
        found["plots"] = PLOT_BYTES
    if task == "report" and spec.n_repetitions > 1:
        found["first repetitions"] = 4 * (config.weight_rows + 1) * spec.n_columns
    return found


def _sorted_lines(found: Mapping[str, int]) -> tuple[Line, ...]:
    return tuple(Line(name, "host", n) for name, n in sorted(found.items(), key=lambda i: -i[1]))
