"""Rows whose labels may be wrong: what a model that did not learn from them says instead."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.model.calibration import CANDIDATES, label_probabilities
from streammach.options.option_fields import add_attributes, attribute
from streammach.options.reported import FigureTable
from streammach.prediction.allowed import Allowed
from streammach.prediction.by_class import table_text
from streammach.prediction.output import Delimited, TextOutput
from streammach.prediction.predict import output_of
from streammach.prediction.predictor import Predictor
from streammach.rows.arrays import keys, sum_lists
from streammach.rows.block import RowBlock
from streammach.rows.names import SEPARATOR, Names
from streammach.store.dataset import Dataset
from streammach.store.row_groups import row_keys
from streammach.system.errors import UsageError
from streammach.system.files.destinations import Foreign, known_by_mark

# What is said of a row: its number; its label, of lists one of them, or -1 for one that is missing;
# the best class that is none of its labels, -1 for none; probabilities of both; ln of the odds of
# that one against the label; how many rows with its features have one other label; the feature of
# its group, or -1.
DOUBT = np.dtype([
    ("row", np.int64), ("label", np.int32), ("suggestion", np.int32), ("probability", np.float32),
    ("suggested_probability", np.float32), ("log_odds", np.float32), ("duplicates", np.int32),
    ("group", np.int32),
])  # fmt: skip
COLUMNS = [*(DOUBT.names or ()), "reason"]
STREAM = 6  # of hashes of rows
UNLABELLED = 0.5  # stands for the probability of the label, where a row has none
# Of lists: ln of the odds from which on a label is told, and a missing one, whose probability is
# 0.9 then. Most labels of lists are weaker than some other class.
LABEL_ODDS, MISSING_ODDS = 4.0, math.log(9)
PULL = 3.0  # rows that the mean of all is worth beside those of a label
LEAST = 1e-12  # of a probability whose odds are told
PIECE = 1 << 14  # rows that are written at a time
HASH_VALUES = 1 << 20  # values that are hashed at a time, about


def suspects_of(
    predictor: Predictor, block: RowBlock, seen: NDArray[np.bool_]
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return what a model says of rows and their labels: `DOUBT` (n,); and what more of lists.

    The latter is `DOUBT` (m,), with the place of each row in the block, int64 (m,).

    Odds are those of scores as they are calibrated, ``beta (S_other - S_label)``: among classes
    that share what is left, too. They are 0 where training had `seen`, bool (K,), no label of the
    row, and those against 0.5 where a row has no label.

    Of a row with n labels the other is the class at place n + 1, since the first n may all be
    right. The first records tell the weakest label of each row; the others tell further labels with
    such odds, and classes that are none of the row's labels but so probable. Odds are 0 for rows
    without a feature that the model knows.
    """
    scorers, model, lists = predictor.scorers, predictor.model, block.lists
    longest, n = int(lists.lengths.max(initial=1)), np.arange(block.n_rows)
    found, by = np.zeros(len(n), DOUBT), model.calibrated_ranking
    every = scorers.topk(block, max(CANDIDATES, longest + 1), by, probabilities=True)
    labels = scorers.topk(block, longest, by, allowed=Allowed(seen, only=lists))
    assert every.p is not None, "they are asked for"
    ids, own, probable = every.ids, labels.ids, every.p
    hits, last = lists.match(ids), (own >= 0).sum(axis=1) - 1
    first, empty = (~hits).argmax(axis=1), lists.lengths == 0
    others = hits.sum(axis=1) < hits.shape[1]
    if not model.dense:  # it knows nothing of these rows
        others[block.empty] = False
    p_own, place = np.zeros(0), first
    if every.left is not None:
        p = np.where(hits.any(axis=1), (probable * hits).sum(axis=1), every.left)
    else:
        p_own = label_probabilities(labels.scores, model.calibration, every.scores)
        p = np.where(empty, UNLABELLED, p_own[n, last])
        place = np.minimum(lists.lengths, ids.shape[1] - 1)
    other = every.scores[n, place]
    best = np.where(others, probable[n, first], 0)
    odds = model.calibration.beta * (other[:, None] - labels.scores)
    found["row"], found["label"] = block.numbers, np.where(last < 0, block.classes, own[n, last])
    found["suggestion"], found["probability"] = np.where(others, ids[n, first], -1), p
    found["suggested_probability"] = best
    weakest = np.where(last < 0, 0, odds[n, last])
    found["log_odds"] = np.where(others, np.where(empty, _log_odds(best), weakest), 0)
    if not model.listed:
        return found, found[:0], n[:0]
    further = np.arange(own.shape[1]) < np.where(others, last, 0)[:, None]
    logs, weak = _log_odds(probable), np.nonzero(further & (odds > LABEL_ODDS))
    classes = ~hits & others[:, None] & (logs > MISSING_ODDS)
    classes[empty, first[empty]] = False  # the row's own record tells it
    missing = np.nonzero(classes)
    more = [
        _records(found[weak[0]], label=own[weak], probability=p_own[weak], log_odds=odds[weak]),
        _records(
            found[missing[0]], label=-1, probability=UNLABELLED, suggestion=ids[missing],
            suggested_probability=probable[missing], log_odds=logs[missing],
        ),
    ]  # fmt: skip
    return found, np.concatenate(more), np.concatenate([weak[0], missing[0]])


