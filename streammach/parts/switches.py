"""The optional parts by name, and how a user asks for them; nothing heavy is loaded for that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

# Folders here, in the order in which they are decided on: a new part is a name in this line.
NAMES = ("whitening", "fourier", "joint", "discriminant", "counts")


@dataclass(frozen=True, kw_only=True)
class Switch:
    """How a user asks for a part: an option of the command, and a keyword in Python.

    Attributes
    ----------
    option : str
        Its name: ``counts`` is ``--counts``.
    words : tuple of str
        What says: held-out rows decide, use it, leave it out.
    help : str
        A line for the help text.
    weighs_rows : bool
        Whether it knows that rows may count for more or less; otherwise each counts once.
    """

    option: str
    words: tuple[str, str, str] = ("auto", "on", "off")
    help: str
    weighs_rows: bool = True

    @property
    def flag(self) -> str:
        """The command's option."""
        return "--" + self.option.replace("_", "-")

    @property
    def wanted(self) -> str:
        """What a user says who wants it."""
        return f"{self.flag} {self.words[1]}"


def switches() -> tuple[Switch, ...]:
    """Return the switches of all parts."""
    found: list[Switch] = []
    for name in NAMES:
        found.append(import_module(f"streammach.parts.{name}.switch").SWITCH)
    return tuple(found)


def without_unweighted(words: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a user says of parts, without those that count each row once.

    These stay where the user wants them.

    Parameters
    ----------
    words : mapping of str
        What was said, by option; other options stay.
    """
    unweighted = (switch for switch in switches() if not switch.weighs_rows)
    left = [s for s in unweighted if words.get(s.option, s.words[0]) == s.words[0]]
    return {**words, **{switch.option: switch.words[2] for switch in left}}
