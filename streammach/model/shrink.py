"""Makes a smaller model from a trained one: narrower weights, fewer repetitions, fewer pairs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.errors import UsageError
from streammach.model.document import Stored
from streammach.model.model import Model
from streammach.rows.names import Names
from streammach.rows.pairs import CountWeights

PIECE_BYTES = 16 << 20  # of float32 weights that are narrowed at once
TRUST = 0.25  # fewer repetitions say less: their weight beside counts falls with this power
LEVELS: dict[Stored, int] = {"int8": 127, "int4": 7}  # the largest value of narrow weights
DENSE: tuple[Stored, ...] = ("float32", "float16")
MOST_FLOAT16 = 65504
UNIT = 32  # of rounded gains, in units of 1/1024 nat
LARGEST = 32767 // UNIT * UNIT


@dataclass(frozen=True)
class Size:
    """What a model keeps.

    Attributes
    ----------
    weights : str
        Type of the weights: ``float32``, ``float16``, or ``int8`` or ``int4`` with one scale a
        feature, beside which gains are rounded to 1/32 nat.
    n_repetitions : int
        The first so many repetitions.
    n_pairs : int
        The pairs of the largest gains, so many at most.
    """

    weights: Stored
    n_repetitions: int
    n_pairs: int


@dataclass(frozen=True)
class Pairs:
    """The pairs of a model's counts.

    Attributes
    ----------
    counts : CountWeights
        The counts, with the pairs that add something, all in lists.
    order : int64 (n,)
        The pairs by falling gain; of equals, the first ones first.
    """

    counts: CountWeights
    order: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.order)

    @classmethod
    def of(cls, counts: CountWeights, *, rounded: bool) -> Pairs:
        """Return the pairs of counts, gains rounded to :data:`UNIT` where that is asked for."""
        counts = counts.listed()
        if rounded:
            gains = (np.rint(counts.gains / np.float32(UNIT)) * UNIT).clip(-LARGEST, LARGEST)
            counts = replace(counts, gains=gains.astype(np.int16))
        counts = counts.of_pairs(np.flatnonzero(counts.gains))
        return cls(counts, np.argsort(-counts.gains.astype(np.int32), kind="stable"))

    def largest(self, n_pairs: int) -> CountWeights:
        """Return the counts with so many pairs, those of the largest gains."""
        kept = self.counts
        if n_pairs < len(self):
            kept = kept.of_pairs(np.sort(self.order[:n_pairs]))
        return kept.widened()


def shrink(model: Model, size: Size, pairs: Pairs | None = None) -> Model:
    """Return a smaller model; the arrays are copies.

    Parameters
    ----------
    model : Model
        A model as it was trained.
    size : Size
        What it keeps.
    pairs : Pairs, optional
        The model's pairs, if they are known already.

    Raises
    ------
    UsageError
        If the model is a smaller one already, its rows are dense and the weights narrow, or it has
        fewer repetitions.
    """
    check(model, size.weights, size.n_repetitions)
    spec = model.spec
    kept = replace(
        spec, n_repetitions=size.n_repetitions, hash_a=spec.hash_a[: size.n_repetitions],
        hash_b=spec.hash_b[: size.n_repetitions],
    )  # fmt: skip
    weights, scale = _weights(model.weights, kept.n_columns, size.weights)
    if pairs is None:
        pairs = pairs_of(model, size.weights)
    share = size.n_repetitions / spec.n_repetitions
    counts = None if pairs is None else replace(
        pairs.largest(size.n_pairs), hashed=pairs.counts.hashed * share**TRUST
    )  # fmt: skip
    return replace(
        model, spec=kept, weights=weights, bias=np.array(model.bias[: kept.n_columns]),
        scale=scale, counts=counts, stored=size.weights,
    )  # fmt: skip


def check(model: Model, weights: Stored | None, n_repetitions: int | None) -> None:
    """Raise UsageError for what :func:`shrink` cannot make."""
    most = model.spec.n_repetitions
    if model.stored is not None or model.scale is not None:
        raise UsageError("the model is a shrunk one; shrink the one that was trained")
    if model.dense and weights not in (None, *DENSE):
        raise UsageError(
            f"a model of dense rows has float32 or float16 weights: --weights {weights}"
        )
    if n_repetitions is not None and not 1 <= n_repetitions <= most:
        raise UsageError(f"the model has {most} repetitions: --repetitions {n_repetitions}")


def pairs_of(model: Model, weights: Stored) -> Pairs | None:
    """Return the pairs of a model that gets such weights; None without counts."""
    return None if model.counts is None else Pairs.of(model.counts, rounded=weights in LEVELS)


def frequent(model: Model, rows: NDArray[np.int64], least: int) -> Model:
    """Return the model without the features that fewer than `least` rows hold.

    Parameters
    ----------
    model : Model
        A model as it was trained.
    rows : int64 (d,)
        How many rows of the training store hold each feature.
    least : int
        As above.

    Raises
    ------
    UsageError
        If no feature would be left.
    """
    chosen = np.flatnonzero(rows >= least)
    if not len(chosen):
        raise UsageError(f"no feature occurs in {least:,} rows: --min-count {least}")
    counts = None if model.counts is None else model.counts.of_features(rows >= least)
    names = Names.of(model.features.raw(i) for i in chosen.tolist())
    return replace(
        model, spec=replace(model.spec, n_features=len(chosen)), counts=counts,
        features=replace(names, kind=model.features.kind), weights=model.weights[chosen],
        columns=model.columns.of(chosen),
    )  # fmt: skip


def _weights(
    weights: NDArray[Any], n_columns: int, stored: Stored
) -> tuple[NDArray[Any], NDArray[np.float32] | None]:
    """Return the first columns as they are in memory, and the scale of narrow ones."""
    narrow = stored in LEVELS
    out = np.empty((len(weights), n_columns), np.int8 if narrow else np.float32)
    scale = np.empty(len(weights), np.float32) if narrow else None
    step = max(1, PIECE_BYTES // (4 * n_columns))
    for start in range(0, len(weights), step):
        rows = slice(start, start + step)
        out[rows], found = narrowed_as(stored, weights[rows, :n_columns])
        if scale is not None and found is not None:
            scale[rows] = found
    return out, scale


def narrowed_as(
    stored: Stored, weights: NDArray[np.float32]
) -> tuple[NDArray[Any], NDArray[np.float32] | None]:
    """Return weights as a type keeps them: as they are in memory, and the scale of narrow ones."""
    if stored in LEVELS:
        return narrowed(weights, LEVELS[stored])
    if stored == "float16":
        weights = weights.clip(-MOST_FLOAT16, MOST_FLOAT16).astype(np.float16)
    return weights.astype(np.float32), None


def narrowed(
    weights: NDArray[np.float32], levels: int
) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return weights as whole numbers from -levels to levels, int8 (d, C), and each row's scale.

    Parameters
    ----------
    weights : float32 (d, C)
        The weights.
    levels : int
        The largest whole number, at most 127.
    """
    # The scale has 8 significant bits, rounded up: its low bytes are 0 and cost nothing on disk.
    largest = np.abs(weights).max(axis=1)
    unit = np.maximum(largest / np.float32(levels), np.finfo(np.float32).tiny)
    unit = np.where(largest > 0, unit, np.float32(1)).astype(np.float32)
    unit = ((unit.view(np.uint32) + np.uint32(0xFFFF)) & np.uint32(0xFFFF0000)).view(np.float32)
    return np.rint(weights / unit[:, None]).astype(np.int8), unit
