"""A service as a process: the port, signals, and an end at which nothing is lost."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import signal
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

import uvicorn

from streammach.frontends.serve.app import LOCAL, build_app
from streammach.frontends.serve.messages import About
from streammach.frontends.serve.options import ServeOptions
from streammach.frontends.serve.service import Service
from streammach.system.errors import Interrupted, UsageError, clean
from streammach.system.processes import INTERRUPTED, stopping_signals

BACKLOG = 1024  # connections that wait to be accepted
MAX_CONNECTIONS = 1000  # at a time
IDLE_SECONDS = 60  # after which a connection is closed that asks nothing more
LAST_SECONDS = 0.3  # of a stop: in which connections are accepted, and get their last answer


class Port:
    """The address of a service, which is its own from now on, and answers later."""

    def __init__(self, host: str, number: int) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self.socket = socket.create_server((host, number), family=family, backlog=BACKLOG)
        except OSError as error:
            why = str(error.strerror or error).partition(" (")[0]
            what = f"no port at {clean(host)}:{number}: {clean(why)}"
            hint = "Use another --host or --port; 0 finds a free one."
            raise UsageError(what, hint=hint) from None
        own, number = self.socket.getsockname()[:2]
        self.local = ipaddress.ip_address(own).is_loopback  # for programs of this machine alone
        self.host = f"[{host}]" if ":" in host else host
        self.url = f"http://{self.host}:{number}"


def serve(
    folders: Mapping[str, Path], port: Port, options: ServeOptions,
    ready: Callable[[list[About]], None],
) -> None:  # fmt: skip
    """Answer requests until a signal stops it."""
    with contextlib.ExitStack() as end, port.socket:
        for number in (*stopping_signals(), signal.SIGHUP):  # asyncio leaves the usual handlers
            end.callback(signal.signal, number, signal.getsignal(number))
        service = end.enter_context(contextlib.closing(Service(folders, options)))
        done = asyncio.run(_serve(service, port, ready))
    if not done:
        raise Interrupted(f"interrupted: not all was answered within {options.grace:g} s: --grace")


async def _serve(service: Service, port: Port, ready: Callable[[list[About]], None]) -> bool:
    """Answer requests until a signal comes; return whether all were answered."""
    hosts = (*LOCAL, port.host.lower()) if port.local else None
    config = uvicorn.Config(
        build_app(service, hosts), http="h11", ws="none", lifespan="off", log_config=None,
        log_level="critical", access_log=False, proxy_headers=False, server_header=False,
        backlog=BACKLOG, limit_concurrency=MAX_CONNECTIONS, timeout_keep_alive=IDLE_SECONDS,
    )  # fmt: skip
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext  # type: ignore[assignment, method-assign]
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()

    def stop() -> None:
        if stopped.is_set():  # the second signal ends the process
            os._exit(INTERRUPTED)
        stopped.set()

    for number in stopping_signals():
        loop.add_signal_handler(number, stop)
    loop.add_signal_handler(signal.SIGHUP, service.loading.submit, service.reload)
    ready(service.models)
    serving = asyncio.create_task(server.serve([port.socket]))
    serving.add_done_callback(lambda _: stopped.set())
    await stopped.wait()
    until = loop.time() + service.options.grace
    # Who asks for a connection now waits in vain; who has one already is heard.
    port.socket.listen(0)
    await asyncio.sleep(LAST_SECONDS)
    for one in server.servers:
        one.close()
    service.stopping = True  # answers close their connections from now on
    await asyncio.sleep(LAST_SECONDS)
    config.timeout_graceful_shutdown = max(0, until - loop.time())  # type: ignore[assignment]
    server.should_exit = True
    await serving
    return not (server.server_state.tasks or server.server_state.connections)
