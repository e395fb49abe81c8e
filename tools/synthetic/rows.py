"""Made-up rows of a known shape that a classifier can learn, at any scale, in constant memory.

Two kinds: counts, sparse like words of a text, and activations, like what a network's last hidden
layer gives for a picture. Row i follows from the seed, the part and i alone; both parts of a data
set share classes and structure. A row may have a list of classes, which its features all show.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from streammach.rows.arrays import keys
from streammach.rows.block import RowBlock
from streammach.rows.label_lists import LabelLists
from streammach.system.errors import UsageError, clean
from tools.synthetic.kernels import (
    EMPTY,
    FEWEST_TOKENS,
    MORE_TOKENS,
    OWN_PARTS,
    SLOTS,
    activation_rows,
    classes_of_rows,
    count_rows,
)
from tools.synthetic.lists import Lists
from tools.synthetic.text import LABEL_BYTES, LINE_BYTES, VALUE_BYTES, text_lines

PARTS = ("train", "test")
PIECE_VALUES = 1 << 20  # made at a time
MEAN_TOKENS, MOST_TOKENS = FEWEST_TOKENS + (MORE_TOKENS - 1) / 2, 1000
LISTED_OWN_PARTS = 1  # as OWN_PARTS, of rows with lists
SHARED_STREAM, THRESHOLD_STREAM, PART_STREAMS = 1, 2, {"train": 3, "test": 4}
MEAN_THRESHOLD, THRESHOLD_DEVIATION = 0.56, 0.5  # 31% of the values are above 0
STRENGTH = 8.0  # of a class's pattern over all features, in deviations of the noise
SCALE = 0.4


@dataclass(frozen=True)
class Shape:
    """What made-up data look like.

    Training rows hold each class and, for counts, each feature, where there are as many rows.
    """

    kind: Literal["counts", "activations"]
    n_rows: int  # n_rows, n_test_rows: to train on, and to test on
    n_test_rows: int
    n_classes: int
    n_features: int
    lists: Lists | None = None  # how many classes a row has; one otherwise
    words: float | None = None  # mean words a row of counts, some of them the same; 65.5 otherwise

    def __post_init__(self) -> None:
        for name in ("n_rows", "n_test_rows", "n_classes", "n_features"):
            if not 0 < getattr(self, name) < 2**31:
                word = name.removeprefix("n_").replace("_", "-")
                raise UsageError(f"{getattr(self, name):,} is not from 1 to 2^31 - 1: --{word}")
        if self.words is not None and not 1 <= self.words <= MOST_TOKENS:
            raise UsageError(f"{self.words:g} is not from 1 to {MOST_TOKENS:,}: --words")
        if self.words is not None and self.kind != "counts":
            raise UsageError("rows of imagenet have no words: --words")

    @property
    def tokens(self) -> tuple[int, int, int]:
        """Fewest tokens of a row of counts, how many more, and parts of its share: see kernels."""
        words = MEAN_TOKENS if self.words is None else self.words
        fewest = max(1, round(FEWEST_TOKENS * words / MEAN_TOKENS))
        more = max(1, round(2 * (words - fewest)) + 1)
        return fewest, more, OWN_PARTS if self.lists is None else LISTED_OWN_PARTS

    def scaled(self, factor: float) -> Shape:
        """Return the shape with so many times the rows, the classes and, for counts, features."""
        if not 0 < factor < 2**31:
            raise UsageError(f"{factor:g} is not a number above 0: --scale")
        features = self.n_features * (factor if self.kind == "counts" else 1)
        rows, test_rows = self.n_rows * factor, self.n_test_rows * factor
        numbers = (rows, test_rows, self.n_classes * factor, features)
        n_rows, n_test_rows, n_classes, n_features = (max(1, round(n)) for n in numbers)
        return self.changed(
            n_rows=n_rows, n_test_rows=n_test_rows, n_classes=n_classes, n_features=n_features
        )

    def changed(self, **given: Any) -> Shape:
        """Return the shape with those of these fields that are not None."""
        return replace(self, **{name: value for name, value in given.items() if value is not None})


SHAPES = {
    # Values a row are not published for ODP; here they are about 60.
    "odp": Shape("counts", 1_084_404, 493_014, 105_033, 422_713),
    "imagenet": Shape("activations", 12_777_062, 1_419_674, 21_841, 6_144),
}


class SyntheticRows:
    """The rows of one part of made-up data, ``train`` or ``test``."""

    def __init__(self, shape: Shape, *, part: str = "train", seed: int = 0) -> None:
        if part not in PARTS:
            raise UsageError(f"'{clean(part)}' is not one of train, test: --part")
        if not 0 <= seed < 2**63:
            raise UsageError("the seed is not an integer from 0 to 2^63 - 1: --seed")
        self.shape, self.part = shape, part
        self.n_rows = shape.n_rows if part == "train" else shape.n_test_rows
        self._step = _coprime(self.n_rows) if part == "train" else 0
        streams = np.array([PART_STREAMS[part], SHARED_STREAM])
        self._stream, self._structure = keys(seed, streams)
        room = SLOTS + sum(shape.tokens[:2])
        self._scratch = np.full(room, EMPTY, np.int32), np.empty(room, np.float32)
        n_thresholds = shape.n_features if shape.kind == "activations" else 0
        self._thresholds = _thresholds(seed, n_thresholds)

    @property
    def most_row_nnz(self) -> int:
        """The most values that a row can have."""
        if self.shape.kind == "activations":
            return self.shape.n_features
        return min(self.shape.n_features, sum(self.shape.tokens[:2]))

    def pieces(self, piece_values: int = PIECE_VALUES) -> Iterator[RowBlock]:
        """Yield all rows in their order, about so many values at a time, on which none depends.

        Values are float32, classes count from 0. A piece is valid until the next one.
        """
        rows = max(1, min(self.n_rows, piece_values // self.most_row_nnz))
        nnz = rows * self.most_row_nnz
        indptr, classes = np.zeros(rows + 1, np.int64), np.empty(rows, np.int32)
        features, values = np.empty(nnz, np.int32), np.empty(nnz, np.float32)
        for first in range(0, self.n_rows, rows):
            n = min(rows, self.n_rows - first)
            lists = self._labels(first, classes[:n])
            self._make(first, indptr[: n + 1], features, values, lists)
            end = int(indptr[n])
            block = RowBlock(
                indptr=indptr[: n + 1], features=features[:end], values=values[:end],
                classes=classes[:n],
            )  # fmt: skip
            yield block if self.shape.lists is None else block.with_labels(lists)

    def _labels(self, first: int, classes: NDArray[np.int32]) -> LabelLists:
        """Write each row's class, its first if it has several; return all of them."""
        shape = self.shape
        classes_of_rows(classes, self.n_rows, shape.n_classes, first, self._step, self._stream)
        if shape.lists is None:
            return LabelLists.single(classes)
        return shape.lists.of_rows(classes, first, shape.n_classes, self._stream)

    def _make(
        self, first: int, indptr: NDArray[np.int64], features: NDArray[np.int32],
        values: NDArray[np.float32], lists: LabelLists,
    ) -> None:  # fmt: skip
        shape = self.shape
        out = (indptr, features, values, lists.starts, lists.classes)
        states = (self._stream, self._structure)
        if shape.kind == "counts":
            table, counts = self._scratch
            octaves = shape.n_features.bit_length()
            count_rows(
                *out, shape.n_classes, shape.n_features, first, self._step > 0, shape.tokens,
                octaves, table, counts, *states,
            )  # fmt: skip
        else:
            strength = STRENGTH / math.sqrt(shape.n_features)
            activation_rows(*out, self._thresholds, first, strength, SCALE, *states)


