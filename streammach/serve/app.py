"""The requests that a service answers, over HTTP."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Any, TypeVar, cast

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from streammach.errors import clean
from streammach.progress import tell
from streammach.serve.batches import too_late
from streammach.serve.gate import Gate
from streammach.serve.limits import Refused, beyond
from streammach.serve.messages import Answer, Health, Models, Wrong
from streammach.serve.metrics import KIND
from streammach.serve.openapi import document
from streammach.serve.page import HEADERS, PAGE
from streammach.serve.reading import Question, Reader
from streammach.serve.room import SMALL
from streammach.serve.service import Service

JSON = "application/json"
VERSION = "x-model-version"
FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip")
Handler = Callable[[Request], Awaitable[Response]]
T = TypeVar("T")


class Handlers:
    """Answers requests."""

    def __init__(self, service: Service, *, local: bool) -> None:
        self._service, self._local, self._held = service, local, 0
        self._turn = threading.Lock()  # of large bodies: one is read at a time

    async def predict(self, request: Request) -> Response:
        """Predict rows."""
        lane = self._service.lane(request.path_params.get("name"))
        n_bytes = self._announced(request)
        self._service.room.take(2 * n_bytes)  # in pieces, and whole
        self._held += n_bytes
        try:
            body = await self._body(request, n_bytes)
            served = lane.served
            question = await self._question(served.reader, body)
            del body
            if question.rows:
                answer = await lane.ask(question, served.reader.kind)
            else:
                answer = Answer(served.name, served.version, [])
        finally:
            self._held -= n_bytes
            self._service.room.give(2 * n_bytes)
        return _json(answer, headers={VERSION: answer.version})

    def _announced(self, request: Request) -> int:
        """Return the bytes that a body may take, or raise Refused."""
        limits = self._service.limits
        if request.headers.get("content-encoding", "identity") != "identity":
            raise Refused(415, "the body is compressed: plain JSON is expected")
        length = request.headers.get("content-length")
        n_bytes = limits.body_bytes if length is None else _count(length)
        if n_bytes > limits.body_bytes:
            raise beyond(413, f"{length} bytes", limits.body_bytes, "body_bytes")
        if self._held + n_bytes > limits.held_bytes:
            what = f"{self._held + n_bytes:,} bytes of requests"
            refused = beyond(429, what, limits.held_bytes, "held_bytes")
            refused.retry = 1
            raise refused
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

    async def _question(self, reader: Reader, body: bytes) -> Question:
        """Return what is asked, or raise Refused; a large body is read by a thread, in its turn."""
        room, seconds = self._service.room, self._service.limits.deadline
        if len(body) <= SMALL:
            return room.question(reader, body)
        until = time.monotonic() + seconds

        def read() -> Question:
            with self._turn:
                if time.monotonic() > until:
                    raise too_late(seconds)
                return room.question(reader, body)

        return await _apart(read)

    async def reload(self, request: Request) -> Response:
        """Load a model again."""
        if not self._local or any(name in request.headers for name in FORWARDED):
            raise Refused(403, "models are loaded again for programs of this machine alone")
        name = request.path_params["name"]
        return _json(await _apart(lambda: self._service.reload(name)))

    async def models(self, request: Request) -> Response:
        """List the models."""
        return _json(Models(self._service.models))

    async def health(self, request: Request) -> Response:
        """Say that the process lives."""
        return _json(Health("ok"))

    async def ready(self, request: Request) -> Response:
        """Say whether requests are taken."""
        if self._service.stopping:
            raise Refused(503, "the service is stopping", retry=1)
        return _json(Health("ready"))

    async def metrics(self, request: Request) -> Response:
        """Return what was counted."""
        return Response(self._service.text(), media_type=KIND)

    async def openapi(self, request: Request) -> Response:
        """Describe all of this."""
        return _json(document(self._service.models, self._service.limits))

    async def page(self, request: Request) -> Response:
        """Return a page to try it by hand."""
        return Response(PAGE, media_type="text/html; charset=utf-8", headers=HEADERS)


def app_of(service: Service, *, local: bool, hosts: tuple[str, ...] = ()) -> Starlette:
    """Return the ASGI application of a service."""
    handlers = Handlers(service, local=local)

    def route(path: str, handler: Handler, method: str = "GET") -> Route:
        async def answered(request: Request) -> Response:
            return await _answered(service, path, handler, request)

        return Route(path, answered, methods=[method], name=handler.__name__)

    async def failed(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        service.metrics.request("other", error.status_code, None)
        why = HTTPStatus(error.status_code).phrase.lower()
        return _json(Wrong(f"{why}: {clean(request.method, 20)} {clean(request.url.path)}"),
                     error.status_code, dict(error.headers or {}))  # fmt: skip

    return Starlette(
        routes=[
            route("/predict", handlers.predict, "POST"),
            route("/models/{name}/predict", handlers.predict, "POST"),
            route("/models/{name}/reload", handlers.reload, "POST"),
            route("/models", handlers.models),
            route("/health", handlers.health),
            route("/ready", handlers.ready),
            route("/metrics", handlers.metrics),
            route("/openapi.json", handlers.openapi),
            route("/", handlers.page),
        ],
        middleware=[Middleware(Gate, service=service, local=local, hosts=hosts)],
        exception_handlers={HTTPException: failed},
    )


async def _answered(service: Service, path: str, handler: Handler, request: Request) -> Response:
    """Return what a handler answers, or in a line why it does not; count it."""
    begun = time.perf_counter()
    try:
        response = await handler(request)
    except Refused as error:
        response = refusal(error)
    except Exception as error:  # a mistake of ours, that is not the end of the service
        tell(f"streammach: error: {type(error).__name__}: {clean(error, 200)}")
        response = refusal(Refused(500, f"a mistake of streammach's: {type(error).__name__}"))
    took = time.perf_counter() - begun if handler.__name__ == "predict" else None
    service.metrics.request(path, response.status_code, took)
    return response


async def _apart(work: Callable[[], T]) -> T:
    """Return what a function returns, which a thread runs that no end of the process waits for."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[tuple[T | None, Exception | None]] = loop.create_future()

    def told(result: T | None, error: Exception | None) -> None:
        if not future.done():
            future.set_result((result, error))

    def run() -> None:
        found: tuple[T | None, Exception | None]
        try:
            found = (work(), None)
        except Exception as error:  # raised again where it is waited for
            found = (None, error)
        with suppress(RuntimeError):  # closed: nobody waits
            loop.call_soon_threadsafe(told, *found)

    threading.Thread(target=run, daemon=True).start()
    result, error = await future
    if error is not None:
        raise error
    return cast("T", result)


def refusal(error: Refused) -> Response:
    """Return the answer to a request that is refused."""
    headers = {} if error.retry is None else {"retry-after": str(error.retry)}
    return _json(Wrong(error.reason, error.limit), error.status, headers)


def _json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(value), status, headers, JSON)


def _count(length: str) -> int:
    if not (length.isascii() and length.isdigit()):
        raise Refused(400, f"the content length '{clean(length, 40)}' is no number")
    return int(length[:19])
