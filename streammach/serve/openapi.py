"""The description of a service for programs: OpenAPI 3.1, its schemas those of the records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from streammach.serve.limits import Limits
from streammach.serve.messages import (
    About,
    Answer,
    FeatureRows,
    FieldRows,
    Health,
    Models,
    Reloaded,
    Wrong,
)
from streammach.serve.metrics import KIND

JSON = "application/json"
VERSION = "1"  # of what is described here
PLACE = "#/components/schemas/{name}"
RECORDS = (FeatureRows, FieldRows, Answer, Models, Reloaded, Health, Wrong)
REFUSALS = {
    400: "The body is no JSON, or an object in it has a key twice.",
    403: "It comes from a web page of another host, or not from this machine.",
    404: "There is no such model.",
    408: "The body did not come in time.",
    409: "The model was not loaded again, and the former one goes on.",
    413: "The body, or its number of rows, is larger than a limit.",
    415: "The body is compressed.",
    422: "A row cannot be read, or passes a limit.",
    429: "Too many rows wait: send it again later.",
    500: "A mistake of streammach's.",
    503: "There was no answer in time, or the service is stopping.",
}
ASKED = (400, 403, 404, 408, 413, 415, 422, 429, 500, 503)


def document(models: Sequence[About], limits: Limits) -> dict[str, Any]:
    """Return the description."""
    (_, schemas) = msgspec.json.schema_components(RECORDS, ref_template=PLACE)
    _limited(schemas, limits)
    kinds = {FieldRows if m.rows != "features" else FeatureRows for m in models}
    body = {"anyOf": [_named(kind) for kind in sorted(kinds, key=lambda kind: kind.__name__)]}
    name = {
        "name": "name", "in": "path", "required": True,
        "schema": {"type": "string", "enum": [model.name for model in models]},
    }  # fmt: skip
    predict = {
        "requestBody": {"required": True, "content": {JSON: {"schema": body}}},
        "responses": _responses(Answer, ASKED),
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "streammach", "version": VERSION,
            "description": "The best classes of rows.",
        },
        "paths": {
            "/predict": {"post": {"summary": "Predict rows by the only model.", **predict}},
            "/models/{name}/predict": {
                "post": {"summary": "Predict rows by a model.", "parameters": [name], **predict}
            },
            "/models/{name}/reload": {
                "post": {
                    "summary": "Load a model again, for programs of the same machine.",
                    "parameters": [name], "responses": _responses(Reloaded, (403, 404, 409, 500)),
                }
            },
            "/models": _get("List the models.", _responses(Models, (403, 500))),
            "/health": _get("Say that the process lives.", _responses(Health, (403, 500))),
            "/ready": _get("Say whether requests are taken.", _responses(Health, (403, 500, 503))),
            "/metrics": _get("What was counted, for Prometheus.", _text(KIND)),
            "/openapi.json": _get("This description.", _text(JSON)),
            "/": _get("A page to try it by hand.", _text("text/html")),
        },
        "components": {"schemas": schemas},
    }  # fmt: skip


def _limited(schemas: Mapping[str, Any], limits: Limits) -> None:
    """Write the limits into the schemas of requests."""
    for record in (FeatureRows, FieldRows):
        fields = schemas[record.__name__]["properties"]
        fields["rows"]["maxItems"] = limits.rows_a_request
        fields["k"] |= {"maximum": limits.k, "default": 5}
        fields["probabilities"]["default"] = False


def _named(record: type) -> dict[str, str]:
    return {"$ref": PLACE.format(name=record.__name__)}


def _responses(record: type, refusals: Sequence[int]) -> dict[str, Any]:
    said = {"description": (record.__doc__ or "").splitlines()[0]}
    found: dict[str, Any] = {"200": {**said, "content": {JSON: {"schema": _named(record)}}}}
    for status in refusals:
        content = {JSON: {"schema": _named(Wrong)}}
        found[str(status)] = {"description": REFUSALS[status], "content": content}
        if status in (429, 503):
            seconds = {"description": "Seconds.", "schema": {"type": "integer"}}
            found[str(status)]["headers"] = {"Retry-After": seconds}
    return found


def _text(kind: str) -> dict[str, Any]:
    return {"200": {"description": "It.", "content": {kind: {}}}}


def _get(summary: str, responses: Mapping[str, Any]) -> dict[str, Any]:
    return {"get": {"summary": summary, "responses": responses}}
