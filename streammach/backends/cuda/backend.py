"""The CUDA backend: what lies where, and what runs when.

The device holds one group of repetitions: all of them where they fit. Host arrays of the whole
model are where checkpoints and models come from, and where the groups rest that are not on the
device. A step is: rows to the device, forward pass, sorting, backward pass, losses back. Nothing
waits for it: copies to the device run beside the kernels of the batch before, and losses are read
several steps later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.backends.cuda.chunks import rounding_key
from streammach.backends.cuda.dense import CudaDenseSteps, RowTables
from streammach.backends.cuda.footprint import fewest_waves
from streammach.backends.cuda.group import Host, ModelGroup, OverOutputs, Rule
from streammach.backends.cuda.losses import CudaJointLoss, ListLoss, Losses
from streammach.backends.cuda.memory import RESERVED_BYTES, open_memory
from streammach.backends.cuda.prediction import CudaPrediction
from streammach.backends.cuda.shapes import group_edges, widest
from streammach.backends.cuda.sparse import CudaSparseSteps
from streammach.backends.cuda.transfers import BufferRoom, Resident
from streammach.backends.loss import NOTHING, Loss
from streammach.backends.ranked import Ranked
from streammach.rows.batch import Batch, RowIdBatch
from streammach.rows.block import RowBlock
from streammach.rows.dense import RowMap, Waves
from streammach.rows.packed import Table
from streammach.spec.config import RunConfig
from streammach.spec.estimators import EstimatorKind
from streammach.spec.facts import DataFacts
from streammach.spec.model import ModelSpec
from streammach.spec.training import TrainSpec
from streammach.threads import Workers


class CudaBackend(Ranked):
    """Trains and applies R softmax models with Numba's CUDA kernels, CuPy and cuBLAS.

    How it is opened, and what weights may be, says :class:`streammach.backends.kinds.Open`; with
    ``projection`` float32 (d + 2, D) rows get D more columns, and weights have d + D rows.

    Attributes
    ----------
    row_cache : Resident or None
        Where rows of a store are kept.

    Raises
    ------
    BudgetError
        If the model does not fit, in no number of groups.
    DeviceError
        If its shape cannot be launched, or the device has no TF32.
    """

    wants_by_feature = False  # entries are sorted on the device

    def __init__(
        self, spec: ModelSpec, config: RunConfig, *, facts: DataFacts | None,
        weights: Mapping[str, Table] | None, device_bytes: int, logistic: bool,
    ) -> None:  # fmt: skip
        dense, placement = config.dense, config.placement
        assert not (dense and placement.weights == "bfloat16"), "matrix products take float32"
        self.spec, self.dense, self.logistic = spec, dense, logistic
        projection = None if weights is None else weights.get("projection")
        more = None if projection is None else Waves(np.asarray(projection))
        self._wide = spec  # with as many features as the table has rows
        if more is not None:
            self._wide = replace(spec, n_features=spec.n_features + more.n_more)
        waves = placement.waves
        if config.optimizer is None:  # it only predicts
            waves = fewest_waves(
                spec.shape, dense=dense, device_bytes=device_bytes, n_more=self._n_more
            )
        self._edges = group_edges(spec, waves)
        self.n_waves = len(self._edges)
        self.codes = spec.codes()
        scale = None if weights is None else weights.get("scale")
        self._scale = None if scale is None else np.asarray(scale)
        self._weights_are = placement.weights
        self._steps = np.zeros(1, np.int64)
        self._wave_steps = 0
        if weights is None:
            weights = {
                "weights": np.zeros((spec.n_features, spec.n_columns), np.float32),
                "bias": np.zeros(spec.n_columns, np.float32),
            }
        self._host: Host = {name: weights[name] for name in ("weights", "bias")}
        self._ahead = False  # whether the device holds newer numbers than the host
        self._training: TrainSpec | None = None
        self._trains: CudaSparseSteps | CudaDenseSteps | None = None
        self._losses: Losses | None = None
        self._over: OverOutputs | None = None
        self._basis: RowMap | None = None
        self._tables: RowTables | None = None  # of the basis
        self._room = BufferRoom(0, 0)
        self._predicts: CudaPrediction | None = None
        self._memory = open_memory(max(device_bytes - RESERVED_BYTES, 0))
        self._tf32, threads = placement.tf32, placement.threads
        if self._tf32:
            self._memory.check_tf32()
        self._workers = Workers(threads, "rows") if dense and threads > 1 else None
        self._most = widest(spec, self.n_waves)
        with self._memory.use():
            self._group = self._new_group()
            self._group.take(*self._edges[0])
            self._group.read(self._host)
            self.row_cache = None
            if placement.resident:
                assert facts is not None, "rows that are kept are those of a store"
                self.row_cache = Resident(self._memory, facts.n_rows, facts.nnz, facts.n_labels)
            if more is not None:
                self._use(more)

    def prepare(
        self,
        training: TrainSpec,
        batch_nnz: int,
        basis: RowMap | None = None,
        batch_labels: int = 0,
    ) -> None:
        """Make ready to train from zero weights; buffers of an earlier call are used again."""
        self._training, self.logistic = training, training.logistic
        self._widen(0 if basis is None else basis.n_more)
        shapes = training.optimizer_kind.shapes(self._wide)
        weights = {name: self._host[name] for name in ("weights", "bias")}
        state = {n: a for n, a in self._host.items() if n in shapes and a.shape == shapes[n]}
        if state.keys() != shapes.keys():
            state = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
        self._host = {**weights, **state}
        if self.n_waves > 1:
            for array in self._host.values():
                array[:] = 0
            self._host["bias"][:] = training.start_bias
        self._steps[0] = self._wave_steps = 0
        self.drain_losses()  # of an earlier training
        with self._memory.use():
            self._group.tables.keep_state(training.optimizer)
            self._group.take(*self._edges[0])
            self._group.tables.start(training.start_bias, self._group.n_repetitions)
            self._ahead = True
            kept = self.row_cache is not None
            room = BufferRoom(training.batch_size, batch_nnz, batch_labels, kept)
            if self._room != room:
                self._trains = None  # its buffers go before new ones come
                self._trains = self._steps_on(room)
                self._losses = Losses(self._memory)
                self._room = room
            decoder = self._prediction().decoder  # it must fit when an epoch has been trained
            self._use(basis)
            self._over = None
            if batch_labels:
                self._over = ListLoss(self._memory, logistic=training.logistic)
            if training.loss == "joint":
                assert self.n_waves == 1, "the joint loss needs all repetitions at once"
                listed = batch_labels > 0
                self._over = CudaJointLoss(self._memory, self.spec, decoder, listed=listed)

    def _steps_on(self, room: BufferRoom) -> CudaSparseSteps | CudaDenseSteps:
        """Return what trains on batches that there is room for."""
        given = (self._memory, self._wide, self._most, room, self.row_cache)
        if not self.dense:
            return CudaSparseSteps(*given)
        return CudaDenseSteps(*given, n_more=self._n_more, workers=self._workers, tf32=self._tf32)

    def unwhiten_weights(self) -> None:
        """Turn weights for rows in another basis into those for plain rows, if there is one."""
        if self._basis is None or not self._basis.whitens:
            return
        host = self.arrays()
        self._basis.unwhiten_weights(host["weights"], host["bias"])
        with self._memory.use():
            self._use(self._basis.plain)
        self.restore()

    @property
    def _n_more(self) -> int:
        """D, the columns that rows have beyond their features."""
        return self._wide.n_features - self.spec.n_features

    def _widen(self, n_more: int) -> None:
        """Make the tables those of rows with D more columns, if they are not."""
        if n_more == self._n_more:
            return
        self._wide = replace(self.spec, n_features=self.spec.n_features + n_more)
        shape = (self._wide.n_features, self.spec.n_columns)
        self._host = {"weights": np.zeros(shape, np.float32), "bias": self._host["bias"]}
        self.drain_losses()
        with self._memory.use():
            # What is there goes before something else comes.
            self._trains = self._losses = self._over = self._tables = self._predicts = None
            self._room = BufferRoom(0, 0)
            del self._group
            self._group = self._new_group()

    def _new_group(self) -> ModelGroup:
        return ModelGroup(self._memory, self._wide, self.codes, self._most, self._weights_are)

    def _use(self, basis: RowMap | None) -> None:
        """Bring dense rows to a basis from now on, or leave them plain."""
        self._basis, used = basis, None
        if basis is not None:
            if self._tables is None:
                self._tables = RowTables(self._memory, self.spec.n_features, self._n_more)
            self._tables.take(basis)
            used = self._tables
        if isinstance(self._trains, CudaDenseSteps):
            self._trains.products.use(used)
        products = self._prediction().products
        if products is not None:
            products.use(used)

    def select_wave(self, wave: int, done: int = 0) -> None:
        """Turn to a wave of an epoch; `done` of its batches were trained before."""
        if wave and not done:
            self._steps[0] -= self._wave_steps  # every wave takes the steps of the first
        self._wave_steps = done
        with self._memory.use():
            self._turn_to(wave)

    def step(self, batch: Batch | RowIdBatch, rate: float) -> Loss:
        """Have the device train on one batch; return the losses that are known now."""
        training, losses = self._training, self._losses
        assert training is not None, "prepare() comes first"
        assert self._trains is not None
        assert losses is not None
        self._steps[0] += 1
        self._wave_steps += 1
        number = int(self._steps[0])
        rate, epsilon = training.optimizer_kind.corrected(rate, training.epsilon, number)
        rule = Rule(
            smoothing=np.float32(training.label_smoothing), rate=np.float32(rate),
            epsilon=np.float32(epsilon), key=rounding_key(training.seed, number),
        )  # fmt: skip
        with self._memory.use():
            self._ahead = True
            found = self._trains.step(self._group, batch, rule, self._over)
            return losses.take(found, batch.n_rows * self._group.n_repetitions, batch.n_rows)

    def drain_losses(self) -> Loss:
        """Wait for all steps; return the losses that none of them returned."""
        if self._losses is None:
            return NOTHING
        with self._memory.use():
            return self._losses.drain()

    def outputs(self, rows: RowBlock, *, logarithms: bool) -> NDArray[np.float32]:
        """Return bucket probabilities, or their logarithms: float32 (n, R*B)."""
        with self._memory.use():
            return self._prediction().outputs(self._scaled(rows), logarithms=logarithms)

    def rank(
        self, rows: RowBlock, kind: EstimatorKind, scores: NDArray[Any], ids: NDArray[Any]
    ) -> None:
        """Write the best classes int64 (n, k) of rows, and what they were ranked by float32."""
        with self._memory.use():
            self._prediction().rank(self._scaled(rows), kind, scores, ids)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return weights and optimiser state on the host, as they are now.

        The same arrays at every call; what is written there counts after :meth:`restore`.
        """
        if self._ahead:
            with self._memory.use():
                self._group.write(self._host)
            self._ahead = False
        found = {**self._host, "steps": self._steps}
        if isinstance(self._basis, Waves):
            found["projection"] = self._basis.projection
        return found

    def restore(self) -> None:
        """Take over what was written into the arrays that :meth:`arrays` returned."""
        with self._memory.use():
            self._group.read(self._host)
        self._ahead = False

    def device_bytes(self) -> tuple[int, int]:
        """Return the most bytes of device memory that buffers took, and what they may take."""
        return self._memory.taken(), self._memory.limit

    def close(self) -> None:
        """Give the device's memory back."""
        if self._workers is not None:
            self._workers.close()
        self._memory.wait()  # copies may be on their way from the room that goes now
        self._trains = self._losses = self._over = self._tables = self._predicts = None
        self.row_cache = None
        del self._group
        self._memory.close()

    def _turn_to(self, wave: int) -> None:
        """Bring a group to the device, and the one that is there to rest."""
        first, last = self._edges[wave]
        if self._group.first == first:
            return
        if self._ahead:
            self._group.write(self._host)
        self._group.take(first, last)
        self._group.read(self._host)
        self._ahead = False

    def _scaled(self, rows: RowBlock) -> RowBlock:
        """Return rows whose values carry the scale of int8 weights."""
        if self._scale is None:
            return rows
        return replace(rows, values=rows.values * self._scale[rows.features])

    def _prediction(self) -> CudaPrediction:
        if self._predicts is None:
            self._predicts = CudaPrediction(
                self._memory, self._wide, self.codes, self.n_waves, self._groups,
                dense=self.dense, n_more=self._n_more,
            )  # fmt: skip
        self._predicts.logistic = self.logistic
        return self._predicts

    def _groups(self) -> Iterator[ModelGroup]:
        """Bring one group after another to the device."""
        for wave in range(self.n_waves):
            self._turn_to(wave)
            yield self._group
