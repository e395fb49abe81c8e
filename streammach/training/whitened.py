"""The basis in which a training's dense rows are white, from rows of its store."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import threadpoolctl

from streammach.data.store.dataset import Dataset
from streammach.rows.batch import transformed
from streammach.rows.dense import Basis
from streammach.spec import Transform
from streammach.training.holdout import HeldOut, masked_blocks
from streammach.whitening import Spread

ROWS, ROWS_A_FEATURE = 65_536, 128  # looked at: at least, and at most where classes are rare


def basis_of(
    dataset: Dataset,
    held: HeldOut,
    transform: Transform,
    *,
    threads: int,
    check: Callable[[], None],
) -> Basis:
    """Return the basis from the first rows of a store that are not held out.

    Rows of a store are shuffled, so that the first ones stand for all.

    Parameters
    ----------
    dataset : Dataset
        The training store.
    held : HeldOut
        Rows to leave out.
    transform : str
        What happens to values first.
    threads : int
        Threads of the matrix products.
    check : callable
        Called now and then; what it raises ends the work.
    """
    d = dataset.n_features
    spread = Spread(d)
    with threadpoolctl.threadpool_limits(threads, user_api="blas"):
        for block, out in masked_blocks(dataset, held):
            check()
            spread.add(transformed(block.take(np.flatnonzero(~out)), transform))
            if spread.n_rows >= ROWS and (spread.enough or spread.n_rows >= ROWS_A_FEATURE * d):
                break
        return spread.basis()
