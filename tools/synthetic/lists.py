"""Lists of labels of made-up rows: how many a row has, and which."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.rows.label_lists import LabelLists
from streammach.system.errors import UsageError
from streammach.system.jit import Array, Number, kernel
from tools.synthetic.kernels import (
    GOLDEN,
    GROUP_CLASSES,
    HALF,
    LOW32,
    below,
    class_of_row,
    drawn,
    mixed,
)

MOST_MEAN, MOST_LABELS = 200, 1000  # labels a row
LONG_ROWS, LONG = 128, 8  # one of so many rows has so many times the further labels
LISTS = np.uint64(0x6C62272E07BB0142)  # states of lists differ from those of rows by it


@dataclass(frozen=True)
class Lists:
    """How many labels rows have."""

    mean: float  # labels of a row that has any; 1 to 200
    unlabelled: float = 0.0  # share of the rows that have none; from 0, below 1

    def __post_init__(self) -> None:
        if not 1 <= self.mean <= MOST_MEAN:
            raise UsageError(f"{self.mean:g} is not from 1 to {MOST_MEAN}: --labels")
        if not 0 <= self.unlabelled < 1:
            raise UsageError(f"{self.unlabelled:g} is not from 0 to below 1: --unlabelled")

    def of_rows(
        self, firsts: NDArray[np.int32], number: int, n_classes: int, stream: np.uint64
    ) -> LabelLists:
        """Return the labels of rows from a number on, by the first label of each: int32 (n,)."""
        further = (self.mean - 1) / (1 + (LONG - 1) / LONG_ROWS)
        more = np.uint64(further / (1 + further) * 2.0**32)
        none = np.uint64(self.unlabelled * 2.0**32)
        starts = np.zeros(len(firsts) + 1, np.int64)
        count_labels(number, n_classes, more, none, stream, starts)
        labels = np.empty(int(starts[-1]), np.int32)
        draw_labels(starts, firsts, number, n_classes, stream, labels)
        return LabelLists(starts, labels)


@kernel(inline=True)
def state_of(row: int, stream: Number) -> Any:
    """Return the state that a row's list is drawn from."""
    return mixed(mixed(stream + GOLDEN * np.uint64(row)) ^ LISTS)


@kernel(fastmath=False)
def count_labels(
    first: int, n_classes: int, more: Number, none: Number, stream: Number, starts: Array
) -> None:
    """Draw how many labels rows have, and write where each row's start.

    Parameters
    ----------
    first, n_classes, stream : int, int, uint64
        Number of the first row; classes of the whole data set; state of the part of the data.
    more, none : uint64
        The chances of one label more, and of none, in parts of 2^32.
    starts : int64 (n + 1,)
        Receives the starts; the first entry is 0.
    """
    for r in range(starts.shape[0] - 1):
        state, n = state_of(first + r, stream), 0
        bits = drawn(state, 0)
        if (bits & LOW32) >= none:
            while n < MOST_LABELS and drawn(state, n + 1) >> HALF < more:
                n += 1
            n = min(1 + n * (LONG if below(bits, LONG_ROWS) == 0 else 1), n_classes, MOST_LABELS)
        starts[r + 1] = starts[r] + n


@kernel(fastmath=False)
def draw_labels(
    starts: Array, firsts: Array, first: int, n_classes: int, stream: Number, labels: Array
) -> None:
    """Draw the labels of rows: half of the further ones are of the first one's group.

    A label that the row has already becomes the next one that it has not.

    Parameters
    ----------
    starts, firsts : int64 (n + 1,), int32 (n,)
        Where each row's labels start; the first one of each.
    first, n_classes, stream : int, int, uint64
        As for :func:`count_labels`.
    labels : int32 (m,)
        Receives the labels, which rise within a row.
    """
    for r in range(firsts.shape[0]):
        state = state_of(first + r, stream)
        group = np.int64(firsts[r]) // GROUP_CLASSES * GROUP_CLASSES
        for end in range(starts[r], starts[r + 1]):
            bits = drawn(state, MOST_LABELS + 1 + end - starts[r])
            label = np.int64(firsts[r])
            if end > starts[r]:
                if bits & np.uint64(1):
                    label = group + below(bits, min(GROUP_CLASSES, n_classes - group))
                else:
                    label = class_of_row(0, bits, 1, n_classes, 0)
            place = starts[r]
            while place < end and labels[place] <= label:  # to its place, past those it has
                if labels[place] == label:
                    label += 1
                place += 1
            if label == n_classes:
                label, place = np.int64(0), starts[r]
                while place < end and labels[place] == label:
                    label += 1
                    place += 1
            for p in range(end, place, -1):
                labels[p] = labels[p - 1]
            labels[place] = label
