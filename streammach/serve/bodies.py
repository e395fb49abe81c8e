"""Bodies of requests into rows: strict JSON, what is wrong with it, and the memory it may take."""

from __future__ import annotations

import gc
import threading
import time
import unicodedata
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

from streammach.errors import BudgetError, clean
from streammach.machine import give_back, size_text
from streammach.prediction.explain import LINES
from streammach.prediction.explain import WORK_BYTES as EXPLAINING_BYTES
from streammach.rows.names import MAX_NAME
from streammach.serve.limits import Refused, ServiceLimits, beyond
from streammach.serve.messages import FeatureRows, FieldRows

MAX_FLOAT32 = 3.4028235e38
VALUE_BYTES = 330  # of a feature with a name, on its way to the model's ids
CHARACTER_BYTES = 16  # of a character, and of what it becomes
PIECE = 1 << 12  # characters of a text that are brought into one form at a time
MOST_K = 1 << 30  # that is said in full
MOST_DEPTH = 3  # of a cell: a list of pairs of a name and a value
# Bytes of what JSON is read into, for each of these characters in it: a value in a list or a dict,
# half a string, a key's place in a dict (and among names that are counted), a list, a dict.
BECOMES = {b",": 65, b'"': 28, b":": 60, b"[": 60, b"{": 90}
WIDEST = 4  # bytes of a character, where one is not ASCII
EXPLAINED_BYTES = 3500  # of a feature that explains a label, with its places, in the same way
ANSWER_BYTES = 130  # of a label that is answered: its id, its score, both as objects and in JSON
# Of rows that are brought into a model's ids together: of a row of most features, or of several.
# More at once would take memory, and hold up other threads.
WORK_BYTES = 33_000_000
LARGE = 16_000_000  # of what is given to the system when it is free
WAIT_SECONDS = 0.05
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Question:
    """A request that was read."""

    rows: list[Row]  # values by feature, or cells by column
    unknown: list[int]  # what of each row no model of the kind can know
    sizes: list[int]  # bytes that the work on each row takes at most
    k: int  # how many labels each row gets
    probabilities: bool  # whether scores are probabilities
    threshold: float | None = None  # the least probability of a label that is given
    only: list[Any] | None = None  # labels that may be said alone, or a list of them for each row
    never: list[Any] | None = None  # the same of those that may not be said
    explain: int = 0  # features that raise the score of a label, and that lower it

    @property
    def together(self) -> tuple[object, ...]:
        """What questions that are predicted together have in common."""
        own = id(self) if (self.only, self.never) != (None, None) else 0
        return self.probabilities, self.threshold, own, self.explain

    @property
    def calibrated(self) -> bool:
        """Whether the ranking that is calibrated is used."""
        return self.probabilities or self.threshold is not None

    @property
    def answer_bytes(self) -> int:
        """Bytes of the answer, and of the work on explanations, at most."""
        if not self.explain:
            return ANSWER_BYTES * len(self.rows) * self.k
        each = ANSWER_BYTES + EXPLAINED_BYTES * (2 * self.explain + len(LINES))
        return each * len(self.rows) * self.k + EXPLAINING_BYTES


