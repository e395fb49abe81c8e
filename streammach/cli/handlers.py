"""How a process of the command line says warnings, and writes to where nobody may read."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Iterator
from typing import Any, TextIO, cast

from streammach.errors import clean
from streammach.progress import tell

MAX_LINE = 600


@contextlib.contextmanager
def handlers_installed() -> Iterator[None]:
    """Say warnings in a line each, and go on where the reader of the story has left.

    Warnings are said once a command, not once a process.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # what the encoding lacks is escaped
            stream.reconfigure(errors="backslashreplace")
    story = _Story(sys.stderr)
    with warnings.catch_warnings(), contextlib.redirect_stderr(cast("TextIO", story)):
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = _show_warning
        yield


class _Story:
    """Standard error; once it cannot be written to, what is said goes nowhere."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream if stream is not None else open(os.devnull, "w")  # noqa: SIM115

    def write(self, text: str) -> int:
        """Write some text, if anybody reads it."""
        with self._abandoned():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush what was written."""
        with self._abandoned():
            self._stream.flush()

    @contextlib.contextmanager
    def _abandoned(self) -> Iterator[None]:
        """Where nobody reads, let what is said and what Python still holds of it go nowhere."""
        try:
            yield
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError), open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), self._stream.fileno())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    if issubclass(category, UserWarning):
        tell(f"streammach: warning: {clean(message, MAX_LINE)}")
