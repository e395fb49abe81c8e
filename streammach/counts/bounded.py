"""Exact top-k of counts, alone or beside hashed models, most classes of which are never scored.

Classes lie in blocks of 64. No class of a block passes what its largest `base`, its smallest
`log_values`, the largest sum of its gains and the best buckets of all models would make together in
one class. Blocks are looked at only where that reaches the k-th best of some scores that are known.
All of these are computed in the order of a score, in which rounding keeps the order of numbers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammach.counts.deficits import (
    ERROR,
    UNITS,
    finds_room,
    highest_of,
    lanes_with_room,
    write_deficits,
)
from streammach.counts.kernels import STEP, hashed_sum, insert
from streammach.counts.vectors import (
    add_gains,
    highest_unit,
    reach_block,
    take_units,
    write_rooms,
)
from streammach.jit import Array, Number, kernel
from streammach.simd import prefetch, trailing_zeros

BLOCK = 64  # classes
SEED_BLOCKS = 8  # with the highest bounds, whose best classes give the first k-th best score
SEEDS = 16
MOST = 32767  # units in an int16
AHEAD, LINE = 6, 16  # blocks whose memory is asked for early; float32 in a line of the cache


class BlockBounds(NamedTuple):
    """What bounds the classes of each of n blocks."""

    bases: NDArray[np.float32]  # float32 (n,): the largest `base`
    logs: NDArray[np.float32]  # float32 (2, n): the smallest and the largest `log_values`
    # int8 or int16 (w, n): the largest gains of each feature that stands in `wide`
    gains: NDArray[Any]
    # float32 (2,): the largest magnitudes of `base` and of `log_values` of all classes
    sizes: NDArray[np.float32]

    @classmethod
    def of(
        cls, base: NDArray[np.float32], log_values: NDArray[np.float32], wide: NDArray[Any]
    ) -> BlockBounds:
        """Return them; the arrays are those of the counts."""
        firsts = np.arange(0, len(base), BLOCK)
        return cls(
            bases=np.maximum.reduceat(base, firsts),
            logs=np.stack([part.reduceat(log_values, firsts) for part in (np.minimum, np.maximum)]),
            gains=np.maximum.reduceat(wide, firsts, axis=1),
            sizes=np.array([abs(base).max(), abs(log_values).max()], np.float32),
        )


def scratch_sizes(k: int) -> tuple[int, int]:
    """Return how many numbers :func:`best_of_rows` needs for k classes in `bounds` and `places`."""
    # Those of the blocks and of the features of a row come on top.
    some = max(SEEDS, k) + SEED_BLOCKS
    return BLOCK + some, some


@kernel(fastmath=False, allocates=False)
def best_of_rows(
    indptr: Array, features: Array, first: int, last: int, starts: Array, classes: Array,
    gains: Array, peaks: Array, unit: int, wide_of: Array, wide: Array, penalty: Array,
    base: Array, log_values: Array, block_bases: Array, block_logs: Array, block_gains: Array,
    sizes: Array, logs: Array, codes: Array, n_buckets: int, n_repetitions: int, weight: Number,
    in_blocks: Array, width: int, units: Array, most: Array, bounds: Array, tops: Array,
    table: Array, places: Array, scores: Array, ids: Array,
) -> Any:  # fmt: skip
    """Write the best classes of rows ``first:last``, best first, ties to the smaller id.

    The score of a class is ``base_i - (sum_f penalty_f) log_values_i + (sum over counted (f, i) of
    gains) * STEP``, and beside hashed models ``+ weight * sum_r ln P_r[h_r(i)]``. Returns the first
    row that is not done: `last`, or one whose sums of gains may pass int16 where `units` are that.

    Parameters
    ----------
    indptr, features : int64 (n + 1,), int32 (nnz,)
        The rows.
    first, last : int
        Which of them.
    starts, classes, gains, peaks, unit : arrays and int
        Those of :class:`streammach.rows.packed_pairs.PackedCounts`, `classes` being the steps; or,
        with 0 as the unit and no peaks, those of :class:`streammach.rows.pairs.CountWeights`.
    wide_of, wide, penalty, base, log_values : arrays
        Those of both.
    block_bases, block_logs, block_gains, sizes : arrays
        Those of :class:`BlockBounds`.
    logs : float32 (n, R * B)
        Logarithms of the rows' bucket probabilities.
    codes : unsigned (K * R,)
        Buckets of the classes, class by class.
    n_buckets, n_repetitions, weight : int, int, float32
        B, R, and the weight of the hashed models over R, 0 or more; R is 0 without any.
    in_blocks, width : uint8 (b * R * 64,), int
        The same buckets as :func:`streammach.counts.deficits.in_blocks` lays them out, and the
        bytes of a model's deficits; 0 where they cannot be looked up.
    units : int16 or int32 (b * 64,)
        Scratch, zeros before and after; int32 without peaks.
    most, bounds, tops : int32 (64 + b,), float32 (s + b,), float32 (R,)
        Scratch; s is the first of :func:`scratch_sizes`.
    table, places : uint8 (64 + R * width,), int64 (t + m,)
        Scratch; t is the second of these, and the longest row has m features.
    scores, ids : float32 (n, k), int64 (n, k)
        Receive the best; the id is -1 where a score is no number.
    """
    step, n_seeds = np.float32(max(unit, 1)) * STEP, max(SEEDS, scores.shape[1])
    gained, most = most[:BLOCK], most[BLOCK:]
    rooms, table = table[:BLOCK], table[BLOCK:]
    reached, bounds = bounds[:BLOCK], bounds[BLOCK:]
    seed_scores, bounds = bounds[:n_seeds], bounds[n_seeds:]
    highest, bounds = bounds[:SEED_BLOCKS], bounds[SEED_BLOCKS:]
    blocks, places = places[:SEED_BLOCKS], places[SEED_BLOCKS:]
    seeds, columns = places[:n_seeds], places[n_seeds:]
    for i in range(first, last):
        rest, n_wide = np.float32(0), 0
        if units.itemsize == 2:
            peak = np.int64(0)
            for p in range(indptr[i], indptr[i + 1]):
                peak += peaks[features[p]]
            if peak > MOST:
                return i
        for p in range(indptr[i], indptr[i + 1]):
            f = features[p]
            rest += penalty[f]
            if wide_of[f] >= 0:
                columns[n_wide] = wide_of[f]
                n_wide += 1
            else:
                add_list(np.int64(starts[f]), np.int64(starts[f + 1]), classes, gains, unit, units)
        spread, best, where = columns[:n_wide], scores[i], ids[i]
        own = logs[i if n_repetitions > 0 else 0]
        cap, size = highest_of(own, n_buckets, n_repetitions, tops)
        cap *= weight
        bound_blocks(
            spread, rest, cap, step, block_bases, block_logs, block_gains, units, most, bounds
        )
        bound = first_bound(
            spread, rest, cap, step, wide, base, log_values, units, own, codes, n_buckets,
            n_repetitions, weight, bounds, gained, reached, blocks, highest, seeds, seed_scores,
            best, where,
        )  # fmt: skip
        # What rounding may add to a score or take from what bounds it, with room to spare.
        error = weight * size + abs(cap) + abs(highest[0]) + abs(bound)
        error = (error + sizes[0] + abs(rest) * sizes[1]) * (n_repetitions + 8) * np.float32(ERROR)
        known = bound > -np.inf
        scan_blocks(
            spread, rest, cap, step, wide, base, log_values, units, own, codes, n_buckets,
            n_repetitions, weight, in_blocks, width, bounds, bound,
            error if known else np.float32(0), highest[0], known and n_repetitions > 0, gained,
            reached, most, tops, table, rooms, best, where,
        )  # fmt: skip
        units[:] = 0
    return last


@kernel(fastmath=False, allocates=False)
def first_bound(
    spread: Array, rest: Number, cap: Number, step: Number, wide: Array, base: Array,
    log_values: Array, units: Array, logs: Array, codes: Array, n_buckets: int,
    n_repetitions: int, weight: Number, bounds: Array, gained: Array, reached: Array,
    blocks: Array, highest: Array, seeds: Array, seed_scores: Array, scores: Array, ids: Array,
) -> Any:  # fmt: skip
    """Return the k-th best score of some classes: those that reach most in a few blocks."""
    # `highest` receives the largest bounds of blocks; `scores` and `ids` are scratch.
    highest[:], blocks[:], seed_scores[:], seeds[:] = -np.inf, -1, -np.inf, -1
    last, k = seeds.shape[0] - 1, scores.shape[0]
    for b in range(bounds.shape[0]):
        if bounds[b] > highest[SEED_BLOCKS - 1]:
            insert(highest, blocks, bounds[b], b)
    for block in blocks:
        if block >= 0:
            lanes = reach(
                spread, rest, cap, step, block, wide, base, log_values, units, seed_scores[last],
                gained, reached,
            )  # fmt: skip
            while lanes:
                j = np.int64(trailing_zeros(lanes))
                lanes &= lanes - np.uint64(1)
                if reached[j] > seed_scores[last]:
                    insert(seed_scores, seeds, reached[j], block * BLOCK + j)
    scores[:] = -np.inf
    for c in seeds:
        if c >= 0:
            s = score(
                spread, rest, step, c, wide, base, log_values, units, logs, codes, n_buckets,
                n_repetitions, weight,
            )  # fmt: skip
            if s > scores[k - 1]:
                insert(scores, ids, s, c)
    return scores[k - 1]


@kernel(fastmath=False, allocates=False)
def scan_blocks(
    spread: Array, rest: Number, cap: Number, step: Number, wide: Array, base: Array,
    log_values: Array, units: Array, logs: Array, codes: Array, n_buckets: int,
    n_repetitions: int, weight: Number, in_blocks: Array, width: int, bounds: Array,
    bound: Number, error: Number, highest: Number, ruled: bool, gained: Array, reached: Array,
    most: Array, tops: Array, table: Array, rooms: Array, scores: Array, ids: Array,
) -> None:  # fmt: skip
    """Score the classes that can reach a bound; it rises with the k-th best score."""
    n_blocks, k = np.int64(0), scores.shape[0]
    scale = np.float32(UNITS) / max(highest - bound + error, np.float32(1e-30))
    margin = error + np.float32(0.01) / scale  # for the rounding of a room
    if ruled and width > 0:
        write_deficits(logs, tops, n_buckets, width, weight * scale, table)
    for b in range(bounds.shape[0]):
        most[n_blocks] = b
        n_blocks += bounds[b] >= bound
    scores[:], ids[:] = -np.inf, -1
    for z in range(n_blocks):
        if z + AHEAD < n_blocks:
            ask_for(spread, most[z + AHEAD], wide, base, log_values)
        block = np.int64(most[z])
        if not bounds[block] >= bound:
            continue
        lanes = reach(
            spread, rest, cap, step, block, wide, base, log_values, units, bound - error, gained,
            reached,
        )  # fmt: skip
        if lanes and ruled and width > 0:
            write_rooms(reached, bound - margin, scale, rooms)
            at = block * n_repetitions * BLOCK
            lanes &= lanes_with_room(width, table, in_blocks, at, n_repetitions, rooms)
        while lanes:
            j = np.int64(trailing_zeros(lanes))
            lanes &= lanes - np.uint64(1)
            c, room = block * BLOCK + j, reached[j] - bound + error
            if (
                ruled
                and width == 0
                and not finds_room(logs, tops, codes, n_buckets, weight, c, room)
            ):
                continue
            s = score(
                spread, rest, step, c, wide, base, log_values, units, logs, codes, n_buckets,
                n_repetitions, weight,
            )  # fmt: skip
            if s > scores[k - 1]:
                insert(scores, ids, s, c)
                bound = max(bound, scores[k - 1])


@kernel(inline=True)
def add_list(
    first: Number, last: Number, classes: Array, gains: Array, unit: int, units: Array
) -> None:
    """Add the gains of a list's pairs to those of their classes."""
    # Gains are integers, so their sum does not depend on its order. Indices are unsigned: no test
    # for negative ones.
    if unit == 0:
        for z in range(first, last):
            units[np.uint32(classes[z])] += gains[z]
    else:
        c = np.uint32(0)
        for z in range(first, last):
            c += classes[z]
            units[np.uint32(c)] += gains[z]


