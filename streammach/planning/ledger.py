"""The ledger: every byte of a run by name, from the functions of those who allocate it."""

from __future__ import annotations

from dataclasses import dataclass

from streammach import discriminant, whitening
from streammach.backends.base import footprint
from streammach.backends.workload import Workload
from streammach.counts import footprint as counts
from streammach.data.reader import Reader
from streammach.data.resident import OrderReader
from streammach.jit import CACHE_DIR, COMPILER_BYTES
from streammach.spec import DataFacts, Line, ModelSpec, Optimizer, Plan, Weights

# Measured: 245 MB of Python, libraries and kernels that are loaded; kernels are compiled by another
# process where they can be kept.
CODE_BYTES = 265_000_000
COUNT_BYTES = 8  # of the rows that hold a feature or have a class
CHECKPOINTS = 3  # on disk at once: the best, the newest, and the one being written


@dataclass(frozen=True)
class Sizes:
    """What decides the bytes of a run beside the data and the model.

    Attributes
    ----------
    batch_size, batch_nnz : int
        Most rows and values of a batch.
    pool_blocks : int
        Blocks that are shuffled together.
    validation_rows, validation_nnz : int
        Most held-out rows in memory and their values.
    max_pairs : int
        Counted pairs that there is room for; 0 without counts.
    closed_form : bool
        Whether a closed form is added to exact weights.
    whitened : bool
        Whether dense rows are whitened.
    optimizer : str
        The optimiser.
    dense : bool
        Whether rows are expanded.
    device : str
        The device.
    threads : int
        Threads that compute.
    waves : int
        Groups that the repetitions are trained in, one after another.
    weights : str
        Type of the weights on the device.
    resident : bool
        Whether the store's rows are kept in the device's memory.
    """

    batch_size: int
    batch_nnz: int
    pool_blocks: int
    validation_rows: int
    validation_nnz: int
    max_pairs: int
    closed_form: bool
    whitened: bool
    optimizer: Optimizer
    dense: bool
    device: str
    threads: int
    waves: int = 1
    weights: Weights = "float32"
    resident: bool = False

    def work(self, facts: DataFacts) -> Workload:
        """Return what a backend's bytes depend on."""
        kept = (facts.n_rows, facts.nnz) if self.resident else (0, 0)
        return Workload(
            self.optimizer, self.dense, self.batch_size, self.batch_nnz, self.threads, self.waves,
            self.weights, *kept, self.whitened,
        )  # fmt: skip


def sizes_of(made: Plan) -> Sizes:
    """Return the sizes of a plan."""
    return Sizes(
        made.batch_size, made.batch_nnz, made.pool_blocks, made.validation_rows,
        made.validation_nnz, made.max_pairs, made.closed_form, made.whitened, made.optimizer,
        made.dense, made.device, made.threads, made.waves, made.weights, made.resident,
    )  # fmt: skip


def ledger(facts: DataFacts, model: ModelSpec, sizes: Sizes) -> tuple[Line, ...]:
    """Return the bytes of a training run, largest first within host, device and disk.

    Parameters
    ----------
    facts : DataFacts
        The store.
    model : ModelSpec
        The model.
    sizes : Sizes
        The rest.

    Raises
    ------
    DeviceError
        If the model's shape cannot be launched on the device.
    """
    backend, device = footprint(sizes.device, model, sizes.work(facts))
    host = {
        "code": CODE_BYTES + (0 if sizes.device == "cpu" and CACHE_DIR else COMPILER_BYTES),
        **backend,
        **_reader(facts, sizes),
        **counts.footprint(
            facts, n_columns=model.n_columns, max_pairs=sizes.max_pairs,
            validation_rows=sizes.validation_rows, threads=sizes.threads,
        ),
        **_of_dense_rows(facts, sizes),
        "held-out rows": facts.n_rows + sizes.validation_rows * 24 + sizes.validation_nnz * 8,
        "names": facts.names_bytes + COUNT_BYTES * (facts.n_features + facts.n_classes),
    }  # fmt: skip
    kept = backend["weights"] + backend.get("optimizer", 0)
    disk = {
        "model": backend["weights"] + facts.names_bytes + counts.MODEL_BYTES * sizes.max_pairs,
        "checkpoints": CHECKPOINTS * kept,
    }
    return (
        *(Line(name, "host", n) for name, n in sorted(host.items(), key=lambda i: -i[1])),
        *(Line(name, "device", n) for name, n in sorted(device.items(), key=lambda i: -i[1])),
        *(Line(name, "disk", n) for name, n in disk.items()),
    )


def _reader(facts: DataFacts, sizes: Sizes) -> dict[str, int]:
    if sizes.resident:
        return OrderReader.footprint(facts, pool_blocks=sizes.pool_blocks)
    return Reader.footprint(
        facts, batch_size=sizes.batch_size, batch_nnz=sizes.batch_nnz,
        pool_blocks=sizes.pool_blocks,
        by_feature=not sizes.dense and sizes.device == "cpu",
    )  # fmt: skip


def _of_dense_rows(facts: DataFacts, sizes: Sizes) -> dict[str, int]:
    """Return the bytes of what is found out of dense rows: before the training or after it."""
    found = {}
    if sizes.whitened:
        found["whitening"] = whitening.footprint(facts.n_features, facts.n_rows)
    if sizes.closed_form:
        found["closed form"] = discriminant.footprint(facts.n_features, facts.n_rows)
    if not found:
        return {}
    larger = max(found, key=lambda name: found[name])
    return {larger: found[larger]}


def bytes_in(lines: tuple[Line, ...], where: str) -> int:
    """Return the bytes of a ledger in ``host`` or ``device`` memory or on ``disk``."""
    return sum(line.n_bytes for line in lines if line.where == where)
