"""Stores as arguments: in a folder, or at a URL with a cache before it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from streammach.data.store.blobs import FOLDER, SIZE
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

    @wraps(command)
    def called(*, cache: Path | None, cache_size: str | None, **given: Any) -> None:
        said = {} if cache is None else {FOLDER: os.path.abspath(cache)}
        if cache_size is not None:
            parse_size(cache_size)
            said[SIZE] = cache_size
        with in_environment(said):
            command(**given)

    options = [
        click.option("--cache", metavar="FOLDER", type=click.Path(path_type=Path),
                     help="Where files of stores at URLs are kept.  [default: of the user]"),
        click.option("--cache-size", metavar="SIZE",
                     help="Most bytes that are kept there.  [default: 20GB]"),
    ]  # fmt: skip
    for option in reversed(options):
        called = option(called)
    return cast(F, called)


@contextmanager
def in_environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables of the environment while a block runs."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
