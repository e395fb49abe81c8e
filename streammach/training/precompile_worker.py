"""The other process of :mod:`streammach.training.precompile`: it trains on a few rows."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import scipy.sparse

from streammach.backends.registry import fallback
from streammach.data.given import given_rows
from streammach.data.given_labels import given_labels
from streammach.data.label_sets import LabelSets
from streammach.data.memory import Labelled
from streammach.data.store.dataset import Dataset
from streammach.errors import Interrupted, StreammachError
from streammach.planning.choose import plan
from streammach.planning.constraints import Constraints
from streammach.processes import cleaned
from streammach.rows.label_lists import LabelLists
from streammach.spec.training import TrainingOptions
from streammach.training.precompile import PRECOMPILING, Intake, Order
from streammach.training.trainer import Trainer

ROWS, HELD_OUT = 600, 200
VALUES, FEWEST_ROWS = 300_000, 30  # long rows: fewer of them
FEW_BUCKETS, MANY_BUCKETS = 16, 300  # codes of a byte, and of two
REPETITIONS = 3


def train_a_little(order: Order) -> None:
    """Train by a small plan on the first rows of a store; all it compiles is kept."""
    # Where there are too few rows for something, this is no error: again it would be no better.
    os.environ[PRECOMPILING] = "1"  # this process starts no other one
    place = Path(order.folder).parent
    with cleaned(lambda: shutil.rmtree(place)):  # where the process that made it is gone
        try:
            _train(order)
        except Interrupted:
            raise
        except StreammachError:
            return


def take_a_little_in(order: Intake) -> None:
    """Bring a few rows of a kind into memory, twice: with one thread, and with several."""
    os.environ[PRECOMPILING] = "1"
    values = np.eye(8, dtype=np.float32)
    rows = given_rows(scipy.sparse.csr_array(values) if order.sparse else values)
    labels = given_labels(np.eye(8, dtype=np.int8) if order.listed else np.arange(8))
    if order.listed:
        labels = replace(labels, labels=LabelSets(LabelLists.single(np.arange(8, dtype=np.int32))))
    weights = np.full(8, 2, np.float32) if order.weighted else None
    for threads in (1, 2):
        Labelled(rows, labels, weights, threads=threads, small=0).held()


def enough(n_rows: int, nnz: int, n_labels: int = 0) -> int:
    """Return how many first rows of a store are taken: fewer where rows or lists are long."""
    nnz *= max(1, n_labels // max(n_rows, 1))
    return max(FEWEST_ROWS, min(ROWS, VALUES * n_rows // max(nnz, 1)))


def _train(order: Order) -> None:
    kernels = order.kernels
    with Dataset.open(order.store) as data:
        sample = data.first(enough(data.n_rows, data.nnz, data.facts.n_labels))
        if kernels.weighted and not sample.weighted:  # rows weigh by their class
            sample = sample.weighed(np.ones(sample.n_classes, np.float32))
        shape: tuple[int | None, int] = (sample.n_classes, 1)
        if kernels.unhashed:
            shape = (None, 0)
        elif not kernels.exact:
            shape = (MANY_BUCKETS if kernels.many_buckets else FEW_BUCKETS, REPETITIONS)
        constraints = Constraints(
            n_buckets=shape[0], n_repetitions=shape[1], device=fallback(),
            optimizer=kernels.optimizer or "auto", threads=kernels.threads,
            parts=dict(kernels.parts),
        )  # fmt: skip
        made = plan(sample, constraints)
        config = made.config
        batching = replace(config.batching, held_out_rows=min(HELD_OUT, sample.n_rows // 3))
        made = replace(made, config=replace(config, dense=kernels.dense, batching=batching))
        options = TrainingOptions(
            epochs=1, learning_rate=None if kernels.transform == "auto" else 0.5,
            transform=kernels.transform, validation=order.validation, hold_out_by=kernels.by,
        )  # fmt: skip
        Trainer(made, options).fit(sample, order.folder)
