"""Records as JSON documents, which are strict where they come in."""

from __future__ import annotations

import json
import math
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def encode_json(value: Any) -> bytes:
    """Return the value as JSON in one line."""
    return msgspec.json.encode(value)


def to_json(value: Any) -> bytes:
    """Return the value as indented JSON."""
    return msgspec.json.format(encode_json(value), indent=1) + b"\n"


def from_json(text: bytes, kind: type[T]) -> T:
    """Return the value of a JSON document, or raise ValueError."""
    try:
        document = json.loads(
            text, object_pairs_hook=_unique, parse_constant=_refuse, parse_float=_finite
        )
        return msgspec.convert(document, kind)
    except (UnicodeDecodeError, json.JSONDecodeError, msgspec.ValidationError) as error:
        raise ValueError(str(error)) from None
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise ValueError("the JSON repeats a key")
    return out


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the JSON holds {text[:20]}")
    return value


def _refuse(constant: str) -> None:
    raise ValueError(f"the JSON holds {constant}")
