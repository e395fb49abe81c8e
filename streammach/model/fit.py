"""Chooses what a smaller model keeps, so that its files fit a number of bytes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.errors import BudgetError
from streammach.machine import size_text
from streammach.model.coding import COUNTS, encode
from streammach.model.document import WEIGHTS_ARE, Width
from streammach.model.model import Model
from streammach.model.shrink import (
    LEVELS,
    Pairs,
    Size,
    check,
    narrowed_as,
    pairs_of,
    plain,
    shrink,
    spare_after,
    stored_as,
    types_of,
)
from streammach.rows.pairs import CountWeights

SAMPLE_ROWS = 256  # that lie together in the sample of the weights
SAMPLE_PIECES = 64
PAIR_STEPS = 64  # the number of pairs is chosen among so many
PAIRS_SHARE = 0.4  # of the room goes to pairs at most, while repetitions are left out


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
    known = [t for t in types_of(model) if model.dense or t in LEVELS]
    wanted = [target.weights] if target.weights else known
    pairs = pairs_of(model, wanted[-1])
    sizes = {stored: _Sizes(model, stored, pairs, target) for stored in wanted}
    whole = target.n_repetitions or model.spec.n_repetitions
    fitting = (stored for stored in wanted if sizes[stored].of(whole) <= n_bytes)
    stored = next(fitting, wanted[-1])
    if not in_place:
        return _fitted(model, sizes[stored], n_bytes, target, pairs)
    over = shrink(model, Size(stored, model.spec.n_repetitions, 0), pairs, in_place=True)
    over = replace(over, counts=None if pairs is None else pairs.counts)
    return _fitted(
        over, sizes[stored], n_bytes, target, pairs, spare=spare_after(model, over)
    )  # fmt: skip


def _fitted(
    model: Model, sizes: _Sizes, n_bytes: int, target: ShrinkTarget, pairs: Pairs | None,
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
            raise BudgetError(
                f"the smallest model that can be made has {size_text(size)}", path="--size"
            )
        r = max(least, r - 1)
    if pairs is None or target.n_pairs is not None:
        return small
    counts = _most_pairs(pairs, n_bytes - size)
    return replace(small, counts=replace(counts, hashed=small.hashed_weight))


def _most_pairs(pairs: Pairs, room: int) -> CountWeights:
    """Return the counts with as many pairs as fit the bytes that counts without pairs leave."""
    none = pairs.largest(0)
    best, room = 0, room + counts_bytes(none)
    low, high = 0, PAIR_STEPS + 1
    while high - low > 1:
        middle = (low + high) // 2 if high <= PAIR_STEPS else PAIR_STEPS
        n_pairs = len(pairs) * middle // PAIR_STEPS
        if counts_bytes(pairs.largest(n_pairs)) <= room:
            best, low = n_pairs, middle
        else:
            high = middle
    return pairs.largest(best)  # made again: there is room for one


def counts_bytes(counts: CountWeights) -> int:
    """Return the bytes of counts as they lie in a file, with what the document says of them."""
    arrays = counts.arrays(COUNTS)
    total = 0
    for name, array in arrays.items():
        data, coded = encode(name, array, arrays)
        total += data.nbytes + len(str(coded))
    return total


class _Sizes:
    """What a model with one type of weights would take, part by part."""

    def __init__(
        self, model: Model, stored: Width, pairs: Pairs | None, target: ShrinkTarget
    ) -> None:
        self.stored = stored
        self._pairs, bare = 0, None
        if pairs is not None:
            bare = pairs.largest(0)
            kept = pairs.largest(len(pairs) if target.n_pairs is None else target.n_pairs)
            self._pairs = counts_bytes(kept) - counts_bytes(bare)
        self._repetition = _sampled(model, stored) / max(model.spec.n_repetitions, 1)
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


def _sampled(model: Model, stored: Width) -> float:
    """Return about how many bytes the weights take, by a sample of the features."""
    d = len(model.weights)
    starts = np.unique(np.linspace(0, max(0, d - SAMPLE_ROWS), SAMPLE_PIECES).astype(int))
    rows = np.unique(np.concatenate([np.arange(a, min(d, a + SAMPLE_ROWS)) for a in starts]))
    if stored == "float32":
        return float(d) * 4 * model.spec.n_columns
    found = [
        narrowed_as(stored, plain(model, rows[a : a + SAMPLE_ROWS]))
        for a in range(0, len(rows), SAMPLE_ROWS)
    ]
    data = [encode("weights", _joined(w for w, _ in found), {}, WEIGHTS_ARE.get(stored))[0]]
    if stored in LEVELS:
        data.append(encode("scale", _joined(s for _, s in found if s is not None), {})[0])
    return sum(part.nbytes for part in data) * d / max(1, len(rows))


def _joined(parts: Iterable[NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate(list(parts))
