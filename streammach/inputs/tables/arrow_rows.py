"""Rows of Arrow record batches: cells as they lie there, without a Python object for each."""

from __future__ import annotations

import importlib
import json
import math
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.inputs.identity import PLACE
from streammach.inputs.tables.cells import Cells, TableRows, parsed_numbers, strings_of
from streammach.inputs.tables.values import is_utf8, text_of
from streammach.rows.arrays import fetch_array
from streammach.rows.layouts import ends
from streammach.system.errors import DataError, UsageError, clean

TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}  # of a second
BEYOND = OverflowError("Python has no such value")  # in the place of a moment or a duration
EXTENSION = b"ARROW:extension:name", b"ARROW:extension:metadata"
LISTS = ("list", "large_list", "fixed_size_list")  # kinds of types, as `pyarrow.types` calls them
VIEWS = ("string_view", "binary_view")
ONLY_POLARS = ("Object", "Int128", "UInt128")  # types of polars that Arrow does not have
BYTES = ("string", "large_string", "binary", "large_binary", "fixed_size_binary", *VIEWS)


def arrow() -> Any:
    """Return pyarrow, or raise UsageError where it is not installed."""
    try:
        import pyarrow as pa
        import pyarrow.compute  # a part of it that it does not load
    except ImportError as error:
        what = f"Parquet, Arrow and data frames are read with pyarrow ({error})"
        raise UsageError(what, hint="Install it: pip install 'streammach[tables]'") from None
    return pa


class ArrowRows(TableRows):
    """Rows of a record batch."""

    def __init__(self, batch: Any) -> None:
        self.batch, self.n_rows, self.names = batch, batch.num_rows, list(batch.schema.names)

    def strings(self, name: str) -> Cells:
        return texts_of(self._column(name))

    def numbers(self, name: str) -> Cells:
        types, column = arrow().types, self._column(name)
        kind = column.type
        there, ticks = _there(column), 1
        if types.is_boolean(kind):
            column = column.cast("uint8")
        elif types.is_duration(kind):
            column, ticks = column.cast("int64"), TICKS[kind.unit]
        elif types.is_decimal(kind):
            return super().numbers(name)
        elif not (types.is_integer(kind) or types.is_float64(kind)):
            return parsed_numbers(texts_of(column))
        values = np.array(column.to_numpy(zero_copy_only=False), np.float64) / ticks
        values[~there] = math.nan
        return Cells.of_numbers(values[:, None])

    def values(self, name: str) -> list[Any]:
        """Return the values of a column; `BEYOND` for those that Python has no value for."""
        return _objects(self._column(name))

    def look(self, name: str) -> list[Any]:
        """Return the cells of a column as texts, bytes, numbers, lists or None."""
        try:
            types, column = arrow().types, self._column(name)
        except DataError:  # perhaps nobody reads it
            return [None] * self.n_rows
        if types.is_duration(column.type):
            numbers = self.numbers(name).numbers
            return [] if numbers is None else numbers[:, 0].tolist()
        if types.is_nested(column.type):
            found = _objects(column)
            as_dict = types.is_map(column.type)
            return [dict(v) if as_dict and isinstance(v, list) else v for v in found]
        return _strings(column.cast("string") if types.is_decimal(column.type) else column)

    def lists(self, name: str) -> Cells:
        types, column = arrow().types, self._column(name)
        if not is_of(column.type, *LISTS):
            return texts_of(column)
        if types.is_nested(column.type.value_type):
            return super().lists(name)
        items = texts_of(column.flatten())
        offsets = items.offsets[ends(_lengths(column, 0))]
        return replace(items, offsets=offsets, listed=_there(column))

    def vectors(self, name: str, width: int) -> Cells:
        types, column = arrow().types, self._column(name)
        out = np.full((self.n_rows, width), math.nan)
        if not is_of(column.type, *LISTS):
            return super().vectors(name, width)
        there, items = _there(column), column.flatten()
        numeric = types.is_floating(items.type) or types.is_integer(items.type)
        odd = items.null_count or len(items) != width * int(there.sum())
        if not numeric or odd or (_lengths(column, width) != width).any():
            return super().vectors(name, width)
        out[there] = items.to_numpy(zero_copy_only=False).reshape(-1, width)
        return Cells.of_numbers(out)

    def _column(self, name: str) -> Any:
        place = self.batch.schema.get_field_index(name)
        if place < 0:
            return arrow().nulls(self.n_rows)
        column = self.batch.column(place)
        try:
            return _plain(column, self.batch.schema.field(place).metadata or {})
        except (ImportError, ValueError, TypeError, LookupError, AttributeError, OverflowError,
                NotImplementedError) as error:  # fmt: skip
            raise DataError(
                f"the column '{clean(name, 60)}' is not what its type says: {column.type} "
                f"({clean(error, 120)})",
                hint="Write it as text.",
            ) from None


