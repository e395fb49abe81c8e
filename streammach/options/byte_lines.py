"""Bytes by name, and what may be used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from streammach.options.types import Count

CONTEXT = "context"  # the line for what a device's libraries take: no buffer of ours


@dataclass(frozen=True)
class Line:
    """One line of a ledger: what takes how many bytes where (``host``, ``device``, ``disk``)."""

    name: str
    where: Literal["host", "device", "disk"]
    n_bytes: Count


def bytes_in(lines: Sequence[Line], where: str) -> int:
    """Return the bytes of a ledger in ``host`` or ``device`` memory or on ``disk``."""
    return sum(line.n_bytes for line in lines if line.where == where)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Most bytes of host memory and of the device's own, 0 for the CPU, and who says so."""

    host: Count
    host_source: str
    device: Count = 0
    device_source: str = ""
    spare: Count = 0  # of the host, that stays free for a compiler

    @property
    def where(self) -> Literal["host", "device"]:
        """The memory that a budget is about: that in which the model is trained."""
        return "device" if self.device else "host"

    def overshoot(self, lines: Sequence[Line]) -> int:
        """Return by how many bytes a ledger is too large; 0 where it fits."""
        host = max(bytes_in(lines, "host") + self.spare - self.host, 0)
        return host + max(bytes_in(lines, "device") - self.device, 0)

    def first_violation(self, lines: Sequence[Line]) -> tuple[str, int, str]:
        """Return which limit a ledger is above: where, its bytes, and who set it."""
        if bytes_in(lines, "host") > self.host:
            return "host", self.host, self.host_source
        return "device", self.device, self.device_source
