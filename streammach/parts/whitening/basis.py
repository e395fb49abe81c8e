"""The basis in which a training's dense rows are white, from rows of its store."""

from __future__ import annotations

import numpy as np
import threadpoolctl

from streammach.data.holdout import masked_blocks
from streammach.parts.base import Session
from streammach.parts.whitening.spread import Spread
from streammach.rows.dense import Basis
from streammach.rows.transforms import transformed
from streammach.spec.types import Transform

ROWS, ROWS_A_FEATURE = 65_536, 128  # looked at: at least, and at most where classes are rare


def basis_of(session: Session, transform: Transform) -> Basis:
    """Return the basis from the first rows of a store that are not held out.

    Rows of a store are shuffled, so that the first ones stand for all.
    """
    dataset, threads = session.dataset, session.plan.config.placement.threads
    d = dataset.n_features
    spread = Spread(d)
    with threadpoolctl.threadpool_limits(threads, user_api="blas"):
        for block, out in masked_blocks(dataset, session.held):
            session.check()
            spread.add(transformed(block.take(np.flatnonzero(~out)), transform))
            if spread.n_rows >= ROWS and (spread.enough or spread.n_rows >= ROWS_A_FEATURE * d):
                break
        return spread.basis()
