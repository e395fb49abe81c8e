"""The exceptions that users meet, ``what: where: what to do``, each with its exit code."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, Self

# Options of the commands, as errors name them; those whose parameter in Python is not their name.
OPTION = re.compile(r"(?<![\w-])--([a-z][a-z0-9]*(?:-[a-z]+)*)(?![\w=-])")
RENAMED = {
    "buckets": "n_buckets", "repetitions": "n_repetitions", "exact": "exact=True",
    "features": "hashed_features",
    "first-label": "first_label=True", "no-header": "header=False", "force": "force=True",
    "resume": "resume=True",
}  # fmt: skip

# What a terminal obeys, or shows as something else than it is: control characters, marks that turn
# the direction of text, separators of lines, halves of characters.
UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


SCHEME = re.compile(r"\b[a-z][a-z0-9+.-]*:/+", re.IGNORECASE)
QUERY = re.compile(r"(\?|#(?=.*=)).+", re.DOTALL)


def no_option(function: str, name: str, known: Iterable[str]) -> TypeError:
    """Return what is said of an option that a function does not have, with the nearest one."""
    near = get_close_matches(name, sorted(known), 1)
    meant = f": did you mean '{near[0]}'?" if near else ""
    return TypeError(f"{function}() has no option '{clean(name, 60)}'{meant}")


class StreammachError(Exception):
    """What was wrong, where, and what to do about it.

    Text names a setting as the commands do, ``--hold-out-by``; ``str`` of the error names the
    parameter of the functions, ``hold_out_by``, and :meth:`as_command` leaves it.

    Parameters
    ----------
    message : str
        One line for people.
    path : str or path-like, optional
        The file or folder concerned, as the user typed it; it is made safe to print.
    line : int, optional
        Line of a text file, counted from 1.
    byte : int, optional
        Byte inside that line, counted from 1.
    hint : str, optional
        What to do; appended to the message.
    """

    exit_code = 1
    kind = "internal"

    def __init_subclass__(cls, exit_code: int | None = None, kind: str | None = None) -> None:
        """Give a class its exit code and its kind; otherwise they are those of its base."""
        cls.exit_code, cls.kind = exit_code or cls.exit_code, kind or cls.kind

    def __init__(
        self, message: str, *, path: str | os.PathLike[str] | None = None, line: int | None = None,
        byte: int | None = None, hint: str | None = None,
    ) -> None:  # fmt: skip
        message, hint = without_secrets(message), hint and without_secrets(hint)
        super().__init__(message)
        self.message = message
        self.path = path and clean(without_secrets(str(path)), 300)
        self.line, self.byte, self.hint = line, byte, hint

    def __reduce__(self) -> tuple[type[Self], tuple[str], dict[str, Any]]:
        # How a process sends it to another. Without this, what Dask sends errors with makes one by
        # the class's `__new__`, which those that are a MemoryError, too, refuse.
        return type(self), (self.message,), self.__dict__

    @property
    def finding(self) -> str:
        """What was wrong and where, without what to do: as another sentence may hold it."""
        line = "" if self.line is None else f"line {self.line:,}"
        byte = "" if self.byte is None else f"byte {self.byte:,}"
        where = " ".join(filter(None, (str(self.path or ""), line, byte)))
        return f"{self.message}: {where}" if where else self.message

    def as_command(self) -> str:
        """Return the line for a user of the commands."""
        return join_sentences(self.finding, self.hint)

    def __str__(self) -> str:
        return name_parameters(self.as_command())


def join_sentences(text: str, hint: str | None) -> str:
    """Return what was wrong and what to do, as sentences: the one place that joins both."""
    if not hint:
        return text
    ends = text.endswith((".", "!", "?")) and not text.endswith("...")
    return f"{text} {hint}" if ends else f"{text}. {hint}"


def name_parameters(text: str) -> str:
    """Return text that names parameters of functions where it named options of commands."""
    return OPTION.sub(lambda found: RENAMED.get(found[1], found[1].replace("-", "_")), text)


class UsageError(StreammachError, ValueError, exit_code=2, kind="usage"):
    """The call itself is wrong: an option, a path that is not there, an output that exists."""


def check_word(word: object, known: Iterable[str], option: str) -> None:
    """Raise UsageError, which names an option, for a word that is none of those known."""
    words = tuple(known)
    if word not in words:
        raise UsageError(f"'{clean(word)}' is not one of {', '.join(words)}: {option}")


class DataError(StreammachError, ValueError, exit_code=3, kind="bad-data"):
    """Source data are malformed or cut short."""


class StoreError(StreammachError, ValueError, exit_code=4, kind="damaged"):
    """A store is damaged, unfinished, foreign, or of a version that this release cannot read."""


class ModelError(StreammachError, ValueError, exit_code=4, kind="damaged"):
    """A model, checkpoint or run is damaged or does not belong to what it is used with."""


class MismatchError(ModelError, kind="mismatch"):
    """A checkpoint or model belongs to another store, plan or training."""


class DeviceError(StreammachError, RuntimeError, exit_code=5, kind="no-device"):
    """The device that was asked for cannot be used."""


class BudgetError(StreammachError, MemoryError, exit_code=6, kind="does-not-fit"):
    """The job does not fit the memory that it may use."""


class DiskError(StreammachError, OSError, exit_code=7, kind="disk"):
    """A file could not be written or read: disk full, I/O error, permission."""


class LockedError(StreammachError, OSError, exit_code=8, kind="locked"):
    """Another live process owns the store or run."""


class DivergedError(StreammachError, ArithmeticError, exit_code=9, kind="diverged"):
    """Training left the finite numbers."""


class Interrupted(StreammachError, exit_code=130, kind="interrupted"):
    """A signal stopped the work; what was done so far is saved."""


def without_secrets(text: str) -> str:
    """Return text whose URLs name nobody and are not signed."""
    # A password may hold anything, blanks, "/" and "?" too: all is left out from a URL's scheme up
    # to the last "@", and from a query or a signature on to the end.
    found = SCHEME.search(text)
    if found is None:
        return text
    start, rest = text[: found.end()], text[found.end() :]
    secret, at, shown = rest.rpartition("@")
    if re.search("[?#]", secret):
        return f"{start}***"
    return start + ("***@" if at else "") + QUERY.sub(r"\1***", shown, count=1)


def escape_controls(text: str, kept: str = "") -> str:
    """Return text that is safe wherever it is shown: what a terminal obeys stands as its escape.

    The characters in `kept` stay all the same, such as the newlines of a text of several lines.
    """
    return UNSAFE.sub(
        lambda found: found[0] if found[0] in kept else found[0].encode("unicode_escape").decode(),
        text,
    )


def clean(text: object, limit: int = 80) -> str:
    """Return text that is safe on a terminal: one line, at most `limit` characters, escaped.

    It may be anything from a file, a path or a label; bytes are read as UTF-8.
    """
    raw = text.decode("utf-8", "backslashreplace") if isinstance(text, bytes) else str(text)
    # What is cut off might have told that the rest is a password.
    short = raw if len(raw) <= limit else without_secrets(raw)[: limit - 3] + "..."
    return escape_controls(short)


def type_name(value: object) -> str:
    """Return what came, for a message: its type, and of a list that of its first item."""
    if isinstance(value, type):
        return clean(f"class {value.__name__}", 60)
    inside = f" of {type(value[0]).__name__}" if isinstance(value, list | tuple) and value else ""
    return clean(f"{type(value).__name__}{inside}", 60)