def _records(records: NDArray[Any], **fields: Any) -> NDArray[Any]:
    """Return records with other fields, which are written into them."""
    for name, values in fields.items():
        records[name] = values
    return records


def _log_odds(p: NDArray[np.float64]) -> NDArray[np.float64]:
    clear = np.clip(p, LEAST, 1 - LEAST)
    return np.log(clear / (1 - clear))


def expected_wrong(records: NDArray[Any], n_classes: int) -> int:
    """Return how many rows with one label are expected to have a wrong one: `DOUBT` (n,).

    They are counted in the confident joint (Northcutt and others, 2021): a row is surely of a class
    whose probability is at least its mean over the rows with that label. The share of the sure rows
    with a label that are surely of another class stands for all rows with it. Means and shares of
    few rows are pulled towards those of all.
    """
    rows = records[records["log_odds"] != 0]  # the others could not be judged
    label, other, p = rows["label"], rows["suggestion"], rows["probability"].astype(np.float64)
    if not len(rows):
        return 0
    n = np.bincount(label, minlength=n_classes)
    least = (np.bincount(label, p, n_classes) + PULL * p.mean()) / (n + PULL)
    own, q = p >= least[label], rows["suggested_probability"]
    wrong = (other >= 0) & (q >= least[other]) & ((q > p) | ~own)
    sure = np.bincount(label[own | wrong], minlength=n_classes)
    share = wrong.sum() / max(sure.sum(), 1)
    shares = (np.bincount(label[wrong], minlength=n_classes) + PULL * share) / (sure + PULL)
    return round(float((shares * n).sum()))


def suspicious(records: NDArray[Any], *, listed: bool, most: int | None = None) -> NDArray[Any]:
    """Return those of records that are told, the most suspicious first: `DOUBT` (m,).

    Duplicates come first where rows have one label: of a list they do not say which one is wrong.
    At `most` so many are told, but all duplicates.
    """
    least = np.where(records["label"] < 0, MISSING_ODDS, LABEL_ODDS) if listed else 0.0
    records = records[(records["log_odds"] > least) | (records["duplicates"] > 0)]
    last = np.zeros(len(records)) if listed else records["duplicates"] == 0
    records = records[np.lexsort((-records["log_odds"], last))]
    if listed or most is None:
        return records
    return records[: max(most, int(np.count_nonzero(records["duplicates"])))]


