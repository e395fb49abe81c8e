"""Rows whose labels may be wrong: what a model that did not learn from them says instead."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammach.data.store.dataset import Dataset
from streammach.errors import UsageError
from streammach.files.destinations import Product, told_by_start
from streammach.model.calibration import CANDIDATES, class_probabilities, label_probabilities
from streammach.prediction.allowed import Allowed
from streammach.prediction.output import NUMBER, Delimited, TextOutput
from streammach.prediction.predict import output_of
from streammach.prediction.predictor import Predictor
from streammach.rows.arrays import keys
from streammach.rows.block import RowBlock
from streammach.rows.names import SEPARATOR, Names
from streammach.spec.reported import FigureTable

COLUMNS = ("row", "label", "suggestion", "probability", "suggested_probability", "log_odds",
           "reason", "duplicates", "group")  # fmt: skip
DUPLICATE, MODEL = "duplicate", "model"
STREAM = 6  # of hashes of rows
UNLABELLED = 0.5  # stands for the probability of the label, where a row has none
LEAST = 1e-12  # of a probability whose odds are told
PIECE = 1 << 14  # rows that are written at a time
HASH_VALUES = 1 << 20  # values that are hashed at a time, about


class Doubts(NamedTuple):
    """What a model says of rows that it did not learn from: (n,) each."""

    labels: NDArray[np.int32]  # each row's label, of several the weakest one; -1 for none
    others: NDArray[np.int32]  # the best class that is none of its labels, -1 for none
    p: NDArray[np.float32]  # probabilities of both
    p_others: NDArray[np.float32]
    odds: NDArray[np.float32]  # ln of the odds of the other one against the label

    @classmethod
    def none(cls, n: int) -> Doubts:
        """Return room for n rows."""
        ids, p = np.full((2, n), -1, np.int32), np.zeros((3, n), np.float32)
        return cls(ids[0], ids[1], *p)

    def take(self, rows: NDArray[np.int64]) -> Doubts:
        """Return what is said of some rows: int64 (m,)."""
        labels, others, *p = self
        return Doubts(labels[rows], others[rows], *(own[rows] for own in p))

    def put(self, rows: NDArray[np.int64], more: Doubts) -> None:
        """Note what is said of some rows."""
        for own, new in zip(self, more, strict=True):
            own[rows] = new


def doubts_of(predictor: Predictor, block: RowBlock, seen: NDArray[np.bool_]) -> Doubts:
    """Return what a model says of rows and their labels.

    Odds are those of scores as they are calibrated, ``beta (S_other - S_label)``: among classes
    that share what is left, too. They are 0 where training had `seen`, bool (K,), no label of the
    row, and those against 0.5 where a row has no label.
    """
    model, lists = predictor.model, block.lists
    map_, n, longest = model.calibration, np.arange(block.n_rows), int(lists.lengths.max(initial=1))
    ids, scores = predictor.topk_ids(block, max(CANDIDATES, longest + 1), model.calibrated)
    own, own_scores = predictor.ranked(
        block, longest, model.calibrated, allowed=Allowed(seen, only=lists)
    )
    hits, last = lists.matched(ids), (own >= 0).sum(axis=1) - 1
    labels = np.where(last < 0, block.classes, own[n, last])
    first, all_own = (~hits).argmax(axis=1), hits.all(axis=1)
    if model.listed:
        probable = label_probabilities(scores, map_)
        p = label_probabilities(own_scores, map_, scores)[n, last]
    else:
        probable, left = class_probabilities(scores, model.n_labels, map_)
        p = np.where(hits.any(axis=1), (probable * hits).sum(axis=1), left)
    p_others = np.where(all_own, 0, probable[n, first])
    odds = np.where(last < 0, 0, map_.beta * (scores[n, first] - own_scores[n, last]))
    empty, clear = lists.lengths == 0, np.clip(p_others, LEAST, 1 - LEAST)
    odds = np.where(all_own, 0, np.where(empty, np.log(clear / (1 - clear)), odds))
    return Doubts(
        labels.astype(np.int32), np.where(all_own, -1, ids[n, first]).astype(np.int32),
        np.where(empty, UNLABELLED, p).astype(np.float32), p_others.astype(np.float32),
        odds.astype(np.float32),
    )  # fmt: skip


def duplicates(dataset: Dataset) -> NDArray[np.int32]:
    """Return of each row how many with its features have one other label: int32 (n,).

    They are told where they are most of all rows with its features; it is 0 elsewhere, and for
    rows without features. Rows are compared by hashes of 64 bits of features and values, and a list
    of labels is one label.
    """
    n = dataset.n_rows
    rows, labels = np.empty(n, np.uint64), np.empty(n, np.uint64)
    step = max(1, min(dataset.facts.block_rows, HASH_VALUES * n // max(dataset.nnz, 1)))
    for start in range(0, n, step):
        stop = min(start + step, n)
        block = dataset.rows(start, stop)
        lists = block.lists
        bits = block.values.astype(np.float32).view(np.uint32)
        rows[start:stop] = _sums(block.indptr, keys(STREAM, block.features, bits))
        labels[start:stop] = _sums(lists.starts, keys(STREAM, lists.classes))
        empty = start + np.flatnonzero(np.diff(block.indptr) == 0)
        rows[empty] = keys(STREAM, STREAM, empty)
    return outvoted(rows, labels)


def _sums(starts: NDArray[np.int64], hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the sum of the hashes of each row, modulo 2^64: uint64 (n,)."""
    ends = np.concatenate([np.zeros(1, np.uint64), np.cumsum(hashes, dtype=np.uint64)])
    sums: NDArray[np.uint64] = np.diff(ends[starts])
    return sums


