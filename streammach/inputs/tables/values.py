"""What a value is called: one name for it, whatever type, unit or file brought it."""

from __future__ import annotations

import datetime
import decimal
import math
import numbers
import re
import uuid
from functools import lru_cache
from typing import NamedTuple

import numpy as np

TRUE, FALSE = b"True", b"False"  # as Python and pandas write them
NO_TEXT = "'{}' is no text"
NO_DATE = "'{}' is no date such as 2024-01-31 or 2024-01-31 13:45:00"
NO_DURATION = "'{}' is a duration: read it as a number, of seconds, or write it as text"
NO_DECIMAL = (
    "'{}' is a decimal, and zeros at its end are no part of its value: read it as a number, or "
    "write it as text"
)
WORDS = {b"true": TRUE, b"false": FALSE, b"-0": b"0", b"-0.0": b"0"}
WHOLE = re.compile(rb"(-?(?:0|[1-9]\d*))\.0")
SMALL = re.compile(rb"-?0\.0000\d{0,20}[1-9]")
POWER = re.compile(rb"[+-]?(?:\d+\.?\d*|\.\d+)[eE]([+-]?)\d+")
DAY = r"[+-]?\d{4,9}-\d\d-\d\d"
MOMENT = re.compile(
    rf"({DAY})[T ](\d\d:\d\d)(:\d\d)?(?:\.(\d{{1,9}}))? ?(?:(Z)|([+-]\d\d):?(\d\d)?)?".encode()
)
DATE = re.compile(rf"{DAY}(?: \d\d:\d\d:\d\d(?:\.\d+)?Z?)?".encode())
TIME = re.compile(rb"(\d\d:\d\d:\d\d)\.(\d{1,9})")
INTERVAL = re.compile(rb"([\[(])([^][(),]{1,60}), ([^][(),]{1,60})([\])])")
WEEKDAYS = (b"Mon", b"Tue", b"Wed", b"Thu", b"Fri", b"Sat", b"Sun")
MAX_POWER = 400  # of ten, of a decimal that is named by its digits
MAX_VALUE = 128  # bytes of a text that may be a number, a date or an interval
KNOWN = 1 << 12  # values whose names are remembered


class Unnamed(TypeError):
    """A value has no name; its text says why, with ``{}`` for the value."""


class Day(NamedTuple):
    """What is read of a date: days since 1970-01-01, and names of its year, month and so on."""

    days: int
    names: tuple[bytes, ...]


def canonical(raw: bytes) -> bytes:
    """Return the name of a value that is written as `raw`: the one place that decides it.

    Whole numbers have no point (``3.0``: ``3``), powers of ten are those of Python (``1e16``:
    ``1e+16``), truth values ``True`` and ``False``. A moment is ``2024-01-31 13:45:00.5``, without
    a time at midnight; one of a time zone is that of UTC, with ``Z``. The ends of an interval are
    such names. Any other text stays as it is.
    """
    return raw if len(raw) > MAX_VALUE else _name_of(raw)


@lru_cache(KNOWN)
def _name_of(raw: bytes) -> bytes:
    if raw in WORDS:
        return WORDS[raw]
    if found := WHOLE.fullmatch(raw):
        return found[1]
    if SMALL.fullmatch(raw):
        return repr(float(raw)).encode()
    if found := POWER.fullmatch(raw):
        number = repr(float(raw)).encode()
        usual = math.isfinite(float(raw)) and float(raw) != 0 and (found[1] or b"e" in number)
        return canonical(number) if usual and number != raw else raw
    if found := MOMENT.fullmatch(raw):
        return _moment(raw, found)
    if found := TIME.fullmatch(raw):
        return found[1] + _fraction(found[2])
    if found := INTERVAL.fullmatch(raw):
        first, low, high, last = found.groups()
        return first + canonical(low) + b", " + canonical(high) + last
    return raw


