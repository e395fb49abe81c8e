"""The other process of :mod:`streammach.training.warm`: it trains on a few rows."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

from streammach.data.store.dataset import Dataset
from streammach.errors import Interrupted, StreammachError
from streammach.planning.choose import plan
from streammach.processes import cleaned
from streammach.training.trainer import Trainer
from streammach.training.warm import WARMING, Order

ROWS, HELD_OUT = 600, 200
FEW_BUCKETS, MANY_BUCKETS = 16, 300  # codes of a byte, and of two
REPETITIONS = 3


def train_a_little(order: Order) -> None:
    """Train by a small plan of a kind on the first rows of a store; all it compiles is kept.

    Where there are too few rows for something, this is no error: again it would be no better.
    """
    os.environ[WARMING] = "1"  # this process starts no other one
    place = Path(order.folder).parent
    with cleaned(lambda: shutil.rmtree(place)):  # where the process that made it is gone
        try:
            _train(order)
        except Interrupted:
            raise
        except StreammachError:
            return


def _train(order: Order) -> None:
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
            loss=kind.losses[0] if len(kind.losses) == 1 else "auto",
        )  # fmt: skip
        trainer.fit(sample, order.folder, validation=order.validation, hold_out_by=kind.by)
