"""What a service takes, and where it computes."""

from __future__ import annotations

from dataclasses import dataclass

from streammach.prediction.options import Device
from streammach.spec.options import option


@dataclass(frozen=True, kw_only=True)
class ServeOptions(Device):
    """What a service takes, and where it computes."""

    queue: int = option(
        1024, "Rows of a model that may wait; a request beyond them is refused.", "N", least=1
    )
    max_rows: int = option(1024, "Rows that a request may have.", "N", least=1)
    deadline: float = option(
        10.0, "Time in which a request is answered.", "SECONDS", least=0, above=True
    )
    grace: float = option(
        10.0, "Time in which what was taken is answered at the end.", "SECONDS", least=0,
        above=True,
    )  # fmt: skip
    batch: int = 64  # rows that are predicted together, but for a request that has more