class RequestReader:
    """Reads the bodies of requests to a model."""

    def __init__(
        self, columns: Sequence[str] | None, *, text: str | None = None,
        places: Sequence[str] | None = None, others: Sequence[str] = (), limits: ServiceLimits,
    ) -> None:  # fmt: skip
        self.columns = None if columns is None else tuple(columns)
        # What decides how a row is read: rows of one kind are no rows of another one.
        self.kind = (self.columns, text, None if places is None else tuple(places))
        self._known = frozenset({*(columns or ()), *others})
        # A cell that is a string is the feature ``column=cell``.
        self._read = frozenset({*(columns or ()), *(n.partition("=")[0] for n in places or ())})
        self.text, self.places, self._limits = text, places, limits
        self._decoder = msgspec.json.Decoder[Any](FeatureRows if columns is None else FieldRows)

    def reads_rows_of(self, former: RequestReader) -> bool:
        """Return whether all rows that another one reads can be read by this one, too."""
        if former.columns is None or self.columns is None:
            same = former.columns is self.columns
            return same and (former.places is None or former.places == self.places)
        return {*former.columns} <= self._known and (former.text is None or self.text is not None)

    def question(self, body: bytes) -> Question:
        """Return what is asked, or raise Refused."""
        if not body:
            raise Refused(400, "the body is empty: a JSON object with rows is expected")
        try:
            request = self._decoder.decode(body)
        except UnicodeDecodeError:
            raise Refused(400, "the JSON is not UTF-8") from None
        except msgspec.ValidationError as error:
            is_bare = " - at `" not in str(error) and b'"rows"' not in body
            more = '; rows stand in a list: {"rows": [ROW, ...]}' if is_bare else ""
            raise Refused(422, f"{error}{more}") from None
        except msgspec.DecodeError as error:
            no_json = b"NaN" in body or b"Infinity" in body
            more = ": NaN and Infinity are no JSON" if no_json else ""
            raise Refused(400, f"{error}{more}") from None
        except RecursionError:
            raise Refused(400, "the JSON is nested too deeply") from None
        k, limits, n = request.k, self._limits, len(request.rows)
        if k > limits.k:
            said = f"more than {MOST_K:,}" if k > MOST_K else f"{k:,}"
            raise beyond(422, f"k is {said}", limits.k, "k")
        if n > limits.rows_a_request:
            raise beyond(413, f"{n:,} rows", limits.rows_a_request, "rows")
        if (given := 2 * request.explain * n * k) > limits.explained:
            raise beyond(413, f"{given:,} features that explain", limits.explained, "explained")
        read = self._features if self.columns is None else self._cells
        rows = [read(number, row) for number, row in enumerate(request.rows)]
        return Question(
            rows=[row for row, _, _ in rows], unknown=[unknown for _, unknown, _ in rows],
            sizes=[size for _, _, size in rows], k=k,
            probabilities=request.probabilities, threshold=request.threshold,
            only=request.only, never=request.never, explain=request.explain,
        )  # fmt: skip

    def _features(self, number: int, row: Any) -> tuple[Row, int, int]:
        """Return a row's values by feature, how many none can have, and its size."""
        found = row.features
        if len(found) > self._limits.features:
            what = f"row {number:,} has {len(found):,} features"
            raise beyond(422, what, self._limits.features, "features")
        if isinstance(found, list):
            found = self._listed(number, found)
        self._check_columns(number, found)
        strange = 0
        for name, value in found.items():
            if not isinstance(value, str) and not -MAX_FLOAT32 <= value <= MAX_FLOAT32:
                what = f"row {number:,}, feature '{clean(name, 60)}'"
                raise Refused(422, f"{what}: {value:g} is not a finite float32")
            strange += not 0 < _size(name, value) <= MAX_NAME
        if strange:
            found = {n: v for n, v in found.items() if 0 < _size(n, v) <= MAX_NAME}
        return found, strange, VALUE_BYTES * len(found)

    def _listed(self, number: int, found: list[float | str]) -> Mapping[str, Any]:
        """Return names, or a number for each column, as values by feature."""
        kinds = set(map(type, found))
        if kinds <= {str}:
            return Counter(found)  # type: ignore[arg-type]
        what = f"row {number:,} lists"
        if len(kinds) > 1:
            raise Refused(422, f"{what} both names and numbers of features")
        if self.places is None:
            raise Refused(422, f"{what} numbers, and the model's features have names")
        if len(found) != len(self.places):
            n, most = len(found), len(self.places)
            raise Refused(422, f"{what} {n:,} numbers, the model has {most:,} columns")
        return {name: x for name, x in zip(self.places, found, strict=True) if x}

    def _cells(self, number: int, row: Any) -> tuple[Row, int, int]:
        """Return a row's cells by column, how many are not read, and its size."""
        assert self.columns is not None
        if isinstance(row, str):
            if self.text is None:
                what = f"row {number:,} is a string, and the model reads: {_some(self.columns)}"
                raise Refused(422, what)
            row = {self.text: row}
        size = _characters(number, row)
        if size > self._limits.text_bytes:
            what = f"row {number:,} has {size:,} characters"
            raise beyond(422, what, self._limits.text_bytes, "text_bytes")
        self._check_columns(number, row)
        cells = {name: row.get(name) for name in self.columns}
        return cells, sum(name not in self._known for name in row), CHARACTER_BYTES * size

    def _check_columns(self, number: int, row: Mapping[str, Any]) -> None:
        """Refuse a row that has columns by name and none that the model knows."""
        if row and self._read:
            names = row if self.columns else (name.partition("=")[0] for name in row)
            if self._read.isdisjoint(names):
                what = f"row {number:,} has none of the columns of the model, but {_some([*row])}"
                raise Refused(422, what)


