"""Which of a model's repetitions are trained together."""

from __future__ import annotations

import itertools
from math import gcd

from streammach.backends.cuda.launch import CHUNK
from streammach.spec.model import ModelShape


def models_step(n_buckets: int) -> int:
    """Return how many models it takes until one begins where a chunk of columns begins."""
    return CHUNK // gcd(n_buckets, CHUNK)


def group_edges(spec: ModelShape, n_groups: int) -> list[tuple[int, int]]:
    """Return the models of each group, ``first:last``: as even as can be, none empty.

    Groups begin where a chunk of columns begins, so that a model's bits do not depend on them.

    Parameters
    ----------
    spec : ModelSpec
        The model.
    n_groups : int
        How many are wanted; fewer where there are not enough models.
    """
    step = models_step(spec.n_buckets)
    units = -(-spec.n_repetitions // step)
    n_groups = min(n_groups, units)
    edges = [min(units * g // n_groups * step, spec.n_repetitions) for g in range(n_groups + 1)]
    return list(itertools.pairwise(edges))


def widest(spec: ModelShape, n_groups: int) -> int:
    """Return the most models of a group."""
    return max(last - first for first, last in group_edges(spec, n_groups))
