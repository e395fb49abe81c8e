"""Every type of a cell, what its values are called, and the columns that bring them."""

import datetime as dt
import decimal
import uuid
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

try:
    import pandas as pd
except ImportError:
    pd = None
try:
    import polars as pl
except ImportError:
    pl = None

UNITS = ("s", "ms", "us", "ns")


@dataclass
class Kind:
    """A kind of values: how people write them, their names, and the columns that hold them.

    `names`, `numbers` and `days` are of each value; a text in their place is what the refusal says.
    """

    types: str
    called: str
    values: list
    names: list | str
    numbers: list | str = "is not a number"
    days: list | str = "is no date"
    arrow: list = field(default_factory=list)
    pandas: list = field(default_factory=list)
    polars: list = field(default_factory=list)
    texts: list = field(default_factory=list)
    json: list = field(default_factory=list)
    dicts: list = field(default_factory=list)


def arrays(values, *types):
    """Return values, and a null behind them, as arrays of Arrow of some types."""
    return [pa.array([*values, None], pa.type_for_alias(t) if isinstance(t, str) else t)
            for t in types]  # fmt: skip


def columns(values, *types):
    """Return values, and a missing one where the type has it, as columns of pandas."""
    if pd is None:
        return []
    full = [t for t in types if t.startswith(("int", "uint", "bool")) and not t.endswith("]")]
    full = [t for t in full if t not in ("boolean", "interval")]
    return [pd.Series(values if t in full else [*values, None], dtype=t) for t in types]


def series(values, *types):
    """Return values and a null as columns of polars; types by their names."""
    if pl is None:
        return []
    made = [getattr(pl, t) if isinstance(t, str) else t for t in types]
    return [pl.Series([*values, None], dtype=t, strict=False) for t in made]


def coded(*found):
    """Return columns of pandas as categories, and arrays of Arrow as dictionaries."""
    return [c.dictionary_encode() if isinstance(c, pa.Array) else c.astype("category")
            for c in found]  # fmt: skip


def moments(found):
    """Return datetimes in all units of pandas and of Arrow."""
    arrow = arrays(found, *(pa.timestamp(u) for u in UNITS if u != "s" or not fractions(found)))
    units = [u for u in UNITS if u != "s" or not fractions(found)]
    made = columns(found, *(f"datetime64[{u}]" for u in units), "object")
    return arrow, made


def fractions(found):
    """Return whether some datetimes have a fraction of a second."""
    return any(moment.microsecond for moment in found)


