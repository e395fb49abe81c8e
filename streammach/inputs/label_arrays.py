"""Labels in an array, a matrix of rows x labels, or a file of their own."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.options.types import Multilabel
from streammach.rows.label_lists import LabelLists
from streammach.rows.layouts import are_lists, ends
from streammach.rows.names import MAX_NAME, Names
from streammach.system.errors import DataError, clean

MOST_LABELS = 2**31 - 1
ONE_LABEL = "Let --multilabel on or auto take them."
NO_LABEL = "the row has no label"
NOT_WHOLE = "label '{}' is not a whole number"
TOO_LONG = f"label '{{}}' has more than {MAX_NAME:,} bytes"
TEXT_KINDS = "SUTO"


@dataclass(frozen=True)
class Labels:
    """The labels of rows: one of each row, or a list of any number."""

    codes: NDArray[np.integer]  # (n,): place of each row's label among the names; or of all lists
    names: list[bytes] | None  # the distinct labels; None: their numbers, columns of a matrix
    # codes that are no label: the reason, and what stands there
    refused: dict[int, tuple[str, str]] = field(default_factory=dict)
    lists: LabelLists | None = None  # of codes; None where each row has one label
    # the type that labels in memory had: `bool`, `int`, `uint` (from 2^63 on), `float`, `str` or
    # `bytes`; of an indicator, whose columns are numbers, `int`
    kind: str = ""

    def __len__(self) -> int:
        return len(self.codes if self.lists is None else self.lists)

    @property
    def n_labels(self) -> int:
        """Labels of all rows where these have lists of them, else 0."""
        return 0 if self.lists is None else self.lists.n_labels

    def raws(self, codes: list[int]) -> list[bytes]:
        """Return labels by their codes."""
        names = self.names
        return [b"%d" % n for n in codes] if names is None else [names[n] for n in codes]

    @classmethod
    def of_lists(cls, lists: LabelLists, names: list[bytes] | None, kind: str = "") -> Labels:
        """Return lists of labels, by their codes."""
        return cls(lists.classes, names, lists=lists, kind=kind)

    @classmethod
    def of(cls, values: NDArray[Any], path: Path, what: str) -> Labels:
        """Return integers, whole floats or strings in an array (n,) or (n, 1), or DataError.

        Rows that a masked array masks have no label.
        """
        if isinstance(values, np.ma.MaskedArray):
            labels = cls.of(values.data, path, what)
            return labels.with_codes(np.where(np.ma.getmaskarray(values), -1, labels.codes))
        if values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]
        if values.ndim != 1:
            raise DataError(
                f"{clean(what)} has the shape {values.shape}, one label a row is expected",
                path=path,
                hint="Give class numbers or names; for one-hot rows: numpy.argmax(y, axis=1).",
            )
        if values.dtype.kind in TEXT_KINDS:
            return cls.of_texts([values.tolist()], path, what)
        if values.dtype.kind not in "biuf":
            raise DataError(
                f"{clean(what)} has the type {values.dtype}, labels are integers or strings",
                path=path,
            )
        # With counts it sorts a copy; with places it would sort a place of eight bytes for each.
        distinct = np.unique(values, return_counts=True)[0]
        refused = {}
        if distinct.dtype.kind == "f":
            whole = np.isfinite(distinct) & (np.floor(distinct) == distinct)
            odd = np.flatnonzero(~whole).tolist()
            refused = {i: (NOT_WHOLE, str(distinct[i])) for i in odd}
        names = [
            b"" if i in refused else str(int(x) if isinstance(x, float) else x).encode()
            for i, x in enumerate(distinct.tolist())
        ]
        return cls(np.searchsorted(distinct, values), names, refused)

    @classmethod
    def of_texts(cls, pieces: Iterable[list[Any]], path: Path, what: str) -> Labels:
        """Return strings, given by pieces, or DataError for something else."""
        places, codes = dict[bytes, int](), array("q")
        for value in chain.from_iterable(pieces):
            name = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
            if not isinstance(name, bytes):
                what = f"{clean(what)} holds '{clean(name, 40)}' at row {len(codes)}"
                what = f"{what} (counted from 0), labels are integers or strings"
                raise DataError(what, path=path)
            codes.append(places.setdefault(name, len(places)))
        empty = {i: (NO_LABEL, "") for name, i in places.items() if not name}
        long = {i: (TOO_LONG, clean(n, 60)) for n, i in places.items() if len(n) > MAX_NAME}
        return cls(np.array(codes, np.int64), list(places), {**empty, **long})

    @classmethod
    def of_groups(
        cls, codes: NDArray[Any], categories: NDArray[Any], path: Path, what: str
    ) -> Labels:
        """Return the labels of a categorical column, or raise DataError."""
        kinds = cls.of(categories, path, f"{what}/categories")
        whole = codes.dtype.kind in "iu"
        low, high = (int(codes.min()), int(codes.max())) if whole and codes.size else (0, -1)
        if not whole or codes.ndim != 1 or low < -1 or high >= len(kinds.codes):
            raise DataError(
                f"{clean(what)}/codes holds {low if low < -1 else high} ({codes.dtype}), there are "
                f"{len(kinds.codes):,} categories",
                path=path,
            )
        own = np.append(kinds.codes, -1)  # the last: missing
        return kinds.with_codes(own[codes.astype(np.int64)])

    def with_codes(self, codes: NDArray[np.int64]) -> Labels:
        """Return rows with these codes: int64 (n,), -1 for a row without label."""
        assert self.names is not None, "one label of each row"
        missing = len(self.names)
        return Labels(
            np.where(codes < 0, missing, codes).astype(np.int64),
            [*self.names, b""],
            {**self.refused, missing: (NO_LABEL, "")},
        )

    @classmethod
    def of_csr(
        cls, indptr: NDArray[Any], indices: NDArray[Any], data: NDArray[Any], path: Path, what: str
    ) -> Labels:
        """Return the labels in a CSR matrix of rows x labels, those whose value is not zero."""
        whole = indptr.dtype.kind in "iu" and indices.dtype.kind in "iu"
        fits = len(indptr) > 0 and len(indices) == len(data) and data.dtype.kind in "biuf"
        starts = indptr.astype(np.int64) if whole and fits else np.zeros(1, np.int64)
        if not (whole and fits and are_lists(starts, indices, MOST_LABELS)):
            raise DataError(f"{clean(what)} is not a matrix of rows x labels", path=path)
        with np.errstate(over="ignore", invalid="ignore"):
            weights = data.astype(np.float32)
        if not ((weights >= 0) & np.isfinite(weights)).all():
            what = f"{clean(what)} holds a value that is not a finite number of 0 or more"
            raise DataError(what, path=path)
        kept = weights > 0
        starts = ends(kept)[starts]
        some = None if (weights[kept] == 1).all() else weights[kept]
        return cls.of_lists(LabelLists(starts, indices[kept].astype(np.int32), some).sort(), None)

    @classmethod
    def of_dense(cls, values: NDArray[Any], path: Path, what: str) -> Labels:
        """Return the labels in an array of rows x labels; the rest as for :meth:`of_csr`."""
        rows, columns = np.nonzero(values)
        indptr = ends(np.bincount(rows, minlength=len(values)))
        return cls.of_csr(indptr, columns, values[rows, columns], path, what)

    def choose_form(self, multilabel: Multilabel, path: Path, what: str) -> Labels:
        """Return lists of labels, or one a row where all rows have one and it is not ``on``."""
        if self.lists is None:
            return self
        single = bool((self.lists.lengths == 1).all()) and self.lists.weights is None
        if multilabel == "on" or (multilabel == "auto" and not single):
            return self
        if not single:
            what = f"{clean(what)} has rows with several labels, or none"
            raise DataError(what, path=path, hint=ONE_LABEL)
        found, codes = np.unique(self.codes, return_inverse=True)
        return Labels(codes.astype(np.int64), self.raws(found.tolist()))


def raw_name(name: Any) -> bytes:
    """Return a name of any type as bytes."""
    return name if isinstance(name, bytes) else str(name).encode("utf-8", "surrogatepass")


def label_name(label: Any) -> bytes:
    """Return the name of a label: whole floats are called as integers are."""
    whole = isinstance(label, float | np.floating) and float(label).is_integer()
    return raw_name(int(label) if whole else label)


def column_names(names: Iterable[Any], n_columns: int, path: Path, what: str) -> Names:
    """Return the names of a matrix's columns, or raise DataError."""
    raws, wrong = [raw_name(name) for name in names], ""
    if len(raws) != n_columns:
        wrong = f"{len(raws):,} names for {n_columns:,} columns"
    for place, raw in enumerate(raws):
        if not wrong and not 0 < len(raw) <= MAX_NAME:
            wrong = f"name {place} (counted from 0) has {len(raw):,} bytes"
    if wrong:
        raise DataError(f"{clean(what)}: {wrong}", path=path)
    return Names.of(raws)
