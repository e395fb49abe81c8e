"""The features of a model by name, and single rows of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.rows.block import RowBlock
from streammach.rows.canonical import canonicalize, without_zeros
from streammach.rows.names import SEPARATOR, NameIndex, Names
from streammach.system.errors import DataError
from streammach.system.jit import Array, kernel

LONG_ROW = 512  # values from which on sorting them one by one is slow
HAT = bytes([SEPARATOR])
FEATURES = "features are ids, int (n,), or names, a list of str"


class KnownFeatures:
    """Finds features by name. What finds them is made at the first name, and kept."""

    def __init__(self, names: Names) -> None:
        self.names = names

    @cached_property
    def index(self) -> NameIndex:
        """What finds names."""
        return self.names.index()

    def ids_of(self, names: Names) -> NDArray[np.int32]:
        """Return ids int32 (n,) of features as listed or as a column was called; -1 for none."""
        return self._with_hats(self.index.ids_of(names), names.raw)

    def ids(self, names: Sequence[str | bytes]) -> NDArray[np.int32]:
        """Return the same of a list of str or bytes, or raise DataError if it is none."""
        try:
            ids = self.index.ids(_several(names))
        except (AttributeError, TypeError):
            raise DataError(FEATURES) from None
        return self._with_hats(ids, lambda i: _raw(names[i])) if ids.min(initial=0) < 0 else ids

    def row(self, features: Any, values: Any = None) -> RowBlock:
        """Return one row of features by id or name, without a label; unknown ones are left out."""
        ids = self._ids_of(features)
        m = len(ids)
        if values is None:
            held = np.ones(m, np.float32)
        else:
            try:
                held = np.asarray(values, np.float32)
            except (TypeError, ValueError):
                raise DataError("values are no numbers") from None
            if held.shape != ids.shape:
                raise DataError(f"values have the shape {held.shape}, ({m:,},) is expected")
        sorted_ids, sums = np.empty(m, np.int32), np.empty(m, np.float32)
        long = m > LONG_ROW
        n = lay_row(ids, held, len(self.names), long, sorted_ids, sums)
        if n < 0:
            place = -1 - n
            raise DataError(_wrong(int(ids[place]), float(held[place]), place, len(self.names)))
        block = RowBlock(
            indptr=np.array([0, n]), features=sorted_ids[:n], values=sums[:n],
            classes=np.full(1, -1, np.int32),
        )  # fmt: skip
        return canonicalize(block) if long else block

    def _ids_of(self, features: Any) -> NDArray[np.int64]:
        """Return the ids of features that were given as ids or by name: int64 (m,)."""
        if not isinstance(features, np.ndarray):
            features = list(_several(features))
            if features and isinstance(features[0], str | bytes):
                return self.ids(features).astype(np.int64)
            features = np.array(features) if features else np.empty(0, np.int64)
        elif features.ndim == 1 and features.dtype.kind in "OUS":
            return self.ids(features.tolist()).astype(np.int64)
        if features.ndim != 1 or features.dtype.kind not in "iu":
            raise DataError(FEATURES)
        found: NDArray[np.int64] = features.astype(np.int64)
        return found

    def _with_hats(self, ids: NDArray[np.int32], raw: Any) -> NDArray[np.int32]:
        """Find names of columns with a separator, which are listed with one before them."""
        left = [i for i in np.flatnonzero(ids < 0).tolist() if HAT in raw(i)]
        if left:
            ids[left] = self.index.ids([HAT + raw(i) for i in left])
        return ids


def _several(features: Any) -> Any:
    """Return features, or raise DataError for one name alone and for names with values."""
    if isinstance(features, str | bytes | Mapping):
        raise DataError(FEATURES, hint="Values of them come second.")
    return features


def _raw(name: str | bytes) -> bytes:
    return name if isinstance(name, bytes) else name.encode("utf-8", "surrogatepass")


def _wrong(feature: int, value: float, place: int, n_features: int) -> str:
    if not np.isfinite(value):
        return f"the value at {place:,} (counted from 0) is not a finite float32"
    return f"{feature:,} is no feature: the model has ids from 0 to {n_features - 1:,}"


@kernel(fastmath=False)  # fast math may take what is not finite for a number
def lay_row(
    ids: Array, values: Array, n_features: int, as_given: bool, features: Array, sums: Array
) -> Any:
    """Write a row by rising ids, values of a feature added up; return how many are not 0.

    Parameters
    ----------
    ids, values, n_features : int64 (m,), float32 (m,), int
        The row, -1 for features that are left out; d.
    as_given : bool
        Whether the features stay in their order, and none is added to another one.
    features, sums : int32 (m,), float32 (m,)
        Receive the row.

    Returns
    -------
    int64
        Instead, where an id is none or a value is not finite, -1 less its place.
    """
    n = np.int64(0)
    for p in range(ids.shape[0]):
        f, value = ids[p], values[p]
        if not -1 <= f < n_features or not np.isfinite(value):
            return -1 - p
        if f < 0:
            continue
        j = n
        while not as_given and j > 0 and features[j - 1] > f:
            j -= 1
        if not as_given and j > 0 and features[j - 1] == f:
            sums[j - 1] += value
            continue
        for q in range(n, j, -1):
            features[q], sums[q] = features[q - 1], sums[q - 1]
        features[j], sums[j] = f, value
        n += 1
    return without_zeros(features[:n], sums[:n])
