"""The least time that a step and a decision can take on a card: bytes over rates, and look-ups.

Rows of the table are found in the cache as an LRU cache of rows would hold them (Che's
approximation): on linux_callee it gives the hit rates that were counted, to 0.02.
"""

from dataclasses import dataclass

import numpy as np

CACHE_SHARE = 0.6  # of the L2 that rows of the table can be counted on to have
TILE_COLUMNS = 1024  # columns that all blocks of a launch work on at a time
ROUNDS = 200  # of bisection


@dataclass(frozen=True)
class Card:
    """Rates of a card: bytes a second of memory and of the L2, its bytes, look-ups a second."""

    memory_rate: float
    cache_rate: float
    cache_bytes: float
    lookups: float  # of 32 words of shared memory each: multiprocessors times clock


def presence(edges, row_nnz):
    """Chance that a row holds each feature: float64 (d,), for rows of `row_nnz` distinct ones."""
    weights, low, high = np.diff(edges, prepend=0.0), 0.0, 1e9
    for _ in range(ROUNDS):
        middle = (low + high) / 2
        enough = np.minimum(middle * weights, 0.95).sum() >= row_nnz
        low, high = (low, middle) if enough else (middle, high)
    return np.minimum(high * weights, 0.95)


def hit_rate(p, rows):
    """Share of the fetches of a row of the table that find it among the last `rows` rows."""
    if rows >= len(p):
        return 1.0
    low, high = 0.0, 1e12
    for _ in range(ROUNDS):
        middle = (low + high) / 2
        held = (1 - np.exp(-p * middle)).sum()
        low, high = (middle, high) if held < rows else (low, middle)
    return float((p * (1 - np.exp(-p * high))).sum() / p.sum())


def step_floors(p, n_rows, columns, models, card):
    """Seconds of the forward and the backward pass of a batch of sparse rows.

    `p` is what :func:`presence` gave, `columns` are R*B, `models` R.
    """
    values, unique = p.sum() * n_rows, (1 - (1 - p) ** n_rows).sum()
    row, slab = 4 * columns, 4 * min(columns, TILE_COLUMNS)
    cache = card.cache_bytes * CACHE_SHARE
    residuals = 0 if n_rows * slab < cache else n_rows * row
    missed = max(values * (1 - hit_rate(p, cache / slab)), min(unique, values))
    fetched = missed * row if cache < unique * slab else unique * row
    forward = max((fetched + residuals) / card.memory_rate, values * row / card.cache_rate)
    update = unique * (2 * row + 8 * models)
    from_memory = update + (0 if not residuals else values * row)
    backward = max(from_memory / card.memory_rate, (values * row + update) / card.cache_rate)
    return {"forward": forward, "backward": backward}


def passes(n_buckets, lanes=32, trials=2000):
    """Passes of shared memory that a warp's look-up of random buckets takes, on average."""
    rng, worst = np.random.default_rng(0), 0
    for _ in range(trials):
        words = np.unique(rng.integers(0, n_buckets, lanes))  # equal words are read once
        worst += np.bincount(words % 32, minlength=32).max()
    return worst / trials


def decode_floor(n_classes, n_repetitions, n_buckets, card):
    """Seconds a row of scoring every class: R look-ups of 32 classes at a time."""
    return n_classes * n_repetitions / 32 * passes(n_buckets) / card.lookups
