"""Namespaces of features: the part of a name before ``^``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streammach.errors import clean
from streammach.rows.names import SEPARATOR, Names

SHOWN_FEATURES = 20_000


def in_namespace(names: Names, namespace: bytes) -> NDArray[np.bool_]:
    """Return for each feature whether it belongs to a namespace: bool (d,)."""
    prefix = np.frombuffer(namespace + bytes([SEPARATOR]), np.uint8)
    starts = names.offsets[:-1]
    inside = np.diff(names.offsets) >= len(prefix)
    for k, byte in enumerate(prefix):
        inside[inside] &= names.data[starts[inside] + k] == byte
    return inside


def namespaces(names: Names, most: int = 40) -> list[str]:
    """Return the namespaces of the first features, sorted, for a message."""
    found: set[bytes] = set()
    for i in range(min(len(names), SHOWN_FEATURES)):
        head, separator, _ = names.raw(i).partition(bytes([SEPARATOR]))
        if separator and head:
            found.add(head)
    return [clean(name) for name in sorted(found)[:most]]


def namespace_ids(names: Names, most: int) -> NDArray[np.int32]:
    """Return a number for each feature's namespace: int32 (d,).

    0 stands for none. Namespaces are numbered in the order of their first features; the last
    number, `most`, is shared by all namespaces after the first ``most - 1``.
    """
    starts = names.offsets[:-1]
    separators = np.flatnonzero(names.data == SEPARATOR)
    after = np.append(separators, len(names.data))
    first = after[np.searchsorted(separators, starts)]
    ids = np.where((first < names.offsets[1:]) & (first > starts), most, 0).astype(np.int32)
    open_features = ids == most
    for number in range(1, most):
        feature = int(open_features.argmax()) if len(ids) else 0
        if not len(ids) or not open_features[feature]:
            break
        head = names.raw(feature).partition(bytes([SEPARATOR]))[0]
        inside = in_namespace(names, head)
        ids[inside] = number
        open_features &= ~inside
    return ids
