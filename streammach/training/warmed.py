"""The other process of :mod:`streammach.training.warm`: it trains on a few rows."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from streammach.data.store.dataset import Dataset
from streammach.errors import StreammachError
from streammach.planning.choose import plan
from streammach.spec import from_json
from streammach.training.run import MAX_DOCUMENT
from streammach.training.trainer import Trainer
from streammach.training.warm import Order

ROWS, HELD_OUT = 600, 200
FEW_BUCKETS, MANY_BUCKETS = 16, 300  # codes of a byte, and of two
REPETITIONS = 3


def main() -> None:
    """Train on a few rows as standard input tells; what was compiled is kept by then."""
    order = from_json(sys.stdin.buffer.read(MAX_DOCUMENT), Order)
    try:
        train_a_little(order)
    except StreammachError:  # too few rows for something; again it would be no better
        return


def train_a_little(order: Order) -> None:
    """Train by a small plan of a kind on the first rows of a store."""
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
        trainer.fit(
            sample, Path(order.folder) / "run", validation=order.validation, hold_out_by=kind.by
        )
