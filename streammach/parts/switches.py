"""The optional parts by name, and how a user asks for them; nothing heavy is loaded for that."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Switch:
    """How a user asks for a part: an option of the command, and a keyword in Python."""

    option: str  # its name: ``counts`` is ``--counts``
    # what says: held-out rows decide, use it, leave it out
    words: tuple[str, str, str] = ("auto", "on", "off")
    help: str  # a line for the help text

    @property
    def flag(self) -> str:
        """The command's option."""
        return "--" + self.option.replace("_", "-")

    @property
    def option_text(self) -> str:
        """What a user says who wants it."""
        return f"{self.flag} {self.words[1]}"


# By folder here, in the order in which parts are decided on: a new part is a folder and a line.
SWITCHES = {
    "linear": Switch(
        option="linear", help="A linear classifier of each class as the model, if classes are few."
    ),
    "whitening": Switch(option="whitening", help="Whiten dense rows while they are trained on."),
    "fourier": Switch(option="fourier", help="Cosines of random projections beside dense rows."),
    "joint": Switch(
        option="loss", words=("auto", "joint", "independent"),
        help="What repetitions learn: each its buckets, or all the class.",
    ),
    "discriminant": Switch(
        option="closed_form", help="A linear discriminant added to exact weights of dense rows."
    ),
    "counts": Switch(
        option="counts", help="Counts of (feature, class) pairs beside the hashed models."
    ),
}  # fmt: skip
