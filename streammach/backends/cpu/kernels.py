"""The loops of a training step on the CPU: forward, backward and update.

No result depends on how rows and features are shared among threads: every sum runs over one row's
values, one feature's rows or one model's buckets, in one order.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from streammach.backends.cpu.products import (
    AHEAD_COLUMNS,
    add_rows,
    add_shared,
    logits,
    prefetch_columns,
)
from streammach.backends.rowmath import adagrad_step, adam_moment, adam_step, exp, residual
from streammach.options.optimizers import ADAGRAD, ADAM, SGD
from streammach.rows.batch import ByFeature
from streammach.system.jit import Array, Number, kernel
from streammach.system.simd import take_turn, wait_for

# Rows and features of a turn: so few that no thread waits long for the last one, 50 us of 32 x 25.
TURN_ROWS, TURN_FEATURES = 4, 32
TOGETHER = 8  # features that all rows have whose gradients are added up together
# Places of three counts of turns, each in a cache line of its own: of rows that were begun, of rows
# that are done, of features; the bias comes before the first of these.
ROWS, DONE, FEATURES, TURNS = 0, 8, 16, 24


class RowTargets(NamedTuple):
    """What the rows of a batch are trained towards, and how."""

    codes: Array  # unsigned (K, R): bucket of each class in each model
    importance: Array  # float32 (n,): weight of each row
    smoothing: Number  # float32: label smoothing
    n_buckets: int  # B


class RowLosses(NamedTuple):
    """What rows give, and what training makes of it in place."""

    z: Array  # float32 (n, C): logits; receives the derivative of a row's loss times its weight
    losses: Array  # float32 (n, R): receives the loss of each model times the weight
    norms: Array  # float32 (n, R): receives the sum of squares of z's B columns


class SparseRows(NamedTuple):
    """The rows of a batch, and the class of each."""

    indptr: Array  # int64 (n + 1,)
    features: Array  # int32 (nnz,)
    values: Array  # float32 (nnz,)
    classes: Array  # int32 (n,)


class OptimizerStep(NamedTuple):
    """An optimiser's step on a table of weights."""

    optimizer: int  # ADAGRAD, ADAM or SGD
    weights: Array  # float32 (d, C); changed
    # float32 (d, R) for Adagrad: sum of the squared gradients of each model's columns; (d, C) for
    # Adam: the first moment of each column; not used by SGD
    accumulated: Array
    second: Array  # float32 (d, C): Adam's second moment
    rate: Number  # rate, epsilon: float32: step size and what keeps the denominator from zero, with
    epsilon: Number  # the corrections of bias for Adam
    decays: Array  # float32 (2,): Adam's decays
    n_buckets: int  # B


@kernel(inline=True)
def exponentials(z: Array) -> Any:
    """Replace `z` float32 (B,) by exp(z - max); return (max, sum)."""
    top, total = z[0], np.float32(0)
    for c in range(z.shape[0]):
        top = max(top, z[c])
    for c in range(z.shape[0]):
        e = exp(z[c] - top)
        z[c] = e
        total += e
    return top, total


@kernel(inline=True)
def residuals(classes: Array, targets: RowTargets, out: RowLosses, first: int, last: int) -> None:
    """Turn logits into residuals, in place, for rows ``first:last`` of `classes` int32 (n,)."""
    n_buckets, smoothing = targets.n_buckets, targets.smoothing
    for i in range(first, last):
        scale = targets.importance[i]
        for r in range(targets.codes.shape[1]):
            v = out.z[i, r * n_buckets : (r + 1) * n_buckets]
            t = np.int64(targets.codes[classes[i], r])
            own = v[t]
            top, total = exponentials(v)
            out.losses[i, r] = scale * (np.float32(math.log(total)) - (own - top))
            inverse, square = np.float32(1) / total, np.float32(0)
            for c in range(n_buckets):
                g = scale * residual(v[c] * inverse, False, smoothing, n_buckets)
                v[c] = g
                square += g * g
            g = v[t]
            v[t] = g - scale * (np.float32(1) - smoothing)
            out.norms[i, r] = square - g * g + v[t] * v[t]


