"""What the training and prediction code asks of a device."""

from __future__ import annotations

from typing import Any, Protocol

from numpy.typing import NDArray

from streammach.backends.loss import Loss
from streammach.backends.ranked import Ranked
from streammach.rows.batch import Batch, RowIdBatch
from streammach.rows.dense import RowMap
from streammach.spec.training import TrainSpec


class RowCache(Protocol):
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


class Backend(Ranked, Protocol):
    """R softmax models side by side on one device; `codes` (K, R) are the buckets of each class.

    Arrays by name in :meth:`arrays`: ``weights`` float32 (d, R*B), ``bias`` float32 (R*B,), and
    what the optimiser keeps. Where rows have D more columns (:class:`streammach.rows.dense.Waves`)
    the weights have d + D rows, and ``projection`` is there. Repetitions that do not fit a device
    together are trained in waves, each of which sees all rows of an epoch. A backend with a
    `row_cache` is shown all rows once, and is given their numbers as batches.
    """

    n_waves: int

    @property
    def wants_by_feature(self) -> bool:
        """Whether batches come with lists by feature."""
        ...

    @property
    def row_cache(self) -> RowCache | None:
        """Where rows are kept, if they are."""
        ...

    def prepare(
        self,
        training: TrainSpec,
        batch_nnz: int,
        basis: RowMap | None = None,
        batch_labels: int = 0,
    ) -> None:
        """Make ready to train from zero weights; buffers of an earlier call are used again.

        Parameters
        ----------
        training : TrainSpec
            The loss, the optimiser, what the bias starts at, and the most rows of a batch.
        batch_nnz : int
            Most values of a batch.
        basis : Basis or Waves, optional
            Coordinates that dense rows are brought to, until :meth:`unwhiten_weights`, and further
            columns, which stay.
        batch_labels : int
            Most labels of a batch, where rows have lists of them; else 0.
        """
        ...

    def unwhiten_weights(self) -> None:
        """Turn weights for rows in another basis into those for plain rows, if there is one."""
        ...

    def select_wave(self, wave: int, done: int = 0) -> None:
        """Turn to a wave of an epoch; `done` of its batches were trained before."""
        ...

    def step(self, batch: Batch | RowIdBatch, rate: float) -> Loss:
        """Train on one batch; return the losses of it and of earlier ones that are known now.

        A device may be some batches behind. Each loss is returned once.

        Parameters
        ----------
        batch : Batch or RowIdBatch
            The rows, or their numbers where the device keeps them.
        rate : float
            The learning rate of this step.
        """
        ...

    def drain_losses(self) -> Loss:
        """Wait for all steps; return the losses that none of them returned."""
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