def outvoted(rows: NDArray[np.uint64], labels: NDArray[np.uint64]) -> NDArray[np.int32]:
    """Return :func:`duplicates` by what rows and their labels are told by: uint64 (n,) both."""
    order = np.lexsort((labels, rows))
    new_row = np.diff(rows[order], prepend=~rows[order[:1]]) != 0
    new = new_row | (np.diff(labels[order], prepend=labels[order[:1]]) != 0)
    votes = np.flatnonzero(new)  # where rows with the same features and labels start
    counts = np.diff(np.append(votes, len(order)))
    groups = np.flatnonzero(new_row[votes])
    sizes = np.diff(np.append(groups, len(votes)))
    most, all_ = (ufunc.reduceat(counts, groups).repeat(sizes) for ufunc in (np.maximum, np.add))
    found = np.empty(len(order), np.int32)
    found[order] = np.repeat(np.where((most > counts) & (2 * most > all_), most, 0), counts)
    return found


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Suspects:
    """Rows whose labels are probably wrong, the most suspicious ones first.

    Attributes
    ----------
    rows : int64 (m,)
        Their numbers in the source, from 0.
    doubts : Doubts
        Label and suggestion of each as ids of classes, and their probabilities.
    duplicates : int32 (m,)
        How many rows have the same features and one other label; 0 where the model alone doubts.
    groups : int32 (m,) or None
        Feature that names each one's group, -1 for none.
    labels, features : Names
        The names of classes and features.
    n_rows, folds : int
        Rows that were looked at, and models that were trained.
    seconds : float
        Time taken.
    projected_bytes : int
        Memory that was expected to be taken.
    """

    rows: NDArray[np.int64]
    doubts: Doubts
    duplicates: NDArray[np.int32]
    groups: NDArray[np.int32] | None
    labels: Names
    features: Names
    n_rows: int
    folds: int
    seconds: float
    projected_bytes: int

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"Suspects({len(self):,} of {self.n_rows:,} rows, {self.folds} folds)"

    @property
    def n_duplicates(self) -> int:
        """Rows whose labels those of duplicates outvote."""
        return int(np.count_nonzero(self.duplicates))

    def table(self, start: int = 0, stop: int | None = None) -> FigureTable:
        """Return those from `start` to before `stop`, all by default, as columns by name."""
        some, doubts = slice(start, stop), self.doubts
        named = {"label": doubts.labels[some], "suggestion": doubts.others[some]}
        n = self.duplicates[some]
        cells = {
            "row": self.rows[some].tolist(),
            **{name: _named(self.labels, ids) for name, ids in named.items()},
            "probability": doubts.p[some].tolist(),
            "suggested_probability": doubts.p_others[some].tolist(),
            "log_odds": doubts.odds[some].tolist(),
            "reason": np.where(n > 0, DUPLICATE, MODEL).tolist(), "duplicates": n.tolist(),
        }  # fmt: skip
        if self.groups is not None:
            names = _named(self.features, self.groups[some])
            cells["group"] = [x and str(x).partition(chr(SEPARATOR))[2] for x in names]
        return FigureTable(cells)

    def text(self, form: TextOutput) -> Iterator[bytes]:
        """Yield all of them as text in a format of predictions."""
        if isinstance(form, Delimited):
            yield heading(form, grouped=self.groups is not None).encode() + b"\n"
        for start in range(0, len(self), PIECE):
            table = self.table(start, start + PIECE)
            lines = zip(*table.values(), strict=True)
            yield "".join(_line(form, [*table], line) for line in lines).encode()


def _named(names: Names, ids: NDArray[np.int32]) -> list[int | str | None]:
    """Return names by id, as text where they are no numbers; None for -1."""
    found = np.full(len(ids), None, object)
    found[ids >= 0] = names.values(ids[ids >= 0].astype(np.int64))
    return [x.decode("utf-8", "backslashreplace") if isinstance(x, bytes) else x
            for x in found.tolist()]  # fmt: skip


def heading(form: Delimited, *, grouped: bool) -> str:
    """Return the names of the columns as a line."""
    return form.delimiter.join(COLUMNS[: None if grouped else -1])


def _line(form: TextOutput, names: list[str], cells: tuple[object, ...]) -> str:
    if not isinstance(form, Delimited):
        own = [float(NUMBER % x) if isinstance(x, float) else x for x in cells]
        return json.dumps(dict(zip(names, own, strict=True))) + "\n"
    texts = ["" if x is None else NUMBER % x if isinstance(x, float) else form.cell(str(x).encode())
             for x in cells]  # fmt: skip
    return form.delimiter.join(texts) + "\n"


def list_format(path: Path) -> tuple[TextOutput, Product]:
    """Return how a list of suspects is written by its name, or raise UsageError."""
    output = output_of(path)
    form = output.format
    if output.packed or not isinstance(form, TextOutput):
        raise UsageError("a list of rows is text: name it .csv, .tsv or .jsonl", path=path)
    start = heading(form, grouped=False) if isinstance(form, Delimited) else '{"row": '
    return form, told_by_start("a list of suspects", start, "streammach did not make it")
