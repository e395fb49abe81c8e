"""The bytes of the CUDA backend by name, on the host and on the device, and how few waves fit."""

from __future__ import annotations

from streammach import hashing
from streammach.backends.cuda.group import ModelGroup
from streammach.backends.cuda.losses import Losses
from streammach.backends.cuda.prediction import WAVES_BYTES, Prediction
from streammach.backends.cuda.probe import RESERVED_BYTES
from streammach.backends.cuda.products import table_bytes, table_size
from streammach.backends.cuda.resident import Resident
from streammach.backends.cuda.steps import (
    QUERY_NNZ,
    DenseSteps,
    SparseSteps,
    buffer_kind,
    query_rows,
    slots_bytes,
)
from streammach.backends.cuda.tables import Tables
from streammach.backends.cuda.waves import group_edges, widest
from streammach.errors import BudgetError, DeviceError
from streammach.machine import size_text
from streammach.spec.config import RunConfig
from streammach.spec.facts import DataFacts
from streammach.spec.ledger import CONTEXT
from streammach.spec.model import ModelSpec


def host_footprint(config: RunConfig) -> dict[str, int]:
    """Return the bytes of host memory of a backend, by name."""
    shape, placement, batching = config.wide, config.placement, config.batching
    models = widest(shape, placement.waves)
    rows = query_rows(shape, models, dense=config.dense)
    lines = {
        "weights": 4 * (shape.n_features + 1) * shape.n_columns,
        "tables": shape.n_classes * shape.n_repetitions
        * hashing.code_type(shape.n_buckets).itemsize,
        "scoring": max(8 * rows * shape.n_columns, WAVES_BYTES if placement.waves > 1 else 0),
        "transfers": Tables.host_bytes(shape, models)
        + buffer_kind(dense=config.dense).host_footprint(rows, QUERY_NNZ),
    }  # fmt: skip
    if config.basis:
        d, n_more = config.shape.n_features, config.more_columns
        lines["basis"] = 4 * (d * (d + 1) + (d + 2) * n_more + table_size(d, n_more))
    if config.optimizer is not None:
        lines["optimizer"] = config.optimizer_kind.n_bytes(shape)
        lines["transfers"] += Losses.host_bytes()
        lines["transfers"] += slots_bytes(
            batching.batch_size, batching.batch_nnz, dense=config.dense,
            resident=placement.resident, n_labels=batching.batch_labels,
        )[0]  # fmt: skip
    return lines


def device_footprint(config: RunConfig, facts: DataFacts | None) -> dict[str, int]:
    """Return the bytes of device memory of a backend, by name.

    Parameters
    ----------
    config : RunConfig
        How a model is trained.
    facts : DataFacts, optional
        The store whose rows are kept on the device.

    Raises
    ------
    DeviceError
        If the model's shape cannot be launched, or kernels have no branch for the optimiser.
    """
    shape, placement, batching = config.wide, config.placement, config.batching
    models, n_more = widest(shape, placement.waves), config.more_columns
    lines = {
        CONTEXT: RESERVED_BYTES,
        **ModelGroup.footprint(shape, models, config.optimizer, placement.weights),
        **Prediction.footprint(
            shape, placement.waves, dense=config.dense, whitened=config.basis, n_more=n_more
        ),
    }
    if config.optimizer is not None:
        if config.optimizer_kind.step is not None:
            hint = "Use --device cpu."
            raise DeviceError(
                f"{config.optimizer} has no kernels for it", path="--device cuda", hint=hint
            )
        kind = DenseSteps if config.dense else SparseSteps
        lines |= kind.footprint(
            shape, models, batching.batch_size, batching.batch_nnz,
            resident=placement.resident, whitened=config.basis, n_more=n_more,
            n_labels=batching.batch_labels,
        )  # fmt: skip
        lines["losses"] = Losses.footprint()
    if config.basis:
        lines["basis"] = table_bytes(config.shape.n_features, n_more)
    if placement.resident and facts is not None:
        lines["rows of the store"] = Resident.footprint(facts.n_rows, facts.nnz, facts.n_labels)
    return lines


def fewest_waves(spec: ModelSpec, *, dense: bool, device_bytes: int, n_more: int = 0) -> int:
    """Return in how few groups a model fits for predicting.

    Parameters
    ----------
    spec : ModelSpec
        The model.
    dense : bool
        Whether rows go through matrix products.
    device_bytes : int
        Most bytes of the device's memory.
    n_more : int
        D, columns that dense rows get beyond their features.

    Raises
    ------
    BudgetError
        If it does not fit in any number.
    """
    needed = 0
    for waves in range(1, len(group_edges(spec, spec.n_repetitions)) + 1):
        config = RunConfig.predicting(
            spec.shape, device="cuda", dense=dense, threads=1, waves=waves, n_more=n_more
        )
        needed = sum(device_footprint(config, None).values())
        if needed <= device_bytes:
            return waves
    raise BudgetError(
        f"the model needs {size_text(needed)} of device memory, {size_text(device_bytes)} may be "
        "used",
        path="--device cuda",
        hint="Use --device cpu.",
    )