def text_pieces(
    rows: SyntheticRows, piece_values: int = PIECE_VALUES, *, xmc: bool = False
) -> Iterator[tuple[RowBlock, memoryview]]:
    """Yield the rows, and their lines in uint8; both are valid until the next ones.

    Lines count classes from 1, features from 0. XMC text lacks its first line.
    """
    out = np.empty(0, np.uint8)
    for block in rows.pieces(piece_values):
        lists = block.lists
        room = VALUE_BYTES * block.nnz + LABEL_BYTES * lists.n_labels + LINE_BYTES * block.n_rows
        if len(out) < room:
            out = np.empty(room, np.uint8)
        arrays = (block.indptr, block.features, block.values, lists.starts, lists.classes)
        n = text_lines(*arrays, xmc, out)
        yield block, out.data[:n]


def _coprime(n: int) -> int:
    """Return a number near 0.618 n that has no divisor in common with n."""
    step = max(1, int(n * 0.6180339887))
    while math.gcd(step, n) > 1:
        step += 1
    return step


def _thresholds(seed: int, n_features: int) -> NDArray[np.float64]:
    bits = keys(seed, THRESHOLD_STREAM, np.arange(n_features))
    parts = [(bits >> np.uint64(shift)) & np.uint64(0xFFFF) for shift in (0, 16, 32, 48)]
    normal = (sum(part.astype(np.float64) for part in parts) - 131070.0) / 37837.2
    return np.asarray(MEAN_THRESHOLD + THRESHOLD_DEVIATION * normal)
