"""Brings the arrays of a model into memory, after what is said of them was compared."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.linear.kernel_map import KernelWeights
from streammach.linear.late import LateLabels
from streammach.linear.scorer import Linear
from streammach.linear.weights import LinearWeights
from streammach.model.coding import (
    COUNTS,
    LATE,
    LINEAR,
    LIST_STARTS,
    NAMES,
    NEAR,
    Bytes,
    Coded,
    decode,
    values_of,
    words_in,
)
from streammach.model.document import (
    COLUMNS,
    LABEL_OFFSETS,
    LABEL_SAYS,
    LABELS,
    NARROW,
    TENSORS,
    TITLE_OFFSETS,
    TITLES,
    Document,
    arrays_of,
)
from streammach.model.tensors import TensorHeader, damage_error, load_tensors
from streammach.rows.arrays import INFINITE, NO_SIGN, look_at_numbers
from streammach.rows.layouts import Shape, within
from streammach.rows.names import Names, TrainedColumns
from streammach.rows.neighbours import Neighbours
from streammach.rows.packed import Counts, PackedCounts, PackedRows
from streammach.rows.pairs import CountWeights, NamePairs
from streammach.system.errors import BudgetError, clean
from streammach.system.machine import memory_limit, size_text

Arrays = dict[str, NDArray[Any]]
WORDS = 1 << 18  # of weights that are packed at once
WEIGHTS, CLASSES, GAINS, WIDE = "weights", COUNTS + "classes", COUNTS + "gains", COUNTS + "wide"
COUNTED = (COUNTS + "starts", CLASSES, GAINS, WIDE)
# Counts are packed where that saves so much: else the kernels of a training, which are compiled, do
# as well: 7 s of a first prediction, and as many rows a second.
LEAST_SAVED = 16_000_000
LISTS = (LABEL_OFFSETS, LABELS, "feature_offsets", "feature_bytes", TITLE_OFFSETS, TITLES)  # names


def load_arrays(folder: Path, document: Document) -> Arrays:
    """Return a model's arrays as they lie, or raise ModelError, BudgetError or DiskError."""
    check = partial(check_header, folder, document)
    arrays = load_tensors(folder / TENSORS, document.tensors, check)
    for name, array in arrays.items():
        array.flags.writeable = not array.size or name in LISTS  # kernels are of one kind
    return arrays


def decode_arrays(document: Document, arrays: Arrays) -> None:
    """Put coded arrays as they were in their places, but for what stays packed; or ValueError."""
    for name, coded in document.coded.items():  # what lists need comes before them
        if name == WEIGHTS and packs_weights(document):
            continue
        arrays[name] = decode(arrays[name], coded, arrays.get(LIST_STARTS.get(name, "")))
        if arrays[name].dtype == np.float32:
            flat = np.ascontiguousarray(arrays[name]).reshape(-1)
            if look_at_numbers(flat, NO_SIGN) >= INFINITE:
                raise ValueError(f"the {name} are not finite")
    if LABEL_SAYS in arrays:
        says = arrays[LABEL_SAYS]
        inside = says.min() >= -1 and 0 <= says.max() < len(says)
        if not inside or (says[says] != says)[says >= 0].any():
            raise ValueError("the labels by which classes are said are wrong")
    if not TrainedColumns(document.n_columns, arrays.get(COLUMNS)).is_sound():
        raise ValueError("the columns of features are wrong")


def names_in(which: str, kind: str, arrays: Arrays) -> Names:
    """Return the names of labels or features, or raise ValueError."""
    names = Names(arrays[f"{which}_offsets"], arrays[f"{which}_bytes"], kind)
    if not names.is_sound():
        raise ValueError(f"the {which}s' names are wrong")
    return names


def packs_weights(document: Document) -> bool:
    """Return whether weights are packed rows in memory."""
    coded = document.coded.get(WEIGHTS)
    narrow = document.stored in NARROW and not document.dense
    return narrow and coded is not None and coded.how in ("nibbles", "planes")


def packs_counts(document: Document) -> bool:
    """Return whether counts are packed in memory."""
    coded, spec = document.coded, document.spec
    if not all(name in coded for name in COUNTED):
        return False
    sizes = coded[CLASSES].shape[0], spec.n_features, spec.n_classes
    return PackedCounts.pays(*sizes) and PackedCounts.bytes_saved_by(*sizes) >= LEAST_SAVED


