"""Connections to a service: as many as it has handles for, and none that asks nothing for long."""

from __future__ import annotations

import asyncio
import resource
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from streammach.progress import tell

IDLE_SECONDS = 60  # after which a connection is closed that asks nothing, or no whole request
ACCEPTED = 32  # connections that are accepted at a time, before those too many are closed
OTHER_HANDLES = 8 * ACCEPTED  # of files, and of connections that are being opened and closed


class ConnectionLimit:
    """How many connections a service has at most, and whether it was said that more came."""

    def __init__(self, most: int) -> None:
        handles, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.most = most if handles < 0 else max(1, min(most, handles - OTHER_HANDLES))
        self._reported = False

    def report(self) -> None:
        """Say once that there are too many."""
        if not self._reported:
            self._reported = True
            tell(
                f"streammach: warning: more than {self.most:,} connections: those that ask nothing "
                "are closed, the oldest first"
            )


class Connection(H11Protocol):
    """A connection; it is closed where it asks nothing for a time, or where there are too many."""

    def __init__(self, *uvicorns: Any, limit: ConnectionLimit, **named: Any) -> None:
        super().__init__(*uvicorns, **named)
        self._limit = limit

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request; where there are too many, close what waits longest."""
        super().connection_made(transport)
        self._wait_until(self.until)
        if len(self.connections) > self._limit.most:
            self._limit.report()
            idle = [one for one in self.connections if isinstance(one, Connection) and one.waits]
            # It is this one if all others are answered just now.
            min(idle, key=lambda one: one.until, default=self).transport.abort()

    @property
    def waits(self) -> bool:
        """Whether it waits for a request."""
        return self.timeout_keep_alive_task is not None and not self.transport.is_closing()

    @property
    def until(self) -> float:
        """When it is closed if nothing comes; from now on, if it does not wait yet."""
        wait, since_now = self.timeout_keep_alive_task, self.loop.time() + self.timeout_keep_alive
        return since_now if wait is None else wait.when()

    def data_received(self, data: bytes) -> None:
        """Take what came; what is no whole head of a request does not prolong the wait."""
        until = self.until
        super().data_received(data)
        asked = self.cycle is not None and not self.cycle.response_complete
        if not (asked or self.timeout_keep_alive_task or self.transport.is_closing()):
            self._wait_until(until)

    def _wait_until(self, when: float) -> None:
        handler = self.timeout_keep_alive_handler
        self.timeout_keep_alive_task = self.loop.call_at(when, handler)
