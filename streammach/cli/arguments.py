"""How a command is made of a function, which takes its options as one record."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from functools import wraps
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click

from streammach.cli.options import epilog
from streammach.clock import Clock
from streammach.data.store.blobs import FOLDER, SIZE
from streammach.errors import RENAMED, UsageError
from streammach.machine import parse_seconds, parse_size
from streammach.parts.switches import SWITCHES
from streammach.spec.training import TrainingOptions

if TYPE_CHECKING:
    from streammach.data.source_options import Layout, SourceOptions, TableOptions
    from streammach.planning.constraints import Constraints

Command = Callable[..., None]
# Options whose parameter in Python has another name.
PARAMETERS = RENAMED | {"form": "format"}


class Arguments(SimpleNamespace):
    """Options by their names; `parts` says of each optional part what its option says."""

    def of(self, taker: Callable[..., Any]) -> dict[str, Any]:
        """Return those that a function or a record takes, by the names of its parameters."""
        names = inspect.signature(taker).parameters
        given = {
            name if name in names else PARAMETERS.get(name, name): value
            for name, value in vars(self).items()
        }
        return {name: value for name, value in given.items() if name in names}

    def training(self) -> TrainingOptions:
        """Return what is fixed of a training, or raise UsageError."""
        return TrainingOptions(**self.of(TrainingOptions))

    def constraints(self) -> Constraints:
        """Return what is fixed of a plan, or raise UsageError."""
        from streammach.planning.constraints import Constraints  # compiled code loads on demand

        given = self.of(Constraints)
        if given.get("memory") is not None:
            given["memory"] = parse_size(given["memory"])
        return Constraints(**given)

    def source(self) -> SourceOptions:
        """Return how the one source of a command is read, or raise UsageError."""
        from streammach.data.source_options import SourceOptions  # loads on demand

        given = self.of(SourceOptions) | {"layout": self.layout}
        labels = given.pop("labels", ())
        if len(labels) > 1:
            raise UsageError(f"{len(labels)} files of labels for one of rows: --labels")
        return SourceOptions(**given, labels=next(iter(labels), None))

    def of_file(self) -> dict[str, Any]:
        """Return what is said of how a file is converted, beside what is usual."""
        from streammach.data.convert import convert  # loads on demand

        own = {"memory", "threads", "seed", "force", "progress"}
        usual = inspect.signature(convert).parameters
        return {
            name: value for name, value in self.of(convert).items()
            if name not in own and value != usual[name].default
        }  # fmt: skip

    @property
    def table(self) -> TableOptions:
        """What is said of the columns of a table."""
        from streammach.data.source_options import TableOptions  # loads on demand

        return TableOptions(**self.of(TableOptions))

    @property
    def layout(self) -> Layout:
        """How the cells of CSV and TSV lie."""
        from streammach.data.source_options import Layout  # loads on demand

        return Layout(**self.of(Layout))

    def clock(self) -> Clock:
        """Return the time that the command may take."""
        return Clock.of_process(None if self.time is None else parse_seconds(self.time))

    def but(self, **changes: Any) -> Arguments:
        """Return the same options with some changes."""
        return Arguments(**{**vars(self), **changes})


def command(example: str, name: str | None = None) -> Callable[[Command], click.Command]:
    """Return what makes a command of a function, with an example at the end of its help.

    The options that the function does not name come as one record: `given`. Those of the cache
    hold for this process and those that it starts.
    """

    def make_command(function: Command) -> click.Command:
        own = inspect.signature(function).parameters

        @wraps(function)
        def call_function(
            *, cache: Any = None, cache_size: str | None = None, **options: Any
        ) -> None:
            if cache_size is not None:
                parse_size(cache_size)
                os.environ[SIZE] = cache_size
            if cache is not None:
                os.environ[FOLDER] = os.path.abspath(cache)
            named = {name: options.pop(name) for name in [*options] if name in own}
            switches = [one.option for one in SWITCHES.values() if one.option in options]
            if switches:
                options["parts"] = {name: options.pop(name) for name in switches}
            function(**named, given=Arguments(**options))

        return click.command(name, epilog=epilog(example))(call_function)

    return make_command
