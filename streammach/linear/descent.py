"""Learns a linear classifier of a class to the end, by dual coordinate descent."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammach.system.jit import Array, Number, kernel

ORDER = 1103515245, 12345, (1 << 31) - 1  # of the numbers that make an order of examples


class UnitRows(NamedTuple):
    """Rows as classifiers learn from them."""

    indptr: Array  # int64 (n + 1,)
    features: Array  # int32 (nnz,)
    values: Array  # float32 (nnz,): scaled, of rows at unit length
    costs: Array  # float32 (n,): what an error of each costs, above 0


class Examples(NamedTuple):
    """The examples of a class, or of some one after another, which are put into other orders."""

    rows: Array  # int32 (n,): twice the row, plus 1 for a row of the class
    duals: Array  # float32 (n,): how much each counts in the weights, 0 or more
    norms: Array  # float32 (n,): of a step of each: the square sum of what it is multiplied with

    @classmethod
    def of(cls, rows: NDArray[np.int32]) -> Examples:
        """Return examples of which nothing is known but their rows."""
        return cls(rows, *np.empty((2, len(rows)), np.float32))


class ClassRoom(NamedTuple):
    """A thread's scratch for a class at a time."""

    place: Array  # int32 (d,), zeros before and after: the number of each feature, from 1
    features: Array  # int32 (d,): the features of the class
    # float32 (d + 2,): their weights, by number from 1; the bias stands behind the last one
    weights: Array

    @classmethod
    def of(cls, d: int) -> ClassRoom:
        """Return scratch for d features."""
        return cls(np.zeros(d, np.int32), np.empty(d, np.int32), np.zeros(d + 2, np.float32))

    @staticmethod
    def footprint(n_features: int, n_examples: int) -> int:
        """Return the bytes of it, and of so many examples."""
        return 12 * n_features + 12 * n_examples


@kernel()
def learn_class(
    rows: UnitRows, examples: Examples, gain: Number, close: Number, passes: int, room: ClassRoom
) -> Any:
    """Learn the weights of a class from its examples; return how many features have one.

    They are least in
    ``(|w|^2 + b^2) / 2 + sum_i g_i cost_i max(0, 1 - y_i (w x_i + b))^2``, y = 1 and g = `gain`
    for rows of the class, -1 and 1 for others: dual coordinate descent (Hsieh et al., 2008).

    Parameters
    ----------
    rows, examples, gain : UnitRows, Examples, float32
        The rows; the examples, which are put into other orders; as above.
    close, passes : float32, int
        How far the gradients of examples may differ at the end; how often they are gone over, at
        most.
    room : ClassRoom
        Its `features` and `weights` receive those of the class, the bias behind its last weight;
        `place` is zeros again.

    Returns
    -------
    int
        Number of features m: ``features[:m]``, ``weights[1 : m + 1]``, bias ``weights[m + 1]``.
    """
    m = number_features(rows, examples, room)
    room.weights[: m + 2] = 0
    descend(rows, examples, gain, close, passes, m + 1, room.place, room.weights)
    for j in range(m):
        room.place[room.features[j]] = 0
    return m


@kernel(inline=True)
def number_features(rows: UnitRows, examples: Examples, room: ClassRoom) -> Any:
    """Give numbers to the features of examples, and norms to these; return how many features."""
    m, some = 0, examples.rows
    for e in range(some.shape[0]):
        norm = np.float32(1)
        for p in range(rows.indptr[some[e] >> 1], rows.indptr[(some[e] >> 1) + 1]):
            f = rows.features[p]
            if room.place[f] == 0:
                room.features[m] = f
                m += 1
                room.place[f] = m
            norm += rows.values[p] * rows.values[p]
        examples.duals[e], examples.norms[e] = 0, norm
    return m


@kernel(inline=True)
def descend(
    rows: UnitRows, examples: Examples, gain: Number, close: Number, passes: int, last: int,
    place: Array, weights: Array,
) -> None:  # fmt: skip
    """Go over the examples until their gradients are close; the bias is ``weights[last]``."""
    # There is none where that is 0, the weight of features that have none of their own.
    some, duals, norms = examples
    n, state = some.shape[0], np.int64(1)
    active, most = n, np.float32(np.inf)
    for _ in range(passes):
        high, low = np.float32(-np.inf), np.float32(np.inf)
        j = 0
        while j < active:
            state = (state * ORDER[0] + ORDER[1]) & ORDER[2]
            exchange(some, duals, norms, j, j + ((state * (active - j)) >> 31))
            i, y = some[j] >> 1, np.float32(1 if some[j] & 1 else -1)
            slack = np.float32(0.5) / (rows.costs[i] * (gain if y > 0 else np.float32(1)))
            a, b = rows.indptr[i], rows.indptr[i + 1]
            margin = weights[last]
            for p in range(a, b):
                margin += weights[place[rows.features[p]]] * rows.values[p]
            gradient = y * margin - np.float32(1) + slack * duals[j]
            if duals[j] == 0 and gradient > most:
                active -= 1
                exchange(some, duals, norms, j, active)
                continue
            own = gradient if duals[j] > 0 else min(gradient, np.float32(0))
            high, low = max(high, own), min(low, own)
            if own != 0:
                dual = max(duals[j] - gradient / (norms[j] + slack), np.float32(0))
                step = (dual - duals[j]) * y
                duals[j] = dual
                for p in range(a, b):
                    weights[place[rows.features[p]]] += step * rows.values[p]
                weights[last] += step
                weights[0] = 0
            j += 1
        if high - low <= close:
            if active == n:
                break
            active, most = n, np.float32(np.inf)
        else:
            most = high if high > 0 else np.float32(np.inf)


@kernel(inline=True)
def exchange(some: Array, duals: Array, norms: Array, a: int, b: int) -> None:
    """Let two examples change places."""
    some[a], some[b] = some[b], some[a]
    duals[a], duals[b] = duals[b], duals[a]
    norms[a], norms[b] = norms[b], norms[a]
