"""Makes a smaller model from another one: narrower weights, fewer repetitions, fewer pairs.

To fit a number of bytes, it chooses what is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from streammach.linear.kernel_map import KernelWeights
from streammach.linear.scorer import Linear
from streammach.linear.weights import LinearWeights
from streammach.model.coding import CODERS, COUNTS, LATE, NEAR, encode
from streammach.model.document import WEIGHTS_ARE, Stored, Width
from streammach.model.model import Model
from streammach.rows.packed import Table
from streammach.rows.pairs import CountWeights
from streammach.rows.quantize import round_gains, round_halves, round_rows
from streammach.system.errors import BudgetError, UsageError
from streammach.system.machine import size_text
from streammach.system.threads import Workers, in_turn

PIECE_BYTES = 2 << 20  # of float32 weights that are narrowed at once
TRUST = 0.25  # fewer repetitions say less: their weight beside counts falls with this power
LEVELS: dict[Width, int] = {"int8": 127, "int4": 7}  # the largest value of narrow weights
DENSE: tuple[Width, ...] = ("float32", "float16", "float10")
# None is made of one after it.
WIDTHS: tuple[Width, ...] = ("float32", "float16", "float10", "int8", "int4")
MOST_FLOAT16, MOST_FLOAT10 = 65504, 63488  # the low six bits of float10 compress to nothing
UNIT = 32  # of rounded gains, in units of 1/1024 nat
LARGEST = 32767 // UNIT * UNIT
# A counted pair beside those of a model that becomes smaller in place: it 6, kept 6, whether it is
# kept 2; or 4 in a file.
PAIR_BYTES = 16
SAMPLE_ROWS = 256  # that lie together in the sample of the weights
SAMPLE_PIECES = 64
PAIR_STEPS = 64  # the number of pairs is chosen among so many
PAIRS_SHARE = 0.4  # of the room goes to pairs at most, while repetitions are left out


@dataclass(frozen=True)
class Size:
    """What a model keeps."""

    # type of the weights: `float32`, `float16`, `float10` (`float16` with four bits of the
    # mantissa), or `int8` or `int4` with one scale a feature, beside which gains are rounded to
    # 1/32 nat
    weights: Width
    n_repetitions: int  # the first so many repetitions
    n_pairs: int  # the pairs of the largest gains, so many at most


def rounded_gains(
    gains: NDArray[np.int16], out: NDArray[np.int16] | None = None
) -> NDArray[np.int16]:
    """Return gains rounded to :data:`UNIT`, in memory of their own or in `out`."""
    out = np.empty_like(gains) if out is None else out
    round_gains(gains.reshape(-1), np.float32(UNIT), np.float32(LARGEST), out.reshape(-1))
    return out


def shrink(
    model: Model, size: Size, pairs: CountWeights | None = None, *, in_place: bool = False,
    threads: int = 1,
) -> Model:  # fmt: skip
    """Return a smaller model, in place over the weights, which are lost; or raise UsageError."""
    check(model, size.weights, size.n_repetitions)
    spec = model.spec
    kept = spec.first(size.n_repetitions)
    with closing(Workers(min(threads, CODERS), "narrow")) as workers:
        weights, scale = _weights(model, kept.n_columns, size.weights, workers, in_place=in_place)
    if pairs is None:
        pairs = pairs_of(model, size.weights)
    share = size.n_repetitions / max(spec.n_repetitions, 1)
    counts = None if pairs is None else beside(pairs.largest(size.n_pairs), share)
    return replace(
        model, spec=kept, weights=weights, bias=np.array(model.bias[: kept.n_columns]),
        scale=scale, counts=counts, stored=stored_as(size.weights),
    )  # fmt: skip


def beside(counts: CountWeights, share: float) -> CountWeights:
    """Return counts that stand beside a share of the repetitions that they were weighed beside."""
    return replace(counts, hashed=counts.hashed * share**TRUST)


def check(model: Model, weights: Width | None, n_repetitions: int | None) -> None:
    """Raise UsageError for what :func:`shrink` cannot make."""
    most = model.spec.n_repetitions
    if model.dense and weights not in (None, *DENSE):
        what = f"a model of dense rows has float32, float16 or float10 weights: --weights {weights}"
        raise UsageError(what)
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


def pairs_of(model: Model, weights: Width) -> CountWeights | None:
    """Return the counts of a model that gets such weights, all pairs in lists; None without."""
    if model.counts is None:
        return None
    counts = model.counts.plain().as_lists()  # arrays of its own
    if weights in LEVELS:
        rounded_gains(counts.gains, counts.gains)
    return counts.without_zeros()


def frequent(model: Model, rows: NDArray[np.int64], least: int) -> Model:
    """Return the model without the features that few of `rows` int64 (d,) hold; or UsageError."""
    if not (rows >= least).any():
        raise UsageError(f"no feature occurs in {least:,} rows: --min-count {least}")
    return of_features(model, rows >= least)


def of_features(model: Model, kept: NDArray[np.bool_], *, in_place: bool = False) -> Model:
    """Return the model with some of its features, bool (d,)."""
    chosen = np.flatnonzero(kept)
    counts = None if model.counts is None else model.counts.plain().of_features(kept)
    weights, spec = np.asarray(model.weights), model.spec
    first = chosen[chosen < spec.n_hashed_features]
    rows = np.append(first, np.arange(spec.n_hashed_features, len(weights)))
    hashed = len(first) if spec.cut else UNSET
    if in_place:
        step = _step(weights)
        for start in range(0, len(rows), step):
            some = rows[start : start + step]  # they move towards the front
            weights[start : start + len(some)] = weights[some]
        weights = weights[: len(rows)]
    projection = model.projection
    if projection is not None:
        projection = projection[np.append(chosen, [spec.n_features, spec.n_features + 1])]
    return replace(
        model, spec=replace(spec, n_features=len(chosen), hashed_features=hashed), counts=counts,
        features=model.features.take(np.flatnonzero(kept)),
        linear=None if model.linear is None else _linear_of(model.linear, kept),
        weights=weights if in_place else weights[rows], projection=projection,
        scale=None if model.scale is None else model.scale[first],
        columns=model.columns.of(chosen),
        late=None if model.late is None else model.late.of_features(kept),
        names=None if model.names is None else model.names.of_features(kept),
    )  # fmt: skip


def _weights(
    model: Model, n_columns: int, stored: Width, workers: Workers, *, in_place: bool
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
    pieces = [slice(start, start + step) for start in range(0, len(weights), step)]
    works = (
        lambda rows=rows: weights_as(stored, plain(model, rows)[:, :n_columns]) for rows in pieces
    )
    for rows, (made, units) in zip(pieces, in_turn(workers, works), strict=True):
        out[rows] = made
        if scale is not None and units is not None:
            scale[rows] = units
    return out, scale


def spare_after(model: Model, small: Model) -> NDArray[np.uint8]:
    """Return the bytes of a model's weights that those written over them in place leave."""
    whole = np.asarray(model.weights).reshape(-1).view(np.uint8)
    used = len(small.weights) * model.spec.n_columns * small.weights.dtype.itemsize
    return whole[used:]


