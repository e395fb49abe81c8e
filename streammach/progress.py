"""Progress of long work on standard error: a bar on a terminal or in a notebook, else lines."""

from __future__ import annotations

import sys
import time
from typing import Any

from streammach.errors import escaped
from streammach.machine import size_text, time_text

PLAIN_SECONDS = 30.0  # between lines of progress in a pipe
BARS_PER_SECOND = 4


def tell(text: str) -> None:
    """Print a line of the story to stderr; where nobody reads it, the work goes on."""
    print(escaped(text, "\n"), file=sys.stderr, flush=True)


def _announce_compilation() -> None:
    from streammach.jit import on_first_compilation  # loads numba, which --help does without

    on_first_compilation(lambda: tell("compiling kernels; later runs load them"))


class Progress:
    """Progress of a long stage: a bar on a terminal, a line now and then in a pipe.

    Parameters
    ----------
    mode : str
        ``auto``, ``bar``, ``plain`` or ``none``.
    unit : str or dict
        What is counted, ``bytes`` or a word such as ``rows``; by stage where that differs.
    """

    def __init__(self, mode: str, unit: str | dict[str, str]) -> None:
        if mode != "none":
            _announce_compilation()
        if mode == "auto":
            mode = "bar" if sys.stderr.isatty() or "ipykernel" in sys.modules else "plain"
        self._mode, self._units = mode, unit
        self._began = self._told = time.monotonic()
        self._stage = ""
        self._bar: Any = None
        self._task: Any = None

    def __call__(self, stage: str, done: int, total: int, note: str = "") -> None:
        """Show that `done` of `total` (0: unknown) are done."""
        if self._mode == "none":
            return
        now = time.monotonic()
        if stage != self._stage:
            self._stage, self._began, self._told = stage, now, now
        if self._mode == "bar":
            self._show_bar(stage, done, total, note)
        elif now - self._told >= PLAIN_SECONDS:
            self._told = now
            tell(self._line(stage, done, total, now - self._began, note))

    def close(self) -> None:
        """Take the bar off the screen."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _amount(self, n: float) -> str:
        return size_text(n) if self._unit == "bytes" else f"{n:,.0f} {self._unit}"

    @property
    def _unit(self) -> str:
        units = self._units
        return units if isinstance(units, str) else units[self._stage]

    def _line(self, stage: str, done: int, total: int, seconds: float, note: str) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        share = f" {100 * done / total:.0f}%" if total else ""
        speed = f" {self._amount(done / seconds)}/s" if seconds > 0 else ""
        left = ""
        if total and done:
            amount = f"{size_text(total - done)}, " if self._unit == "bytes" else ""
            left = f" left {amount}{time_text((total - done) * seconds / done)}"
        return f"{stamp} {stage}{share} {self._amount(done)}{speed}{left} {note}".rstrip()

    def _show_bar(self, stage: str, done: int, total: int, note: str) -> None:
        if self._bar is None:
            from rich.console import Console  # only where there is a terminal
            from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            self._bar = Bar(
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=24),
                TaskProgressColumn(),
                TextColumn("{task.fields[note]}", markup=False),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                refresh_per_second=BARS_PER_SECOND,
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task(stage, total=None, note="")
        self._bar.update(
            self._task,
            description=stage,
            completed=done,
            total=total or None,
            note=note or self._amount(done),
        )
