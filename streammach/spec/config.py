"""How a model is trained on a machine: the one record of what a plan decides."""

from __future__ import annotations

from dataclasses import dataclass, replace

from streammach.spec.model import ModelShape
from streammach.spec.optimizers import OPTIMIZERS, OptimizerKind, check_optimizer
from streammach.spec.types import Count, Optimizer, Size, Weights


@dataclass(frozen=True, kw_only=True)
class Batching:
    """How many rows and values are in memory at once.

    Attributes
    ----------
    batch_size, batch_nnz : int
        Rows and values of a batch at most.
    pool_blocks : int
        Blocks of the store whose rows are shuffled together.
    held_out_rows, held_out_nnz : int
        Most held-out rows and their values.
    batch_labels : int
        Most labels of a batch, where rows have lists of them; else 0.
    """

    batch_size: Count
    batch_nnz: Count
    pool_blocks: Size = 1
    held_out_rows: Count = 0
    held_out_nnz: Count = 0
    batch_labels: Count = 0


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where a model is trained.

    Attributes
    ----------
    device : str
        A backend's name.
    threads : int
        Threads that compute.
    waves : int
        Groups that the repetitions are trained in, one after another.
    weights : str
        Type of the weights on the device: ``float32``, or ``bfloat16`` where it has that.
    resident : bool
        Whether the store's rows are kept in the device's memory, decoded once.
    tf32 : bool
        Whether the device multiplies dense rows in TensorFloat-32.
    """

    device: str
    threads: Size
    waves: Size = 1
    weights: Weights = "float32"
    resident: bool = False
    tf32: bool = False

    @property
    def numbers(self) -> str:
        """What is computed with, for people."""
        return f"{self.weights}{', products in TF32' if self.tf32 else ''}"

    @property
    def decisive(self) -> Placement:
        """The same for all devices, threads and waves, which change no decision and no result."""
        return Placement(device="any", threads=1, weights=self.weights, tf32=self.tf32)


@dataclass(frozen=True, kw_only=True)
class PartPlan:
    """An optional part that there is room for: what may stand beside or within hashed models.

    Attributes
    ----------
    name : str
        The part's.
    size : int
        How large it may be, in its own unit; 0 where it has but one size.
    basis : bool
        Whether it brings rows to another basis; its size is the columns that they get beyond
        their features.
    fixed : bool
        Whether it is used without asking held-out rows, where that is possible.
    """

    name: str
    size: Count = 0
    basis: bool = False
    fixed: bool = False


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Everything that decides the bytes and the time of a training, beside its data.

    Every ``footprint(config, facts)`` takes it whole.

    Attributes
    ----------
    shape : ModelShape
        K, d, B and R.
    dense : bool
        Whether batches are expanded to dense rows and go through matrix products.
    optimizer : str or None
        The optimiser; None where a model only predicts.
    batching : Batching
        How many rows are in memory at once.
    placement : Placement
        Where it is trained.
    parts : tuple of PartPlan
        The optional parts that there is room for.
    """

    shape: ModelShape
    dense: bool
    optimizer: Optimizer | None
    batching: Batching
    placement: Placement
    parts: tuple[PartPlan, ...] = ()

    def __post_init__(self) -> None:
        """Refuse an optimiser that is unknown."""
        check_optimizer(self.optimizer)

    @property
    def optimizer_kind(self) -> OptimizerKind:
        """What is known of the optimiser."""
        assert self.optimizer is not None, "it only predicts"
        return OPTIMIZERS[self.optimizer]

    def part(self, name: str) -> PartPlan | None:
        """Return a part that there is room for, by its name."""
        return next((part for part in self.parts if part.name == name), None)

    def size_of(self, name: str) -> int:
        """Return how large a part may be; 0 where there is no room for it."""
        part = self.part(name)
        return 0 if part is None else part.size

    @property
    def basis(self) -> bool:
        """Whether a part may bring rows to another basis."""
        return any(part.basis for part in self.parts)

    @property
    def more_columns(self) -> int:
        """D, columns that parts may give dense rows beyond their features."""
        return sum(part.size for part in self.parts if part.basis)

    @property
    def weight_rows(self) -> int:
        """Rows of the weight table: d, and D more where parts may add columns."""
        return self.shape.n_features + self.more_columns

    @property
    def wide(self) -> ModelShape:
        """The shape with as many features as the weight table has rows."""
        return replace(self.shape, n_features=self.weight_rows)

    def without(self, name: str) -> RunConfig:
        """Return it without a part."""
        return replace(self, parts=tuple(part for part in self.parts if part.name != name))

    @property
    def decisive(self) -> RunConfig:
        """The same for all devices, threads and waves, which change no decision and no result."""
        return replace(self, placement=self.placement.decisive)

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