def duplicates(dataset: Dataset, groups: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return of each row how many with its features have one other label: int32 (n,).

    They are told where they are most of all rows with its features; it is 0 elsewhere, and for
    rows without features. Rows are compared by hashes of 64 bits of features and values, those that
    name `groups` aside, and a list of labels is one label.
    """
    n, counted = dataset.n_rows, ~np.isin(np.arange(dataset.n_features), groups)
    rows, labels = np.empty((2, n), np.uint64)
    step = max(1, min(dataset.facts.block_rows, HASH_VALUES * n // max(dataset.nnz, 1)))
    for start in range(0, n, step):
        stop = min(start + step, n)
        block = dataset.rows(start, stop)
        rows[start:stop] = row_keys(block, counted)
        labels[start:stop] = sum_lists(block.lists.starts, keys(STREAM, block.lists.classes))
    empty = np.flatnonzero(rows == 0)
    rows[empty] = keys(STREAM, STREAM, empty)
    return find_outvoted(rows, labels)


def find_outvoted(rows: NDArray[np.uint64], labels: NDArray[np.uint64]) -> NDArray[np.int32]:
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
    found[order] = np.where((most > counts) & (2 * most > all_), most, 0).repeat(counts)
    return found


@add_attributes
@dataclass(frozen=True, kw_only=True, eq=False)
class Suspects:
    """Rows whose labels are probably wrong."""

    rows: NDArray[Any] = attribute(
        "What is said of them, the most suspicious ones first, by ids of classes and features: a "
        "structured array. Of lists there is a record for each label that is told, and with the "
        "label -1 for each that is missing."
    )
    labels: Names = attribute("The names of labels.")
    features: Names = attribute("The names of features.")
    n_expected: int = attribute(
        "How many rows with one label are expected to have a wrong one; of lists, the records."
    )
    n_possible: int = attribute("How many records there are with those that are less suspicious.")
    n_rows: int = attribute("Rows that were judged.")
    folds: int = attribute("Models that were trained.")
    seconds: float = attribute("Time that it took.")
    projected_bytes: int = attribute("Memory that it was expected to take.")

    @property
    def n_suspects(self) -> int:
        """How many rows are suspicious."""
        return len(np.unique(self.rows["row"]))

    def __repr__(self) -> str:
        return f"Suspects({self.n_suspects:,} of {self.n_rows:,} rows, {self.folds} folds)"

    def table(self, start: int = 0, stop: int | None = None) -> FigureTable:
        """Return those from `start` to before `stop`, all by default, as columns by name."""
        rows = self.rows[start:stop]
        cells = {name: rows[name].tolist() for name in COLUMNS[:-1]}
        cells |= {name: _names_of(self.labels, rows[name]) for name in ("label", "suggestion")}
        groups = _names_of(self.features, rows["group"])
        cells["group"] = [x and str(x).partition(chr(SEPARATOR))[2] for x in groups]
        cells["reason"] = np.where(rows["duplicates"] > 0, "duplicate", "model").tolist()
        return FigureTable(cells)

    def text(self, form: TextOutput) -> Iterator[bytes]:
        """Yield all of them as text in a format of predictions."""
        pieces = (self.table(i, i + PIECE) for i in range(0, len(self.rows), PIECE))
        return table_text(form, COLUMNS, pieces)


def _names_of(names: Names, ids: NDArray[np.int32]) -> list[int | str | None]:
    """Return names by id, as text where they are no numbers; None for -1."""
    found = np.full(len(ids), None, object)
    found[ids >= 0] = names.values(ids[ids >= 0].astype(np.int64))
    return [x.decode("utf-8", "backslashreplace") if isinstance(x, bytes) else x
            for x in found.tolist()]  # fmt: skip


def list_format(path: Path) -> tuple[TextOutput, Foreign]:
    """Return how a list of suspects is written by its name, or raise UsageError."""
    output = output_of(path)
    form = output.format
    if output.packed or not isinstance(form, TextOutput):
        raise UsageError("a list of rows is text: name it .csv, .tsv or .jsonl", path=path)
    start = form.delimiter.join(COLUMNS) if isinstance(form, Delimited) else '{"row": '
    return form, known_by_mark(start, "streammach did not make it")
