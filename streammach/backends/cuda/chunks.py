"""Arithmetic of a chunk of four columns: tuples, which stay in registers where arrays may not."""

from __future__ import annotations

from typing import Any

from streammach.backends.cuda.instructions import (
    adam_moment,
    adam_step,
    device,
    get,
    log_sigmoid,
    put,
    sigmoid,
)
from streammach.jit import Array, Number


@device
def add4(sums: Any, x: Number, v: Any) -> Any:
    """Return ``sums + x * v``."""
    return sums[0] + x * v[0], sums[1] + x * v[1], sums[2] + x * v[2], sums[3] + x * v[3]


@device
def less4(v: Any, steps: Any, g: Any) -> Any:
    """Return ``v - steps * g``."""
    return (
        v[0] - steps[0] * g[0], v[1] - steps[1] * g[1],
        v[2] - steps[2] * g[2], v[3] - steps[3] * g[3],
    )  # fmt: skip


@device
def spread(a: Array, i: Number, v: Any) -> None:
    """Write four words to shared memory, at any position."""
    put(a, i, v[0])
    put(a, i + 1, v[1])
    put(a, i + 2, v[2])
    put(a, i + 3, v[3])


@device
def gathered(a: Array, i: Number) -> Any:
    """Return four words of shared memory, from any position."""
    return get(a, i), get(a, i + 1), get(a, i + 2), get(a, i + 3)


@device
def sigmoid4(v: Any) -> Any:
    """Return the sigmoids of a chunk of four."""
    return sigmoid(v[0]), sigmoid(v[1]), sigmoid(v[2]), sigmoid(v[3])


@device
def log_sigmoid4(v: Any) -> Any:
    """Return their logarithms."""
    return log_sigmoid(v[0]), log_sigmoid(v[1]), log_sigmoid(v[2]), log_sigmoid(v[3])


@device
def moments4(m: Any, g: Any, decay: Number) -> Any:
    """Return Adam's running means of a chunk of four."""
    return (
        adam_moment(m[0], g[0], decay), adam_moment(m[1], g[1], decay),
        adam_moment(m[2], g[2], decay), adam_moment(m[3], g[3], decay),
    )  # fmt: skip


@device
def squares4(g: Any) -> Any:
    """Return the squares of a chunk of four."""
    return g[0] * g[0], g[1] * g[1], g[2] * g[2], g[3] * g[3]


@device
def adam4(w: Any, m: Any, v: Any, rate: Number, epsilon: Number) -> Any:
    """Return a chunk of four weights after Adam's step."""
    return (
        w[0] - adam_step(m[0], v[0], rate, epsilon), w[1] - adam_step(m[1], v[1], rate, epsilon),
        w[2] - adam_step(m[2], v[2], rate, epsilon), w[3] - adam_step(m[3], v[3], rate, epsilon),
    )  # fmt: skip
