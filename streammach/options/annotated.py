"""Whether options are of the types that their functions and records name."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from functools import partial
from numbers import Integral, Real
from typing import Any

import numpy as np

from streammach.options.option_fields import check_declared
from streammach.system.errors import UsageError, clean, type_name

MOST_BITS = 64  # of a whole number
MOST_THREADS = 1 << 12
CLASSES = (
    "Allowed", "BadRows", "Clock", "Constraints", "Dataset", "InputCounts", "Layout", "ProgressBar",
    "Room", "SourceOptions", "Start", "StopSignals", "TableOptions", "TrainingOptions",
)  # fmt: skip


def _whole(value: Any) -> bool:
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    return whole and int(value).bit_length() <= MOST_BITS


def _number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _path(value: Any) -> bool:
    return isinstance(value, str | os.PathLike)


def _several(value: Any, is_one: Callable[[Any], bool]) -> bool:
    there = isinstance(value, Collection) and not isinstance(value, str | bytes)
    return there and all(map(is_one, value))


def _paths(value: Any) -> bool:
    if _path(value) or not _several(value, _path):
        return _path(value)
    return not (isinstance(value, Mapping) or hasattr(value, "columns"))  # names of columns


def _list(value: Any) -> bool:
    return _several(value, lambda one: True)


def _of_class(value: Any, name: str) -> bool:
    return any(one.__name__ == name for one in type(value).mro())


def _truth(value: Any) -> bool:
    return isinstance(value, int | np.bool_) and value in (0, 1)


# By the words of annotations: what a value has to be, and what that is called. Of other words
# nothing is checked here, nor of sizes and times, which have readers of their own.
TYPES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "None": (lambda value: value is None, ""),
    "bool": (_truth, "True or False"),
    "int": (_whole, "whole number"),
    "float": (_number, "number"),
    "str": (lambda value: isinstance(value, str), "text"),
    "os.PathLike[str]": (_path, "path"),
    "Paths": (_paths, "path or paths"),
    "Sequence[str]": (lambda value: _several(value, TYPES["str"][0]), "texts"),
    "Sequence[int]": (lambda value: _several(value, _whole), "whole numbers"),
    "Sequence[object]": (_list, "list"),
    "Sequence[Label]": (_list, "list"),
    "SomeLabels": (_list, "list"),
    "LabelFile": (lambda value: _path(value) or _list(value), "list or path"),
    "Mapping[str, Any]": (lambda value: isinstance(value, Mapping), "dict"),
    "ClassWeights": (lambda value: _path(value) or isinstance(value, Mapping), "dict or path"),
    "Wanted": (
        lambda value: value is None or isinstance(value, str) or _truth(value) or callable(value),
        "word, True, False or function",
    ),
    "tuple[float, float]": (lambda value: _several(value, _number) and len(value) == 2, "pair"),
    **{word: (partial(_of_class, name=word), word) for word in CLASSES},
}
QUANTITIES = ({"str", "int"}, {"str", "float"})


def check_options(types: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Raise UsageError for a value that is of none of the types that its annotation names."""
    for name, annotation in types.items():
        words = str(annotation).split(" | ")
        if (
            name not in given
            or {*words} - TYPES.keys()
            or any(kind <= {*words} for kind in QUANTITIES)
        ):
            continue
        value, known = given[name], [TYPES[word] for word in words]
        if not any(is_one(value) for is_one, _ in known):
            wanted = " or ".join(said for _, said in known if said)
            plain = value is None or isinstance(value, str | bytes | os.PathLike | Real)
            shown = clean(value, 40) if plain else type_name(value)
            raise UsageError(f"'{shown}' is no {wanted}: {name}")
        if name == "threads" and value is not None and value > MOST_THREADS:
            raise UsageError(f"{value:,} threads are more than {MOST_THREADS:,}: --threads")


def check_record(record: Any) -> None:
    """Let numbers in a record be those that JSON gives back; UsageError for odd values.

    They are Python's, not NumPy's, and a whole one is a float where fractions are taken. What its
    options declare of words and ranges holds, too.
    """
    types = {one.name: one.type for one in fields(record)}
    for name in types:
        value = getattr(record, name)
        if isinstance(value, np.generic):
            object.__setattr__(record, name, value.item())
    check_options(types, vars(record))
    for name, annotation in types.items():
        value = getattr(record, name)
        if isinstance(value, int) and annotation in ("float", "float | None"):
            object.__setattr__(record, name, float(value))
    check_declared(record)
