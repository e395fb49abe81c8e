"""What is reached for each class, as a table too, and for each value of a namespace."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.inputs.label_arrays import raw_name
from streammach.options.reported import FigureTable
from streammach.prediction.metrics import IdCounts
from streammach.prediction.output import NUMBER, CsvOutput, Delimited, TextOutput
from streammach.prediction.ranked_rows import RankedRows
from streammach.rows.names import SEPARATOR, Label, Names, in_namespace, namespaces
from streammach.system.errors import UsageError, clean
from streammach.system.files.destinations import known_by_mark

EXAMPLES = 3  # rows that are named of each class
MOST_PAIRS = 1 << 19  # of classes that are told apart; where there are more, rare ones are left out
WAITING = 1 << 16  # pairs that are collected before they are counted
PAIR_BYTES = 96  # of either, with the work of counting them
EACH_BYTES = 20 + 8 * EXAMPLES  # of a class: its probabilities, how often it is said, its examples
FREQUENT, WORST = 10, 5  # values of a namespace that are told of
LEAST_ROWS = 20  # of a value that may be among the worst
UNIT = 1 << 32  # probabilities are added up as whole numbers of 1 / UNIT, which have no order
PIECE_CLASSES = 1 << 14  # that are written at a time
COLUMNS = ("label", "rows", "predicted", "precision", "recall", "f1", "probability", "confusion",
           "share", "examples")  # fmt: skip
TITLES = ("title", "confusion_title")  # behind these where the model has titles
HEADING = ",".join(COLUMNS)
CSV, TABLE = CsvOutput(), known_by_mark(HEADING, "streammach did not make it")


@dataclass(frozen=True, kw_only=True)
class Confusion:
    """Rows of one class that are taken for another one."""

    label: Label  # label, predicted: the true one; what is predicted in its place
    predicted: Label
    n_rows: int  # such rows
    share: float  # of the rows with the true one
    # what both are called in words; empty where the model does not know it
    title: str = ""
    predicted_title: str = ""

    @property
    def label_texts(self) -> tuple[Label, Label]:
        """Both labels as people read them."""
        return self.title or self.label, self.predicted_title or self.predicted


class PairCounts:
    """How often each pair of classes occurs.

    The most frequent ones stay where there are too many pairs. That depends on nothing but the
    order of the rows.
    """

    def __init__(self) -> None:
        none = np.zeros(0, np.int64)
        self._counts, self.n_left_out = IdCounts(none, none), 0  # rows of pairs that went
        self._waiting, self._n_waiting = np.empty(WAITING, np.int64), 0

    def take(self, more: NDArray[np.int64]) -> None:
        """Count pairs, numbers int64 (n,)."""
        while len(more):
            some, more = np.split(more, [WAITING - self._n_waiting])
            self._waiting[self._n_waiting : self._n_waiting + len(some)] = some
            self._n_waiting += len(some)
            if self._n_waiting == WAITING:
                self.counts()

    def counts(self) -> IdCounts:
        """Return how often each pair occurs."""
        ids, n = self._counts.plus(IdCounts.of(self._waiting[: self._n_waiting]))
        self._n_waiting = 0
        if len(ids) > MOST_PAIRS:
            top = np.sort(np.argsort(-n, kind="stable")[: MOST_PAIRS // 2])
            self.n_left_out += int(n.sum() - n[top].sum())
            ids, n = ids[top], n[top]
        self._counts = IdCounts(ids, n)
        return self._counts


class EachClass:
    """What rows add up to for each class, and what is reached for it."""

    def __init__(self, names: Names, titles: Names | None = None) -> None:
        n = len(names)
        self.names, self.titles, self._confused = names, titles, PairCounts()
        self.p, self._has_p = np.zeros(n, np.int64), False  # its probabilities in `UNIT`
        self.examples = np.zeros((n, EXAMPLES), np.int64)  # rows that miss it, from 1; 0 for none
        # int (K,): rows with it, rows for which it is predicted, and both; known in the end
        self.rows: NDArray[Any] = np.zeros(n, np.int64)
        self.predictions = self.hits = self.rows

    @staticmethod
    def footprint(n_classes: int) -> int:
        """Return the bytes that so many classes take beside an evaluation without them."""
        return EACH_BYTES * n_classes + PAIR_BYTES * (min(MOST_PAIRS, n_classes**2) + WAITING)

    @staticmethod
    def count(rows: RankedRows, threshold: float) -> dict[str, Any]:
        """Return what the labels of a block's rows add, of those that training saw."""
        lists, best, (ids, said, hits) = rows.block.lists, rows.best, rows.predict_labels(threshold)
        known, n = lists.classes >= 0, len(rows.model.labels)
        own, classes = lists.rows[known], lists.classes[known]
        # Labels rise within a row, so that these numbers rise.
        hits = hits & (ids >= 0)
        place = np.searchsorted(own * n + classes, np.nonzero(hits)[0] * n + ids[hits])
        misses = np.ones(len(classes), np.bool_)
        misses[place] = ~said[hits]
        others = ~lists.match(best)
        first = np.where(others.any(axis=1), best[np.arange(len(best)), others.argmax(axis=1)], -1)
        wrong = first[own]  # the best class that is none of the row's
        some = misses & (wrong >= 0)
        missed, numbers = classes[misses], rows.numbers[own][misses] + 1
        order = np.argsort(missed, kind="stable")
        order = order[_places(missed[order]) < EXAMPLES]
        sums: dict[str, Any] = {
            "pairs": classes[some].astype(np.int64) * n + wrong[some],
            "examples": (missed[order], numbers[order]),
        }
        if rows.calibrated:
            p = np.zeros(len(classes)) if rows.multilabel else np.exp(rows.logs)
            if rows.multilabel:
                p[place] = rows.p[hits]
            sums["p"] = IdCounts.of(classes, np.rint(p * UNIT).astype(np.int64))
        return sums

    def take(self, more: Mapping[str, Any]) -> None:
        """Add what a block adds; the rows that come first are examples."""
        self._confused.take(more["pairs"])
        classes, rows = more["examples"]
        place = _places(classes) + np.count_nonzero(self.examples[classes], axis=1)
        free = place < EXAMPLES
        self.examples[classes[free], place[free]] = rows[free]
        if "p" in more:
            self.p[more["p"].ids] += more["p"].n
            self._has_p = True

    @cached_property
    def pairs(self) -> IdCounts:
        """How often a class (times K) is missed and another one predicted in its place."""
        return self._confused.counts()

    @property
    def n_left_out(self) -> int:
        """Rows of rare pairs, which are left out where there are too many."""
        return self._confused.n_left_out

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def ids(self) -> NDArray[np.int64]:
        """The classes that occur or are predicted, frequent ones of training first: int64 (m,)."""
        return np.flatnonzero((self.rows > 0) | (self.predictions > 0))

    def confusion(self, ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return what is said most often in the place of classes, -1 for none, and how often."""
        true, other, n = self._top
        some = np.isin(ids, true)
        place, top = np.searchsorted(true, ids[some]), np.full((2, len(ids)), [[-1], [0]], np.int64)
        top[:, some] = other[place], n[place]
        return top[0], top[1]

    @cached_property
    def _top(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        true, other = np.divmod(self.pairs.ids, len(self.names))
        order = np.lexsort((other, -self.pairs.n, true))
        true, first = np.unique(true[order], return_index=True)
        return true, other[order[first]], self.pairs.n[order[first]]

    def figures(self, ids: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """Return the numbers of some classes by the names of their columns: (m,) each."""
        n, m, hits = (x[ids].astype(np.int64) for x in (self.rows, self.predictions, self.hits))
        p, some = self.p[ids] / UNIT if self._has_p else np.nan, np.maximum(n, 1)
        return {
            "rows": n, "predicted": m, "precision": hits / np.maximum(m, 1), "recall": hits / some,
            "f1": 2 * hits / np.maximum(n + m, 1),
            "probability": np.where(n > 0, p / some, np.nan),
            "share": self.confusion(ids)[1] / some,
        }  # fmt: skip

    def table(self, ids: NDArray[np.int64] | None = None) -> FigureTable:
        """Return some classes as a table, or all that occur or are predicted."""
        own = self.ids if ids is None else ids
        other, labels = self.confusion(own)[0], np.full(len(own), None, object)
        labels[other >= 0] = self.names.values(other[other >= 0])
        cells = {name: values.tolist() for name, values in self.figures(own).items()}
        cells["label"], cells["confusion"] = self.names.values(own), labels.tolist()
        cells["examples"] = [
            [row - 1 for row in rows if row] for rows in self.examples[own].tolist()
        ]
        cells |= dict(zip(TITLES, map(self._titles, (own, other)), strict=True))
        return FigureTable({name: cells[name] for name in self.columns})

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the table's columns."""
        return COLUMNS if self.titles is None else COLUMNS + TITLES

    def _titles(self, ids: NDArray[np.int64]) -> list[str]:
        """Return the titles of classes, empty for those without one and for -1."""
        if self.titles is None:
            return [""] * len(ids)
        raws = self.titles.raws(np.maximum(ids, 0))
        return [
            raw.decode("utf-8", "backslashreplace") if i >= 0 else ""
            for i, raw in zip(ids.tolist(), raws, strict=True)
        ]

    def csv(self) -> Iterator[bytes]:
        """Yield the table as comma-separated text; figures that are not known are empty."""
        pieces = (self.ids[i : i + PIECE_CLASSES] for i in range(0, len(self), PIECE_CLASSES))
        return table_text(CSV, self.columns, map(self.table, pieces))

    def confusions(self, most: int) -> tuple[Confusion, ...]:
        """Return the most frequent confusions, so many at most."""
        order = np.lexsort((self.pairs.ids, -self.pairs.n))[:most]
        n, pairs = self.pairs.n[order], np.divmod(self.pairs.ids[order], len(self.names))
        labels, share = [self.names.values(own) for own in pairs], n / self.rows[pairs[0]]
        return tuple(
            Confusion(label=a, predicted=b, n_rows=rows, share=own, title=c, predicted_title=d)
            for a, b, c, d, rows, own in zip(
                *labels, *map(self._titles, pairs), n.tolist(), share.tolist(), strict=True
            )
        )


def _places(classes: NDArray[Any]) -> NDArray[np.int64]:
    """Return the place of each one among those of its class, which come together: int64 (n,)."""
    return np.arange(len(classes)) - np.searchsorted(classes, classes)


def table_text(
    form: TextOutput, columns: Sequence[str], pieces: Iterable[FigureTable]
) -> Iterator[bytes]:
    """Yield the pieces of a table as text in a format of predictions."""
    if isinstance(form, Delimited):
        yield form.delimiter.join(columns).encode() + b"\n"
    for piece in pieces:
        lines = zip(*piece.values(), strict=True)
        yield "".join(_line(form, columns, line) + "\n" for line in lines).encode()


def _line(form: TextOutput, columns: Sequence[str], cells: tuple[Any, ...]) -> str:
    if isinstance(form, Delimited):
        return form.delimiter.join(_cell(x, form) for x in cells)
    own = [float(NUMBER % x) if isinstance(x, float) else x for x in cells]
    return json.dumps(dict(zip(columns, own, strict=True)))


def _cell(value: Any, form: Delimited) -> str:
    """Return a figure or a label as it stands in a table; what is not known is empty."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float):
        return NUMBER % value
    return " ".join(map(str, value)) if isinstance(value, list) else form.cell(raw_name(value))


@dataclass(frozen=True, kw_only=True)
class Slice:
    """The rows that have a value."""

    # the feature without its namespace; empty for rows that have none which the model knows
    value: str
    n_rows: int  # rows
    # accuracy, error: share of them whose best class is their label, and its standard error
    accuracy: float
    error: float


@dataclass(frozen=True, kw_only=True)
class Slices:
    """Rows by the first feature that they have of a namespace."""

    by: str  # the namespace, or the column of a table
    n_values: int  # values that occur
    without: Slice | None  # rows without any value that the model knows; None where all have one
    frequent: tuple[Slice, ...]  # the ten most frequent values
    # the five values of the lowest accuracy, of those with 20 rows or more
    worst: tuple[Slice, ...]


class NamespaceValues:
    """Counts rows, and right ones, by the first feature that they have of a namespace."""

    def __init__(self, features: Names, by: str) -> None:
        self._features, self._by = features, by
        self._inside = in_namespace(features, by.encode())
        self._own = np.flatnonzero(self._inside)
        if not len(self._own):
            known = ", ".join(namespaces(features)) or "none"
            what = f"no feature of the model is in the namespace {clean(by)}: --by"
            raise UsageError(what, hint=f"There are: {known}.")
        # rows and right ones of each value, those without any last
        self._counts = np.zeros((len(self._own) + 1, 2), np.int64)

    def count(self, rows: RankedRows) -> IdCounts:
        """Return how many rows there are by value, and of how many the best class is right."""
        first = rows.block.first_in(self._inside)
        group = np.where(first < 0, len(self._own), np.searchsorted(self._own, first))
        right = rows.block.lists.match(rows.best[:, :1])[:, 0]
        return IdCounts.of(group, np.stack([np.ones_like(group), right], axis=1))

    def take(self, more: IdCounts) -> None:
        """Add what a block adds."""
        self._counts[more.ids] += more.n

    def slices(self) -> Slices:
        """Return the shares of all rows, those of the most frequent and of the worst values."""
        n, right = self._counts[:-1].T
        some = np.flatnonzero(n)
        frequent = some[np.lexsort((some, -n[some]))][:FREQUENT]
        many = some[n[some] >= LEAST_ROWS]
        worst = many[np.lexsort((many, -n[many], right[many] / n[many]))][:WORST]
        return Slices(
            by=self._by, n_values=len(some),
            without=self._slice(-1) if self._counts[-1, 0] else None,
            frequent=tuple(self._slice(i) for i in frequent.tolist()),
            worst=tuple(self._slice(i) for i in worst.tolist()),
        )  # fmt: skip

    def _slice(self, place: int) -> Slice:
        n, right = self._counts[place].tolist()
        share = right / n
        name = self._features.raw(int(self._own[place])) if place >= 0 else b""
        value = name.partition(bytes([SEPARATOR]))[2].decode("utf-8", "replace")
        return Slice(value=value, n_rows=n, accuracy=share, error=(share * (1 - share) / n) ** 0.5)
