"""What is sent to a service and what it answers, as records: their JSON is checked by them."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

DEFAULT_K = 5


class PredictRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a request says beside its rows."""

    # how many labels each row gets, 5 if nothing is said; all if there are fewer
    k: Annotated[int, msgspec.Meta(ge=1)] | msgspec.UnsetType = msgspec.UNSET
    probabilities: bool | msgspec.UnsetType = msgspec.UNSET  # whether scores are probabilities


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


class RowPrediction(msgspec.Struct, frozen=True):
    """The best labels of a row."""

    labels: list[int | str]  # the best first
    scores: list[float]  # their scores: what the model ranks by, or probabilities
    # features of the row that the model does not know, and fields that it does not read
    unknown: int


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


class Reloaded(msgspec.Struct, frozen=True):
    """A model that was loaded again: its version, and the one before."""

    model: str
    version: str
    former: str


class Health(msgspec.Struct, frozen=True):
    """What a service says of itself: ``ok`` or ``ready``."""

    status: str
