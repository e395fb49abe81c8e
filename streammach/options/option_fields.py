"""How an option is declared, once: as a field of a record, with its help, unit and range.

Commands, checks and the reference are made of these fields (:mod:`streammach.cli.options`,
:func:`streammach.options.annotated.check_record`, :func:`add_attributes`, :func:`add_parameters`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields, is_dataclass
from inspect import cleandoc, signature
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from streammach.system.errors import UsageError, check_word, clean, name_parameters

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
SECTIONS = ("\n\nRaises\n", "\n\nAttributes\n")  # that follow parameters
KEY = "option"  # of a field's metadata: its facts, or those of each name in its mapping


@dataclass(frozen=True, kw_only=True)
class OptionFacts:
    """What is said of an option where its field is declared."""

    help: str
    more: str = ""  # what the reference says beside the help
    unit: str = ""  # what its value is, in a word of capitals: N, SIZE, COLUMN
    usual: str = ""  # what holds if nothing is said, in words
    words: tuple[str, ...] = ()  # what it may be
    # least, most: its range, without the least itself where it has to be `above` it
    least: float | None = None
    most: float | None = None
    above: bool = False
    fault: str = ""  # what is said of a value outside; `{}` stands for it
    name: str = ""  # how commands call it, if not by its field: "--features", "-k --limit"
    alone: str | None = None  # its value where a command names it without one
    parse: Callable[[str], Any] | None = None  # reads the text of a command
    keyword: str = ""  # how functions call it, if not by its field
    python: bool = False  # whether commands lack it
    free: bool = False  # whether other words are refused elsewhere

    def check(self, value: Any, flag: str) -> None:
        """Raise UsageError for a word that is none of those known, or a number out of range."""
        if self.words and not self.free:
            check_word(value, self.words, flag)
        if not self.fault:
            return
        low = self.least is not None and not (
            value > self.least if self.above else value >= self.least
        )
        if low or (self.most is not None and not value <= self.most):
            raise UsageError(f"{self.fault.format(value)}: {flag}")


class Declared(NamedTuple):
    """An option as its field declares it."""

    field: str
    type: str  # the annotation
    default: Any  # dataclasses.MISSING if it has to be given
    facts: OptionFacts

    @property
    def keyword(self) -> str:
        """What functions call it."""
        return self.facts.keyword or self.field

    @property
    def flag(self) -> str:
        """What commands call it."""
        return self.facts.name or f"--{self.keyword.replace('_', '-')}"


def option(default: Any, help: str, unit: str = "", **facts: Any) -> Any:
    """Return the field of an option; one whose default is ``...`` has to be given."""
    metadata = {KEY: OptionFacts(help=help, unit=unit, **facts)}
    return field(metadata=metadata) if default is ... else field(default=default, metadata=metadata)


def attribute(help: str, default: Any = ...) -> Any:
    """Return the field of a result that :func:`add_attributes` documents."""
    return option(default, help)


def word_options(words: Mapping[str, OptionFacts]) -> Any:
    """Return the field of a mapping whose names are options, each one of some words."""
    return field(default_factory=dict, metadata={KEY: words})


def record_in(one: Field[Any]) -> Any:
    """Return the class of the record that a field holds, whose fields are options, or None."""
    return one.default_factory if is_dataclass(one.default_factory) else None


def declared_options(record: Any, *, python: bool = False) -> Iterator[Declared]:
    """Yield the options of a record and of those within it; those that commands lack, if asked."""
    for one in fields(record):
        facts, inner = one.metadata.get(KEY), record_in(one)
        if inner is not None:
            yield from declared_options(inner, python=python)
        elif isinstance(facts, Mapping):
            yield from (Declared(n, "str", own.words[0], own) for n, own in facts.items())
        elif facts is not None and (python or not facts.python):
            yield Declared(one.name, str(one.type), one.default, facts)


def make_record(record: Callable[..., T], values: Mapping[str, Any]) -> T:
    """Return a record of values by the keywords of its options, and of those within it."""
    made: dict[str, Any] = {}
    for one in fields(record):  # type: ignore[arg-type]
        facts, inner = one.metadata.get(KEY), record_in(one)
        if inner is not None:
            made[one.name] = make_record(inner, values)
        elif isinstance(facts, Mapping):
            made[one.name] = {name: values[name] for name in facts if name in values}
        elif facts is not None and (keyword := facts.keyword or one.name) in values:
            made[one.name] = values[keyword]
    return record(**made)


def keywords_of(record: Any, *, changed: bool = False) -> dict[str, Any]:
    """Return the values of a record's options by their keywords; those not usual, if asked."""
    found: dict[str, Any] = {}
    for one in fields(record):
        facts, value = one.metadata.get(KEY), getattr(record, one.name)
        if record_in(one) is not None:
            found |= keywords_of(value, changed=changed)
        elif isinstance(facts, Mapping):
            found |= value
        elif facts is not None and not (changed and value == one.default):
            found[facts.keyword or one.name] = value
    return found


def check_declared(record: Any) -> None:
    """Raise UsageError for a value that is not what an option of a record declares."""
    values = keywords_of(record)
    for one in declared_options(type(record), python=True):
        value = values.get(one.keyword)
        if value is not None or (one.keyword in values and "None" not in one.type):
            one.facts.check(value, one.flag)


def add_attributes(record: type[T]) -> type[T]:
    """Add to the docstring of a public record what its options say: section 'Attributes'."""
    lines = chain.from_iterable(map(_describe, declared_options(record, python=True)))
    head = cleandoc(record.__doc__ or "")
    record.__doc__ = "\n".join([head, "", "Attributes", "----------", *lines, ""])
    return record


def add_parameters(*records: Any) -> Callable[[F], F]:
    """Return what adds options of records to the docstring of what takes them: the parameters."""

    def document(function: F) -> F:
        own = signature(function).parameters
        options = chain.from_iterable(declared_options(one, python=True) for one in records)
        taken = [(one, own[one.keyword]) for one in options if one.keyword in own]
        lines = chain.from_iterable(
            _describe(one._replace(field=one.keyword, type=is_it.annotation, default=is_it.default))
            for one, is_it in taken
        )
        text = cleandoc(function.__doc__ or "")
        end = min((text.find(mark) for mark in SECTIONS if mark in text), default=len(text))
        function.__doc__ = "\n".join([text[:end], *lines]) + text[end:]
        return function

    return document


def _describe(one: Declared) -> tuple[str, str]:
    """Return the lines of an option in a reference."""
    facts = one.facts
    words = f" One of {', '.join(facts.words)}." if facts.words else ""
    usual = f" Otherwise: {facts.usual}." if facts.usual else ""
    said = isinstance(one.default, str | int | float) and not facts.usual
    head = f"{one.field} : {one.type}{f', default={one.default!r}' if said else ''}"
    return head, name_parameters(f"    {facts.help}{usual}{words} {facts.more}".rstrip())


def read_numbers(text: str) -> tuple[int, ...]:
    """Return whole numbers that stand with commas between, or raise ValueError."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise ValueError(f"{clean(text)} is not a list such as 4,8,16")
    return tuple(map(int, words))
