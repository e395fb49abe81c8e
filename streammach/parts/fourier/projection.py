"""Random projections whose cosines tell near rows from far ones, from a seed and some rows.

The cosines of many random directions stand for a Gaussian kernel: a linear model of them is one
that tells classes apart whose rows lie in many places (Rahimi and Recht, 2007). The directions of
a block are orthogonal to one another, which makes fewer of them do (Yu and others, 2016).
"""

from __future__ import annotations

import numpy as np
import threadpoolctl
from numpy.typing import NDArray

from streammach.data.holdout import masked_blocks
from streammach.parts.base import PartSession
from streammach.rows.dense import Basis, Waves, expanded, product
from streammach.rows.transforms import transformed
from streammach.spec.training import TrainSpec

ROWS = 1000  # whose distances are looked at
SHARE = 3.0  # of the magnitudes of a row's features, those of its cosines together
MEAN_COSINE = 2 / np.pi  # magnitude of a cosine, in the mean
STREAM = 0x464F5552  # keeps these random numbers apart from others of the same seed


def footprint(n_features: int, n_more: int) -> int:
    """Return the bytes of finding a projection, and of the one before it."""
    square = 4 * 8 * n_features * n_features
    return square + 6 * 8 * (n_features + 2) * n_more + 8 * ROWS * (ROWS + 2 * n_features)


def waves_of(session: PartSession, spec: TrainSpec, n_more: int, basis: Basis | None) -> Waves:
    """Return what gives the rows of a training more columns."""
    d, threads = session.dataset.n_features, session.plan.config.placement.threads
    with threadpoolctl.threadpool_limits(threads, user_api="blas"):
        x = _some_rows(session, spec)
        if basis is not None:
            plain, x = x, np.empty_like(x)
            basis.apply(plain, x)
        unit = usual_distance(x) * spec.bandwidth
        directions, phases = drawn(spec.seed, d, n_more)
        directions /= unit
        if basis is not None:
            phases -= product(basis.shift.astype(np.float64), directions)
            directions = product(basis.rotation.astype(np.float64), directions)
        # Steps of the same rate change scores by about as much as without.
        amplitude = SHARE * float(np.abs(x).sum(axis=1).mean()) / (MEAN_COSINE * n_more)
    last = np.full(n_more, amplitude or 1.0)
    projection = np.stack([*directions, phases, last]).astype(np.float32)
    return Waves(projection, basis)


def drawn(seed: int, n_features: int, n_more: int) -> tuple[NDArray[np.float64], ...]:
    """Return random directions float64 (d, D), long as Gaussian ones, and phases float64 (D,)."""
    rng = np.random.default_rng([seed, STREAM])
    blocks = []
    for first in range(0, n_more, n_features):
        square, upper = np.linalg.qr(rng.standard_normal((n_features, n_features)))
        square *= np.sign(np.diag(upper))  # else directions are not spread evenly
        lengths = np.sqrt(rng.chisquare(n_features, n_features))
        blocks.append((square * lengths)[:, : n_more - first])
    return np.concatenate(blocks, axis=1), rng.uniform(0, 2 * np.pi, n_more)


def usual_distance(x: NDArray[np.float32]) -> float:
    """Return the median distance of two different rows float32 (n, d); 1 where there are none."""
    rows = x.astype(np.float64)
    squares = (rows**2).sum(axis=1)
    found = squares[:, None] + squares - 2 * product(rows, rows.T)
    apart = found[np.triu_indices(len(rows), 1)]
    apart = apart[apart > 1e-9 * max(float(squares.mean()), 1e-30)] if len(apart) else apart
    return float(np.sqrt(np.median(apart))) if len(apart) else 1.0


def _some_rows(session: PartSession, spec: TrainSpec) -> NDArray[np.float32]:
    """Return the first rows of the store that are not held out, after their transform."""
    found, n = [], 0
    for block, out in masked_blocks(session.dataset, session.held):
        session.check()
        rows = block.take(np.flatnonzero(~out)[: ROWS - n])
        found.append(expanded(transformed(rows, spec.transform), session.dataset.n_features))
        n += rows.n_rows
        if n >= ROWS:
            break
    return np.concatenate(found)
