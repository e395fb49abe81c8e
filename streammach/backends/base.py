"""What the training and prediction code asks of a device, and how a device is opened."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from streammach.backends.loss import Loss
from streammach.backends.workload import Workload
from streammach.errors import BudgetError, DeviceError, clean
from streammach.rows.batch import Batch, Chosen
from streammach.rows.block import RowBlock
from streammach.rows.dense import Basis
from streammach.spec import Estimator, ModelSpec, TrainSpec, Weights

DEVICES = ("cpu", "cuda")


class Keeper(Protocol):
    """Keeps a store's rows in a device's memory, so that batches may name them."""

    def count(self, content: str) -> int:
        """Return how many of the store's first rows are there as what is called so."""
        ...

    def keep(self, batch: Batch, content: str) -> None:
        """Take the next rows of the store; if something else was kept, the first ones.

        Parameters
        ----------
        batch : Batch
            The rows.
        content : str
            What they are called: another name for rows with other values.
        """
        ...


class Backend(Protocol):
    """R softmax models side by side on one device; `codes` (K, R) are the buckets of each class.

    Arrays by name in :meth:`arrays`: ``weights`` float32 (d, R*B), ``bias`` float32 (R*B,), and
    what the optimiser keeps. Repetitions that do not fit a device together are trained in waves,
    each of which sees all rows of an epoch. A backend with a `keeper` is shown all rows once, and
    is given their numbers as batches.
    """

    spec: ModelSpec
    codes: NDArray[Any]
    wants_by_feature: bool
    n_waves: int

    @property
    def keeper(self) -> Keeper | None:
        """Where rows are kept, if they are."""
        ...

    def prepare(self, training: TrainSpec, batch_nnz: int, basis: Basis | None = None) -> None:
        """Make ready to train from zero weights; buffers of an earlier call are used again.

        Parameters
        ----------
        training : TrainSpec
            The optimiser, and the most rows of a batch.
        batch_nnz : int
            Most values of a batch.
        basis : Basis, optional
            Coordinates that dense rows are brought to, until :meth:`fold`.
        """
        ...

    def fold(self) -> None:
        """Turn weights for rows in another basis into those for plain rows, if there is one."""
        ...

    def select(self, wave: int, done: int = 0) -> None:
        """Turn to a wave of an epoch; `done` of its batches were trained before."""
        ...

    def step(self, batch: Batch | Chosen, rate: float) -> Loss:
        """Train on one batch; return the losses of it and of earlier ones that are known now.

        A device may be some batches behind. Each loss is returned once.
        """
        ...

    def settle(self) -> Loss:
        """Wait for all steps; return the losses that none of them returned."""
        ...

    def outputs(self, rows: RowBlock, *, logarithms: bool) -> NDArray[np.float32]:
        """Return bucket probabilities, or their logarithms: float32 (n, R*B)."""
        ...

    def topk(
        self, rows: RowBlock, k: int, estimator: Estimator
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the k best class ids (n, k) and their scores (n, k), best first, exactly."""
        ...

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return weights and optimiser state in host memory, as they are now.

        The same arrays at every call. What is written there counts after :meth:`restore`.
        """
        ...

    def restore(self) -> None:
        """Take over what was written into the arrays that :meth:`arrays` returned."""
        ...

    def device_bytes(self) -> tuple[int, int]:
        """Return the most bytes that buffers took of a device's memory, and the most allowed."""
        ...

    def close(self) -> None:
        """Give back threads and memory."""
        ...


def choose_device(wanted: str) -> tuple[str, str]:
    """Return the device to use and why.

    Parameters
    ----------
    wanted : str
        ``auto`` (a GPU that can be used, else the CPU) or a device.

    Raises
    ------
    DeviceError
        If the device cannot be used.
    """
    from streammach.backends.cuda.probe import find_card, simulated

    if wanted == "cpu":
        return "cpu", "asked for"
    if wanted == "cuda":
        return "cuda", find_card().name
    if wanted != "auto":
        raise DeviceError(f"'{clean(wanted)}' is no device; known are auto, {', '.join(DEVICES)}")
    if simulated():
        return "cpu", "CUDA is simulated"
    try:
        return "cuda", find_card().name
    except DeviceError as error:
        return "cpu", error.message


def device_limit(device: str) -> int:
    """Return the bytes of a device's own memory that are free; 0 for the CPU.

    Raises
    ------
    DeviceError
        If the device cannot be used.
    """
    from streammach.backends.cuda.probe import find_card

    return find_card().free_bytes if device == "cuda" else 0


def open_backend(
    device: str,
    spec: ModelSpec,
    *,
    dense: bool,
    threads: int,
    weights: dict[str, NDArray[Any]] | None = None,
    device_bytes: int = 0,
    waves: int = 0,
    weights_are: Weights = "float32",
    keep: tuple[int, int] = (0, 0),
) -> Backend:
    """Return a backend for a model.

    Parameters
    ----------
    device : str
        ``cpu`` or ``cuda``.
    spec : ModelSpec
        The model.
    dense : bool
        Whether rows are expanded and go through matrix products.
    threads : int
        Threads that compute on the CPU.
    weights : dict, optional
        ``weights`` and ``bias`` of a trained model, which are used as they are; zeros otherwise.
        Weights may be int8 where `scale` float32 (d,) says what each row is multiplied with; such a
        model only predicts.
    device_bytes : int
        Most bytes of a device's own memory; 0 for what is free.
    waves : int
        Groups that the repetitions are trained in; 0 for the fewest that fit for predicting.
    weights_are : str
        Type of the weights while they are trained: bfloat16 on a GPU alone.
    keep : tuple of int
        Rows of a store, and their values, that a GPU keeps; zeros where they are streamed.

    Raises
    ------
    DeviceError
        If there is no such device, or it has no such weights.
    BudgetError
        If the model does not fit its memory.
    """
    if device == "cpu":
        from streammach.backends.cpu.backend import CpuBackend  # compiled code loads on demand

        if weights_are != "float32":
            raise DeviceError(f"the CPU trains float32 weights, not {weights_are}")
        assert not any(keep), "the CPU has no memory of its own"
        return CpuBackend(spec, dense=dense, threads=threads, weights=weights)
    if device == "cuda":
        free = device_limit(device)  # before Numba's CUDA target is imported
        from streammach.backends.cuda.backend import CudaBackend

        return CudaBackend(
            spec, dense=dense, weights=weights, device_bytes=device_bytes or free, waves=waves,
            weights_are=weights_are, keep=keep,
        )  # fmt: skip
    raise DeviceError(f"'{clean(device)}' is no device; known are {', '.join(DEVICES)}")


def open_to_predict(
    wanted: str,
    spec: ModelSpec,
    *,
    dense: bool,
    threads: int,
    weights: dict[str, NDArray[Any]],
) -> tuple[str, Backend]:
    """Return the device for a trained model, and a backend there.

    Parameters
    ----------
    wanted : str
        A device, or ``auto``: a GPU if there is one that holds the model, else the CPU.
    spec : ModelSpec
        The model.
    dense : bool
        Whether rows are expanded and go through matrix products.
    threads : int
        Threads that compute on the CPU.
    weights : dict
        ``weights``, ``bias`` and perhaps ``scale``; see :func:`open_backend`.

    Raises
    ------
    DeviceError, BudgetError
        If the device that was asked for cannot be used for this model.
    """
    device = choose_device(wanted)[0]
    try:
        opened = open_backend(device, spec, dense=dense, threads=threads, weights=weights)
    except (DeviceError, BudgetError):
        if wanted != "auto":
            raise
        device = "cpu"
        opened = open_backend(device, spec, dense=dense, threads=threads, weights=weights)
    return device, opened


def footprint(
    device: str, spec: ModelSpec, work: Workload
) -> tuple[dict[str, int], dict[str, int]]:
    """Return the bytes of every buffer of a device's backend by name: on the host, on the device.

    Parameters
    ----------
    device : str
        ``cpu`` or ``cuda``.
    spec : ModelSpec
        The model.
    work : Workload
        The rest.

    Raises
    ------
    DeviceError
        If the model's shape cannot be launched on the device.
    """
    if device == "cpu":
        from streammach.backends.cpu.backend import CpuBackend  # compiled code loads on demand

        return CpuBackend.footprint(spec, work), {}
    from streammach.backends.cuda.backend import CudaBackend

    return CudaBackend.footprint(spec, work), CudaBackend.device_footprint(spec, work)
