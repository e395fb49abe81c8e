"""What a service takes, answers and refuses, as records, and their description as OpenAPI 3.1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from streammach.options.figures import Explanation
from streammach.options.types import Share
from streammach.rows.names import MAX_NAME
from streammach.system.errors import StreammachError, clean

MAX_LABELS = 200  # of a row
MAX_FEATURES = 100_000  # of a row, those that the model does not know among them
MAX_FLOAT32 = 3.4028234663852886e38
JSON = "application/json"
Labels = list[str | int | list[str | int]]  # or a list of them for each row
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME)]
Number = Annotated[float, msgspec.Meta(ge=-MAX_FLOAT32, le=MAX_FLOAT32)]
Few = msgspec.Meta(max_length=MAX_FEATURES)


class PredictRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rows, and what is asked of them."""

    # of a model of a table the fields of each row by the names of their columns, or the text itself
    # where it reads one column of text; otherwise a FeatureRow
    rows: list[msgspec.Raw]
    # how many labels each row gets; all if there are fewer
    k: Annotated[int, msgspec.Meta(ge=1, le=MAX_LABELS)] = 5
    probabilities: bool = False  # whether scores are probabilities
    # the least probability of a label that is given; scores are probabilities then
    threshold: Share | None = None
    only: Labels | None = None  # labels that may be said alone
    never: Labels | None = None  # labels that may not be said
    # how many features that raise the score of a label, and that lower it
    explain: Annotated[int, msgspec.Meta(ge=0)] = 0


class FeatureRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row of a model whose features have names."""

    # numbers by name, where `"color": "red"` is the feature `color=red`, with the value 1; names
    # alone; or, for a model of a matrix, a number for each of its columns
    features: Annotated[dict[Name, Number | Name], Few] | Annotated[list[Number | Name], Few]


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

    def reads_rows_of(self, former: About) -> bool:
        """Return whether it has the columns of another model, and rows of the same kind."""
        names, others = ({column.name for column in one.columns} for one in (self, former))
        return names >= others and self.rows == former.rows


class Refused(StreammachError):
    """A request that gets no answer, and why: a line; `retry` is in seconds."""

    def __init__(
        self, status: int, reason: str, *, limit: str | None = None, retry: int | None = None
    ) -> None:
        super().__init__(clean(reason, 300))  # characters
        self.status, self.limit, self.retry = status, limit, retry

    @classmethod
    def above(cls, limit: str, most: int, found: str, status: int = 413) -> Refused:
        """Return the refusal of a request that is above a limit."""
        return cls(status, f"{found}, {most:,} are taken at most", limit=limit)


def describe_api(names: Sequence[str], max_rows: int) -> dict[str, Any]:
    """Return the OpenAPI description of requests for predictions."""
    records, template = (PredictRequest, FeatureRow, Answer, Refusal), "#/components/schemas/{name}"
    places, schemas = msgspec.json.schema_components(records, ref_template=template)
    request, row, answer, refusal = ({JSON: {"schema": place}} for place in places)
    rows = schemas["PredictRequest"]["properties"]["rows"]
    rows["items"] = {"anyOf": [row[JSON]["schema"], {"type": "object"}, {"type": "string"}]}
    rows["maxItems"] = max_rows
    answers = {
        "200": {"description": "The best labels of rows.", "content": answer},
        "default": {"description": "Why there is no answer.", "content": refusal},
    }
    post = {"requestBody": {"required": True, "content": request}, "responses": answers}
    name = {"name": "name", "in": "path", "required": True, "schema": {"enum": names}}
    named = {"post": post, "parameters": [name]}
    return {
        "openapi": "3.1.0", "info": {"title": "streammach", "version": "1"},
        "paths": {"/predict": {"post": post}, "/models/{name}/predict": named},
        "components": {"schemas": schemas},
    }  # fmt: skip
