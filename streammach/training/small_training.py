"""A small training in a process beside one: it compiles what that one will call, then `predict`.

A training that finds no kernels begins with counts and comes to the hashed models last; the small
one has no counts. So two cores compile at once, and hardly ever want the same kernel.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from streammach.jit import TRAINING_COMPILER_BYTES, compiler_bytes, keep_compiled
from streammach.planning.ledger import kernels
from streammach.prediction.predict import predict
from streammach.rehearsals import compiler
from streammach.rows.arrays import csr_array
from streammach.spec.plan import Plan
from streammach.training.compact import LEAST_ROWS
from streammach.training.trainer import train

BYTES = 600_000_000  # of the small training with its compiler: the ledger projects 550 MB at most
CLASSES, FEATURES, VALUES = 300, 300, 8  # more classes than a byte can tell; values of a row
MOST_BUCKETS = 1024  # more buckets change no kernel


def rehearsal(plan: Plan) -> AbstractContextManager[None]:
    """Have kernels that a plan needs compiled in another process, if core and memory are free."""
    facts, config = plan.facts, plan.config
    shape, place, kind = config.shape, config.placement, kernels(facts, config)
    needed = plan.projected_bytes + BYTES
    needed += compiler_bytes(*kind, n_bytes=TRAINING_COMPILER_BYTES)
    hashed = place.device == "cpu" and not (config.dense or shape.unhashed)
    n_buckets = 0 if shape.exact else min(shape.n_buckets, MOST_BUCKETS)
    return compiler(
        f"{__name__}:rehearse", kind, n_buckets, facts.value_bytes == 1, facts.weighted,
        facts.listed, fits=hashed and place.threads > 1 and needed <= plan.limits.host,
    )  # fmt: skip


def rehearse(
    folder: str, kind: tuple[object, ...], n_buckets: int, small: bool, weighted: bool, listed: bool
) -> None:
    """Train on a few random rows in a folder, and remember that it was done for a kind of training.

    It predicts a few lines of text, too. Of 0 buckets it trains an exact model. Values are `small`
    integers or fractions; rows are `weighted`, and have lists of labels.
    """
    rng, n_classes = np.random.default_rng(0), max(CLASSES, 2 * n_buckets)
    n = 2 * n_classes
    scale = np.float32(1 if small else 0.3)
    values = rng.integers(1, 4, n * VALUES) * scale
    indptr, features = VALUES * np.arange(n + 1), rng.integers(0, FEATURES, n * VALUES)
    labels = np.arange(n) % n_classes
    said: dict[str, Any] = {"held_out_rows": LEAST_ROWS}
    said |= {"n_buckets": n_buckets, "n_repetitions": 4} if n_buckets else {}
    run, text = Path(folder, "run"), Path(folder, "few.vw")
    train(
        csr_array((values, features, indptr), shape=(n, FEATURES)),
        [[x, x // 2] for x in labels.tolist()] if listed else labels,
        memory=BYTES, sample_weight=rng.random(n) + 1 if weighted else None, epochs=1, counts="off",
        out=run, **said,
    )  # fmt: skip
    text.write_text("".join(f"| {2 * i + 1}:{scale} {i}\n" for i in range(VALUES)))
    predict(run, text, run.with_name("said.tsv"), threads=1)
    keep_compiled("rehearsal", *kind)