@kernel(fastmath=False, allocates=False)
def bound_blocks(
    spread: Array, rest: Number, cap: Number, step: Number, block_bases: Array, block_logs: Array,
    block_gains: Array, units: Array, most: Array, bounds: Array,
) -> None:  # fmt: skip
    """Write what the classes of each block reach at most: `bounds` float32 (b,)."""
    for b in range(most.shape[0]):
        most[b] = highest_unit(units, b * BLOCK)
    for w in spread:
        more = block_gains[w]
        for b in range(most.shape[0]):
            most[b] += more[b]
    theirs = block_logs[0] if rest >= 0 else block_logs[1]
    for b in range(bounds.shape[0]):
        total = np.float32(block_bases[b] - rest * theirs[b] + most[b] * step)
        bounds[b] = total + cap


@kernel(inline=True)
def ask_for(spread: Array, b: Number, wide: Array, base: Array, log_values: Array) -> None:
    """Ask for the memory of a block that is looked at soon."""
    start = np.int64(b) * BLOCK
    for j in range(0, BLOCK, LINE):
        prefetch(base, start + j)
        prefetch(log_values, start + j)
    for w in spread:
        for j in range(0, BLOCK, 2 * LINE):
            prefetch(wide, w * base.shape[0] + start + j)


@kernel(inline=True)
def reach(
    spread: Array, rest: Number, cap: Number, step: Number, b: Number, wide: Array, base: Array,
    log_values: Array, units: Array, bound: Number, gained: Array, reached: Array,
) -> Any:  # fmt: skip
    """Write what a block's classes reach at most but for rounding; return whose is a bound."""
    # The answer is a uint64 with a bit for each class.
    start, lanes = b * BLOCK, np.uint64(0)
    take_units(units, start, gained)
    if base.shape[0] - start >= BLOCK:
        for w in spread:
            add_gains(wide, w * base.shape[0] + start, gained)
        lanes = reach_block(gained, base, log_values, start, rest, step, cap, bound, reached)
    else:
        for j in range(base.shape[0] - start):
            c = start + j
            for w in spread:
                gained[j] += wide[w, c]
            reached[j] = base[c] - rest * log_values[c] + np.float32(gained[j]) * step + cap
            if reached[j] >= bound:
                lanes |= np.uint64(1) << np.uint64(j)
    return lanes


@kernel(inline=True)
def score(
    spread: Array, rest: Number, step: Number, c: Number, wide: Array, base: Array,
    log_values: Array, units: Array, logs: Array, codes: Array, n_buckets: int,
    n_repetitions: int, weight: Number,
) -> Any:  # fmt: skip
    """Return the score of a class."""
    gained = np.int64(units[c])
    for w in spread:
        gained += wide[w, c]
    s = np.float32(base[c] - rest * log_values[c] + gained * step)
    if n_repetitions > 0:
        s = s + weight * hashed_sum(logs, codes, n_buckets, n_repetitions, c)
    return s
