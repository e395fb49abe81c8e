"""What may be used of the host's memory and of a device's own, and who says so."""

from __future__ import annotations

from streammach.backends.registry import BACKENDS
from streammach.machine import DEFAULT_MEMORY, MemoryLimit, memory_limit, parse_size, within
from streammach.spec.ledger import Limits


def limits(device: str, memory: str | int | None, *, shaped: bool = True) -> Limits:
    """Return what may be used, or raise UsageError or BudgetError."""
    host, kind = memory_limit(), BACKENDS[device]
    if own := kind.memory():
        free = _allowed(MemoryLimit(own, f"free on the {kind.title}"), memory, shaped=shaped)
        return Limits(
            host=host.n_bytes, host_source=host.source,
            device=free.n_bytes, device_source=free.source,
        )  # fmt: skip
    host = _allowed(host, memory, shaped=shaped)
    return Limits(host=host.n_bytes, host_source=host.source)


def _allowed(limit: MemoryLimit, memory: str | int | None, *, shaped: bool) -> MemoryLimit:
    if memory is not None:
        return MemoryLimit(within(limit, memory), "--memory")
    usual = MemoryLimit(parse_size(DEFAULT_MEMORY), "default")
    return limit if shaped or limit.n_bytes < usual.n_bytes else usual
