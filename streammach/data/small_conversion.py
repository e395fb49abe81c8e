"""A small conversion in a process beside one: it compiles what that one will call.

A conversion that finds no kernels compiles those of its format first, which takes two thirds of the
time; the small one has rows in memory, and compiles the others meanwhile.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

import numpy as np

from streammach.data.memory_rows import given
from streammach.jit import keep_compiled
from streammach.machine import memory_limit
from streammach.rehearsals import compiler
from streammach.rows.arrays import csr_array

BYTES = 3_000_000_000  # what there must be for both: 2 GB, and what takes 300 MB
ROWS, FEATURES, VALUES = 300, 300, 8  # values of a row


def rehearsal(memory: str | None, threads: int | None) -> AbstractContextManager[None]:
    """Have kernels of conversions compiled, if no memory was named, and not one thread."""
    fits = memory is None and threads != 1 and memory_limit().n_bytes >= BYTES
    return compiler(f"{__name__}:rehearse", ("convert",), fits=fits)


def rehearse(folder: str, kind: tuple[object, ...]) -> None:
    """Convert a few random rows in memory, and remember that it was done for a kind of work."""
    rng = np.random.default_rng(0)
    values = rng.integers(1, 4, ROWS * VALUES).astype(np.float32)
    features = rng.integers(0, FEATURES, ROWS * VALUES)
    rows = (values, features, VALUES * np.arange(ROWS + 1))
    labels = [f"c{i}" for i in rng.integers(0, ROWS // 3, ROWS)]
    given(csr_array(rows, shape=(ROWS, FEATURES)), labels).held()
    keep_compiled("rehearsal", *kind)
