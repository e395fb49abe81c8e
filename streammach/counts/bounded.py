"""Exact top-k of counts, alone or beside hashed models; most classes are never scored.

Classes lie in blocks of 64. No class of a block passes what its largest `base`, its smallest
`log_values`, the largest sum of its gains and the best buckets of all models would make together in
one class. Blocks are looked at only where that reaches the k-th best of some scores that are known.
All of these are computed in the order of a score, in which rounding keeps the order of numbers.

The deficit of a bucket is what its logarithm lacks to the highest one of its model. A class whose
deficits come to more than the room that its counts leave to the k-th best score is none of the
best.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from streammach.counts.class_scores import (
    BLOCK,
    BoundedRow,
    HashedScores,
    ScoreLists,
    add_features,
    score,
)
from streammach.counts.count_kernels import STEP
from streammach.counts.vectors import add_gains, highest_unit, reach_block, take_units
from streammach.rows.arrays import insert, offer
from streammach.rows.packed import Counts, PackedCounts
from streammach.system.jit import Array, Number, kernel
from streammach.system.simd import aligned_zeros, prefetch, trailing_zeros

SEED_BLOCKS = 8  # with the highest bounds, whose best classes give the first k-th best score
SEEDS = 16
MOST = 32767  # units in an int16
LEFT_OUT = np.int32(-(1 << 30))  # units of a class that is not looked at
AHEAD, LINE = 6, 16  # blocks whose memory is asked for early; float32 in a line of the cache
ERROR = 2.0**-21  # twice what rounding one addition takes or gives, and more
ROW_BYTES = 8192  # scratch for a block of classes, the best ones, and a row's features: for 500


class SoughtClasses(NamedTuple):
    """Which classes of rows are looked for."""

    # starts, left_out: int64 (n + 1,), int32: classes of each row that are not, which only int32
    # units can leave out; `starts` is empty where no row has such
    starts: Array
    left_out: Array
    far: Any  # float32: classes so far below the best one are not, either


ALL_CLASSES = SoughtClasses(np.zeros(0, np.int64), np.zeros(0, np.int32), np.float32(np.inf))


class BoundRoom(NamedTuple):
    """A thread's scratch."""

    units: Array  # int16, or int32 without peaks (b * 64,), zeros before and after
    gained: Array  # int32 (64,)
    most: Array  # int32 (b,)
    reached: Array  # float32 (64,)
    bounds: Array  # float32 (b,)
    seed_scores: Array  # float32 (max(16, k),)
    seeds: Array  # int64 (max(16, k),)
    highest: Array  # float32 (8,): the largest bounds of blocks
    blocks: Array  # int64 (8,)
    columns: Array  # int64 (m,), of the longest row
    tops: Array  # float32 (R,)

    @classmethod
    def of(cls, counts: Counts, n_repetitions: int, k: int, longest: int) -> BoundRoom:
        """Return scratch for k classes of rows that are not longer."""
        blocks, seeds = -(-counts.n_classes // BLOCK), max(SEEDS, k)
        kind = np.dtype(np.int16 if isinstance(counts, PackedCounts) else np.int32)
        return cls(
            aligned_zeros(blocks * BLOCK * kind.itemsize).view(kind),
            aligned_zeros(BLOCK * 4).view(np.int32),
            aligned_zeros(blocks * 4).view(np.int32), aligned_zeros(BLOCK * 4).view(np.float32),
            aligned_zeros(blocks * 4).view(np.float32), np.empty(seeds, np.float32),
            np.empty(seeds, np.int64), np.empty(SEED_BLOCKS, np.float32),
            np.empty(SEED_BLOCKS, np.int64), np.empty(longest, np.int64),
            np.empty(n_repetitions, np.float32),
        )  # fmt: skip

    @staticmethod
    def footprint(n_classes: int, n_repetitions: int) -> int:
        """Return the bytes of a thread's scratch."""
        blocks = -(-n_classes // BLOCK)
        return blocks * (4 * BLOCK + 8) + 4 * n_repetitions + ROW_BYTES


@kernel(fastmath=False)
def best_of_rows(
    indptr: Array, features: Array, first: int, last: int, sought: SoughtClasses,
    lists: ScoreLists, hashed: HashedScores, room: BoundRoom, scores: Array, ids: Array,
) -> Any:  # fmt: skip
    """Write the best classes of rows ``first:last``, best first, ties to the smaller id.

    The score of a class is ``base_i - (sum_f penalty_f) log_values_i + (sum over counted (f, i) of
    gains) * STEP``, and beside hashed models ``+ weight * sum_r ln P_r[h_r(i)]``. Returns the first
    row that is not done: `last`, or one whose sums of gains may pass int16 where `units` are that.

    Parameters
    ----------
    indptr, features, first, last : int64 (n + 1,), int32 (nnz,), int, int
        The rows, and which of them.
    sought, lists, hashed, room : SoughtClasses, ScoreLists, HashedScores, BoundRoom
        What is looked for; what scores are made of; scratch.
    scores, ids : float32 (n, k), int64 (n, k)
        Receive the best of row i at ``i % n``; the id is -1 where a score is no number.
    """
    for i in range(first, last):
        row = features[indptr[i] : indptr[i + 1]]
        if room.units.itemsize == 2:
            peak = np.int64(0)
            for f in row:
                peak += lists.peaks[f]
            if peak > MOST:
                return i
        logs, at = hashed.logs[i if hashed.n_repetitions > 0 else 0], i % scores.shape[0]
        without = sought.left_out[:0]
        if sought.starts.shape[0] > 0:
            without = sought.left_out[sought.starts[i] : sought.starts[i + 1]]
        best_of_row(row, without, logs, sought.far, lists, hashed, room, scores[at], ids[at])
    return last


@kernel(inline=True)
def best_of_row(
    features: Array, without: Array, logs: Array, far: Number, lists: ScoreLists,
    hashed: HashedScores, room: BoundRoom, scores: Array, ids: Array,
) -> None:  # fmt: skip
    """Write the best classes of a row: of its features, without some classes, by its logarithms."""
    rest, n_wide = add_features(features, lists, room.units, room.columns)
    for c in without:
        room.units[c] = LEFT_OUT
    cap, size = highest_of(logs, hashed, room.tops)
    cap *= hashed.weight
    row = BoundedRow(room.columns[:n_wide], rest, cap, np.float32(max(lists.unit, 1)) * STEP, logs)
    bound_blocks(row, lists, room)
    bound = lower_limit(row, lists, hashed, room, scores, ids)
    bound = max(bound, scores[0] - far)
    # What rounding may add to a score or take from what bounds it, with room to spare.
    error = hashed.weight * size + abs(cap) + abs(room.highest[0]) + abs(bound)
    error = error + lists.sizes[0] + abs(rest) * lists.sizes[1]
    error = error * (hashed.n_repetitions + 8) * np.float32(ERROR) if bound > -np.inf else -1.0
    scan_blocks(row, lists, hashed, room, bound, error, scores, ids)
    room.units[:] = 0


@kernel(fastmath=False, inner=True)
def lower_limit(
    row: BoundedRow, lists: ScoreLists, hashed: HashedScores, room: BoundRoom, scores: Array,
    ids: Array,
) -> Any:  # fmt: skip
    """Return the k-th best score of some classes: those that reach most in a few blocks."""
    # `scores` and `ids` are scratch.
    highest, seeds, seed_scores = room.highest, room.seeds, room.seed_scores
    highest[:], room.blocks[:], seed_scores[:], seeds[:] = -np.inf, -1, -np.inf, -1
    last, k = seeds.shape[0] - 1, scores.shape[0]
    for b in range(room.bounds.shape[0]):
        offer(room.bounds[b], b, highest, room.blocks)
    for block in room.blocks:
        if block >= 0:
            lanes = reach(row, block, lists, np.float64(seed_scores[last]), room)
            while lanes:
                j = np.int64(trailing_zeros(lanes))
                lanes &= lanes - np.uint64(1)
                offer(room.reached[j], block * BLOCK + j, seed_scores, seeds)
    scores[:] = -np.inf
    for c in seeds:
        if c >= 0:
            offer(score(row, c, lists, hashed, room.units), c, scores, ids)
    return scores[k - 1]


@kernel(fastmath=False, inner=True)
def scan_blocks(
    row: BoundedRow, lists: ScoreLists, hashed: HashedScores, room: BoundRoom, bound: Number,
    error: Number, scores: Array, ids: Array,
) -> None:  # fmt: skip
    """Score the classes that can reach a bound, which rises with the k-th best score.

    Parameters
    ----------
    row, lists, hashed, room : BoundedRow, ScoreLists, HashedScores, BoundRoom
        The row, what scores are made of, and scratch.
    bound, error : float32, float64
        The bound, and what rounding takes from it; below 0, nothing is ruled out.
    scores, ids : float32 (k,), int64 (k,)
        Receive the best.
    """
    ruled, error = error >= 0 and hashed.n_repetitions > 0, max(error, 0.0)
    n_blocks, k = np.int64(0), scores.shape[0]
    for b in range(room.bounds.shape[0]):
        room.most[n_blocks] = b
        n_blocks += room.bounds[b] >= bound
    scores[:], ids[:] = -np.inf, -1
    for z in range(n_blocks):
        if z + AHEAD < n_blocks:
            ask_for(row.spread, room.most[z + AHEAD], lists)
        block = np.int64(room.most[z])
        if not room.bounds[block] >= bound:
            continue
        lanes = reach(row, block, lists, bound - error, room)
        while lanes:
            j = np.int64(trailing_zeros(lanes))
            lanes &= lanes - np.uint64(1)
            c, left = block * BLOCK + j, room.reached[j] - bound + error
            if ruled and not finds_room(row.logs, room.tops, hashed, c, left):
                continue
            s = score(row, c, lists, hashed, room.units)
            if s > scores[k - 1]:
                insert(s, c, scores, ids)
                bound = max(bound, scores[k - 1])


@kernel(fastmath=False, inner=True)
def bound_blocks(row: BoundedRow, lists: ScoreLists, room: BoundRoom) -> None:
    """Write what the classes of each block reach at most to ``room.bounds``."""
    most, bounds, rest = room.most, room.bounds, row.rest
    for b in range(most.shape[0]):
        most[b] = highest_unit(room.units, b * BLOCK)
    for w in row.spread:
        more = lists.block_gains[w]
        for b in range(most.shape[0]):
            most[b] += more[b]
    theirs = lists.block_logs[0] if rest >= 0 else lists.block_logs[1]
    for b in range(bounds.shape[0]):
        total = np.float32(lists.block_bases[b] - rest * theirs[b] + most[b] * row.step)
        bounds[b] = total + row.cap


@kernel(inline=True)
def ask_for(spread: Array, b: Number, lists: ScoreLists) -> None:
    """Ask for the memory of a block that is looked at soon."""
    start = np.int64(b) * BLOCK
    for j in range(0, BLOCK, LINE):
        prefetch(lists.base, start + j)
        prefetch(lists.log_values, start + j)
    for w in spread:
        for j in range(0, BLOCK, 2 * LINE):
            prefetch(lists.wide, w * lists.base.shape[0] + start + j)


@kernel(fastmath=False, inline=True, inner=True)
def reach(row: BoundedRow, b: Number, lists: ScoreLists, bound: Number, room: BoundRoom) -> Any:
    """Write what a block's classes reach at most but for rounding; return whose is a bound."""
    # The answer is a uint64 with a bit for each class.
    base, gained, start, lanes = lists.base, room.gained, b * BLOCK, np.uint64(0)
    take_units(room.units, start, gained)
    if base.shape[0] - start >= BLOCK:
        for w in row.spread:
            add_gains(lists.wide, w * base.shape[0] + start, gained)
        lanes = reach_block(
            gained, base, lists.log_values, start, row.rest, row.step, row.cap, bound, room.reached
        )
    else:
        for j in range(base.shape[0] - start):
            c = start + j
            for w in row.spread:
                gained[j] += lists.wide[w, c]
            own = base[c] - row.rest * lists.log_values[c] + np.float32(gained[j]) * row.step
            room.reached[j] = own + row.cap
            if room.reached[j] >= bound:
                lanes |= np.uint64(1) << np.uint64(j)
    return lanes


@kernel(inline=True)
def highest_of(logs: Array, hashed: HashedScores, tops: Array) -> Any:
    """Write the highest logarithm of each model; return their sum, and that of magnitudes."""
    # `tops` float32 (R,) receives them. No class has a larger sum, computed in this order.
    most, size, n_buckets = np.float32(0), np.float32(0), hashed.n_buckets
    for r in range(hashed.n_repetitions):
        high = low = logs[r * n_buckets]
        for b in range(1, n_buckets):
            x = logs[r * n_buckets + b]
            high = x if x > high else high
            low = x if x < low else low
        tops[r] = high
        most += high
        size += max(high, -low)
    return most, size


@kernel(inline=True)
def finds_room(logs: Array, tops: Array, hashed: HashedScores, c: Number, room: Number) -> Any:
    """Return whether what the models take from a class leaves it room, one model after another."""
    left, r, n_repetitions = room, 0, hashed.n_repetitions
    while r < n_repetitions and left >= 0:
        bucket = np.int64(hashed.codes[c * n_repetitions + r])
        left -= hashed.weight * (tops[r] - logs[r * hashed.n_buckets + bucket])
        r += 1
    return left >= 0
