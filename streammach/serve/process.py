"""A service as a process: the port, signals, and an end at which nothing is lost."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import os
import signal
import socket
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import uvicorn

from streammach.errors import Interrupted, UsageError, clean
from streammach.processes import INTERRUPTED, heeded
from streammach.serve.app import app_of
from streammach.serve.connections import ACCEPTED, IDLE_SECONDS, Connection, ConnectionLimit
from streammach.serve.limits import ServiceLimits
from streammach.serve.messages import About
from streammach.serve.models import Computing
from streammach.serve.service import Service

BACKLOG = 1024  # connections that wait to be accepted
ACCEPTED_SECONDS = 0.1  # in which connections are accepted that came before the port was closed
LAST_SECONDS = 0.5  # in which those that are open get the answer that closes them
LAST_SHARE = 0.1  # of the time that a stop may take, at most, for each of both


class Port:
    """The address of a service, which is its own from now on, and open later."""

    def __init__(self, host: str, number: int) -> None:
        self.host, place = host, f"{clean(host)}:{number}"
        try:
            family, kind, proto, _, address = socket.getaddrinfo(
                host, number, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            self.socket = socket.socket(family, kind, proto)
        except OSError as error:
            raise UsageError(f"there is no host {place}: {clean(error)}: --host") from None
        try:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.socket.bind(address)
        except OSError as error:
            self.socket.close()
            taken = error.errno == errno.EADDRINUSE
            why = "it is taken" if taken else clean(error.strerror or error)
            hint = "Use another --port; 0 finds a free one."
            raise UsageError(f"no port at {place}: {why}", hint=hint) from None
        own, number = self.socket.getsockname()[:2]
        self.local = ipaddress.ip_address(own).is_loopback  # for programs of this machine alone
        self.url = f"http://[{host}]:{number}" if ":" in host else f"http://{host}:{number}"


def serve(
    folders: Mapping[str, Path], port: Port, limits: ServiceLimits, computing: Computing,
    ready: Callable[[list[About]], None],
) -> None:  # fmt: skip
    """Answer requests until a signal stops it."""
    hang_up = signal.getsignal(signal.SIGHUP)  # asyncio would leave the default, not this
    with contextlib.closing(port.socket):
        service, done = Service(folders, limits, computing), False
        try:
            done = asyncio.run(_served(service, port, ready))
        finally:
            signal.signal(signal.SIGHUP, hang_up)
            done = service.close(limits.grace if not done else 1.0) and done
    if not done:
        raise Interrupted(f"interrupted: not all was answered within {limits.grace:g} s: --grace")


async def _served(service: Service, port: Port, ready: Callable[[list[About]], None]) -> bool:
    """Answer requests until a signal comes; return whether all were answered."""
    limit = ConnectionLimit(service.limits.connections)
    config = uvicorn.Config(
        app_of(service, local=port.local, hosts=(port.host,)), lifespan="off", ws="none",
        http=partial(Connection, limit=limit),  # type: ignore[arg-type]
        log_config=None, log_level="critical", access_log=False, proxy_headers=False,
        server_header=False, backlog=ACCEPTED, timeout_keep_alive=IDLE_SECONDS,
    )  # fmt: skip
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext  # type: ignore[assignment, method-assign]
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()

    def stop() -> None:
        if stopped.is_set():  # the second signal ends the process
            os._exit(INTERRUPTED)
        stopped.set()

    for number in heeded():
        loop.add_signal_handler(number, stop)
    loop.add_signal_handler(signal.SIGHUP, lambda: service.loading.give(service.reload_all))
    running = asyncio.create_task(server.serve([port.socket]))
    while not server.started and not running.done():
        await asyncio.sleep(0)
    port.socket.listen(BACKLOG)
    ready(service.models)
    waiting = asyncio.create_task(stopped.wait())
    await asyncio.wait((running, waiting), return_when=asyncio.FIRST_COMPLETED)
    return await _stop(service, server, port, running)


async def _stop(
    service: Service, server: uvicorn.Server, port: Port, running: asyncio.Task[None]
) -> bool:
    """Answer what was sent, and close; return whether all of it was answered in time."""
    grace = service.limits.grace
    until = time.monotonic() + grace
    # Who asks for a connection now waits in vain; who has one already is heard.
    port.socket.listen(0)
    await asyncio.sleep(min(ACCEPTED_SECONDS, LAST_SHARE * grace))
    for one in server.servers:
        one.close()
    service.stopping = True  # answers close their connections from now on
    await asyncio.sleep(min(LAST_SECONDS, LAST_SHARE * grace))
    server.should_exit = True
    await asyncio.wait((running,), timeout=max(until - time.monotonic(), 0))
    if running.done():
        await running
        return True
    server.force_exit = True
    for task in list(server.server_state.tasks):
        task.cancel()
    await asyncio.wait((running,), timeout=1)
    return False
