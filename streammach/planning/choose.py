"""Turns a budget of bytes into a model that fits it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

from streammach import discriminant, hashing
from streammach.backends.base import choose_device
from streammach.counts.footprint import MAX_CLASSES, pair_room
from streammach.data.store.dataset import Dataset
from streammach.errors import BudgetError, UsageError, clean
from streammach.machine import cores, memory_limit, size_text, within
from streammach.planning.ledger import Sizes, host_bytes, ledger
from streammach.spec import DataFacts, ModelSpec, Optimizer, Plan

DELTA = 1e-3  # accepted chance that two classes share their bucket in every repetition
DENSE_SHARE = 0.1  # from this density on, matrix products are faster than sparse loops
BATCH = {False: 1024, True: 256}  # by dense: measured to be fast, accuracy does not depend on it
MIN_BATCH = 16
BATCHES_PER_EPOCH = 64  # small data get smaller batches, so that an epoch is many steps
POOL_BLOCKS = (8, 4, 2, 1)
BATCH_SPREAD = 1.5  # room of a batch, in mean rows
MAX_VALIDATION_ROWS = 10_000
MAX_VALIDATION_NNZ = 4_000_000
VALIDATION_SHARE = 0.05
MIN_REPETITIONS = 16
MAX_COLUMNS = 4096  # more brought nothing on the data sets measured
PARTS, MIN_PAIRS = (2, 4, 8), 100_000  # of the pairs, where not all fit
BESIDE_COUNTS = 1024  # columns beside counts
BUCKETS = (256, 128, 64, 32, 16, 8)  # with 16 repetitions and more, the first that fits
FEW_BUCKETS = (32, 16, 8)  # with fewer repetitions, where nothing else fits


def plan(
    data: Dataset | DataFacts | str | os.PathLike[str],
    *,
    memory: str | int | None = None,
    n_buckets: int | None = None,
    n_repetitions: int | None = None,
    exact: bool = False,
    batch_size: int | None = None,
    optimizer: str = "auto",
    counts: str = "auto",
    closed_form: bool = True,
    device: str = "auto",
    threads: int | None = None,
    seed: int = 0,
) -> Plan:
    """Choose a model and batch for a store that fit a budget, and account for every byte.

    With a budget: counts beside the hashed models, for sparse rows and if at least an eighth of
    them fits; a closed form beside exact weights, for dense rows and if it fits; then a bucket for
    every class if that fits; else the number of columns B*R that fits, at most 1,024 beside counts
    and 4,096 without, as the largest B that leaves 16 repetitions and tells all classes
    apart with probability 0.999. With `n_buckets` and `n_repetitions` that model, if the budget
    allows it.

    Parameters
    ----------
    data : Dataset, DataFacts or path-like
        The store.
    memory : str or int, optional
        The budget, such as ``12GB``; what this machine may use otherwise.
    n_buckets, n_repetitions : int, optional
        B and R, both or none.
    exact : bool
        Ask for a bucket for every class.
    batch_size : int, optional
        Most rows of a batch.
    optimizer : str
        ``auto`` (row-wise Adagrad for sparse rows, Adam for dense ones), ``adagrad``, ``adam`` or
        ``sgd``.
    counts : str
        ``auto``: room for counts where rows are sparse and they fit; ``on``: refuse where they do
        not fit; ``off``.
    closed_form : bool
        Room for a closed form beside exact weights of dense rows, if it fits.
    device : str
        ``auto`` or ``cpu``.
    threads : int, optional
        Threads that compute; all cores otherwise.
    seed : int
        Decides the hashes.

    Returns
    -------
    Plan
        The model with its hashes, the batch, and the ledger of every byte.

    Raises
    ------
    UsageError
        If the options do not go together.
    BudgetError
        If nothing fits; the message names the largest terms.
    """
    facts = _facts(data)
    _check_options(memory, n_buckets, n_repetitions, exact, optimizer, counts, batch_size, threads)
    limit = memory_limit()
    allowed, source = (limit.n_bytes, limit.source)
    if memory is not None:
        allowed, source = within(limit, memory), "--memory"
    sizes = list(_sizes(facts, batch_size, optimizer, choose_device(device)[0], threads))
    best: Plan | None = None
    for max_pairs, closed, why in _beside(facts, sizes[0], counts, closed_form=closed_form):
        most = BESIDE_COUNTS if max_pairs else MAX_COLUMNS
        for buckets, repetitions, reason in _shapes(facts, n_buckets, n_repetitions, exact, most):
            if closed and buckets < facts.n_classes:
                continue
            model = _model(facts, buckets, repetitions, None)
            for size in (replace(size, max_pairs=max_pairs, closed_form=closed) for size in sizes):
                lines = ledger(facts, model, size)
                found = Plan(
                    facts, model, size.batch_size, size.batch_nnz, size.optimizer, size.dense,
                    size.pool_blocks, size.validation_rows, size.validation_nnz,
                    size.max_pairs, size.closed_form, size.device, size.threads, allowed, source,
                    lines, (reason, why),
                )  # fmt: skip
                if host_bytes(lines) <= allowed:
                    return _with_hashes(found, seed)
                if best is None or host_bytes(lines) < best.projected_bytes:
                    best = found
    assert best is not None
    asked = exact or n_buckets is not None
    raise BudgetError(
        _refusal(best, asked=asked), path=f"{size_text(allowed)} ({source})", hint=NOTHING_DONE
    )


NOTHING_DONE = "Nothing was allocated; allow more memory or ask for a smaller model."


def _facts(data: Dataset | DataFacts | str | os.PathLike[str]) -> DataFacts:
    if isinstance(data, DataFacts):
        return data
    if isinstance(data, Dataset):
        return data.facts
    with Dataset.open(data) as dataset:
        return dataset.facts


def _check_options(
    memory: str | int | None,
    n_buckets: int | None,
    n_repetitions: int | None,
    exact: bool,
    optimizer: str,
    counts: str,
    batch_size: int | None,
    threads: int | None,
) -> None:
    if (n_buckets is None) != (n_repetitions is None):
        raise UsageError("--buckets and --repetitions are given together")
    if exact and (memory is not None or n_buckets is not None):
        raise UsageError("--exact excludes --memory, --buckets and --repetitions")
    numbers = {
        "--buckets": n_buckets,
        "--repetitions": n_repetitions,
        "--batch-size": batch_size,
        "--threads": threads,
    }
    for name, value in numbers.items():
        if value is not None and value < (2 if name == "--buckets" else 1):
            raise UsageError(f"{value} is too small: {name}")
    if optimizer not in ("auto", "adagrad", "adam", "sgd"):
        raise UsageError(
            f"'{clean(optimizer)}' is not one of auto, adagrad, adam, sgd: --optimizer"
        )
    if counts not in ("auto", "on", "off"):
        raise UsageError(f"'{clean(counts)}' is not one of auto, on, off: --counts")


def _sizes(
    facts: DataFacts, batch_size: int | None, optimizer: str, device: str, threads: int | None
) -> Iterator[Sizes]:
    """Yield the ways to run, the best first: smaller pools, then smaller batches, take less."""
    dense = facts.density >= DENSE_SHARE
    auto: Optimizer = "adam" if dense else "adagrad"
    chosen: Optimizer = next((o for o in ("adagrad", "adam", "sgd") if o == optimizer), auto)
    usual = max(MIN_BATCH, min(BATCH[dense], facts.n_rows // BATCHES_PER_EPOCH))
    batches = (
        [batch_size] if batch_size else [usual >> i for i in range(6) if usual >> i >= MIN_BATCH]
    )
    rows = min(MAX_VALIDATION_ROWS, int(facts.n_rows * VALIDATION_SHARE))
    mean = facts.nnz / facts.n_rows
    for batch in batches:
        nnz = max(facts.max_row_nnz, int(BATCH_SPREAD * batch * mean) + 1)
        for pool in POOL_BLOCKS:
            yield Sizes(
                batch, min(nnz, batch * facts.max_row_nnz), pool, rows,
                min(MAX_VALIDATION_NNZ, rows * facts.max_row_nnz), 0, False, chosen, dense, device,
                threads or cores(),
            )  # fmt: skip


def _beside(
    facts: DataFacts, size: Sizes, counts: str, *, closed_form: bool
) -> Iterator[tuple[int, bool, str]]:
    """Yield (room for pairs, closed form or not, reason) in the order of preference."""
    impossible = "rows are dense" if size.dense else ""
    if facts.n_classes >= MAX_CLASSES:
        impossible = "there are too many classes"
    if impossible and counts == "on":
        raise UsageError(f"{impossible}: --counts on")
    wide = facts.n_features > discriminant.MAX_FEATURES
    if closed_form and size.dense and size.optimizer == "adam" and not wide:
        yield 0, True, "room for a closed form beside exact weights"
    if counts == "off" or impossible:
        yield 0, False, f"no counts: {impossible}" if impossible else "no counts, as asked"
        return
    room = pair_room(facts)
    yield room, False, f"room to count {room:,} pairs of a feature and a class"
    for part in PARTS:
        some = room // part
        if some >= MIN_PAIRS:
            yield some, False, f"room to count {some:,} of {room:,} pairs of a feature and a class"
    if counts == "auto":
        yield 0, False, f"no counts: {room:,} pairs of a feature and a class do not fit"


def _shapes(
    facts: DataFacts, n_buckets: int | None, n_repetitions: int | None, exact: bool, most: int
) -> Iterator[tuple[int, int, str]]:
    """Yield (B, R, reason) in the order of preference, with at most so many columns."""
    classes = facts.n_classes
    if exact:
        yield classes, 1, "a bucket for every class, as asked"
        return
    if n_buckets is not None and n_repetitions is not None:
        if n_buckets >= classes:
            yield (
                classes,
                1,
                f"{n_buckets:,} buckets are enough for one to each of {classes:,} classes",
            )
        else:
            yield n_buckets, n_repetitions, "buckets and repetitions as asked"
        return
    yield classes, 1, "a bucket for every class fits"
    for buckets in (n for n in BUCKETS if n < classes):
        enough = max(hashing.repetitions_for(classes, buckets, DELTA), MIN_REPETITIONS)
        for repetitions in range(most // buckets, enough - 1, -1):
            yield buckets, repetitions, _why(buckets, repetitions, most)
    for buckets in (n for n in FEW_BUCKETS if n < classes):
        enough = hashing.repetitions_for(classes, buckets, DELTA)
        for repetitions in range(MIN_REPETITIONS - 1, enough - 1, -1):
            yield buckets, repetitions, _why(buckets, repetitions, most)


def _why(buckets: int, repetitions: int, most: int) -> str:
    if (repetitions + 1) * buckets > most:
        return (
            f"the most buckets that leave {MIN_REPETITIONS} repetitions within {most:,} "
            "columns: more brought little on the data sets measured"
        )
    return f"the most repetitions of {buckets} buckets that fit"


def _model(facts: DataFacts, n_buckets: int, n_repetitions: int, seed: int | None) -> ModelSpec:
    """Return a model of this shape; without a seed its hashes stand for any."""
    if seed is None:
        a = b = (1,) * n_repetitions if n_buckets < facts.n_classes else ()
    else:
        a, b = hashing.draw(seed, facts.n_classes, n_buckets, n_repetitions)
    return ModelSpec(facts.n_classes, facts.n_features, n_buckets, n_repetitions, a, b)


def _with_hashes(found: Plan, seed: int) -> Plan:
    model = _model(found.facts, found.n_buckets, found.n_repetitions, seed)
    reasons = [*found.reasons, f"{found.optimizer} for {'dense' if found.dense else 'sparse'} rows"]
    if not model.exact:
        table = hashing.codes(model.hash_a, model.hash_b, model.n_classes, model.n_buckets)
        shape = (model.n_classes, model.n_buckets, model.n_repetitions)
        reasons.append(
            f"classes not told apart: {hashing.count_collisions(table):,} pairs "
            f"(bound on the expected number {hashing.collision_bound(*shape):.1g})"
        )
    return replace(found, model=model, reasons=tuple(reasons))


def _refusal(best: Plan, *, asked: bool) -> str:
    """Return what the smallest plan needs, or the one of the shape that was asked for."""
    lines = [line for line in best.ledger if line.where == "host"]
    terms = ", ".join(f"{line.name} {size_text(line.n_bytes)}" for line in lines[:3])
    shape = "exact" if best.model.exact else f"{best.n_buckets} x {best.n_repetitions}"
    what = f"{shape} does not fit: it" if asked else f"no plan fits: the smallest ({shape})"
    return f"{what} needs {size_text(best.projected_bytes)}: {terms}"