def weights_in(document: Document, data: NDArray[Any]) -> PackedRows | None:
    """Return weights as packed rows, None where they are not to be packed; or ValueError."""
    if not packs_weights(document):
        return None
    n, columns = document.coded[WEIGHTS].shape
    return PackedRows.of(weight_rows(data, document.coded[WEIGHTS]), (n, columns))


def weight_rows(data: Bytes, coded: Coded) -> Iterator[NDArray[np.int8]]:
    """Yield narrow weights some rows at a time: int8 (n, C); ValueError if bytes are wrong."""
    n, columns = math.prod(coded.shape), coded.shape[1]
    left = np.zeros(0, np.int8)  # of a row that goes on in the next piece
    for words in words_in(data, coded):
        for start in range(0, len(words), WORDS):
            some = words[start : start + WORDS]
            values = values_of(some, min(n, 2 * len(some)), coded)
            n -= len(values)
            values = np.concatenate([left, values]) if len(left) else values
            whole = len(values) // columns * columns
            yield values[:whole].reshape(-1, columns)
            left = values[whole:]


def counts_in(document: Document, arrays: Arrays) -> Counts | None:
    """Return the counts beside hashed models, coded ones packed, None without; or ValueError."""
    hashed, coded = document.hashed_weight, document.coded
    if hashed is None:
        return None
    counts, weight = CountWeights.of(arrays, COUNTS, hashed), document.near_weight
    if weight is not None:
        near = Neighbours.of(arrays, NEAR, weight, counts.n_classes)
        counts = replace(counts, near=near)
    if not packs_counts(document):
        return counts
    unit, wide = coded[GAINS].unit, coded[WIDE]
    return PackedCounts.of(counts, math.gcd(unit, wide.unit) if wide.shape[0] else unit)


def linear_in(document: Document, arrays: Arrays) -> Linear | None:
    """Return the linear classifiers, None without; or ValueError."""
    form = document.linear
    if form is None:
        return None
    if form.n_centres is not None:
        return KernelWeights.of(arrays, LINEAR)
    return LinearWeights.of(arrays, LINEAR, valued=form.valued)


def late_in(document: Document, arrays: Arrays) -> LateLabels | None:
    """Return the classifiers that score the best classes again, None without; or ValueError."""
    weight = document.late_weight
    return None if weight is None else LateLabels.of(arrays, LATE, weight=weight)


def name_pairs_in(document: Document, arrays: Arrays) -> NamePairs | None:
    """Return what names of labels add to counts, None without; or ValueError."""
    if not document.named:
        return None
    spec = document.spec
    pairs = NamePairs.of_arrays(arrays, NAMES)
    keys = pairs.features.astype(np.int64) * spec.n_classes + pairs.classes
    right = within(pairs.features, spec.n_features) and within(pairs.classes, spec.n_classes)
    alike = len(pairs.features) == len(pairs.classes) == len(pairs.gains)
    if not (right and alike and (np.diff(keys) > 0).all()):
        raise ValueError("the pairs of names are wrong")
    return pairs


def check_header(folder: Path, document: Document, header: TensorHeader) -> None:
    """Raise ModelError if arrays are not the document's, BudgetError if they do not fit."""
    wanted = arrays_of(document)
    needed = (wanted.keys() - {COLUMNS}) | document.coded.keys()
    if not needed <= header.keys() <= wanted.keys():
        odd = sorted(header.keys() ^ needed)
        raise damage_error(folder, f"it has not the arrays that it should: {clean(odd[0])}")
    n_bytes = 0
    for name, tensor in header.items():
        shape, dtype = wanted[name]
        coded = document.coded.get(name)
        lies = (tensor.shape, tensor.type) if coded is None else (coded.shape, coded.dtype)
        packed = coded is None or (tensor.type == "uint8" and len(tensor.shape) == 1)
        if not packed or not _fits(lies[0], shape) or lies[1] != dtype.name:
            raise damage_error(folder, f"{clean(name)} has the wrong shape or type")
        n = math.prod(lies[0])
        n_bytes += n // 2 if coded and coded.how == "nibbles" else n * dtype.itemsize
    limit = memory_limit()
    if n_bytes > limit.n_bytes:
        raise BudgetError(
            f"the model takes {size_text(n_bytes)} in memory, {size_text(limit.n_bytes)} may be "
            f"used ({limit.source})",
            path=folder,
        )


def _fits(found: tuple[int, ...], wanted: Shape) -> bool:
    return len(found) == len(wanted) and all(
        n >= 0 and (m is None or n == m) for n, m in zip(found, wanted, strict=True)
    )