def _moment(raw: bytes, found: re.Match[bytes]) -> bytes:
    """Return the name of a date with a time; `raw` where there is no such date."""
    day, minutes, seconds, fraction, utc, hours, more = found.groups()
    shift = 0 if hours is None else 60 * int(hours) + int(hours[:1] + (more or b"0"))
    try:
        moment = np.datetime64((day + b"T" + minutes + (seconds or b":00")).decode(), "s")
    except ValueError:
        return raw
    text = str(moment - np.timedelta64(shift, "m")).replace("T", " ").encode()
    text += _fraction(fraction or b"")
    if utc or hours:
        return text + b"Z"
    return text.removesuffix(b" 00:00:00")


def _fraction(digits: bytes) -> bytes:
    digits = digits.rstrip(b"0")
    return b"." + digits if digits else b""


def day_of(raw: bytes) -> Day | None:
    """Return what is read of a date, perhaps with a time; None for what is none."""
    text = canonical(raw)
    return _day(text) if len(text) <= MAX_VALUE and DATE.fullmatch(text) else None


@lru_cache(KNOWN)
def _day(text: bytes) -> Day | None:
    try:
        moment = np.datetime64(text.rstrip(b"Z").partition(b".")[0].decode(), "s")
    except ValueError:
        return None
    days, seconds = divmod(int(moment.astype(np.int64)), 86400)
    months = int(moment.astype("M8[M]").astype(np.int64))
    parts = b"year=%d month=%d weekday=%s hour=%d" % (
        1970 + months // 12, months % 12 + 1, WEEKDAYS[(days + 3) % 7], seconds // 3600,
    )  # fmt: skip
    return Day(days, tuple(parts.split()))


def is_missing(value: object) -> bool:
    """Return whether a value stands for none: None, NaN, NaT, NA."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    kinds = float | np.floating | np.datetime64 | np.timedelta64 | decimal.Decimal
    return isinstance(value, kinds) and bool(value != value)  # noqa: PLR0124


def text_of(value: object) -> bytes | None:
    """Return the name of a value, text as it is; None where it is missing."""
    if isinstance(value, str | bytes):
        return (value.encode() if isinstance(value, str) else value) or None
    if is_missing(value):
        return None
    if isinstance(value, datetime.timedelta | np.timedelta64):
        raise Unnamed(NO_DURATION)
    if isinstance(value, bool | np.bool_):
        return TRUE if value else FALSE
    if isinstance(value, int | np.integer):
        return b"%d" % value
    if isinstance(value, decimal.Decimal) and value.is_finite():
        if not 0 <= int(value.as_tuple().exponent) < MAX_POWER:
            raise Unnamed(NO_DECIMAL)
        return b"%d" % int(value)
    if isinstance(value, np.datetime64):
        value = value + np.timedelta64(0, "s")  # months and days have a time then
    elif not (
        isinstance(value, numbers.Number | datetime.date | datetime.time | uuid.UUID)
        or type(value).__name__ in ("Period", "Interval")
    ):
        raise Unnamed(NO_TEXT)
    return canonical(str(value).encode())


def number_of(value: object) -> float:
    """Return a value as a number, NaN where it is missing, or raise ValueError or TypeError."""
    if isinstance(value, str | bytes):
        text = (value.encode() if isinstance(value, str) else value).strip()
        if not text:
            return math.nan
        try:
            if b"_" in text:
                raise ValueError
            return float(text)
        except ValueError:
            if text.capitalize() in (TRUE, FALSE):
                return float(text.capitalize() == TRUE)
            raise
    if is_missing(value):
        return math.nan
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, np.timedelta64):
        return float(value / np.timedelta64(1, "s"))
    if isinstance(value, np.floating):
        return float(str(value))  # of float32 what it is written as: 0.1
    if isinstance(value, numbers.Real | decimal.Decimal | np.bool_):
        return float(value)
    raise TypeError


def is_utf8(text: bytes) -> bool:
    """Return whether text is UTF-8."""
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
