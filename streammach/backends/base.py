"""What the training and prediction code asks of a device, and how a device is opened."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from streammach.errors import DeviceError, clean
from streammach.rows.batch import Batch
from streammach.rows.block import RowBlock
from streammach.spec import Estimator, ModelSpec, Optimizer, TrainSpec

DEVICES = ("cpu",)


class Backend(Protocol):
    """R softmax models side by side on one device; `codes` (K, R) are the buckets of each class.

    Arrays by name in :meth:`arrays`: ``weights`` float32 (d, R*B), ``bias`` float32 (R*B,), and
    what the optimiser keeps.
    """

    spec: ModelSpec
    codes: NDArray[Any]
    wants_by_feature: bool

    def prepare(self, training: TrainSpec) -> None:
        """Make ready to train from zero weights; buffers of an earlier call are used again."""
        ...

    def step(self, batch: Batch, rate: float) -> float:
        """Train on one batch; return the loss summed over its rows and the R models, in nats."""
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
        """Return weights and optimiser state, as they are held: what is written there counts."""
        ...

    def close(self) -> None:
        """Give back threads and memory."""
        ...


def choose_device(wanted: str) -> tuple[str, str]:
    """Return the device to use and why.

    Parameters
    ----------
    wanted : str
        ``auto`` or a device.

    Raises
    ------
    DeviceError
        If the device cannot be used.
    """
    if wanted in ("auto", "cpu"):
        why = "asked for" if wanted == "cpu" else "this release trains on the CPU only"
        return "cpu", why
    if wanted == "cuda":
        raise DeviceError(
            "this release has no CUDA backend", path="--device cuda", hint="Use --device cpu."
        )
    raise DeviceError(f"'{clean(wanted)}' is no device; known are auto, {', '.join(DEVICES)}")


def open_backend(
    device: str,
    spec: ModelSpec,
    *,
    dense: bool,
    threads: int,
    weights: dict[str, NDArray[Any]] | None = None,
) -> Backend:
    """Return a backend for a model.

    Parameters
    ----------
    device : str
        ``cpu``.
    spec : ModelSpec
        The model.
    dense : bool
        Whether rows are expanded and go through matrix products.
    threads : int
        Threads that compute.
    weights : dict, optional
        ``weights`` and ``bias`` of a trained model, which are used as they are; zeros otherwise.
        Weights may be int8 where `scale` float32 (d,) says what each row is multiplied with; such a
        model only predicts.

    Raises
    ------
    DeviceError
        If there is no such device.
    """
    if device == "cpu":
        from streammach.backends.cpu.backend import CpuBackend  # compiled code loads on demand

        return CpuBackend(spec, dense=dense, threads=threads, weights=weights)
    raise DeviceError(f"'{clean(device)}' is no device; known are {', '.join(DEVICES)}")


def footprint(
    device: str,
    spec: ModelSpec,
    *,
    optimizer: Optimizer | None,
    dense: bool,
    batch_size: int,
    threads: int,
) -> dict[str, int]:
    """Return the bytes of every buffer of a device's backend, by name.

    Parameters
    ----------
    device : str
        ``cpu``.
    spec : ModelSpec
        The model.
    optimizer : str or None
        The optimiser; None for a backend that only predicts.
    dense : bool
        Whether rows are expanded.
    batch_size : int
        Most rows of a batch.
    threads : int
        Threads that compute.
    """
    from streammach.backends.cpu.backend import CpuBackend  # compiled code loads on demand

    assert device == "cpu", device
    return CpuBackend.footprint(
        spec, optimizer=optimizer, dense=dense, batch_size=batch_size, threads=threads
    )
