"""Makes a smaller model from another one: narrower weights, fewer repetitions, fewer pairs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.errors import UsageError
from streammach.model.document import Stored, Width
from streammach.model.model import Model
from streammach.rows.packed import Table
from streammach.rows.pairs import CountWeights

PIECE_BYTES = 2 << 20  # of float32 weights that are narrowed at once
TRUST = 0.25  # fewer repetitions say less: their weight beside counts falls with this power
LEVELS: dict[Width, int] = {"int8": 127, "int4": 7}  # the largest value of narrow weights
DENSE: tuple[Width, ...] = ("float32", "float16", "float10")
# None is made of one after it.
WIDTHS: tuple[Width, ...] = ("float32", "float16", "float10", "int8", "int4")
LOW_BITS = 6  # of float16 that are 0 in float10, and compress to nothing
MOST_FLOAT16, MOST_FLOAT10 = 65504, 63488
UNIT = 32  # of rounded gains, in units of 1/1024 nat
LARGEST = 32767 // UNIT * UNIT
LOWEST = -(1 << 15)  # of int16
PIECE_GAINS = 1 << 18  # that are looked at at once
# A counted pair beside those of a model that becomes smaller in place: it 6, kept 6, whether it is
# kept 2; or 4 in a file.
PAIR_BYTES = 16


@dataclass(frozen=True)
class Size:
    """What a model keeps."""

    # type of the weights: `float32`, `float16`, `float10` (`float16` with four bits of the
    # mantissa), or `int8` or `int4` with one scale a feature, beside which gains are rounded to
    # 1/32 nat
    weights: Width
    n_repetitions: int  # the first so many repetitions
    n_pairs: int  # the pairs of the largest gains, so many at most


@dataclass(frozen=True)
class Pairs:
    """The pairs of a model's counts."""

    counts: CountWeights  # the counts, with the pairs that add something, all in lists

    def __len__(self) -> int:
        return len(self.counts.gains)

    @classmethod
    def of(cls, counts: CountWeights, *, rounded: bool) -> Pairs:
        """Return the pairs of counts, gains rounded to :data:`UNIT` where that is asked for."""
        counts = counts.listed()  # arrays of its own
        if rounded:
            rounded_gains(counts.gains, counts.gains)
        return cls(counts.without_zeros())

    def above(self, gain: int) -> int:
        """Return how many pairs have at least this gain."""
        return int(np.count_nonzero(self.counts.gains >= gain))

    def largest(self, n_pairs: int) -> CountWeights:
        """Return the counts with so many pairs, those of the largest gains; of equals the first."""
        if n_pairs >= len(self):
            return self.counts.widened()
        gains = self.counts.gains
        least = nth_largest(numbers_of([gains]), n_pairs)
        chosen = gains > least
        equal = n_pairs - int(np.count_nonzero(chosen))
        for start in range(0, len(gains), PIECE_GAINS):
            some = start + np.flatnonzero(gains[start : start + PIECE_GAINS] == least)[:equal]
            chosen[some] = True
            equal -= len(some)
        return self.counts.widened(chosen)


def numbers_of(arrays: Iterable[NDArray[np.int16]]) -> NDArray[np.int64]:
    """Return how often each gain occurs, from the smallest one that can be: int64 (65536,)."""
    found = np.zeros(1 << 16, np.int64)
    for gains in arrays:
        for start in range(0, len(gains), PIECE_GAINS):
            piece = gains[start : start + PIECE_GAINS].astype(np.int32) - LOWEST
            found += np.bincount(piece, minlength=len(found))
    return found


def nth_largest(numbers: NDArray[np.int64], n: int) -> int:
    """Return the gain that so many pairs have at least, the largest one if that is none.

    `numbers` is int64 (65536,).
    """
    place: int = min(int(np.searchsorted(np.cumsum(numbers[::-1]), n)), len(numbers) - 1)
    return len(numbers) - 1 - place + LOWEST


