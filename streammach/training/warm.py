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

from streammach.counts.tile import MAX_CLASSES
from streammach.errors import StreammachError
from streammach.files.folders import temporary_folder
from streammach.files.reading import sha256
from streammach.jit import CACHE_DIR, announce_compilation
from streammach.processes import run
from streammach.spec import Coupling, Optimizer, Plan, Transform

WARMING = "STREAMMACH_WARMING"  # set for the other process, which must not start a third


class Kind(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What decides which kernels a training needs.

    Attributes
    ----------
    value_bytes, weighted, dense, exact, closed_form, counts
        Of the store and the plan.
    optimizer, transform : str
        Of the training; the transform is None where it is searched.
    losses : tuple of str
        What may be learnt.
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
    dense: bool
    exact: bool
    closed_form: bool
    counts: bool
    optimizer: Optimizer
    transform: Transform | None
    losses: tuple[Coupling, ...]
    many_buckets: bool
    many_classes: bool
    by: str | None
    validated: bool
    threads: int


class Order(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the other process is told: stores, a kind, and a folder in a scratch folder."""

    store: str
    validation: str | None
    kind: Kind
    folder: str


def warm(
    made: Plan,
    store: Path,
    *,
    transform: Transform | None,
    losses: tuple[Coupling, ...],
    by: str | None,
    validation: str | None,
) -> None:
    """Have the kernels of a training compiled, unless they are already or cannot be kept.

    Parameters
    ----------
    made : Plan
        The training's plan.
    store : Path
        Its store.
    transform : str or None
        Its transform, None where that is searched.
    losses : tuple of str
        What it may learn.
    by, validation : str or None
        Where held-out rows come from.
    """
    if made.device != "cpu" or CACHE_DIR is None or not sys.executable or WARMING in os.environ:
        return
    facts, model = made.facts, made.model
    kind = Kind(
        facts.value_bytes, facts.weighted, made.dense, model.exact, made.closed_form,
        made.max_pairs > 0, made.optimizer, transform, losses, model.n_buckets > 256,
        model.n_classes > MAX_CLASSES, by, validation is not None, min(made.threads, 2),
    )  # fmt: skip
    mark = Path(CACHE_DIR) / f"trained-{sha256([msgspec.json.encode(kind)])[:16]}"
    if mark.exists():
        return
    announce_compilation()
    other = None if validation is None else os.path.abspath(validation)
    try:
        with temporary_folder() as folder, open(os.devnull, "w") as nowhere:
            order = Order(os.path.abspath(store), other, kind, str(folder))
            run("streammach.training.warmed:train_a_little", order, patience=0.0, stdout=nowhere)
    except StreammachError as error:
        warnings.warn(f"kernels could not be compiled beforehand: {error}", stacklevel=2)
        return
    mark.touch()
