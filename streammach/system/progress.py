"""Progress of long work on standard error: a bar on a terminal or in a notebook, else lines."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, TextIO

from streammach.system.clock import Clock
from streammach.system.errors import check_word, escape_controls
from streammach.system.forks import ForkSafeLock
from streammach.system.machine import size_text, time_text
from streammach.system.stages import Stages, StageState

PLAIN_SECONDS = 30.0  # between lines of progress in a pipe
JSON_SECONDS = 1.0  # between objects
SHORT_SECONDS = 1.0  # of a stage that is not worth a line
BARS_PER_SECOND = 4
MOST_COLUMNS = 100
HEAD = re.compile(r"\S* {2,}(?=\S)|")  # a name before a text, with the spaces behind it
BAR_WIDTH, TEXT_WIDTH = 12, 40  # in characters, the second of name and note: a line has 80
MODES = ("auto", "bar", "plain", "json", "none")
Told = Callable[[str, float, float], None]  # (stage, done, total), total 0 where it is not known
Wanted = bool | str | Told | None  # what a user says of progress, in Python


def tell(text: str) -> None:
    """Print a line of the story to stderr; where nobody reads it, the work goes on."""
    if sys.stderr is not None:  # print would take stdout
        print(fit_lines(escape_controls(text, "\n"), sys.stderr), file=sys.stderr, flush=True)


def for_stream(data: bytes, *, is_terminal: bool) -> bytes:
    """Return bytes as they are; for a terminal with escapes in place of what it would obey."""
    if not is_terminal:
        return data
    return escape_controls(data.decode("utf-8", "backslashreplace"), "\n\t").encode()


def line_width(stream: TextIO | None = None) -> int:
    """Return how many columns lines have: those of a terminal, 100 at most."""
    stream = sys.stdout if stream is None else stream
    if stream is None or not stream.isatty():
        return MOST_COLUMNS
    return min(shutil.get_terminal_size().columns, MOST_COLUMNS)


def wrap_lines(text: str, width: int, head: str = "") -> list[str]:
    """Return a text as lines that are broken at spaces alone."""
    return textwrap.wrap(
        text, width, initial_indent=head, subsequent_indent=" " * len(head),
        break_long_words=False, break_on_hyphens=False, replace_whitespace=False,
    )  # fmt: skip


def fit_lines(text: str, stream: TextIO | None) -> str:
    """Return lines as they are, on a terminal broken at spaces where they are too wide."""
    if stream is None or not stream.isatty():
        return text
    width, lines = shutil.get_terminal_size().columns, list[str]()
    for line in text.split("\n"):
        head = HEAD.match(line)
        indent = head[0] if head is not None and len(head[0]) < width // 3 else ""
        short = len(line) <= width
        lines += [line] if short else wrap_lines(line[len(indent) :], width, indent)
    return "\n".join(lines)


class ProgressBar(AbstractContextManager["ProgressBar"]):
    """Progress of long work, as the user chose: a bar, a line now and then in a pipe, or a call.

    Who works calls it with a stage, what is done of it, and all of it. Stages that take less than a
    second have no line.
    """

    def __init__(
        self, wanted: Wanted, unit: str | dict[str, str],
        expected: Mapping[str, float] | None = None,
    ) -> None:  # fmt: skip
        self._called = wanted if callable(wanted) else None
        self.mode = "none" if callable(wanted) else _mode(wanted)
        self._announced = self.mode == "none"
        self._units, self._expected = unit, expected
        self._lock = ForkSafeLock()
        self._clock = Clock()
        self._told_at, self._begun = 0.0, ""  # when a line was told, the stage that has one
        self._bar: Any = None
        self._task: Any = None
        self._stages: Stages | None = None

    def __call__(self, stage: str, done: float, total: float, note: str = "") -> None:
        """Show that `done` of `total` (0: unknown) are done of a stage."""
        if self._called is not None:
            self._called(stage, done, total)
        if self.mode == "none":
            return
        if self._stages is None:
            self._stages = Stages(self.show, self._expected, relative=True, clock=self._clock)
        self._stages.begin(stage)
        self._stages.at(done, total, note)
        self._announce()

    def _announce(self) -> None:
        """Have it said when kernels are compiled; this loads numba, so something is shown first."""
        if not self._announced:
            self._announced = True
            from streammach.system.jit import on_first_compilation

            on_first_compilation(self.tell)

    def show(self, state: StageState) -> None:
        """Show how far a piece of work is."""
        with self._lock:
            if self._called is not None:
                done = state.total if state.moment == "end" else state.done
                self._called(state.stage, done, state.total)
            elif self.mode == "bar":
                self._show_bar(state)
            elif self.mode == "plain":
                self._show_lines(state)
            elif self.mode == "json":
                self._show_json(state)

    def tell(self, text: str) -> None:
        """Say a line of the story, if not all is told by calls: above the bar, or as an object."""
        if self._called is not None:
            return
        with self._lock:
            if self.mode == "json":
                self.write("message", {"text": text})
                return
            self._take_off()
            tell(text)

    def write(self, event: str, fields: Mapping[str, Any]) -> None:
        """Write an object with the name of an event, the seconds since the start and more."""
        line = {"t": round(self._clock.elapsed_seconds, 3), "event": event, **fields}
        with self._lock:
            print(json.dumps(line), file=sys.stderr, flush=True)

    def close(self, *, whole: bool = True) -> None:
        """End the last stage, and take the bar off the screen."""
        stages, self._stages = self._stages, None
        if stages is not None:
            stages.close(whole=whole)
        with self._lock:
            self._take_off()

    def __exit__(self, kind: object, *exc: object) -> None:
        self.close(whole=kind is None)

    def _amount(self, stage: str, n: float) -> str:
        unit = self._units if isinstance(self._units, str) else self._units.get(stage, "")
        return size_text(n) if unit == "bytes" else f"{n:z,.0f} {unit}" if unit else ""

    def _note(self, state: StageState) -> str:
        """Return what is said beside the share: a note, else the amount and its speed."""
        amount = self._amount(state.stage, state.done) if state.done else ""
        if state.note or not amount or state.stage_seconds <= 0:
            return state.note or amount
        return f"{amount} {self._amount(state.stage, state.done / state.stage_seconds)}/s"

    def _show_lines(self, state: StageState) -> None:
        now, began = time.monotonic(), self._begun == state.stage
        if state.moment == "begin" or state.stage_seconds < SHORT_SECONDS:
            return
        if not began:
            self._begun, self._told_at = state.stage, now
        elif state.moment != "end" and now - self._told_at < PLAIN_SECONDS:
            return
        self._told_at = now
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        if state.moment == "end":
            self._begun, said = "", f"took {time_text(state.stage_seconds)}"
        else:
            share = "" if state.share is None else f"{100 * state.share:z.0f}%"
            said = " ".join(filter(None, (share, self._note(state))))
        left = "" if state.left_seconds is None else f"{time_text(state.left_seconds)} left"
        tell("  ".join(filter(None, (f"{stamp} {state.stage}", said, left))))

    def _show_json(self, state: StageState) -> None:
        now = time.monotonic()
        if state.moment == "within" and now - self._told_at < JSON_SECONDS:
            return
        self._told_at, left, share = now, state.left_seconds, state.share
        self.write("progress", {
            "stage": state.stage, "moment": state.moment,
            "share": None if share is None else round(share, 4),
            "stage_seconds": round(state.stage_seconds, 2), "seconds": round(state.seconds, 2),
            "left_seconds": None if left is None else round(left, 2),
        })  # fmt: skip

    def _show_bar(self, state: StageState) -> None:
        if self._bar is None:
            self._bar = _bar()
            self._bar.start()
            self._task = self._bar.add_task("", total=None, note="", took="", left="")
        left = state.left_seconds
        self._bar.update(
            self._task, description=state.stage, completed=100 * (state.share or 0),
            total=None if state.share is None else 100,
            note=self._note(state)[: TEXT_WIDTH - len(state.stage)],
            took=clock_text(state.stage_seconds),
            left="" if left is None else f"{clock_text(left)} left",
        )  # fmt: skip

    def _take_off(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def watched() -> bool:
    """Return whether a person may watch: there is a terminal, or a notebook."""
    return _in_notebook() or (sys.stderr is not None and sys.stderr.isatty())


def _in_notebook() -> bool:
    return "ipykernel" in sys.modules


def clock_text(seconds: float) -> str:
    """Return a duration as on a clock: ``0:07``, ``12:30``, ``1:02:03``."""
    whole = round(seconds)
    minutes = f"{whole // 60 % 60}:{whole % 60:02d}"
    return minutes if whole < 3600 else f"{whole // 3600}:{minutes:0>5}"


def _mode(wanted: bool | str | None) -> str:
    """Return how progress is shown, or raise UsageError."""
    mode = wanted if isinstance(wanted, str) else "auto" if wanted else "none"
    check_word(mode, MODES, "progress")
    if mode != "auto":
        return mode
    if _in_notebook():  # rich draws with widgets there, where they are installed
        return "bar" if importlib.util.find_spec("ipywidgets") else "plain"
    return "bar" if sys.stderr is not None and sys.stderr.isatty() else "plain"


def _bar() -> Any:
    from rich.console import Console  # only where there is a terminal
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn
    from rich.progress import Progress as Bar
    from rich.table import Column

    def text(field: str) -> TextColumn:
        column = Column(no_wrap=True, overflow="ellipsis")
        return TextColumn(f"{{task.{field}}}", markup=False, table_column=column)

    return Bar(
        text("description"), BarColumn(bar_width=BAR_WIDTH), TaskProgressColumn(),
        text("fields[note]"), text("fields[took]"), text("fields[left]"),
        console=Console(stderr=True), refresh_per_second=BARS_PER_SECOND, transient=True,
    )  # fmt: skip
