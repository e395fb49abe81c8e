"""Weights and counts of a coded model as they are served: packed, a piece of the file at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.model.coding import COUNTS, STARTS, Coded, decode, values_of, words_in
from streammach.model.document import LABELS, NARROW, Document
from streammach.rows.packed import PackedRows
from streammach.rows.packed_pairs import Lists, PackedCounts, Piece, in_units, places_type
from streammach.rows.pairs import CountWeights

WORDS = 1 << 18  # of weights that are packed at once
WEIGHTS, CLASSES, GAINS = "weights", COUNTS + "classes", COUNTS + "gains"
WIDE, WIDE_OF = COUNTS + "wide", COUNTS + "wide_of"
Arrays = Mapping[str, NDArray[Any]]


def packed_in(document: Document) -> set[str]:
    """Return the names of the arrays in whose place packed ones are held."""
    how = {name: coded.how for name, coded in document.coded.items()}
    narrow = document.stored in NARROW and not document.dense
    found = {WEIGHTS} if narrow and how.get(WEIGHTS) in ("nibbles", "planes") else set()
    if document.packs_names:
        found.add(LABELS)
    counts = {STARTS: "steps", CLASSES: "lists", GAINS: "units", WIDE: "units"}
    return found | (counts.keys() if counts.items() <= how.items() else set())


def packed_weights(data: NDArray[np.uint8], coded: Coded) -> PackedRows:
    """Return narrow weights packed; ValueError where their bytes are wrong."""
    return PackedRows.of(_rows(data, coded), _shape(coded))


def packed_counts(arrays: Arrays, coded: Mapping[str, Coded], hashed: float) -> PackedCounts:
    """Return counts packed, or raise ValueError."""
    starts = arrays[STARTS]
    nothing = {
        STARTS: np.zeros_like(starts), CLASSES: np.zeros(0, np.int32), GAINS: np.zeros(0, np.int16)
    }  # fmt: skip
    wide = decode(arrays[WIDE], coded[WIDE], {})
    bare = CountWeights.of({**arrays, **nothing, WIDE: wide}, COUNTS, hashed)
    return PackedCounts.of(_lists(arrays, coded, starts, bare.n_classes), bare, _unit(coded))


def packed_bytes(arrays: Mapping[str, Any], document: Document) -> int:
    """Return the bytes of what is packed, of arrays as in the file; ValueError if one is bad."""
    found, coded, n_bytes = packed_in(document), document.coded, 0
    if LABELS in found:
        n_bytes += len(arrays[LABELS])
    if WEIGHTS in found:
        weights = coded[WEIGHTS]
        n_bytes += PackedRows.footprint(_rows(arrays[WEIGHTS], weights), _shape(weights))
    if CLASSES in found:
        starts = decode(arrays[STARTS], coded[STARTS], {})
        n_bytes += _lists(arrays, coded, starts, document.spec.n_classes).n_bytes
        n_bytes += in_units(decode(arrays[WIDE], coded[WIDE], {}), _unit(coded)).nbytes
        places = coded[WIDE_OF]  # not among what is packed, but held in fewer bytes
        less = np.dtype(places.dtype).itemsize - places_type(coded[WIDE].shape[0]).itemsize
        n_bytes -= less * places.shape[0]
    return n_bytes


def _shape(coded: Coded) -> tuple[int, int]:
    n, columns = coded.shape
    return n, columns


def _rows(data: NDArray[np.uint8], coded: Coded) -> Iterator[NDArray[Any]]:
    """Yield narrow weights some rows at a time: int8 (n, C), or uint8 (n, C / 2), two to a byte."""
    columns = coded.shape[1]
    halves = coded.how == "nibbles" and columns % 2 == 0
    width = columns // 2 if halves else columns
    left = np.zeros(0, np.uint8 if halves else np.int8)  # of a row that goes on in the next piece
    for words in words_in(data, coded):
        piece = words if halves else values_of(words, 2 * len(words), coded, {})
        if len(left):
            n = width - len(left)
            left, piece = np.concatenate([left, piece[:n]]), piece[n:]
            if len(left) < width:
                continue
            yield left[None]
        whole = len(piece) // width * width
        rows, left = piece[:whole].reshape(-1, width), piece[whole:]
        step = max(1, WORDS // width)
        yield from (rows[start : start + step] for start in range(0, len(rows), step))


def _lists(
    arrays: Arrays, coded: Mapping[str, Coded], starts: NDArray[np.int64], n_classes: int
) -> Lists:
    """Return the pairs of all lists, after looking at where they start."""
    n = coded[CLASSES].shape[0]
    same = (starts[0], starts[-1], *coded[GAINS].shape) == (0, n, n)
    if not same or (np.diff(starts) < 0).any():
        raise ValueError("the starts of the lists are wrong")

    def pieces() -> Iterator[Piece]:
        of_classes = words_in(arrays[CLASSES], coded[CLASSES])
        yield from zip(of_classes, words_in(arrays[GAINS], coded[GAINS]), strict=True)

    times = coded[GAINS].unit // _unit(coded)
    return Lists(pieces=pieces, starts=starts, n_classes=n_classes, times=times)


def _unit(coded: Mapping[str, Coded]) -> int:
    """Return the largest unit of which the gains of all lists and columns are multiples."""
    wide, unit = coded[WIDE], coded[GAINS].unit
    return math.gcd(unit, wide.unit) if wide.shape[0] else unit
