"""What a step says of its loss."""

from __future__ import annotations

from typing import NamedTuple

BEST_CLASSES = 32  # that the joint loss tells from a row's own


class Loss(NamedTuple):
    """A loss in nats, summed over models and so many rows."""

    total: float
    n_rows: int


NOTHING = Loss(0.0, 0)


def joined(a: Loss, b: Loss) -> Loss:
    """Return the losses of both."""
    return Loss(a.total + b.total, a.n_rows + b.n_rows)