def check_buffers(batch: Any, path: Path) -> Any:
    """Return a record batch that another program made; DataError where a buffer is damaged.

    Offsets, lengths and codes have to lie within what they point to. Text that is not UTF-8 is a
    fault of its row.
    """
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        plain = getattr(column, "storage", column)  # of an extension type
        try:
            plain.view(_without_text(plain.type)).validate(full=True)
        except ValueError as error:
            what = f"the column '{clean(name, 60)}' is damaged ({clean(error, 120)})"
            raise DataError(what, path=path, hint="Copy or write the table again.") from None
    batch.validate()  # whether columns have one length
    return batch


def _without_text(kind: Any) -> Any:
    """Return a type with bytes in the place of text."""
    pa = arrow()
    if is_of(kind, "dictionary"):
        return pa.dictionary(kind.index_type, _without_text(kind.value_type), kind.ordered)
    if is_of(kind, "struct"):
        return pa.struct([field.with_type(_without_text(field.type)) for field in kind])
    if is_of(kind, "map"):
        return pa.map_(_without_text(kind.key_type), _without_text(kind.item_type))
    if is_of(kind, "list", "large_list"):
        make: Any = pa.list_ if is_of(kind, "list") else pa.large_list
        return make(_without_text(kind.value_type))
    plain = {"string": pa.binary(), "large_string": pa.large_binary()}
    return pa.binary_view() if str(kind) == "string_view" else plain.get(str(kind), kind)


def _plain(column: Any, metadata: dict[bytes, bytes]) -> Any:
    """Return a column without an extension type: periods, intervals and UUIDs are texts."""
    pa = arrow()
    coded = pa.types.is_dictionary(column.type)
    inner = column.dictionary if coded else column
    name, facts = (metadata.get(key, b"") for key in EXTENSION)  # where nobody registered it
    if isinstance(inner.type, pa.BaseExtensionType):
        inner.validate()  # of a dictionary in a file, pyarrow may take the codes for values
        name, facts = inner.type.extension_name.encode(), b""
        if name.startswith(b"pandas."):
            facts = inner.type.__arrow_ext_serialize__()
        inner = inner.storage
    if name in TEXTS:
        inner = pa.array(TEXTS[name](inner, json.loads(facts or b"{}")), "string")
    elif name == b"arrow.bool8":
        inner = inner.cast("bool")
    return _decode_words(column, inner) if coded else inner


def _decode_words(column: Any, words: Any) -> Any:
    if is_of(words.type, *VIEWS):  # older releases take none of them
        words = words.cast(arrow().large_binary())
    return words.take(column.indices)


def _periods(ordinals: Any, facts: dict[str, str]) -> list[str | None]:
    """Return periods as pandas writes them, which knows what they count."""
    period: Any = importlib.import_module("pandas").Period
    return [
        None if ordinal is None else str(period(ordinal=ordinal, freq=facts["freq"]))
        for ordinal in ordinals.to_pylist()
    ]


def _intervals(ends: Any, facts: dict[str, str]) -> list[str | None]:
    first = "[" if facts["closed"] in ("left", "both") else "("
    last = "]" if facts["closed"] in ("right", "both") else ")"
    lows, highs = (_strings(ends.field(side)) for side in ("left", "right"))
    return [
        f"{first}{low}, {high}{last}" if there and low and high else None
        for there, low, high in zip(_there(ends), lows, highs, strict=True)
    ]


def _uuids(raws: Any, _: dict[str, str]) -> list[str | None]:
    return [None if raw is None else str(uuid.UUID(bytes=raw)) for raw in raws.to_pylist()]


TEXTS = {b"pandas.period": _periods, b"pandas.interval": _intervals, b"arrow.uuid": _uuids}


def texts_of(column: Any) -> Cells:
    """Return the cells of an Arrow array as one string each, which `canonical` brings to names."""
    pa = arrow()
    types, kind = pa.types, column.type
    there = _there(column)
    if types.is_dictionary(kind):
        return texts_of(_decode_words(column, column.dictionary))
    if types.is_float16(kind):
        return strings_of([*column.to_numpy(zero_copy_only=False)])
    if types.is_date(kind) or types.is_timestamp(kind):
        column = _dates(column)
        there = _there(column)
    elif types.is_float32(kind) or types.is_float64(kind):
        there &= ~np.asarray(pa.compute.is_nan(column).fill_null(True))
        column = column.cast("string")
    elif types.is_integer(kind) or types.is_boolean(kind) or types.is_time(kind):
        column = column.cast("string")
    elif is_of(kind, *VIEWS):
        column = column.cast(pa.large_binary())
    elif types.is_fixed_size_binary(kind):
        column = column.cast(pa.binary())
    elif not is_of(kind, *BYTES):
        return strings_of(_objects(column))
    starts, stops, data = _spans(column)
    return Cells.spans(data, np.where(there, starts, 0), np.where(there, stops, 0))


