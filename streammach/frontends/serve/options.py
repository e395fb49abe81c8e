"""What a service takes, and where it computes."""

from __future__ import annotations

from dataclasses import dataclass

from streammach.options.option_fields import option
from streammach.prediction.options import Device


@dataclass(frozen=True, kw_only=True)
class ServeOptions(Device):
    """Where a service listens and computes, and what it takes."""

    host: str = option(
        "127.0.0.1", "Address to listen at; another one lets other machines ask.", "HOST"
    )
    port: int = option(8000, "Port to listen at; 0 finds a free one.", least=0, most=65535)
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
