"""The bytes of the CUDA backend by name, on the host and on the device, and how few waves fit."""

from __future__ import annotations

import numpy as np

from streammach import hashing
from streammach.backends.cuda.decode import CudaDecoder
from streammach.backends.cuda.dense_rows import CudaDenseSteps, Products
from streammach.backends.cuda.device_memory import RESERVED_BYTES, DeviceLedger
from streammach.backends.cuda.group import ModelGroup
from streammach.backends.cuda.losses import Losses
from streammach.backends.cuda.prediction import CudaPrediction, query_rows, scoring_bytes
from streammach.backends.cuda.shapes import code_words, group_edges, table_rows, widest
from streammach.backends.cuda.sparse import CudaSparseSteps
from streammach.backends.cuda.transfers import BufferRoom, DeviceRows
from streammach.options.byte_lines import CONTEXT
from streammach.options.config import RunConfig
from streammach.options.facts import DataFacts
from streammach.options.model_spec import ModelShape
from streammach.system.errors import BudgetError, DeviceError
from streammach.system.machine import size_text

# Of the host, measured on an H200 (driver 580, CUDA 13, 16 cores): 3.07 GB were taken where 2.72
# had been projected, 3.10 of 2.67, and 6.90 of 6.08, the last with 5.2 GB of weights and state. Of
# the 0.43 GB that small models took beyond, 0.12 are libraries that compile and launch (measured
# with a driver that does nothing: 495 MB of 389); the rest is CuPy's, the driver's and the
# context's. The large model took 0.39 GB more: no buffer of this package was found for that, so
# a share of the tables that are copied stands for it.
HOST_CONTEXT_BYTES = 430_000_000
COPIED_SHARE = 0.39 / 5.2


def _buffers(config: RunConfig, facts: DataFacts | None) -> DeviceLedger:
    """Return what is allocated for a config: the backend's own buffers, made on a ledger."""
    shape, placement, batching, dense = config.wide, config.placement, config.batching, config.dense
    models, waves, n_more = widest(shape, placement.waves), placement.waves, config.more_columns
    ledger = DeviceLedger()
    n_codes = shape.n_repetitions * code_words(shape.n_classes, shape.n_buckets)
    codes = ledger.empty(n_codes, np.uint32, "codes")
    group = ModelGroup(
        ledger, shape, codes, models, placement.weights,
        best_stays=placement.best_stays and waves == 1,
    )  # fmt: skip
    products = None
    if dense:
        n_rows = max(batching.batch_size, query_rows(shape, waves, dense=True))
        products = Products(ledger, shape, n_rows, n_more, whitened=config.has_feature_map)
    decoder = CudaDecoder(ledger, shape, codes)
    CudaPrediction(ledger, shape, decoder, waves, lambda: iter(()), products, n_more)
    if config.optimizer is not None:
        if config.optimizer_kind.step is not None:
            what = f"{config.optimizer} has no kernels for it"
            raise DeviceError(what, path="--device cuda", hint="Use --device cpu.")
        group.keep_state(config.optimizer)
        sizes = (batching.batch_size, batching.batch_nnz, batching.batch_labels)
        given = (ledger, shape, models, BufferRoom(*sizes, placement.resident), None)
        if products is None:
            CudaSparseSteps(*given)
        else:
            CudaDenseSteps(*given, products, n_more=n_more, tf32=False)
        Losses(ledger)
    if placement.resident and facts is not None:
        ids = config.needs_ids(facts)
        DeviceRows(ledger, facts.n_rows, facts.nnz, facts.n_labels, ids=ids)
    return ledger


def footprint(config: RunConfig, facts: DataFacts | None) -> tuple[dict[str, int], dict[str, int]]:
    """Return a backend's bytes by name, on the host and on the device, or raise DeviceError."""
    ledger, shape, d, n_more = _buffers(config, facts), config.wide, config.shape.n_features, 0
    lines = {
        "weights": 4 * (shape.n_features + 1) * shape.n_columns,
        "tables": hashing.code_type(shape.n_buckets).itemsize
        * shape.n_classes * shape.n_repetitions,
        "scoring": scoring_bytes(shape, config.placement.waves, dense=config.dense),
        "transfers": ledger.page_locked_bytes,
        CONTEXT: HOST_CONTEXT_BYTES,
    }  # fmt: skip
    if config.has_feature_map:
        n_more = config.more_columns
        table = table_rows(d) * table_rows(d + n_more)  # while it is sent
        lines["basis"] = 4 * (d * (d + 1) + (d + 2) * n_more + table)
    if config.optimizer is not None:
        lines["optimizer"] = config.optimizer_kind.n_bytes(shape)
        lines[CONTEXT] += int(COPIED_SHARE * (lines["weights"] + lines["optimizer"]))
    return lines, {CONTEXT: RESERVED_BYTES, **ledger.lines}


def fewest_groups(spec: ModelShape, *, dense: bool, device_bytes: int, n_more: int) -> int:
    """Return in how few groups a model fits for predicting, or raise BudgetError."""
    needed = 0
    for waves in range(1, len(group_edges(spec, spec.n_repetitions)) + 1):
        config = RunConfig.predicting(
            spec, device="cuda", dense=dense, threads=1, waves=waves, n_more=n_more
        )
        needed = RESERVED_BYTES + sum(_buffers(config, None).lines.values())
        if needed <= device_bytes:
            return waves
    what = (
        f"the model needs {size_text(needed)} of device memory, {size_text(device_bytes)} may be "
        "used"
    )
    raise BudgetError(what, path="--device cuda", hint="Use --device cpu.")
