"""What is known of a backend before it is opened."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec import UnsetType

if TYPE_CHECKING:  # the commands' options need the names alone
    from streammach.backends.protocol import Backend
    from streammach.options.config import RunConfig
    from streammach.options.facts import DataFacts
    from streammach.options.model_spec import ModelShape, ModelSpec
    from streammach.options.types import Weights
    from streammach.rows.packed import Table

    Lines = dict[str, int]
    Arrays = Mapping[str, Table]

INSTALL_CUDA = 'Run: pip install "streammach[gpu-cuda12]" (gpu-cuda13 for driver 580 or newer).'


class Open(Protocol):
    """Opens a backend."""

    def __call__(
        self, spec: ModelSpec, config: RunConfig, *, facts: DataFacts | None = None,
        weights: Arrays | None = None, device_bytes: int = 0, logistic: bool = False,
    ) -> Backend:  # fmt: skip
        """Return a backend, or raise DeviceError; BudgetError if the model does not fit its memory.

        Parameters
        ----------
        spec, config : ModelSpec, RunConfig
            The model, and how it is trained; without an optimiser it only predicts, in the fewest
            groups that fit.
        facts : DataFacts, optional
            The store whose rows are kept in the device's memory, where the config says so.
        weights : dict, optional
            ``weights`` and ``bias`` of a trained model, which are used as they are; zeros
            otherwise. Weights may be int8, or packed, where `scale` float32 (d,) says what each
            row is multiplied with; such a model only predicts.
        device_bytes : int
            Most bytes of a device's own memory; 0 for what is free.
        logistic : bool
            Whether each bucket of the trained model has a sigmoid of its own.
        """
        ...


class Rates(NamedTuple):
    """Seconds that a device takes for a unit of work, all of it together."""

    byte: float  # read or written in its memory
    copied: float  # a byte that one thread brings there from the host's memory
    key: float  # sorted, of a batch
    product: float  # a float32 product and its sum, of a product of matrices


# Measured on one (driver 580, CUDA 13).
H200 = Rates(byte=1 / 4258e9, copied=1 / 10e9, key=0.39e-9, product=1 / 25.5e12)


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a device is to do, as far as it is known: by this it is chosen."""

    model: ModelShape | None = None  # the trained model that predicts
    dense: bool = False  # whether its rows go through matrix products
    n_more: int = 0  # D, columns that its dense rows get beyond their features
    shape: tuple[int, int] | None = None  # B and R of what is trained, where they are given
    unhashed: bool = False  # whether there are no hashed models
    weights: Weights = "float32"  # type of the weights while they are trained
    tf32: bool = False  # whether dense rows are multiplied in TensorFloat-32
    card: str | None = None  # a GPU that is not here


@dataclass(frozen=True, kw_only=True)
class BackendKind:
    """A device that can train and predict, as it is registered."""

    name: str  # in options, plans and logs
    title: str  # what people call it
    probe: Callable[[], str]  # why it can be used, in words; raises DeviceError where it cannot
    usual: Callable[[], str]  # the same where the user leaves the choice open
    open: Open
    # Bytes of every buffer by name, on the host and on the device; the store is needed where its
    # rows are kept there. Raises DeviceError if the model's shape cannot be launched.
    footprint: Callable[[RunConfig, DataFacts | None], tuple[Lines, Lines]]
    memory: Callable[[], int]  # free bytes of the device's own memory; 0 where it has none
    batch: Mapping[bool, int]  # by dense: rows from which on a step takes no less time a row
    # Raises DeviceError if it can never train, or predict by, R models of B buckets.
    launches: Callable[[int, int], None] = lambda n_buckets, n_repetitions: None
    # Raises BudgetError if the model of some work, which predicts, does not fit its memory now.
    holds: Callable[[Work], None] = lambda work: None
    max_waves: int = 1  # most groups that repetitions are trained in
    resident: tuple[bool, ...] = (False,)  # whether it may keep a store's rows, the better first
    weight_types: tuple[Weights, ...] = ("float32",)  # of weights while they are trained
    # Whether the machine's device multiplies dense rows in TensorFloat-32; None: none does.
    tf32: Callable[[], bool] | None = None
    sorts: bool = False  # whether it sorts the entries of sparse rows by feature itself
    keeps_kernels: bool = False  # whether kernels are compiled beforehand and kept on disk
    idle_host: bool = False  # whether the host's cores are free for reading while it trains
    # Measures the rates of a device of its own; None: work takes the threads of the CPU.
    rates: Callable[[], Rates] | None = None
    unhashed: bool = False  # whether classes can be ranked there without hashed models
    with_card: Callable[[str], BackendKind] | None = None  # see `of`; raises UsageError

    def of(self, card: str | UnsetType | None) -> BackendKind:
        """Return the same with a card that is not here, if one is named."""
        return self.with_card(card) if self.with_card is not None and card else self

    def by_feature(self, config: RunConfig) -> bool:
        """Return whether batches come with lists by feature."""
        return not (config.dense or self.sorts)

    def batch_threads(self, config: RunConfig) -> int:
        """Return how many threads make a training's batches of decoded rows."""
        return config.placement.threads if self.idle_host else 1
