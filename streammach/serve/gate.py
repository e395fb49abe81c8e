"""What stands before all requests: whom they are meant for, and whether the service goes on."""

from __future__ import annotations

from urllib.parse import urlsplit

import msgspec
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from streammach.errors import clean
from streammach.serve.messages import Wrong
from streammach.serve.service import Service

LOCAL = ("localhost", "127.0.0.1", "::1")
SAFE = {"x-content-type-options": "nosniff", "cache-control": "no-store"}


class Gate:
    """Refuses requests that web pages of others send to a service of this machine.

    A page can let a name of its own mean this machine (DNS rebinding): then it is in the Host
    header. It can send requests to other hosts, too: then its own host is in the Origin header.
    """

    def __init__(
        self, app: ASGIApp, *, service: Service, local: bool, hosts: tuple[str, ...] = ()
    ) -> None:
        self._app, self._service, self._local = app, service, local
        self._hosts = frozenset({*LOCAL, *(host.lower() for host in hosts)})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SAFE.items():
                    headers.setdefault(name, value)
                if self._service.stopping:
                    headers["connection"] = "close"
            await send(message)

        why = self._foreign(Headers(scope=scope)) if self._local else None
        if why is None:
            await self._app(scope, receive, sent)
            return
        self._service.metrics.request("other", 403, None)
        await Response(msgspec.json.encode(Wrong(why)), 403, None, "application/json")(
            scope, receive, sent
        )

    def _foreign(self, headers: Headers) -> str | None:
        """Return why a request is not meant for this service, None where it is."""
        host = headers.get("host", "")
        if _name(f"//{host}") not in self._hosts:
            return f"the host '{clean(host, 60)}' is not this one"
        origin = headers.get("origin")
        if origin is not None and _place(origin) != host.lower():
            return f"a page of '{clean(origin, 60)}' may not ask"
        return None


def _name(url: str) -> str | None:
    """Return the name of the host of a URL, None without one."""
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def _place(url: str) -> str | None:
    """Return host and port of a URL, None where it has none."""
    try:
        return urlsplit(url).netloc.lower() or None
    except ValueError:
        return None
