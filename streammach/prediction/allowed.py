"""Which labels may be said of rows: some alone, or all but some. No score changes by that."""

from __future__ import annotations

import os
import warnings
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.conversion.memory_labels import find_lists
from streammach.inputs.label_arrays import label_name
from streammach.inputs.tables.values import canonical
from streammach.model.model import Model
from streammach.options.annotated import check_options
from streammach.options.model_spec import ModelSpec
from streammach.prediction.ranking import LISTED_BYTES, ClassScorer, Top
from streammach.rows.arrays import find_repeated
from streammach.rows.block import RowBlock
from streammach.rows.candidate_lists import CandidateLists
from streammach.rows.label_lists import LabelLists, places_of
from streammach.rows.names import MAX_NAME, NameIndex
from streammach.system.errors import BudgetError, DataError, UsageError, clean
from streammach.system.files.raw_text import text_lines
from streammach.system.machine import size_text

SHARE = 16  # a part of the classes below which each of them is scored for itself
SPARE = 32  # classes that are ranked beyond those that are expected to be needed
AT_A_TIME = 1 << 13  # labels that are looked for together
MOST_UNKNOWN = 1000  # labels that are counted and not known
LINE_BYTES = 64  # of a label of a file, beside its characters


SomeLabels = Sequence[Any] | NDArray[Any]  # for all rows, or a list for each row
LabelFile = SomeLabels | str | os.PathLike[str]  # or a file with one in each line


