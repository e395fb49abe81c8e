"""Which classes the hashes cannot tell apart: counted exactly, beside the theorem's bound.

The theorem: with ``R >= 2 ln(K / sqrt(delta)) / ln B`` all pairs of classes differ in some
repetition with probability 1 - delta, because each of the K (K - 1) / 2 pairs shares all R codes
with probability B^-R. Both sides are counted over many draws of the hashes. The draws are plain
ones: streammach.hashing.draw throws away draws with such a pair, which would prove nothing here.
"""

import numpy as np

from streammach import hashing

DRAWS = 50
DELTA = 1e-3
NONE_EXPECTED = 1e-4  # pairs; from there on no further repetition is counted


def plain_draw(seed, n_repetitions):
    """Return the coefficients of R hashes, whatever they collide on."""
    rng = np.random.Generator(np.random.PCG64([seed]))
    a = rng.integers(1, hashing.P, n_repetitions)
    b = rng.integers(0, hashing.P, n_repetitions)
    return tuple(a.tolist()), tuple(b.tolist())


def shared_pairs(table):
    """Return, for r = 1..R, how many pairs of classes share their first r codes (K, R)."""
    found, group = [], np.zeros(len(table), np.int64)
    width = int(table.max()) + 1
    for codes in table.T:
        _, group, sizes = np.unique(group * width + codes, return_inverse=True, return_counts=True)
        found.append(int((sizes * (sizes - 1) // 2).sum()))
    return found


def expected_pairs(n_classes, n_buckets, r):
    """Return ``K (K - 1) / 2 B^-r``."""
    return n_classes * (n_classes - 1) / 2 * float(n_buckets) ** -r


def counted(n_classes, n_buckets, draws=DRAWS):
    """Return counts and bounds for r = 1, 2, .. until no pair can be expected, JSON-ready."""
    most = 1
    while expected_pairs(n_classes, n_buckets, most) > NONE_EXPECTED:
        most += 1
    tables = (hashing.codes(*plain_draw(i, most), n_classes, n_buckets) for i in range(draws))
    pairs = np.array([shared_pairs(table) for table in tables])
    rows = [
        {
            "repetitions": r, "pairs": float(pairs[:, r - 1].mean()),
            "expected": expected_pairs(n_classes, n_buckets, r),
            "draws_with_pairs": int((pairs[:, r - 1] > 0).sum()),
            "bound": min(1.0, hashing.collision_bound(n_classes, n_buckets, r)),
        }
        for r in range(1, most + 1)
    ]  # fmt: skip
    return {
        "classes": n_classes, "buckets": n_buckets, "draws": draws, "delta": DELTA,
        "theorem_repetitions": hashing.repetitions_for(n_classes, n_buckets, DELTA), "rows": rows,
    }  # fmt: skip