def rounded_gains(
    gains: NDArray[np.int16], out: NDArray[np.int16] | None = None
) -> NDArray[np.int16]:
    """Return gains rounded to :data:`UNIT`, in memory of their own or in `out`."""
    every = np.arange(LOWEST, LOWEST + (1 << 16), dtype=np.float32)
    table = (np.rint(every / np.float32(UNIT)) * UNIT).clip(-LARGEST, LARGEST).astype(np.int16)
    out = np.empty_like(gains) if out is None else out
    flat, new = gains.reshape(-1), out.reshape(-1)
    for start in range(0, len(flat), PIECE_GAINS):
        piece = slice(start, start + PIECE_GAINS)
        new[piece] = table[flat[piece].astype(np.int32) - LOWEST]
    return out


def shrink(
    model: Model, size: Size, pairs: Pairs | None = None, *, in_place: bool = False
) -> Model:
    """Return a smaller model.

    Parameters
    ----------
    model : Model
        A model as it was trained, or a smaller one.
    size : Size
        What it keeps.
    pairs : Pairs, optional
        The model's pairs, if they are known already.
    in_place : bool
        Whether the new weights are written over the model's, which are lost; its arrays are
        copied otherwise.

    Raises
    ------
    UsageError
        If the weights would be wider than they are, the rows are dense and the weights narrow, or
        the model has fewer repetitions.
    """
    check(model, size.weights, size.n_repetitions)
    spec = model.spec
    kept = spec.first(size.n_repetitions)
    weights, scale = _weights(model, kept.n_columns, size.weights, in_place=in_place)
    if pairs is None:
        pairs = pairs_of(model, size.weights)
    share = size.n_repetitions / max(spec.n_repetitions, 1)
    counts = None if pairs is None else replace(
        pairs.largest(size.n_pairs), hashed=pairs.counts.hashed * share**TRUST
    )  # fmt: skip
    return replace(
        model, spec=kept, weights=weights, bias=np.array(model.bias[: kept.n_columns]),
        scale=scale, counts=counts,
        stored=stored_as(size.weights),
    )  # fmt: skip


def check(model: Model, weights: Width | None, n_repetitions: int | None) -> None:
    """Raise UsageError for what :func:`shrink` cannot make."""
    most = model.spec.n_repetitions
    if model.dense and weights not in (None, *DENSE):
        raise UsageError(
            f"a model of dense rows has float32, float16 or float10 weights: --weights {weights}"
        )
    if weights is not None and weights not in types_of(model):
        raise UsageError(
            f"the model has {model.stored} weights, which do not become wider: --weights {weights}",
            hint="Train with --model-size full, and shrink that model.",
        )
    if n_repetitions is not None and not min(1, most) <= n_repetitions <= most:
        raise UsageError(f"the model has {most} repetitions: --repetitions {n_repetitions}")


def stored_as(width: Width) -> Stored:
    """Return the type that a document gives for weights."""
    return "float16" if width == "float10" else width


def types_of(model: Model) -> tuple[Width, ...]:
    """Return the types that the weights of a model may get, the widest first."""
    known = DENSE if model.dense else WIDTHS
    return known[known.index(model.stored or "float32") :]


def pairs_of(model: Model, weights: Width) -> Pairs | None:
    """Return the pairs of a model that gets such weights; None without counts."""
    counts = model.counts
    return None if counts is None else Pairs.of(counts.plain(), rounded=weights in LEVELS)


def frequent(model: Model, rows: NDArray[np.int64], least: int) -> Model:
    """Return the model without the features that fewer than `least` rows hold, or raise UsageError.

    `rows` is int64 (d,).
    """
    if not (rows >= least).any():
        raise UsageError(f"no feature occurs in {least:,} rows: --min-count {least}")
    return of_features(model, rows >= least)