@kernel()
def probabilities(
    n_buckets: int, n_repetitions: int, first: int, last: int, logarithms: bool, z: Array
) -> None:
    """Turn logits into probabilities or their logarithms, in place: `z` float32 (n, C)."""
    for i in range(first, last):
        for r in range(n_repetitions):
            v = z[i, r * n_buckets : (r + 1) * n_buckets]
            if logarithms:
                top, total = v[0], np.float32(0)
                for c in range(n_buckets):
                    top = max(top, v[c])
                for c in range(n_buckets):
                    total += exp(v[c] - top)
                shift = top + np.float32(math.log(total))
                for c in range(n_buckets):
                    v[c] -= shift
            else:
                _, total = exponentials(v)
                inverse = np.float32(1) / total
                for c in range(n_buckets):
                    v[c] *= inverse


@kernel(inline=True)
def update_row(
    how: OptimizerStep, f: int, gradient: Array, r0: int, r1: int, square: Array
) -> None:
    """Take one optimiser step on the columns of models ``r0:r1`` of row `f` of the table."""
    # `gradient` is float32 (columns of r0:r1,), `square` float32 (r1 - r0,) its squared norm in
    # each model's columns (Adagrad).
    n_buckets, weights = how.n_buckets, how.weights[f]
    accumulated = how.accumulated[f if how.optimizer != SGD else 0]
    second = how.second[f if how.optimizer == ADAM else 0]
    for r in range(r0, r1):
        o, p = r * n_buckets, (r - r0) * n_buckets
        w, g = weights[o : o + n_buckets], gradient[p : p + n_buckets]
        if how.optimizer == ADAM:
            ms, vs = accumulated[o : o + n_buckets], second[o : o + n_buckets]
            for c in range(n_buckets):
                m = adam_moment(ms[c], g[c], how.decays[0])
                v = adam_moment(vs[c], g[c] * g[c], how.decays[1])
                ms[c], vs[c] = m, v
                w[c] -= adam_step(m, v, how.rate, how.epsilon)
            continue
        step = how.rate
        if how.optimizer == ADAGRAD:
            accumulated[r] += square[r - r0]
            step = adagrad_step(how.rate, accumulated[r], how.epsilon)
        for c in range(n_buckets):
            w[c] -= step * g[c]


@kernel(inline=True, inner=True)
def squares(gradient: Array, n_buckets: int, n_repetitions: int, out: Array) -> None:
    """Write the squared norm of each model's part of a gradient to `out` float32 (R,)."""
    for r in range(n_repetitions):
        g, total = gradient[r * n_buckets : (r + 1) * n_buckets], np.float32(0)
        for c in range(n_buckets):
            total += g[c] * g[c]
        out[r] = total


@kernel(inline=True, inner=True, allocates=True)
def backward(
    how: OptimizerStep, bias: OptimizerStep, batch: ByFeature, out: RowLosses, n_rows: int,
    first: int, last: int,
) -> None:  # fmt: skip
    """Gather the gradient of each of the features ``first:last`` and update its row of the table.

    Parameters
    ----------
    how, bias, batch, out : OptimizerStep, OptimizerStep, ByFeature, RowLosses
        The steps of weights and bias, the batch by features, its residuals.
    n_rows, first, last : int
        The rows of the batch, and which of its features; number -1 stands for the bias.
    """
    ids, starts, rows, values, z = batch.ids, batch.starts, batch.rows, batch.values, out.z
    columns, n_repetitions = z.shape[1], out.norms.shape[1]
    # Features ``begin:end`` are some that all rows have: they are added up together.
    begin = end = max(first, 0)
    eights, sums = n_rows // 8 * 8, np.empty((TOGETHER + 1, columns), np.float32)
    square = np.empty(n_repetitions, np.float32)
    for u in range(first, last):
        if u == end:
            begin = u
            while end < min(u + TOGETHER, last) and starts[end + 1] - starts[end] == n_rows:
                sums[end - begin] = 0
                end += 1
            add_shared(sums, 0, end - begin, values, starts[begin:], eights, z)
        g = sums[u - begin if begin <= u < end else TOGETHER]
        if u + 1 < last:
            prefetch_columns(how.weights, np.int64(ids[u + 1]), AHEAD_COLUMNS)
            if how.optimizer == ADAGRAD:
                prefetch_columns(how.accumulated, np.int64(ids[u + 1]), AHEAD_COLUMNS)
        table, f, start, stop = bias, 0, 0, 0
        if u >= 0:
            table, f, start, stop = how, ids[u], starts[u], starts[u + 1]
        if stop - start == 1:
            x, row = values[start], z[rows[start]]
            for c in range(columns):
                g[c] = x * row[c]
            for r in range(n_repetitions):
                square[r] = x * x * out.norms[rows[start], r]
        else:
            if u < 0:
                bias_gradient(z, n_rows, g)
            elif begin <= u < end:
                add_rows(g, values, rows, start + eights, stop, z)
            else:
                for c in range(columns):
                    g[c] = 0
                add_rows(g, values, rows, start, stop, z)
            if how.optimizer == ADAGRAD:
                squares(g, how.n_buckets, n_repetitions, square)
        update_row(table, f, g, 0, n_repetitions, square)


