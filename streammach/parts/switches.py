"""The optional parts by name, and how a user asks for them; nothing heavy is loaded for that."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

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
    """

    option: str
    words: tuple[str, str, str] = ("auto", "on", "off")
    help: str

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