def kinds():
    words, whole, big = ["a b", "é", "v3.10"], [1, 20, -3], [2**63, 2**64 - 1, 2**53 + 1]
    some, wide = [0.1, 0.7, 12.5], [1e-05, 1e16, 1e30]
    days = [dt.date(2024, 1, 31), dt.date(1969, 12, 31), dt.date(2000, 2, 29)]
    midnights = [dt.datetime.combine(day, dt.time()) for day in days]
    noons = [dt.datetime(2024, 1, 31, 13, 45), dt.datetime(1969, 12, 31, 23, 59, 59, 500000),
             dt.datetime(2000, 2, 29, 0, 0, 1)]  # fmt: skip
    zoned = [moment.replace(tzinfo=dt.UTC) for moment in noons]
    away = [m.astimezone(dt.timezone(dt.timedelta(hours=5, minutes=30))) for m in zoned]
    times = [dt.time(13, 45), dt.time(0, 0, 1, 500000), dt.time(23, 59, 59)]
    spans = [dt.timedelta(seconds=90), dt.timedelta(days=-1, microseconds=500000), dt.timedelta(2)]
    prices = [decimal.Decimal("1.10"), decimal.Decimal("2.25"), decimal.Decimal("-3.00")]
    ids = [uuid.UUID(int=5), uuid.UUID(int=2**127), uuid.UUID(int=0)]
    truth, records = [True, False, True], [{"a": 1}, {"a": 2}, {"a": 3}]
    at_noon = [str(m) for m in noons]
    on_days = [19753, -1, 11016]
    iso = [m.isoformat() for m in midnights]
    return [
        Kind("text, bytes, categories of it", "as it is written", words, words,
             arrow=[*arrays(words, "string", "large_string", "string_view", "binary",
                            "large_binary", "binary_view"), *coded(*arrays(words, "string"))],
             pandas=[*columns(words, "object", "string"), *coded(*columns(words, "object"))],
             polars=series(words, "String", "Categorical"),
             texts=[words], json=[words], dicts=[words, [w.encode() for w in words]]),
        Kind("whole numbers of any type", "`3`, `-3`: the digits, without a point", whole,
             ["1", "20", "-3"], [1, 20, -3],
             arrow=[*arrays(whole, "int8", "int16", "int32", "int64", "float32", "float64",
                            pa.decimal128(5, 0)), pa.array(np.array(whole, np.float16)),
                    *coded(*arrays(whole, "int16", "float64"))],
             pandas=[*columns(whole, "int8", "int64", "Int16", "Int64", "float16", "float32",
                              "float64", "Float32", "object", "int64[pyarrow]"),
                     *coded(*columns(whole, "int64", "float64"))],
             polars=series(whole, "Int8", "Int64", "Float32", "Float64"),
             texts=[["1", "20", "-3"], ["1.0", "20.0", "-3.0"]],
             json=[whole, [1.0, 20.0, -3.0], ["1", "20", "-3.0"]],
             dicts=[whole, [np.int8(1), np.float32(20), np.float64(-3)],
                    [decimal.Decimal(1), decimal.Decimal("2E+1"), np.float16(-3)]]),
        Kind("whole numbers to 2^64", "the digits", big, [str(n) for n in big],
             [float(n) for n in big],
             arrow=arrays(big, "uint64", pa.decimal128(20, 0)),
             pandas=columns(big, "uint64", "UInt64", "object", "uint64[pyarrow]"),
             polars=series(big, "UInt64", "Int128"), texts=[[str(n) for n in big]],
             json=[big, [str(n) for n in big]], dicts=[big, [np.uint64(n) for n in big]]),
        Kind("other numbers, of 16, 32 and 64 bits", "`0.1`: the fewest digits that tell it "
             "from others of its type", some, ["0.1", "0.7", "12.5"], some,
             arrow=[*arrays(some, "float32", "float64"), pa.array(np.array(some, np.float16)),
                    *coded(*arrays(some, "float32"))],
             pandas=[*columns(some, "float16", "float32", "float64", "Float32", "object",
                              "float[pyarrow]"), *coded(*columns(some, "float32"))],
             polars=series(some, "Float32", "Float64"), texts=[["0.1", "0.7", "12.5"]],
             json=[some, ["0.1", "0.7", "12.5"]],
             dicts=[some, [np.float32(x) for x in some], [np.float16(x) for x in some]]),
        Kind("very large and very small numbers", "`1e+16`, `1e-05`, as Python writes them", wide,
             ["1e-05", "1e+16", "1e+30"], wide, arrow=arrays(wide, "float32", "float64"),
             pandas=columns(wide, "float32", "float64"), polars=series(wide, "Float32", "Float64"),
             texts=[["0.00001", "1e16", "1E+30"], ["1e-5", "1e+16", "1e30"]], json=[wide],
             dicts=[wide, [np.float32(x) for x in wide]]),
        Kind("truth values", "`True`, `False`", truth, ["True", "False", "True"], [1, 0, 1],
             arrow=[*arrays(truth, "bool"), *coded(*arrays(truth, "bool"))],
             pandas=columns(truth, "bool", "boolean", "object", "bool[pyarrow]"),
             polars=series(truth, "Boolean"), texts=[["True", "False", "True"],
                                                     ["true", "false", "true"]],
             json=[truth, ["true", "false", "True"]], dicts=[truth, [np.bool_(x) for x in truth]]),
        Kind("dates, and moments at midnight", "`2024-01-31`", midnights,
             [str(day) for day in days], days=on_days,
             arrow=[*arrays(days, "date32", "date64"), *moments(midnights)[0],
                    *coded(*arrays(days, "date32"))],
             pandas=[*moments(midnights)[1], *columns(days, "object"),
                     *coded(*columns(midnights, "datetime64[ns]")),
                     *columns(days, "date32[pyarrow]", "period[D]")],
             polars=[*series(days, "Date"), *series(midnights, "Datetime")],
             texts=[[str(day) for day in days], iso, [f"{d} 00:00:00.000" for d in days],
                    [f"{d} 00:00" for d in days]],
             json=[[str(day) for day in days], iso],
             dicts=[days, midnights, [np.datetime64(d) for d in days],
                    [np.datetime64(d, "ns") for d in midnights]]),
        Kind("dates with times", "`2024-01-31 13:45:00`, `2024-01-31 13:45:00.5`", noons,
             ["2024-01-31 13:45:00", "1969-12-31 23:59:59.5", "2000-02-29 00:00:01"],
             days=on_days, arrow=moments(noons)[0], pandas=moments(noons)[1],
             polars=series(noons, "Datetime", *([] if pl is None else
                                                [pl.Datetime("ns"), pl.Datetime("ms")])),
             texts=[at_noon, [m.isoformat("T", "milliseconds") for m in noons]],
             json=[at_noon], dicts=[noons, [np.datetime64(m, "ms") for m in noons]]),
        Kind("moments with a time zone", "`2024-01-31 12:45:00Z`: in UTC", zoned,
             ["2024-01-31 13:45:00Z", "1969-12-31 23:59:59.5Z", "2000-02-29 00:00:01Z"],
             days=on_days,
             arrow=arrays(zoned, *(pa.timestamp("us", z) for z in ("UTC", "Asia/Kolkata")),
                          pa.timestamp("ns", "America/New_York")),
             pandas=[*columns(zoned, "datetime64[ns, UTC]", "datetime64[us, Asia/Kolkata]"),
                     *columns(away, "object")],
             polars=[] if pl is None else series(zoned, pl.Datetime("us", "Europe/Berlin")),
             texts=[[str(m) for m in away], [m.isoformat() for m in zoned],
                    [m.isoformat() + "Z" for m in noons]],
             json=[[m.isoformat() for m in away]], dicts=[zoned, away]),
        Kind("times of a day", "`13:45:00`, `13:45:00.5`", times,
             ["13:45:00", "00:00:01.5", "23:59:59"],
             arrow=arrays(times, pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
             pandas=columns(times, "object"), polars=series(times, "Time"),
             texts=[[str(t) for t in times]], json=[[str(t) for t in times]], dicts=[times]),
        Kind("periods of pandas", "`2024-01`, `2024Q1`, as pandas writes them",
             ["2024-01", "2024-02", "1969-12"], ["2024-01", "2024-02", "1969-12"],
             pandas=[] if pd is None else [
                 *columns(periods(), "period[M]", "object"),
                 *coded(*columns(periods(), "period[M]"))],
             texts=[["2024-01", "2024-02", "1969-12"]], json=[["2024-01", "2024-02", "1969-12"]],
             dicts=[] if pd is None else [periods()]),
        Kind("intervals of pandas (`cut`)", "`(0, 1.5]`, with the names of its ends",
             ["(0, 1.5]", "(1.5, 3]", "(3, 4.5]"], ["(0, 1.5]", "(1.5, 3]", "(3, 4.5]"],
             pandas=[] if pd is None else [
                 *columns(intervals(), "interval", "object"),
                 pd.Series(pd.cut([1, 2, 4, np.nan], [0, 1.5, 3, 4.5]))],
             texts=[["(0, 1.5]", "(1.5, 3]", "(3, 4.5]"], ["(0.0, 1.5]", "(1.5, 3.0]", "(3, 4.5]"]],
             json=[["(0.0, 1.5]", "(1.5, 3.0]", "(3.0, 4.5]"]],
             dicts=[] if pd is None else [intervals()]),
        Kind("UUIDs", "with hyphens", ids, [str(i) for i in ids],
             arrow=[pa.ExtensionArray.from_storage(
                 pa.uuid(), pa.array([*(i.bytes for i in ids), None], pa.binary(16)))]
             if hasattr(pa, "uuid") else [],
             pandas=columns(ids, "object"), texts=[[str(i) for i in ids]],
             json=[[str(i) for i in ids]], dicts=[ids],
             polars=[] if pl is None else [pl.Series([*ids, None], dtype=pl.Object)]),
        Kind("durations", "refused; as numbers, seconds", spans, "is a duration",
             [90, -86399.5, 172800], "is a duration",
             arrow=arrays(spans, *(pa.duration(u) for u in UNITS[1:])),
             pandas=columns(spans, "timedelta64[ns]", "timedelta64[us]", "object"),
             polars=series(spans, "Duration"),
             dicts=[spans, [np.timedelta64(s) for s in spans]]),
        Kind("decimals with places behind the point", "refused: `1.10` and `1.1` are one value",
             prices, "is a decimal", [1.1, 2.25, -3], "is a decimal",
             arrow=arrays(prices, pa.decimal128(5, 2), pa.decimal256(50, 2)),
             pandas=columns(prices, "object"),
             polars=[] if pl is None else series(prices, pl.Decimal(10, 2)), dicts=[prices]),
        Kind("structs, objects of JSON, dicts", "refused", records, "is no text", "is n", "is no",
             arrow=arrays(records, pa.struct({"a": pa.int8()})), pandas=columns(records, "object"),
             polars=[] if pl is None else [pl.Series([*records, None])], json=[records],
             dicts=[records]),
    ]  # fmt: skip


def periods():
    return [pd.Period(text, "M") for text in ("2024-01", "2024-02", "1969-12")]


def intervals():
    return [pd.Interval(0.0, 1.5), pd.Interval(1.5, 3.0), pd.Interval(3.0, 4.5)]


def extremes():
    """Return columns of two rows that hold the least and the largest value of their type."""
    whole = {f"int{n}": (-(2 ** (n - 1)), 2 ** (n - 1) - 1) for n in (8, 16, 32, 64)}
    whole |= {f"uint{n}": (0, 2**n - 1) for n in (8, 16, 32, 64)}
    found = {name: pa.array(pair, name) for name, pair in whole.items()}
    ends = pa.array([-(2**63) + 1, 2**63 - 1], "int64")
    for unit in UNITS:
        found[f"timestamp[{unit}]"] = ends.cast(pa.timestamp(unit))
        found[f"zoned[{unit}]"] = ends.cast(pa.timestamp(unit, "UTC"))
        found[f"duration[{unit}]"] = ends.cast(pa.duration(unit))
    found["date32"] = pa.array([-(2**31), 2**31 - 1], "int32").cast("date32")
    found["year 10000"] = pa.array([2932897, 2932897], "int32").cast("date32")
    found["date64"] = found["date32"].cast("date64")
    found["time64"] = pa.array([0, 86400 * 10**9 - 1], "int64").cast(pa.time64("ns"))
    for name, kind in (("float16", np.float16), ("float32", np.float32), ("float64", np.float64)):
        found[name] = pa.array(np.array([np.finfo(kind).tiny, np.finfo(kind).max], kind))
        found[f"{name} inf"] = pa.array(np.array([-np.inf, np.inf], kind))
    found["decimal"] = pa.array([decimal.Decimal(10**38 - 1), None], pa.decimal128(38, 0))
    found["decimal256"] = pa.array([decimal.Decimal(10**75), None], pa.decimal256(76, 0))
    found["lists of dates"] = pa.array([[1], [2**31 - 1]], pa.list_(pa.int32())).cast(
        pa.list_(pa.date32())
    )
    found["structs of moments"] = pa.StructArray.from_arrays(
        [ends.cast(pa.timestamp("s"))], names=["a"]
    )
    return found