def _step(weights: Table) -> int:
    n_columns: int = weights.shape[1]
    return max(1, PIECE_BYTES // max(4 * n_columns, 1))


def plain(model: Model, rows: Any) -> NDArray[np.float32]:
    """Return some rows of a model's weights as float32."""
    found = np.asarray(model.weights[rows], np.float32)
    return found if model.scale is None else found * model.scale[rows, None]


def weights_as(
    stored: Width, weights: NDArray[np.float32]
) -> tuple[NDArray[Any], NDArray[np.float32] | None]:
    """Return weights as a type keeps them: as they are in memory, and the scale of narrow ones."""
    if stored in LEVELS:
        return round_rows(weights, LEVELS[stored])
    if stored == "float32":
        return weights.copy(), None
    out, most = np.empty(weights.shape, np.float32), MOST_FLOAT16
    if stored == "float10":
        most = MOST_FLOAT10
    round_halves(np.ascontiguousarray(weights), np.float32(most), stored == "float10", out)
    return out, None


@dataclass(frozen=True)
class ShrinkTarget:
    """What is to be kept in any case; None is chosen."""

    weights: Width | None = None  # type of the weights
    n_repetitions: int | None = None  # repetitions
    n_pairs: int | None = None  # most pairs


def shrink_to(
    model: Model, n_bytes: int, target: ShrinkTarget | None = None, *, in_place: bool = False
) -> Model:
    """Return a model whose files have at most so many bytes, or raise UsageError or BudgetError.

    int8 weights if everything fits with them, else int4 ones; if not everything fits with those
    either, pairs get up to :data:`PAIRS_SHARE` of the room and repetitions the rest, and what one
    of them does not need goes to the other. A model that fits as it is stays as it is.
    """
    target = target or ShrinkTarget()
    check(model, target.weights, target.n_repetitions)
    if target == ShrinkTarget() and model.file_bytes() <= n_bytes:
        return model
    if isinstance(model.linear, KernelWeights):
        what = "linear classifiers of dense rows cannot be made smaller"
        raise BudgetError(what, path="--size", hint="Train with --linear off for one that can.")
    if model.linear is not None:
        return _linear_to(model, model.linear, n_bytes)
    counts, near = model.counts, model.near
    if counts is not None and near is not None and _coded_bytes(near.arrays(NEAR)) > n_bytes // 2:
        model = replace(model, counts=replace(counts, near=None))
    if model.late is not None:
        late, size = model.late, _coded_bytes(model.late.arrays(LATE))
        if size > n_bytes // 2:
            n = int(n_bytes / 2 / size * len(late.weights))
            model = replace(model, late=late.largest(n))
    known = [t for t in types_of(model) if model.dense or t in LEVELS]
    wanted = [target.weights] if target.weights else known
    pairs = pairs_of(model, wanted[-1])
    sizes = {stored: _Sizes(model, stored, pairs, target) for stored in wanted}
    whole = target.n_repetitions or model.spec.n_repetitions
    fitting = (stored for stored in wanted if sizes[stored].of(whole) <= n_bytes)
    stored = next(fitting, wanted[-1])
    if not in_place:
        return _fit_into_bytes(model, sizes[stored], n_bytes, target, pairs)
    over = shrink(model, Size(stored, model.spec.n_repetitions, 0), pairs, in_place=True)
    over = replace(over, counts=pairs)
    return _fit_into_bytes(
        over, sizes[stored], n_bytes, target, pairs, spare=spare_after(model, over)
    )


def _fit_into_bytes(
    model: Model, sizes: _Sizes, n_bytes: int, target: ShrinkTarget, pairs: CountWeights | None,
    *, spare: NDArray[np.uint8] | None = None,
) -> Model:  # fmt: skip
    """Return the model with as many repetitions and pairs as fit; with `spare` as views of it."""
    most = target.n_repetitions or model.spec.n_repetitions
    least = target.n_repetitions or min(1, most)
    r = most if sizes.of(most) <= n_bytes else max(least, sizes.repetitions(n_bytes, most))
    while True:
        kept = Size(sizes.stored, r, target.n_pairs or 0)
        small = shrink(model, kept, pairs, in_place=spare is not None)
        size = small.file_bytes(spare)
        if size <= n_bytes:
            break
        if r == least and spare is not None:
            return small
        if r == least:
            what = f"the smallest model that can be made has {size_text(size)}"
            raise BudgetError(what, path="--size")
        r = max(least, r - 1)
    if pairs is None or target.n_pairs is not None:
        return small
    room = n_bytes - size + counts_bytes(pairs.largest(0))
    most_pairs = _most_of(len(pairs.gains), lambda n: counts_bytes(pairs.largest(n)) <= room)
    counts = pairs.largest(most_pairs)  # made again: there is room for one
    return replace(small, counts=replace(counts, hashed=small.hashed_weight))


def _linear_of(linear: Linear, kept: NDArray[np.bool_]) -> LinearWeights:
    """Return classifiers of some features, bool (d,), or raise UsageError."""
    if isinstance(linear, KernelWeights):
        raise UsageError("dense rows have all features: --min-count")
    return linear.of_features(kept)


def _linear_to(model: Model, linear: LinearWeights, n_bytes: int) -> Model:
    """Return a model of linear classifiers with as many of their weights as fit."""

    def with_weights(n: int) -> Model:
        return replace(model, linear=linear.largest(n), stored="float16")

    if (size := with_weights(0).file_bytes()) > n_bytes:
        what = f"the smallest model that can be made has {size_text(size)}"
        raise BudgetError(what, path="--size")
    n_weights = len(linear.weights)
    return with_weights(_most_of(n_weights, lambda n: with_weights(n).file_bytes() <= n_bytes))


def _most_of(n: int, fits: Callable[[int], bool]) -> int:
    """Return the most of n parts that fit, to a 64th of them; none at all does."""
    low, high = 0, PAIR_STEPS + 1
    while high - low > 1:
        middle = (low + high) // 2 if high <= PAIR_STEPS else PAIR_STEPS
        if fits(n * middle // PAIR_STEPS):
            low = middle
        else:
            high = middle
    return n * low // PAIR_STEPS


def counts_bytes(counts: CountWeights) -> int:
    """Return the bytes of counts as they lie in a file, with what the document says of them."""
    arrays = counts.arrays(COUNTS)
    coded = (encode(name, array, arrays) for name, array in arrays.items())
    return sum(data.nbytes + len(str(facts)) for data, facts in coded)


def _coded_bytes(arrays: dict[str, NDArray[Any]]) -> int:
    """Return the bytes of arrays as they lie in a file."""
    return sum(encode(name, array, arrays)[0].nbytes for name, array in arrays.items())


class _Sizes:
    """What a model with one type of weights would take, part by part."""

    def __init__(
        self, model: Model, stored: Width, pairs: CountWeights | None, target: ShrinkTarget
    ) -> None:
        self.stored = stored
        self._pairs, bare = 0, None
        if pairs is not None:
            bare = pairs.largest(0)
            kept = pairs.largest(len(pairs.gains) if target.n_pairs is None else target.n_pairs)
            self._pairs = counts_bytes(kept) - counts_bytes(bare)
        self._repetition = _sample_bytes(model, stored) / max(model.spec.n_repetitions, 1)
        nothing = np.zeros((0, 0), np.int8)
        empty = replace(model, weights=nothing, counts=bare, stored=stored_as(stored))
        self._fixed = empty.file_bytes()
        self._free = target.n_pairs is None

    def of(self, n_repetitions: int) -> float:
        """Return about how many bytes so many repetitions and all pairs take."""
        return self._fixed + self._pairs + n_repetitions * self._repetition

    def repetitions(self, n_bytes: int, most: int) -> int:
        """Return how many repetitions do best beside pairs where not everything fits."""
        room = max(0.0, n_bytes - self._fixed)
        for_pairs = float(self._pairs)
        if self._free:
            for_pairs = min(for_pairs, max(PAIRS_SHARE * room, room - most * self._repetition))
        return min(most, int((room - for_pairs) / max(self._repetition, 1)))


def _sample_bytes(model: Model, stored: Width) -> float:
    """Return about how many bytes the weights take, by a sample of the features."""
    d = len(model.weights)
    starts = np.unique(np.linspace(0, max(0, d - SAMPLE_ROWS), SAMPLE_PIECES).astype(int))
    rows = np.unique(np.concatenate([np.arange(a, min(d, a + SAMPLE_ROWS)) for a in starts]))
    if stored == "float32":
        return float(d) * 4 * model.spec.n_columns
    cuts = range(0, len(rows), SAMPLE_ROWS)
    found = [weights_as(stored, plain(model, rows[a : a + SAMPLE_ROWS])) for a in cuts]
    weights = np.concatenate([w for w, _ in found])
    n_bytes = encode("weights", weights, {}, WEIGHTS_ARE.get(stored))[0].nbytes
    if stored in LEVELS:
        scales = np.concatenate([s for _, s in found if s is not None])
        n_bytes += encode("scale", scales, {})[0].nbytes
    return n_bytes * d / max(1, len(rows))
