"""Labels that stand in an array or a file of their own."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.errors import DataError, clean
from streammach.files.reading import disk_error
from streammach.rows.names import MAX_NAME, Names

NO_LABEL = "the row has no label"
NOT_WHOLE = "label '{}' is not a whole number"
TOO_LONG = f"label '{{}}' has more than {MAX_NAME:,} bytes"
TEXT_KINDS = "SUTO"


@dataclass(frozen=True)
class Nullable:
    """A column of a table, as AnnData writes it: an array, or an array and a mask."""

    values: NDArray[Any]  # array (n,): numbers or strings
    missing: NDArray[Any] | None = None  # bool (n,), optional: which of them are missing

    @classmethod
    def of(cls, values: NDArray[Any], missing: NDArray[Any], path: Path, what: str) -> Nullable:
        """Return a column with its mask, or raise DataError.

        `values` and `missing` are array (n,), bool (n,).
        """
        if missing.shape != values.shape or missing.dtype.kind != "b":
            raise DataError(f"{clean(what, 60)}/mask does not fit", path=path)
        return cls(values, missing)

    @property
    def strings(self) -> NDArray[Any]:
        """The values; the empty string stands where one is missing."""
        if self.missing is None or not self.missing.any():
            return self.values
        filled = self.values.astype(object)
        filled[self.missing] = ""
        return filled


@dataclass(frozen=True)
class Labels:
    """The label of each row."""

    codes: NDArray[np.int64]  # int64 (n,): place of each row's label among the names
    names: list[bytes]  # the distinct labels
    # codes that are no label: the reason, and what stands there
    refused: dict[int, tuple[str, str]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.codes)

    def raws(self, codes: list[int]) -> list[bytes]:
        """Return labels by their codes."""
        return [self.names[code] for code in codes]

    @classmethod
    def of(cls, values: NDArray[Any], path: Path, what: str) -> Labels:
        """Return the labels in an array of integers, whole floats, or strings, or raise DataError.

        `values` is array (n,) or (n, 1).
        """
        if values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]
        if values.ndim != 1:
            raise DataError(
                f"{clean(what)} has the shape {values.shape}, one label a row is expected",
                path=path,
                hint="Give class numbers or names; for one-hot rows: numpy.argmax(y, axis=1).",
            )
        if values.dtype.kind in TEXT_KINDS:
            names, codes = _texts(values, path, what)
            return cls(codes, names, _refused_names(names))
        if values.dtype.kind not in "biuf":
            raise DataError(
                f"{clean(what)} has the type {values.dtype}, labels are integers or strings",
                path=path,
            )
        distinct, codes = np.unique(values, return_inverse=True)
        refused = {}
        if distinct.dtype.kind == "f":
            whole = np.isfinite(distinct) & (np.floor(distinct) == distinct)
            odd = np.flatnonzero(~whole).tolist()
            refused = {i: (NOT_WHOLE, str(distinct[i])) for i in odd}
        names = [
            b"" if i in refused else str(int(x) if isinstance(x, float) else x).encode()
            for i, x in enumerate(distinct.tolist())
        ]
        return cls(codes.astype(np.int64), names, refused)

    @classmethod
    def of_nullable(cls, column: Nullable, path: Path, what: str) -> Labels:
        """Return the labels of a column that may miss some; the rest as for :meth:`of`."""
        labels = cls.of(column.values, path, what)
        if column.missing is None:
            return labels
        return labels.taken(np.where(column.missing, -1, labels.codes))

    @classmethod
    def of_groups(
        cls, codes: NDArray[Any], categories: NDArray[Any], path: Path, what: str
    ) -> Labels:
        """Return the labels of a categorical column, or raise DataError.

        `codes` is integers (n,), `categories` is array (K,).
        """
        kinds = cls.of(categories, path, f"{what}/categories")
        whole = codes.dtype.kind in "iu"
        low, high = (int(codes.min()), int(codes.max())) if whole and codes.size else (0, -1)
        if not whole or codes.ndim != 1 or low < -1 or high >= len(kinds.codes):
            raise DataError(
                f"{clean(what)}/codes holds {low if low < -1 else high} ({codes.dtype}), there are "
                f"{len(kinds.codes):,} categories",
                path=path,
            )
        return kinds.taken(np.append(kinds.codes, -1)[codes.astype(np.int64)])  # the last: missing

    def taken(self, codes: NDArray[np.int64]) -> Labels:
        """Return rows with these codes: int64 (n,), of which -1 stands for a row without label."""
        missing = len(self.names)
        return Labels(
            np.where(codes < 0, missing, codes).astype(np.int64),
            [*self.names, b""],
            {**self.refused, missing: (NO_LABEL, "")},
        )


def column_names(values: NDArray[Any], n_columns: int, path: Path, what: str) -> Names:
    """Return the names of a matrix's columns, or raise DataError.

    `values` is array (n,).
    """
    raws = [
        v if isinstance(v, bytes) else str(v).encode("utf-8", "surrogatepass")
        for v in values.tolist()
    ]
    wrong = ""
    if len(raws) != n_columns:
        wrong = f"{len(raws):,} names for {n_columns:,} columns"
    for place, raw in enumerate(raws):
        if not wrong and not 0 < len(raw) <= MAX_NAME:
            wrong = f"name {place} (counted from 0) has {len(raw):,} bytes"
    if wrong:
        raise DataError(f"{clean(what)}: {wrong}", path=path)
    return Names.of(raws)


def _refused_names(names: list[bytes]) -> dict[int, tuple[str, str]]:
    """Return what is wrong with names that cannot be labels."""
    empty = {i: (NO_LABEL, "") for i, name in enumerate(names) if not name}
    long = {i: (TOO_LONG, clean(n, 60)) for i, n in enumerate(names) if len(n) > MAX_NAME}
    return {**empty, **long}


def _texts(values: NDArray[Any], path: Path, what: str) -> tuple[list[bytes], NDArray[np.int64]]:
    """Return the distinct strings as bytes, and the place of each row's among them."""
    places: dict[bytes, int] = {}
    codes = np.empty(len(values), np.int64)
    for i, value in enumerate(values.tolist()):
        name = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
        if not isinstance(name, bytes):
            raise DataError(
                f"{clean(what)} holds '{clean(name, 40)}' at row {i} (counted from 0), "
                "labels are integers or strings",
                path=path,
            )
        codes[i] = places.setdefault(name, len(places))
    return list(places), codes


def text_labels(path: Path) -> NDArray[Any]:
    """Return the lines of a text file, one label each, as bytes, or raise DiskError."""
    try:
        lines = path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n")
    except OSError as error:
        raise disk_error(error, path) from error
    if not lines[-1]:
        lines.pop()
    out = np.empty(len(lines), object)
    out[:] = [line.strip() for line in lines]
    return out