@kernel(allocates=True)
def update_table(
    how: OptimizerStep, gradient: Array, r0: int, r1: int, first: int, last: int
) -> None:
    """Update rows ``first:last`` of the table from a gradient of the columns of models ``r0:r1``.

    Parameters
    ----------
    how, gradient, r0, r1, first, last : OptimizerStep, float32 (d, (r1 - r0) * B), int
        The step, the gradient, the models and the rows.
    """
    square = np.empty(r1 - r0, np.float32)
    for f in range(first, last):
        if how.optimizer == ADAGRAD:
            squares(gradient[f], how.n_buckets, r1 - r0, square)
        update_row(how, f, gradient[f], r0, r1, square)


@kernel(inline=True)
def bias_gradient(z: Array, n_rows: int, out: Array) -> None:
    """Write the sum of the residuals of the first rows of `z` (n, C) to `out` float32 (C,)."""
    for c in range(out.shape[0]):
        out[c] = 0
    for i in range(n_rows):
        row = z[i]
        for c in range(out.shape[0]):
            out[c] += row[c]


@kernel()
def expand(indptr: Array, features: Array, values: Array, out: Array) -> None:
    """Write sparse rows as dense ones: `out` float32 (n, d)."""
    for i in range(indptr.shape[0] - 1):
        row = out[i]
        for f in range(row.shape[0]):
            row[f] = 0
        for p in range(indptr[i], indptr[i + 1]):
            row[features[p]] = values[p]


@kernel()
def share_step(
    rows: SparseRows, targets: RowTargets, by_feature: ByFeature, how: OptimizerStep,
    bias: OptimizerStep, out: RowLosses, turns: Array,
) -> None:  # fmt: skip
    """Do a thread's share of a step: rows, and when all of these are done, features.

    Parameters
    ----------
    rows, targets, by_feature : SparseRows, RowTargets, ByFeature
        The batch.
    how, bias : OptimizerStep
        The steps of the weights, and of the bias as a table of one row.
    out, turns : RowLosses, int64 (TURNS,)
        What rows give; zeros before the first thread comes.
    """
    n, n_features = rows.classes.shape[0], by_feature.ids.shape[0]
    first = take_turn(turns, ROWS) * TURN_ROWS
    while first < n:
        last = min(first + TURN_ROWS, n)
        logits(
            rows.indptr, rows.features, rows.values, first, last, how.weights, bias.weights[0],
            out.z,
        )  # fmt: skip
        residuals(rows.classes, targets, out, first, last)
        take_turn(turns, DONE)
        first = take_turn(turns, ROWS) * TURN_ROWS
    wait_for(turns, DONE, -(-n // TURN_ROWS))
    first = take_turn(turns, FEATURES) * TURN_FEATURES - 1
    while first < n_features:
        backward(how, bias, by_feature, out, n, first, min(first + TURN_FEATURES, n_features))
        first = take_turn(turns, FEATURES) * TURN_FEATURES - 1
