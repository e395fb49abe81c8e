"""How a model is trained on a machine: the one record of what a plan decides."""

from __future__ import annotations

from dataclasses import dataclass, replace

from msgspec import UNSET, UnsetType

from streammach.options.facts import DataFacts
from streammach.options.model_spec import ModelShape
from streammach.options.optimizers import OPTIMIZERS, OptimizerKind, check_optimizer
from streammach.options.types import Count, Optimizer, Size, Weights


@dataclass(frozen=True, kw_only=True)
class Batching:
    """How many rows and values are in memory at once."""

    batch_size: Count  # batch_size, batch_nnz: rows and values of a batch at most
    batch_nnz: Count
    pool_blocks: Size = 1  # blocks of the store whose rows are shuffled together
    held_out_rows: Count = 0  # held_out_rows, held_out_nnz: most held-out rows and their values
    held_out_nnz: Count = 0
    batch_labels: Count = 0  # most labels of a batch, where rows have lists of them; else 0


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where a model is trained."""

    device: str  # a backend's name
    threads: Size  # threads that compute
    waves: Size = 1  # groups that the repetitions are trained in, one after another
    # type of the weights on the device: `float32`, or `bfloat16` where it has that
    weights: Weights = "float32"
    resident: bool = False  # whether the store's rows are kept in the device's memory, decoded once
    tf32: bool = False  # whether the device multiplies dense rows in TensorFloat-32
    best_stays: bool = False  # whether the device holds the best epoch beside the newest one
    card: str | UnsetType = UNSET  # the card that is planned for, where it is not this machine's

    @property
    def numbers(self) -> str:
        """What is computed with, for people."""
        return f"{self.weights}{', products in TF32' if self.tf32 else ''}"


@dataclass(frozen=True, kw_only=True)
class PartPlan:
    """An optional part that there is room for: what may stand beside or within hashed models."""

    name: str  # the part's
    size: Count = 0  # how large it may be, in its own unit; 0 where it has but one size
    # whether it brings rows to another basis; its size is the columns that they get beyond their
    # features
    basis: bool = False
    fixed: bool = False  # whether it is used without asking held-out rows, where that is possible


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Everything that decides the bytes and the time of a training, beside its data.

    Every ``footprint(config, facts)`` takes it whole.
    """

    shape: ModelShape  # K, d, d', B and R
    dense: bool  # whether batches are expanded to dense rows and go through matrix products
    optimizer: Optimizer | None  # the optimiser; None where a model only predicts
    batching: Batching  # how many rows are in memory at once
    placement: Placement  # where it is trained
    parts: tuple[PartPlan, ...] = ()  # the optional parts that there is room for

    def __post_init__(self) -> None:
        check_optimizer(self.optimizer)

    @property
    def optimizer_kind(self) -> OptimizerKind:
        """What is known of the optimiser."""
        assert self.optimizer is not None, "it only predicts"
        return OPTIMIZERS[self.optimizer]

    @property
    def text(self) -> str:
        """The kind of model and the type of its weights, for people."""
        if self.shape.unhashed:
            return "linear classifiers" if self.linear else "counts alone"
        return f"{self.shape} {self.placement.numbers}"

    @property
    def linear(self) -> bool:
        """Whether linear classifiers are the model."""
        return self.part("linear") is not None

    def part(self, name: str) -> PartPlan | None:
        """Return a part that there is room for, by its name."""
        return next((part for part in self.parts if part.name == name), None)

    def size_of(self, name: str) -> int:
        """Return how large a part may be; 0 where there is no room for it."""
        part = self.part(name)
        return 0 if part is None else part.size

    @property
    def has_feature_map(self) -> bool:
        """Whether a part may bring rows to another basis."""
        return any(part.basis for part in self.parts)

    @property
    def more_columns(self) -> int:
        """D, columns that parts may give dense rows beyond their features."""
        return sum(part.size for part in self.parts if part.basis)

    def needs_ids(self, facts: DataFacts) -> bool:
        """Return whether batches have ids of features: dense rows with all of them need none."""
        return not (self.dense and facts.whole)

    @property
    def weight_rows(self) -> int:
        """Rows of the weight table: d', and D more where parts may add columns."""
        return self.shape.n_hashed_features + self.more_columns

    @property
    def wide(self) -> ModelShape:
        """The shape with as many features as the weight table has rows."""
        return self.shape.wide(self.more_columns)

    @property
    def decisive(self) -> RunConfig:
        """The same for all devices, threads and waves, which change no decision and no result."""
        weights, tf32 = self.placement.weights, self.placement.tf32
        alike = Placement(device="any", threads=1, weights=weights, tf32=tf32)
        return replace(self, placement=alike)

    @classmethod
    def predicting(
        cls, shape: ModelShape, *, device: str, dense: bool, threads: int, waves: int = 1,
        n_more: int = 0,
    ) -> RunConfig:  # fmt: skip
        """Return the configuration of a backend that only predicts, with D more columns a row."""
        columns = PartPlan(name="columns", size=n_more, basis=True)
        return cls(
            shape=shape, dense=dense, optimizer=None,
            batching=Batching(batch_size=0, batch_nnz=0),
            placement=Placement(device=device, threads=threads, waves=waves),
            parts=(columns,) if n_more else (),
        )  # fmt: skip
