"""The options of a command that plans or trains, as one record."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import fields
from functools import wraps
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from streammach.clock import Clock
from streammach.machine import parse_seconds, parse_size
from streammach.parts.switches import SWITCHES
from streammach.spec.training import TrainingOptions

if TYPE_CHECKING:
    from streammach.planning.constraints import Constraints

Command = Callable[..., None]
FIELDS = {"buckets": "n_buckets", "repetitions": "n_repetitions"}  # whose option is shorter


class RunArguments(SimpleNamespace):
    """Options by their names; `parts` says of each optional part what its option does."""

    def training(self) -> TrainingOptions:
        """Return what is fixed of a training, or raise UsageError."""
        return TrainingOptions(**self._some(field.name for field in fields(TrainingOptions)))

    def constraints(self) -> Constraints:
        """Return what is fixed of a plan, or raise UsageError."""
        from streammach.planning.constraints import Constraints  # compiled code loads on demand

        given = self._some(field.name for field in fields(Constraints))
        if given.get("memory") is not None:
            given["memory"] = parse_size(given["memory"])
        return Constraints(**given)

    def clock(self) -> Clock:
        """Return the time that the command may take."""
        return Clock.of_process(None if self.time is None else parse_seconds(self.time))

    def but(self, **changes: Any) -> RunArguments:
        """Return the same options with some changes."""
        return RunArguments(**{**vars(self), **changes})

    def _some(self, wanted: Iterable[str]) -> dict[str, Any]:
        named = {FIELDS.get(name, name): value for name, value in vars(self).items()}
        return {name: named[name] for name in wanted if name in named}


def recorded(command: Command) -> Command:
    """Let a command take the options that it does not name itself as one record: `arguments`."""
    own = inspect.signature(command).parameters

    @wraps(command)
    def called(**given: Any) -> None:
        parts = {switch.option: given.pop(switch.option) for switch in SWITCHES.values()}
        others = {name: given.pop(name) for name in [*given] if name not in own}
        command(**given, arguments=RunArguments(parts=parts, **others))

    return called
