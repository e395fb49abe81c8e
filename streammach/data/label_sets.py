"""Labels that stand in a matrix of rows x labels: each row has those whose value is not zero."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.data.label_arrays import Labels
from streammach.errors import DataError, clean
from streammach.rows.label_lists import LabelLists
from streammach.spec.types import Multilabel

MOST_LABELS = 2**31 - 1
ONE_LABEL = "Let --multilabel on or auto take them."


@dataclass(frozen=True)
class LabelSets:
    """The labels of each row."""

    lists: LabelLists  # numbers of labels, which are their names: columns of the matrix

    def __len__(self) -> int:
        return len(self.lists)

    def raws(self, numbers: list[int]) -> list[bytes]:
        """Return the names of labels by their numbers."""
        return [b"%d" % number for number in numbers]

    @classmethod
    def of_csr(
        cls,
        indptr: NDArray[Any],
        indices: NDArray[Any],
        data: NDArray[Any],
        path: Path,
        what: str,
    ) -> LabelSets:
        """Return the labels in a matrix of compressed sparse rows; a stored zero is none.

        `indptr` and `indices` and `data` are integers (n + 1,), integers (m,), numbers (m,).
        """
        kinds = (indptr.dtype.kind, indices.dtype.kind, data.dtype.kind)
        sound = kinds[0] in "iu" and kinds[1] in "iu" and kinds[2] in "biuf" and len(indptr) > 0
        if sound:
            ends = indptr.astype(np.int64)
            rising = ends[0] == 0 and ends[-1] == len(indices) and (np.diff(ends) >= 0).all()
            low, high = (int(indices.min()), int(indices.max())) if len(indices) else (0, 0)
            sound = bool(rising) and len(indices) == len(data) and 0 <= low <= high < MOST_LABELS
        if not sound:
            raise DataError(f"{clean(what)} is not a matrix of rows x labels", path=path)
        with np.errstate(over="ignore", invalid="ignore"):
            weights = data.astype(np.float32)
        if not ((weights >= 0) & np.isfinite(weights)).all():
            what = f"{clean(what)} holds a value that is not a finite number of 0 or more"
            raise DataError(what, path=path)
        kept = weights > 0
        starts = np.concatenate([[0], np.cumsum(kept)])[ends]
        some = None if (weights[kept] == 1).all() else weights[kept]
        return cls(LabelLists(starts, indices[kept].astype(np.int32), some).sorted())

    @classmethod
    def of_dense(cls, values: NDArray[Any], path: Path, what: str) -> LabelSets:
        """Return the labels in an array of rows x labels; the rest as for :meth:`of_csr`."""
        rows, columns = np.nonzero(values)
        indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(values)))])
        return cls.of_csr(indptr, columns, values[rows, columns], path, what)

    def asked(self, multilabel: Multilabel, path: Path, what: str) -> Labels | LabelSets:
        """Return the labels as lists, or one a row where all rows have one and it is not ``on``."""
        single = bool((self.lists.lengths == 1).all()) and self.lists.weights is None
        if multilabel == "on" or (multilabel == "auto" and not single):
            return self
        if not single:
            what = f"{clean(what)} has rows with several labels, or none"
            raise DataError(what, path=path, hint=ONE_LABEL)
        found, codes = np.unique(self.lists.classes, return_inverse=True)
        return Labels(codes.astype(np.int64), self.raws(found.tolist()))


@dataclass(frozen=True)
class NamedSets(LabelSets):
    """The labels of each row, by names."""

    names: list[bytes]  # the name of each label

    def raws(self, numbers: list[int]) -> list[bytes]:
        """Return the names of labels by their numbers."""
        return [self.names[number] for number in numbers]