@dataclass(frozen=True)
class Allowed:
    """Which classes may be said of rows.

    A class is said by the label of another one where the model's labels were merged: both are one
    label then, which has the score of the better one.
    """

    classes: NDArray[np.bool_]  # bool (K,): those that may be said of any row
    says: NDArray[np.int32] | None = None  # int32 (K,): the class by whose label each is said
    only: LabelLists | None = None  # labels of each row that may be said alone, as class ids
    never: LabelLists | None = None  # labels of each row that may not be said

    @staticmethod
    def footprint(spec: ModelSpec, label_bytes: int, threads: int) -> int:
        """Return the bytes of what finds labels and marks classes, and of threads' scratch."""
        index = NameIndex.footprint(spec.n_classes, label_bytes)
        return index + spec.n_classes * (8 + 4 * threads) + LISTED_BYTES

    @property
    def n_classes(self) -> int:
        """Classes that may be said of any row."""
        return int(np.count_nonzero(self.classes))

    @cached_property
    def n_labels(self) -> int:
        """The labels by which they are said."""
        if self.says is None:
            return self.n_classes
        return len(np.unique(self.says[self.classes]))

    def n_to_rank(self, k: int) -> int:
        """Return how many of all classes are ranked for k labels; k where some are scored alone."""
        most = len(self.classes)
        if self.only is not None or SHARE * self.n_classes <= most:
            return k
        longest = 0 if self.never is None else int(self.never.lengths.max(initial=0))
        return min(2 * k * most // self.n_classes + min(longest, SPARE) + SPARE, most)

    def part(self, some: slice) -> Allowed:
        """Return what may be said of some of the rows."""
        if self.only is None and self.never is None:
            return self
        own = [None if lists is None else lists.part(some.start, some.stop)
               for lists in (self.only, self.never)]  # fmt: skip
        return replace(self, only=own[0], never=own[1])

    def best(self, rows: RowBlock, k: int, scorer: ClassScorer) -> Top:
        """Return the k best labels of each row and their scores, exactly; -1 for no more."""
        k, n, asked = min(k, self.n_labels), rows.n_rows, self.n_to_rank(k)
        if self.only is not None:
            return scorer.best_of_lists(rows, k, self._own(self.only))
        ids, scores = np.full((n, k), -1), np.zeros((n, k), np.float32)
        if SHARE * self.n_classes > len(self.classes):
            ids, scores = self.pack_best(*scorer.topk(rows, asked), k)
        if asked == len(self.classes):
            return ids, scores
        lacking = np.flatnonzero(ids[:, -1] < 0)
        # Classes of all rows are one list; a row with labels of its own is scored for itself.
        for some in lacking[None] if self.never is None else lacking[:, None]:
            if not len(some):
                continue
            own = self.part(slice(some[0], some[0] + 1))
            lists = own._common_list(len(some))
            ids[some], scores[some] = scorer.best_of_lists(rows.take(some), k, lists)
        return ids, scores

    def pack_best(
        self, ids: NDArray[np.int64], scores: NDArray[Any], k: int
    ) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Return the first k labels that may be said among ranked classes (n, m), and scores."""
        labels = ids if self.says is None else self.says[ids].astype(np.int64)
        right = self.classes[ids]
        if self.only is not None:
            right &= self.only.match(labels)
        if self.never is not None:
            right &= ~self.never.match(labels)
        if self.says is not None:  # a label is there once, where it is best
            right &= ~find_repeated(labels)
        first = np.argsort(~right, axis=1, kind="stable")[:, :k]
        there = np.take_along_axis(right, first, axis=1)
        found = np.where(there, np.take_along_axis(labels, first, axis=1), -1)
        own = np.where(there, np.take_along_axis(scores, first, axis=1), 0)
        lack = ((0, 0), (0, k - found.shape[1]))
        return np.pad(found, lack, constant_values=-1), np.pad(own, lack).astype(scores.dtype)

    def _common_list(self, n: int) -> CandidateLists:
        """Return the classes that may be said of each of n rows, which are one with `never`."""
        classes = np.flatnonzero(self.classes)
        labels = classes if self.says is None else self.says[classes]
        if self.never is not None:
            some = ~np.isin(labels, self.never.classes)
            classes, labels = classes[some], labels[some]
        return CandidateLists.repeat(n, classes, labels)

    def _own(self, only: LabelLists) -> CandidateLists:
        """Return the classes of each row's own labels that may be said."""
        lists = only
        if self.says is not None:
            order = np.argsort(self.says, kind="stable")
            starts = np.searchsorted(self.says[order], np.arange(len(self.says) + 1))
            ends, places = places_of(starts, only.classes.astype(np.int64))
            lists = LabelLists(ends[only.starts], order[places].astype(np.int32)).sort()
        labels = lists.classes if self.says is None else self.says[lists.classes]
        right, rows = self.classes[lists.classes], lists.rows
        if self.never is not None:
            k = len(self.classes)
            right &= ~np.isin(rows * k + labels, self.never.rows * k + self.never.classes)
        ends = np.cumsum([0, *np.bincount(rows[right], minlength=len(lists))])
        return CandidateLists(ends[:-1], ends[1:], lists.classes[right], labels[right])


class KnownLabels:
    """Finds a model's labels, and says which of its classes may be said."""

    def __init__(self, model: Model) -> None:
        self._model, says = model, model.says
        if says is None:
            self._every = Allowed(np.ones(model.spec.n_classes, np.bool_))
        else:
            own = np.flatnonzero(says >= 0)
            merged = (says[own] != own).any()
            self._every = Allowed(says >= 0, says if merged else None)
        # What may be said where nothing is asked for; None for all classes.
        self.usual = None if says is None else self._every

    @cached_property
    def _index(self) -> NameIndex:
        return self._model.labels.index()

    def limit_labels(
        self, only: SomeLabels | None, never: SomeLabels | None, n_rows: int | None = None, *,
        warned: bool = True, names: Mapping[Any, bytes] | None = None,
    ) -> Allowed | None:  # fmt: skip
        """Return what may be said of rows, so many if they may have lists; None without a limit.

        Labels that are not known are left out, and a warning names some of them if it is `warned`.
        `names` has the model's name of each label where it is called otherwise.

        Raises
        ------
        UsageError
            If the model knows none of the labels that alone may be said of all rows, or lists are
            not one for each row.
        """
        found = self._every
        for word, given in (("only", only), ("never", never)):
            if given is None:
                continue
            check_options({word: "SomeLabels"}, {word: given})
            rows = None if n_rows is None else find_lists(given)
            unknown: dict[str, None] = {}
            if rows is None:
                some = np.zeros(len(found.classes), np.bool_)
                some[self._ids(given, names, unknown)] = True
                own = some if found.says is None else some[np.maximum(found.says, 0)]
                found = replace(found, classes=found.classes & (own if word == "only" else ~own))
            elif len(rows) != n_rows:
                raise UsageError(f"{len(rows):,} lists of labels for {n_rows:,} rows: {word}")
            else:
                lists: Any = LabelLists.of([self._ids(row, names, unknown) for row in rows])
                found = replace(found, **{word: lists})
            if unknown and warned:
                _warn_unknown(word, unknown)
        if not found.n_classes:
            example = clean(self._model.labels[0], 60)
            hint = f"Its labels look like '{example}'."
            raise UsageError("no label that the model knows may be said: only, never", hint=hint)
        return self.usual if found is self._every else found

    def _ids(
        self, labels: SomeLabels, names: Mapping[Any, bytes] | None, unknown: dict[str, None]
    ) -> list[int]:
        """Return the ids by which labels are said; some of those that are not known are put aside.

        `names` has the model's name of each label where it is called otherwise.
        """
        left, found = iter(labels), np.zeros(0, np.int64)
        while some := [*islice(left, AT_A_TIME)]:
            raws = [label_name(label) for label in some]
            if names is not None:
                raws = [names.get(x, b"") if isinstance(x, Hashable) else b"" for x in some]
            ids = self._ids_of(raws)
            found = np.union1d(found, ids)
            for i in np.flatnonzero(ids < 0)[: MOST_UNKNOWN - len(unknown)].tolist():
                label = some[i]
                unknown[clean(label if isinstance(label, bytes) else str(label), 40)] = None
        known: list[int] = found[found >= 0].tolist()
        return known

    def _ids_of(self, raws: list[bytes]) -> NDArray[np.int64]:
        """Return the ids by which labels are said, -1 for one that is not known: int64 (n,)."""
        ids = np.asarray(self._index.ids(raws), np.int64)
        recipe, ways = self._model.recipe, [b"<%b>".__mod__]  # a URI may stand without its brackets
        if recipe is not None and recipe.label is not None:
            ways.append(canonical)  # as cells of tables are called
        for way in ways if (ids < 0).any() else ():
            ids = np.where(ids < 0, self._index.ids([way(raw) for raw in raws]), ids)
        says = self._model.says
        return ids if says is None else np.where(ids < 0, -1, says[ids])


def _warn_unknown(word: str, labels: Mapping[str, None]) -> None:
    some = ", ".join(f"'{label}'" for label in [*labels][:3])
    many = "1 label" if len(labels) == 1 else f"{len(labels):,} labels"
    many += " or more" if len(labels) == MOST_UNKNOWN else ""
    warnings.warn(f"the model does not know {many}, left out: {some}: {word}", stacklevel=3)


def labels_in(labels: LabelFile | None, most_bytes: int) -> tuple[Any, ...] | None:
    """Return labels, if any, or those of a file with one in each line, of at most so many bytes.

    Raises UsageError for a file without a label, DataError, DiskError or BudgetError.
    """
    if not isinstance(labels, str | os.PathLike):
        return None if labels is None else tuple(labels)
    found, n_bytes = list[bytes](), 0
    for lines in text_lines(labels):
        if max(map(len, lines), default=0) > MAX_NAME:
            long = max(lines, key=len)
            what = f"a label has more than {MAX_NAME:,} bytes: '{clean(long, 60)}'"
            raise DataError(what, path=labels)
        some = [*filter(None, dict.fromkeys(lines))]
        found += some
        n_bytes += bytes_of(some)
        if n_bytes > most_bytes:
            what = f"its labels take more than {size_text(most_bytes)}: --memory"
            raise BudgetError(what, path=labels, hint="Give more memory, or fewer labels.")
    if not found:
        raise UsageError("it holds no label", path=labels)
    return tuple(found)


def bytes_of(labels: Iterable[Any]) -> int:
    """Return the bytes of those that come from a file."""
    return sum(LINE_BYTES + len(label) for label in labels if isinstance(label, bytes))
