"""Compiles a training's kernels in a process of its own, the first time.

Compilers take a hundred megabytes that stay with the process. A few rows of the store are trained
on in another process by a plan of the same kind; what that compiles is kept on disk, and the
training itself only loads it, so that its plan need not reckon with compilers.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
import warnings
from pathlib import Path

import msgspec

from streammach.backends.registry import BACKENDS
from streammach.data.memory import Labelled
from streammach.data.store.dataset import Dataset
from streammach.errors import StreammachError
from streammach.files.folders import temporary_folder
from streammach.files.reading import sha256
from streammach.files.urls import absolute
from streammach.jit import CACHE_DIR, announce_compilation
from streammach.parts.registry import said_of
from streammach.processes import run
from streammach.spec.plan import Plan
from streammach.spec.training import TrainingOptions
from streammach.spec.types import Optimizer

WORKER = "streammach.training.precompile_worker"
NOT_COMPILED = "kernels could not be compiled beforehand"
TRAINED = "trained"  # the start of the names of marks, which hold how long it took
COMPILATION, MOST_COMPILATION = 30.0, 600.0  # seconds of the reference machine, and at most
FEW_ROWS = 600  # that the other process trains on, at most
PRECOMPILING = "STREAMMACH_PRECOMPILING"  # set for the other process, which must not start a third


class KernelSet(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What decides which kernels a training needs.

    Attributes
    ----------
    value_bytes, weighted, listed, dense, exact, unhashed
        Of the store and the plan.
    parts : tuple of str
        What is said of each optional part, by option and word.
    optimizer, transform : str
        Of the training; the transform is ``auto`` where it is searched.
    many_buckets : bool
        Whether buckets take more than a byte.
    by : str or None
        Namespace by which rows are held out.
    validated : bool
        Whether held-out rows come from another store.
    threads : int
        Threads that compute.
    """

    value_bytes: int
    weighted: bool
    listed: bool
    dense: bool
    exact: bool
    unhashed: bool
    parts: tuple[tuple[str, str], ...]
    optimizer: Optimizer | None
    transform: str
    many_buckets: bool
    by: str | None
    validated: bool
    threads: int

    @classmethod
    def of(cls, plan: Plan, options: TrainingOptions) -> KernelSet:
        """Return what a training needs."""
        facts, config = plan.facts, plan.config
        return cls(
            value_bytes=facts.value_bytes, weighted=facts.weighted, listed=facts.listed,
            dense=config.dense, exact=config.shape.exact, unhashed=config.shape.unhashed,
            parts=said_of(config), optimizer=config.optimizer, transform=options.transform,
            many_buckets=config.shape.n_buckets > 256,
            by=options.hold_out_by,
            validated=options.validation is not None, threads=min(config.placement.threads, 2),
        )  # fmt: skip


class Intake(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What decides which kernels taking rows in needs."""

    sparse: bool
    listed: bool
    weighted: bool


class Order(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the other process is told: stores, kernels, and a folder in a scratch folder."""

    store: str
    validation: str | None
    kernels: KernelSet
    folder: str


def precompile(
    plan: Plan, options: TrainingOptions, data: Dataset | str | os.PathLike[str]
) -> None:
    """Have the kernels of a training compiled, unless they are already or cannot be kept.

    Parameters
    ----------
    plan : Plan
        Model, memory, place.
    options : TrainingOptions
        What is fixed of the training.
    data : Dataset or path-like
        What is trained on; of rows in memory some are written into a store for that long.
    """
    kernels = KernelSet.of(plan, options)
    mark = _mark(TRAINED, kernels)
    if mark is None or are_compiled(plan, options):
        return
    announce_compilation()
    began = time.monotonic()
    other = None if options.validation is None else absolute(options.validation)
    try:
        with temporary_folder() as folder, open(os.devnull, "w") as nowhere:
            rows = folder.with_name("rows")
            store = data.stored(rows, FEW_ROWS) if isinstance(data, Dataset) else data
            order = Order(
                store=absolute(store), validation=other, kernels=kernels, folder=str(folder)
            )
            run(f"{WORKER}:train_a_little", order, patience=0.0, stdout=nowhere)
    except StreammachError as error:
        warnings.warn(f"{NOT_COMPILED}: {error}", stacklevel=2)
        return
    mark.write_text(f"{time.monotonic() - began:.1f}\n")


def compiling_seconds(plan: Plan, options: TrainingOptions, speed: float) -> float:
    """Return what compiling should take, as it took the last time for kernels of another kind.

    Parameters
    ----------
    plan : Plan
        Model, memory, place.
    options : TrainingOptions
        What is fixed of the training.
    speed : float
        How many times as fast as the reference a thread of this machine is.
    """
    if are_compiled(plan, options) or CACHE_DIR is None:
        return 0.0
    marks = sorted(Path(CACHE_DIR).glob(f"{TRAINED}-*"), key=lambda mark: mark.stat().st_mtime)
    for mark in reversed(marks):
        with contextlib.suppress(ValueError):  # an older one holds nothing
            return min(max(float(mark.read_text()[:20]), 1.0), MOST_COMPILATION)
    return COMPILATION / speed


def are_compiled(plan: Plan, options: TrainingOptions) -> bool:
    """Return whether there is nothing to compile: the kernels are kept already, or cannot be.

    Parameters
    ----------
    plan : Plan
        Model, memory, place.
    options : TrainingOptions
        What is fixed of the training.
    """
    kept = BACKENDS[plan.config.placement.device].keeps_kernels
    return not kept or _mark(TRAINED, KernelSet.of(plan, options)) is None


def precompile_intake(data: Labelled) -> None:
    """Have the kernels compiled that bring rows into memory, unless they are already.

    Parameters
    ----------
    data : Labelled
        The rows; others of their kind are brought there in another process.
    """
    order = Intake(
        sparse=data.rows.sparse, listed=bool(data.labels.n_labels),
        weighted=data.weights is not None,
    )  # fmt: skip
    mark = _mark("taken-in", order)
    if mark is None:
        return
    announce_compilation()
    try:
        with open(os.devnull, "w") as nowhere:
            run(f"{WORKER}:take_a_little_in", order, patience=0.0, stdout=nowhere)
    except StreammachError as error:
        warnings.warn(f"{NOT_COMPILED}: {error}", stacklevel=2)
        return
    mark.touch()


def _mark(kind: str, what: msgspec.Struct) -> Path | None:
    """Return the file that says that kernels are compiled; None if they are, or cannot be kept."""
    if CACHE_DIR is None or not sys.executable or PRECOMPILING in os.environ:
        return None
    mark = Path(CACHE_DIR) / f"{kind}-{sha256([msgspec.json.encode(what)])[:16]}"
    return None if mark.exists() else mark
