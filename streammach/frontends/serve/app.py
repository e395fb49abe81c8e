"""The requests that a service answers, over HTTP."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from streammach.frontends.serve import request_rows
from streammach.frontends.serve.messages import JSON, Refusal, Refused, describe_api
from streammach.frontends.serve.request_rows import RequestMemory, read_request
from streammach.frontends.serve.service import Service
from streammach.system.errors import clean
from streammach.system.progress import tell

PAGE = Path(__file__).parent / "page"
MAX_BODY = 4_000_000  # bytes of the body of a request
LOCAL = ("localhost", "127.0.0.1", "[::1]")
HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^:]+)(?::\d*)?")  # of a Host header, and its port
SAFE = {"x-content-type-options": "nosniff", "cache-control": "no-store"}


async def predict(service: Service, request: Request) -> Response:
    """Predict rows."""
    with service.metrics.request_seconds.time():
        queue, memory = service.queue(request.path_params.get("name")), service.memory
        body = await read_body(request, memory, service.options.deadline)
        with memory.lend(request_rows.BODY_FACTOR * len(body)):
            asked = read_request(body, min(service.options.max_rows, service.options.queue))
            with memory.lend(request_rows.max_answer_bytes(asked)):
                answer = await queue.predict(asked)
                return _json(answer, headers={"x-model-version": answer.version})


async def read_body(request: Request, memory: RequestMemory, seconds: float) -> bytes:
    """Return the body of a request, or raise Refused."""
    if request.headers.get("content-encoding", "identity") != "identity":
        raise Refused(415, "the body is compressed: plain JSON is expected")
    body, n_bytes = bytearray(), 0
    most = min(int(request.headers.get("content-length", MAX_BODY)), MAX_BODY)
    try:
        with memory.lend(2 * most):  # in pieces, and whole
            async with asyncio.timeout(seconds):
                async for piece in request.stream():
                    n_bytes += len(piece)
                    # What is too much is dropped: some clients send all of it before they read.
                    body += piece if n_bytes <= MAX_BODY else b""
            if n_bytes > MAX_BODY:
                raise Refused.above("body_bytes", MAX_BODY, f"{n_bytes:,} bytes")
            return bytes(body)
    except TimeoutError:
        raise Refused(408, f"no whole body within {seconds:g} s", limit="deadline") from None
    except ClientDisconnect:
        raise Refused(400, "the body ended before all of it came") from None


def documents(service: Service) -> dict[str, Callable[[], Any]]:
    """Return what answers GET requests, by path: a record or a response."""

    def ready() -> Any:
        if service.stopping:
            raise Refused(503, "the service is stopping", retry=1)
        return {"status": "ready"}

    return {
        "/models": lambda: {"models": service.models},
        "/health": lambda: {"status": "ok"},
        "/ready": ready,
        "/metrics": lambda: Response(
            generate_latest(service.metrics.registry), media_type=CONTENT_TYPE_LATEST
        ),
        "/openapi.json": lambda: describe_api([*service.queues], service.options.max_rows),
    }


def build_app(service: Service, hosts: tuple[str, ...] | None) -> Starlette:
    """Return the ASGI application of a service, which answers requests for hosts, or for all."""

    def finish(path: str, answer: Any) -> Response:
        """Count an answer, and give it the headers that all have."""
        response = answer if isinstance(answer, Response) else _json(answer)
        service.metrics.requests.labels(path, response.status_code).inc()
        response.headers.update(SAFE)
        if service.stopping or response.status_code == 400:  # what follows may be anything
            response.headers["connection"] = "close"
        return response

    def route(path: str, document: Callable[[], Any] | None = None) -> Route:
        async def respond(request: Request) -> Response:
            try:
                check_meant(request, hosts)
                answer = document() if document else await predict(service, request)
            except Exception as error:
                answer = refuse(error)
            return finish(path, answer)

        return Route(path, respond, methods=["GET" if document else "POST"])

    async def refuse_path(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        what = f"{error.detail.lower()}: {clean(request.method, 20)} {clean(request.url.path)}"
        return finish("other", refuse(Refused(error.status_code, what)))

    routes = [
        route("/predict"), route("/models/{name}/predict"),
        *(route(path, document) for path, document in documents(service).items()),
        Mount("/", StaticFiles(directory=PAGE, html=True)),
    ]  # fmt: skip
    app = Starlette(routes=routes, exception_handlers={HTTPException: refuse_path})
    app.router.redirect_slashes = False  # to wherever the request says that it is
    return app


def check_meant(request: Request, hosts: tuple[str, ...] | None) -> None:
    """Refuse a request whose end is not sure, or that a web page of others sends to this machine.

    A page can let a name of its own mean this machine (DNS rebinding): then it is in the Host
    header. It can send requests to other hosts, too: then its own host is in the Origin header.
    """
    if {"content-length", "transfer-encoding"} <= {*request.headers}:
        raise Refused(400, "both a content length and a transfer encoding are given")
    host, origin = request.headers.get("host", "").lower(), request.headers.get("origin")
    name = HOST.fullmatch(host)
    if hosts is not None and (name is None or name[1] not in hosts):
        raise Refused(403, f"the host '{clean(host, 60)}' is not this one")
    if hosts is not None and origin is not None and origin.partition("://")[2] != host:
        raise Refused(403, f"a page of '{clean(origin, 60)}' may not ask")


def refuse(error: Exception) -> Response:
    """Return the answer to a request that is refused; report a mistake of ours."""
    if not isinstance(error, Refused):
        name = type(error).__name__
        tell(f"streammach: error: {name}: {clean(error, 200)}")
        error = Refused(500, f"a mistake of streammach's: {name}")
    headers = {} if error.retry is None else {"retry-after": str(error.retry)}
    return _json(Refusal(error.message, error.limit), error.status, headers)


def _json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(value), status, headers, JSON)
