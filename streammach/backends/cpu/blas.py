"""The threads of BLAS, which are those of the whole process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from threadpoolctl import ThreadpoolController

from streammach.forks import Turn

_lock = Turn()
_holders: list[Any] = []  # the limit that is in force, once for each that needs it


@contextmanager
def one_thread_each(controller: ThreadpoolController) -> Iterator[None]:
    """Have a product of matrices be its caller's work alone, until the last caller is done.

    Parameters
    ----------
    controller : ThreadpoolController
        Knows the libraries.
    """
    with _lock:
        limit = _holders[0] if _holders else controller.limit(limits=1, user_api="blas")
        _holders.append(limit)
    try:
        yield
    finally:
        with _lock:
            _holders.pop()
            if not _holders:
                limit.restore_original_limits()
