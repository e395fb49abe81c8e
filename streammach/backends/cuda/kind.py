"""A GPU as a backend; Numba's CUDA target loads when it is opened."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streammach.backends.kinds import BackendKind
from streammach.errors import DeviceError

if TYPE_CHECKING:
    from streammach.backends.base import Backend
    from streammach.backends.kinds import Arrays, Lines
    from streammach.spec.config import RunConfig
    from streammach.spec.facts import DataFacts
    from streammach.spec.model import ModelSpec


def _probe() -> str:
    from streammach.backends.cuda.probe import find_card

    return find_card().name


def _usual() -> str:
    from streammach.backends.cuda.probe import simulated

    if simulated():
        raise DeviceError("CUDA is simulated")
    return _probe()


def _memory() -> int:
    from streammach.backends.cuda.probe import find_card

    return find_card().free_bytes


def _open(
    spec: ModelSpec,
    config: RunConfig,
    *,
    facts: DataFacts | None = None,
    weights: Arrays | None = None,
    device_bytes: int = 0,
    logistic: bool = False,
) -> Backend:
    free = _memory()  # before Numba's CUDA target is imported
    from streammach.backends.cuda.backend import CudaBackend

    placement, kept = config.placement, (0, 0, 0)
    if placement.resident:
        assert facts is not None, "rows that are kept are those of a store"
        kept = facts.n_rows, facts.nnz, facts.n_labels
    return CudaBackend(
        spec, dense=config.dense, weights=weights, device_bytes=device_bytes or free,
        waves=placement.waves if config.optimizer else 0, weights_are=placement.weights, keep=kept,
        logistic=logistic, threads=placement.threads, tf32=placement.tf32,
    )  # fmt: skip


def _footprint(config: RunConfig, facts: DataFacts | None) -> tuple[Lines, Lines]:
    from streammach.backends.cuda.footprint import device_footprint, host_footprint

    return host_footprint(config), device_footprint(config, facts)


CUDA = BackendKind(
    name="cuda", title="GPU", probe=_probe, usual=_usual, open=_open, footprint=_footprint,
    memory=_memory, batch={False: 4096, True: 4096}, max_waves=8, resident=(True, False),
    weight_types=("float32", "bfloat16"), tf32=True, idle_host=True,
)  # fmt: skip
