"""The models that are weighed for a budget, each with its bytes, expected loss and time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from streammach import hashing, whitening
from streammach.counts.footprint import MAX_CLASSES, pair_room
from streammach.errors import DeviceError, UsageError
from streammach.planning.accuracy import (
    NO_CLOSED_FORM,
    NO_COUNTS,
    NOTHING,
    PARTS,
    Kind,
    Loss,
    hashed,
)
from streammach.planning.cost import cost, query
from streammach.planning.ledger import Sizes, bytes_in, ledger
from streammach.planning.limits import Limits
from streammach.rows.dense import MAX_FEATURES
from streammach.spec import DataFacts, Line, ModelSpec, Optimizer, Option, Weights

DELTA = 1e-3  # accepted chance that two classes share their bucket in every repetition
DENSE_SHARE = 0.1  # from this density on, matrix products are faster than sparse loops
# By dense: measured to be fast on the CPU, accuracy does not depend on it.
BATCH = {"cpu": {False: 1024, True: 256}, "cuda": {False: 4096, True: 256}}
MAX_WAVES = {"cpu": 1, "cuda": 8}
RESIDENT = {"cpu": (False,), "cuda": (True, False)}
MIN_BATCH = 16
BATCHES_PER_EPOCH = 64  # small data get smaller batches, so that an epoch is many steps
POOL_BLOCKS = (8, 4, 2, 1)
BATCH_SPREAD = 1.5  # room of a batch, in mean rows
MAX_VALIDATION_ROWS = 10_000
MAX_VALIDATION_NNZ = 4_000_000
VALIDATION_SHARE = 0.05
MIN_PAIRS = 100_000  # fewer are not worth their pass, where not all fit
MAX_COLUMNS = 4096  # more brought nothing on the data sets measured
BUCKETS = (1024, 512, 256, 128, 64, 32, 16, 8)
REPETITIONS = (4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)


@dataclass(frozen=True)
class Asked:
    """What the user fixed; None where the choice is free.

    Attributes
    ----------
    n_buckets, n_repetitions : int or None
        B and R, both or none.
    exact : bool
        Whether every class gets a bucket.
    batch_size : int or None
        Most rows of a batch.
    optimizer : str or None
        The optimiser.
    counts : str
        ``auto``, ``on`` or ``off``.
    closed_form : bool
        Whether a closed form may stand beside exact weights.
    whitening : bool
        Whether dense rows may be whitened.
    device : str
        The device.
    threads : int
        Threads that compute.
    seconds, query_seconds : float or None
        Most time of the training, and of a query on one thread.
    weights : str
        Type of the weights on the device.
    """

    n_buckets: int | None
    n_repetitions: int | None
    exact: bool
    batch_size: int | None
    optimizer: Optimizer | None
    counts: str
    closed_form: bool
    whitening: bool
    device: str
    threads: int
    seconds: float | None = None
    query_seconds: float | None = None
    weights: Weights = "float32"

    def allows(self, option: Option) -> bool:
        """Return whether an option fits the budget and the limits of time."""
        return option.fits and in_time(option, self.seconds, self.query_seconds)

    @property
    def shaped(self) -> bool:
        """Whether B and R are fixed."""
        return self.exact or self.n_buckets is not None


@dataclass(frozen=True)
class Candidate:
    """A model that was weighed: what is expected of it, how it would run, its bytes by name."""

    option: Option
    model: ModelSpec
    sizes: Sizes
    lines: tuple[Line, ...]
    beside: str


@dataclass(frozen=True)
class Beside:
    """What stands beside the hashed models: room for pairs, or a closed form; and why."""

    max_pairs: int
    closed_form: bool
    loss: Loss
    why: str


def in_time(option: Option, seconds: float | None, query_seconds: float | None) -> bool:
    """Return whether training and queries are expected to take no longer than so many seconds."""
    return (seconds is None or option.seconds <= seconds) and (
        query_seconds is None or option.query_seconds <= query_seconds
    )


def candidates(facts: DataFacts, asked: Asked, limits: Limits, speed: float) -> list[Candidate]:
    """Return every model that is worth weighing, whether it fits or not; at least one.

    Parameters
    ----------
    facts : DataFacts
        The store.
    asked : Asked
        What is fixed.
    limits : Limits
        What may be used.
    speed : float
        How many times as fast as the reference machine a thread is.

    Raises
    ------
    UsageError
        If counts or weights are asked for that cannot be.
    DeviceError
        If no model of the shape asked for can be launched on the device.
    """
    ways = list(_ways(facts, asked))
    if asked.weights != "float32" and ways[0].dense:
        raise UsageError(f"rows are dense: --weights {asked.weights}")
    found: list[Candidate] = []
    refused: DeviceError | None = None
    for beside in _beside(facts, ways[0], asked):
        sizes = [
            replace(s, max_pairs=beside.max_pairs, closed_form=beside.closed_form) for s in ways
        ]
        for buckets, repetitions in _shapes(facts, asked, sizes[-1], limits):
            model = unhashed(facts, buckets, repetitions)
            try:
                found.append(_weighed(facts, model, sizes, beside, limits, speed))
            except DeviceError as error:
                refused = error
    if refused is not None and not found:
        raise refused
    return found


def unhashed(facts: DataFacts, n_buckets: int, n_repetitions: int) -> ModelSpec:
    """Return a model of this shape whose hashes stand for any."""
    a = (1,) * n_repetitions if n_buckets < facts.n_classes else ()
    return ModelSpec(facts.n_classes, facts.n_features, n_buckets, n_repetitions, a, a)


def _weighed(
    facts: DataFacts,
    model: ModelSpec,
    ways: list[Sizes],
    beside: Beside,
    limits: Limits,
    speed: float,
) -> Candidate:
    """Return a model with the way to run it, its bytes, and what is expected of it."""
    sizes, lines = _way(facts, model, ways, limits)
    excess = limits.excess(lines)
    loss = beside.loss
    if not model.exact:
        kind: Kind = "dense" if sizes.dense else "counts" if beside.max_pairs else "hashed"
        loss += hashed(model.n_classes, model.n_buckets, model.n_repetitions, kind)
    option = Option(
        model.n_buckets, model.n_repetitions, beside.max_pairs, beside.closed_form,
        sizes.batch_size, bytes_in(lines, limits.where),
        next(line.n_bytes for line in lines if line.name == "model"), loss.points, loss.error,
        cost(facts, model, sizes, speed).seconds, query(facts, model, sizes, speed), not excess,
        False,
    )  # fmt: skip
    return Candidate(option, model, sizes, lines, beside.why)


def _way(
    facts: DataFacts, model: ModelSpec, ways: list[Sizes], limits: Limits
) -> tuple[Sizes, tuple[Line, ...]]:
    """Return the first way to run a model that fits, and its ledger; if none does, the last.

    The last way needs the least of a device, and of the host where there is none.
    """
    last = ledger(facts, model, ways[-1])
    over_device = bytes_in(last, "device") > limits.device
    if over_device or (limits.excess(last) and not limits.device):
        return ways[-1], last
    tried = ((sizes, ledger(facts, model, sizes)) for sizes in ways)
    return next(((s, lines) for s, lines in tried if not limits.excess(lines)), (ways[-1], last))


def _ways(facts: DataFacts, asked: Asked) -> Iterator[Sizes]:
    """Yield the ways to run, the best first.

    Streamed rows, more waves, smaller pools and batches, at last rows that are not whitened.
    """
    dense = facts.density >= DENSE_SHARE
    usual = max(MIN_BATCH, min(BATCH[asked.device][dense], facts.n_rows // BATCHES_PER_EPOCH))
    batches = [usual >> i for i in range(6) if usual >> i >= MIN_BATCH]
    rows = min(MAX_VALIDATION_ROWS, int(facts.n_rows * VALIDATION_SHARE))
    mean = facts.nnz / facts.n_rows
    if asked.batch_size:
        batches = [min(asked.batch_size, facts.n_rows)]
    optimizer = asked.optimizer or ("adam" if dense else "adagrad")
    enough = whitening.possible(facts.n_features, facts.n_rows)
    whiten = asked.whitening and dense and optimizer == "adam" and enough
    for whitened, batch in itertools.product((True, False) if whiten else (False,), batches):
        nnz = max(facts.max_row_nnz, int(BATCH_SPREAD * batch * mean) + 1)
        for pool in POOL_BLOCKS:
            for waves, resident in itertools.product(
                range(1, MAX_WAVES[asked.device] + 1), RESIDENT[asked.device]
            ):
                yield Sizes(
                    batch, min(nnz, batch * facts.max_row_nnz), pool, rows,
                    min(MAX_VALIDATION_NNZ, rows * facts.max_row_nnz), 0, False, whitened,
                    optimizer, dense, asked.device, asked.threads, waves, asked.weights, resident,
                )  # fmt: skip


def _beside(facts: DataFacts, size: Sizes, asked: Asked) -> Iterator[Beside]:
    """Yield what may stand beside the hashed models, the best first."""
    impossible = "rows are dense" if size.dense else ""
    if facts.n_classes >= MAX_CLASSES:
        impossible = "there are too many classes"
    if impossible and asked.counts == "on":
        raise UsageError(f"{impossible}: --counts on")
    narrow = facts.n_features <= MAX_FEATURES
    closed = asked.closed_form and size.dense and size.optimizer == "adam" and narrow
    if closed:
        yield Beside(0, True, NOTHING, "room for a closed form beside exact weights")
    if asked.counts == "off" or impossible:
        why = f"no counts: {impossible}" if impossible else "no counts, as asked"
        yield Beside(0, False, NO_CLOSED_FORM if closed else NOTHING, why)
        return
    room = pair_room(facts)
    yield Beside(room, False, NOTHING, f"room to count {room:,} pairs of a feature and a class")
    for part, loss in PARTS.items():
        some = room // part
        if some >= MIN_PAIRS:
            why = f"room to count {some:,} of {room:,} pairs of a feature and a class"
            yield Beside(some, False, loss, why)
    if asked.counts == "auto":
        why = f"no counts: {room:,} pairs of a feature and a class do not fit"
        yield Beside(0, False, NO_COUNTS, why)


def _shapes(
    facts: DataFacts, asked: Asked, size: Sizes, limits: Limits
) -> Iterator[tuple[int, int]]:
    """Yield (B, R): what was asked for, or every B with some R up to the largest that fits.

    A closed form stands beside exact weights only.
    """
    classes = facts.n_classes
    if asked.n_buckets is not None and asked.n_repetitions and asked.n_buckets < classes:
        if not size.closed_form:
            yield asked.n_buckets, asked.n_repetitions
        return
    yield classes, 1
    if asked.shaped or size.closed_form:
        return
    for buckets in (n for n in BUCKETS if n < classes):
        enough = hashing.repetitions_for(classes, buckets, DELTA)
        most = max(_largest(facts, buckets, size, limits), enough)
        for repetitions in sorted({enough, most, *REPETITIONS}):
            if enough <= repetitions <= most:
                yield buckets, repetitions


def _largest(facts: DataFacts, n_buckets: int, size: Sizes, limits: Limits) -> int:
    """Return the most repetitions that fit, as they would run in the most modest way; 0 if none."""
    low, high = 0, MAX_COLUMNS // n_buckets
    while low < high:
        middle = (low + high + 1) // 2
        try:
            fits = not limits.excess(ledger(facts, unhashed(facts, n_buckets, middle), size))
        except DeviceError:
            fits = False
        low, high = (middle, high) if fits else (low, middle - 1)
    return low
