"""Signals that ask a run to stop: noticed between batches, so that the work can be saved."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any

from streammach.errors import Interrupted

STOPPING = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
EXIT_CODE = 130


class StopSignals:
    """Notes the first stopping signal while a ``with`` block runs; the second one ends the process.

    Outside the main thread, where handlers cannot be set, it does nothing.
    """

    def __init__(self) -> None:
        self.requested = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in STOPPING}
        return self

    def __exit__(self, *exc: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def check(self) -> None:
        """Raise Interrupted if a signal came."""
        if self.requested:
            raise Interrupted("interrupted", hint="Nothing is saved yet; run the command again.")

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            os._exit(EXIT_CODE)
        self.requested = True
