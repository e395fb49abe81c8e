"""Signals that ask a run to stop: noticed between batches, so that the work can be saved."""

from __future__ import annotations

import os
from contextlib import ExitStack
from types import FrameType

from streammach.processes import INTERRUPTED, handled


class StopSignals:
    """Notes a first stopping signal in a main thread's ``with``; a second ends the process."""

    def __init__(self) -> None:
        self.requested = False
        self._handled = ExitStack()

    def __enter__(self) -> StopSignals:
        self._handled.enter_context(handled(self._note))
        return self

    def __exit__(self, *exc: object) -> None:
        self._handled.close()

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            os._exit(INTERRUPTED)
        self.requested = True
