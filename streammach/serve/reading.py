"""Bodies of requests into rows: strict JSON, and what is wrong with it in a line."""

from __future__ import annotations

import json
import math
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import UNSET

from streammach.errors import clean
from streammach.prediction.calibrate import CANDIDATES
from streammach.rows.names import MAX_NAME
from streammach.serve.limits import Limits, Refused, beyond
from streammach.serve.messages import DEFAULT_K, FeatureRow, FeatureRows, FieldRows

MAX_FLOAT32 = 3.4028235e38
VALUE_BYTES = 330  # of a feature with a name, on its way to the model's ids
CHARACTER_BYTES = 16  # of a character, and of what it becomes
PIECE = 1 << 12  # characters of a text that are brought into one form at a time
MOST_K = 1 << 30  # that is said in full
MOST_DEPTH = 3  # of a cell: a list of pairs of a name and a value
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Question:
    """A request that was read."""

    rows: list[Row]  # values by feature, or cells by column
    unknown: list[int]  # what of each row no model of the kind can know
    sizes: list[int]  # bytes that the work on each row takes at most
    k: int  # how many labels each row gets
    probabilities: bool  # whether scores are probabilities

    @property
    def together(self) -> tuple[bool, int]:
        """What questions that are predicted together have in common."""
        # More classes than a probability is made of otherwise would change those of all.
        return self.probabilities, self.k if self.probabilities and self.k > CANDIDATES else 0


class Reader:
    """Reads the bodies of requests to a model."""

    def __init__(
        self,
        columns: Sequence[str] | None,
        *,
        text: str | None = None,
        places: Sequence[str] | None = None,
        others: Sequence[str] = (),
        limits: Limits,
    ) -> None:
        self.columns = None if columns is None else tuple(columns)
        # What decides how a row is read: rows of one kind are no rows of another one.
        self.kind = (self.columns, text, None if places is None else tuple(places))
        self._known = frozenset({*(columns or ()), *others})
        # A cell that is a string is the feature ``column=cell``.
        self._read = frozenset({*(columns or ()), *(n.partition("=")[0] for n in places or ())})
        self.text, self.places, self._limits = text, places, limits
        kind = FeatureRows if columns is None else FieldRows
        self._decode: Callable[[bytes], Any] = msgspec.json.Decoder(kind).decode

    def question(self, body: bytes) -> Question:
        """Return what is asked, or raise Refused."""
        if not body:
            raise Refused(400, "the body is empty: a JSON object with rows is expected")
        if len(body) > self._limits.body_bytes:
            raise beyond(413, f"{len(body):,} bytes", self._limits.body_bytes, "body_bytes")
        try:
            found = self._decoded(body)
            question, keys = self._question(found)
            # A key is followed by a colon: where there are no more of these, none is there twice.
            if body.count(b":") != keys:
                del found, question  # not both are in memory
                check_repeated(body)
                found = self._decoded(body)
                question = self._question(found)[0]
        except RecursionError:
            raise Refused(400, "the JSON is nested too deeply") from None
        for number, row in enumerate(found.rows if self._read else ()):
            self._check_columns(number, getattr(row, "features", row))
        return question

    def _question(self, found: Any) -> tuple[Question, int]:
        """Return what is asked, and how many keys were read, or raise Refused."""
        k = DEFAULT_K if found.k is UNSET else found.k
        limits, n = self._limits, len(found.rows)
        if k > limits.k:
            said = f"more than {MOST_K:,}" if k > MOST_K else f"{k:,}"
            raise beyond(422, f"k is {said}", limits.k, "k")
        if n > limits.rows_a_request:
            raise beyond(413, f"{n:,} rows", limits.rows_a_request, "rows")
        rows, unknown, sizes, keys = list[Row](), list[int](), list[int](), 1
        keys += (found.k is not UNSET) + (found.probabilities is not UNSET)
        for number, row in enumerate(found.rows):
            read = self._features(number, row) if self.columns is None else self._cells(number, row)
            rows.append(read[0])
            unknown.append(read[1])
            sizes.append(read[2])
            keys += read[3]
        return Question(rows, unknown, sizes, k, found.probabilities is True), keys

    def _decoded(self, body: bytes) -> Any:
        try:
            return self._decode(body)
        except UnicodeDecodeError:
            raise Refused(400, "the JSON is not UTF-8") from None
        except msgspec.ValidationError as error:
            raise Refused(422, str(error)) from None
        except msgspec.DecodeError as error:
            raise not_finite(body) or Refused(400, str(error)) from None

    def _features(self, number: int, row: FeatureRow) -> tuple[Row, int, int, int]:
        """Return a row's values by feature, how many none can have, its size, and its keys."""
        found: Any = row.features
        keys = 1 + (len(found) if isinstance(found, dict) else 0)
        if len(found) > self._limits.features:
            raise self._too_many(number, len(found))
        if isinstance(found, list):
            found = self._listed(number, found)
        strange = 0
        for name, value in found.items():
            if isinstance(value, str):
                size = len(name.encode()) + 1 + len(value.encode())
            else:
                size = len(name) if name.isascii() else len(name.encode())
                if not -MAX_FLOAT32 <= value <= MAX_FLOAT32:
                    raise _infinite(number, name, value)
            strange += not 0 < size <= MAX_NAME
        if strange:
            found = {n: v for n, v in found.items() if 0 < len(_raw(n, v)) <= MAX_NAME}
        return found, strange, VALUE_BYTES * len(found), keys

    def _listed(self, number: int, found: list[float | str]) -> Mapping[str, Any]:
        """Return names, or a number for each column, as values by feature."""
        kinds = set(map(type, found))
        if kinds <= {str}:
            return Counter(found)  # type: ignore[arg-type]
        if len(kinds) > 1:
            raise Refused(422, f"row {number:,} lists both names and numbers of features")
        if self.places is None:
            raise Refused(422, f"row {number:,} lists numbers, and the model's features have names")
        if len(found) != len(self.places):
            raise Refused(
                422,
                f"row {number:,} lists {len(found):,} numbers, the model has "
                f"{len(self.places):,} columns",
            )
        return {name: x for name, x in zip(self.places, found, strict=True) if x}

    def _cells(self, number: int, row: dict[str, Any] | str) -> tuple[Row, int, int, int]:
        """Return a row's cells by column, how many are not read, its size, and its keys."""
        assert self.columns is not None
        keys = 0 if isinstance(row, str) else _keys(row)
        if isinstance(row, str):
            if self.text is None:
                raise Refused(
                    422, f"row {number:,} is a string, and the model reads: {_some(self.columns)}"
                )
            row = {self.text: row}
        size = _characters(number, row)
        if size > self._limits.text_bytes:
            what = f"row {number:,} has {size:,} characters"
            raise beyond(422, what, self._limits.text_bytes, "text_bytes")
        cells = {name: row.get(name) for name in self.columns}
        strange = sum(name not in self._known for name in row)
        return cells, strange, CHARACTER_BYTES * size, keys

    def _check_columns(self, number: int, row: Mapping[str, Any] | list[Any] | str) -> None:
        """Refuse a row that has columns by name, of which the model knows none."""
        if isinstance(row, str) or not all(isinstance(name, str) for name in [*row][:1]):
            return
        names = (name if self.columns else name.partition("=")[0] for name in row)
        if row and self._read.isdisjoint(names):
            what = f"row {number:,} has none of the columns of the model, but {_some([*row])}"
            raise Refused(422, what)

    def _too_many(self, number: int, n: int) -> Refused:
        what = f"row {number:,} has {n:,} features"
        return beyond(422, what, self._limits.features, "features")


