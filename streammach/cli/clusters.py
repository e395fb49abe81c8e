"""Work by the workers of a cluster, or by processes of this machine, as commands ask for it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from streammach.errors import UsageError

if TYPE_CHECKING:
    from distributed import Client

OF_FILES = (
    "on_bad_row", "max_bad", "rejects", "form", "labels", "x_path", "y_path", "first_label",
    "multilabel",
)  # fmt: skip


@contextmanager
def rankers(dask: str | None, devices: str | None, threads: int | None) -> Iterator[Client]:
    """Hold the cluster that ranks a store's rows: the one that is named, or processes here.

    What the user asks of files is refused: a cluster ranks the rows of a store alone.
    """
    refuse(OF_FILES, "a cluster ranks the rows of a store, which has no bad ones")
    if click.get_current_context().params.get("device") not in (None, "auto", "cpu"):
        raise UsageError("a cluster ranks rows on CPUs alone: --device")
    if dask is not None and devices is not None:
        raise UsageError("only one of these can be: --dask, --devices")
    from streammach.cluster.workers import (  # loads on demand
        CPU,
        check_installed,
        connected,
        devices_of,
        started_here,
    )
    from streammach.machine import cores

    check_installed()
    if dask is not None:
        refuse(("threads",), "workers of a cluster have threads of their own")
        with connected(dask) as client:
            yield client
        return
    named = devices_of(devices or CPU)
    if {*named} != {CPU}:
        raise UsageError("a cluster ranks rows on CPUs alone: --devices")
    with started_here(named, threads or cores()) as client:
        yield client


def refuse(names: Collection[str], why: str) -> None:
    """Raise UsageError if the user gives one of some options."""
    context = click.get_current_context()
    for option in context.command.params:
        name = option.name or ""
        if name in names and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise UsageError(f"{why}: {option.opts[0]}")
