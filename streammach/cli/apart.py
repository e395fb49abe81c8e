"""Work in a process of its own: the memory that it took, compilers included, goes with it."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from streammach.cli.conduct import conduct
from streammach.errors import StreammachError

T = TypeVar("T")
PATIENCE_SECONDS = 10.0  # for the other process to heed a signal that both were sent


def apart(function: Callable[..., T], *arguments: Any) -> T:
    """Return what a function returns in a fresh process.

    Parameters
    ----------
    function : callable
        A function of a module.
    *arguments
        Its arguments; they and what it returns are sent between the processes.

    Raises
    ------
    StreammachError
        What the function raises; or that its process was ended from outside.
    KeyboardInterrupt
        After a signal, when the other process has ended, too.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(theirs, function, arguments))
    process.start()
    theirs.close()
    try:
        result, error = ours.recv()
    except EOFError:
        process.join()
        raise StreammachError(
            "a part of the work was ended from outside",
            hint="Is memory short? The same command goes on or starts anew.",
        ) from None
    except KeyboardInterrupt as interrupt:
        process.join(PATIENCE_SECONDS)
        process.terminate()
        process.join()
        result, error = None, _last_word(ours) or interrupt
    process.join()
    if error is not None:
        raise error
    returned: T = result
    return returned


def _last_word(ours: Connection) -> BaseException | None:
    """Return the error that a process sent before it ended, if it did."""
    try:
        error: BaseException | None = ours.recv()[1] if ours.poll() else None
    except EOFError:
        return None
    return error


def _work(theirs: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Send what the function returns, and the error that it raises."""
    conduct()
    try:
        found: tuple[Any, BaseException | None] = (function(*arguments), None)
    except (StreammachError, KeyboardInterrupt, MemoryError, OSError) as error:
        found = (None, error)
    except Exception as error:  # one that may not bear to be sent
        found = (None, StreammachError(f"{type(error).__name__}: {error}"))
    theirs.send(found)
