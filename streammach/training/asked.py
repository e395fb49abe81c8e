"""What a user asks of a training on rows in memory, the plan for it, and its held-out rows."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from typing import Any

from streammach.clock import Clock
from streammach.data.memory_rows import Labelled, given
from streammach.data.source_options import TableOptions
from streammach.data.store.dataset import Dataset
from streammach.data.tables.memory_objects import is_pair
from streammach.errors import BudgetError, UsageError, type_name
from streammach.files.folders import temporary_folder
from streammach.machine import memory_limit, parse_size, training_budget
from streammach.planning.candidates import MAX_HELD_OUT_ROWS
from streammach.planning.choose import plan
from streammach.planning.constraints import Constraints
from streammach.spec.plan import Plan
from streammach.spec.recipe import Recipe
from streammach.spec.training import TrainingOptions
from streammach.training.onward import Start

OF_TRAINING = {field.name for field in fields(TrainingOptions)}
OF_TABLE = {field.name for field in fields(TableOptions)} - {"label"}


@dataclass(frozen=True)
class Asked:
    """What a user fixed of a plan and of a training, and the time that runs from now on."""

    constraints: Constraints
    training: TrainingOptions
    clock: Clock

    @classmethod
    def of(cls, options: Mapping[str, Any], function: str, known: Iterable[str] = ()) -> Asked:
        """Return what keywords of a function say, which has other ones, too; or TypeError."""
        training = {name: options[name] for name in OF_TRAINING & options.keys()}
        others = {name: options[name] for name in options if name not in training or name == "seed"}
        constraints = Constraints.of(others, function, {*OF_TRAINING, *known})
        fixed = TrainingOptions(**training)
        return cls(constraints.beside(fixed), fixed, Clock(constraints.seconds))

    def judged_by(self, path: str, n_rows: int) -> Asked:
        """Return the same with so many held-out rows in a store of their own."""
        n = self.constraints.held_out_rows or n_rows
        fixed, training = replace(self.constraints, held_out_rows=n), self.training
        return replace(self, constraints=fixed, training=replace(training, validation=path))


def planned(
    data: Labelled, constraints: Constraints, closing: ExitStack, start: Start | None = None
) -> tuple[Plan, Dataset]:
    """Return a plan for rows, and the rows: in memory if that fits, else in a temporary store."""
    budget, choose = bytes_of(constraints.memory), plan if start is None else start.plan
    if data.code_bytes + data.intake_bytes <= budget:
        dataset = data.weighed(data.held())
        try:
            return choose(dataset, constraints), dataset
        except BudgetError:
            del dataset  # its memory is needed
    folder = closing.enter_context(temporary_folder())
    dataset = data.weighed(closing.enter_context(data.stored(folder, budget)))
    return choose(dataset, constraints), dataset


def bytes_of(memory: str | int | None) -> int:
    """Return the bytes of a budget: of a training's usual one where none is named."""
    return training_budget(None, memory_limit()).n_bytes if memory is None else parse_size(memory)


def validation_store(
    rows: Any, memory: str | int | None, closing: ExitStack, options: TableOptions,
    recipe: Recipe | None,
) -> tuple[str, int]:  # fmt: skip
    """Return the path of a store of held-out rows, and how many of them are used."""
    if isinstance(rows, str | os.PathLike):
        return os.fspath(rows), rows_held_out(rows)
    if not is_pair(rows):
        hint = "Give a pair of both, or the path of a store; a table where y is a column."
        what = f"{type_name(rows)} is no pair of rows and labels, and no path: validation"
        raise UsageError(what, hint=hint)
    data = replace(given(rows[0], rows[1], options=options, recipe=recipe), weights=None)
    folder = closing.enter_context(temporary_folder())
    dataset = closing.enter_context(data.stored(folder, bytes_of(memory)))
    return os.fspath(dataset.path), rows_held_out(dataset.path)


def rows_held_out(path: str | os.PathLike[str]) -> int:
    """Return how many rows of a store of held-out rows are used, if they fit."""
    with Dataset.open(path) as dataset:
        return min(dataset.n_rows, MAX_HELD_OUT_ROWS)
