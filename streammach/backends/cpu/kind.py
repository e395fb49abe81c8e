"""The CPU as a backend; compiled code loads when it is opened."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streammach.backends.kinds import BackendKind

if TYPE_CHECKING:
    from streammach.backends.kinds import Arrays, Lines
    from streammach.backends.protocol import Backend
    from streammach.options.config import RunConfig
    from streammach.options.facts import DataFacts
    from streammach.options.model_spec import ModelSpec


def _open(
    spec: ModelSpec, config: RunConfig, *, facts: DataFacts | None = None,
    weights: Arrays | None = None, device_bytes: int = 0, logistic: bool = False,
) -> Backend:  # fmt: skip
    from streammach.backends.cpu.backend import CpuBackend

    return CpuBackend(
        spec, dense=config.dense, threads=config.placement.threads, weights=weights,
        logistic=logistic,
    )  # fmt: skip


def _footprint(config: RunConfig, facts: DataFacts | None) -> tuple[Lines, Lines]:
    from streammach.backends.cpu.backend import CpuBackend

    return CpuBackend.footprint(config), {}


CPU = BackendKind(
    name="cpu", title="CPU", probe=lambda: "asked for", usual=lambda: "", open=_open,
    footprint=_footprint, memory=lambda: 0, batch={False: 4096, True: 256},
    keeps_kernels=True, unhashed=True,
)  # fmt: skip