def check_repeated(body: bytes) -> None:
    """Refuse JSON in which an object has a key twice."""
    try:
        json.loads(body, object_pairs_hook=_unique)
    except ValueError as error:  # what one parser takes and another one does not
        raise Refused(400, str(error)) from None


def _unique(pairs: list[tuple[str, Any]]) -> None:
    if len({name for name, _ in pairs}) < len(pairs):
        names = Counter(name for name, _ in pairs)
        twice = next(name for name, times in names.items() if times > 1)
        raise Refused(400, f"the JSON has the key '{clean(twice, 60)}' twice in an object")


def _keys(value: Any) -> int:
    """Return how many keys all objects within a value have."""
    if isinstance(value, dict):
        return len(value) + sum(_keys(v) for v in value.values() if isinstance(v, dict | list))
    if isinstance(value, list):
        return sum(_keys(v) for v in value if isinstance(v, dict | list))
    return 0


def not_finite(body: bytes) -> Refused | None:
    """Return what is said of NaN or infinity in what would be JSON without; None without."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    rows = found.get("rows") if isinstance(found, dict) else None
    for number, row in enumerate(rows if isinstance(rows, list) else []):
        own = row.get("features", row) if isinstance(row, dict) else None
        if isinstance(own, list):
            own = dict(enumerate(own))
        for name, value in own.items() if isinstance(own, dict) else ():
            if isinstance(value, float) and not math.isfinite(value):
                return _infinite(number, name, value)
    return None


def _infinite(number: int, name: object, value: float) -> Refused:
    return Refused(
        422, f"row {number:,}, feature '{clean(name, 60)}': {value:g} is not a finite float32"
    )


def _raw(name: str, value: object) -> bytes:
    return (f"{name}={value}" if isinstance(value, str) else name).encode()


def _characters(number: int, value: Any, depth: int = 0) -> int:
    """Return how many characters the strings within a row have, and one for each other value."""
    if isinstance(value, str):
        return _normal(value)
    if depth > MOST_DEPTH:
        raise Refused(422, f"row {number:,} has lists within lists: no cell is read so")
    if isinstance(value, dict):
        return max(1, sum(_characters(number, v, depth + 1) + len(k) for k, v in value.items()))
    if isinstance(value, list):
        return max(1, sum(_characters(number, v, depth + 1) for v in value))
    return 1


def _normal(text: str) -> int:
    """Return how many characters a text has in its normal form, which may be 18 times as many."""
    if text.isascii():
        return len(text)
    return sum(
        len(unicodedata.normalize("NFKC", text[start : start + PIECE]))
        for start in range(0, len(text), PIECE)
    )


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 8:,} more" if len(names) > 8 else ""
    return ", ".join(clean(name, 40) for name in names[:8]) + more
