"""What may be used of the host's memory and of a device's own, and who says so."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from streammach.backends.base import device_limit
from streammach.machine import DEFAULT_MEMORY, MemoryLimit, memory_limit, parse_size, within
from streammach.planning.ledger import bytes_in
from streammach.spec import Line


@dataclass(frozen=True)
class Limits:
    """Most bytes of host memory and of the device's own, 0 for the CPU, and who says so."""

    host: int
    host_source: str
    device: int
    device_source: str

    @property
    def where(self) -> Literal["host", "device"]:
        """The memory that a budget is about: that in which the model is trained."""
        return "device" if self.device else "host"

    @property
    def budget(self) -> int:
        """The budget's bytes."""
        return self.device or self.host

    def excess(self, lines: tuple[Line, ...]) -> int:
        """Return by how many bytes a ledger is too large; 0 where it fits."""
        host = max(bytes_in(lines, "host") - self.host, 0)
        return host + max(bytes_in(lines, "device") - self.device, 0)

    def times(self, factor: float) -> Limits:
        """Return these limits with another budget."""
        n_bytes = int(self.budget * factor)
        return replace(self, device=n_bytes) if self.device else replace(self, host=n_bytes)

    def broken(self, lines: tuple[Line, ...]) -> tuple[str, int, str]:
        """Return which limit a ledger is above: where, its bytes, and who set it."""
        if bytes_in(lines, "host") > self.host:
            return "host", self.host, self.host_source
        return "device", self.device, self.device_source


def limits(device: str, memory: str | int | None, *, shaped: bool = True) -> Limits:
    """Return what may be used.

    Parameters
    ----------
    device : str
        The device; a GPU's budget is one of its own memory.
    memory : str or int or None
        The budget that the user named.
    shaped : bool
        Whether the model's shape is given: then what there is may be used where no budget was
        named, else the default.

    Raises
    ------
    UsageError, BudgetError
        If that is no size, or more than there is.
    """
    host, own = memory_limit(), device_limit(device)
    if own:
        free = _allowed(MemoryLimit(own, "free on the GPU"), memory, shaped=shaped)
        return Limits(host.n_bytes, host.source, free.n_bytes, free.source)
    host = _allowed(host, memory, shaped=shaped)
    return Limits(host.n_bytes, host.source, 0, "")


def _allowed(limit: MemoryLimit, memory: str | int | None, *, shaped: bool) -> MemoryLimit:
    if memory is not None:
        return MemoryLimit(within(limit, memory), "--memory")
    usual = MemoryLimit(parse_size(DEFAULT_MEMORY), "default")
    return limit if shaped or limit.n_bytes < usual.n_bytes else usual
