"""The requests that a service answers, over HTTP."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import re
import time
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from streammach.errors import clean
from streammach.serve.bodies import Question, RequestReader
from streammach.serve.limits import Refused, beyond, mistake, too_late
from streammach.serve.messages import (
    HTML,
    JSON,
    METRICS,
    Answer,
    Endpoint,
    Health,
    Models,
    Refusal,
    document,
)
from streammach.serve.service import Service

PAGE = (Path(__file__).parent / "page.html").read_text("utf-8")
VERSION = "x-model-version"
LOCAL = ("localhost", "127.0.0.1", "::1")
SMALL = 1 << 16  # bytes of a body that is read in less time than handing it over takes others
# What is read and dropped of a body behind a request that is refused, in bytes and in seconds.
READ_ON_BYTES, READ_ON_SECONDS = 64_000_000, 10.0
CLOSE = (b"connection", b"close")
SAFE = {"x-content-type-options": "nosniff", "cache-control": "no-store"}


class Handlers:
    """Answers requests."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def predict(self, request: Request) -> Response:
        """Predict rows."""
        queue = self._service.queue(request.path_params.get("name"))
        n_bytes = self._announced(request)
        with self._service.room.lent(2 * n_bytes):  # in pieces, and whole
            body = await self._body(request, n_bytes)
            served = queue.served
            question = await self._question(served.reader, body)
            del body
        answer = Answer(served.name, served.version, [])
        if question.rows:
            answer = await queue.ask(question, served.reader.kind)
        return _json(answer, headers={VERSION: answer.version})

    def _announced(self, request: Request) -> int:
        """Return the bytes that a body may take, or raise Refused."""
        limits = self._service.limits
        if request.headers.get("content-encoding", "identity") != "identity":
            raise Refused(415, "the body is compressed: plain JSON is expected")
        length = request.headers.get("content-length", str(limits.body_bytes))
        if not (length.isascii() and length.isdigit()):
            raise Refused(400, f"the content length '{clean(length, 40)}' is no number")
        n_bytes = int(length[:19])
        if n_bytes > limits.body_bytes:
            raise beyond(413, f"{length} bytes", limits.body_bytes, "body_bytes")
        return n_bytes

    async def _body(self, request: Request, most: int) -> bytes:
        """Return the body of a request, or raise Refused."""
        pieces, n_bytes, seconds = list[bytes](), 0, self._service.limits.deadline
        try:
            async with asyncio.timeout(seconds):
                async for piece in request.stream():
                    pieces.append(piece)
                    n_bytes += len(piece)
                    if n_bytes > most:
                        raise beyond(413, f"{n_bytes:,} bytes", most, "body_bytes")
        except TimeoutError:
            what = f"the body did not come within {seconds:g} s"
            raise Refused(408, what, limit="deadline") from None
        except ClientDisconnect:
            raise Refused(400, "the body ended before all of it came") from None
        return b"".join(pieces)

    async def _question(self, reader: RequestReader, body: bytes) -> Question:
        """Return what is asked, or raise Refused; large bodies are read one after the other."""
        room, seconds = self._service.room, self._service.limits.deadline
        if len(body) <= SMALL:
            return room.question(reader, body)
        until = time.monotonic() + seconds

        def read() -> Question:
            if time.monotonic() > until:
                raise too_late(seconds)
            return room.question(reader, body)

        return await self._service.bodies.do(read)

    async def models(self, _: Request) -> Response:
        """List the models."""
        return _json(Models(self._service.models))

    async def health(self, _: Request) -> Response:
        """Say that the process lives."""
        return _json(Health("ok"))

    async def ready(self, _: Request) -> Response:
        """Say whether requests are taken."""
        if self._service.stopping:
            raise Refused(503, "the service is stopping", retry=1)
        return _json(Health("ready"))

    async def metrics(self, _: Request) -> Response:
        """Return what was counted, for Prometheus."""
        return Response(self._service.metrics.text(), media_type=METRICS)

    async def openapi(self, _: Request) -> Response:
        """Describe all of this."""
        return _json(document(ENDPOINTS, self._service.models, self._service.limits))

    async def page(self, _: Request) -> Response:
        """Return a page to try it by hand."""
        policy = (  # what the page may run is its own script
            f"default-src 'none'; script-src {_digest('script')}; style-src {_digest('style')}; "
            "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
            "frame-ancestors 'none'"
        )
        headers = {"content-security-policy": policy, "referrer-policy": "no-referrer"}
        return Response(PAGE, headers=headers, media_type=HTML)


ENDPOINTS = (
    Endpoint("POST", "/predict", Answer, Handlers.predict),
    Endpoint("POST", "/models/{name}/predict", Answer, Handlers.predict),
    Endpoint("GET", "/models", Models, Handlers.models),
    Endpoint("GET", "/health", Health, Handlers.health),
    Endpoint("GET", "/ready", Health, Handlers.ready),
    Endpoint("GET", "/metrics", METRICS, Handlers.metrics),
    Endpoint("GET", "/openapi.json", JSON, Handlers.openapi),
    Endpoint("GET", "/", HTML, Handlers.page),
)


