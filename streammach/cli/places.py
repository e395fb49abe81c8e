"""Stores as arguments: in a folder, or at a URL with a cache before it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from streammach.data.store.remote import FOLDER, SIZE
from streammach.files.urls import located
from streammach.machine import parse_size

F = TypeVar("F", bound=Callable[..., Any])


class StorePath(click.Path):
    """A path, or the URL of a store."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return what was named; see :func:`streammach.files.urls.located`."""
        del param, ctx
        return located(value)


STORE_PATH = StorePath()


def cache_options(command: F) -> F:
    """Add the options of the cache, which hold for this process and those that it starts."""
    options = [
        click.option("--cache", metavar="FOLDER", type=click.Path(path_type=Path),
                     expose_value=False, callback=_setting(FOLDER),
                     help="Where files of stores at URLs are kept.  [default: of the user]"),
        click.option("--cache-size", metavar="SIZE", expose_value=False, callback=_setting(SIZE),
                     help="Most bytes that are kept there.  [default: 20GB]"),
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def _setting(variable: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    """Return what keeps an option in the environment while its command runs."""

    def keep(context: click.Context, _: click.Parameter, value: Any) -> None:
        if variable == SIZE and value is not None:
            parse_size(value)
        if value is not None:
            said = os.path.abspath(value) if variable == FOLDER else value
            context.with_resource(_environment(variable, said))

    return keep


@contextmanager
def _environment(variable: str, value: str) -> Iterator[None]:
    before = os.environ.get(variable)
    os.environ[variable] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[variable]
        else:
            os.environ[variable] = before