def _size(name: str, value: object) -> int:
    """Return the bytes of the name of a feature."""
    own = len(name) if name.isascii() else len(name.encode())
    return own + 1 + len(value.encode()) if isinstance(value, str) else own


def _characters(number: int, value: Any, depth: int = 0) -> int:
    """Return the characters of the strings within a row in normal form; 1 for another value."""
    if isinstance(value, str):
        if value.isascii():
            return len(value)
        pieces = (value[start : start + PIECE] for start in range(0, len(value), PIECE))
        return sum(len(unicodedata.normalize("NFKC", piece)) for piece in pieces)
    if depth > MOST_DEPTH:
        raise Refused(422, f"row {number:,} has lists within lists: no cell is read so")
    if isinstance(value, dict):
        return max(1, sum(_characters(number, v, depth + 1) + len(k) for k, v in value.items()))
    if isinstance(value, list):
        return max(1, sum(_characters(number, v, depth + 1) for v in value))
    return 1


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 8:,} more" if len(names) > 8 else ""
    return ", ".join(clean(name, 40) for name in names[:8]) + more


def may_become(body: bytes) -> int:
    """Return the bytes of what a body is read into, at most."""
    wide = not body.isascii() or b"\\u" in body
    texts = len(body) * (WIDEST + 1 if wide else 1)
    return texts + sum(n_bytes * body.count(one) for one, n_bytes in BECOMES.items())


class RequestRoom:
    """What requests take together, and may take."""

    def __init__(self, limits: ServiceLimits) -> None:
        self._limits, self._taken = limits, 0
        self.most = limits.held_bytes  # bytes that they may take
        self._lock = threading.RLock()

    def take(self, n_bytes: int, own: int = 0) -> None:
        """Take bytes for a request that has some, or raise Refused.

        413 is for what never fits, 503 for what does not now.
        """
        with self._lock:
            if own + n_bytes > self.most:
                what = f"the request may take {size_text(own + n_bytes)} of memory"
                may = f"{size_text(self.most)} may be used for requests: send fewer rows at a time"
                raise Refused(413, f"{what}, {may}, or serve with more --memory", limit="memory")
            if self._taken + n_bytes > self.most:
                what = f"memory is short: other requests take {size_text(self._taken - own)}"
                raise Refused(503, what, limit="memory", retry=1)
            self._taken += n_bytes

    def give(self, n_bytes: int) -> None:
        """Give back what was taken."""
        with self._lock:
            self._taken -= n_bytes
        if n_bytes > LARGE:
            give_back()

    @contextmanager
    def lent(self, n_bytes: int) -> Iterator[None]:
        """Take some bytes while a block needs them, or raise Refused."""
        self.take(n_bytes)
        try:
            yield
        finally:
            self.give(n_bytes)

    def question(self, reader: RequestReader, body: bytes) -> Question:
        """Return what is asked, whose memory is taken until it is no more; or raise Refused."""
        taken = may_become(body)
        self.take(taken)
        collected = gc.isenabled()
        try:
            gc.disable()  # JSON has no cycles, and each look for some takes longer
            question = reader.question(body)
            more = question.answer_bytes
            self.take(more, own=taken)
        except BaseException as error:
            error.__context__ = None  # frames hold what was read
            error.with_traceback(None)
            self.give(taken)
            raise error from None
        finally:
            if collected:
                gc.enable()
        weakref.finalize(question, self.give, taken + more)
        return question

    @contextmanager
    def without(self, n_bytes: int) -> Iterator[None]:
        """Leave so many bytes to a model while a block loads it, or raise BudgetError."""
        until = time.monotonic() + 2 * self._limits.deadline
        self.most -= n_bytes
        try:
            while self._taken > self.most:
                if time.monotonic() > until:
                    raise BudgetError("requests hold the memory that the model needs")
                time.sleep(WAIT_SECONDS)
            yield
        finally:
            self.most += n_bytes
