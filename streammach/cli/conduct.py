"""How a process of the command line meets signals and warnings."""

from __future__ import annotations

import signal
import warnings
from types import FrameType
from typing import Any, NoReturn

from streammach.cli.output import tell
from streammach.errors import clean

MAX_LINE = 600


def conduct() -> None:
    """Let SIGTERM and SIGHUP interrupt as Ctrl-C does, and say warnings in a line each."""
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), _interrupt)
    warnings.simplefilter("default", UserWarning)
    warnings.showwarning = _show_warning


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    if issubclass(category, UserWarning):
        tell(f"streammach: warning: {clean(message, MAX_LINE)}")