def app_of(service: Service, *, local: bool, hosts: tuple[str, ...] = ()) -> Starlette:
    """Return the ASGI application of a service."""
    handlers = Handlers(service)
    own = frozenset({*LOCAL, *(host.lower() for host in hosts)}) if local else None

    def route(one: Endpoint) -> Route:
        async def answered(request: Request) -> Response:
            begun = time.perf_counter()
            try:
                response = await one.handler(handlers, request)
            except Refused as error:
                response = refusal(error)
            except Exception as error:
                response = refusal(mistake(error))
            if one.answer is Answer:
                service.metrics.request_seconds.observe(time.perf_counter() - begun)
            return finished(one.path, response)

        return Route(one.path, answered, methods=[one.method])

    def finished(path: str, response: Response) -> Response:
        """Count an answer, and give it the headers that all have."""
        service.metrics.requests.labels(path, response.status_code).inc()
        response.headers.update(SAFE)
        if service.stopping:
            response.headers["connection"] = "close"
        return response

    async def failed(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        why = HTTPStatus(error.status_code).phrase.lower()
        what = Refusal(f"{why}: {clean(request.method, 20)} {clean(request.url.path)}")
        return finished("other", _json(what, error.status_code, dict(error.headers or {})))

    def refused(error: Refused) -> Response:
        return finished("other", refusal(error))

    app = Starlette(
        routes=[route(one) for one in ENDPOINTS], exception_handlers={HTTPException: failed},
        middleware=[Middleware(Gate, own, refused)],
    )  # fmt: skip
    app.router.redirect_slashes = False  # to wherever the request says that it is
    return app


class Gate:
    """Lets in requests that are meant for this service, and reads on behind those that are refused.

    A client that sends all of its request before it reads would lose the answer with the
    connection.
    """

    def __init__(
        self, app: ASGIApp, hosts: frozenset[str] | None, refused: Callable[[Refused], Response]
    ) -> None:
        self._app, self._hosts, self._refused = app, hosts, refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        request, answer = Request(scope), self._app
        # Nothing of a body is sent yet to whom waits for a word before (Expect: 100-continue).
        is_whole, is_sent, is_refused = False, "expect" not in request.headers, False

        async def received() -> Message:
            nonlocal is_whole, is_sent
            message = await receive()
            is_whole, is_sent = not message.get("more_body", False), True
            return message

        async def sent(message: Message) -> None:
            if message.get("status", 200) >= 400:
                n_bytes = 0
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(READ_ON_SECONDS):
                        while is_sent and not is_whole and n_bytes < READ_ON_BYTES:
                            n_bytes += len((await received()).get("body", b""))
                if is_refused or not is_whole:  # what follows may be anything
                    message["headers"].append(CLOSE)
            await send(message)

        try:
            self._check(request)
        except Refused as error:
            answer, is_refused = self._refused(error), True
        await answer(scope, received, sent)

    def _check(self, request: Request) -> None:
        """Refuse a request of which it is not sure where it ends, or who means it."""
        if {"content-length", "transfer-encoding"} <= {*request.headers}:
            raise Refused(400, "both a content length and a transfer encoding are given")
        if self._hosts is not None:
            check_meant(request, self._hosts)


def check_meant(request: Request, hosts: frozenset[str]) -> None:
    """Refuse a request that a web page of others sends to a service of this machine.

    A page can let a name of its own mean this machine (DNS rebinding): then it is in the Host
    header. It can send requests to other hosts, too: then its own host is in the Origin header.
    """
    host, origin = request.headers.get("host", ""), request.headers.get("origin")
    if _host(f"//{host}")[0] not in hosts:
        raise Refused(403, f"the host '{clean(host, 60)}' is not this one")
    if origin is not None and _host(origin)[1] != host.lower():
        raise Refused(403, f"a page of '{clean(origin, 60)}' may not ask")


def _host(url: str) -> tuple[str | None, str | None]:
    """Return the host of a URL without and with its port, None each without one."""
    try:
        parts = urlsplit(url)
        return parts.hostname, parts.netloc.lower() or None
    except ValueError:
        return None, None


def refusal(error: Refused) -> Response:
    """Return the answer to a request that is refused."""
    headers = {} if error.retry is None else {"retry-after": str(error.retry)}
    return _json(Refusal(error.reason, error.limit), error.status, headers)


def _json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(value), status, headers, JSON)


def _digest(tag: str) -> str:
    """Return the digest of what stands within a tag of the page, as a policy names it."""
    (text,) = re.findall(f"<{tag}>(.*?)</{tag}>", PAGE, flags=re.S)
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
