"""The rows of requests: JSON that is checked, and the memory that it may take."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from streammach.frontends.serve.messages import MAX_FEATURES, FeatureRow, PredictRequest, Refused
from streammach.inputs.tables.values import is_utf8
from streammach.model.model import Model
from streammach.prediction.explain import LINES
from streammach.prediction.explain import WORK_BYTES as EXPLAINING_BYTES
from streammach.system.linux import give_back
from streammach.system.machine import size_text

# Bytes that requests may take together, at least; more where models leave more.
MIN_REQUEST_BYTES = 160_000_000
LARGE = 96_000_000  # bytes that are given back to the system when they are free
REQUESTS = msgspec.json.Decoder(PredictRequest)
LIMIT = re.compile(r"<= \d+ - at `\$\.(\w+)`")  # in what msgspec says
# Bytes of what a byte of a body is read into, and of the work on that, at most: `"a":1,` becomes a
# feature of 511 bytes, the three bytes of U+FDFA become 18 characters of 16 bytes each.
BODY_FACTOR = 96
MAX_ROW = 2_000_000  # bytes of the JSON of a row
EXPLAINED_BYTES = 3500  # of a feature that explains a label, with its places
ANSWER_BYTES = 130  # of a label that is answered: its id, its score, both as objects and in JSON


def decode(decoder: msgspec.json.Decoder[Any], text: bytes | msgspec.Raw, what: str) -> Any:
    """Return what a JSON text says, or raise Refused, whose reason begins with `what`."""
    try:
        return decoder.decode(text)
    except msgspec.ValidationError as error:
        limit = LIMIT.search(str(error))
        raise Refused(422, f"{what}: {error}", limit=limit and limit[1]) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = error if is_utf8(bytes(text)) else "it is not UTF-8"
        raise Refused(400, f"{what}: {reason}") from None


def read_request(body: bytes, max_rows: int) -> PredictRequest:
    """Return a request, or raise Refused."""
    request: PredictRequest = decode(REQUESTS, body, 'a request is {"rows": [ROW, ...]}')
    if len(request.rows) > max_rows:
        raise Refused.above("rows", max_rows, f"{len(request.rows):,} rows")
    return request


def max_answer_bytes(request: PredictRequest) -> int:
    """Return the most bytes of an answer, and of the work on its explanations."""
    n = len(request.rows) * request.k
    if not request.explain:
        return ANSWER_BYTES * n
    each = ANSWER_BYTES + EXPLAINED_BYTES * (2 * request.explain + len(LINES))
    return each * n + EXPLAINING_BYTES


class RequestMemory:
    """The memory that requests share; one event loop lends it."""

    def __init__(self) -> None:
        self.most, self.used = MIN_REQUEST_BYTES, 0
        self.reserved = 0  # bytes of a model that is loaded again

    @contextmanager
    def lend(self, n_bytes: int) -> Iterator[None]:
        """Lend bytes to a request for as long as a block runs, or raise Refused."""
        if self.used + n_bytes > max(self.most - self.reserved, MIN_REQUEST_BYTES):
            fits, used = n_bytes <= self.most, f"{size_text(self.used)} of {size_text(self.most)}"
            what = f"the request may take {size_text(n_bytes)} of memory, others take {used}"
            reason = f"{what}: send fewer rows at a time, or serve with more --memory"
            raise Refused(503 if fits else 413, reason, limit="memory", retry=1 if fits else None)
        self.used += n_bytes
        try:
            yield
        finally:
            self.used -= n_bytes
            if n_bytes > LARGE:
                give_back()


class RequestReader:
    """Reads the rows of requests to a model."""

    def __init__(self, model: Model) -> None:
        recipe = model.recipe
        self._columns = () if recipe is None else tuple(column.name for column in recipe.columns)
        texts = () if recipe is None else recipe.texts
        self._text = texts[0] if len(texts) == 1 else None  # the column of a row that is a string
        self._places = feature_of_columns(model) if recipe is None else []
        others = () if recipe is None else (*recipe.beside, *recipe.ignored)
        self._known = {*self._columns, *others}
        # One of these a row has. A cell that is a string is the feature ``column=cell``.
        self._expected = {*self._columns, *(name.partition("=")[0] for name in self._places)}
        rows: Any = FeatureRow if recipe is None else dict[str, Any] | str
        self._decoder = msgspec.json.Decoder[Any](rows)

    def read(self, number: int, raw: msgspec.Raw) -> tuple[Mapping[str, Any], int]:
        """Return a row by feature or column, and how many fields are not read; or raise Refused."""
        what, n_bytes = f"row {number:,}", memoryview(raw).nbytes
        if n_bytes > MAX_ROW:
            raise Refused.above("row_bytes", MAX_ROW, f"{what} has {n_bytes:,} bytes", 422)
        row, values = decode(self._decoder, raw, what), dict[str, Any]()
        if isinstance(row, FeatureRow):
            features, unread = row.features, 0
            values = features if isinstance(features, dict) else self._name(what, features)
            columns = [name.partition("=")[0] for name in values]
        else:
            if isinstance(row, str) and self._text is None:
                raise Refused(422, f"{what} is a string: the model reads {self._columns}")
            row = {self._text: row} if isinstance(row, str) else row
            values, columns = {name: row.get(name) for name in self._columns}, [*row]
            unread = len({*columns} - self._known)
        if columns and self._expected and self._expected.isdisjoint(columns):
            raise Refused(422, f"{what} has no column of the model, but {', '.join(columns)}")
        return values, unread

    def _name(self, what: str, features: list[float | str]) -> dict[str, Any]:
        """Return names, or a number for each column, as values by feature; or raise Refused."""
        kinds = {*map(type, features)}
        if kinds <= {str}:
            return dict(Counter(features))  # type: ignore[arg-type]
        if str in kinds or len(features) != len(self._places):
            own = f"names or {len(self._places):,} numbers" if self._places else "names"
            raise Refused(422, f"{what} lists {len(features):,} features: the model reads {own}")
        return {name: x for name, x in zip(self._places, features, strict=True) if x and name}


def feature_of_columns(model: Model) -> list[str]:
    """Return the feature of each column of the matrix that was trained on, none without one."""
    n = model.columns.n_columns
    if not 0 < n <= MAX_FEATURES or model.features.kind == "bytes":
        return []
    ids = model.columns.ids()
    if ids is None:
        return [str(i) for i in range(n)]
    return [model.features.raw(i).decode() if i >= 0 else "" for i in ids.tolist()]
