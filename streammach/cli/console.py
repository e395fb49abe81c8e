"""What commands print: results to stdout, the story to stderr, one JSON object where asked."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from typing import Any, TextIO, cast

from streammach.system.errors import UNSAFE, clean, escape_controls
from streammach.system.linux import peak_bytes
from streammach.system.machine import size_text
from streammach.system.progress import fit_lines, line_width, tell, wrap_lines

MAX_LINE = 600
Document = Mapping[str, object]  # a JSON object that is printed, and nothing is taken from


def say(text: str) -> None:
    """Print a line of the result, or several, to stdout; a terminal's are broken at spaces."""
    print(fit_lines(escape_controls(text, "\n"), sys.stdout))


def say_lines(lines: Sequence[tuple[str, str]], width: int = 10) -> None:
    """Print texts behind their names, as lines of the terminal's columns, 100 at most."""
    for name, text in lines:
        for line in wrap_lines(text, line_width(), f"{name:<{width}}") or [name]:
            print(escape_controls(line))


def say_json(document: Document | Sequence[Document]) -> None:
    """Print the one JSON object of a command; numbers that are not finite become null."""
    encoding = getattr(sys.stdout, "encoding", None) or ""
    text = json.dumps(_plain(document), ensure_ascii=not encoding.lower().startswith("utf"))
    print(UNSAFE.sub(lambda found: json.dumps(found[0])[1:-1], text))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):  # a label that is no text
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    is_record = is_dataclass(value) and not isinstance(value, type)
    return _plain(asdict(value)) if is_record else value


def peak_of(projected: int) -> int:
    """Return the most bytes that this process held; say where they are more than projected."""
    peak = peak_bytes()
    if peak > projected:
        what = f"it took {size_text(peak)} of memory, {size_text(projected)} were projected"
        warnings.warn(what, stacklevel=2)
    return peak


def warn_of_skipped_rows(
    skipped: Mapping[str, int], source: object, rejects: object | None
) -> None:
    """Warn of rows that were left out of a source, if there are any."""
    if skipped:
        listed = "" if rejects is None else f", listed in {short_path(rejects)}"
        warnings.warn(
            f"rows that could not be read and were left out: {sum(skipped.values()):,}, of "
            f"{short_path(source)}{listed}",
            stacklevel=2,
        )


def warn_of_unknown(n_values: int, source: object) -> None:
    """Warn of values of features that a model does not know, if there are any."""
    if n_values:
        warnings.warn(
            f"{n_values:,} values of features that the model does not know were left out: "
            f"{short_path(source)}",
            stacklevel=2,
        )


def short_path(path: object) -> str:
    """Return a path as it may stand in a line."""
    return clean(path, 60)


@contextlib.contextmanager
def install_handlers() -> Iterator[None]:
    """Say a warning once a command, in a line; go on where the reader of the story has left."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # what the encoding lacks is escaped
            stream.reconfigure(errors="backslashreplace")
    story = _Story(sys.stderr)
    with warnings.catch_warnings(), contextlib.redirect_stderr(cast("TextIO", story)):
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = _show_warning
        yield


def drop_output(stream: TextIO) -> None:
    """Let what is still in a stream's buffer go nowhere, or Python tries again as it ends."""
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())


class _Story:
    """Standard error; once it cannot be written to, what is said goes nowhere."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream if stream is not None else open(os.devnull, "w")  # noqa: SIM115

    def write(self, text: str) -> int:
        """Write some text, if anybody reads it."""
        with self._abandon():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush what was written."""
        with self._abandon():
            self._stream.flush()

    @contextlib.contextmanager
    def _abandon(self) -> Iterator[None]:
        """Where nobody reads, let what is said and what Python still holds of it go nowhere."""
        try:
            yield
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                drop_output(self._stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    if issubclass(category, UserWarning):
        tell(f"streammach: warning: {clean(message, MAX_LINE)}")
