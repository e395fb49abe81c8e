"""What a service can be asked, and its description for programs: OpenAPI 3.1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from streammach.serve.limits import ServiceLimits
from streammach.serve.messages import (
    DEFAULT_K,
    About,
    Answer,
    FeatureRows,
    FieldRows,
    Health,
    Models,
    Refusal,
    Reloaded,
)

JSON, HTML = "application/json", "text/html; charset=utf-8"
METRICS = "text/plain; version=1.0.0; charset=utf-8"
VERSION = "1"  # of what is described here
PLACE = "#/components/schemas/{name}"
RECORDS = (FeatureRows, FieldRows, Answer, Models, Reloaded, Health, Refusal)
Handler = TypeVar("Handler", bound=Callable[..., Any])


@dataclass(frozen=True)
class Endpoint:
    """Something that a service is asked for."""

    method: str
    path: str
    answer: type | str  # its record, or the type of its content
    handler: str  # the name of the method that answers
    summary: str


ENDPOINTS: list[Endpoint] = []


def endpoint(method: str, path: str, answer: type | str) -> Callable[[Handler], Handler]:
    """Let a method answer requests to a path; its docstring describes it."""

    def register(handler: Handler) -> Handler:
        summary = handler.__doc__ or ""
        ENDPOINTS.append(Endpoint(method, path, answer, handler.__name__, summary))
        return handler

    return register


def document(models: Sequence[About], limits: ServiceLimits) -> dict[str, Any]:
    """Return the description; limits stand in the schemas of requests."""
    _, schemas = msgspec.json.schema_components(RECORDS, ref_template=PLACE)
    for record in (FeatureRows, FieldRows):
        fields = schemas[record.__name__]["properties"]
        fields["rows"]["maxItems"] = limits.rows_a_request
        fields["k"] |= {"maximum": limits.k, "default": DEFAULT_K}
        fields["probabilities"]["default"] = False
    paths = {e.path: {e.method.lower(): _described(e, models)} for e in ENDPOINTS}
    info = {"title": "streammach", "version": VERSION, "description": "The best classes of rows."}
    return {"openapi": "3.1.0", "info": info, "paths": paths, "components": {"schemas": schemas}}


def _described(one: Endpoint, models: Sequence[About]) -> dict[str, Any]:
    """Return what is said of an endpoint."""
    seconds = {"description": "Seconds after which to ask again.", "schema": {"type": "integer"}}
    refused = {
        "description": "A request that gets no answer, and why.",
        "content": _content(Refusal), "headers": {"Retry-After": seconds},
    }  # fmt: skip
    answer = {"description": one.summary, "content": _content(one.answer)}
    said: dict[str, Any] = {
        "summary": one.summary, "responses": {"200": answer, "default": refused}
    }  # fmt: skip
    if "{name}" in one.path:
        names = {"type": "string", "enum": [model.name for model in models]}
        said["parameters"] = [{"name": "name", "in": "path", "required": True, "schema": names}]
    if one.answer is Answer:
        kinds = {FeatureRows if model.rows == "features" else FieldRows for model in models}
        body = {"anyOf": [_schema(kind) for kind in RECORDS if kind in kinds]}
        said["requestBody"] = {"required": True, "content": {JSON: {"schema": body}}}
    return said


def _content(answer: type | str) -> dict[str, Any]:
    return {answer: {}} if isinstance(answer, str) else {JSON: {"schema": _schema(answer)}}


def _schema(record: type) -> dict[str, str]:
    return {"$ref": PLACE.format(name=record.__name__)}
