"""Kernels that learn a linear classifier of each label from its rows and from those like them."""

from __future__ import annotations

from typing import Any

import numpy as np

from streammach.counts.count_kernels import NOWHERE, CountedPairs, find_pair
from streammach.linear.descent import ClassRoom, Examples, UnitRows, descend
from streammach.system.jit import Array, Number, kernel


@kernel()
def learn_labels(
    starts: Array, examples: Examples, before: int, first: int, last: int, rows: UnitRows,
    pairs: CountedPairs, gains: Array, close: Number, passes: int, room: ClassRoom, places: Array,
    theta: Array,
) -> None:  # fmt: skip
    """Write the weights of classes ``before + first : before + last`` to the places of their pairs.

    They are least in ``|w|^2 / 2 + sum_i g_i cost_i max(0, 1 - y_i sum_f w_f)^2`` over the examples
    i, y = 1 for rows of the class and -1 for others, g the gain of the class and 1, f the features
    of a row that are counted with the class: dual coordinate descent (Hsieh et al., 2008).

    Parameters
    ----------
    starts, examples, before, first, last : int64 (k + 1,), Examples, int, int, int
        Where the examples of each class begin; those of classes from `before` on; which of these.
    rows, pairs, gains : UnitRows, CountedPairs, float32 (K,)
        The rows, all values 1; the table; as above.
    close, passes : float32, int
        How far the gradients of a class's examples may differ at the end; how often they are gone
        over, at most.
    room, places : ClassRoom, int64 (d,)
        Scratch; where the pairs of its features stand in the table.
    theta : float32 (Z,)
        Receives the weights; others are not written.
    """
    for c in range(first, last):
        a, b = starts[c], starts[c + 1]
        some = Examples(examples.rows[a:b], examples.duals[a:b], examples.norms[a:b])
        n = take_features(before + c, some, rows, pairs, room, places)
        if n > 0:
            gain = gains[before + c]
            descend(rows, some, gain, close, passes, 0, room.place, room.weights)
        for j in range(n):
            theta[places[j]] = room.weights[j + 1]
            room.place[room.features[j]] = 0


@kernel(inline=True)
def take_features(
    c: int, examples: Examples, rows: UnitRows, pairs: CountedPairs, room: ClassRoom,
    places: Array,
) -> Any:  # fmt: skip
    """Give numbers to the features that are counted with a class, and norms to its examples."""
    # Returns how many features these are.
    n = 0
    for example in examples.rows:
        if example & 1:
            for p in range(rows.indptr[example >> 1], rows.indptr[(example >> 1) + 1]):
                f = rows.features[p]
                if room.place[f] == 0:
                    z = find_pair(pairs, f, c)
                    if z != NOWHERE and pairs.counts[z] > 0:
                        room.features[n], places[n] = f, z
                        n += 1
                        room.place[f] = n
    room.weights[: n + 1] = 0
    for e in range(examples.rows.shape[0]):
        i, norm = examples.rows[e] >> 1, np.float32(0)
        for p in range(rows.indptr[i], rows.indptr[i + 1]):
            norm += room.place[rows.features[p]] > 0
        examples.duals[e], examples.norms[e] = 0, norm
    return n