def of_features(model: Model, kept: NDArray[np.bool_], *, in_place: bool = False) -> Model:
    """Return the model with some of its features.

    `kept` is bool (d,).
    """
    chosen = np.flatnonzero(kept)
    counts = None if model.counts is None else model.counts.plain().of_features(kept)
    weights, n_features = np.asarray(model.weights), model.spec.n_features
    rows = np.append(chosen, np.arange(n_features, len(weights)))
    if in_place:
        step = _step(weights)
        for start in range(0, len(rows), step):
            some = rows[start : start + step]  # they move towards the front
            weights[start : start + len(some)] = weights[some]
        weights = weights[: len(rows)]
    projection = model.projection
    if projection is not None:
        projection = projection[np.append(chosen, [n_features, n_features + 1])]
    return replace(
        model, spec=replace(model.spec, n_features=len(chosen)), counts=counts,
        features=model.features.some(kept),
        weights=weights if in_place else weights[rows], projection=projection,
        scale=None if model.scale is None else model.scale[chosen],
        columns=model.columns.of(chosen),
    )  # fmt: skip


def _weights(
    model: Model, n_columns: int, stored: Width, *, in_place: bool
) -> tuple[NDArray[Any], NDArray[np.float32] | None]:
    """Return the first columns as they are in memory, and the scale of narrow ones."""
    weights, narrow = model.weights, stored in LEVELS
    if model.stored == stored:
        same = np.asarray(weights)[:, :n_columns]
        return same if in_place else same.copy(), model.scale
    dtype = np.dtype(np.int8 if narrow else np.float32)
    if in_place:  # a row ends in no place where a later one still lies
        flat = np.asarray(weights).reshape(-1).view(dtype)
        out = flat[: len(weights) * n_columns].reshape(len(weights), n_columns)
    else:
        out = np.empty((len(weights), n_columns), dtype)
    scale = np.empty(len(weights), np.float32) if narrow else None
    step = _step(weights)
    for start in range(0, len(weights), step):
        rows = slice(start, start + step)
        out[rows], found = narrowed_as(stored, plain(model, rows)[:, :n_columns])
        if scale is not None and found is not None:
            scale[rows] = found
    return out, scale


def spare_after(model: Model, small: Model) -> NDArray[np.uint8]:
    """Return the bytes of a model's weights that those written over them in place leave."""
    whole = np.asarray(model.weights).reshape(-1).view(np.uint8)
    used = len(small.weights) * model.spec.n_columns * small.weights.dtype.itemsize
    found: NDArray[np.uint8] = whole[used:]
    return found


def _step(weights: Table) -> int:
    """Return how many rows of weights are worked on at once."""
    n_columns: int = weights.shape[1]
    return max(1, PIECE_BYTES // max(4 * n_columns, 1))


def plain(model: Model, rows: Any) -> NDArray[np.float32]:
    """Return some rows of a model's weights as float32."""
    found = np.asarray(model.weights[rows], np.float32)
    return found if model.scale is None else found * model.scale[rows, None]


def narrowed_as(
    stored: Width, weights: NDArray[np.float32]
) -> tuple[NDArray[Any], NDArray[np.float32] | None]:
    """Return weights as a type keeps them: as they are in memory, and the scale of narrow ones."""
    if stored in LEVELS:
        return narrowed(weights, LEVELS[stored])
    if stored == "float16":
        weights = weights.clip(-MOST_FLOAT16, MOST_FLOAT16).astype(np.float16)
    elif stored == "float10":
        bits = weights.clip(-MOST_FLOAT10, MOST_FLOAT10).astype(np.float16).view(np.uint16)
        rounded = (bits + np.uint16(1 << (LOW_BITS - 1))) >> LOW_BITS << LOW_BITS
        weights = rounded.view(np.float16)
    return weights.astype(np.float32), None


def narrowed(
    weights: NDArray[np.float32], levels: int
) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return weights as whole numbers from -levels to levels, int8 (d, C), and each row's scale.

    `weights` is float32 (d, C).
    """
    # The scale has 8 significant bits, rounded up: its low bytes are 0 and cost nothing on disk.
    largest = np.abs(weights).max(axis=1, initial=0)
    unit = np.maximum(largest / np.float32(levels), np.finfo(np.float32).tiny)
    unit = np.where(largest > 0, unit, np.float32(1)).astype(np.float32)
    unit = ((unit.view(np.uint32) + np.uint32(0xFFFF)) & np.uint32(0xFFFF0000)).view(np.float32)
    units = weights / unit[:, None]
    return np.rint(units, out=units).astype(np.int8), unit
