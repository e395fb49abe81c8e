"""What the training and prediction code asks of a device."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from streammach.options.estimators import ESTIMATORS, EstimatorKind
from streammach.options.model_spec import ModelSpec
from streammach.options.training import TrainSpec
from streammach.options.types import Estimator
from streammach.rows.batch import Batch, RowIdBatch
from streammach.rows.block import RowBlock
from streammach.rows.dense import RowMap

BEST_CLASSES = 32  # that the joint loss tells from a row's own
CLASSES, ROWS = 4096, 64  # that are scored in NumPy at once


class Loss(NamedTuple):
    """A loss in nats, summed over models and so many rows."""

    total: float
    n_rows: int


NOTHING = Loss(0.0, 0)


def join_losses(a: Loss, b: Loss) -> Loss:
    """Return the losses of both."""
    return Loss(a.total + b.total, a.n_rows + b.n_rows)


class Ranked(Protocol):
    """A backend that finds the best classes by estimators which its kernels have a branch for."""

    spec: ModelSpec
    codes: NDArray[Any]
    logistic: bool

    def cut(self, rows: RowBlock) -> RowBlock:
        """Return rows without the features that the weight table has no row for."""
        if not self.spec.cut:
            return rows
        there = rows.features < self.spec.n_hashed_features
        return rows if there.all() else rows.with_values(there)

    def outputs(self, rows: RowBlock, *, logarithms: bool) -> NDArray[np.float32]:
        """Return bucket probabilities, or their logarithms: float32 (n, R*B)."""
        ...

    def rank(
        self, rows: RowBlock, kind: EstimatorKind, scores: NDArray[Any], ids: NDArray[Any]
    ) -> None:
        """Write the best classes int64 (n, k) of rows, and what they were ranked by float32."""
        ...

    def topk(
        self, rows: RowBlock, k: int, estimator: Estimator
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the k best classes of each row and their scores, (n, min(k, K)), best first.

        Parameters
        ----------
        rows : RowBlock
            n rows with transformed float32 values.
        k : int
            How many; all K classes if there are fewer.
        estimator : str
            A name in :data:`streammach.options.estimators.ESTIMATORS`.
        """
        kind, shape = ESTIMATORS[estimator], (rows.n_rows, min(k, self.spec.n_classes))
        ids, scores = np.empty(shape, np.int64), np.empty(shape, np.float32)
        rank = self.rank if kind.join is None else self._rank_plainly
        rank(rows, kind, scores, ids)
        return ids, self.finish_scores(rows, kind, scores)

    def finish_scores(
        self, rows: RowBlock, kind: EstimatorKind, scores: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Return the scores of rows for what they were ranked by: float32 (n, k)."""
        totals = self._totals(rows) if self.logistic and kind.unbiased else np.float32(1)
        return kind.finished(scores, self.spec, totals)

    def _totals(self, rows: RowBlock) -> NDArray[np.float32]:
        """Return the mean over repetitions of the sum of a row's probabilities: float32 (n, 1)."""
        out = np.empty((rows.n_rows, 1), np.float32)
        for start in range(0, rows.n_rows, ROWS):
            stop = min(start + ROWS, rows.n_rows)
            p = self.outputs(rows.part(start, stop), logarithms=False)
            out[start:stop] = p.sum(axis=1, keepdims=True) / self.spec.n_repetitions
        return out

    def _rank_plainly(
        self, rows: RowBlock, kind: EstimatorKind, scores: NDArray[Any], ids: NDArray[Any]
    ) -> None:
        assert kind.join is not None
        first = np.arange(self.spec.n_repetitions) * self.spec.n_buckets
        for start in range(0, rows.n_rows, ROWS):
            some = rows.part(start, min(start + ROWS, rows.n_rows))
            for i, p in enumerate(self.outputs(some, logarithms=kind.logarithms), start):
                parts = range(0, self.spec.n_classes, CLASSES)
                scored = [kind.join(p[first + self.codes[a : a + CLASSES]]) for a in parts]
                values = np.concatenate(scored)
                ids[i] = np.argsort(-values, kind="stable")[: ids.shape[1]]
                scores[i] = values[ids[i]]


class RowCache(Protocol):
    """Keeps a store's rows in a device's memory, so that batches may name them."""

    lengths: NDArray[np.int32]  # int32 (n_rows,): values of each row that is kept

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


class WeightRows(Protocol):
    """A table that is read some rows after others."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice) -> NDArray[Any]: ...


class Backend(Ranked, Protocol):
    """R softmax models side by side on one device; `codes` (K, R) are the buckets of each class.

    Arrays by name in :meth:`arrays`: ``weights`` float32 (d', R*B), ``bias`` float32 (R*B,), and
    what the optimiser keeps; batches hold the first d' features alone. Where rows have D more
    columns (:class:`streammach.rows.dense.RowMap`) the weights have d' + D rows, and
    ``projection`` is there. Repetitions that do not fit a device together are trained in waves, and
    each sees all rows of an epoch. A backend with a `row_cache` is shown all rows once, and is
    given their numbers as batches.

    What methods do here is right where weights lie in host memory, once, and rows are streamed.
    """

    n_waves: int = 1

    @property
    def keeps_best(self) -> bool:
        """Whether it can hold another epoch beside the present one, on the device or the host."""
        return False

    @property
    def row_cache(self) -> RowCache | None:
        """Where rows are kept, if they are."""
        return None

    def host_room(self, count: int, dtype: Any) -> NDArray[Any]:
        """Return a host array for rows of batches, which steps take from there."""
        return np.empty(count, dtype)

    def prepare(
        self, training: TrainSpec, batch_nnz: int, basis: RowMap | None = None,
        batch_labels: int = 0,
    ) -> None:  # fmt: skip
        """Make ready to train from zero weights; buffers of an earlier call are used again.

        Parameters
        ----------
        training : TrainSpec
            The loss, the optimiser, what the bias starts at, and the most rows of a batch.
        batch_nnz : int
            Most values of a batch.
        basis : RowMap, optional
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
        return

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
        return NOTHING

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return weights and optimiser state in host memory, as they are now.

        The same arrays at every call. What is written there counts after :meth:`restore`.
        """
        ...

    def restore(self) -> None:
        """Take over what was written into the arrays that :meth:`arrays` returned."""
        return

    def keep_best(self) -> None:
        """Hold weights and state as they are now, where :attr:`keeps_best` says so."""
        return

    def best_arrays(self) -> dict[str, NDArray[Any]]:
        """Return what was held last, in the arrays that :meth:`arrays` returns: they are lent."""
        return self.arrays()

    def return_to_best(self) -> None:
        """Go on from what was held last; the present weights are lost."""
        self.restore()

    def apply(self, weights: WeightRows | None, name: str = "") -> bool:
        """Predict by other weights until the trained ones are given back: None.

        Parameters
        ----------
        weights : WeightRows
            float32 (d, R*B); read once, some rows after others.
        name : str
            What they are called: nothing is done where weights of this name are applied already.

        Returns
        -------
        bool
            Whether it is done; a device that has no copy of the trained weights does nothing.
        """
        return False

    def device_bytes(self) -> tuple[int, int]:
        """Return the most bytes that buffers took of a device's memory, and the most allowed."""
        return 0, 0

    def close(self) -> None:
        """Give back threads and memory."""
        ...
