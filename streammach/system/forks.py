"""What is open again in the child of a fork, whatever other threads were at."""

from __future__ import annotations

import threading
import weakref

from streammach.system.linux import at_fork


class ForkAware:
    """What is told in the child of a fork, in which no thread goes on but the one that forked."""

    def __init__(self) -> None:
        _FORKED.add(self)

    def after_fork(self) -> None:
        """Become what can be used without the other threads."""


_FORKED: weakref.WeakSet[ForkAware] = weakref.WeakSet()


def _in_child() -> None:
    for one in list(_FORKED):
        one.after_fork()


at_fork(after_in_child=_in_child)


class ForkSafeLock(ForkAware):
    """A lock to take again in a thread; ``with`` gives whether a fork left work half done."""

    def __init__(self) -> None:
        super().__init__()
        self._lock, self._holder, self._depth, self._lost = threading.RLock(), 0, 0, False

    def __enter__(self) -> bool:
        self._lock.acquire()
        self._holder, self._depth = threading.get_ident(), self._depth + 1
        lost, self._lost = self._lost, False
        return lost

    def __exit__(self, *error: object) -> None:
        self._depth -= 1
        self._lock.release()

    def after_fork(self) -> None:
        """Open it, unless the thread that forked holds it."""
        if not (self._depth and self._holder == threading.get_ident()):
            self._lost = self._depth > 0
            self._lock, self._depth = threading.RLock(), 0
