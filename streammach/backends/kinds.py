"""What is known of a backend before it is opened."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # the commands' options need the names alone
    from streammach.backends.base import Backend
    from streammach.rows.packed import Table
    from streammach.spec.config import RunConfig
    from streammach.spec.facts import DataFacts
    from streammach.spec.model import ModelShape, ModelSpec
    from streammach.spec.types import Decoding, Weights

    Lines = dict[str, int]
    Arrays = Mapping[str, Table]

INSTALL_CUDA = 'Run: pip install "streammach[gpu-cuda12]" (gpu-cuda13 for driver 580 or newer).'


class Open(Protocol):
    """Opens a backend."""

    def __call__(
        self,
        spec: ModelSpec,
        config: RunConfig,
        *,
        facts: DataFacts | None = None,
        weights: Arrays | None = None,
        device_bytes: int = 0,
        logistic: bool = False,
    ) -> Backend:
        """Return a backend for a model.

        Parameters
        ----------
        spec : ModelSpec
            The model.
        config : RunConfig
            How it is trained; without an optimiser it only predicts, in the fewest waves that fit.
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

        Raises
        ------
        DeviceError
            If the device cannot be used.
        BudgetError
            If the model does not fit its memory.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a device is to do, as far as it is known: by this it is chosen.

    Attributes
    ----------
    model : ModelShape, optional
        The trained model that predicts.
    dense : bool
        Whether its rows go through matrix products.
    n_more : int
        D, columns that its dense rows get beyond their features.
    shape : tuple of (int, int), optional
        B and R of what is trained, where they are given.
    unhashed : bool
        Whether there are no hashed models.
    decode : str
        How the best classes are found: ``auto``, or a way of the CPU.
    timed : bool
        Whether the time that it takes must be known.
    weights : str
        Type of the weights while they are trained.
    tf32 : bool
        Whether dense rows are multiplied in TensorFloat-32.
    """

    model: ModelShape | None = None
    dense: bool = False
    n_more: int = 0
    shape: tuple[int, int] | None = None
    unhashed: bool = False
    decode: Decoding = "auto"
    timed: bool = False
    weights: Weights = "float32"
    tf32: bool = False


@dataclass(frozen=True, kw_only=True)
class BackendKind:
    """A device that can train and predict, as it is registered.

    Attributes
    ----------
    name : str
        Its name in options, plans and logs.
    title : str
        What people call it.
    probe : callable
        Returns why it can be used, in words; raises DeviceError where it cannot.
    usual : callable
        The same where the user leaves the choice open.
    open : callable
        Opens a backend.
    footprint : callable
        Returns the bytes of every buffer for a config and a store by name, on the host and on the
        device. The store is needed where its rows are kept on the device. Raises DeviceError if
        the model's shape cannot be launched.
    memory : callable
        Returns the free bytes of the device's own memory; 0 where it has none.
    launches : callable
        Raises DeviceError if it can never train, or predict by, R models of B buckets.
    holds : callable
        Raises BudgetError if the model of a config that predicts does not fit its memory now.
    batch : dict of bool to int
        By dense: rows of a batch from which on a step takes no less time a row.
    max_waves : int
        Most groups that repetitions are trained in.
    resident : tuple of bool
        Whether a store's rows may be kept in its memory, the better first.
    weight_types : tuple of str
        Types of weights while they are trained.
    tf32 : bool
        Whether it multiplies dense rows in TensorFloat-32 where asked.
    wants_by_feature : bool
        Whether batches of sparse rows come with lists by feature.
    keeps_kernels : bool
        Whether kernels are compiled beforehand and kept on disk.
    idle_host : bool
        Whether the host's cores are free for reading while it trains.
    timed : bool
        Whether it is known how long it takes.
    unhashed : bool
        Whether classes can be ranked there without hashed models.
    decoding : callable
        Returns how the best classes of many rows are found for a shape, where there are several
        ways; else nothing.
    decode_by : callable, optional
        Has a backend find them in another way; raises UsageError where shape or machine do not
        allow that.
    """

    name: str
    title: str
    probe: Callable[[], str]
    usual: Callable[[], str]
    open: Open
    footprint: Callable[[RunConfig, DataFacts | None], tuple[Lines, Lines]]
    memory: Callable[[], int]
    batch: Mapping[bool, int]
    launches: Callable[[int, int], None] = lambda n_buckets, n_repetitions: None
    holds: Callable[[RunConfig], None] = lambda config: None
    max_waves: int = 1
    resident: tuple[bool, ...] = (False,)
    weight_types: tuple[Weights, ...] = ("float32",)
    tf32: bool = False
    wants_by_feature: bool = False
    keeps_kernels: bool = False
    idle_host: bool = False
    timed: bool = False
    unhashed: bool = False
    decoding: Callable[[ModelShape], str] = lambda shape: ""
    decode_by: Callable[[Backend, Decoding], None] | None = None

    def reading_threads(self, config: RunConfig) -> int:
        """Return how many threads decode rows, and make batches, for a training."""
        return config.placement.threads if self.idle_host else 1
