"""Compiles a training's kernels in a process of its own, the first time.

Compilers take a hundred megabytes that stay with the process. A few rows of the store are trained
on in another process by a plan of the same kind; what that compiles is kept on disk, and the
training itself only loads it, so that its plan need not reckon with compilers.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

import msgspec

from streammach.backends.registry import BACKENDS
from streammach.counts.tile import MAX_CLASSES
from streammach.data.store.dataset import Dataset
from streammach.errors import StreammachError
from streammach.files.folders import temporary_folder
from streammach.files.reading import sha256
from streammach.jit import CACHE_DIR, announce_compilation
from streammach.parts.registry import said_of
from streammach.processes import run
from streammach.spec.plan import Plan
from streammach.spec.training import TrainingOptions
from streammach.spec.types import Optimizer

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
    many_buckets, many_classes : bool
        Whether buckets take more than a byte, and whether classes are scored a row at a time.
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
    many_classes: bool
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
            many_classes=facts.n_classes > MAX_CLASSES, by=options.hold_out_by,
            validated=options.validation is not None, threads=min(config.placement.threads, 2),
        )  # fmt: skip


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
    kept = BACKENDS[plan.config.placement.device].keeps_kernels
    if not kept or CACHE_DIR is None or not sys.executable or PRECOMPILING in os.environ:
        return
    kernels = KernelSet.of(plan, options)
    mark = Path(CACHE_DIR) / f"trained-{sha256([msgspec.json.encode(kernels)])[:16]}"
    if mark.exists():
        return
    announce_compilation()
    other = None if options.validation is None else os.path.abspath(options.validation)
    try:
        with temporary_folder() as folder, open(os.devnull, "w") as nowhere:
            rows = folder.with_name("rows")
            store = data.stored(rows, FEW_ROWS) if isinstance(data, Dataset) else data
            order = Order(
                store=os.path.abspath(store), validation=other, kernels=kernels, folder=str(folder)
            )
            worker = "streammach.training.precompile_worker:train_a_little"
            run(worker, order, patience=0.0, stdout=nowhere)
    except StreammachError as error:
        warnings.warn(f"kernels could not be compiled beforehand: {error}", stacklevel=2)
        return
    mark.touch()
