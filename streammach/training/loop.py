"""One training loop, for runs and for trials: batches, the falling rate, the sum of losses."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streammach.backends.protocol import Backend, Loss, join_losses
from streammach.backends.registry import BACKENDS
from streammach.model.checkpoint import RunPosition
from streammach.options.estimators import USUAL
from streammach.options.figures import HeldOutMetrics
from streammach.options.training import TrainSpec
from streammach.parts.registry import parts_of_plan
from streammach.parts.training_record import Training
from streammach.prediction.ranking import by_hashes
from streammach.prediction.selection_metrics import measure_ranking
from streammach.rows.block import RowBlock
from streammach.rows.dense import RowMap
from streammach.store.reader import Reader
from streammach.store.row_order import (
    OrderReader,
    RowOrder,
    block_batches,
    label_lengths,
    row_lengths,
)
from streammach.system.errors import DivergedError

Feed = Reader | OrderReader
START = RunPosition()  # of an epoch


def open_reader(
    training: Training, spec: TrainSpec, *, rows: int | None = None,
    held: NDArray[np.bool_] | None = None,
) -> Feed:  # fmt: skip
    """Return a training's reader; `held` is bool (n_rows,). What keeps rows is shown new ones."""
    dataset, config = training.dataset, training.plan.config
    batching, kind = config.batching, BACKENDS[config.placement.device]
    row_cache, held = training.backend.row_cache, training.holdout.mask if held is None else held
    shared, ids = spec.label_share != "each", config.needs_ids(dataset.facts)
    n_features = config.shape.n_hashed_features
    if row_cache is not None:
        order = RowOrder(
            dataset.facts, seed=spec.seed, pool_blocks=batching.pool_blocks, held=held, rows=rows
        )
        content = spec.transform if shared else f"{spec.transform}, 1 a label"
        known = row_cache.count(content)
        blocks = block_batches(
            dataset, spec.transform, known, order.end, shared=shared, ids=ids,
            n_features=n_features,
        )  # fmt: skip
        for batch in blocks:
            row_cache.keep(batch, content)
        return OrderReader(
            order, row_cache.lengths, batch_size=spec.batch_size, batch_nnz=batching.batch_nnz,
            whole=row_lengths(dataset, order.end) if config.shape.cut else None,
            labels=label_lengths(dataset, order.end), batch_labels=batching.batch_labels,
        )  # fmt: skip
    return Reader(
        dataset, seed=spec.seed, batch_size=spec.batch_size, batch_nnz=batching.batch_nnz,
        pool_blocks=batching.pool_blocks, transform=spec.transform,
        by_feature=kind.by_feature(config), held=held, rows=rows,
        batch_labels=batching.batch_labels, shared=shared, threads=config.placement.threads,
        batch_threads=kind.batch_threads(config), ids=ids, n_features=n_features,
        make=training.backend.host_room,
    )  # fmt: skip


def prepare_backend(training: Training, spec: TrainSpec, row_map: RowMap | None = None) -> None:
    """Make the backend ready to train from zero weights, in the room that the plan gives."""
    room = training.plan.config.batching
    training.backend.prepare(spec, room.batch_nnz, row_map, room.batch_labels)


def find_row_map(training: Training, spec: TrainSpec) -> RowMap | None:
    """Return the basis of a training's rows, and columns beside it, if parts want that."""
    if not (spec.whitened or spec.bandwidth):
        return None
    key = (spec.transform, spec.whitened, spec.bandwidth)
    if training.row_map is not None and training.row_map[0] == key:
        return training.row_map[1]
    training.row_map = None  # there is room for one
    result: RowMap | None = None
    for part in parts_of_plan(training.plan.config):
        if part.map_rows is not None:
            result = part.map_rows(training, spec, result)
    if result is not None:
        training.row_map = (key, result)
    return result


def check_loss(loss: Loss, spec: TrainSpec, *, epoch: int, row: int, n_rows: int) -> None:
    """Raise DivergedError if a loss is not finite."""
    if not math.isfinite(loss.total):
        rate = spec.rate_at(epoch * n_rows + row, spec.epochs * n_rows)
        what = (
            f"the loss is not finite in epoch {epoch + 1} before row {row:,}, at rate {rate:z.3g}"
        )
        hint = "Use a smaller --learning-rate; the last checkpoint is kept."
        raise DivergedError(what, hint=hint)


def measure_rows(backend: Backend, rows: RowBlock, spec: TrainSpec) -> HeldOutMetrics:
    """Return what the hashed models reach on rows."""
    return measure_ranking(rows, by_hashes(backend, USUAL, spec.transform))


@dataclass(frozen=True)
class Step:
    """What one batch gave: its rows, the losses that became known, its wave."""

    n_rows: int
    loss: Loss
    wave: int


def train_epoch(
    backend: Backend, reader: Feed, spec: TrainSpec, epoch: int, *, start: RunPosition = START,
) -> Iterator[Step]:  # fmt: skip
    """Train on the rows of one epoch, each wave in the same order; yield after each batch."""
    total, before = spec.epochs * reader.n_rows, epoch * reader.n_rows
    for wave in range(start.wave, backend.n_waves):
        backend.select_wave(wave, start.wave_steps)
        row = start.row
        for batch in reader.epoch(epoch, row):
            rate = spec.rate_at(before + row, total)
            loss = backend.step(batch, rate)
            row += batch.n_rows
            if row == reader.n_rows:
                loss = join_losses(loss, backend.drain_losses())
            check_loss(loss, spec, epoch=epoch, row=row, n_rows=reader.n_rows)
            yield Step(batch.n_rows, loss, wave)
        start = START
