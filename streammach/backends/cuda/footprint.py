"""The bytes of the CUDA backend by name, on the host and on the device, and how few waves fit."""

from __future__ import annotations

from streammach import hashing
from streammach.backends.cuda.dense import CudaDenseSteps, RowTables, slot_kind
from streammach.backends.cuda.group import ModelGroup, Tables
from streammach.backends.cuda.losses import Losses
from streammach.backends.cuda.memory import RESERVED_BYTES
from streammach.backends.cuda.prediction import CudaPrediction
from streammach.backends.cuda.shapes import group_edges, widest
from streammach.backends.cuda.sparse import CudaSparseSteps
from streammach.backends.cuda.transfers import N_SLOTS, BufferRoom, Resident
from streammach.errors import BudgetError, DeviceError
from streammach.machine import size_text
from streammach.spec.config import RunConfig
from streammach.spec.facts import DataFacts
from streammach.spec.ledger import CONTEXT
from streammach.spec.model import ModelShape

# Of the host, measured on an H200 (driver 580, CUDA 13, 16 cores): 3.07 GB were taken where 2.72
# had been projected, 3.10 of 2.67, and 6.90 of 6.08, the last with 5.2 GB of weights and state. Of
# the 0.43 GB that small models took beyond, 0.12 are libraries that compile and launch (measured
# with a driver that does nothing: 495 MB of 389); the rest is CuPy's, the driver's and the
# context's. The large model took 0.39 GB more: no buffer of this package was found for that, so
# a share of the tables that are copied stands for it.
HOST_CONTEXT_BYTES = 430_000_000
COPIED_SHARE = 0.39 / 5.2


def host_footprint(config: RunConfig) -> dict[str, int]:
    """Return the bytes of host memory of a backend, by name."""
    shape, waves, dense = config.wide, config.placement.waves, config.dense
    code_bytes = hashing.code_type(shape.n_buckets).itemsize
    lines = {
        "weights": 4 * (shape.n_features + 1) * shape.n_columns,
        "tables": shape.n_classes * shape.n_repetitions * code_bytes,
        **CudaPrediction.host_footprint(shape, waves, dense=dense),
    }
    lines["transfers"] += Tables.host_bytes(shape, widest(shape, waves))
    if config.basis:
        d = config.shape.n_features
        n_more = config.more_columns
        table = RowTables.footprint(d, n_more)[0]
        lines["basis"] = 4 * (d * (d + 1) + (d + 2) * n_more) + table
    lines[CONTEXT] = HOST_CONTEXT_BYTES
    if config.optimizer is not None:
        slots = slot_kind(dense=dense).footprint(_room(config), N_SLOTS)[0]
        lines["optimizer"] = config.optimizer_kind.n_bytes(shape)
        lines["transfers"] += Losses.footprint()[0] + slots
        lines[CONTEXT] += int(COPIED_SHARE * (lines["weights"] + lines["optimizer"]))
    return lines


def _room(config: RunConfig) -> BufferRoom:
    """Return the room for a batch."""
    batching = config.batching
    labels, kept = batching.batch_labels, config.placement.resident
    return BufferRoom(batching.batch_size, batching.batch_nnz, labels, kept)


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
    shape, placement = config.wide, config.placement
    models = widest(shape, placement.waves)
    whitened, n_more = config.basis, config.more_columns
    lines = {
        CONTEXT: RESERVED_BYTES,
        **ModelGroup.footprint(shape, models, config.optimizer, placement.weights),
        **CudaPrediction.footprint(
            shape, placement.waves, dense=config.dense, whitened=whitened, n_more=n_more
        ),
    }
    if config.optimizer is not None:
        if config.optimizer_kind.step is not None:
            hint = "Use --device cpu."
            raise DeviceError(
                f"{config.optimizer} has no kernels for it", path="--device cuda", hint=hint
            )
        if config.dense:
            lines |= CudaDenseSteps.footprint(
                shape, models, _room(config), whitened=whitened, n_more=n_more
            )
        else:
            lines |= CudaSparseSteps.footprint(shape, models, _room(config))
        lines["losses"] = Losses.footprint()[1]
    if whitened:
        lines["basis"] = RowTables.footprint(config.shape.n_features, n_more)[1]
    if placement.resident and facts is not None:
        lines["rows of the store"] = Resident.footprint(facts.n_rows, facts.nnz, facts.n_labels)
    return lines


def fewest_waves(spec: ModelShape, *, dense: bool, device_bytes: int, n_more: int = 0) -> int:
    """Return in how few groups a model fits for predicting.

    Parameters
    ----------
    spec : ModelShape
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
            spec, device="cuda", dense=dense, threads=1, waves=waves, n_more=n_more
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
