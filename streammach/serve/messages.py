"""What is sent to a service and what it answers, as records: their JSON is checked by them."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

Label = int | str
DEFAULT_K = 5
Count = Annotated[int, msgspec.Meta(ge=1)]


class FeatureRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row of a model whose features have names.

    Attributes
    ----------
    features : dict of str to float or str, list of str, or list of float
        Values by the names of the features, where ``"color": "red"`` is the feature ``color=red``
        with the value 1; names alone, each with the value 1; or, for a model of a matrix, a number
        for each of its columns.
    """

    features: dict[str, float | str] | list[float | str]


class FeatureRows(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request to a model whose features have names.

    Attributes
    ----------
    rows : list of FeatureRow
        The rows.
    k : int
        How many labels each gets, 5 if nothing is said; all if there are fewer.
    probabilities : bool
        Whether scores are probabilities.
    """

    rows: list[FeatureRow]
    k: Count | msgspec.UnsetType = msgspec.UNSET
    probabilities: bool | msgspec.UnsetType = msgspec.UNSET


class FieldRows(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request to a model of a table.

    Attributes
    ----------
    rows : list of dict or str
        The fields of each row by the names of their columns; or the text itself, for a model that
        reads one column of text.
    k : int
        How many labels each gets, 5 if nothing is said; all if there are fewer.
    probabilities : bool
        Whether scores are probabilities.
    """

    rows: list[dict[str, Any] | str]
    k: Count | msgspec.UnsetType = msgspec.UNSET
    probabilities: bool | msgspec.UnsetType = msgspec.UNSET


class Prediction(msgspec.Struct, frozen=True):
    """The best labels of a row.

    Attributes
    ----------
    labels : list of int or str
        The best first.
    scores : list of float
        Their scores: what the model ranks by, or probabilities.
    unknown : int
        Features of the row that the model does not know, and fields that it does not read.
    """

    labels: list[Label]
    scores: list[float]
    unknown: int


class Answer(msgspec.Struct, frozen=True):
    """The predictions of a request.

    Attributes
    ----------
    model, version : str
        The model's name, and the digest of what it was made of.
    predictions : list of Prediction
        One for each row, in their order.
    """

    model: str
    version: str
    predictions: list[Prediction]


class Wrong(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a request got no answer.

    Attributes
    ----------
    error : str
        A line.
    limit : str or None
        The limit that was passed.
    """

    error: str
    limit: str | None = None


class Column(msgspec.Struct, frozen=True):
    """A column that a model of a table reads: its name, and what it is."""

    name: str
    role: str


class About(msgspec.Struct, frozen=True):
    """A model that is served.

    Attributes
    ----------
    name, version : str
        Its name, and the digest of what it was made of.
    classes, features : int
        How many it knows.
    scores : str
        What it ranks by.
    rows : str
        What its rows are: ``text``, ``fields`` or ``features``.
    columns : list of Column
        The columns that it reads, of a table.
    bytes : int
        Memory that it takes.
    """

    name: str
    version: str
    classes: int
    features: int
    scores: str
    rows: str
    columns: list[Column]
    bytes: int


class Models(msgspec.Struct, frozen=True):
    """The models that are served."""

    models: list[About]


class Reloaded(msgspec.Struct, frozen=True):
    """A model that was loaded again: its version, and the one before."""

    model: str
    version: str
    former: str


class Health(msgspec.Struct, frozen=True):
    """What a service says of itself: ``ok``, ``ready`` or ``stopping``."""

    status: str