# Of units of moments: how many are one of another. NumPy 2.5 casts no extremes.
COARSER = {"ms": (10**3, "s"), "us": (10**6, "s"), "ns": (10**9, "s")}


def _dates(column: Any) -> Any:
    """Return dates and moments as texts, of any year; those of a time zone in UTC."""
    pa, kind = arrow(), column.type
    zone = pa.types.is_timestamp(kind) and kind.tz is not None
    unit = "D" if pa.types.is_date32(kind) else "ms" if pa.types.is_date64(kind) else kind.unit
    ticks = column.cast("int32").cast("int64") if unit == "D" else column.cast("int64")
    ticks = ticks.fill_null(0).to_numpy(zero_copy_only=False)
    coarser = COARSER | ({} if zone else {"s": (86400, "D")})
    while unit in coarser and not (ticks % coarser[unit][0]).any():
        step, unit = coarser[unit]
        ticks = ticks // step
    moments = ticks.view(f"M8[{unit}]")
    gone = ~_there(column) | np.isnat(moments)
    texts = np.char.replace(np.datetime_as_string(moments), "T", " ")
    found = pa.array(texts, "string", mask=gone)
    return pa.compute.binary_join_element_wise(found, "Z", "") if zone else found


def _objects(column: Any) -> list[Any]:
    """Return cells as Python objects; `BEYOND` for those that Python has no value for."""

    def one(cell: Any) -> Any:
        try:
            return cell.as_py()
        except (OverflowError, ValueError):
            return BEYOND

    try:
        found: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):
        found = [one(cell) for cell in column]
    return found


def _strings(column: Any) -> list[Any]:
    """Return cells as one text each, or none; bytes that are no text stay bytes."""
    texts = texts_of(column).firsts()
    return [raw.decode() if raw is not None and is_utf8(raw) else raw for raw in texts]


def _spans(column: Any) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8]]:
    """Return where the cells of an array of strings start and stop, and the bytes."""
    types = arrow().types
    large = types.is_large_string(column.type) or types.is_large_binary(column.type)
    _, offsets, data = column.buffers()
    n = len(column)
    if offsets is None or data is None:
        return np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(0, np.uint8)
    raw: NDArray[Any] = np.frombuffer(offsets, np.int64 if large else np.int32)
    ends: NDArray[np.int64] = raw[column.offset : column.offset + n + 1].astype(np.int64)
    first, last = (int(ends[0]), int(ends[-1])) if n else (0, 0)
    ends -= first
    return ends[:-1], ends[1:], np.frombuffer(data, np.uint8)[first:last]


def _lengths(column: Any, null: int) -> NDArray[np.int64]:
    """Return how many items each list has, `null` where there is no list: int64 (n,)."""
    lengths = arrow().compute.list_value_length(column).fill_null(null)
    return np.asarray(lengths).astype(np.int64)


def _there(column: Any) -> NDArray[np.bool_]:
    """Return which cells are not null: bool (n,)."""
    if not column.null_count:
        return np.ones(len(column), np.bool_)
    return np.asarray(column.is_valid())


def is_of(kind: Any, *names: str) -> bool:
    """Return whether a type of Arrow is one of some kinds."""
    return any(getattr(arrow().types, f"is_{name}")(kind) for name in names)


def arrow_column(column: Any, name: str, *, head: bool = False) -> Any:
    """Return cells as an Arrow array; values of several types as text.

    Those of a `head` that cannot be read are null: perhaps nobody reads them.
    """
    pa = arrow()
    if hasattr(column, "to_pylist"):
        return column
    column = fetch_array(column)
    if getattr(column, "ndim", 1) > 1 and isinstance(column, np.ndarray):  # of vectors
        flat = column.reshape(len(column), -1)
        return pa.FixedSizeListArray.from_arrays(pa.array(flat.ravel()), flat.shape[1])
    if not hasattr(column, "dtype"):  # a list
        column = np.fromiter(column, object, len(column))
    elif str(column.dtype) in ONLY_POLARS:
        column = column.to_list()
    try:
        if hasattr(column, "to_arrow"):  # of polars, whose texts are copied by that
            return pa.table(column.to_frame()).column(0)
        return pa.Array.from_pandas(column)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        pass
    try:
        return pa.array([text_of(value) for value in column], pa.large_binary())
    except (TypeError, ValueError):
        if head:
            return pa.nulls(len(column))
        what = f"the column '{clean(name, 60)}' holds values of several types"
        raise DataError(what, path=PLACE, hint="Make them all strings, or all lists.") from None
