"""What is sent to a service and what it answers, as records, and both described as OpenAPI 3.1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec

from streammach.figures import Explanation
from streammach.serve.limits import ServiceLimits
from streammach.spec.types import Share

DEFAULT_K = 5


class PredictRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a request says beside its rows."""

    # how many labels each row gets; all if there are fewer
    k: Annotated[int, msgspec.Meta(ge=1)] = DEFAULT_K
    probabilities: bool = False  # whether scores are probabilities
    # the least probability of a label that is given; scores are probabilities then
    threshold: Share | None = None
    # labels that may be said alone, or may not be said; or a list of them for each row
    only: list[str | int | list[str | int]] | None = None
    never: list[str | int | list[str | int]] | None = None
    # how many features that raise the score of a label, and that lower it
    explain: Annotated[int, msgspec.Meta(ge=0)] = 0


class FeatureRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row of a model whose features have names."""

    # values by the names of the features, where `"color": "red"` is the feature `color=red` with
    # the value 1; names alone, each with the value 1; or, for a model of a matrix, a number for
    # each of its columns
    features: dict[str, float | str] | list[float | str]


class FeatureRows(PredictRequest, frozen=True):
    """A request to a model whose features have names."""

    rows: list[FeatureRow]


class FieldRows(PredictRequest, frozen=True):
    """A request to a model of a table."""

    # the fields of each row by the names of their columns; or the text itself, for a model that
    # reads one column of text
    rows: list[dict[str, Any] | str]


class RowPrediction(msgspec.Struct, frozen=True, omit_defaults=True):
    """The best labels of a row."""

    labels: list[int | str]  # the best first
    scores: list[float]  # their scores: what the model ranks by, or probabilities
    # features of the row that the model does not know, and fields that it does not read
    unknown: int
    titles: list[str] | None = None  # what the labels are called in words, if the model knows it
    # why each label has its score, by what the model ranks by; where it is asked for
    explanations: list[Explanation] | msgspec.UnsetType = msgspec.UNSET


class Answer(msgspec.Struct, frozen=True):
    """The predictions of a request."""

    model: str
    version: str  # the digest of what the model was made of
    predictions: list[RowPrediction]  # one for each row, in their order


class Refusal(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a request got no answer."""

    error: str  # a line
    limit: str | None = None  # the limit that was passed


class ModelColumn(msgspec.Struct, frozen=True):
    """A column that a model of a table reads."""

    name: str
    role: str


class About(msgspec.Struct, frozen=True):
    """A model that is served."""

    name: str
    version: str  # the digest of what it was made of
    classes: int  # how many it knows, of features too
    features: int
    scores: str  # what it ranks by
    rows: str  # what its rows are: `text`, `fields` or `features`
    columns: list[ModelColumn]  # of a table
    bytes: int  # memory that it takes


class Models(msgspec.Struct, frozen=True):
    """The models that are served."""

    models: list[About]


class Health(msgspec.Struct, frozen=True):
    """What a service says of itself: ``ok`` or ``ready``."""

    status: str


JSON, HTML = "application/json", "text/html; charset=utf-8"
METRICS = "text/plain; version=1.0.0; charset=utf-8"
VERSION = "1"  # of what is described here
PLACE = "#/components/schemas/{name}"
RECORDS = (FeatureRows, FieldRows, Answer, Models, Health, Refusal)


class Endpoint(NamedTuple):
    """Something that a service is asked for."""

    method: str
    path: str
    answer: type | str  # its record, or the type of its content
    handler: Callable[..., Any]  # a method that answers, which its docstring describes


def document(
    endpoints: Sequence[Endpoint], models: Sequence[About], limits: ServiceLimits
) -> dict[str, Any]:
    """Return the description; limits stand in the schemas of requests."""
    _, schemas = msgspec.json.schema_components(RECORDS, ref_template=PLACE)
    for record in (FeatureRows, FieldRows):
        fields = schemas[record.__name__]["properties"]
        fields["rows"]["maxItems"] = limits.rows_a_request
        fields["k"]["maximum"] = limits.k
    paths = {e.path: {e.method.lower(): _described(e, models)} for e in endpoints}
    info = {"title": "streammach", "version": VERSION, "description": "The best classes of rows."}
    return {"openapi": "3.1.0", "info": info, "paths": paths, "components": {"schemas": schemas}}


def _described(one: Endpoint, models: Sequence[About]) -> dict[str, Any]:
    """Return what is said of an endpoint."""
    seconds = {"description": "Seconds after which to ask again.", "schema": {"type": "integer"}}
    refused = {
        "description": "A request that gets no answer, and why.",
        "content": _content(Refusal), "headers": {"Retry-After": seconds},
    }  # fmt: skip
    answer = {"description": one.handler.__doc__, "content": _content(one.answer)}
    said: dict[str, Any] = {
        "summary": one.handler.__doc__, "responses": {"200": answer, "default": refused}
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
