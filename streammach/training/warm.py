"""Compiles a training's kernels in a process of its own, the first time.

Compilers take a hundred megabytes that stay with the process. A few rows of the store are trained
on in another process by a plan of the same kind; what that compiles is kept on disk, and the
training itself only loads it, so that its plan need not reckon with compilers.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import msgspec

from streammach.data.store.dataset import Dataset
from streammach.errors import StreammachError
from streammach.files import sha256
from streammach.jit import CACHE_DIR, announce_compilation
from streammach.planning.choose import plan
from streammach.spec import Optimizer, Plan, Transform, from_json, to_json
from streammach.training.run import MAX_DOCUMENT

ROWS, HELD_OUT = 600, 200
FEW_BUCKETS, MANY_BUCKETS = 16, 300  # codes of a byte, and of two
REPETITIONS = 3
WARMING = "STREAMMACH_WARMING"  # set for the other process, which must not start a third


class Kind(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What decides which kernels a training needs.

    Attributes
    ----------
    value_bytes, weighted, dense, exact, closed_form, counts
        Of the store and the plan.
    optimizer, transform : str
        Of the training; the transform is None where it is searched.
    many_buckets, many_classes : bool
        Whether buckets take more than a byte, and classes more than two.
    by, validation : str or None
        Where held-out rows come from.
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
    many_buckets: bool
    many_classes: bool
    by: str | None
    validation: str | None
    threads: int


class Order(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the other process is told: a store, a kind, and the folder to work in."""

    store: str
    kind: Kind
    folder: str


def warm(
    made: Plan, store: Path, *, transform: Transform | None, by: str | None, validation: str | None
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
    by, validation : str or None
        Where held-out rows come from.
    """
    if made.device != "cpu" or CACHE_DIR is None or not sys.executable or WARMING in os.environ:
        return
    facts, model = made.facts, made.model
    kind = Kind(
        facts.value_bytes, facts.weighted, made.dense, model.exact, made.closed_form,
        made.max_pairs > 0, made.optimizer, transform, model.n_buckets > 256,
        model.n_classes > 1 << 15, by,
        None if validation is None else str(Path(validation).resolve()), min(made.threads, 2),
    )  # fmt: skip
    general = msgspec.structs.replace(kind, validation=None if validation is None else "store")
    mark = Path(CACHE_DIR) / f"trained-{sha256([msgspec.json.encode(general)])[:16]}"
    if mark.exists():
        return
    announce_compilation()
    with tempfile.TemporaryDirectory(prefix="streammach-") as folder:
        order = Order(str(store.resolve()), kind, folder)
        done = subprocess.run(
            [sys.executable, "-c", "from streammach.training.warm import main; main()"],
            input=to_json(order), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={**os.environ, WARMING: "1", "PYTHONPATH": os.pathsep.join(map(str, sys.path))},
            check=False,
        )  # fmt: skip
    if done.returncode == 0:
        mark.touch()


def main() -> None:
    """Train on a few rows as standard input tells; what was compiled is kept by then."""
    order = from_json(sys.stdin.buffer.read(MAX_DOCUMENT), Order)
    try:
        train_a_little(order)
    except StreammachError:  # too few rows for something; the kernels before it are there
        sys.exit(1)


def train_a_little(order: Order) -> None:
    """Train by a small plan of a kind on the first rows of a store."""
    from streammach.training.trainer import Trainer  # it calls this module

    kind = order.kind
    with Dataset.open(order.store) as data:
        sample = data.first(ROWS)
        shape = (sample.n_classes, 1)
        if not kind.exact:
            shape = (MANY_BUCKETS if kind.many_buckets else FEW_BUCKETS, REPETITIONS)
        made = plan(
            sample, n_buckets=shape[0], n_repetitions=shape[1],
            optimizer=kind.optimizer, counts="on" if kind.counts else "off",
            closed_form=kind.closed_form, device="cpu", threads=kind.threads,
        )  # fmt: skip
        made = replace(made, dense=kind.dense, validation_rows=min(HELD_OUT, sample.n_rows // 3))
        trainer = Trainer(
            made, epochs=1, learning_rate=0.5 if kind.transform else None,
            transform=kind.transform or "auto",
        )  # fmt: skip
        trainer.fit(
            sample, Path(order.folder) / "run", validation=kind.validation, hold_out_by=kind.by
        )
