"""How a command is made of a function: its options are the fields of the records that it takes."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import MISSING, dataclass, is_dataclass
from functools import cache, partial
from importlib.metadata import entry_points
from inspect import signature
from itertools import chain
from pathlib import Path
from typing import Any

import click

from streammach.inputs.source_options import TableOptions
from streammach.options.option_fields import (
    Declared,
    OptionFacts,
    declared_options,
    make_record,
    option,
)
from streammach.store.blobs import FOLDER, SIZE
from streammach.system.files.urls import locate
from streammach.system.machine import parse_size
from streammach.system.progress import MODES

PATH, PAIR = click.Path(path_type=Path), "tuple[float, float]"


class StorePathType(click.Path):
    """A path, or the URL of a store."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return what was named; see :func:`streammach.system.files.urls.locate`."""
        del param, ctx
        return locate(value)


STORE_PATH = StorePathType(path_type=Path)
TYPES: dict[str, click.ParamType[Any]] = {  # by the words of annotations
    "Path": PATH, "StorePath": STORE_PATH, "tuple[Path, ...]": PATH, "int": click.INT,
    "tuple[str, ...]": click.STRING, "str": click.STRING, "float": click.FLOAT, PAIR: click.FLOAT,
}  # fmt: skip
# Options of tables by keyword, for commands that read these as a model was trained.
OF_TABLES = {one.keyword for one in declared_options(TableOptions)}
sources_argument = click.argument("sources", nargs=-1, required=True, metavar="SRC...", type=PATH)


@dataclass(frozen=True, kw_only=True)
class CacheOptions:
    """Where files of stores at URLs are kept; for this process and those that it starts."""

    cache: Path | None = option(
        None, "Where files of stores at URLs are kept.", "FOLDER", usual="of the user"
    )
    cache_size: str | None = option(None, "Most bytes that are kept there.", "SIZE", usual="20GB")

    def __post_init__(self) -> None:
        if self.cache_size is not None:
            parse_size(self.cache_size)
            os.environ[SIZE] = self.cache_size
        if self.cache is not None:
            os.environ[FOLDER] = os.path.abspath(self.cache)


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """How the work is reported, and its result."""

    progress: str = option("auto", "How progress is shown, on standard error.", words=MODES)
    as_json: bool = option(False, "Print one JSON object.", name="--json")


class RecordCommand(click.Command):
    """A command that calls its function with records of its options."""

    make_records: Callable[[dict[str, Any]], dict[str, Any]]

    def invoke(self, ctx: click.Context) -> None:
        """Call the function with what was given."""
        assert self.callback is not None, "it is made of a function"
        self.callback(**self.make_records(ctx.params))


def command(
    example: str, name: str | None = None, *, without: Collection[str] = (), cached: bool = False,
    elsewhere: str = "",
) -> Callable[[Callable[..., None]], click.Command]:  # fmt: skip
    """Return what makes a command of a function, with an example at the end of its help.

    Options are the fields of the records that the function takes, but for those `without` which it
    is; it also takes arguments, and fields of :class:`OutputOptions`, by their names. It reads
    stores at URLs if it is `cached`. Optional frontends, such as a cluster, may do its work
    `elsewhere`: `train` or `rank`; the function takes the one that is asked for, or None.
    """

    def make_command(function: Callable[..., None]) -> click.Command:
        taken = signature(function).parameters
        named = {n: function.__globals__.get(str(one.annotation)) for n, one in taken.items()}
        records: dict[str, Any] = {n: kind for n, kind in named.items() if is_dataclass(kind)}
        frontends = [frontend.OPTIONS[elsewhere] for frontend in load_frontends() if elsewhere]
        shared = [one for one in declared_options(OutputOptions) if one.keyword in taken]
        declared: dict[str, Declared] = {}
        every = [*records.values(), *frontends, *([CacheOptions] if cached else [])]
        for one in [*chain.from_iterable(map(declared_options, every)), *shared]:
            declared.pop(one.keyword, None)  # the last one that names it declares it
            if one.keyword not in without:
                declared[one.keyword] = one

        def make_records(values: dict[str, Any]) -> dict[str, Any]:
            if cached:
                make_record(CacheOptions, values)
            made: dict[str, Any] = {n: make_record(one, values) for n, one in records.items()}
            if elsewhere:
                there = (make_record(frontend, values) for frontend in frontends)
                made["elsewhere"] = next((one for one in there if one.is_wanted), None)
            return {name: values[name] for name in taken if name in values} | made

        options = [*map(click_option, declared.values()), debug_option()]
        made = click.command(name, RecordCommand, params=options, epilog=epilog(example))(function)
        made.make_records = make_records
        return made

    return make_command


@cache
def load_frontends() -> list[Any]:
    """Return the modules of an installation whose `OPTIONS` ask for work elsewhere, by its kind."""
    return [one.load() for one in entry_points(group="streammach.elsewhere")]


def epilog(example: str) -> str:
    """Return the example that stands at the end of a help text, kept as it is written."""
    return f"\b\nExample:\n  {example}"


def debug_option() -> click.Option:
    """Return the option of a traceback, which ``main`` reads."""
    help = "Show the traceback of an error."
    return click.Option(["--debug"], is_flag=True, expose_value=False, help=help)


def click_option(one: Declared) -> click.Option:
    """Return the command's option of a field."""
    facts, flag, default = one.facts, one.flag, one.default
    usual = f"  [default: {facts.usual}]" if facts.usual else ""
    how: dict[str, Any] = {"help": facts.help + usual, "metavar": facts.unit or None}
    how |= {"required": True} if default is MISSING else {"default": default}
    how["show_default"] = not usual and default not in (MISSING, None, (), False)
    if one.type.startswith("bool"):
        both = f"{flag}/--no-{flag[2:]}"
        flag, how["show_default"] = both if default is None else flag, False
        how |= {} if default is None else {"is_flag": True, "flag_value": not default}
    elif facts.parse is not None:
        how |= {"default": None, "callback": partial(_parse, facts.parse, default)}
    else:
        kind = next(word for word in one.type.split(" | ") if word in TYPES or facts.words)
        how["type"], how["multiple"] = _type_of(kind, facts), default == ()
        how["nargs"] = 1 + (kind == PAIR)
        if facts.alone is not None:
            how |= {"is_flag": False, "flag_value": facts.alone}
    return click.Option([*flag.split(), one.keyword], **how)


def _type_of(kind: str, facts: OptionFacts) -> click.ParamType[Any]:
    """Return what reads a value; a range that has words of its own is checked by the record."""
    if facts.words:
        return click.Choice(facts.words)
    least, most = facts.least, facts.most
    if facts.fault or (least is None and most is None):
        return TYPES[kind]
    ranges: type[Any] = click.IntRange if kind == "int" else click.FloatRange
    made: click.ParamType[Any] = ranges(least, most, min_open=facts.above)
    return made


def _parse(
    read: Callable[[str], Any], usual: Any, context: click.Context, option: click.Parameter,
    text: str | None,
) -> Any:  # fmt: skip
    try:
        return tuple(read(text)) if text else usual
    except ValueError as error:
        raise click.BadParameter(str(error), context, option) from None
