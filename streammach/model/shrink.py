"""Makes a smaller model from a trained one: narrower weights, fewer repetitions, fewer pairs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.errors import BudgetError, UsageError
from streammach.machine import size_text
from streammach.model.model import Model

PIECE_BYTES = 16 << 20  # of float32 weights that are narrowed at once
TRUST = 0.25  # fewer repetitions say less: their weight beside counts falls with this power
PAIR_BYTES = 6  # class and gain
WIDE_BYTES = 2  # a class's gain where a feature has them for all classes


@dataclass(frozen=True)
class Size:
    """What a model keeps.

    Attributes
    ----------
    narrow : bool
        Whether weights become int8 with one scale a feature.
    n_repetitions : int
        The first so many repetitions.
    n_pairs : int
        The pairs of the largest gains, so many at most.
    """

    narrow: bool
    n_repetitions: int
    n_pairs: int


def shrink(model: Model, size: Size) -> Model:
    """Return a smaller model; the arrays are copies.

    Parameters
    ----------
    model : Model
        A model with float32 weights.
    size : Size
        What it keeps.

    Raises
    ------
    UsageError
        If the model is narrow already, its rows are dense, or it has fewer repetitions.
    """
    spec = model.spec
    if model.scale is not None:
        raise UsageError("the model is a shrunk one; shrink the one that was trained")
    if model.dense and size.narrow:
        raise UsageError("a model of dense rows has float32 weights: --weights int8")
    if not 1 <= size.n_repetitions <= spec.n_repetitions:
        raise UsageError(f"the model has {spec.n_repetitions} repetitions: --repetitions")
    kept = replace(
        spec, n_repetitions=size.n_repetitions, hash_a=spec.hash_a[: size.n_repetitions],
        hash_b=spec.hash_b[: size.n_repetitions],
    )  # fmt: skip
    weights, scale = _weights(model.weights, kept.n_columns, narrow=size.narrow)
    counts = None if model.counts is None else _largest(model.counts, size.n_pairs)
    bias = np.array(model.bias[: kept.n_columns])
    share = size.n_repetitions / spec.n_repetitions
    return replace(
        model, spec=kept, weights=weights, bias=bias, scale=scale, counts=counts,
        hashed_weight=model.hashed_weight * share**TRUST,
    )  # fmt: skip


def size_for(model: Model, n_bytes: int) -> Size:
    """Return what a model of at most so many bytes keeps.

    Weights become int8. Then pairs and hashed models get half of the room each, and what one of
    them does not need goes to the other: on the data measured that was near the best split.

    Parameters
    ----------
    model : Model
        A model with float32 weights.
    n_bytes : int
        Most bytes of its arrays.

    Raises
    ------
    BudgetError
        If not even one repetition fits.
    """
    spec, every = model.spec, model.n_pairs
    if n_bytes >= model.n_bytes:
        return Size(model.scale is not None, spec.n_repetitions, every)
    narrow = not model.dense
    per_weight = 1 if narrow else 4
    repetition = spec.n_buckets * (spec.n_features * per_weight + 4)
    fixed = _fixed_bytes(model, narrow=narrow)
    room = n_bytes - fixed
    if room < repetition:
        raise BudgetError(
            f"the smallest model with one repetition has {size_text(fixed + repetition)}",
            path="--memory",
        )
    hashed = spec.n_repetitions * repetition
    for_pairs = min(every * PAIR_BYTES, max(room // 2, room - hashed), room - repetition)
    repetitions = min(spec.n_repetitions, (room - for_pairs) // repetition)
    return Size(narrow, repetitions, min(every, (room - repetitions * repetition) // PAIR_BYTES))


def _fixed_bytes(model: Model, *, narrow: bool) -> int:
    """Return the bytes of what does not shrink."""
    counts = model.counts or {}
    per_pair = ("classes", "gains", "wide")
    kept = sum(array.nbytes for name, array in counts.items() if name not in per_pair)
    names = model.labels.n_bytes + model.features.n_bytes
    return kept + names + (4 * model.spec.n_features if narrow else 0)


def _weights(
    weights: NDArray[Any], n_columns: int, *, narrow: bool
) -> tuple[NDArray[Any], NDArray[np.float32] | None]:
    """Return the first columns, as int8 with a scale a row where that is asked for."""
    if not narrow:
        return np.array(weights[:, :n_columns]), None
    out = np.empty((len(weights), n_columns), np.int8)
    scale = np.empty(len(weights), np.float32)
    step = max(1, PIECE_BYTES // (4 * n_columns))
    for start in range(0, len(weights), step):
        part = weights[start : start + step, :n_columns]
        largest = np.abs(part).max(axis=1)
        unit = np.where(largest > 0, largest / np.float32(127), np.float32(1))
        out[start : start + step] = np.rint(part / unit[:, None])
        scale[start : start + step] = unit
    return out, scale


def _largest(counts: dict[str, NDArray[Any]], n_pairs: int) -> dict[str, NDArray[Any]]:
    """Return the counts with the pairs of the largest gains; of equals the first stay."""
    features, classes, gains = _pairs(counts)
    if n_pairs < len(gains):
        kept = np.sort(np.argsort(-gains.astype(np.int32), kind="stable")[:n_pairs])
        features, classes, gains = features[kept], classes[kept], gains[kept]
    d, n_classes = len(counts["wide_of"]), len(counts["base"])
    lengths = np.bincount(features, minlength=d)
    wide = np.flatnonzero(lengths * PAIR_BYTES > n_classes * WIDE_BYTES)
    wide_of = np.full(d, -1, np.int32)
    wide_of[wide] = np.arange(len(wide))
    row = wide_of[features]
    table = np.zeros((len(wide), n_classes), np.int16)
    table[row[row >= 0], classes[row >= 0]] = gains[row >= 0]
    lengths[wide] = 0
    return {
        **counts, "starts": np.concatenate([[0], np.cumsum(lengths)]),
        "classes": classes[row < 0], "gains": gains[row < 0], "wide_of": wide_of, "wide": table,
    }  # fmt: skip


def _pairs(
    counts: dict[str, NDArray[Any]],
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int16]]:
    """Return feature, class and gain of every pair, features rising, classes rising within."""
    listed = np.repeat(np.arange(len(counts["wide_of"])), np.diff(counts["starts"]))
    rows, classes = np.nonzero(counts["wide"])
    owners = np.flatnonzero(counts["wide_of"] >= 0)
    owners = owners[np.argsort(counts["wide_of"][owners])]
    wide = owners[rows]
    features = np.concatenate([listed, wide]).astype(np.int32)
    all_classes = np.concatenate([counts["classes"], classes]).astype(np.int32)
    gains = np.concatenate([counts["gains"], counts["wide"][rows, classes]])
    order = np.lexsort((all_classes, features))
    return features[order], all_classes[order], gains[order]
